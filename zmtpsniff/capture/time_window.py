"""A part of a capture by time. All other packets are passed over."""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from zmtpsniff.capture.block import Block

LATE_NS = 5_000_000_000
"""How much later than a packet an earlier one may stand in a file: several processors write into it."""


class TimeWindow(NamedTuple):
    """From one time to another, in nanoseconds since 1970; None is open."""

    begin_ns: int | None = None
    end_ns: int | None = None

    def holds(self, time_ns: int) -> bool:
        """Whether a packet of that time is inside."""
        return not self.is_before(time_ns) and not self.is_after(time_ns)

    def is_before(self, time_ns: int) -> bool:
        """Whether a packet of that time comes too early."""
        return self.begin_ns is not None and time_ns < self.begin_ns

    def is_after(self, time_ns: int) -> bool:
        """Whether a packet of that time comes too late."""
        return self.end_ns is not None and time_ns > self.end_ns

    def cut(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """The packets of a file that are inside. The file is not read on once all others must be too late."""
        for block in filter(None, blocks):
            times_ns = block.times_ns
            first_ns, last_ns = min(times_ns), max(times_ns)
            if self.is_after(first_ns - LATE_NS):
                return
            if self.is_before(last_ns) or self.is_after(first_ns):
                continue
            if self.holds(first_ns) and self.holds(last_ns):
                yield block
                continue
            for is_inside, places in groupby(range(len(block)), lambda place: self.holds(times_ns[place])):  # noqa: B023
                if is_inside:
                    begin, *more = places
                    yield block.part(begin, begin + 1 + len(more))
