"""Keys of CURVE connections as programs make them, from now on."""

import math
import os
import select
import time

from dissectors.zmtp.curve_keys import Key
from zmtpsniff.host.agreements import Agreements
from zmtpsniff.host.kernel_sockets import open_sockets
from zmtpsniff.host.libraries import Libraries
from zmtpsniff.host.memory_keys import MemorySearch
from zmtpsniff.host.uprobes import Uprobes


class KeyWatch:
    """Probes on every library in use that makes keys of CURVE, and their reports."""

    def __init__(self, *, long_term: bool = False) -> None:
        """Place the probes; ``long_term`` as in Agreements. Raises NoUprobesError."""
        self.faults: list[str] = []  # what went wrong, a line each; take them out
        self.is_woken = False  # read() ended for wake()
        self.seen_ns = 0  # up to when calls have been read, since the Unix epoch
        self._agreements = Agreements(long_term=long_term)
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._uprobes = Uprobes()
        try:
            self._libraries = Libraries(self._uprobes, self.faults.append)
        except BaseException:
            self._uprobes.close()
            raise
        self.late = self._libraries.late  # processes whose connections may be older than their probes; take them out

    def wake(self) -> None:
        """End read(), which another thread may be in."""
        os.eventfd_write(self._woken, 1)

    def read(self) -> list[Key]:
        """The new keys. Waits until something happens, which may bring none. Keep calling it."""
        poll = select.poll()
        ours = {self._woken, self._uprobes.descriptor}
        for descriptor in (*ours, *self._libraries.descriptors):
            poll.register(descriptor, select.POLLIN)
        has_news = False
        while not has_news:
            patience = self._libraries.due - time.monotonic()
            ready = dict(poll.poll(None if patience == math.inf else max(patience, 0.0) * 1000 + 1))
            has_news = self._libraries.follow(ready) or not ours.isdisjoint(ready)
        self.is_woken = self._woken in ready
        if self.is_woken:
            os.eventfd_read(self._woken)
        self.seen_ns = time.time_ns()
        keys = self._agreements.keys(self._uprobes.read())
        lost, self._uprobes.lost = self._uprobes.lost, 0
        if lost:
            self.faults.append(f"{lost} calls came too fast to be read: their keys are missing")
        return keys

    def search(self, pid: int) -> list[Key]:
        """The new keys of the connections that a process has already; raises SearchError. Another thread may do it."""
        if os.path.exists(f"/proc/{pid}") and not any(open_sockets(pid)):
            return []
        return self._agreements.new(MemorySearch([], 20.0).connections(pid))

    def close(self) -> None:
        """Take the probes away."""
        self._libraries.close()
        self._uprobes.close()
