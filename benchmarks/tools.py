"""The commands that are compared, and how to tell that each of them did its work."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import measure
from traffic import PORT, Recording

JSON, PYTHON, NO_PATTERNS, NO_PAYLOAD, STATS, DIAGNOSE, TRACE, SUMMARY, TREE, FIELDS, EK, TCPDUMP = (
    "zmtpsniff -T json",
    "zmtpsniff -T json, without the native core",
    "zmtpsniff -T json --no-patterns",
    "zmtpsniff -T json --no-payload",
    "zmtpsniff stats",
    "zmtpsniff diagnose",
    "zmtpsniff trace",
    "zmtpsniff -T summary",
    "zmtpsniff -T tree --color always",
    "tshark -T fields",
    "tshark -T ek",
    "tcpdump -nr",
)
BEFORE = "{}, version 0.9.0"
RECORDS = (JSON, STATS, DIAGNOSE)  # the commands that write records


BROKERS_LEGS = 8  # messages of each request, over three brokers and back


@dataclass(frozen=True)
class Tool:
    """A command to measure: ``verify`` runs it once, counts its results and raises if they are not all there."""

    name: str
    command: Callable[[Path], list[str]]
    verify: Callable[[Recording], str]
    capture_on_stdin: bool = False


@dataclass(frozen=True)
class Tshark:
    """The tshark at hand. Older ones know no ZMTP: they can be measured, but it is less work that they do."""

    command: Sequence[str]
    version: str
    knows_zmtp: bool

    @property
    def selection(self) -> list[str]:
        """The options that choose the packets to show."""
        return ["-d", f"tcp.port=={PORT},zmtp", "-Y", "zmtp"] if self.knows_zmtp else ["-Y", "tcp.len > 0"]

    @property
    def fields(self) -> list[str]:
        """The options that show what the records of zmtpsniff hold, too: place, time, connection, frames' octets."""
        columns = ["zmtp.length", "zmtp.data"] if self.knows_zmtp else ["tcp.len", "tcp.payload"]
        shown = ["frame.number", "frame.time_epoch", "tcp.stream", *columns]
        return ["-T", "fields", *(option for column in shown for option in ("-e", column))]


def version(command: Sequence[str]) -> str:
    """Return the version number in what ``--version`` prints, with its core if it has one; or why there is none."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    except OSError as reason:
        return f"missing ({reason.strerror})"
    found = re.search(r"\d+\.\d[\w.+-]*\w( \((native|python)\))?", done.stdout or done.stderr)
    return found[0] if found else f"unknown (exit status {done.returncode})"


def find_tshark(command: Sequence[str]) -> Tshark:
    """Ask tshark for its version and whether it has a ZMTP dissector."""
    try:
        protocols = subprocess.run([*command, "-G", "protocols"], capture_output=True, text=True, check=False).stdout
    except OSError:
        protocols = ""
    return Tshark(command, version(command), re.search(r"\tzmtp\b", protocols) is not None)


def compared(zmtpsniff: Sequence[str], tshark: Tshark) -> list[Tool]:
    """Return the commands in the order of the tables; the first one is what the ratios refer to."""
    return [
        reading(zmtpsniff),
        _for_people(SUMMARY, zmtpsniff, "-T", "summary"),
        _for_people(TREE, zmtpsniff, "-T", "tree", "--color", "always"),
        *_tshark_tools(tshark),
        Tool(TCPDUMP, lambda capture: ["tcpdump", "-nr", str(capture)], _verify_tcpdump),
    ]


def of_before(before: Sequence[str]) -> list[Tool]:
    """Return the commands of an earlier version, to tell whether they take less time now."""
    return [
        replace(reading(before), name=BEFORE.format(JSON)),
        *(replace(totals(name, before), name=BEFORE.format(name)) for name in (STATS, DIAGNOSE)),
        _for_people(BEFORE.format(SUMMARY), before, "-T", "summary"),
        _for_people(BEFORE.format(TREE), before, "-T", "tree", "--color", "always"),
    ]


def reading(zmtpsniff: Sequence[str]) -> Tool:
    """Return the command that all others are compared with."""
    return Tool(JSON, lambda capture: [*zmtpsniff, "read", "-T", "json", str(capture)], _verify_json(zmtpsniff))


def in_python(zmtpsniff: Sequence[str]) -> Tool:
    """Return zmtpsniff without its native core, to tell how quick plain Python is."""
    command = ["env", "ZMTPSNIFF_NATIVE=0", *zmtpsniff]
    return Tool(PYTHON, lambda capture: [*command, "read", "-T", "json", str(capture)], _verify_json(command))


def without_patterns(zmtpsniff: Sequence[str]) -> Tool:
    """Return the command that says nothing of what messages mean to each other, to tell what that costs."""
    options = ["-T", "json", "--no-patterns"]
    return Tool(
        NO_PATTERNS, lambda capture: [*zmtpsniff, "read", *options, str(capture)], _verify_json(zmtpsniff, *options)
    )


def without_payload(zmtpsniff: Sequence[str]) -> Tool:
    """Return zmtpsniff without what applications say in messages, to tell what looking for that costs."""
    options = ["-T", "json", "--no-payload"]
    return Tool(
        NO_PAYLOAD, lambda capture: [*zmtpsniff, "read", *options, str(capture)], _verify_json(zmtpsniff, *options)
    )


def totals(name: str, zmtpsniff: Sequence[str]) -> Tool:
    """Return the command that reads a capture for its STATS, or to DIAGNOSE it."""
    word = name.split()[1]
    return Tool(
        name,
        lambda capture: [*zmtpsniff, word, "-T", "json", str(capture)],
        _verify_json(zmtpsniff, "-T", "json", command=word),
    )


def of_brokers(zmtpsniff: Sequence[str]) -> list[Tool]:
    """Return what is measured on requests that brokers pass on."""
    command = [*zmtpsniff, "trace", "-T", "json"]

    def verify(recording: Recording) -> str:
        output = measure.count([*command, str(recording.path)])
        _expect("ways", output.lines, recording.messages // BROKERS_LEGS)
        return f"{output.lines:,} ways"

    trace = Tool(TRACE, lambda capture: [*command, str(capture)], verify)
    return [reading(zmtpsniff), trace, *(totals(name, zmtpsniff) for name in (STATS, DIAGNOSE))]


def _verify_json(zmtpsniff: Sequence[str], *options: str, command: str = "read") -> Callable[[Recording], str]:
    def verify(recording: Recording) -> str:
        output = measure.count([*zmtpsniff, command, *(options or ("-T", "json")), str(recording.path)])
        try:
            totals = json.loads(output.last_line)
            messages, packets = totals["messages"], totals["packets"]
        except (ValueError, KeyError, TypeError) as reason:
            raise measure.CommandFailedError("the last record is not the totals of the capture") from reason
        _expect("messages", messages, recording.messages)
        _expect("packets", packets, recording.packets)
        return f"{messages:,} messages"

    return verify


def _for_people(name: str, zmtpsniff: Sequence[str], *options: str) -> Tool:
    """A format whose totals are not counted but its lines: at least one for each message."""

    def command(capture: Path) -> list[str]:
        return [*zmtpsniff, "read", *options, str(capture)]

    def verify(recording: Recording) -> str:
        output = measure.count(command(recording.path))
        if output.lines < recording.messages:
            _expect("lines", output.lines, recording.messages)
        return f"{output.lines:,} lines"

    return Tool(name, command, verify)


def _tshark_tools(tshark: Tshark) -> list[Tool]:
    # The capture comes by standard input, so that a tshark in a root directory of its own needs no copy of it.
    read = [*tshark.command, "-n", "-r", "-"]
    read += tshark.selection
    fields = [*read, *tshark.fields]

    def verify(recording: Recording) -> str:
        if not tshark.knows_zmtp:
            return "TCP only, no ZMTP"
        # One length a frame; packets that complete no frame are left out, or they would be empty lines.
        counting = [*read, "-Y", "zmtp.length", "-T", "fields", "-e", "zmtp.length"]
        output = measure.count(counting, recording.path)
        frames = output.lines + output.commas
        if frames < recording.messages:
            _expect("frames", frames, recording.messages)
        return f"{frames:,} frames"

    return [
        Tool(FIELDS, lambda _: fields, verify, capture_on_stdin=True),
        Tool(EK, lambda _: [*read, "-T", "ek"], verify, capture_on_stdin=True),
    ]


def _verify_tcpdump(recording: Recording) -> str:
    output = measure.count(["tcpdump", "-nr", str(recording.path)])
    if output.lines < recording.packets:
        _expect("lines", output.lines, recording.packets)
    return f"{output.lines:,} lines"


def _expect(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise measure.CommandFailedError(f"wrong result: {found:,} {what} of {expected:,}")
