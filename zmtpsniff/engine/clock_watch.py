"""Finds where the clock of a capture was set forward, so that nobody seems to have waited for as long.

Theory
------

Behind such a jump all seem to have been silent since the packet before. A quiet hour looks the same, and its silence is
true. Two clocks tell them apart:

- Live, that of the system which nobody sets (CLOCK_MONOTONIC). It stands still while the machine sleeps, and so did
  all programs on it.
- In files, those of the senders: most packets have a timestamp (RFC 7323), which goes on by a tick in a thousandth of
  a second to a second. If packets of one direction right before and right behind the jump are a few ticks apart, no
  hour has passed.

Without such packets nobody knows, and the times count as they are. If several days are read as one capture, the
timestamps show how much time passed.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from zmtpsniff.capture.block import NOTHING, Block
from zmtpsniff.net.timestamps import TimestampReader, jump_ns
from zmtpsniff.words.set_clocks import SET_BACK_NS, ForwardJumps, later

LEAST_NS = 10_000_000_000
"""A shorter jump is not looked for: programs wait so long for a reply now and then."""
Clock = Callable[[], int]
"""Gives its time in nanoseconds."""
_NEAR = 256  # packets before a jump and behind it whose timestamps are read, at most: those with no other gap between
_CLOSEST_NS = 1_000_000  # packets on both sides of a jump are at least so far apart


class _Gap(NamedTuple):
    """A time in which no packet came: perhaps the clock jumped."""

    place: int  # of the packet behind it, in its block
    since_ns: int
    until_ns: int


class ClockWatch:
    """Looks at the times of blocks, and gives them steady ones: those without the jumps."""

    def __init__(self, jumps: ForwardJumps, clock: Clock | None, monotonic: Clock | None) -> None:
        """Add to ``jumps``. Live, ``clock`` is the one whose times packets have, and nobody sets the other one."""
        self._jumps = jumps
        self._clock, self._monotonic = clock, monotonic
        self._ahead_ns: int | None = None  # by how much one clock is ahead of the other
        self._last_ns = 0  # of both the steady time
        self._before = NOTHING  # the last packets, up to where none had come for long
        self._quiet_place = 0  # where the last gap of the block is
        self._come_ns = 0  # up to when packets have come, steady
        self._captured_ns = 0  # as captured, in the last block
        self._reader = TimestampReader()

    def look(self) -> None:
        """Live: compare the clocks."""
        if self._clock is None or self._monotonic is None:
            return
        now_ns = self._clock()
        ahead_ns = now_ns - self._monotonic()
        steady_ns = self._jumps.steady(now_ns)
        if self._ahead_ns is not None:
            by_ns = ahead_ns - self._ahead_ns
            if by_ns >= LEAST_NS and not self._jumps.is_full:
                self._jumps.add(self._last_ns, steady_ns, by_ns)
            elif by_ns < -SET_BACK_NS:
                self._jumps.clear()
        self._ahead_ns, self._last_ns = ahead_ns, self._jumps.steady(now_ns)

    def steady(self, block: Block) -> Block:
        """The same packets, which are some, with steady times."""
        captured_ns = block.span_ns[1]
        if self._jumps and self._captured_ns - captured_ns > SET_BACK_NS:
            self._jumps.clear()
        self._captured_ns = captured_ns
        if self._jumps:
            block = block.with_times(self._jumps.steady)
        first_ns, last_ns = block.span_ns
        self._quiet_place = 0
        if last_ns - (self._come_ns or first_ns) >= LEAST_NS:
            block = self._without_jumps(block)
            last_ns = block.span_ns[1]
        self._before = block.part(max(self._quiet_place, len(block) - _NEAR))
        self._come_ns = last_ns
        return block

    def _without_jumps(self, block: Block) -> Block:
        """A block whose packets are far apart, with those jumps taken out that are proved."""
        times_ns = block.times_ns
        gaps = list(_gaps(times_ns, self._come_ns or times_ns[0]))
        ends = [gap.place for gap in gaps[1:]] + [len(block)]
        earlier, begin, sum_ns = self._before, 0, 0
        shifts: list[tuple[int, int]] = []  # from which time on, and by how much in all
        for gap, end in zip(gaps, ends, strict=False):  # of packets out of order there may be none
            before = earlier.packets() + block.packets(max(begin, gap.place - _NEAR), gap.place)
            behind = block.packets(gap.place, min(end, gap.place + _NEAR))
            earlier, begin = NOTHING, gap.place
            proved_ns = jump_ns(self._reader.stamps(before), self._reader.stamps(reversed(behind)))
            if not proved_ns or self._jumps.is_full:
                continue
            by_ns = min(proved_ns, gap.until_ns - gap.since_ns - _CLOSEST_NS)
            if sum_ns + by_ns > gap.until_ns:
                continue  # no clock jumps so far: it was set back in between, again and again
            self._jumps.add(gap.since_ns - sum_ns, gap.until_ns - sum_ns, by_ns)
            sum_ns += by_ns
            shifts.append(((gap.since_ns + gap.until_ns) // 2, sum_ns))
        self._quiet_place = begin
        return block.with_times(partial(_set_back, shifts)) if shifts else block


def _gaps(times_ns: Sequence[int], latest_ns: int) -> Iterator[_Gap]:
    """The long gaps of a block, also the one from ``latest_ns``, when the packet before the block came."""
    for place, time_ns in enumerate(times_ns):
        if time_ns - latest_ns >= LEAST_NS:
            yield _Gap(place, latest_ns, time_ns)
        latest_ns = later(latest_ns, time_ns)


def _set_back(shifts: Sequence[tuple[int, int]], time_ns: int) -> int:
    place = bisect_right(shifts, time_ns, key=itemgetter(0))
    return time_ns - shifts[place - 1][1] if place else time_ns
