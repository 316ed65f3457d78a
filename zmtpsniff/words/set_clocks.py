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


_MOST = 1000  # jumps; a clock is set a few times a year


class ForwardJumps:
    """The jumps forward of the clock of a capture, and its *steady* times: those without the jumps."""

    def __init__(self) -> None:
        """Start without any."""
        # Where each begins, as captured and steady, and the sum of all so far.
        self._edges: list[tuple[int, int, int]] = []

    def __bool__(self) -> bool:
        """Whether there were any."""
        return bool(self._edges)

    @property
    def is_full(self) -> bool:
        """Whether there were so many that the clock says nothing: no more are to be added."""
        return len(self._edges) >= _MOST

    def add(self, before_ns: int, after_ns: int, by_ns: int) -> None:
        """Between two steady times, which should follow each other, the clock was set forward by ``by_ns``."""
        edge_ns = (before_ns + after_ns - by_ns) // 2
        earlier_ns = self._edges[-1][2] if self._edges else 0
        self._edges.append(((before_ns + after_ns) // 2 + earlier_ns, edge_ns, earlier_ns + by_ns))

    def clear(self) -> None:
        """The clock was set back: nobody knows by how much, so its times are steady from here on."""
        self._edges.clear()

    def steady(self, time_ns: int) -> int:
        """A time of the capture without the jumps before it."""
        for edge_ns, _, by_ns in reversed(self._edges):
            if time_ns >= edge_ns:
                return time_ns - by_ns
        return time_ns

    def captured(self, steady_ns: int) -> int:
        """The time that the capture has for a steady one."""
        for _, edge_ns, by_ns in reversed(self._edges):
            if steady_ns >= edge_ns:
                return steady_ns + by_ns
        return steady_ns
