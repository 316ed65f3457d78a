"""Measure ``zmtpsniff spark ingest`` on a fleet's captures beside ``read`` in a single process, and write the table.

    python benchmarks/spark.py [--hosts N] [--growth] [--quick]

What is measured is described in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fleet
import measure
import report
import tools
import traffic
from ingests import FailedError, Run, check, ingest, measured, start_up

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "SPARK.md"
WORK = HERE / "work"

PARTS = (("push", 1_000_000), ("round-trip", 100_000), ("large", 50), ("connections", 5_000))
HOSTS = 8  # 1 GB
QUICK_PART = 20
FULL = "`zmtpsniff read -T json`, one process"
PLAIN = "the same, `--no-patterns --no-payload`"
ONE, TWO = "`spark ingest --master local[1]`", "`spark ingest --master local[2]`"
SERIES_PLAIN = "one host with all of the traffic: one process, `--no-patterns --no-payload`"
SERIES = "one host with all of the traffic: `spark ingest --master local[2] --shards 2`"
NOKIA = "`pcaptoparquet`"
GROWTH = 10  # times as many hosts
GROWN = f"{TWO}, {GROWTH} times as many hosts"
MOST_ELAPSED = 0.65  # of the plain process, beyond starting Spark
MOST_PROCESSORS = 1.3
MOST_SERIES = 0.75
MOST_WORKER_MIB = 400
LINEAR_TOLERANCE = 0.1  # of the time that is more or less in proportion


@dataclass
class Row:
    """A command and its runs, or why there are none."""

    name: str
    made: fleet.Fleet
    runs: list[Run] = field(default_factory=list)
    failure: str = ""

    @property
    def best(self) -> Run | None:
        """The fastest run."""
        return min(self.runs, key=lambda run: run.seconds, default=None)


def main() -> int:
    """Make the fleet, measure, write; the exit status says whether all could be run."""
    options = _arguments()
    part = QUICK_PART if options.quick else 1
    try:
        recordings = [traffic.ensure(scenario, max(1, count // part), WORK) for scenario, count in PARTS]
    except traffic.CannotRecordError as reason:
        print(f"spark.py: {reason}", file=sys.stderr)
        return 1
    folder = WORK / f"fleet-{options.hosts}{'-quick' if options.quick else ''}"
    made = fleet.ensure(recordings, options.hosts, folder)
    _say(f"{made.files} files of {made.hosts} hosts, {made.octets / 1e9:.2f} GB, {made.messages:,} messages")
    zmtpsniff = shlex.split(options.zmtpsniff)
    single = fleet.ensure(recordings * options.hosts, 1, folder.with_name(f"{folder.name}-single"))
    rows = [Row(name, made) for name in (FULL, PLAIN, ONE, TWO, NOKIA)]
    rows += [Row(name, single) for name in (SERIES_PLAIN, SERIES)]
    plain = ["--no-patterns", "--no-payload"]
    commands: dict[str, Callable[[], Run]] = {
        FULL: lambda: _plain(zmtpsniff, made, []),
        PLAIN: lambda: _plain(zmtpsniff, made, plain),
        ONE: lambda: ingest(zmtpsniff, made, ["--master", "local[1]"], WORK),
        TWO: lambda: ingest(zmtpsniff, made, ["--master", "local[2]"], WORK),
        NOKIA: lambda: _nokia(shlex.split(options.pcaptoparquet), made),
        SERIES_PLAIN: lambda: _plain(zmtpsniff, single, plain),
        SERIES: lambda: ingest(zmtpsniff, single, ["--master", "local[2]", "--shards", "2"], WORK),
    }
    if options.growth:
        larger = fleet.ensure(recordings, GROWTH * options.hosts, folder.with_name(f"{folder.name}-grown"))
        rows.append(Row(GROWN, larger))
        commands[GROWN] = lambda: ingest(zmtpsniff, larger, ["--master", "local[2]"], WORK)
    for _ in range(options.repeat):
        for row in rows:
            if row.failure:
                continue
            _say(f"measuring {row.name}")
            try:
                row.runs.append(commands[row.name]())
            except FailedError as reason:
                row.failure = str(reason)
    start = start_up(zmtpsniff, WORK)
    text = _markdown(made, rows, start, tools.version(zmtpsniff), options.repeat)
    print(text)
    _publish(text, made, options.quick or options.hosts != HOSTS)
    failures = [f"{row.name}: {row.failure}" for row in rows if row.failure and row.name != NOKIA]
    for failure in failures:
        print(f"spark.py: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    beside = shlex.quote(str(Path(sys.executable).with_name("zmtpsniff")))
    parser.add_argument("--zmtpsniff", default=beside, metavar="COMMAND", help="default: the one of this Python")
    parser.add_argument("--pcaptoparquet", default="pcaptoparquet", metavar="COMMAND", help="default: pcaptoparquet")
    parser.add_argument("--hosts", type=int, default=HOSTS, metavar="N", help=f"default: {HOSTS}, 1 GB")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs of each command (default: 1)")
    parser.add_argument("--growth", action="store_true", help=f"also with {GROWTH} times as many hosts")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the traffic; nothing is written")
    return parser.parse_args()


# ---------------------------------------------------------------------- the commands


def _plain(zmtpsniff: Sequence[str], made: fleet.Fleet, options: Sequence[str]) -> Run:
    """One process after the other, each reading the captures of one host as one."""
    run = Run(0.0)
    for folder in made.host_folders():
        one = measured([*zmtpsniff, "read", "-T", "json", *options, *_captures(folder)])
        run.seconds += one.seconds
        run.cpu_seconds += one.cpu_seconds
        run.worker_mib = max(run.worker_mib, one.worker_mib)
    # Counted apart from the clock, and of one host, which is as all the others.
    output = measure.count([*zmtpsniff, "read", "-T", "json", *options, *_captures(made.host_folders()[0])])
    check(json.loads(output.last_line)["messages"] * made.hosts, made)
    return run


def _captures(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.glob("*.pcap"))]


def _nokia(command: Sequence[str], made: fleet.Fleet) -> Run:
    """What makes a table of packets, not of messages: for scale."""
    program = shutil.which(command[0], path=os.pathsep.join((str(Path(sys.executable).parent), os.defpath)))
    if program is None:
        raise FailedError("not installed (pip install pcaptoparquet)")
    with tempfile.TemporaryDirectory(dir=WORK) as scratch:
        run = Run(0.0)
        for path in made.host_folders()[0].glob("*.pcap"):
            target = f"{scratch}/{path.stem}.parquet"
            one = measured([program, *command[1:], "-i", str(path), "-o", target, "-f", "parquet"])
            run.seconds += one.seconds * made.hosts
            run.cpu_seconds += one.cpu_seconds * made.hosts
            run.worker_mib = max(run.worker_mib, one.worker_mib)
    return run


# ---------------------------------------------------------------------- the report


def _markdown(made: fleet.Fleet, rows: Sequence[Row], start: Run, version: str, repeat: int) -> str:
    best = {row.name: row.best for row in rows}
    parts = [
        f"Measured on {time.strftime('%Y-%m-%d')} with zmtpsniff {version}, Spark {_spark_version()}. "
        f"{report.machine()}; {repeat} run{'s' if repeat > 1 else ''} of each.\n"
        f"{made.files:,} rotated files of {made.hosts} hosts, {made.octets / 1e9:.2f} GB, {made.packets:,} packets, "
        f"{made.messages:,} messages. Starting Spark is part of the time: an ingest of ten messages takes "
        f"{start.seconds:.1f} s, and {start.cpu_seconds:.1f} s of processors.",
        report.targets_table(_targets(best, start)),
        report.table(
            (
                "Command",
                "Time",
                "of processors",
                "MB/s",
                "Messages/s",
                "Times one process, beyond starting",
                "Processors, likewise",
                "Largest Python",
                "JVM",
                "Shuffled",
            ),
            [_cells(row, best, start) for row in rows],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _cells(row: Row, best: dict[str, Run | None], start: Run) -> tuple[str, ...]:
    run, made = row.best, row.made
    if run is None:
        return (row.name, row.failure, *("" for _ in range(8)))
    beside = {GROWN: None, SERIES: SERIES_PLAIN}.get(row.name, PLAIN)
    elapsed, processors = _ratios(run, best[beside] if beside else None, start)
    return (
        row.name,
        f"{run.seconds:.1f} s",
        f"{run.cpu_seconds:.0f} s",
        f"{made.octets / 1e6 / run.seconds:.1f}",
        "-" if row.name == NOKIA else f"{made.messages / run.seconds:,.0f}",
        "-" if elapsed is None else f"{elapsed:.2f}",
        "-" if processors is None else f"{processors:.2f}",
        f"{run.worker_mib:,.0f} MiB",
        f"{run.jvm_mib:,.0f} MiB" if run.jvm_mib else "-",
        f"{run.shuffled_octets:,}" if run.jvm_mib else "-",
    )


def _ratios(run: Run | None, plain: Run | None, start: Run) -> tuple[float | None, float | None]:
    """Times the elapsed time, and that of processors, of a plain process; of Spark without what it takes to start."""
    if run is None or plain is None:
        return None, None
    seconds, cpu_seconds = (start.seconds, start.cpu_seconds) if run.jvm_mib else (0.0, 0.0)
    return (run.seconds - seconds) / plain.seconds, (run.cpu_seconds - cpu_seconds) / plain.cpu_seconds


def _targets(best: dict[str, Run | None], start: Run) -> list[report.Target]:
    elapsed, processors = _ratios(best[TWO], best[PLAIN], start)
    series, _ = _ratios(best[SERIES], best[SERIES_PLAIN], start)
    spark = [run for run in best.values() if run is not None and run.jvm_mib]
    worker = max((run.worker_mib for run in spark), default=None)
    shuffled = max((run.shuffled_octets for run in spark), default=None)
    found = [
        _target(f"`local[2]` at most {MOST_ELAPSED} of one plain process's time", elapsed, MOST_ELAPSED, "{:.2f}"),
        _target(f"at most {MOST_PROCESSORS} of its processor time", processors, MOST_PROCESSORS, "{:.2f}"),
        _target(f"one host's series in 2 shards at most {MOST_SERIES}", series, MOST_SERIES, "{:.2f}"),
        _target("nothing shuffled", shuffled, 0, "{:,} octets"),
        _target(f"Python workers at most {MOST_WORKER_MIB} MiB", worker, MOST_WORKER_MIB, "{:,.0f} MiB"),
    ]
    if GROWN in best:
        two, grown = best[TWO], best[GROWN]
        growth = (grown.seconds - start.seconds) / (two.seconds - start.seconds) / GROWTH if two and grown else None
        wanted = f"{GROWTH} times the captures, {GROWTH} times the time, within {LINEAR_TOLERANCE:.0%}"
        found.append(_target(wanted, growth, 1 + LINEAR_TOLERANCE, f"{{:.2f}} times {GROWTH}"))
    return found


def _target(wanted: str, figure: float | None, most: float, form: str) -> report.Target:
    if figure is None:
        return report.Target(wanted, "-", None)
    return report.Target(wanted, form.format(figure), figure <= most)


def _spark_version() -> str:
    from importlib.metadata import version

    return version("pyspark")


def _publish(text: str, made: fleet.Fleet, other: bool) -> None:
    if other:
        _say("not the usual size: nothing written")
        return
    RESULTS.write_text(f"# Benchmark results: Spark\n\nWritten by `benchmarks/spark.py`.\n\n{text}")
    _say(f"written: {RESULTS.name}")


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
