"""Leave ``zmtpsniff live`` on under load, plant a fault now and then, and see what it costs and what it tells.

    sudo python benchmarks/soak.py [--minutes N] [--every N] [--engine NAME]

benchmarks/README.md says what passes meanwhile, and what is judged. The table goes into SOAK.md. The exit
status is 0 if all held, 1 if not, 2 if it could not be run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import multiprocessing
import os
import platform
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import loads
import network
import report
import soak_clocks
import soak_faults
from observe import processor_seconds, tree
from visitors import talk

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "SOAK.md"
RATE = 20_000  # messages a second
FAULT_S = 15.0
FIRST_PORT = 7001  # of the faults; each has the next one
OVER_S = 75.0  # after a fault: then it is told to be over
WORK_IN_S = 900.0
"""After which nothing may grow.

By then bounded tables have their 1,000 to 2,000 connections, and a block may have been as large as it becomes on a busy
machine: memory that was needed once is not given back to the system.
"""
SAMPLE_S = 3.0
STOP_S = 60.0
MEMORY_TOLERANCE, MEMORY_TOLERANCE_MIB = 0.05, 2.0
PRICE_GOAL = 0.1  # of a core
METRICS = "127.0.0.1:9464"
KEEP = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"


@dataclass(frozen=True)
class Sample:
    """The things that the program and all that it has started keep."""

    seconds: float
    memory_mib: float
    descriptors: float
    threads: float
    processes: float


@dataclass
class Soak:
    """One run: what was planted, what it took, what was told."""

    odd: bool  # some who talk do so in a way that may be told, too
    seconds: float = 0.0
    planted: list[tuple[str, int]] = field(default_factory=list)  # codes of findings, and ports
    hosts: int = 0  # that came and went
    samples: list[Sample] = field(default_factory=list)
    cpu_seconds: float = 0.0
    messages: int = 0  # that were sent
    findings: list[dict[str, Any]] = field(default_factory=list)  # as they were told
    totals: dict[str, Any] = field(default_factory=dict)
    exit_status: int | None = None
    replayed: Counter[tuple[str, str]] = field(default_factory=Counter)  # severities and codes of findings, from a pipe
    jumping: Counter[tuple[str, str]] = field(default_factory=Counter)  # those of the same packets, whose times jump

    def told(self, code: str, port: int, state: str) -> int:
        """How often a fault was told."""
        return len([one for one in self.findings if one["state"] == state and _is(one, code, port)])

    def others(self) -> list[dict[str, Any]]:
        """Whatever else was told, but for losses."""
        return [
            one
            for one in self.findings
            if one["code"] != "capture-lossy" and not any(_is(one, code, port) for code, port in self.planted)
        ]


class SoakFailedError(Exception):
    """It could not be run; the message is one line."""


def _is(finding: dict[str, Any], code: str, port: int) -> bool:
    return finding["code"] == code and any(each.endswith(f":{port}") for each in finding["endpoints"])


def main() -> int:
    """Run, tell, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    beside = shlex.quote(str(Path(sys.executable).with_name("zmtpsniff")))
    parser.add_argument("--zmtpsniff", default=beside, metavar="COMMAND", help="default: the one of this Python")
    parser.add_argument("--engine", default="auto", metavar="NAME", help="of zmtpsniff (default: auto)")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N", help="how long (default: 60; a day: 1440)")
    parser.add_argument("--every", type=float, default=5.0, metavar="N", help="minutes between faults (default: 5)")
    parser.add_argument("--odd", action="store_true", help="visitors reset, stop and miss things; then more is told")
    options = parser.parse_args()
    try:
        network.enter()
        with tempfile.TemporaryDirectory() as name:
            kept = Path(name) / "findings"
            kept.touch()
            call = shlex.join([sys.executable, "-S", "-c", KEEP, str(kept)])
            command = [*shlex.split(options.zmtpsniff), "live", "-i", "any", "--engine", options.engine]
            command += ["--metrics", METRICS, "--on-finding", call, "-T", "json", "-Y", 'severity == "error"']
            packets = Path(name) / "packets"
            with soak_clocks.recording(packets):
                soak = _run(command, options.minutes * 60, options.every * 60, options.odd)
            soak.findings = [json.loads(line) for line in kept.read_text().splitlines()]
            program = shlex.split(options.zmtpsniff)
            soak.replayed = soak_clocks.findings(program, packets, (0,))
            soak.jumping = soak_clocks.findings(program, packets, soak_clocks.JUMPS_S)
    except (network.NoNetworkError, loads.LoadFailedError, SoakFailedError) as reason:
        print(f"soak.py: {reason}", file=sys.stderr)
        return 2
    rows, faults = judge(soak)
    text = _text(soak, rows, faults)
    RESULTS.write_text(text)
    print(text)
    return 1 if faults else 0


def _run(command: Sequence[str], seconds: float, every: float, odd: bool) -> Soak:
    soak = Soak(odd)
    started: list[subprocess.Popen[bytes]] = []
    kinds = itertools.cycle(soak_faults.CODES.items())
    with tempfile.TemporaryFile() as records, tempfile.TemporaryFile() as said:
        with _running(command, records.fileno(), said.fileno()) as program, _Traffic(seconds, odd) as traffic:
            begin, before = time.monotonic(), processor_seconds(tree(program.pid))
            next_fault, next_host = every / 2, every / 4
            while not traffic.is_over():
                time.sleep(SAMPLE_S)
                soak.seconds = time.monotonic() - begin
                if program.poll() is not None:
                    raise SoakFailedError(f"it ended (exit status {program.returncode}): {_last_line(said.fileno())}")
                soak.samples.append(_sample(program.pid, soak.seconds))
                _tell(soak)
                if next_fault < soak.seconds < seconds - FAULT_S - OVER_S:
                    name, code = next(kinds)
                    soak.planted.append((code, FIRST_PORT + len(soak.planted)))
                    started.append(_python("soak_faults.py", name, soak.planted[-1][1], FAULT_S))
                    next_fault += every
                if next_host < soak.seconds < seconds - FAULT_S:
                    soak.hosts += 1
                    started.append(_python("soak_hosts.py", soak.hosts))
                    next_host += every
            soak.cpu_seconds = processor_seconds(tree(program.pid)) - before
            for one in started:
                if one.wait(STOP_S):
                    raise SoakFailedError(f"one of the peers failed: {one.args!r}")
            soak.messages = traffic.messages
            soak.exit_status = _end(program)
        soak.totals = json.loads(_last_line(records.fileno()))
    return soak


class _Traffic:
    """Those who talk all the time: two who never stop, and visitors."""

    def __init__(self, seconds: float, odd: bool) -> None:
        spawning = multiprocessing.get_context("spawn")
        self.messages = 0
        self._visits, sender = spawning.Pipe(duplex=False)
        self._visitors = spawning.Process(target=talk, args=(seconds, sender, odd), daemon=True)
        self._flood = threading.Thread(target=self._talk, args=[loads.flood(RATE, seconds)], daemon=True)

    def __enter__(self) -> _Traffic:
        self._visitors.start()
        self._flood.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._visitors.join(STOP_S)
        self._visitors.kill()

    def _talk(self, flood: loads.Load) -> None:
        self.messages += flood.send().messages

    def is_over(self) -> bool:
        """Whether all have said everything."""
        if self._flood.is_alive() or not self._visits.poll():
            if self._visitors.exitcode is not None and not self._visits.poll():
                raise SoakFailedError("those who talk ended")
            return False
        self.messages += self._visits.recv()["messages"]
        return True


def _python(program: str, *words: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(HERE / program), *map(str, words)], stdin=subprocess.DEVNULL)


@contextmanager
def _running(command: Sequence[str], stdout: int, stderr: int) -> Iterator[subprocess.Popen[bytes]]:
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
    except OSError as reason:
        raise SoakFailedError(f"{command[0]}: {reason.strerror}") from reason
    try:
        if not network.wait_for_capture(lambda: program.poll() is None):
            raise SoakFailedError(f"it did not begin to capture: {_last_line(stderr)}")
        yield program
    finally:
        if program.poll() is None:
            for pid in tree(program.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _end(program: subprocess.Popen[bytes]) -> int:
    """Interrupt it, and once more if it does not come to an end with what waits; returns its exit status."""
    for _ in range(2):
        program.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return program.wait(STOP_S)
    raise SoakFailedError("it does not end")


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
    return Sample(seconds, memory / 1024, descriptors, threads, processes)


def _tell(soak: Soak) -> None:
    sample = soak.samples[-1]
    print(
        f"{sample.seconds:6.0f} s  {sample.memory_mib:7.1f} MiB  {sample.descriptors:3.0f} descriptors  "
        f"{sample.threads:2.0f} threads  {sample.processes:.0f} processes  {len(soak.planted)} faults planted",
        file=sys.stderr,
        flush=True,
    )


def judge(soak: Soak) -> tuple[list[tuple[str, str]], list[str]]:
    """Rows of a table of what was found, and a line for each thing that does not hold."""
    wrong = []
    rows = [
        ("Packets", f"{soak.totals['packets']:,}"),
        ("Packets lost", f"{soak.totals.get('dropped', 0):,}"),
        ("Messages sent, seen", f"{soak.messages:,}, {soak.totals['messages']:,}"),
        ("Connections", f"{soak.totals['flows']:,}"),
        ("Hosts that came and went", f"{soak.hosts:,}"),
        ("Share of a core", f"{soak.cpu_seconds / soak.seconds:.1%} (goal {PRICE_GOAL:.0%})"),
    ]
    if soak.totals["messages"] < soak.messages and not soak.totals.get("dropped"):
        wrong.append("messages are missing, and nothing was dropped")
    if soak.cpu_seconds > PRICE_GOAL * soak.seconds:
        wrong.append("it took more of the processor than it should")
    if soak.exit_status:
        wrong.append(f"exit status {soak.exit_status}")
    begin = min(WORK_IN_S, soak.seconds / 2)
    window = soak.seconds / 10
    first = [one for one in soak.samples if begin <= one.seconds <= begin + window]
    last = [one for one in soak.samples if one.seconds >= soak.seconds - window]
    for what, name, more in (
        ("Memory (MiB)", "memory_mib", 0),
        ("Descriptors", "descriptors", 1),
        ("Threads", "threads", 1),
    ):
        before, after = (report.median([getattr(one, name) for one in part]) for part in (first, last))
        allowed = before * (1 + MEMORY_TOLERANCE) + MEMORY_TOLERANCE_MIB if not more else before + more
        rows.append((f"{what} after {begin:.0f} s, at the end", f"{before:.1f}, {after:.1f} (allowed {allowed:.1f})"))
        if after > allowed:
            wrong.append(f"{what} grew from {before:.1f} to {after:.1f}")
    told = {state: [soak.told(code, port, state) for code, port in soak.planted] for state in ("comes", "goes")}
    rows.append(("Faults planted", f"{len(soak.planted):,}"))
    for state, what in (("comes", "told"), ("goes", "told to be over")):
        rows.append((f"{what} once".capitalize(), f"{told[state].count(1):,}"))
        for (code, port), times in zip(soak.planted, told[state], strict=True):
            if times != 1:
                wrong.append(f"{code} at {port} was {what} {times} times")
    others = soak.others()
    # A note accuses nobody: on a busy machine a reply is slow now and then, and a server takes no visit for a while.
    notes = Counter(one["code"] for one in others if one["severity"] == "note")
    alarms = [one for one in others if one["severity"] != "note"]
    rows.append(("Errors and warnings beside them", f"{len(alarms):,}"))
    told_notes = [f"{count:,} {code}" for code, count in sorted(notes.items())]
    rows.append(("Notes that came or went", ", ".join(told_notes) or "0"))
    totals = f"{soak.replayed.total()}, {soak.jumping.total()}"
    rows.append(("Findings in replayed packets, and in those whose clock jumps", totals))
    if soak.replayed != soak.jumping:
        others_told, untold = soak.jumping - soak.replayed, soak.replayed - soak.jumping
        wrong.append(f"where the clock jumps there are, too: {[*others_told]}, and there are not: {[*untold]}")
    if not soak.odd:
        wrong += [f"told, too: {one['state']} {one['severity']} {one['code']}: {one['summary']}" for one in alarms]
    return rows, wrong


def _text(soak: Soak, rows: Sequence[tuple[str, str]], wrong: Sequence[str]) -> str:
    title = f"# Soak\n\nWritten by `benchmarks/soak.py`: {soak.seconds / 60:.0f} minutes on {datetime.date.today()}, "
    title += f"Python {platform.python_version()}, {report.machine()}."
    held = "All held." if not wrong else "\n".join(["Not so:", "", *(f"- {one}" for one in wrong)])
    return f"{title}\n\n{report.table(('', 'Measured'), rows)}\n\n{held}\n"


def _last_line(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    written = os.pread(descriptor, 1 << 16, max(0, size - (1 << 16))).decode(errors="replace")
    return (written.strip().splitlines() or [""])[-1]


if __name__ == "__main__":
    sys.exit(main())
