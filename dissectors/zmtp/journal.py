"""What the events of one direction have in common: who sends to whom, and which packet was read last."""

from dissectors.events import UNBOUNDED, AnyEvent, Problem
from dissectors.numbers import Number, fetch_number, store_number
from dissectors.problems import PROBLEMS
from dissectors.snapshots import Part

_NONE: frozenset[str] = frozenset()


class JournalState(Part):
    """What a journal says of itself in a snapshot."""

    time_ns: int
    packet: Number
    begin: int
    seen: int
    reported: frozenset[str]


class Journal:
    """Where all parts that read one direction write its events, and the place that these get."""

    __slots__ = ("_reported", "begin", "dst", "flow", "out", "packet", "seen", "src", "time_ns")

    def __init__(self, out: list[AnyEvent], flow: int, src: str, dst: str) -> None:
        """Append events to ``out``, as sent by ``src`` to ``dst`` in connection ``flow``."""
        self.out = out
        self.flow = flow
        self.src = src
        self.dst = dst
        self.time_ns = 0  # of the packet read last
        self.packet = 0
        self.begin = 0  # the stream offset of the octets read last
        self.seen = UNBOUNDED  # how much their sender can have seen of the other side's stream
        self._reported = _NONE  # codes that are reported once for each direction

    def place(self) -> tuple[int, int, int, str, str]:
        """The first fields of every event: time in nanoseconds, packet, flow, sender, receiver."""
        return self.time_ns, self.packet, self.flow, self.src, self.dst

    def problem(self, code: str, detail: str, since_ns: int | None = None) -> None:
        """Report a problem of this direction at the packet read last; octets may be missing ``since_ns``."""
        self.out.append(Problem(PROBLEMS[code].severity, code, detail, *self.place(), since_ns))

    def problem_once(self, code: str, detail: str) -> None:
        """Report a problem that would repeat with every frame once only."""
        if code not in self._reported:
            self._reported |= {code}
            self.problem(code, detail)

    def snapshot(self) -> JournalState:
        """What to go on from."""
        return JournalState(self.time_ns, store_number(self.packet), self.begin, self.seen, self._reported)

    def restore(self, state: JournalState) -> None:
        """Go on from there."""
        self.time_ns = state.time_ns
        self.packet = fetch_number(state.packet)
        self.begin = state.begin
        self.seen = state.seen
        self._reported = state.reported
