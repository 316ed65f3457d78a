"""Packets that are earlier than one before them in their file: how they count where files are merged."""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from operator import sub

_BATCHES = 256  # that are out of order of which the order is kept


class Orders:
    """The order of a file's packets: the latest time up to each of them, nanoseconds since the Unix epoch.

    It is exact for what is late in the file, where others go on, and else an upper bound.
    """

    def __init__(self) -> None:
        """Begin with no packet."""
        self.latest_ns = 0
        self._most_ns = 0  # how much later than its own time a packet may count as
        self._recent: deque[tuple[int, list[int]]] = deque()  # batches: number of the first packet, order of each
        self._known_from = 0  # the number of the packet from which on batches that are left out are in order

    def take(self, first: int, times: Sequence[int]) -> None:
        """Take the times of more packets; the number of the first one is ``first``."""
        if min(times) < self.latest_ns or sorted(times) != times:
            orders = list(accumulate(times, max, initial=self.latest_ns))[1:]
            self._most_ns = max(self._most_ns, max(map(sub, orders, times)))
            if len(self._recent) == _BATCHES:
                number, gone = self._recent.popleft()
                self._known_from = number + len(gone)
            self._recent.append((first, orders))
        self.latest_ns = max(self.latest_ns, max(times))

    def order_ns(self, number: int, time_ns: int) -> int:
        """No less than the order of the packet ``number``, which came at ``time_ns``; 0 if its number is not known."""
        if number < self._known_from or not number:
            return time_ns + self._most_ns
        for first, orders in reversed(self._recent):
            if number >= first:
                return orders[number - first] if number - first < len(orders) else time_ns
        return time_ns
