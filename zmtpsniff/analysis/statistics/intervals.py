"""Time in equal intervals of a round length, never too many of them.

Each length divides the next one, so counts of short intervals add up to counts of longer ones.
"""

_MS = 1_000_000
_LENGTHS_NS = tuple(
    length * _MS
    for length in (
        1, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000, 21_600_000,
        86_400_000,
    )
)  # fmt: skip
_SHOWN = 120


def suiting(span_ns: int) -> int:
    """A length for intervals, in nanoseconds: a span of time has 120 of them at most."""
    length_ns = _LENGTHS_NS[0]
    while span_ns / length_ns > _SHOWN - 1:
        length_ns = longer(length_ns)
    return length_ns


def longer(length_ns: int) -> int:
    """The length that follows one."""
    return next((each for each in _LENGTHS_NS if each > length_ns), 2 * length_ns)


class Intervals:
    """Intervals that cover all times so far. They become longer when there are too many.

    A caller that keeps places must compare :attr:`length_ns`, and convert its places when that has changed.
    """

    def __init__(self, most: int) -> None:
        """``most`` is how many there may be."""
        self.length_ns = _LENGTHS_NS[0]
        self._most = most
        self._first = 0
        self._last = -1

    def place(self, time_ns: int) -> int:
        """The number of the interval that a time is in, counted from the epoch."""
        place = time_ns // self.length_ns
        if self._first <= place <= self._last:
            return place
        if self._last < self._first:
            self._first = self._last = place
            return place
        self._first, self._last = min(self._first, place), max(self._last, place)
        while self._last - self._first >= self._most:
            self.widen()
        return time_ns // self.length_ns

    def widen(self) -> None:
        """Make them longer."""
        old_ns, self.length_ns = self.length_ns, longer(self.length_ns)
        self._first = self._first * old_ns // self.length_ns
        self._last = self._last * old_ns // self.length_ns

    @property
    def count(self) -> int:
        """How many there are."""
        return self._last - self._first + 1
