"""Compares the messages that come back with those in the capture, and knows what a publisher has sent already."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

_PUBLICATIONS = 65_536  # the latest messages of a publisher to search for one that went to another subscriber, too


class Comparison:
    """Compares the messages that a socket gets with those that it got in the capture, in any order."""

    def __init__(self) -> None:
        """Begin with none."""
        self.same = 0
        self._outstanding: dict[int, int] = {}  # by hash: above 0 what has not come, below 0 what the capture lacks

    def expect(self, frames: Sequence[bytes]) -> None:
        """The capture has this one."""
        self._count(frames, 1)

    def receive(self, frames: Sequence[bytes]) -> None:
        """This one came."""
        self._count(frames, -1)

    @property
    def missing(self) -> int:
        """How many the capture has and did not come."""
        return sum(count for count in self._outstanding.values() if count > 0)

    @property
    def others(self) -> int:
        """How many came and are not in the capture."""
        return -sum(count for count in self._outstanding.values() if count < 0)

    def _count(self, frames: Sequence[bytes], step: int) -> None:
        key = hash(tuple(frames))
        before = self._outstanding.pop(key, 0)
        self.same += before * step < 0
        if before + step:
            self._outstanding[key] = before + step


class Publications:
    """The messages that a publisher has sent, so that a message to several subscribers is sent once.

    Each subscriber gets some of the messages, in the order in which they were sent. So a message to one subscriber may
    be one that another subscriber got before: then it stands behind the last message that this subscriber got.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._sent = 0
        self._latest: deque[int] = deque()  # hashes, the last of them number _sent - 1
        self._numbers: dict[int, deque[int]] = {}  # by hash
        self._places: dict[int, int] = {}  # flow: number of the message behind the last that it got

    def join(self, flow: int) -> None:
        """A subscriber gets what is sent from now on."""
        self._places.setdefault(flow, self._sent)

    def leave(self, flow: int) -> None:
        """A subscriber gets nothing any more."""
        self._places.pop(flow, None)

    def is_new(self, flow: int, frames: Sequence[bytes]) -> bool:
        """Whether a message to a subscriber has not been sent yet; then it counts as sent."""
        # If the capture lacks a subscriber's beginning, the subscriber may have got every message that is remembered.
        self._places.setdefault(flow, self._sent - len(self._latest))
        key = hash(tuple(frames))
        numbers = self._numbers.setdefault(key, deque())
        place = bisect_left(numbers, self._places[flow])
        if place < len(numbers):
            self._places[flow] = numbers[place] + 1
            return False
        numbers.append(self._sent)
        self._latest.append(key)
        self._sent += 1
        self._places[flow] = self._sent
        if len(self._latest) > _PUBLICATIONS:
            oldest = self._latest.popleft()
            self._numbers[oldest].popleft()
            if not self._numbers[oldest]:
                del self._numbers[oldest]
        return True
