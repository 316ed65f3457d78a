"""``--on-finding PROGRAM``: a program that is called when a finding comes, worsens or goes.

It runs in a thread of its own, one call after the other, so the capture never waits for it. A call that takes too long
is ended; if calls wait for too long, the latest are left out and counted.
"""

import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from queue import Full, Queue
from threading import Thread

import msgspec

from zmtpsniff.errors import Error

MOST_WAITING = 100  # calls
PATIENCE = 10.0  # seconds for a call
_LAST_PATIENCE = 15.0  # seconds for all calls that wait in the end


class FindingCalls:
    """Calls a program with each finding, as a JSON object on its standard input."""

    def __init__(self, command: str, patience: float = PATIENCE) -> None:
        """``command`` is a program with arguments, as a shell would split them; no shell runs it. Raises Error."""
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise Error(f"--on-finding {command}: {error}") from None
        if not self._words:
            raise Error("--on-finding: which program?")
        self._patience = patience
        self._waiting: Queue[msgspec.Struct | None] = Queue(MOST_WAITING)
        self._is_over = False
        self.missed = 0
        """Findings that the program did not get, since earlier calls took too long."""
        self.failures: list[str] = []
        """Why calls failed, each reason once."""
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def call(self, findings: Sequence[msgspec.Struct]) -> None:
        """Call with these; returns at once."""
        for finding in findings:
            try:
                self._waiting.put_nowait(finding)
            except Full:
                self.missed += 1

    def close(self) -> None:
        """Make the calls that wait, within some seconds."""
        self._is_over = True
        with suppress(Full):  # then the thread sees that it is over
            self._waiting.put_nowait(None)
        self._thread.join(_LAST_PATIENCE)

    def _work(self) -> None:
        while (finding := self._waiting.get()) is not None:
            self._run(msgspec.json.encode(finding) + b"\n")
            if self._is_over and self._waiting.empty():
                return

    def _run(self, line: bytes) -> None:
        try:
            done = subprocess.run(
                self._words,
                input=line,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=self._patience,
                check=False,
            )
            reason = f"it ended with status {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            reason = f"it took more than {self._patience:g} s, and was ended"
        except OSError as error:
            reason = error.strerror or str(error)
        if reason and reason not in self.failures and len(self.failures) < MOST_WAITING:
            self.failures.append(reason)
