"""``zmtpsniff stats``."""

from typing import IO, TYPE_CHECKING, Any, Literal

import click

from zmtpsniff.analysis.defaults import SORT, TOP_ROWS
from zmtpsniff.cli.help import CommandWithHelp
from zmtpsniff.cli.options import (
    FilePath,
    FloatRange,
    IntRange,
    color,
    display_filter,
    dissection_options,
    output_file,
    table_format,
    utc,
)
from zmtpsniff.cli.output import fail_if_overwritten, open_output
from zmtpsniff.cli.run import make_sniffer
from zmtpsniff.collector import spare_collector
from zmtpsniff.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zmtpsniff.analysis.statistics.records import AnyRecord
    from zmtpsniff.cli.options import Filter
    from zmtpsniff.render import Color

# As zmtpsniff.analysis.statistics.sorts has them, which is not imported at start-up; a test compares.
SORTS = ("messages", "octets", "rate", "duration", "start", "peers", "address", "p50", "p95", "p99", "max")


@click.command(cls=CommandWithHelp, short_help="Say who talks to whom, how much, how fast.")
@click.argument("captures", nargs=-1, required=True, type=FilePath(), metavar="CAPTURE...")
@click.option("--top", type=IntRange(1), default=TOP_ROWS, show_default=True, metavar="N", help="Rows of each table.")
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default=SORT,
    show_default=True,
    metavar="FIELD",
    help=f"What comes first: {', '.join(SORTS)}. Tables without it stay sorted by {SORT}.",
)
@click.option(
    "--interval",
    type=FloatRange(0.001),
    metavar="SECONDS",
    help="Intervals of the time line; by default what suits the capture.",
)
@dissection_options
@display_filter
@table_format
@output_file
@utc
@color
def stats(
    captures: tuple[str, ...],
    top: int,
    sort: str,
    interval: float | None,
    dissection: Settings,
    passes: "Filter | None",
    output_format: Literal["table", "json"],
    file: str | None,
    utc: bool,
    color: "Color",
) -> None:
    """Say who talks to whom, how much, how fast: connections, sockets, topics, latency, problems.

    \b
    zmtpsniff stats capture.pcap
    zmtpsniff stats --top 5 --sort p99 capture.pcap
    zmtpsniff stats -Y 'ip.addr == 10.0.0.5' capture.pcap
    zmtpsniff stats --interval 60 -T json day.pcapng | jq .messages_per_s
    """
    fail_if_overwritten(captures, file)
    from zmtpsniff.analysis.statistics import Statistics
    from zmtpsniff.analysis.statistics.report import report
    from zmtpsniff.analysis.statistics.statistics import ROWS
    from zmtpsniff.capture.files import open_captures
    from zmtpsniff.cli.progress import make_progress_line

    statistics = Statistics(None if interval is None else round(interval * 1e9), sort, max(ROWS, top))
    source = open_captures(captures)
    sniffer = make_sniffer(source, dissection)
    line = make_progress_line(source.position, file)
    spare_collector()
    with open_output(file, binary=output_format == "json") as stream:
        try:
            try:
                for events in sniffer.events():
                    statistics.take(events, passes)
                    if line is not None:
                        line.draw()
            finally:
                if line is not None:
                    line.erase()
        except KeyboardInterrupt:
            statistics.take(sniffer.finish(), passes)
            _write(report(statistics, top, sort), stream, output_format, utc, color)
            raise
        _write(report(statistics, top, sort), stream, output_format, utc, color)


def _write(records: "Sequence[AnyRecord]", stream: IO[Any], output_format: str, utc: bool, color: "Color") -> None:
    if output_format == "json":
        from zmtpsniff.render.jsonl import JsonlRenderer

        JsonlRenderer(stream).write(records)  # type: ignore[arg-type]  # it writes any struct
    else:
        from zmtpsniff.render.statistics import draw

        draw(records, stream, utc, color)
