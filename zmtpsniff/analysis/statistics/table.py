"""Tables that stay small whatever they count: the heaviest rows stay, and the table knows how much it cut."""

from collections.abc import Callable, Hashable
from typing import Generic, Protocol, Self, TypeVar


class Row(Protocol):
    """The counts that a table has for one key."""

    missing: int  # how much of its weight may not have been counted, at most

    def weight(self) -> int:
        """How much it counts for; it only grows."""

    def join(self, other: Self) -> None:
        """Add what another row of the same kind counted."""


Key = TypeVar("Key", bound=Hashable)
AnyRow = TypeVar("AnyRow", bound=Row)


class Table(Generic[Key, AnyRow]):
    """Rows by key, at most twice ``limit`` of them: then the lighter half is cut.

    If a key comes again after its row was cut, the row starts anew, so its counts are lower bounds. ``missing`` of the
    row is the most that it can lack. ``rest`` has all that was cut, so totals stay exact.
    """

    def __init__(self, limit: int, make: Callable[[], AnyRow]) -> None:
        """``make`` makes an empty row."""
        self.rows: dict[Key, AnyRow] = {}
        self.rest = make()
        self._limit = limit
        self._make = make
        self._floor = 0  # no row that was cut had more
        self._most = 0  # rows at a time

    def row(self, key: Key) -> AnyRow:
        """The row of a key, made if there is none."""
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= 2 * self._limit:
                self._cut()
            row = self.rows[key] = self._make()
            row.missing = self._floor
        return row

    def at_least(self) -> int:
        """How many different keys there were. If rows were cut, the number is a lower bound."""
        return max(self._most, len(self.rows))

    def _cut(self) -> None:
        self._most = self.at_least()
        # sorted() keeps the order of equal rows: the first to come stay.
        ranked = sorted(self.rows.items(), key=lambda item: -item[1].weight())
        for _, row in ranked[self._limit :]:
            self._floor = max(self._floor, row.weight() + row.missing)
            self.rest.join(row)
        self.rows = dict(ranked[: self._limit])
