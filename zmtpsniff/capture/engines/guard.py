"""A process that does not outlive us, whatever ends us, and that we can end after our privileges are gone."""

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

# It waits for a word from us, on a pipe that the kernel closes for us should we be killed. It is started with the
# privileges that the process is started with, so it may send signals to it when we no longer may. They go to all of its
# group, since tshark has others capture for it, and may neither end before those do nor take them along.
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
    """Hold back signals that end us: a program that has no guard yet would go on without us."""
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
    """Runs a program; a guard beside it ends the program, and what that has started, when we are gone."""

    def __init__(self, command: Sequence[str], *, stdout: int, stderr: IO[Any] | int) -> None:
        """Start the program, without input; raises OSError if that cannot be done."""
        with uninterrupted():
            self._start(command, stdout, stderr)

    def _start(self, command: Sequence[str], stdout: int, stderr: IO[Any] | int) -> None:
        # Sessions of their own, so that Ctrl-C ends us first and we end them: then no packet is lost in between.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True, bufsize=0
        )
        if self._process.stdout is not None and sys.platform == "linux":
            # Who reads the pipe waits for its turn among our threads, up to 5 ms each time; the program should not
            # have to wait, too. Where this is not allowed, it works as before.
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
        """What the program writes."""
        assert self._process.stdout is not None
        return self._process.stdout

    def stop(self) -> None:
        """Ask the program to end; does not wait. May be called twice, from any thread and from a signal handler."""
        self._tell(b"stop\n")

    def ask_for_report(self) -> None:
        """Send SIGUSR1, at which tcpdump writes its counts to its standard error."""
        self._tell(b"report\n")

    def close(self) -> None:
        """End the program, with force if it does not obey; when this returns nothing of it is left."""
        self.stop()
        self._await_end()
        self._tell(b"kill\n")  # whatever it has started, too
        self._tell(b"done\n")
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()
        self._process.wait()

    def _await_end(self) -> None:
        """Wait some seconds for the program's end, but leave it to be waited for.

        Until that is done its number, which is also that of its group, cannot become another's.
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
