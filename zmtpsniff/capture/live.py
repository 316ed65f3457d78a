"""Packets from interfaces while they pass, through a bounded queue between the engine and those who dissect."""

import queue
import threading
import time
from collections.abc import Iterator

from zmtpsniff.capture.engines import Engine
from zmtpsniff.capture.source import Fault, Packet

_TICK_SECONDS = 0.05  # how long to wait for packets before an empty batch lets others look at the clock
_PACKET_COST = 200  # octets that a waiting packet takes beside its own


class LiveSource:
    """A Source over an engine.

    The engine is read in a thread of its own, so that a slow reader of the output does not make the kernel drop
    packets: they wait here, up to ``queue_octets``, and are counted when there is no more room.
    """

    def __init__(self, engine: Engine, queue_octets: int = 256 << 20, seconds: float | None = None) -> None:
        """Read a started engine, for so many seconds or until stop()."""
        self.comments: list[str] = engine.comments
        self.faults: list[Fault] = []
        self.dropped = 0  # packets, in the kernel and here
        self.overrun = 0  # packets dropped here
        self._engine = engine
        self._limit = queue_octets
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._queue: queue.SimpleQueue[list[Packet] | None] = queue.SimpleQueue()
        # Counted apart, because each is written by one thread only.
        self._octets_in = 0
        self._octets_out = 0
        self._told = (0, 0)
        self._thread = threading.Thread(target=self._read, name="capture", daemon=True)

    def _read(self) -> None:
        try:
            for batch in self._engine.batches():
                size = _size(batch)
                if self._octets_in - self._octets_out + size > self._limit:
                    self.overrun += len(batch)
                else:
                    self._octets_in += size
                    self._queue.put(batch)
        finally:
            self._queue.put(None)

    def batches(self) -> Iterator[list[Packet]]:
        """Yield packets as they come, and empty lists while none do."""
        self._thread.start()
        try:
            while True:
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    self._deadline = None
                    self._engine.stop()
                try:
                    batch = self._queue.get(timeout=_TICK_SECONDS)
                except queue.Empty:
                    batch = []
                if batch is None:
                    break
                self._octets_out += _size(batch)
                self._tell_losses()
                yield batch
        finally:
            self.stop()
            self._thread.join()
            self.faults += self._engine.faults
            self._tell_losses()

    def stop(self) -> None:
        """End the capture; what has come is still given out."""
        self._engine.stop()

    def _tell_losses(self) -> None:
        """Report packets dropped since the last time."""
        kernel, here = self._engine.dropped, self.overrun
        if (kernel, here) == self._told:
            return
        if kernel > self._told[0]:
            detail = f"{kernel - self._told[0]} packets were dropped by the kernel, {kernel} in all"
            self.faults.append(Fault("packets-dropped", detail))
        if here > self._told[1]:
            detail = f"{here - self._told[1]} packets were dropped while waiting to be read, {here} in all"
            self.faults.append(Fault("packets-dropped", detail))
        self._told = (kernel, here)
        self.dropped = kernel + here


def _size(batch: list[Packet]) -> int:
    """The memory that waiting packets take, in octets."""
    return sum([len(packet[2]) for packet in batch]) + _PACKET_COST * len(batch)
