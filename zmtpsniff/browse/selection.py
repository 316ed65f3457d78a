"""Which of all records are shown."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from dissectors.events import AnyEvent
from zmtpsniff.browse.index import RecordIndex

_CHUNK = 4096  # rows that are looked at in one step


class Selection(Protocol):
    """Some of the rows of an index, in their order."""

    def __len__(self) -> int:
        """How many they are so far."""

    def row(self, place: int) -> int:
        """The row at a place."""

    def place(self, row: int) -> int:
        """The place of a row, or of the next row that is there; len() if there is none."""

    def advance(self) -> bool:
        """Look at some rows that came since; False if there are none. One thread at a time."""


class EveryRow:
    """All rows."""

    def __init__(self, index: RecordIndex) -> None:
        """All rows of the index, also those that are to come."""
        self._index = index

    def __len__(self) -> int:
        """How many they are so far."""
        return len(self._index)

    def row(self, place: int) -> int:
        """The row at a place."""
        return place

    def place(self, row: int) -> int:
        """Where a row is."""
        return row

    def advance(self) -> bool:
        """There is nothing to look at."""
        return False


class SomeRows:
    """Rows that were found in some way."""

    def __init__(self, rows: Sequence[int] = ()) -> None:
        """These rows, which ascend."""
        self.rows = array("I", rows)

    def __len__(self) -> int:
        """How many they are so far."""
        return len(self.rows)

    def row(self, place: int) -> int:
        """The row at a place."""
        return self.rows[place]

    def place(self, row: int) -> int:
        """The place of a row, or of the next row that is there; len() if there is none."""
        return bisect_left(self.rows, row)

    def advance(self) -> bool:
        """There is nothing to look at."""
        return False


class FilteredRows(SomeRows):
    """The rows whose records pass a display filter."""

    def __init__(self, index: RecordIndex, passes: Callable[[AnyEvent], bool]) -> None:
        """Begin with none; advance() finds them."""
        super().__init__()
        self.seen = 0
        self._index = index
        self._passes = passes

    def advance(self) -> bool:
        """Look at some rows that came since; False if there are none."""
        start = self.seen
        stop = min(start + _CHUNK, len(self._index))
        events = self._index.events(start, stop)
        self.rows.extend([row for row, event in enumerate(events, start) if self._passes(event)])
        self.seen = stop
        return stop > start


class FlowRows(SomeRows):
    """The rows of some flows."""

    def __init__(self, index: RecordIndex, flows: Collection[int]) -> None:
        """Begin with none; advance() finds them."""
        super().__init__()
        self.seen = 0
        self._index = index
        self._flows = frozenset(flows)

    def advance(self) -> bool:
        """Look at some rows that came since; False if there are none."""
        start = self.seen
        stop = min(start + 16 * _CHUNK, len(self._index))
        flows = self._index.flows[start:stop]
        self.rows.extend([row for row, flow in enumerate(flows, start) if flow in self._flows])
        self.seen = stop
        return stop > start
