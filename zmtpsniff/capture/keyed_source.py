"""Packets that wait until the keys that were made before them are known."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from zmtpsniff.capture.block import NOTHING, Block
from zmtpsniff.capture.source import Source, SourceState

_MOST_SECONDS = 10.0  # so long a packet waits for a helper that does not answer, such as one without a processor
_MOMENT_SECONDS = 0.05
_MOST_PACKETS = 200_000  # that wait


class KeyTeller(Protocol):
    """Says up to when the keys that programs made are known."""

    watches: bool  # it learns of keys
    seen_ns: int  # since the Unix epoch

    def see(self, seconds: float) -> None:
        """Learn of the keys that programs have made by now, within so many seconds."""


class KeyedSource(SourceState):
    """A Source that holds the packets of another one back until all keys are known that were made up to their time.

    A program makes the key of a connection before it sends what the key opens. So no packet needs a later key. Even
    for a connection that lasts a moment the key is there in time.
    """

    def __init__(self, source: Source, keys: KeyTeller) -> None:
        """``keys`` says up to when all are known."""
        super().__init__(source)
        self._source = source
        self._keys = keys

    def batches(self) -> Iterator[Block]:
        """Yield the packets in their order, and empty blocks while none may be given out."""
        waiting: deque[tuple[float, Block]] = deque()
        count = 0
        for batch in self._source.batches():
            self.dropped = self._source.dropped
            now = time.monotonic()
            if batch:
                waiting.append((now, batch))
                count += len(batch)
            self._see(waiting)
            is_held = True
            while waiting and (
                waiting[0][1].times_ns[-1] <= self._keys.seen_ns
                or now - waiting[0][0] > _MOST_SECONDS
                or count > _MOST_PACKETS
                or not self._keys.watches
            ):
                _, ready = waiting.popleft()
                count -= len(ready)
                is_held = False
                yield ready
            if is_held:
                yield NOTHING
        self.dropped = self._source.dropped
        deadline = time.monotonic() + _MOST_SECONDS
        while self._see(waiting) and time.monotonic() < deadline:
            pass
        yield from (batch for _, batch in waiting)

    def _see(self, waiting: Sequence[tuple[float, Block]]) -> bool:
        """If keys may be missing, wait a moment for them. Returns whether they may be missing still."""
        if waiting and self._keys.watches and (last_ns := waiting[-1][1].times_ns[-1]) > self._keys.seen_ns:
            self._keys.see(_MOMENT_SECONDS)
            return self._keys.watches and last_ns > self._keys.seen_ns
        return False
