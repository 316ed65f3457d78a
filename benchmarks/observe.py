"""Run a command that captures, under a load: what it saw, what it lost, what it cost, and how late it was."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import subprocess
import tempfile
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import network
from loads import Load, LoadFailedError, Traffic

CHUNK = 1 << 20
QUIET_S = 2.0  # tcpdump may keep packets for a second
STOP_S = 10.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Drops:
    """Packets dropped, None where the command does not say."""

    kernel: int | None
    own: int | None


@dataclass(frozen=True)
class Observer:
    """A command to observe, and how to read what it writes.

    ``count`` gets whole lines and returns how many results are in them; ``expected`` says how many there should be in
    all, None if it is not known; ``stamp`` gets a line and returns the kernel's time of its packet in nanoseconds;
    ``drops`` gets the lines that hold ``telling`` and what was written to standard error.
    """

    name: str
    command: Callable[[str], list[str]]
    unit: str
    expected: Callable[[Traffic], int | None]
    count: Callable[[bytes], int]
    stamp: Callable[[bytes], int | None]
    drops: Callable[[bytes, str], Drops]
    telling: bytes = b""


@dataclass
class Observation:
    """One run of a command under a load."""

    sent: Traffic
    seen: int
    drops: Drops
    cpu_seconds: float
    late_seconds: float | None  # until the last result after the load had ended; None if it was not done by then
    latencies: list[tuple[int, int]] = field(default_factory=list)  # nanoseconds, and for how many results it stands

    def latency(self, part: float) -> float | None:
        """Return the latency in seconds that such a part of the results kept, None if nothing was seen."""
        ordered = sorted(self.latencies)
        rest = part * sum(weight for _, weight in ordered)
        for nanoseconds, weight in ordered:
            rest -= weight
            if rest <= 0:
                return nanoseconds / 1e9
        return None


class Failure(Exception):  # noqa: N818
    """A command could not be observed; the message is one line."""


class Reader(threading.Thread):
    """Reads what a command writes, in large pieces, and notes the time of each before it is looked at."""

    def __init__(self, descriptor: int, observer: Observer) -> None:
        """Read the descriptor until its end."""
        super().__init__(daemon=True)
        self.seen = 0
        self.told = b""
        self.last = time.monotonic()  # when the last piece came
        self.latencies: list[tuple[int, int]] = []
        self._descriptor = descriptor
        self._observer = observer

    def run(self) -> None:
        """Read."""
        rest = b""
        while piece := self._read():
            now = time.time_ns()
            self.last = time.monotonic()
            whole, newline, tail = piece.rpartition(b"\n")
            if newline:
                self._look(rest + whole, now)
                rest = tail
            else:
                rest += tail
        self._look(rest, time.time_ns())

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, CHUNK)
        except OSError:  # the end of a terminal
            return b""

    def _look(self, lines: bytes, now: int) -> None:
        observer = self._observer
        count = observer.count(lines)
        self.seen += count
        if observer.telling and observer.telling in lines:
            self.told += b"".join(line + b"\n" for line in lines.split(b"\n") if observer.telling in line)
        if count == 0:
            return
        # The first line of a piece has waited longest, the last one shortest.
        for line in (lines.partition(b"\n")[0], lines.rpartition(b"\n")[2]):
            stamp = observer.stamp(line)
            if stamp is not None:
                self.latencies.append((now - stamp, count))


def observe(observer: Observer, load: Load, patience: float, *, terminal: bool = False) -> Observation:
    """Run the command while the load is sent; wait ``patience`` seconds for the rest, then end it. Raises Failure."""
    with tempfile.TemporaryFile() as said:
        ours, theirs = _terminal() if terminal else os.pipe()
        left: list[Path] = []
        try:
            with _running(observer.command(load.interface), theirs, said.fileno()) as child:
                os.close(theirs)
                theirs = -1
                reader = Reader(ours, observer)
                reader.start()
                if not network.wait_for_capture(lambda: child.poll() is None):
                    raise Failure(_why(said.fileno(), child.poll()))
                before = processor_seconds(tree(child.pid))
                try:
                    sent = load.send()
                except LoadFailedError as reason:
                    raise Failure(str(reason)) from reason
                end = time.monotonic()
                left += _temporary_files(child.pid)
                late = _wait_until_quiet(reader, end, patience)
                cpu_seconds = processor_seconds(tree(child.pid)) - before
                if child.poll() is not None:
                    raise Failure(f"ended under the load, {_why(said.fileno(), child.poll())}")
                _end(child)
                reader.join(STOP_S)
        finally:
            os.close(ours)
            if theirs >= 0:
                os.close(theirs)
            for path in left:
                path.unlink(missing_ok=True)
        told = observer.drops(reader.told, _text(said.fileno()))
    return Observation(sent, reader.seen, told, cpu_seconds, late, reader.latencies)


def _terminal() -> tuple[int, int]:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, b"\x28\x00\x78\x00\x00\x00\x00\x00")  # 40 lines of 120
    return ours, theirs


@contextmanager
def _running(command: Sequence[str], stdout: int, stderr: int) -> Iterator[subprocess.Popen[bytes]]:
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
    except OSError as reason:
        raise Failure(f"{Path(command[0]).name}: {reason.strerror}") from reason
    try:
        yield child
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt the command as Ctrl-C does; end it and all it has started by force if it does not obey."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if child.poll() is None:
            child.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(STOP_S)
    if child.poll() is None:
        for pid in tree(child.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    child.wait()


def _temporary_files(root: int) -> list[Path]:
    """Return the files in which dumpcap hands packets to tshark; they stay if tshark is killed, or fails."""
    found = []
    for descriptor in [path for pid in tree(root) for path in Path(f"/proc/{pid}/fd").glob("*")]:
        with contextlib.suppress(OSError):
            target = os.readlink(descriptor)
            if re.search(r"/wireshark_[^/]*\.pcapng$", target):
                found.append(Path(target))
    return found


def _wait_until_quiet(reader: Reader, end: float, patience: float) -> float | None:
    while (now := time.monotonic()) < end + patience:
        if now > max(reader.last, end) + QUIET_S:
            return max(0.0, reader.last - end)
        time.sleep(0.05)
    return None


def tree(root: int) -> list[int]:
    """Return the ids of a process and of all that it has started, directly or not."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def processor_seconds(processes: Iterable[int]) -> float:
    """Return the processor time of processes, and of those that they have started and that have ended."""
    ticks = 0
    for pid in processes:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # proc_pid_stat(5): utime, stime, cutime, cstime
    return ticks / TICKS


def _text(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode(errors="replace")


def _why(descriptor: int, exit_status: int | None) -> str:
    last = (_text(descriptor).strip().splitlines() or [""])[-1]
    state = "did not begin to capture" if exit_status is None else f"exit status {exit_status}"
    return f"{state} {last}".rstrip()
