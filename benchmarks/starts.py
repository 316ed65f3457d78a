"""Measures the start of ``zmtpsniff spark ingest`` piece by piece, what tuning saves, and the views' first question.

``spark.py`` runs it and writes its tables to SPARK.md. By itself it is one run whose pieces are printed as JSON:

    python benchmarks/starts.py ingest CAPTURE TABLES
    python benchmarks/starts.py views TABLES
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

MASTER = "local[2]"
LEAST_SAVED_S = 1.0  # of time or of processors: a setting that saves less goes
# What switches a setting of ours off: those of the user come behind ours.
OFF = {
    "Java's second compiler later": (
        "-XX:Tier4InvocationThreshold=5000 -XX:Tier4MinInvocationThreshold=600 -XX:Tier4CompileThreshold=15000 "
        "-XX:Tier4BackEdgeThreshold=40000"
    ),
}
QUESTIONS = {
    "the first question, of a few rows: `SELECT count(*) FROM captures`": "SELECT count(*) FROM captures",
    "all rows: `SELECT sum(size) FROM all_messages`": "SELECT sum(size) FROM all_messages",
    "each connection once: `SELECT sum(size) FROM messages`": "SELECT sum(size) FROM messages",
    "the same again": "SELECT sum(size) FROM messages",
}


Cost = tuple[float, float]
"""Seconds, and those of all processors together."""


@dataclass
class Starts:
    """All measurements, in each round."""

    pieces: dict[str, list[Cost]] = field(default_factory=dict)
    questions: dict[str, list[Cost]] = field(default_factory=dict)
    with_all: list[Cost] = field(default_factory=list)
    without: dict[str, list[Cost]] = field(default_factory=dict)

    def measure(self, zmtpsniff: Sequence[str], capture: Path, tables: Path, work: Path) -> None:
        """Measure everything once more; raises FailedError. ``tables`` are what the views are made of."""
        from ingests import measured, scratch_folder

        with scratch_folder(work) as scratch:
            _add(self.pieces, _run("ingest", str(capture), str(scratch / "tables")))
        _add(self.questions, _run("views", str(tables)))

        def once(switched_off: str) -> Cost:
            with scratch_folder(work) as scratch:
                command = [*zmtpsniff, "spark", "ingest", str(capture), "--output", str(scratch / "t")]
                run = measured([*command, "--master", MASTER], {"SPARK_SUBMIT_OPTS": switched_off})
                return run.seconds, run.cpu_seconds

        self.with_all.append(once(""))
        for name, switched_off in OFF.items():
            self.without.setdefault(name, []).append(once(switched_off))

    def markdown(self, messages: int) -> str:
        """The tables, of views of so many messages."""
        import report

        rounds = len(self.with_all)
        wanted = f"saves at least {LEAST_SAVED_S:g} s, or as much of processors"
        targets = []
        for name in OFF:
            elapsed, processors = (self._saved(name, which) for which in (0, 1))
            measured = f"{elapsed:.1f} s, {processors:.1f} s"
            targets.append(report.Target(f"{name} {wanted}", measured, max(elapsed, processors) >= LEAST_SAVED_S))
        parts = [
            f"Measured on {time.strftime('%Y-%m-%d')}. {report.machine()}; medians of {rounds} "
            f"round{'s' if rounds > 1 else ''}, at `{MASTER}`. The load was {os.getloadavg()[2]:.1f} meanwhile.",
            report.targets_table(targets),
            _table("Piece of an ingest of a few messages", self.pieces),
            _table(f"Spark's views of {messages:,} messages", self.questions),
        ]
        return "\n\n".join(parts) + "\n"

    def _saved(self, name: str, which: int) -> float:
        """The saving by a setting: the median of the rounds, each of which compares runs of its own."""
        import report

        pairs = zip(self.without[name], self.with_all, strict=True)
        return report.median([without[which] - run[which] for without, run in pairs])


def _table(title: str, pieces: dict[str, list[Cost]]) -> str:
    """The medians of pieces, and what they are together."""
    import report

    def line(name: str, costs: Sequence[Cost]) -> tuple[str, ...]:
        return (name, *(f"{report.median(seconds):.1f} s" for seconds in zip(*costs, strict=True)))

    together = [tuple(map(sum, zip(*costs, strict=True))) for costs in zip(*pieces.values(), strict=True)]
    lines = [line(name, costs) for name, costs in pieces.items()]
    return report.table((title, "Time", "of processors"), [*lines, line("together", together)])  # type: ignore[arg-type]


def _add(found: dict[str, list[Cost]], pieces: dict[str, Cost]) -> None:
    for name, cost in pieces.items():
        found.setdefault(name, []).append(cost)


def _run(*arguments: str) -> dict[str, Cost]:
    """The pieces of a run; raises FailedError."""
    from ingests import FailedError

    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(f"{arguments[0]}: exit status {done.returncode}: {done.stderr.strip()[-200:]}")
    return {name: (seconds, of_processors) for name, (seconds, of_processors) in json.loads(done.stdout).items()}


# ---------------------------------------------------------------------- in a process of its own


class _Clock:
    """The costs of pieces, one after the other, and of calls within them."""

    def __init__(self) -> None:
        self.pieces: dict[str, Cost] = {}
        self._last = _cost()

    def mark(self, name: str) -> None:
        """All that came since the last mark, but for calls that were timed, was this piece."""
        now = _cost()
        self.pieces[name] = _sum(now, self._last, -1)
        self._last = now

    def time(self, owner: Any, function: str, name: str) -> None:
        """Make the calls of a function a piece of its own."""
        called: Callable[..., Any] = getattr(owner, function)

        @wraps(called)
        def timed(*arguments: Any, **named: Any) -> Any:
            begun = _cost()
            try:
                return called(*arguments, **named)
            finally:
                cost = _sum(_cost(), begun, -1)
                self.pieces[name] = _sum(self.pieces.get(name, (0.0, 0.0)), cost)
                self._last = _sum(self._last, cost)

        setattr(owner, function, timed)


def _cost() -> Cost:
    """The time, and that of processors of this process and all that it has started."""
    from observe import processor_seconds, tree

    return time.time(), processor_seconds(tree(os.getpid()))


def _sum(one: Cost, other: Cost, times: int = 1) -> Cost:
    return one[0] + times * other[0], one[1] + times * other[1]


def _start_session(clock: _Clock) -> Any:
    """A session as the command has it, with its pieces."""
    import pyspark.core.context
    import pyspark.sql  # measured

    clock.mark("imports: pyspark")
    from zmtpsniff.spark import session

    clock.time(session, "find_java", "`java -version`")
    clock.time(pyspark.core.context, "launch_gateway", "the JVM starts")
    started = session.get_session(MASTER)
    clock.mark("Spark's context and its session of SQL")
    return started


def _ingest(clock: _Clock, capture: str, tables: str) -> None:
    import zmtpsniff.cli.main  # noqa: F401  # measured

    clock.mark("imports: the command line")
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401  # measured

    clock.mark("imports: pyarrow")
    from zmtpsniff.spark.ingestion import IngestRun, ingest
    from zmtpsniff.spark.store import Store

    clock.mark("imports: deltalake and ours")
    Store(tables).open()
    clock.mark("tables are made, with Delta Lake's logs")
    started = _start_session(clock)
    started.range(0, 1, 1, 1).collect()
    clock.mark("the first job, in the JVM alone")
    started.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id BIGINT").collect()
    clock.mark("the first job in Python: a worker starts")
    clock.time(Store, "commit", "the commit: Delta Lake's logs")
    ingest(started, [capture], IngestRun(tables))
    clock.mark("the work: one more job")


def _views(clock: _Clock, tables: str) -> None:
    from zmtpsniff.spark import open_tables

    clock.mark("imports")
    started = _start_session(clock)
    open_tables(started, tables)
    clock.mark("`open_tables`")
    for name, query in QUESTIONS.items():
        started.sql(query).collect()
        clock.mark(name)


def main(what: str, *arguments: str) -> None:
    """Do one run, and print its pieces."""
    clock = _Clock()
    {"ingest": _ingest, "views": _views}[what](clock, *arguments)  # type: ignore[operator]
    print(json.dumps(clock.pieces))


if __name__ == "__main__":
    main(*sys.argv[1:])
