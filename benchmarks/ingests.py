"""Ingests on Spark, run and measured: time, that of all processors, memory; the rows are counted."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fleet
import traffic
from observe import processor_seconds, tree

SAMPLE_S = 0.2


class FailedError(Exception):
    """A command did not succeed, or found other messages than there are; the message is one line."""


@dataclass
class Run:
    """The cost of one run of a command."""

    seconds: float
    cpu_seconds: float = 0.0  # of all its processes together
    worker_mib: float = 0.0  # the largest process but the JVM, at its peak
    jvm_mib: float = 0.0
    table_octets: int = 0
    objects: int = 0  # files of the tables
    shuffled_octets: int = 0


def ingest(zmtpsniff: Sequence[str], made: fleet.Fleet, options: Sequence[str], work: Path) -> Run:
    """``zmtpsniff spark ingest`` of a fleet, into a folder in ``work`` that is deleted; raises FailedError."""
    with scratch_folder(work) as scratch:
        run = ingest_into(scratch, zmtpsniff, [made.folder], options)
        check(rows(scratch, "messages"), made)
    return run


@contextmanager
def scratch_folder(work: Path) -> Iterator[Path]:
    """A folder in ``work`` that is deleted. The JVM may write the last of its log after the command has ended."""
    with tempfile.TemporaryDirectory(dir=work, ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)


def ingest_into(tables: Path, zmtpsniff: Sequence[str], inputs: Sequence[Path], options: Sequence[str]) -> Run:
    """``zmtpsniff spark ingest`` of inputs into tables, which may have rows; raises FailedError."""
    with scratch_folder(tables.parent) as log:
        logged = f"-Dspark.eventLog.enabled=true -Dspark.eventLog.dir={log.as_uri()} -Dspark.eventLog.compress=false"
        command = [*zmtpsniff, "spark", "ingest", *map(str, inputs), "--output", str(tables), *options]
        run = measured(command, {"SPARK_SUBMIT_OPTS": logged})
        run.shuffled_octets = _shuffled(log)
    written = [path.stat().st_size for path in tables.glob("[!_]*/**/*.parquet")]
    run.table_octets, run.objects = sum(written), len(written)
    return run


def start_up(zmtpsniff: Sequence[str], work: Path) -> Run:
    """An ingest of a capture of a few messages: what Spark costs before it begins.

    The middle one of three, since the first one may have to read all of Spark from the disk.
    """
    small = traffic.ensure("round-trip", 5, work)

    def once() -> Run:
        with tempfile.TemporaryDirectory(dir=work) as scratch:
            target = str(Path(scratch, "tables"))
            command = [*zmtpsniff, "spark", "ingest", str(small.path), "--output", target, "--master", "local[1]"]
            return measured(command)

    return sorted((once() for _ in range(3)), key=lambda run: run.seconds)[1]


def _shuffled(log: Path) -> int:
    """The octets that tasks wrote for a shuffle, as Spark's log of events has them; raises FailedError without one."""
    lines = [line for path in log.rglob("events_*") for line in path.read_text().splitlines()]
    ended = [event for event in map(json.loads, lines) if event["Event"] == "SparkListenerTaskEnd"]
    if not ended:
        raise FailedError("Spark wrote no log of its tasks")
    return sum(event["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"] for event in ended)


def measured(command: Sequence[str], variables: Mapping[str, str] | None = None) -> Run:
    """Run a command, watching the memory of all processes that it starts; raises FailedError.

    ``variables`` are added to the environment.
    """
    run = Run(0.0)
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, **(variables or {})},
            )
        except OSError as reason:
            raise FailedError(f"{command[0]}: {reason.strerror}") from reason
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(child.pid, run, done))
        watcher.start()
        child.wait()
        run.seconds = time.perf_counter() - start
        done.set()
        watcher.join()
        said.seek(0)
        if child.returncode:
            last = (said.read().decode(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
            raise FailedError(f"exit status {child.returncode}: {last}")
    return run


def _watch(root: int, run: Run, done: threading.Event) -> None:
    """Keep the peaks of the processes below ``root`` in ``run``, and what they cost together."""
    while not done.wait(SAMPLE_S):
        processes = tree(root)
        run.cpu_seconds = max(run.cpu_seconds, processor_seconds(processes))
        for process in processes:
            try:
                name = Path(f"/proc/{process}/comm").read_text().strip()
                status = Path(f"/proc/{process}/status").read_text()
            except OSError:
                continue
            resident = next((line for line in status.splitlines() if line.startswith("RssAnon:")), "RssAnon: 0")
            mib = int(resident.split()[1]) / 1024
            if name == "java":
                run.jvm_mib = max(run.jvm_mib, mib)
            else:
                run.worker_mib = max(run.worker_mib, mib)


def rows(tables: Path, name: str) -> int:
    """How many rows a table has."""
    from deltalake import DeltaTable  # only here: what measures memory stays small

    return DeltaTable(str(tables / name)).count()


def check(messages: int, made: fleet.Fleet) -> None:
    """Raise FailedError unless there are as many messages as were sent."""
    if messages != made.messages:
        raise FailedError(f"{messages:,} messages, but {made.messages:,} were sent")
