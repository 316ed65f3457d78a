"""Measures how the cost of ``zmtpsniff spark ingest`` grows, and calculates what a petabyte a day costs by that.

``spark.py`` runs it and writes its tables to SPARK.md. Costs are seconds of processors beyond those of starting Spark.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fleet
import report
from ingests import FailedError, Run, ingest_into, rows, scratch_folder
from traffic import Recording

SIZES = (8, 16, 32)  # hosts: 1, 2, 4 GB
FILES = (100, 1_000, 10_000)
FILES_HOSTS = 2  # of which each is a series
OPEN = (1_000, 10_000, 100_000)
GO_ON = 1_000
TWO = ("--master", "local[2]")
TOLERANCE = 1.1  # more than as many times the cost as there is more
NOISE_S = 1.0  # of processors: costs that are less cannot be told apart
IDLE = 1.0  # load of a machine that has nothing else to do, at most

DAY_OCTETS = 1e15
DAY_SECONDS = 86_400
ROTATED_OCTETS = 500e6  # of a capture file of the calculation
HOSTS = 10_000
RUNS = 24  # a day
HOST_CONNECTIONS = 1_000  # open from run to run


@dataclass
class Step:
    """An amount, and the cheapest run with it."""

    amount: float
    run: Run


@dataclass
class Growth:
    """The costs of more and more of something."""

    name: str
    unit: str
    start_s: float = 0.0
    steps: list[Step] = field(default_factory=list)

    def add(self, amount: float, run: Run) -> None:
        """Add a run; of those with one amount the cheapest stays."""
        for step in self.steps:
            if step.amount == amount:
                step.run = min(step.run, run, key=lambda one: one.cpu_seconds)
                return
        self.steps.append(Step(amount, run))

    def cost(self, step: Step) -> float:
        """The seconds of processors beyond those of starting Spark."""
        return step.run.cpu_seconds - self.start_s

    def further(self, place: int) -> float:
        """The cost of one more, between a step and the one before it; at most that, if it cannot be told."""
        step, before = self.steps[place], self.steps[place - 1]
        return max(self.cost(step) - self.cost(before), NOISE_S) / (step.amount - before.amount)

    def target(self) -> report.Target:
        """Whether the last step costs at most as many times more as there is more."""
        middle, last = self.steps[-2:]
        more, times = last.amount / middle.amount, self.cost(last) / max(self.cost(middle), NOISE_S)
        wanted = f"{self.name}: {more:.3g} times as many, at most {more:.3g} times the cost, within {TOLERANCE - 1:.0%}"
        return report.Target(wanted, f"{times:.2f} times", times <= more * TOLERANCE)

    def lines(self) -> Iterator[tuple[str, ...]]:
        """The lines of the table."""
        for place, step in enumerate(self.steps):
            further = ""
            if place:
                is_known = self.cost(step) - self.cost(self.steps[place - 1]) >= NOISE_S
                further = f"{'' if is_known else 'at most '}{_span(self.further(place))}"
            amount, run = f"{step.amount:,.4g}" if step.amount < 1000 else f"{step.amount:,.0f}", step.run
            costs = f"{self.cost(step):.1f} s", further, f"{run.seconds:.1f} s"
            yield (self.name, f"{amount} {self.unit}", *costs, f"{run.worker_mib:,.0f} MiB", f"{run.jvm_mib:,.0f} MiB")


def _span(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:,.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:,.0f} µs"


class Growths:
    """All that is measured, in captures that are made of recordings.

    ``small`` has a few messages. Many files are made from the recording of its scenario.
    """

    def __init__(self, zmtpsniff: Sequence[str], recordings: Sequence[Recording], small: Recording, work: Path) -> None:
        """Name what to run, and a folder for captures and tables, which are deleted."""
        self._zmtpsniff, self._recordings, self._small, self._work = zmtpsniff, recordings, small, work
        self._few = next(one for one in recordings if one.scenario == small.scenario)
        self.octets = Growth("captures", "GB")
        self.files = Growth("new files", "files")
        self.known = Growth("known files, to which one comes", "files")
        self.begun = Growth("connections that stay open", "connections")
        self.open = Growth(f"connections carried over, {GO_ON:,} go on", "connections")
        self.all = (self.octets, self.files, self.known, self.begun, self.open)
        self.said = ""

    def measure(self, start: Run, rounds: int) -> None:
        """Run everything so many times; ``start`` is what it costs to start Spark. Raises FailedError."""
        day, load = time.strftime("%Y-%m-%d"), os.getloadavg()[0]
        for growth in self.all:
            growth.start_s = start.cpu_seconds
        for _ in range(rounds):
            self._with_hosts()
            self._with_files()
            self._with_connections()
        runs = "one run each" if rounds == 1 else f"the cheapest of {rounds} runs"
        busy = "; the machine was busy, so the times say little" if load > IDLE else ""
        self.said = (
            f"Measured on {day}. {report.machine()}; {runs}. Costs are seconds of processors beyond the "
            f"{start.cpu_seconds:.1f} s of starting Spark. The load was {load:.1f} before that{busy}."
        )

    def _with_hosts(self) -> None:
        for hosts in SIZES:
            with scratch_folder(self._work) as scratch:
                made = fleet.ensure(self._recordings, hosts, scratch / "fleet")
                self.octets.add(made.octets / 1e9, self._ingests([made.folder], "messages", made.messages)[0])

    def _with_files(self) -> None:
        octets = FILES_HOSTS * self._few.octets
        for files in FILES:
            with scratch_folder(self._work) as scratch:
                made = fleet.ensure([self._few], FILES_HOSTS, scratch / "fleet", octets // files)
                messages = made.messages + self._small.messages
                new, one_more = self._ingests([made.folder, self._small.path], "messages", messages)
            self.files.add(made.files, new)
            self.known.add(made.files, one_more)

    def _with_connections(self) -> None:
        for count in OPEN:
            with scratch_folder(self._work) as scratch:
                parts = fleet.write_open(self._small, count, GO_ON, scratch)
                begun, going_on = self._ingests(parts, "connections", count, "--series", f"({scratch})/")
            self.begun.add(count, begun)
            self.open.add(count, going_on)

    def _ingests(self, inputs: Sequence[Path], table: str, wanted: int, *options: str) -> list[Run]:
        """Runs into the same tables, one input after the other; so many rows are there in the end."""
        print(f"measuring {', '.join(map(str, inputs))}", file=sys.stderr, flush=True)
        with scratch_folder(self._work) as scratch:
            tables = scratch / "tables"
            runs = [ingest_into(tables, self._zmtpsniff, [one], [*TWO, *options]) for one in inputs]
            if (found := rows(tables, table)) != wanted:
                raise FailedError(f"{found:,} {table}, but {wanted:,} were made")
        return runs

    def markdown(self) -> str:
        """The tables, and the calculation."""
        header = ("More", "Amount", "Cost", "of each further one", "Time", "Largest Python", "JVM")
        return "\n\n".join(
            (
                self.said,
                report.targets_table([growth.target() for growth in self.all]),
                report.table(header, [line for growth in self.all for line in growth.lines()], left=2),
                self._petabyte(),
            )
        )

    def _petabyte(self) -> str:
        """The cost of a petabyte a day, if cost grows as the amount does."""
        last = self.octets.steps[-1]
        gigabytes, files = DAY_OCTETS / 1e9, DAY_OCTETS / ROTATED_OCTETS
        connections = HOSTS * HOST_CONNECTIONS * RUNS
        costs = {
            f"{gigabytes:,.0f} GB of this traffic": gigabytes * self.octets.further(-1),
            f"{files:,.0f} files of {ROTATED_OCTETS / 1e6:.0f} MB": files * self.files.further(-1),
            f"{connections:,} times an open connection is carried over": connections * self.open.further(-1),
        }
        total = sum(costs.values())
        table_octets = last.run.table_octets / last.amount * gigabytes
        lines = [(what, f"{cost / 3600:,.0f} core hours", f"{cost / DAY_SECONDS:,.1f}") for what, cost in costs.items()]
        lines.append(("together", f"{total / 3600:,.0f} core hours", f"{total / DAY_SECONDS:,.1f}"))
        objects = HOSTS * RUNS * last.run.objects / SIZES[-1]
        known = files * self.known.further(-1)
        return (
            f"A petabyte a day, calculated from these figures: {HOSTS:,} hosts with {HOST_CONNECTIONS:,} open "
            f"connections each, {RUNS} runs a day. No such run was made.\n\n"
            + report.table(("Cost of a day", "Processors", "Cores that keep up"), lines)
            + f"\n\nThe tables grow by {table_octets / 1e12:,.0f} TB a day, "
            f"{table_octets / DAY_OCTETS:.1%} of the captures. They get {objects:,.0f} objects a day if each host is a "
            f"task of its own, before `spark optimize` makes these few. The program that starts a run looks at all "
            f"known files, which takes at most {_span(known)} of one processor for those of a day: begin other tables "
            f"once it takes too long."
        )
