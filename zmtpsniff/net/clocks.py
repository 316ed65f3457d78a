"""Packets that a capture has twice, from two capture points: by how much their clocks differ.

Theory
------

Two points see a packet one after the other, by the time *w* that the way between them takes. If the clock of the second
one is ahead by *s*, what goes towards it seems to take ``s + w``, and what comes back ``s - w``. So the mean of both is
*s*. If the clocks agree, a copy of a packet comes before its acknowledgment can. If it comes after that, in both
directions, *s* is larger than the way there and back.

TCP sends octets again, too, also if only their acknowledgment was lost. But then it sends a segment, or a few: once an
acknowledgment arrives, the sender goes on behind all that the receiver has. So the clocks differ if many copies follow
each other, all of octets that were acknowledged before. By how much is told if both sides send octets, and if most of
the copies that are still compared with the first ones come about as late.
"""

from collections.abc import Sequence

from msgspec import field

from dissectors.snapshots import Part
from zmtpsniff.net.addresses import reverse
from zmtpsniff.net.notices import CaptureProblem

_REMEMBERED = 64  # times of each direction
_DIRECTIONS = 32  # those that had copies first
_RUNS = 1000  # directions
_LEAST = 8
LEAST_CLOCK_NS = 1_000_000  # two interfaces of one host are not that far apart


class ClockComparison(Part, gc=False):
    """Segments that came twice with the same octets, by the direction of a flow."""

    times_ns: dict[bytes, list[int]] = field(default_factory=dict)  # between two copies
    # By direction: where the last copy of octets that were acknowledged before ends, and how many stand in front of it.
    runs: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    are_twice: bool = False  # many such copies followed each other

    def see(self, key: bytes, begin: int, end: int, is_acknowledged: bool) -> None:
        """A segment of the direction ``key`` came again, with octets of the stream from ``begin`` up to ``end``."""
        last, before = self.runs.pop(key, (0, 0))
        if not is_acknowledged or self.are_twice:
            return
        count = before + 1 if last == begin else 1
        self.runs[key] = end, count
        self.are_twice = count >= _LEAST
        if len(self.runs) > _RUNS:
            del self.runs[next(iter(self.runs))]

    def add(self, key: bytes, time_ns: int) -> None:
        """A segment of the direction ``key`` came again, so long after its first copy."""
        times_ns = self.times_ns.get(key)
        if times_ns is None:
            if len(self.times_ns) >= _DIRECTIONS:
                return
            times_ns = self.times_ns[key] = []
        times_ns.append(time_ns)
        del times_ns[:-_REMEMBERED]

    def problems(self) -> list[CaptureProblem]:
        """The problem that the capture is of two points whose clocks differ, if it is."""
        if not self.are_twice:
            return []
        differ_ns = self._differ_ns()
        by = "" if differ_ns is None else f" by about {differ_ns / 1e6:.1f} ms"
        detail = f"packets are in it twice, from two capture points whose clocks differ{by}"
        return [CaptureProblem("clocks-differ", detail, differ_ns)]

    def _differ_ns(self) -> int | None:
        """By how much the clocks of two capture points differ; None if nobody knows."""
        for key, times_ns in self.times_ns.items():
            there_ns, back_ns = _middle(times_ns), _middle(self.times_ns.get(reverse(key), ()))
            if there_ns and back_ns:
                return (there_ns + back_ns) // 2
        return None


def _middle(times_ns: Sequence[int]) -> int:
    """The median, if most are about the same and long enough; else 0."""
    if len(times_ns) < _LEAST:
        return 0
    ranked = sorted(times_ns)
    first, middle, last = (ranked[len(ranked) * part // 4] for part in (1, 2, 3))
    return middle if middle >= LEAST_CLOCK_NS and last - first <= middle // 10 else 0
