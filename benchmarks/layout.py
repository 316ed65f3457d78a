"""Measure what each kind of traffic costs on Spark, and write the tables of benchmarks/LAYOUT.md.

    python benchmarks/layout.py

benchmarks/README.md describes the measurements.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NamedTuple

import fleet
import report
import traffic
from ingests import FailedError, Run, ingest, start_up

HERE = Path(__file__).resolve().parent
PAGE = HERE / "LAYOUT.md"
WORK = HERE / "work"
MARK = "layout benchmarks"
ZMTPSNIFF = [str(Path(sys.executable).with_name("zmtpsniff"))]
HOSTS = 4
PETABYTE = 1e15
RATE = PETABYTE / (30 * 86_400)  # octets a second of a month that has one


class Kind(NamedTuple):
    """A kind of traffic: what it is called, which scenario makes it, how many of what."""

    name: str
    scenario: str
    number: int


KINDS = (
    Kind("messages of 1 MiB", "large", 50),
    Kind("requests and replies, one a packet", "round-trip", 100_000),
    Kind("small messages, {} a packet", "push", 1_000_000),
    Kind("connections of one request", "connections", 5_000),
)


class Row(NamedTuple):
    """The costs of a kind of traffic."""

    name: str
    made: fleet.Fleet
    seconds: float  # of processors, beyond those of starting Spark
    table_octets: int

    @property
    def speed(self) -> float:
        """Octets for each second of a processor."""
        return self.made.octets / self.seconds


def main() -> int:
    """Make the captures, measure, write; the exit status says whether all could be run."""
    try:
        start = start_up(ZMTPSNIFF, WORK)
        rows = [_row(kind, start) for kind in KINDS]
    except (FailedError, traffic.CannotRecordError) as reason:
        print(f"layout.py: {reason}", file=sys.stderr)
        return 1
    text = _markdown(rows)
    print(text)
    return 0 if report.put_between_markers(PAGE, text, MARK) else 1


def _row(kind: Kind, start: Run) -> Row:
    print(f"measuring {kind.name}", file=sys.stderr, flush=True)
    recording = traffic.ensure(kind.scenario, kind.number, WORK)
    made = fleet.ensure([recording], HOSTS, WORK / f"fleet-{HOSTS}-{kind.scenario}")
    run = ingest(ZMTPSNIFF, made, ["--master", "local[1]"], WORK)
    name = kind.name.format(round(made.messages / made.packets))
    return Row(name, made, run.cpu_seconds - start.cpu_seconds, run.table_octets)


def _markdown(rows: list[Row]) -> str:
    costs = report.table(
        (
            "traffic",
            "captures",
            "messages",
            "processor seconds",
            "MB/s",
            "messages/s",
            "tables, share of captures",
        ),
        [
            (
                row.name,
                f"{row.made.octets / 1e6:.1f} MB",
                f"{row.made.messages:,}",
                f"{row.seconds:.1f}",
                f"{row.speed / 1e6:.1f}",
                f"{row.made.messages / row.seconds:,.0f}",
                f"{row.table_octets / row.made.octets:.1%}",
            )
            for row in rows
        ],
    )
    processors = report.table(
        ("if the petabyte is", "processor time", f"cores that keep up with it ({RATE / 1e6:.0f} MB/s)"),
        [
            (row.name, f"{PETABYTE / row.speed / 3600:,.0f} core hours", f"{RATE / row.speed:,.0f}")
            for row in sorted(rows, key=lambda row: -row.speed)
        ],
    )
    measured = f"Measured on {time.strftime('%Y-%m-%d')}. {report.machine()}."
    return f"{measured}\n\n{costs}\n\n{processors}\n"


if __name__ == "__main__":
    sys.exit(main())
