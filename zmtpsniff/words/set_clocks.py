"""The times of packets jump when the clock is set.

Behind a jump forward it looks as if nothing had come meanwhile. Behind a jump back, whoever waits for a time would wait
for as long as the jump, and whatever just happened would look old.
"""

SET_BACK_NS = 600_000_000_000
"""Packets are out of order by less, and nothing waits longer for its place among them: so the clock was set back."""


def later(now_ns: int, time_ns: int) -> int:
    """The later of two times, of which ``time_ns`` came last; that one if the clock was set back in between."""
    return time_ns if time_ns > now_ns or now_ns - time_ns > SET_BACK_NS else now_ns


def is_due(now_ns: int, next_ns: int) -> bool:
    """Whether it is time for what is done every few seconds, and for the next time at ``next_ns``."""
    return not 0 < next_ns - now_ns <= SET_BACK_NS
