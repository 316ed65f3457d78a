"""Packets from interfaces while they pass, through a bounded queue between the engine and those who dissect."""

import queue
import threading
import time
from collections.abc import Iterator

from zmtpsniff.capture.engines import Engine
from zmtpsniff.capture.saving import Saver
from zmtpsniff.capture.source import Fault, Packet

_TICK_SECONDS = 0.05  # how long to wait for packets before an empty batch lets others look at the clock
_PACKET_COST = 200  # octets that a waiting packet takes beside its own
_LOSS_SECONDS = 1.0  # between two reports that packets were dropped
_STOP_SECONDS = 1.0  # that an engine has for ending by itself


class LiveSource:
    """A Source over an engine.

    The engine is read in a thread of its own, so that a slow reader of the output does not make the kernel drop
    packets: they wait here, up to ``queue_octets``, and are counted when there is no more room.
    """

    def __init__(self, engine: Engine, queue_octets: int = 256 << 20, seconds: float | None = None) -> None:
        """Read a started engine, for so many seconds or until stop().

        What ``saver`` is set to, before the packets are asked for, saves all of them, also those that are dropped
        here.
        """
        self.saver: Saver | None = None
        self.comments: list[str] = []  # those of the engines are no news
        self.faults: list[Fault] = []
        self.dropped = 0  # packets, in the kernel and here
        self.overrun = 0  # packets dropped here
        self.error: Exception | None = None  # of the engine, or of reading it
        self._engine = engine
        self._limit = queue_octets
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._queue: queue.SimpleQueue[list[Packet] | None] = queue.SimpleQueue()
        # Counted apart, because each is written by one thread only.
        self._octets_in = 0
        self._octets_out = 0
        self._told = (0, 0)
        self._told_at = 0.0
        self._asked_at = time.monotonic()
        self._told_faults = 0
        self._told_saving = False
        self._stops = 0
        self._thread = threading.Thread(target=self._read, name="capture", daemon=True)

    @property
    def failure(self) -> str | None:
        """Why the capture ended although nobody had asked it to, in one line."""
        return self._engine.failure

    def _read(self) -> None:
        saver = self.saver
        try:
            for batch in self._engine.batches():
                if saver is not None:
                    saver.write(batch, self._engine.dropped)
                size = _size(batch)
                if self._octets_in - self._octets_out + size > self._limit:
                    self.overrun += len(batch)
                else:
                    self._octets_in += size
                    self._queue.put(batch)
        except Exception as error:  # to be raised where it is seen
            self.error = error
        finally:
            if saver is not None:
                saver.close(self._engine.dropped)
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
                if self._stops > 1:
                    self.overrun += len(batch)
                    batch = []
                self._tell_faults()
                yield batch
        finally:
            self.close()
            self._tell_faults(at_end=True)
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """End the capture; what has come is still given out, unless this is the second time: then it is dropped."""
        self._stops += 1
        self._engine.stop()

    def close(self) -> None:
        """End the capture whatever that takes."""
        self._engine.stop()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        self._engine.close()
        if self._thread.is_alive():
            self._thread.join()

    def _tell_faults(self, at_end: bool = False) -> None:
        """Report what happened to the engine, and packets dropped since the last time."""
        faults = self._engine.faults
        if len(faults) > self._told_faults:
            self.faults += faults[self._told_faults :]
            self._told_faults = len(faults)
        if self.saver is not None and self.saver.faults and not self._told_saving:
            self._told_saving = True
            self.faults += self.saver.faults
        now = time.monotonic()
        if now - self._asked_at > _LOSS_SECONDS and not at_end:
            self._asked_at = now
            self._engine.count_drops()
        kernel, here = self._engine.dropped, self.overrun
        self.dropped = kernel + here
        if (kernel, here) == self._told or not (at_end or now - self._told_at > _LOSS_SECONDS):
            return
        if kernel > self._told[0]:
            detail = f"{kernel - self._told[0]} packets were dropped by the kernel, {kernel} in all"
            self.faults.append(Fault("packets-dropped", detail))
        if here > self._told[1]:
            detail = f"{here - self._told[1]} packets were dropped while waiting to be read, {here} in all"
            self.faults.append(Fault("packets-dropped", detail))
        self._told = (kernel, here)
        self._told_at = now


def _size(batch: list[Packet]) -> int:
    """The memory that waiting packets take, in octets."""
    return sum([len(packet[2]) for packet in batch]) + _PACKET_COST * len(batch)
