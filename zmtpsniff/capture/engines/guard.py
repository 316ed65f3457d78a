"""A process that ends when we end, whatever ends us. We can end it even after our privileges are gone."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any

# The guard waits for a word from us on a pipe. The kernel closes the pipe if we are killed. The guard starts with our
# first privileges, so it may send signals to the program when we no longer may. It signals the whole group, since
# tshark starts other programs to capture. They must not outlive tshark, nor end it before they are done.
_GUARD = """
while read -r word; do
    case $word in
        stop) kill -s TERM -- "-$1" ;;
        kill) kill -s KILL -- "-$1" ;;
        report) kill -s USR1 "$1" ;;
        done) exit ;;
    esac
done
kill -s TERM -- "-$1"
"""
_STOP_SECONDS = 5.0
_LOOK_SECONDS = 0.005
PIPE_OCTETS = 1 << 20  # the most that users are given by default


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back signals that end us: a program that has no guard yet would outlive us."""
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                handlers[number] = signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)


class GuardedProcess:
    """Runs a program. When we are gone, a guard beside it ends the program and all that the program has started."""

    def __init__(self, command: Sequence[str], *, stdout: int, stderr: IO[Any] | int) -> None:
        """Start the program, without input; raises OSError if that cannot be done."""
        with uninterrupted():
            self._start(command, stdout, stderr)

    def _start(self, command: Sequence[str], stdout: int, stderr: IO[Any] | int) -> None:
        # They have sessions of their own: Ctrl-C ends us first, then we end them, so no packet is lost in between.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True, bufsize=0
        )
        if self._process.stdout is not None and sys.platform == "linux":
            # The reader of the pipe waits for its turn among our threads, up to 5 ms each time. A large pipe keeps the
            # program from waiting, too. If a large pipe is not allowed, it works as before.
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, PIPE_OCTETS)
        try:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "guard", str(self._process.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        except OSError:
            self._process.kill()
            self._process.wait()
            raise

    @property
    def stdout(self) -> IO[bytes]:
        """The pipe that the program writes to."""
        assert self._process.stdout is not None
        return self._process.stdout

    def stop(self) -> None:
        """Ask the program to end; does not wait. May be called twice, from any thread and from a signal handler."""
        self._tell(b"stop\n")

    def ask_for_report(self) -> None:
        """Send SIGUSR1, at which tcpdump writes its counts to its standard error."""
        self._tell(b"report\n")

    def close(self) -> None:
        """End the program, with force if it does not obey; when this returns, no process is left."""
        self.stop()
        self._await_end()
        self._tell(b"kill\n")  # whatever it has started, too
        self._tell(b"done\n")
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()
        self._process.wait()

    def _await_end(self) -> None:
        """Wait some seconds for the program's end, but do not collect its status yet.

        Until then no other process can get its number, which is also that of its group.
        """
        until = time.monotonic() + _STOP_SECONDS
        if sys.platform == "linux":
            ended = os.WEXITED | os.WNOWAIT | os.WNOHANG
            with contextlib.suppress(ChildProcessError):  # it has been waited for already
                while os.waitid(os.P_PID, self._process.pid, ended) is None and time.monotonic() < until:
                    time.sleep(_LOOK_SECONDS)
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)

    def _tell(self, word: bytes) -> None:
        if self._guard.stdin is not None and not self._guard.stdin.closed:
            try:
                self._guard.stdin.write(word)
            except OSError:  # the guard is gone
                self._process.terminate()
