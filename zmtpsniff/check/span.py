"""How long traffic lasts."""

from collections.abc import Sequence

from dissectors.events import AnyEvent, Connection, Message, Problem
from zmtpsniff.analysis.interruptions import Interruptions
from zmtpsniff.words.durations import NS


class Span:
    """The time from the first record to the last, connections' beginnings and ends among them."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.start_ns: int | None = None  # Unix time
        self.end_ns = 0
        self._interruptions = Interruptions()

    @property
    def seconds(self) -> float:
        """The time that was captured; at least one second, because an instant has no rate."""
        return max(self.end_ns - (self.start_ns or 0) - self._interruptions.lasted_ns, NS) / NS

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Look at the times of a batch; records of several connections are only nearly in order."""
        times = []
        for event in events:
            if type(event) is Message:
                times.append(event.time_ns)
            elif isinstance(event, Connection):
                times += (event.start_ns, event.end_ns)
            elif isinstance(event, Problem) and self._interruptions.take(event):
                continue
            elif (time_ns := getattr(event, "time_ns", None)) is not None:
                times.append(time_ns)
        if times:
            first = min(times)
            self.start_ns = first if self.start_ns is None else min(self.start_ns, first)
            self.end_ns = max(self.end_ns, max(times))
