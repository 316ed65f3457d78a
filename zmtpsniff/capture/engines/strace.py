"""strace as an engine: reads what programs send and receive on their sockets, ipc:// included, at each call."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.engines.engine import EngineMissingError, Piece
from zmtpsniff.capture.engines.guard import GuardedProcess
from zmtpsniff.capture.files import open_stream
from zmtpsniff.capture.source import CaptureError, SourceState

# execve, so that the log of a command begins with its start.
_CALLS = "execve,sendto,recvfrom,sendmsg,recvmsg,read,write,readv,writev,connect,accept,accept4,close"
_LONGEST = 16 << 20  # octets of a call to keep; the rest of a longer one shows as missing
_STRACE = ["strace", "-f", "-yy", "-ttt", "-xx", "-s", str(_LONGEST), "-e", f"trace={_CALLS}", "-e", "signal=none"]
_READ_SIZE = 1 << 16
_STOP_SECONDS = 10.0  # that a command has for ending by itself
_HURRY_SECONDS = 1.0  # between two wishes to end that are not one
_ATTACH_SECONDS = 5.0
_ATTACHED = re.compile(r"Process \d+ attached")
_REFUSED = re.compile(r"[Oo]peration not permitted|[Pp]ermission denied")
_NOTICE = re.compile(r"strace: Process \d+ (attached|detached)|$")


class Tracee:
    """A command that strace runs, with our standard input and error.

    Its standard output goes to our standard error, since records go to our standard output.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """Start it; raises CaptureError if there is no such command."""
        if shutil.which(command[0]) is None:
            raise CaptureError(f"{command[0]}: no such command")
        reader, writer = os.pipe()
        # With seccomp the kernel stops the program at these calls alone.
        words = [*_STRACE, "-o", f"/dev/fd/{writer}", "--seccomp-bpf", "--", *command]
        try:
            self._strace = subprocess.Popen(words, stdout=2, pass_fds=[writer])
        finally:
            os.close(writer)
        self._log = os.fdopen(reader, "rb", buffering=0)
        self._name = command[0]
        self._has_started = False  # before, strace tries what the kernel can do on processes of its own
        self._signal: signal.Signals | None = None  # the last that was asked for
        self._asked_at = 0.0
        self._patience = threading.Timer(_STOP_SECONDS, self._end, [signal.SIGKILL])
        self._patience.daemon = True

    def read(self) -> bytes:
        """The new output of strace; empty once all processes have ended."""
        octets = self._log.read(_READ_SIZE)
        if octets and not self._has_started:
            self._has_started = True
            if self._signal is not None:
                self._end(self._signal)
        return octets

    def stop(self) -> None:
        """Ask the command and its children to end. strace runs until they have ended.

        If somebody asks again, they are killed. After ten seconds they are killed, too.
        """
        now = time.monotonic()
        if self._signal is None:
            self._asked_at = now
            self._patience.start()
            self._end(signal.SIGTERM)
        elif now - self._asked_at > _HURRY_SECONDS:
            self._end(signal.SIGKILL)

    def close(self) -> str:
        """End it whatever that takes; returns how it ended, in one line."""
        if self._signal is None:
            self.stop()
        while self.read():  # what nobody wanted to read
            pass
        self._strace.wait()
        self._patience.cancel()
        status = self._strace.returncode  # strace ends as what it traced
        if status >= 0:
            return f"{self._name} ended with status {status}"
        return f"{self._name} was ended by {signal.Signals(-status).name}"

    def _end(self, number: signal.Signals) -> None:
        """Send a signal to the processes that strace traces, now or when the command has started."""
        self._signal = number
        told: set[int] = set()
        # Once more for processes that started meanwhile. Processes that start later, because of the signal, may clean
        # up.
        while (self._has_started or number is signal.SIGKILL) and (new := _traced_by(self._strace.pid) - told):
            told |= new
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)


def _traced_by(tracer: int) -> set[int]:
    """The processes that another one traces."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/status", "rb") as file:
            if b"\nTracerPid:\t%d\n" % tracer in file.read():
                found.add(int(name))
    return found


class TracedProcesses:
    """Processes that run already, which strace lets go of in the end."""

    def __init__(self, pids: Sequence[int]) -> None:
        """Attach to them; raises CaptureError if one is not there."""
        for pid in pids:
            if not os.path.exists(f"/proc/{pid}"):
                raise CaptureError(f"--pid {pid}: there is no such process")
        self._said = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        words = [*_STRACE, "-o", "/dev/stdout"]
        for pid in pids:
            words += ["-p", str(pid)]
        self._strace = GuardedProcess(words, stdout=subprocess.PIPE, stderr=self._said)
        self._log = self._strace.stdout
        deadline = time.monotonic() + _ATTACH_SECONDS
        while len(_ATTACHED.findall(said := self._words())) < len(pids) and time.monotonic() < deadline:
            if _REFUSED.search(said):
                raise CaptureError(f"strace may not look at a process ({self.close()}); root may")
            time.sleep(0.01)

    def read(self) -> bytes:
        """The new output of strace; empty once it has let go of all processes."""
        return self._log.read(_READ_SIZE)

    def stop(self) -> None:
        """Let go of them."""
        self._strace.stop()

    def close(self) -> str:
        """Let go of the programs. Returns in one line what strace could not do, or nothing."""
        self._strace.close()
        words = self._words()
        self._said.close()
        return "; ".join(line.strip() for line in words.splitlines() if not _NOTICE.match(line.strip()))

    def _words(self) -> str:
        self._said.seek(0)
        return self._said.read().decode(errors="replace")


class StraceEngine(SourceState):
    """Reads what strace writes about a command, or about processes that run already, until they end."""

    name = "strace"

    def __init__(self, command: Sequence[str], pids: Sequence[int]) -> None:
        """Either a command or the numbers of processes. Nothing runs before start()."""
        super().__init__()
        self.failure: str | None = None
        self.said = ""  # how it ended, in one line, once it has
        self._command = command
        self._pids = pids
        self._traced: Tracee | TracedProcesses | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Start strace. Raises EngineMissingError, and CaptureError if the command or process does not exist."""
        if shutil.which("strace") is None:
            raise EngineMissingError("strace: not installed (apt install strace); --pid and -- COMMAND need it")
        self._traced = Tracee(self._command) if self._command else TracedProcesses(self._pids)
        if self._is_stopped:
            self._traced.stop()

    def pieces(self) -> Iterator[Piece]:
        """Yield the log as it is written."""
        assert self._traced is not None
        while octets := self._traced.read():
            yield Piece(len(octets), 0, octets, True)  # whose lines need each other

    def packets(self, payloads: Iterator[Any]) -> Iterator[Block]:
        """Read the log; it stays empty if strace cannot start the command."""
        first = next(payloads, None)
        if first is not None:
            yield from open_stream("strace", chain((first,), payloads), self)

    def count_drops(self) -> None:
        """Nothing is dropped: the programs wait until strace has written."""

    def stop(self) -> None:
        """Ask the command to end, or let go of the processes. A signal may come before they have started."""
        self._is_stopped = True
        if self._traced is not None:
            self._traced.stop()

    def close(self) -> None:
        """End it whatever that takes."""
        if self._traced is not None:
            self.said = self._traced.close()
            self._traced = None
