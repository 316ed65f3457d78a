"""Packets from interfaces while they pass, through a bounded queue between the engine and the dissection.

A live capture has two threads. One reads an engine; the other dissects and writes. Between them is a queue. When it is
full, packets are dropped here and counted, so that the kernel need not drop them unseen.
"""

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

from zmtpsniff.capture.block import NOTHING, Block
from zmtpsniff.capture.engines.engine import Engine, Piece, piece_of
from zmtpsniff.capture.memory_limit import memory_limit
from zmtpsniff.capture.saver import Saver
from zmtpsniff.capture.source import Fault, SourceState, tick_seconds

_LOSS_SECONDS = 1.0  # between two looks at how many packets the kernel dropped
_TELL_SECONDS = 60.0  # between two reports of that
_STOP_SECONDS = 1.0  # that an engine has for ending by itself
_QUEUE_OCTETS = 256 << 20
_QUEUE_SHARE = 4  # a queue takes one part of so many of the memory that there is


def _room() -> int:
    limit = memory_limit()
    return _QUEUE_OCTETS if limit is None else min(_QUEUE_OCTETS, limit // _QUEUE_SHARE)


class LiveSource(SourceState):
    """A Source over an engine.

    A thread of its own reads the engine, so a slow reader of the output does not make the kernel drop packets: up to
    ``queue_octets`` wait here. When there is no more room, packets are dropped and counted.
    """

    def __init__(self, engine: Engine, queue_octets: int | None = None, seconds: float | None = None) -> None:
        """Read a started engine, for so many seconds or until stop().

        By default 256 MiB may wait, or a quarter of what memory this process may have, if that is less.

        Set ``saver`` before you ask for packets: it saves all of them, also those that are dropped here.
        """
        super().__init__()  # comments of the engines are no news
        self.saver: Saver | None = None
        self.overrun = 0  # packets dropped here
        self.error: Exception | None = None  # of the engine, or of reading it
        self._engine = engine
        self._limit = _room() if queue_octets is None else queue_octets
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._queue: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._coming: Piece | None = None  # out of the queue, but not taken apart yet
        self._is_over = False  # nothing more is in the queue, nor will be
        # Counted apart, because each is written by one thread only.
        self._octets_in = 0
        self._octets_out = 0
        self._told = (0, 0)
        self._told_at = float("-inf")
        self._asked_at = self._came_at = time.monotonic()
        self._told_faults = 0
        self._told_saving = False
        self._stops = 0
        self._thread = threading.Thread(target=self._read, name="capture", daemon=True)

    @property
    def failure(self) -> str | None:
        """Why the capture ended although nobody had asked it to, in one line."""
        return self._engine.failure

    @property
    def said(self) -> str:
        """The message at its end, in one line; most have none."""
        return getattr(self._engine, "said", "")

    def _read(self) -> None:
        """Read the engine, in a thread of its own. It does little, because only one thread runs at a time."""
        try:
            for piece in self._saved() if self.saver is not None else self._engine.pieces():
                if self._octets_in - self._octets_out + piece.octets > self._limit and not piece.needed:
                    self.overrun += piece.packets
                else:
                    self._octets_in += piece.octets
                    self._queue.put(piece)
        except Exception as error:  # to be raised where it is seen
            self.error = error
        finally:
            self._queue.put(None)

    def _saved(self) -> Iterator[Piece]:
        """The packets as pieces, once they are saved. To be saved they must be read here."""
        assert self.saver is not None
        payloads = (piece.payload for piece in self._engine.pieces())
        try:
            for block in self._engine.packets(payloads):
                self.saver.write(block, self._engine.dropped)
                yield piece_of(block)
        finally:
            self.saver.close(self._engine.dropped)

    def batches(self) -> Iterator[Block]:
        """Yield packets as they come, and empty blocks while none do."""
        self._thread.start()
        payloads = self._payloads()
        packets = payloads if self.saver is not None else self._engine.packets(payloads)  # which may read on at once
        try:
            while True:
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    self._deadline = None
                    self._engine.stop()
                block = NOTHING
                if self._wait():
                    come = next(packets, None)
                    if come is None:
                        break
                    block = come
                self._tell_faults()
                yield block
        finally:
            self.close()
            self._tell_faults(at_end=True)
        if self.error is not None:
            raise self.error

    def _wait(self) -> bool:
        """Wait a moment for packets. Returns whether some, or the end, have come."""
        if self._coming is None and not self._is_over:
            now = time.monotonic()
            seconds = tick_seconds(now - self._came_at)
            if self._deadline is not None:
                seconds = max(0.0, min(seconds, self._deadline - now))
            try:
                self._coming = self._queue.get(timeout=seconds)
            except queue.Empty:
                return False
            self._came_at = time.monotonic()
            self._is_over = self._coming is None
        return True

    def _payloads(self) -> Iterator[Any]:
        """The payloads that wait, piece by piece, until the end has come."""
        while True:
            if self._coming is None and not self._is_over:  # there was no packet in the piece before
                self._coming = self._queue.get()
                self._is_over = self._coming is None
            piece, self._coming = self._coming, None
            if piece is None:
                return
            self._octets_out += piece.octets
            if self._stops > 1 and not piece.needed:
                self.overrun += piece.packets
            else:
                yield piece.payload

    def stop(self) -> None:
        """End the capture.

        Packets that have come are still given out, unless this is the second call: then they are dropped.
        """
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
        if (kernel, here) == self._told or not (at_end or now - self._told_at > _TELL_SECONDS):
            return
        if kernel > self._told[0]:
            detail = f"the kernel dropped {kernel - self._told[0]} packets, {kernel} in all"
            self.faults.append(Fault("packets-dropped", detail))
        if here > self._told[1]:
            detail = f"zmtpsniff dropped {here - self._told[1]} packets that waited to be read, {here} in all"
            self.faults.append(Fault("packets-dropped", detail))
        self._told = (kernel, here)
        self._told_at = now
