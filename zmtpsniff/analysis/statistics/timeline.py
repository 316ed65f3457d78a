"""Messages by time."""

_FINEST_NS = 1_000_000
_INTERVALS = 10_000  # that are kept
_SHOWN = 120  # where nobody says how long they are


class Timeline:
    """Counts by intervals of time, which become longer when there are too many."""

    def __init__(self, interval_ns: int | None) -> None:
        """Count in intervals of that length; None for one that suits the capture."""
        self._asked = interval_ns is not None
        self.width_ns = interval_ns or _FINEST_NS
        self._factor = 2 if self._asked else 10
        self.counts: dict[int, int] = {}  # by time // width

    def add(self, time_ns: int, count: int) -> None:
        """Count some messages of about that time."""
        place = time_ns // self.width_ns
        self.counts[place] = self.counts.get(place, 0) + count
        if len(self.counts) > _INTERVALS:
            width_ns = self.width_ns * self._factor
            self.counts = widened(self.counts, self.width_ns, width_ns)
            self.width_ns = width_ns

    def rows(self) -> tuple[int, list[tuple[int, int]]]:
        """The length of the intervals and, in order, the begin and count of each that has messages."""
        width_ns, counts = self.width_ns, self.counts
        if counts and not self._asked:
            span_ns = (max(counts) - min(counts) + 1) * width_ns
            while span_ns / width_ns > _SHOWN:  # 1, 2, 5, 10, …
                width_ns = width_ns * 5 // 2 if str(width_ns).startswith("2") else width_ns * 2
            counts = widened(counts, self.width_ns, width_ns)
        return width_ns, [(place * width_ns, counts[place]) for place in sorted(counts)]


def widened(counts: dict[int, int], old_ns: int, new_ns: int) -> dict[int, int]:
    """The counts of intervals of ``old_ns`` in intervals of ``new_ns``, by the place of each."""
    made: dict[int, int] = {}
    for place, count in counts.items():
        wider = place * old_ns // new_ns
        made[wider] = made.get(wider, 0) + count
    return made
