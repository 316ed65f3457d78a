"""Measure ``zmtpsniff spark ingest`` on a fleet's captures beside ``read`` in a single process, and write the table.

    python benchmarks/spark.py [--before COMMAND] [--hosts N] [--only fleet|growth|start] [--quick]

benchmarks/README.md describes the measurements.
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
from growth import Growths
from ingests import FailedError, Run, check, ingest, ingest_into, measured, scratch_folder, start_up
from starts import Starts

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "SPARK.md"
WORK = HERE / "work"

PARTS = (("push", 1_000_000), ("round-trip", 100_000), ("large", 50), ("connections", 5_000))
HOSTS = 8  # 1 GB
GROWTH_ROUNDS = 1
QUICK_PART = 20
ALONE = "`zmtpsniff read -T json`, one process"
BEFORE = "the same of version 0.9.0"
ONE, TWO = "`spark ingest --master local[1]`", "`spark ingest --master local[2]`"
SERIES_BEFORE = "one host with all of the traffic: one process of version 0.9.0"
SERIES = "one host with all of the traffic: `spark ingest --master local[2] --shards 2`"
NOKIA = "`pcaptoparquet`"
MOST_ELAPSED = 0.35  # of the process of version 0.9.0, beyond starting Spark
MOST_PROCESSORS = 0.5
MOST_SERIES = 0.75
MOST_WORKER_MIB = 400


@dataclass
class Row:
    """A command and its runs, one of each round, or why there are none."""

    name: str
    made: fleet.Fleet
    command: Callable[[], Run]
    beside: str = ""  # the command of one process on the same captures
    runs: list[Run] = field(default_factory=list)
    failure: str = ""

    def measure(self) -> None:
        """Run the command once more, unless it has failed before."""
        if self.failure:
            return
        _say(f"measuring {self.name}")
        try:
            self.runs.append(self.command())
        except FailedError as reason:
            self.failure = str(reason)


@dataclass
class Measurements:
    """All rows, and what it costs to start Spark, measured in each round."""

    rows: dict[str, Row]
    starts: list[Run] = field(default_factory=list)

    def beyond_start(self, name: str, what: Callable[[Run], float]) -> list[float]:
        """The cost of the command in each round; that of an ingest lacks the start of Spark in that round.

        Nothing if it failed in any round.
        """
        row = self.rows[name]
        pairs = zip(() if row.failure else row.runs, self.starts, strict=False)
        return [what(run) - (what(start) if run.jvm_mib else 0.0) for run, start in pairs]

    def ratio(self, name: str, beside: str, what: Callable[[Run], float]) -> float | None:
        """How many times as much a command cost as another one: the median of the rounds.

        Each round compares runs of its own, since a machine may be faster in one minute than in the next.
        """
        pairs = zip(self.beyond_start(name, what), self.beyond_start(beside, what), strict=False)
        ratios = [cost / other for cost, other in pairs]
        return report.median(ratios) if ratios else None


def main() -> int:
    """Make the fleet, measure, write; the exit status says whether all could be run."""
    options = _arguments()
    part = QUICK_PART if options.quick else 1
    try:
        recordings = [traffic.ensure(scenario, max(1, count // part), WORK) for scenario, count in PARTS]
        small = traffic.ensure("round-trip", 5, WORK)
    except traffic.CannotRecordError as reason:
        print(f"spark.py: {reason}", file=sys.stderr)
        return 1
    failures = [] if options.only not in (None, "fleet") else _measure_fleet(options, recordings)
    if options.only in (None, "start"):
        failures += _measure_start(options, recordings, small)
    if options.only in (None, "growth") and not options.quick and options.hosts == HOSTS:
        failures += _measure_growth(shlex.split(options.zmtpsniff), recordings, small)
    for failure in failures:
        print(f"spark.py: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _measure_growth(
    zmtpsniff: Sequence[str], recordings: Sequence[traffic.Recording], small: traffic.Recording
) -> list[str]:
    """Measure how costs grow, and write it; returns the failure, if there is one."""
    growths = Growths(zmtpsniff, recordings, small, WORK)
    try:
        growths.measure(start_up(zmtpsniff, WORK), GROWTH_ROUNDS)
    except FailedError as reason:
        return [f"growth: {reason}"]
    _publish(growths.markdown(), "growth")
    return []


def _measure_start(
    options: argparse.Namespace, recordings: Sequence[traffic.Recording], small: traffic.Recording
) -> list[str]:
    """Measure the start piece by piece, and write it; returns the failure, if there is one."""
    zmtpsniff, starts = shlex.split(options.zmtpsniff), Starts()
    made = _made_fleet(options, recordings)
    try:
        with scratch_folder(WORK) as tables:
            ingest_into(tables, zmtpsniff, [made.folder], ["--master", "local[2]"])
            for _ in range(options.repeat):
                starts.measure(zmtpsniff, small.path, tables, WORK)
    except FailedError as reason:
        return [f"start: {reason}"]
    text = starts.markdown(made.messages)
    if options.quick:
        print(text)
    else:
        _publish(text, "start")
    return []


def _made_fleet(options: argparse.Namespace, recordings: Sequence[traffic.Recording]) -> fleet.Fleet:
    made = fleet.ensure(recordings, options.hosts, WORK / f"fleet-{options.hosts}{'-quick' if options.quick else ''}")
    _say(f"{made.files} files of {made.hosts} hosts, {made.octets / 1e9:.2f} GB, {made.messages:,} messages")
    return made


def _measure_fleet(options: argparse.Namespace, recordings: Sequence[traffic.Recording]) -> list[str]:
    """Measure a fleet beside one process, and write it; returns the failures."""
    made = _made_fleet(options, recordings)
    zmtpsniff = shlex.split(options.zmtpsniff)
    single = fleet.ensure(recordings * options.hosts, 1, made.folder.with_name(f"{made.folder.name}-single"))
    before = shlex.split(options.before)
    two = ["--master", "local[2]"]
    rows = [
        Row(ALONE, made, lambda: _alone(zmtpsniff, made), BEFORE),
        Row(BEFORE, made, lambda: _alone(before, made), BEFORE),
        Row(ONE, made, lambda: ingest(zmtpsniff, made, ["--master", "local[1]"], WORK), BEFORE),
        Row(TWO, made, lambda: ingest(zmtpsniff, made, two, WORK), BEFORE),
    ]
    rows += [
        Row(SERIES_BEFORE, single, lambda: _alone(before, single), SERIES_BEFORE),
        Row(SERIES, single, lambda: ingest(zmtpsniff, single, [*two, "--shards", "2"], WORK), SERIES_BEFORE),
    ]
    measurements = Measurements({row.name: row for row in rows})
    for _ in range(options.repeat):
        measurements.starts.append(start_up(zmtpsniff, WORK))
        for row in rows:
            row.measure()
    scale = measurements.rows[NOKIA] = Row(
        NOKIA, made, lambda: _nokia(shlex.split(options.pcaptoparquet), made), BEFORE
    )
    scale.measure()
    rows.append(scale)
    text = _markdown(made, measurements, tools.version(zmtpsniff), options.repeat)
    if options.quick or options.hosts != HOSTS:
        print(text)
    else:
        _publish(text, "fleet")
    needed = [row for row in rows if row.name != NOKIA and (before or row.beside != row.name)]
    return [f"{row.name}: {row.failure}" for row in needed if row.failure]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    beside = shlex.quote(str(Path(sys.executable).with_name("zmtpsniff")))
    parser.add_argument("--zmtpsniff", default=beside, metavar="COMMAND", help="default: the one of this Python")
    parser.add_argument(
        "--before", default="", metavar="COMMAND", help="the zmtpsniff of version 0.9.0, to compare with"
    )
    parser.add_argument("--pcaptoparquet", default="pcaptoparquet", metavar="COMMAND", help="default: pcaptoparquet")
    parser.add_argument("--hosts", type=int, default=HOSTS, metavar="N", help=f"default: {HOSTS}, 1 GB")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="rounds (default: 3)")
    parser.add_argument("--only", choices=("fleet", "start", "growth"), help="one table")
    parser.add_argument(
        "--quick", action="store_true", help="a twentieth of the traffic; nothing is written, no growth"
    )
    return parser.parse_args()


# ---------------------------------------------------------------------- the commands


def _alone(zmtpsniff: Sequence[str], made: fleet.Fleet) -> Run:
    """One process after the other, each reading the captures of one host as one."""
    if not zmtpsniff:
        raise FailedError("not given (--before)")
    run = Run(0.0)
    for folder in made.host_folders():
        one = measured([*zmtpsniff, "read", "-T", "json", *_captures(folder)])
        run.seconds += one.seconds
        run.cpu_seconds += one.cpu_seconds
        run.worker_mib = max(run.worker_mib, one.worker_mib)
    # Counted apart from the clock, and of one host, which is as all the others.
    output = measure.count([*zmtpsniff, "read", "-T", "json", *_captures(made.host_folders()[0])])
    check(json.loads(output.last_line)["messages"] * made.hosts, made)
    return run


def _captures(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.glob("*.pcap"))]


def _nokia(command: Sequence[str], made: fleet.Fleet) -> Run:
    """The program that makes a table of packets, not of messages: for scale."""
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


def _markdown(made: fleet.Fleet, measurements: Measurements, version: str, repeat: int) -> str:
    seconds, cpu_seconds = (_median(measurements.starts, what) for what in (_seconds, _cpu_seconds))
    parts = [
        f"Measured on {time.strftime('%Y-%m-%d')} with zmtpsniff {version}, Spark {_spark_version()}. "
        f"{report.machine()}; {repeat} round{'s' if repeat > 1 else ''} of all commands, and one run of "
        f"`pcaptoparquet`.\n"
        f"{made.files:,} rotated files of {made.hosts} hosts, {made.octets / 1e9:.2f} GB, {made.packets:,} packets, "
        f"{made.messages:,} messages. Starting Spark is part of the time: an ingest of ten messages takes "
        f"{seconds:.1f} s, and {cpu_seconds:.1f} s of processors. Times and ratios are the medians of the rounds; a "
        f"ratio compares runs of the same round.",
        report.targets_table(_targets(measurements)),
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
            [_cells(row, measurements) for row in measurements.rows.values()],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _cells(row: Row, measurements: Measurements) -> tuple[str, ...]:
    if row.failure:
        return (row.name, row.failure, *("" for _ in range(8)))
    made, seconds = row.made, _median(row.runs, _seconds)
    worker, jvm = max(run.worker_mib for run in row.runs), max(run.jvm_mib for run in row.runs)
    shuffled = max(run.shuffled_octets for run in row.runs)
    return (
        row.name,
        f"{seconds:.1f} s",
        f"{_median(row.runs, _cpu_seconds):.0f} s",
        f"{made.octets / 1e6 / seconds:.1f}",
        "-" if row.name == NOKIA else f"{made.messages / seconds:,.0f}",
        *(_ratio(measurements, row, what) for what in (_seconds, _cpu_seconds)),
        f"{worker:,.0f} MiB",
        f"{jvm:,.0f} MiB" if jvm else "-",
        f"{shuffled:,}" if jvm else "-",
    )


def _ratio(measurements: Measurements, row: Row, what: Callable[[Run], float]) -> str:
    ratio = measurements.ratio(row.name, row.beside, what) if row.beside else None
    return "-" if ratio is None else f"{ratio:.2f}"


def _seconds(run: Run) -> float:
    return run.seconds


def _cpu_seconds(run: Run) -> float:
    return run.cpu_seconds


def _median(runs: Sequence[Run], what: Callable[[Run], float]) -> float:
    return report.median([what(run) for run in runs])


def _targets(measurements: Measurements) -> list[report.Target]:
    ratio = measurements.ratio
    elapsed, processors = ratio(TWO, BEFORE, _seconds), ratio(TWO, BEFORE, _cpu_seconds)
    series = ratio(SERIES, SERIES_BEFORE, _seconds)
    spark = [run for row in measurements.rows.values() for run in row.runs if run.jvm_mib]
    worker = max((run.worker_mib for run in spark), default=None)
    shuffled = max((run.shuffled_octets for run in spark), default=None)
    return [
        _target(f"`local[2]` at most {MOST_ELAPSED} of the time of 0.9.0's `read`", elapsed, MOST_ELAPSED, "{:.2f}"),
        _target(f"at most {MOST_PROCESSORS} of its processor time", processors, MOST_PROCESSORS, "{:.2f}"),
        _target(f"one host's series in 2 shards at most {MOST_SERIES}", series, MOST_SERIES, "{:.2f}"),
        _target("nothing shuffled", shuffled, 0, "{:,} octets"),
        _target(f"Python workers at most {MOST_WORKER_MIB} MiB", worker, MOST_WORKER_MIB, "{:,.0f} MiB"),
    ]


def _target(wanted: str, figure: float | None, most: float, form: str) -> report.Target:
    if figure is None:
        return report.Target(wanted, "-", None)
    return report.Target(wanted, form.format(figure), figure <= most)


def _spark_version() -> str:
    from importlib.metadata import version

    return version("pyspark")


def _publish(text: str, section: str) -> None:
    print(text)
    if report.put_between_markers(RESULTS, f"{text.rstrip()}\n", section):
        _say(f"written: {RESULTS.name}, {section}")


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
