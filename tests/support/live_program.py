"""zmtpsniff live as a program, for tests: started, read with a limit of time, ended."""

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from tests.support.namespaces import Side

Record = dict[str, Any]
PROGRAM = [sys.executable, "-m", "zmtpsniff", "live"]
ENGINES = ("dumpcap", "tcpdump", "scapy", "tshark")
_SINGLE = {"tcpdump"}  # capture on one interface only
_PATIENCE = 120.0  # seconds; a machine that does much else may be slow

_HAS_LIBPCAP = find_library("pcap") is not None  # compiles -f
needs_privilege = pytest.mark.skipif(
    os.geteuid() != 0 or not _HAS_LIBPCAP, reason="capturing with filters needs root and libpcap here"
)


def engines(
    several_interfaces: bool = False, only: Sequence[str] = ENGINES, slow: Collection[str] = ()
) -> pytest.MarkDecorator:
    """Parametrise by ``engine``: all of them, those that can capture on several interfaces at once, or some.

    Tests with those in ``slow`` are marked so.
    """
    names = [name for name in only if not (several_interfaces and name in _SINGLE)]
    return pytest.mark.parametrize("engine", engine_names(names, slow))


def engine_names(names: Sequence[str] = ENGINES, slow: Collection[str] = ()) -> "list[ParameterSet]":
    """Engines as values of a parameter, which are skipped where they are missing."""
    return [pytest.param(name, marks=[_missing(name), *[pytest.mark.slow] * (name in slow)]) for name in names]


def _missing(engine: str) -> pytest.MarkDecorator:
    # scapy is a package that we depend on, the others are programs.
    missing = not _HAS_LIBPCAP if engine == "scapy" else shutil.which(engine) is None
    return pytest.mark.skipif(missing, reason=f"{engine} is not installed, or libpcap for it")


class LiveProgram:
    """A capture that runs."""

    def __init__(self, process: subprocess.Popen[bytes], reads: bool = True) -> None:
        self.process = process
        self.pid = process.pid
        self.records: list[Record] = []
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._said: list[bytes] = []
        self._error_reader = threading.Thread(target=self._read_errors, daemon=True)
        self._error_reader.start()
        if reads:
            self.start_reading()

    def start_reading(self) -> None:
        """Read the records from now on; until then they fill the pipe."""
        threading.Thread(target=self._read_records, daemon=True).start()

    def _read_records(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr
        self._said += self.process.stderr

    def read_until(self, done: Callable[[list[Record]], bool], seconds: float = _PATIENCE) -> list[Record]:
        """All records so far, once they are ``done``; it is asked after each."""
        deadline = time.monotonic() + seconds
        while not done(self.records):
            try:
                if time.monotonic() > deadline:  # also if records never end
                    raise queue.Empty
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                kinds = [record["type"] for record in self.records]
                raise AssertionError(f"not done after {seconds} s, with {len(kinds)} records: {kinds[-20:]}") from None
            assert line is not None, f"ended early: {self.said()}"
            self.records.append(json.loads(line))
        return self.records

    def read_all(self, seconds: float = _PATIENCE) -> list[Record]:
        """All records, once the program has ended by itself or was told to."""
        deadline = time.monotonic() + seconds
        while (line := self._lines.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
            self.records.append(json.loads(line))
        return self.records

    def interrupt(self) -> list[Record]:
        """End it as Ctrl-C does; returns all records."""
        self.process.send_signal(signal.SIGINT)
        records = self.read_all()
        assert self.process.wait(_PATIENCE) == 0, self.said()
        return records

    def said(self) -> str:
        """Its standard error so far, which is whole once it has ended."""
        if self.process.poll() is not None:
            self._error_reader.join(_PATIENCE)
        return b"".join(self._said).decode()

    def children(self) -> list[int]:
        """The processes that it started, and those that they started."""
        return descendants(self.pid)


def live(*options: str, prefix: Sequence[str] = (), reads: bool = True) -> AbstractContextManager[LiveProgram]:
    """The program, once it captures; ``prefix`` is a command that runs it, such as ``ip netns exec``."""
    return capturing([*prefix, *PROGRAM, "-v", "-T", "json", *options], reads)


@contextmanager
def capturing(command: Sequence[str], reads: bool = False) -> Iterator[LiveProgram]:
    """A command with ``-v``, once it captures; it ends here at the latest."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        program = LiveProgram(process, reads)
        try:
            wait_for(lambda: "capturing on" in program.said() or process.poll() is not None)
            assert process.poll() is None, program.said()
            yield program
        finally:
            # It has its time to end what it started.
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def silent(side: Side, name: str, *options: str, prefix: Sequence[str] = ()) -> Iterator[LiveProgram]:
    """A command that does not say when it captures, on loopback in a namespace, once it does.

    Its packet socket is there earlier, and loses what comes until it has a ring.
    """
    zmtpsniff = [sys.executable, "-m", "zmtpsniff", name, "--live", "-i", "lo", "-T", "json", *options]
    command = [*(prefix or side.command()), *zmtpsniff]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            wait_for(lambda: _has_running_ring(side) or process.poll() is not None)
            yield LiveProgram(process)
        finally:
            process.kill()


def _has_running_ring(side: Side) -> bool:
    told = subprocess.check_output(side.command("ss", "--packet", "--extended", "--no-header"), text=True)
    return "ring_rx" in told and "running" in told


def wait_for(done: Callable[[], bool], seconds: float = _PATIENCE) -> None:
    """Wait until it is so; fails if it takes too long."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.02)


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one ends meanwhile
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, children.read_text().split())
    return found[1:]


def running(pids: Sequence[int]) -> list[int]:
    """Those of the processes that have not ended."""
    found = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            _, _, state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
            found += [pid] * (state[0] != "Z")
    return found
