"""The other end of the helper: a process without privileges asks it for keys and processes."""

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from zmtpsniff.host.kernel_sockets import SocketEnds
from zmtpsniff.host.memory_keys import SearchTarget
from zmtpsniff.host.uprobes import NoUprobesError

_READY_SECONDS = 30.0
_END_SECONDS = 5.0


class HelperClient:
    """A helper that runs, with the privileges that this process had when it was started."""

    def __init__(self) -> None:
        """Start it; raises OSError."""
        self.replies: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()  # None once it has ended
        # A session of its own: Ctrl-C is for us, and our end is its end.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "zmtpsniff.host.helper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def watch(self, *, long_term: bool = False) -> None:
        """Place probes. From now on keys come as replies. Raises NoUprobesError.

        With ``long_term`` also long-term keys come, which prove what is wrong with a HELLO.
        """
        self._ask(do="watch", long_term=long_term)
        try:
            reply = self.replies.get(timeout=_READY_SECONDS)
        except queue.Empty:
            raise NoUprobesError(f"the probes were not placed within {_READY_SECONDS:.0f} s") from None
        if reply is None or reply["is"] != "ready":
            raise NoUprobesError("the process for the probes ended" if reply is None else reply["why"])

    def see(self) -> None:
        """Ask for a reply ``seen`` behind all keys that have been made by now."""
        self._ask(do="see")

    def search(self, number: int, pids: Sequence[int], targets: Sequence[SearchTarget], seconds: float) -> None:
        """Search memory. Keys come as replies, and ``searched`` with this number at the end."""
        self._ask(do="search", id=number, pids=pids, seconds=seconds, targets=targets)

    def find_owners(self, number: int, ends: Sequence[SocketEnds]) -> None:
        """Look the processes of connections' ends up. Those found come as replies with this number."""
        self._ask(do="owners", id=number, ends=ends)

    def close(self) -> None:
        """End it, and wait until what it placed is gone."""
        with contextlib.suppress(OSError), self._lock:
            self._requests.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(PermissionError):  # it may have more rights than we have left
                self._process.kill()

    def _ask(self, **request: Any) -> None:
        with contextlib.suppress(OSError, ValueError), self._lock:  # it has ended, which its replies tell
            self._requests.write(msgspec.json.encode(request) + b"\n")
            self._requests.flush()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._answers:
                self.replies.put(msgspec.json.decode(line))
        self.replies.put(None)
