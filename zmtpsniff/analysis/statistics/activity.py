"""How much there was of something, interval by interval."""

from collections.abc import Iterator
from math import log10
from typing import NamedTuple

import msgspec

from zmtpsniff.analysis.statistics.intervals import Intervals

STEPS = 10
"""Steps of latency for a factor of ten."""

_MESSAGES, _OCTETS, _REPLIES = 0, 1, 2  # kinds of counts; the step of a reply's latency is added to its kind
_KINDS = 256
_LAST_STEP = _KINDS - _REPLIES - 1


class Amount(NamedTuple):
    """Messages and octets of one interval."""

    messages: int
    octets: int


class Activity(msgspec.Struct, eq=False):
    """Messages, octets and replies by interval, and replies by latency: one number each, in one dictionary."""

    missing: int = 0
    total: int = 0  # messages, and whatever else counts
    length_ns: int = 0  # of the intervals in ``cells``
    cells: dict[int, int] = {}

    def weight(self) -> int:
        """All that was counted."""
        return self.total

    def join(self, other: "Activity") -> None:
        """Add what another one counted."""
        length_ns = max(self.length_ns, other.length_ns)
        self.fold(length_ns)
        other.fold(length_ns)
        self.total += other.total
        for cell, count in other.cells.items():
            self.cells[cell] = self.cells.get(cell, 0) + count

    def fold(self, length_ns: int) -> None:
        """Count in longer intervals from now on."""
        if self.length_ns == length_ns:
            return
        if self.cells:
            folded: dict[int, int] = {}
            for cell, count in self.cells.items():
                place, kind = divmod(cell, _KINDS)
                wider = place * self.length_ns // length_ns * _KINDS + kind
                folded[wider] = folded.get(wider, 0) + count
            self.cells = folded
        self.length_ns = length_ns

    def add(self, intervals: Intervals, time_ns: int, octets: int, latency_ns: int | None = None) -> None:
        """Count one message, and how long it took if it is a reply."""
        cell = intervals.place(time_ns) * _KINDS
        if self.length_ns != intervals.length_ns:
            self.fold(intervals.length_ns)
        cells = self.cells
        self.total += 1
        cells[cell] = cells.get(cell, 0) + 1
        cells[cell + _OCTETS] = cells.get(cell + _OCTETS, 0) + octets
        if latency_ns is not None:
            cell += _REPLIES + step(latency_ns)
            cells[cell] = cells.get(cell, 0) + 1

    def amounts(self) -> Iterator[tuple[int, Amount]]:
        """Messages and octets in order of time: the number of the interval, and how many."""
        for cell in sorted(cell for cell in self.cells if cell % _KINDS == _MESSAGES):
            yield cell // _KINDS, Amount(self.cells[cell], self.cells.get(cell + _OCTETS, 0))

    def replies(self) -> Iterator[tuple[int, int, int]]:
        """The replies: the number of the interval, the step of their latency, and how many."""
        for cell in sorted(cell for cell in self.cells if cell % _KINDS >= _REPLIES):
            place, kind = divmod(cell, _KINDS)
            yield place, kind - _REPLIES, self.cells[cell]


def step(latency_ns: int) -> int:
    """The step that a latency is in; those below 1 ns are in the first one."""
    return min(int(log10(latency_ns) * STEPS), _LAST_STEP) if latency_ns > 1 else 0


def step_limits(number: int) -> tuple[int, int]:
    """The latencies of a step, in nanoseconds: from the first on, below the second."""
    return (round(10 ** (number / STEPS)) if number else 0), round(10 ** ((number + 1) / STEPS))
