"""``zmtpsniff stats``."""

import gc
import os
from typing import IO, TYPE_CHECKING, Any

import click

from zmtpsniff.cli.help import Command
from zmtpsniff.cli.options import File, FloatRange, IntRange, color, decoding, display_filter, utc
from zmtpsniff.cli.run import make_sniffer

if TYPE_CHECKING:
    from zmtpsniff.analysis.statistics import Statistics

# As zmtpsniff.analysis.statistics.sorts has them, which is not imported at start-up; a test compares.
SORTS = ("messages", "octets", "rate", "duration", "start", "peers", "address", "p50", "p95", "p99", "max")


@click.command(cls=Command, short_help="Say who talks to whom, how much, how fast.")
@click.argument("captures", nargs=-1, required=True, type=File(), metavar="CAPTURE...")
@click.option("--top", type=IntRange(1), default=20, show_default=True, metavar="N", help="Rows of each table.")
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="messages",
    show_default=True,
    metavar="FIELD",
    help=f"What comes first: {', '.join(SORTS)}. Tables without it stay sorted by messages.",
)
@click.option(
    "--interval",
    type=FloatRange(0.001),
    metavar="SECONDS",
    help="Intervals of the time line; by default what suits the capture.",
)
@decoding
@display_filter
@click.option(
    "-T",
    "format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="table: for people; json: JSON Lines.",
)
@click.option("-o", "output", type=File(), metavar="FILE", help="Write to FILE; until complete it is FILE.partial.")
@utc
@color
def stats(captures: tuple[str, ...], **options: Any) -> None:
    """Say who talks to whom, how much, how fast: connections, sockets, topics, latency, problems.

    \b
    zmtpsniff stats capture.pcap
    zmtpsniff stats --top 5 --sort p99 capture.pcap
    zmtpsniff stats -Y 'ip.addr == 10.0.0.5' capture.pcap
    zmtpsniff stats --interval 60 -T json day.pcapng | jq .messages_per_s
    """
    target = options["output"]
    if target is not None and any(_is_same(name, target) for name in captures):
        raise click.UsageError(f"-o {target}: this is one of the captures to read")
    from zmtpsniff.analysis.statistics import Statistics
    from zmtpsniff.analysis.statistics.statistics import ROWS
    from zmtpsniff.capture.files import open_captures
    from zmtpsniff.cli.output import open_output

    interval = options["interval"]
    statistics = Statistics(
        None if interval is None else round(interval * 1e9), options["sort"], max(ROWS, options["top"])
    )
    sniffer = make_sniffer(open_captures(captures), {**options, "max_bytes": None})
    passes = options["passes"]
    # Events and packets are many, short-lived and in no cycles, so looking for cycles among them is wasted time.
    gc.set_threshold(100_000, 20, 100)
    with open_output(target, binary=options["format"] == "json") as stream:
        try:
            for events in sniffer.events():
                statistics.take(events, passes)
        except KeyboardInterrupt:
            statistics.take(sniffer.finish(), passes)
            _write(statistics, stream, options)
            raise
        _write(statistics, stream, options)


def _is_same(name: str, other: str) -> bool:
    return os.path.exists(name) and os.path.exists(other) and os.path.samefile(name, other)


def _write(statistics: "Statistics", stream: IO[Any], options: dict[str, Any]) -> None:
    from zmtpsniff.analysis.statistics.report import report

    records = report(statistics, options["top"], options["sort"])
    if options["format"] == "json":
        from zmtpsniff.render.jsonl import JsonlRenderer

        JsonlRenderer(stream).write(records)  # type: ignore[arg-type]  # it writes any struct
    else:
        from zmtpsniff.render.statistics import draw

        draw(records, stream, options["utc"], options["color"])
