"""``zmtpsniff trace``."""

import io
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from zmtpsniff.cli.files_or_live import CaptureSettings, capture_options, dissecting
from zmtpsniff.cli.help import OUTPUT, CommandWithHelp
from zmtpsniff.cli.output import open_output
from zmtpsniff.cli.run import pump_and_write, write_structs
from zmtpsniff.cli.shared_options import IntRange, color, filter_option, output_file, records_format, utc
from zmtpsniff.cli.window_options import WindowSettings, window_options
from zmtpsniff.words.counts import plural

if TYPE_CHECKING:
    from zmtpsniff.analysis.ways.hops import OpenWay
    from zmtpsniff.analysis.ways.way_records import Way
    from zmtpsniff.analysis.ways.ways import Ways
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.filters import Filter
    from zmtpsniff.host.local import LocalHost
    from zmtpsniff.render.color import Color


class TraceSettings(NamedTuple):
    """Which ways to show, and how."""

    slowest: int | None
    lost: bool
    output_format: Literal["text", "json"]
    file: str | None
    utc: bool
    color: "Color"
    passes: "Filter | None"
    capture: CaptureSettings
    window: WindowSettings


@click.command(cls=CommandWithHelp, short_help="Follow requests over brokers and services.")
@capture_options("Follow")
@window_options
@OUTPUT.option("--slowest", type=IntRange(1), metavar="N", help="Only the N ways that took longest, the slowest first.")
@OUTPUT.option("--lost", is_flag=True, help="Only requests without a reply, and jobs that were not done.")
@filter_option('Only ways with a message that passes: frames contains "order-17".')
@records_format("text", "a ladder for each way")
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
    settings.capture.fail_on_contradiction(settings.file)
    from zmtpsniff.analysis.ways.ways import Ways

    ways, file = Ways(settings.passes), settings.file

    def meet(host: "LocalHost") -> None:
        ways.connections.process_of = host.owners.process

    with (
        dissecting(
            settings.capture,
            records=file,
            window=settings.window,
            batches=settings.passes is None,
            load=_load_renderer,
            with_one_clock=True,
            meet=meet,
            acknowledge=ways.acknowledge,
            witness=ways,
        ) as capture,
        open_output(file, binary=settings.output_format == "json") as stream,
    ):
        writer = _Writer(settings, ways, stream, capture)
        pump_and_write(
            capture,
            settings.capture.dissection,
            lambda events: writer.write(ways.take(events)),
            writer.finish,
            "ways",
            file,
        )


def _load_renderer() -> None:
    """Import what _Writer needs."""
    from zmtpsniff.render.way_ladder import LadderRenderer

    LadderRenderer(io.StringIO(), color="always").finish()
    write_structs(io.BytesIO(), [])


class _Writer:
    """Writes the ways that the user wants."""

    def __init__(self, settings: TraceSettings, ways: "Ways", stream: Any, capture: "Dissection") -> None:
        self._settings = settings
        self._ways = ways
        self._capture = capture
        self._stream = stream
        self._slowest: list[Way] = []
        self._followed: Counter[str] = Counter()  # ways by kind, whether shown or not
        self._are_answered = True  # all requests among them
        self._ladder = None
        if settings.output_format == "text":
            from zmtpsniff.render.way_ladder import LadderRenderer

            self._ladder = LadderRenderer(stream, settings.utc, settings.color)

    def write(self, found: "Sequence[OpenWay]") -> None:
        """Write these ways, or remember the slowest."""
        records = [record for way in found if (record := self._ways.record(way)) is not None]
        for way in records:
            self._followed[way.kind] += 1
            self._are_answered = self._are_answered and (way.answered is True or way.kind != "request")
        wanted = [way for way in records if not self._settings.lost or way.ended is not None or way.answered is False]
        if self._settings.slowest is None:
            self._show(wanted)
        elif wanted:
            from zmtpsniff.analysis.ways.way_records import lasted_ns
            from zmtpsniff.render.way_ladder import is_only_counted

            if self._ladder is not None:
                self._show([way for way in wanted if is_only_counted(way)])
                wanted = [way for way in wanted if not is_only_counted(way)]
            self._slowest = sorted([*self._slowest, *wanted], key=lasted_ns, reverse=True)
            del self._slowest[self._settings.slowest :]

    def finish(self) -> None:
        """Write the rest, the slowest ways, and for people the line that sums up."""
        self.write(self._ways.finish())
        self._show(self._slowest)
        if self._ladder is not None:
            self._ladder.finish(self._nothing())

    def _nothing(self) -> str:
        """Why there is no way to show, if there is none."""
        if not self._followed:
            if self._settings.passes is not None:
                return "no way has a message that passes -Y"
            messages = self._capture.totals.messages
            if not messages:
                is_sealed = self._capture.curve_connections[1] > 0
                return f"no way to show: {'all messages are encrypted' if is_sealed else 'there is no message'}"
            return f"no way to show: nothing in {plural(messages, 'message')} tells which one answers another"
        told = {kind: plural(count, kind) for kind, count in self._followed.items()}
        if "request" in told and self._are_answered:
            told["request"] += ", all answered"
        published = told.pop("publication", None)  # one that a publisher drops has no way
        parts = [f"nothing is lost: {', '.join(told.values())}"] if told else []
        if published:
            parts.append(f"{published}: zmtpsniff diagnose says whether subscribers missed some")
        return "; ".join(parts)

    def _show(self, ways: "Sequence[Way]") -> None:
        if self._ladder is None:
            write_structs(self._stream, ways)
        else:
            self._ladder.write(ways)
