"""The commands that are compared live, and how to read what they write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from observe import Drops, Observer
from tools import Tshark
from traffic import PORT

FILTER = f"tcp port {PORT}"
TSHARK, TCPDUMP, TCPDUMP_SAVING = "tshark -l -T fields", "tcpdump -l", "tcpdump -w"
_MESSAGE = b'"type":"message"'
_TIME_NS = re.compile(rb'"time_ns":(\d+)')
_EPOCH = re.compile(rb"(?:^|\t)(\d{9,})\.(\d+)\b")


def of_engine(zmtpsniff: Sequence[str], engine: str) -> Observer:
    """Return zmtpsniff with one of its engines."""

    def command(interface: str) -> list[str]:
        return [*zmtpsniff, "live", "-i", interface, "-f", FILTER, "--engine", engine, "-T", "json"]

    def drops(told: bytes, _: str) -> Drops:
        # A record each time that some were dropped, with the sum so far; the closing record has the sum of both.
        kernel = re.findall(rb"by the kernel, (\d+) in all", told)
        own = re.findall(rb"waiting to be read, (\d+) in all", told)
        total = re.findall(rb'"dropped":(\d+)', told)
        waiting = int(own[-1]) if own else 0
        if kernel:
            return Drops(int(kernel[-1]), waiting)
        return Drops(int(total[-1]) - waiting, waiting) if total else Drops(None, waiting if own else None)

    return Observer(
        name=engine_name(engine),
        command=command,
        unit="messages",
        expected=lambda sent: sent.messages,
        count=lambda lines: lines.count(_MESSAGE),
        stamp=_stamp_of_record,
        drops=drops,
        telling=b"dropped",
    )


def engine_name(engine: str) -> str:
    """Return what an engine is called in the tables."""
    return f"zmtpsniff --engine {engine}"


def of_tshark(tshark: Tshark) -> Observer:
    """Return tshark with the fields of the other benchmark; one without ZMTP shows TCP payload and counts packets."""

    def command(interface: str) -> list[str]:
        return [*tshark.command, "-l", "-n", "-i", interface, "-f", FILTER, *tshark.selection, *tshark.fields]

    def count(lines: bytes) -> int:
        # The last field has the data of all messages of the packet.
        data = [line.rpartition(b"\t")[2] for line in lines.split(b"\n")]
        return sum([field.count(b",") + 1 for field in data if field])

    return Observer(
        name=TSHARK,
        command=command,
        unit="messages" if tshark.knows_zmtp else "packets",
        expected=(lambda sent: sent.messages) if tshark.knows_zmtp else (lambda _: None),
        count=count,
        stamp=_stamp_of_line,
        drops=lambda _, said: _told_at_the_end(r"(\d+) packets? dropped", said, said_if_none=False),
    )


def of_tcpdump(saved: Path | None = None) -> Observer:
    """Return tcpdump, which prints a line a packet and knows nothing of ZMTP, or saves the packets in a file."""
    # -Z root: it would give up its privileges before it opens the file, and the folder is not its own.
    shown = ["-l", "-n", "-tt"] if saved is None else ["-Z", "root", "-w", str(saved)]
    return Observer(
        name=TCPDUMP if saved is None else TCPDUMP_SAVING,
        command=lambda interface: ["tcpdump", *shown, "-i", interface, FILTER],
        unit="packets",
        expected=lambda sent: sent.packets if saved is None else None,
        count=lambda lines: lines.count(b"\n") + 1 if lines else 0,
        stamp=_stamp_of_line,
        drops=lambda _, said: _told_at_the_end(r"(\d+) packets? dropped by", said, said_if_none=True),
    )


def _told_at_the_end(pattern: str, said: str, *, said_if_none: bool) -> Drops:
    """Read the drops from the closing words; a command that says nothing when there are none must have come so far."""
    found = re.findall(pattern, said)
    if not found and (said_if_none or not re.search(r"\d+ packets? captured", said)):
        return Drops(None, None)
    return Drops(sum(map(int, found)), None)


def _stamp_of_record(line: bytes) -> int | None:
    found = _TIME_NS.search(line) if _MESSAGE in line else None
    return int(found[1]) if found else None


def _stamp_of_line(line: bytes) -> int | None:
    found = _EPOCH.search(line)
    return int(found[1]) * 10**9 + int(found[2].ljust(9, b"0")[:9]) if found else None
