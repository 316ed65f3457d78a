"""Things that nothing tells apart. Which of them is meant is certain only while it is alone."""

from typing import Generic, TypeVar

_Thing = TypeVar("_Thing")

_NEVER = 1 << 60


class Alike(Generic[_Thing]):
    """Things that wait and look the same, the oldest first: requests with one envelope, messages with the same frames.

    If one of several is taken, nobody knows which. They are alike until all of them are taken.
    """

    __slots__ = ("_most", "taken", "waiting")

    def __init__(self, most: int, *waiting: _Thing) -> None:
        """Remember at most so many: if there are more, it is never certain which is meant."""
        self._most = most
        self.waiting = [*waiting]
        self.taken = 0  # so many of those that wait are taken in truth

    @property
    def is_certain(self) -> bool:
        """Whether all that wait do so in truth."""
        return not self.taken

    @property
    def is_given_up(self) -> bool:
        """Whether it is never again certain which is meant."""
        return self.taken >= _NEVER

    def add(self, thing: _Thing) -> None:
        """One more waits."""
        if len(self.waiting) < self._most:
            self.waiting.append(thing)
        else:
            self.give_up()

    def replace(self, thing: _Thing) -> None:
        """One waits, and it is known that no other does."""
        self.waiting = [thing]
        self.taken = 0

    def are_left(self, first: int) -> bool:
        """Whether one of the ``first`` ones can still be meant."""
        return first > self.taken or self.is_given_up

    def take(self, first: int) -> _Thing | None:
        """Take one of the ``first`` ones. Returns it if it is certain which one it is."""
        if first == 1 and not self.taken:
            return self.waiting.pop(0)
        self.taken += 1
        if self.taken == first:  # all of them
            del self.waiting[:first]
            self.taken = 0
        return None

    def remove(self, thing: _Thing) -> None:
        """Take this one."""
        self.waiting.remove(thing)
        if self.taken >= len(self.waiting) and not self.is_given_up:
            self.waiting.clear()
            self.taken = 0

    def give_up(self) -> None:
        """From now on it is never certain which one is meant."""
        self.taken = _NEVER
