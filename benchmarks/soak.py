"""Let ``zmtpsniff live`` run while connections come and go, and see that it neither grows nor misses a message.

    sudo python benchmarks/soak.py [--minutes N] [--engine NAME]

Exit status: 0 if memory, descriptors and threads at the end are those after the first minute, within the tolerances
that are printed, and every message was seen; 1 if not; 2 if it could not be run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import network
from observe import tree
from report import median, table
from visitors import talk

WORK_IN_S = 60.0  # after which nothing may grow
SAMPLE_S = 3.0
WINDOW = 0.1  # part of the whole time that the figures after the first minute, and those at the end, are medians of
STOP_S = 20.0
SETTLE_S = 2.0
MEMORY_TOLERANCE, MEMORY_TOLERANCE_MIB = 0.05, 2.0
DESCRIPTOR_TOLERANCE = THREAD_TOLERANCE = 1
MIB = 1024  # KiB


@dataclass(frozen=True)
class Sample:
    """What the program and all that it has started take."""

    seconds: float
    memory_mib: float
    descriptors: float
    threads: float
    processes: float


class SoakFailedError(Exception):
    """It could not be run; the message is one line."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    beside = shlex.quote(str(Path(sys.executable).with_name("zmtpsniff")))
    parser.add_argument("--zmtpsniff", default=beside, metavar="COMMAND", help="default: the one of this Python")
    parser.add_argument("--engine", default="auto", metavar="NAME", help="of zmtpsniff (default: auto)")
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="how long (default: 10)")
    return parser.parse_args()


def main() -> int:
    """Run, tell, judge."""
    options = _arguments()
    try:
        network.enter()
        command = [*shlex.split(options.zmtpsniff), "live", "-i", "lo", "-T", "json", "-v", "--engine", options.engine]
        return _soak(command, options.minutes * 60)
    except (network.NoNetworkError, SoakFailedError) as reason:
        print(f"soak.py: {reason}", file=sys.stderr)
        return 2


class _Records(threading.Thread):
    """Reads the records, and counts the messages in them."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(daemon=True)
        self.messages = 0  # whole ones
        self.cut = 0
        self.problems: dict[str, int] = {}
        self.totals: dict[str, int] = {}
        self._descriptor = descriptor

    def run(self) -> None:
        with open(self._descriptor, "rb", buffering=1 << 20) as stream:
            for line in stream:
                if b'"type":"message"' in line:
                    if b'"incomplete":true' in line:
                        self.cut += 1
                    else:
                        self.messages += 1
                elif b'"type":"problem"' in line:
                    code = json.loads(line)["code"]
                    self.problems[code] = self.problems.get(code, 0) + 1
                elif b'"type":"capture"' in line:
                    self.totals = json.loads(line)


def _soak(command: Sequence[str], seconds: float) -> int:
    samples: list[Sample] = []
    with tempfile.TemporaryFile() as said, _running(command, said.fileno()) as program:
        assert program.stdout is not None
        records = _Records(os.dup(program.stdout.fileno()))
        records.start()
        if not network.wait_for_capture(lambda: program.poll() is None):
            raise SoakFailedError(f"it did not begin to capture: {_last_line(said.fileno())}")
        print(_last_line(said.fileno()), file=sys.stderr)
        with _visitors(seconds) as (sender, finished):
            start = time.monotonic()
            while not finished.poll(SAMPLE_S):
                if program.poll() is not None:
                    raise SoakFailedError(f"it ended (exit status {program.returncode}): {_last_line(said.fileno())}")
                if sender.exitcode is not None and not finished.poll():
                    raise SoakFailedError("those who talk ended")
                samples.append(_sample(program.pid, time.monotonic() - start))
                _tell(samples[-1], records.messages)
            visits: Counter[str] = finished.recv()
            time.sleep(SETTLE_S)
        program.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(STOP_S)
        records.join(STOP_S)
    return _judge(samples, visits, records, program.returncode)


@contextmanager
def _running(command: Sequence[str], stderr: int) -> Iterator[subprocess.Popen[bytes]]:
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)
    except OSError as reason:
        raise SoakFailedError(f"{command[0]}: {reason.strerror}") from reason
    with program:
        try:
            yield program
        finally:
            if program.poll() is None:
                for pid in tree(program.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


@contextmanager
def _visitors(seconds: float) -> Iterator[tuple[BaseProcess, Connection]]:
    """Let others talk, in a process of its own."""
    spawning = multiprocessing.get_context("spawn")
    receiver, sender = spawning.Pipe(duplex=False)
    talking = spawning.Process(target=talk, args=(seconds, sender), daemon=True)
    talking.start()
    try:
        yield talking, receiver
        talking.join(STOP_S)
    finally:
        talking.kill()


def _sample(root: int, seconds: float) -> Sample:
    memory = descriptors = threads = processes = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            status = dict(
                line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
            )
            descriptors += len(os.listdir(f"/proc/{pid}/fd"))
            # Not what is mapped: the kernel's buffer is as large as -B says, and is filled in the first minutes.
            memory += int(status.get("RssAnon", "0").split()[0])
            threads += int(status["Threads"])
            processes += 1
    return Sample(seconds, memory / MIB, descriptors, threads, processes)


def _tell(sample: Sample, messages: int) -> None:
    print(
        f"{sample.seconds:6.0f} s  {sample.memory_mib:7.1f} MiB  {sample.descriptors:3.0f} descriptors  "
        f"{sample.threads:2.0f} threads  {sample.processes:.0f} processes  {messages:,} messages",
        file=sys.stderr,
        flush=True,
    )


def _judge(samples: Sequence[Sample], visits: Counter[str], records: _Records, exit_status: int | None) -> int:
    """Print what was found and return the exit status."""
    length = samples[-1].seconds if samples else 0.0
    window = length * WINDOW
    begin = min(WORK_IN_S, length / 2)
    first = [sample for sample in samples if begin <= sample.seconds <= begin + window]
    last = [sample for sample in samples if sample.seconds >= length - window]
    if not first or first == last:
        raise SoakFailedError("too short to tell")
    faults, lines = [], []
    for what, name, allowed in (
        ("memory (MiB)", "memory_mib", None),
        ("descriptors", "descriptors", DESCRIPTOR_TOLERANCE),
        ("threads", "threads", THREAD_TOLERANCE),
        ("processes", "processes", 0),
    ):
        before, after = (median([getattr(sample, name) for sample in part]) for part in (first, last))
        limit = before * (1 + MEMORY_TOLERANCE) + MEMORY_TOLERANCE_MIB if allowed is None else before + allowed
        lines.append((what, f"{before:.1f}", f"{after:.1f}", f"{limit:.1f}"))
        if after > limit:
            faults.append(f"{what} grew from {before:.1f} to {after:.1f}, at most {limit:.1f} is allowed")
    dropped = records.totals.get("dropped")
    sent = visits["messages"]
    if records.messages != sent:
        faults.append(f"{records.messages:,} messages were seen of {sent:,} (packets dropped: {dropped})")
    if records.totals.get("messages") != records.messages + records.cut:
        faults.append(f"the totals are wrong or missing: {records.totals}")
    if exit_status not in (0, 130):
        faults.append(f"exit status {exit_status}")
    print(f"{length / 60:.1f} minutes, {dict(visits)}")
    print(f"seen: {records.messages:,} whole messages, {records.cut:,} cut short; problems {records.problems}")
    print(f"{records.totals}\n")
    print(table(("", f"after {begin:.0f} s", "at the end", "allowed"), lines))
    for fault in faults:
        print(f"soak.py: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _last_line(descriptor: int) -> str:
    said = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")
    return (said.strip().splitlines() or [""])[-1]


if __name__ == "__main__":
    sys.exit(main())
