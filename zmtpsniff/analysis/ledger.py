"""Tables in bounded memory, in which the oldest entry gives way to a new one."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from types import NoneType
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
_set = OrderedDict.__setitem__  # super() would make an entry dearer by a third, and there are many


class Ledger(OrderedDict[Key, Value]):
    """A dictionary of at most so many entries. An entry is as old as its making, or its last at() or renew()."""

    def __init__(self, make: Callable[[], Any] = NoneType, limit: int = 10_000) -> None:
        """``make`` makes the entry of a key that is not there."""
        super().__init__()
        self._make = make
        self._limit = limit

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle: a copy has its limit before its entries."""
        return Ledger, (self._make, self._limit), None, None, iter(self.items())

    def __setitem__(self, key: Key, entry: Value) -> None:
        """Remember an entry. One that is replaced is as old as before."""
        _set(self, key, entry)
        if len(self) > self._limit:
            self.popitem(last=False)

    def __missing__(self, key: Key) -> Value:
        """Make an entry."""
        entry: Value = self._make()
        self[key] = entry
        return entry

    def renew(self, key: Key, entry: Value) -> None:
        """Remember an entry, which is the newest from now on."""
        _set(self, key, entry)
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)

    def at(self, key: Key) -> Value:
        """The entry of a key, which is the newest from now on."""
        entry = self[key]
        self.move_to_end(key)
        return entry
