"""``zmtpsniff spark``."""

import os
from typing import TYPE_CHECKING, Any, Literal

import click

from zmtpsniff.analysis.defaults import PAGE_ROWS, TOP_ROWS
from zmtpsniff.cli.help import COMING, COUNTS, DECODING, OUTPUT, SPARK, TABLES, Group
from zmtpsniff.cli.output import open_output, tell
from zmtpsniff.cli.shared_options import (
    FloatRange,
    IntRange,
    Parsed,
    color,
    curve_key_files,
    decode_as_rule,
    output_file,
    read_curve_keys,
    table_format,
)
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import parse_time

if TYPE_CHECKING:
    from zmtpsniff.decode_as import DecodeAs
    from zmtpsniff.render.color import Color
    from zmtpsniff.spark.ingestion import IngestOutcome
    from zmtpsniff.spark.options import Ports

_NAMED = 5  # files, in a line on many
_SAID = {
    "damaged": ("is damaged, read up to there", "are damaged, read up to there"),
    "foreign": ("is no capture", "are no captures"),
    "missing": ("could not be read, and the next run tries again", "could not be read, and the next run tries again"),
    "changed": (
        "has changed, but others of its series are gone, so it is not read again",
        "have changed, but others of their series are gone, so they are not read again",
    ),
    "late": (
        "came late, when others of its series were gone, and was dissected by itself",
        "came late, when others of their series were gone, and were dissected by themselves",
    ),
}
"""The words for one file in some condition, and for many."""


def _parse_ports(value: str) -> "Ports":
    from zmtpsniff.spark.options import parse_ports

    return parse_ports(value)


def _check_series(value: str) -> str:
    from zmtpsniff.spark.options import check_series

    return check_series(value)


def _location(value: str) -> str:
    """Refuse an empty path, such as an empty variable of a script: it would mean / or the current folder."""
    if not value:
        raise ValueError("it is empty; give a path or URL")
    return value


_LOCATION = Parsed("location", _location)
_TIME = Parsed("time", parse_time)


@click.group(cls=Group, short_help="Dissect many captures on Spark, into tables.")
def spark() -> None:
    """Dissect the captures of many machines on Spark, into tables that can be queried.

    \b
    zmtpsniff spark ingest /captures --output /tables
    """


@spark.command(short_help="Add captures to the tables.")
@click.argument("inputs", nargs=-1, required=True, type=_LOCATION, metavar="INPUT...")
@TABLES.option(
    "--output",
    required=True,
    type=_LOCATION,
    metavar="DIR",
    help="Folder of the tables, a path or URL; made if needed.",
)
@SPARK.option(
    "--master",
    metavar="URL",
    help="local[2], spark://host:7077, sc://host ...; by default all processors of this machine.",
)
@TABLES.option(
    "--ports", type=Parsed("ports", _parse_ports), default=(), metavar="PORTS", help="Only these: 5555,6000-6010."
)
@OUTPUT.option(
    "--max-bytes",
    type=IntRange(0),
    default=256,
    show_default=True,
    metavar="N",
    help="Octets to keep of each body, 0 for all; lengths are always whole.",
)
@OUTPUT.rare("--ways", is_flag=True, help="Follow each message, as trace does, into the table ways. It takes long.")
@OUTPUT.option("--no-bodies", is_flag=True, help="Keep only the lengths of frames, not their octets.")
@TABLES.option(
    "--series",
    type=Parsed("rule", _check_series),
    default="folder",
    show_default=True,
    metavar="RULE",
    help="Which files are parts of one capture. Those of a folder, each alone (file), or those in whose paths group 1 "
    "of a regular expression matches the same text.",
)
@TABLES.rare(
    "--shards", type=IntRange(1, 10_000), metavar="N", help="Tasks that share a series; by default by size and cores."
)
@DECODING.option("-d", "rules", type=decode_as_rule, multiple=True, metavar="RULE", help="As of zmtpsniff read.")
@curve_key_files
@DECODING.option("--show-secrets", is_flag=True, help="Keep passwords; else only their length.")
@COMING.option(
    "--follow",
    is_flag=True,
    help="Go on: read files that are moved into the folders INPUT. They must be complete then.",
)
@COMING.rare("--once", is_flag=True, help="With --follow: end when all that is there now is read.")
@COMING.rare(
    "--idle",
    type=FloatRange(0, min_open=True),
    default=FlowLimits().idle_seconds,
    show_default=True,
    metavar="SECONDS",
    help="A connection is over when it has had no packet for so long.",
)
@TABLES.rare(
    "--anew", is_flag=True, help="Dissect series anew that this version cannot go on with. Another version began them."
)
@OUTPUT.option("--strict", is_flag=True, help="Exit with 2 if a file could not be read.")
def ingest(
    inputs: tuple[str, ...],
    output: str,
    master: str | None,
    ports: "Ports",
    max_bytes: int,
    no_bodies: bool,
    ways: bool,
    series: str,
    shards: int | None,
    rules: "tuple[DecodeAs, ...]",
    curve_keys: tuple[str, ...],
    show_secrets: bool,
    follow: bool,
    once: bool,
    idle: float,
    anew: bool,
    strict: bool,
) -> None:
    """Dissect captures and add what they hold to the tables in DIR, made if needed.

    INPUT is a file, a glob, a folder with all files in it, or a URL: s3://, gs://, abfs://, hdfs://. A run skips
    files that are in the tables. With --follow, a connection gets its row when it is over; a run without it adds rows
    of open connections.

    \b
    zmtpsniff spark ingest /captures --output /tables
    zmtpsniff spark ingest --follow /captures --output /tables --idle 3600
    zmtpsniff spark ingest s3://pcap --output s3://tables --master spark://h:7077
    """
    if once and not follow:
        raise click.UsageError("--once belongs to --follow")
    from zmtpsniff.spark.session import LazySession, interruptible

    session: Any = LazySession(master)
    from zmtpsniff.spark.ingestion import IngestRun
    from zmtpsniff.spark.ingestion import follow as go_on
    from zmtpsniff.spark.ingestion import ingest as run_once
    from zmtpsniff.spark.options import Options

    keys = read_curve_keys(curve_keys)
    options = Options(ports, max_bytes, rules, show_secrets, idle, not no_bodies, curve_keys=keys, ways=ways)
    run = IngestRun(output, options, series, shards, anew)
    unreadable: set[tuple[str, str, str]] = set()

    def report(done: "IngestOutcome") -> None:
        if not done.files and follow and unreadable.issuperset(done.unreadable):
            return  # each look at the folder finds the same changed files; one line about them is enough
        unreadable.update(done.unreadable)
        for line in _lines(done, output):
            click.echo(line, err=True)

    try:
        if follow:
            interruptible(session, lambda: go_on(session, inputs, run, report, once))
        else:
            report(interruptible(session, lambda: run_once(session, inputs, run)))
    except KeyboardInterrupt:
        if follow:
            return
        tell("interrupted: run it again, and it goes on from what is in the tables")
        raise
    if strict and any(condition != "late" for _, condition, _ in unreadable):
        raise click.exceptions.Exit(2)


def _lines(done: "IngestOutcome", output: str) -> list[str]:
    """The lines on a run: one for each kind of file that could not be read, then one with the counts."""
    known = f", {done.known:,} known" if done.known else ""
    lines = []
    all_files = done.files + sum(condition == "changed" for _, condition, _ in done.unreadable)
    for condition, (of_one, of_many) in _SAID.items():
        found = [path for path, one, _ in done.unreadable if one == condition]
        if found:
            names = ", ".join(found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
            said = of_one if len(found) == 1 else of_many
            lines.append(f"{len(found):,} of {plural(all_files, 'file')} {said}: {names}")
    return [*lines, f"{plural(done.files, 'file')}{known}: {plural(done.rows, 'row')} into {output}"]


@spark.command(short_help="Compact the tables, and delete old rows.")
@click.argument("folder", type=_LOCATION, metavar="DIR")
@TABLES.option("--keep-days", type=IntRange(1), metavar="N", help="Delete rows that are older than N days.")
@TABLES.rare(
    "--vacuum-hours",
    type=IntRange(0),
    default=168,
    show_default=True,
    metavar="N",
    help="Delete files that no table has used for N hours; 0 breaks programs that read or write now.",
)
def optimize(folder: str, keep_days: int | None, vacuum_hours: int) -> None:
    """Compact the tables in DIR, sorted by series and time, and delete what is not needed any more. It needs no Spark.

    \b
    zmtpsniff spark optimize /tables
    zmtpsniff spark optimize /tables --keep-days 90
    """
    from zmtpsniff.spark.session import check_packages

    check_packages("pyarrow", "deltalake")
    from zmtpsniff.spark.maintenance import optimize as run

    done = run(folder, keep_days, vacuum_hours)
    click.echo(
        f"{plural(done.compacted, 'file')} into {done.made:,}, {done.deleted:,} of old days, {done.vacuumed:,} deleted",
        err=True,
    )


@spark.command(short_help="Report on the tables.")
@click.argument("folder", type=_LOCATION, metavar="DIR")
@COUNTS.option(
    "--top",
    type=IntRange(1, 100_000),
    metavar="N",
    help=f"Rows of each table; by default {TOP_ROWS}, of a page {PAGE_ROWS}.",
)
@click.option("--since", type=_TIME, metavar="TIME", help="Only from this time on: 2026-11-21, 2026-11-21T14:00; UTC.")
@click.option("--until", type=_TIME, metavar="TIME", help="Only up to this time.")
@COUNTS.rare(
    "--interval",
    type=FloatRange(0.001),
    metavar="SECONDS",
    help="Length of the intervals of figures over time; by default it fits.",
)
@table_format
@output_file
@click.option("--html", metavar="FILE", help="Write a page with charts to FILE, and nothing else unless -o is given.")
@color
def report(
    folder: str,
    top: int | None,
    since: int | None,
    until: int | None,
    interval: float | None,
    output_format: Literal["table", "json"],
    file: str | None,
    html: str | None,
    color: "Color",
) -> None:
    """Say what the tables in DIR say: who talks to whom, how much, how fast, problems, captures. It needs no Spark.

    \b
    zmtpsniff spark report /tables
    zmtpsniff spark report --since 2026-11-20 --html report.html /tables
    zmtpsniff spark report -T json /tables | jq 'select(.type=="report-latency")'
    """
    from zmtpsniff.spark.session import check_packages

    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since must be earlier than --until")
    most = top or (TOP_ROWS if html is None else PAGE_ROWS)
    check_packages("pyarrow", "deltalake", "duckdb")
    # Arrow's other allocators keep some 100 MiB that was freed. It chooses one when it is imported.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from zmtpsniff.spark.report import report as ask

    results = ask(folder, most, since, until, None if interval is None else round(interval * 1e9))
    if html is not None:
        from zmtpsniff.report.page import page

        with open_output(html, binary=False) as stream:
            stream.write(page(results, f"ZeroMQ traffic in {folder}", "zmtpsniff spark report"))
        if file is None:
            return
    with open_output(file, binary=output_format == "json") as stream:
        if output_format == "json":
            from zmtpsniff.cli.run import write_structs

            write_structs(stream, list(results.records()))
        else:
            from zmtpsniff.report.terminal_tables import draw

            draw(results, stream, color)
