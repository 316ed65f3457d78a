"""Keys of CURVE connections as programs make them, from now on."""

import os
import select
import time
from collections.abc import Iterator

from dissectors.zmtp.curve_keys import Key
from zmtpsniff.host.agreements import Agreements
from zmtpsniff.host.libraries import Libraries
from zmtpsniff.host.memory import MemorySearch
from zmtpsniff.host.sockets import has_sockets
from zmtpsniff.host.uprobes import Uprobes

_SEARCH_SECONDS = 20.0


class KeyWatch:
    """Probes on every library in use that makes keys of CURVE, and their reports."""

    def __init__(self, *, long_term: bool = False) -> None:
        """Place the probes; ``long_term`` as in Agreements. Raises NoUprobesError."""
        self._uprobes = Uprobes()
        try:
            self._libraries = Libraries(self._uprobes)
        except BaseException:
            self._uprobes.close()
            raise
        self._agreements = Agreements(long_term=long_term)
        self._lost = 0
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        for descriptor in (self._woken, self._uprobes.descriptor, *self._libraries.descriptors):
            self._poll.register(descriptor, select.POLLIN)
        self.is_woken = False  # read() ended for wake()
        self.seen_ns = 0  # up to when calls have been read, since the Unix epoch

    def wake(self) -> None:
        """End read(), which another thread may be in."""
        os.eventfd_write(self._woken, 1)

    def read(self) -> list[Key]:
        """The new keys. Waits until something happens, which may bring none. Keep calling it."""
        self.is_woken = False
        patience = self._libraries.patience
        for descriptor, event in self._poll.poll(None if patience is None else patience * 1000 + 1):
            if descriptor == self._woken:
                os.eventfd_read(self._woken)
                self.is_woken = True
            elif event & ~select.POLLIN:  # a processor has been switched off
                self._poll.unregister(descriptor)
        self._libraries.follow()
        self.seen_ns = time.time_ns()
        return self._agreements.keys(self._uprobes.read())

    def late(self) -> set[int]:
        """Processes with connections that may be older than the probes of their library, since the last time."""
        late, self._libraries.late = self._libraries.late, set()
        return {pid for pid in late if has_sockets(pid)}

    def search(self, pid: int) -> Iterator[Key]:
        """The new keys of the connections that a process has already; raises SearchError. Another thread may do it."""
        for key in MemorySearch([], _SEARCH_SECONDS).connections(pid):
            yield from self._agreements.new([key])

    def faults(self) -> list[str]:
        """What went wrong since the last time, a line each."""
        faults, self._libraries.faults = self._libraries.faults, []
        if self._uprobes.lost > self._lost:
            faults.append(f"{self._uprobes.lost - self._lost} calls came too fast to be read: their keys are missing")
            self._lost = self._uprobes.lost
        return faults

    def close(self) -> None:
        """Take the probes away."""
        self._libraries.close()
        self._uprobes.close()
