"""Times between captures that do not meet: nothing is known of what was said meanwhile."""

from bisect import bisect_left

from dissectors.events import Problem
from dissectors.problems import PROBLEMS
from zmtpsniff.words.durations import about

INTERRUPTED = "capture-interrupted"
"""The problem that tells of an interruption, which began at its ``since_ns`` and was over at its ``time_ns``."""

_MOST = 10_000  # that are remembered


class Interruptions:
    """The interruptions of a capture so far, in the order of time."""

    def __init__(self) -> None:
        """Start without any."""
        self._begins: list[int] = []
        self.lasted_ns = 0  # all together

    def take(self, event: Problem) -> bool:
        """Add an interruption, if that is what a problem tells; return whether it is."""
        if event.code != INTERRUPTED or event.since_ns is None or event.time_ns is None:
            return False
        self._begins.append(event.since_ns)
        del self._begins[:-_MOST]
        self.lasted_ns += event.time_ns - event.since_ns
        return True

    def shown_until(self, time_ns: int, now_ns: int) -> int:
        """The time up to which the capture shows, without an interruption, how things of ``time_ns`` went on."""
        place = bisect_left(self._begins, time_ns)
        return min(self._begins[place], now_ns) if place < len(self._begins) else now_ns


def interruption(since_ns: int, until_ns: int) -> Problem:
    """The problem that tells of an interruption."""
    detail = f"nothing was captured for {about(until_ns - since_ns)} between two captures"
    return Problem(PROBLEMS[INTERRUPTED].severity, INTERRUPTED, detail, until_ns, since_ns=since_ns)
