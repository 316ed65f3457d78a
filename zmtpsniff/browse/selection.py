"""Which of all records are shown."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
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
        return False


class EveryRow(Selection):
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


class SomeRows(Selection):
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


class FoundRows(SomeRows):
    """The rows that a search finds."""

    def __init__(self, index: RecordIndex, find: Callable[[int, int], Iterable[int]], most: int) -> None:
        """Begin with none; advance() has ``find`` look from one row up to another, at most so many."""
        super().__init__()
        self._index = index
        self._find = find
        self._most = most
        self._seen = 0

    def advance(self) -> bool:
        """Look at some rows that came since; False if there are none."""
        start, stop = self._seen, min(self._seen + self._most, len(self._index))
        self.rows.extend(self._find(start, stop))
        self._seen = stop
        return stop > start


def filtered_rows(index: RecordIndex, passes: Callable[[AnyEvent], bool]) -> FoundRows:
    """The rows whose records pass a display filter."""

    def find(start: int, stop: int) -> Iterable[int]:
        return [row for row, event in enumerate(index.events(start, stop), start) if passes(event)]

    return FoundRows(index, find, _CHUNK)


def rows_of_flows(index: RecordIndex, flows: Collection[int]) -> FoundRows:
    """The rows of some flows."""
    wanted = frozenset(flows)

    def find(start: int, stop: int) -> Iterable[int]:
        return [row for row, flow in enumerate(index.flows[start:stop], start) if flow in wanted]

    return FoundRows(index, find, 16 * _CHUNK)
