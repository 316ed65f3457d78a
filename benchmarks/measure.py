"""Run a command once and tell how long it took and how much memory it had at its peak.

The peak is ``ru_maxrss`` of the child, as the kernel counted it, through any chain of ``exec`` (chroot, nice, env). A
child starts as a copy of the process that measures, so a peak below that process's own cannot be told from it: this
module and what imports it stay small, and ``Run.peak_is_limit`` says when the figure is only an upper bound.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 16
TAIL = 1 << 12  # more than the one record of a capture's totals, which is all that is looked at


class CommandFailedError(Exception):
    """A command could not be run or did not succeed; the message is one line."""


@dataclass(frozen=True)
class Run:
    """The cost of one run of a command."""

    seconds: float
    processor: float  # seconds of processors, in the program and in the kernel for it
    peak_mib: float
    peak_is_limit: bool


@dataclass(frozen=True)
class Output:
    """The output of a command: its size, and its end."""

    lines: int
    commas: int
    last_line: bytes


def run(command: Sequence[str], capture: Path | None = None) -> Run:
    """Run a command, its output thrown away; ``capture`` is its standard input."""
    floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        child = _start(command, capture, subprocess.DEVNULL, said.fileno())
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        _check(command, child.returncode, said.read())
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, usage.ru_maxrss <= floor)


def count(command: Sequence[str], capture: Path | None = None) -> Output:
    """Run a command and count what it writes."""
    lines = commas = 0
    tail = b""
    with tempfile.TemporaryFile() as said:
        child = _start(command, capture, subprocess.PIPE, said.fileno())
        assert child.stdout is not None
        with child.stdout as stdout:
            while chunk := stdout.read(CHUNK):
                lines += chunk.count(b"\n")
                commas += chunk.count(b",")
                tail = (tail + chunk)[-TAIL:]
        child.wait()
        said.seek(0)
        _check(command, child.returncode, said.read())
    return Output(lines, commas, tail.rstrip(b"\n").rpartition(b"\n")[2])


def first_line(command: Sequence[str], capture: Path | None = None) -> float:
    """Return the seconds until a command has written its first line."""
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        child = _start(command, capture, subprocess.PIPE, said.fileno())
        assert child.stdout is not None
        with child.stdout as stdout:
            line = stdout.readline()
            seconds = time.perf_counter() - start
            while stdout.read(CHUNK):
                pass
        child.wait()
        said.seek(0)
        _check(command, child.returncode, said.read())
    if not line:
        raise CommandFailedError(f"{command[0]} wrote nothing")
    return seconds


def _start(command: Sequence[str], capture: Path | None, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    stdin = os.open(capture or os.devnull, os.O_RDONLY)
    try:
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr)
    except OSError as reason:
        raise CommandFailedError(f"{Path(command[0]).name}: {reason.strerror}") from reason
    finally:
        os.close(stdin)


def _check(command: Sequence[str], exit_status: int, said: bytes) -> None:
    if exit_status != 0:
        last = (said.decode(errors="replace").strip().splitlines() or [""])[-1]
        raise CommandFailedError(f"{Path(command[0]).name}: exit status {exit_status} {last}".rstrip())
