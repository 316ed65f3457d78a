"""``zmtpsniff stats``."""

from typing import TYPE_CHECKING, Literal

import click

from zmtpsniff.analysis.defaults import SORT, TOP_ROWS
from zmtpsniff.cli.help import COUNTS, CommandWithHelp
from zmtpsniff.cli.one_clock import open_with_one_clock
from zmtpsniff.cli.output import fail_if_overwritten, open_output
from zmtpsniff.cli.run import pump_and_write, write_structs
from zmtpsniff.cli.shared_options import (
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
from zmtpsniff.cli.window_options import WindowSettings, window_options
from zmtpsniff.engine.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dissectors.events import AnyEvent
    from zmtpsniff.filters import Filter
    from zmtpsniff.render.color import Color

# As zmtpsniff.analysis.statistics.sorts has them, which is not imported at start-up; a test compares.
SORTS = ("messages", "octets", "rate", "duration", "start", "peers", "address", "p50", "p95", "p99", "max")


@click.command(cls=CommandWithHelp, short_help="Show who talks to whom, how much, how fast.")
@click.argument("captures", nargs=-1, required=True, type=FilePath(), metavar="CAPTURE...")
@COUNTS.option("--top", type=IntRange(1), default=TOP_ROWS, show_default=True, metavar="N", help="Rows of each table.")
@COUNTS.option(
    "--sort",
    type=click.Choice(SORTS),
    default=SORT,
    show_default=True,
    metavar="FIELD",
    help=f"What comes first: {', '.join(SORTS)}. Tables without it stay sorted by {SORT}.",
)
@COUNTS.rare(
    "--interval",
    type=FloatRange(0.001),
    metavar="SECONDS",
    help="Length of the intervals of the time line; by default it fits the capture.",
)
@window_options
@dissection_options
@display_filter
@table_format
@output_file
@utc
@color
def stats(
    captures: "Sequence[str]",
    top: int,
    sort: str,
    interval: float | None,
    window: WindowSettings,
    dissection: Settings,
    passes: "Filter | None",
    output_format: Literal["table", "json"],
    file: str | None,
    utc: bool,
    color: "Color",
) -> None:
    """Say who talks to whom, how much, how fast: connections, sockets, topics, latency, problems, findings.

    \b
    zmtpsniff stats capture.pcap
    zmtpsniff stats --top 5 --sort p99 capture.pcap
    zmtpsniff stats -Y 'ip.addr == 10.0.0.5' capture.pcap
    zmtpsniff stats --interval 60 -T json day.pcapng | jq .messages_per_s
    """
    fail_if_overwritten(captures, file)
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.analysis.statistics.record_maker import report
    from zmtpsniff.analysis.statistics.statistics import ROWS, Statistics
    from zmtpsniff.engine.sniffer import Collaborators

    statistics = Statistics(None if interval is None else round(interval * 1e9), sort, max(ROWS, top))
    # With a filter findings would be about what nobody asked for.
    diagnosis = Diagnosis(dissection.decode_as, dissection.reply_seconds) if passes is None else None
    captures, dissection = window.select(captures, dissection._replace(batches=passes is None))
    capture = open_with_one_clock(captures, dissection, Collaborators(witness=diagnosis))

    def take(events: "Sequence[AnyEvent]") -> None:
        statistics.take(events, passes)
        if diagnosis is not None:
            diagnosis.take(events)

    def write() -> None:
        findings = [] if diagnosis is None else diagnosis.findings()
        counted = () if diagnosis is None else (diagnosis.peers(), diagnosis.queues())
        records = report(statistics, top, *counted)
        if output_format == "json":
            *rows, total = records
            write_structs(stream, [*rows, *findings, total])
        else:
            from zmtpsniff.render.statistics_tables import draw

            draw(records, stream, utc, color, findings=findings)

    with open_output(file, binary=output_format == "json") as stream:
        pump_and_write(capture, dissection, take, write, "statistics", file)
