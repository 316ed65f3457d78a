"""``zmtpsniff trace``."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from zmtpsniff.capture.files import Captures
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.help import CHECKS, OUTPUT, CommandWithHelp
from zmtpsniff.cli.live_capture import LiveSettings, files_or_live, live_options, settle_capture, start_capture
from zmtpsniff.cli.live_host import tell_sealed
from zmtpsniff.cli.output import PartialOutputError, fail_if_overwritten, open_output
from zmtpsniff.cli.run import load_dissection
from zmtpsniff.cli.saver_options import SaverSettings, fail_if_unsaved, saver_options
from zmtpsniff.cli.shared_options import (
    FilePath,
    IntRange,
    color,
    display_filter,
    dissection_options_without_secrets,
    output_file,
    utc,
)
from zmtpsniff.cli.tshark_options import TsharkSettings, open_packets, plan_tshark, tshark_options
from zmtpsniff.engine.settings import Settings

if TYPE_CHECKING:
    from zmtpsniff.analysis.ways.hops import OpenWay
    from zmtpsniff.analysis.ways.records import Way
    from zmtpsniff.analysis.ways.ways import Ways
    from zmtpsniff.capture.live import LiveSource
    from zmtpsniff.cli.progress_line import ProgressLine
    from zmtpsniff.cli.shared_options import Filter
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.render.color import Color


_TOLD_NS = 1_000_000  # a clock that differs by less is put right without a word


class TraceSettings(NamedTuple):
    """Which ways to show, and how."""

    captures: tuple[str, ...]
    is_live: bool
    slowest: int | None
    lost: bool
    output_format: Literal["text", "json"]
    file: str | None
    utc: bool
    color: "Color"
    passes: "Filter | None"
    live: LiveSettings
    tshark: TsharkSettings
    saver: SaverSettings
    dissection: Settings


@click.command(cls=CommandWithHelp, short_help="Follow requests over brokers and services.")
@click.argument("captures", nargs=-1, type=FilePath(), metavar="CAPTURE...")
@CHECKS.option("--live", "is_live", is_flag=True, help="Follow traffic while it passes. From -i, until -a or Ctrl-C.")
@OUTPUT.option("--slowest", type=IntRange(1), metavar="N", help="Only the N ways that took longest, the slowest first.")
@OUTPUT.option("--lost", is_flag=True, help="Only requests without a reply, and jobs that were not done.")
@live_options
@tshark_options
@saver_options
@dissection_options_without_secrets
@display_filter
@OUTPUT.option(
    "-T", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="text: a ladder for each way; json: JSON Lines.",
)  # fmt: skip
@output_file
@utc
@color
def trace(**options: Any) -> None:
    """Follow each request, job and publication from socket to socket: where its time went, and where it ended.

    \b
    zmtpsniff trace capture.pcap
    zmtpsniff trace --slowest 5 capture.pcap
    zmtpsniff trace --lost -T json capture.pcap | jq .ended
    zmtpsniff trace -Y 'frames contains "order-17"' broker.pcap worker.pcap
    """
    settings = TraceSettings(**options)
    files_or_live(settings.captures, settings.is_live, settings.live, settings.saver)
    if settings.is_live:
        _trace_live(settings)
    else:
        _trace_files(settings)


def _trace_files(settings: TraceSettings) -> None:
    from zmtpsniff.analysis.ways.ways import Ways
    from zmtpsniff.cli.progress_line import make_progress_line
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.sniffer import Collaborators

    fail_if_overwritten(settings.captures, settings.file)
    ways = Ways(settings.passes)
    plan = plan_tshark(settings.tshark, settings.live.engine, settings.captures)
    source = open_packets(settings.captures, plan)
    if isinstance(source, Captures) and len(settings.captures) > 1:
        _set_clocks(source, settings.captures)
    capture = Dissection(
        source,
        settings.dissection,
        Collaborators(tls=plan.tls, acknowledge=ways.acknowledge),
    )
    line = make_progress_line(capture, settings.file)
    with open_output(settings.file, binary=settings.output_format == "json") as stream:
        writer = _Writer(settings, stream)
        try:
            writer.write(_found(capture, settings.dissection, ways, line))
        except KeyboardInterrupt as interrupt:
            writer.write([_records(ways, found) for found in (ways.take(capture.finish()), ways.finish())])
            writer.finish()
            raise PartialOutputError("interrupted: the ways are those of what was read until then") from interrupt
        writer.finish()


def _set_clocks(source: Captures, names: Sequence[str]) -> None:
    """Give the files of several hosts one clock, and say which differ."""
    if not all(map(os.path.isfile, names)):
        return  # they can be read only once
    from zmtpsniff.capture.files import open_captures
    from zmtpsniff.net.skew import clock_differences
    from zmtpsniff.words.durations import duration

    files = [open_captures([name]) for name in names]
    try:
        differences = clock_differences([file.batches() for file in files])
    finally:
        for file in files:
            file.close()
    for name, ahead_ns in zip(names, differences, strict=True):
        if ahead_ns is not None and abs(ahead_ns) >= _TOLD_NS:
            word = "ahead of" if ahead_ns > 0 else "behind"
            words = f"its clock is {duration(abs(ahead_ns))} {word} that of {names[0]}; its times are put right"
            click.echo(f"zmtpsniff: {name}: {words}", err=True)
    source.set_clocks([ahead_ns or 0 for ahead_ns in differences])


def _trace_live(settings: TraceSettings) -> None:
    from zmtpsniff.analysis.ways.ways import Ways
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.sniffer import Collaborators

    live, dissection = settings.live, settings.dissection
    dissectors = load_dissection(dissection)
    started = start_capture(live, settings.tshark, settings.saver)
    settle_capture(started, live, settings.saver, records=settings.file, count=dissection.packets, verbosity=0)
    source: LiveSource = started.source
    ways = Ways(settings.passes)
    with open_output(settings.file, binary=settings.output_format == "json") as stream:
        writer = _Writer(settings, stream)
        try:
            collaborators = Collaborators(
                clock=time.time_ns, tls=started.tls, acknowledge=ways.acknowledge, dissectors=dissectors
            )
            writer.write(_found(Dissection(source, dissection, collaborators), dissection, ways, None))
        finally:
            source.close()
        writer.finish()
    if source.failure is not None:  # what was seen until then is told
        raise CaptureError(source.failure)
    fail_if_unsaved(source.saver)


def _found(
    capture: "Dissection", settings: Settings, ways: "Ways", line: "ProgressLine | None"
) -> Iterator[Sequence["Way"]]:
    """The ways, as soon as they are known."""
    try:
        for events in capture.batches():
            yield _records(ways, ways.take(events))
            if line is not None:
                line.draw()
        yield _records(ways, ways.finish())
    finally:
        if line is not None:
            line.erase()
        tell_sealed(capture, settings)


def _records(ways: "Ways", found: "Sequence[OpenWay]") -> "list[Way]":
    return [record for way in found if (record := ways.record(way)) is not None]


class _Writer:
    """Writes the ways that the user wants."""

    def __init__(self, settings: TraceSettings, stream: Any) -> None:
        from zmtpsniff.render.jsonl import JsonlRenderer
        from zmtpsniff.render.way_ladder import LadderRenderer

        self._lost = settings.lost
        self._most = settings.slowest
        self._slowest: list[Way] = []
        self._ladder: LadderRenderer | None = None
        self._write: Callable[[Sequence[Way]], None]
        if settings.output_format == "json":
            self._write = JsonlRenderer(stream).write  # type: ignore[assignment]  # it writes any struct
        else:
            self._ladder = LadderRenderer(stream, settings.utc, settings.color)
            self._write = self._ladder.write

    def write(self, found: "Iterator[Sequence[Way]] | Sequence[Sequence[Way]]") -> None:
        """Write these ways, or remember the slowest."""
        for ways in found:
            wanted = [way for way in ways if not self._lost or way.ended is not None or way.answered is False]
            if self._most is None:
                self._write(wanted)
            elif wanted:
                self._slowest = sorted([*self._slowest, *wanted], key=lambda way: -way.duration_ns)[: self._most]

    def finish(self) -> None:
        """Write what was remembered, and for people the line that sums up."""
        self._write(self._slowest)
        if self._ladder is not None:
            self._ladder.finish()
