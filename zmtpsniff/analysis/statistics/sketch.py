"""Percentiles of many values in little memory.

A percentile is the value at its nearest rank: the smallest value that at least so many percent of all do not exceed.
"""

from collections.abc import Iterable
from math import ceil, log
from typing import Any

ACCURACY = 0.01  # how far a percentile may be from the exact one, as a share of it
_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
PER_E = 1 / log(_GAMMA)  # buckets for a factor of e
_MIDDLE = 2 / (1 + _GAMMA)  # of a bucket, as a share of its upper end: no value in it is further away than ACCURACY


class Sketch:
    """How often values of about the same size occurred (the buckets of DDSketch, VLDB 2019).

    Bucket k holds the values over gamma^(k-1) up to gamma^k. From 1 ns to a day there are less than 1,700 of them.
    """

    __slots__ = ("buckets", "count", "maximum", "minimum", "within", "zeros")

    def __init__(self, limits: Iterable[int] = ()) -> None:
        """Start without values. How many are within each of ``limits`` is counted exactly."""
        self.buckets: dict[int, int] = {}
        self.zeros = 0  # and values below: clocks of two interfaces may differ
        self.count = 0
        self.minimum = 0
        self.maximum = 0
        self.within = dict.fromkeys(limits, 0)

    def add(self, value: int) -> None:
        """Count a value."""
        if not self.count:
            self.minimum = self.maximum = value
        elif value > self.maximum:
            self.maximum = value
        elif value < self.minimum:
            self.minimum = value
        self.count += 1
        if self.within:
            for limit in self.within:
                self.within[limit] += value <= limit
        if value > 0:
            bucket = ceil(log(value) * PER_E)
            self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        else:
            self.zeros += 1

    def add_all(self, count: int, zeros: int, minimum: int, maximum: int, buckets: Iterable[tuple[int, int]]) -> None:
        """Count values that are in buckets; this sketch has no limits."""
        other = Sketch()
        other.count, other.zeros, other.minimum, other.maximum = count, zeros, minimum, maximum
        other.buckets.update(buckets)
        self.join(other)

    def join(self, other: "Sketch") -> None:
        """Count the values of another one, too, which has the same limits."""
        if not other.count:
            return
        self.minimum = min(self.minimum, other.minimum) if self.count else other.minimum
        self.maximum = max(self.maximum, other.maximum) if self.count else other.maximum
        self.count += other.count
        self.zeros += other.zeros
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        for limit, count in other.within.items():
            self.within[limit] += count

    def percentile(self, percent: int) -> int:
        """The value that so many percent of all values do not exceed, 1 % off at most; 0 without values."""
        rank = max(1, self._rank(percent))
        if rank == self.count:
            return self.maximum
        seen = self.zeros
        if rank <= seen:
            return min(0, self.maximum)
        for bucket, count in sorted(self.buckets.items()):
            seen += count
            if seen >= rank:
                return min(max(_value(bucket), self.minimum), self.maximum)
        return self.maximum

    def keeps(self, percent: int, limit: int) -> bool:
        """Whether a percentile is within one of the limits. The answer is exact."""
        return self.within[limit] >= self._rank(percent)

    def times(self) -> dict[str, Any]:
        """The number, least, largest and percentiles of durations, by the names that records have for them."""
        percentiles = {f"p{percent}_ns": self.percentile(percent) for percent in (50, 95, 99)}
        return {"count": self.count, "min_ns": self.minimum, **percentiles, "max_ns": self.maximum}

    def _rank(self, percent: int) -> int:
        return -(-self.count * percent // 100)

    def above(self, value: int) -> int:
        """How many values exceed a positive one. Values that differ from that by 1 % may count or not."""
        return sum(count for bucket, count in self.buckets.items() if _value(bucket) > value)

    def histogram(self) -> list[tuple[int, int, int]]:
        """How many values there are between round limits (1, 2, 5, 10, 20, …): from, to, count.

        There are no gaps, except one between 0 and the least positive value.
        """
        if not self.count:
            return []
        counts: dict[int, int] = {}
        for bucket, count in self.buckets.items():
            step = _step(min(max(_value(bucket), self.minimum), self.maximum))
            counts[step] = counts.get(step, 0) + count
        rows = (
            [(limit(step - 1), limit(step), counts.get(step, 0)) for step in range(min(counts), max(counts) + 1)]
            if counts
            else []
        )
        return [(0, 0, self.zeros), *rows] if self.zeros else rows


def limit(step: int) -> int:
    """The limits of histograms: 1, 2, 5, 10, 20, … from step 0 on; 0 before that."""
    return 0 if step < 0 else int((1, 2, 5)[step % 3] * 10 ** (step // 3))


def _step(value: int) -> int:
    """The first step whose limit is not below a value."""
    step = max(0, 3 * (len(str(value)) - 1) - 1)
    while limit(step) < value:
        step += 1
    return step


def _value(bucket: int) -> int:
    return round(_GAMMA**bucket * _MIDDLE)
