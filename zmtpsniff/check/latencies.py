"""Counts and percentiles of latencies, without keeping each latency.

Counts at limits are exact. Percentiles are exact to half a percent.
"""

from collections import Counter
from collections.abc import Sequence
from math import exp, log

Limits = tuple[tuple[str, int, int], ...]
"""A percentile of latencies, such as ("p99", 99, nanoseconds); 100 percent is the longest."""

_STEP = log(1.01)  # each class of latencies is 1 % longer than the one before


class Latencies:
    """A set of latencies in nanoseconds, in memory that does not depend on their number."""

    def __init__(self, limits: Sequence[int] = ()) -> None:
        """Count exactly how many are within each of ``limits`` (nanoseconds)."""
        self.count = 0
        self.longest = 0
        self._limits = sorted(set(limits))
        self._within = dict.fromkeys(self._limits, 0)
        self._classes: Counter[int] = Counter()

    def add(self, latency_ns: int) -> None:
        """Add one."""
        self.count += 1
        self.longest = max(self.longest, latency_ns)
        for limit in self._limits:
            if latency_ns <= limit:
                self._within[limit] += 1
        self._classes[int(log(max(latency_ns, 1)) / _STEP)] += 1

    def within(self, limit: int) -> int:
        """How many are no longer than a limit that was given."""
        return self._within[limit]

    def merge(self, other: "Latencies") -> None:
        """Take in those of another set that has the same limits."""
        self.count += other.count
        self.longest = max(self.longest, other.longest)
        for limit, count in other._within.items():
            self._within[limit] += count
        self._classes.update(other._classes)

    def at(self, percent: int) -> int:
        """The latency that so many percent of all do not exceed, in nanoseconds; 0 if there is none."""
        wanted = rank(self.count, percent)
        if wanted >= self.count:
            return self.longest
        seen = 0
        for place in sorted(self._classes):
            seen += self._classes[place]
            if seen >= wanted:
                return min(round(exp((place + 0.5) * _STEP)), self.longest)
        return self.longest


def rank(count: int, percent: int) -> int:
    """The rank, among ``count`` values, of a percentile (nearest rank)."""
    return -(-count * percent // 100)
