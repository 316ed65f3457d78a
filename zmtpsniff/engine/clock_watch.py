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

from collections.abc import Callable
from functools import partial

from zmtpsniff.capture.block import NOTHING, Block
from zmtpsniff.net.timestamps import TimestampReader, jump_ns
from zmtpsniff.words.set_clocks import SET_BACK_NS, ForwardJumps, later

LEAST_NS = 10_000_000_000
"""A shorter jump is not looked for: programs wait so long for a reply now and then."""
Clock = Callable[[], int]
"""Gives its time in nanoseconds."""
_NEAR = 256  # packets before a jump and behind it whose timestamps are read
_CLOSEST_NS = 1_000_000  # packets on both sides of a jump are at least so far apart


class ClockWatch:
    """Looks at the times of blocks, and gives them steady ones: those without the jumps."""

    def __init__(self, jumps: ForwardJumps, clock: Clock | None, monotonic: Clock | None) -> None:
        """Add to ``jumps``. Live, ``clock`` is the one whose times packets have, and nobody sets the other one."""
        self._jumps = jumps
        self._clock, self._monotonic = clock, monotonic
        self._ahead_ns: int | None = None  # by how much one clock is ahead of the other
        self._last_ns = 0  # of both the steady time
        self._before = NOTHING  # the last block
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
            if by_ns >= LEAST_NS:
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
        if last_ns - (self._come_ns or first_ns) >= LEAST_NS:
            block = self._without_jumps(block)
            last_ns = block.span_ns[1]
        self._before, self._come_ns = block, last_ns
        return block

    def _without_jumps(self, block: Block) -> Block:
        """A block whose packets are far apart, with those jumps taken out that are proved."""
        before_ns = self._come_ns or block.times_ns[0]
        for place, time_ns in enumerate(block.times_ns):
            if time_ns - before_ns >= LEAST_NS and (proved_ns := self._proved_ns(block, place)):
                by_ns = min(proved_ns, time_ns - before_ns - _CLOSEST_NS)
                middle_ns = (before_ns + time_ns) // 2
                self._jumps.add(before_ns, time_ns, by_ns)
                return self._without_jumps(block.with_times(partial(_set_back, middle_ns, by_ns)))
            before_ns = later(before_ns, time_ns)
        return block

    def _proved_ns(self, block: Block, place: int) -> int:
        """By how much the clock was set forward before the packet at ``place``; 0 if nothing proves that."""
        earlier = block.packets(max(0, place - _NEAR), place)
        left = _NEAR - len(earlier)
        earlier = self._before.packets(max(0, len(self._before) - left)) + earlier if left else earlier
        later = block.packets(place, place + _NEAR)
        return jump_ns(self._reader.stamps(earlier), self._reader.stamps(reversed(later)))


def _set_back(from_ns: int, by_ns: int, time_ns: int) -> int:
    return time_ns - by_ns if time_ns >= from_ns else time_ns
