"""The facts that events of one direction have in common: sender, receiver, and the packet that was read last."""

from collections import deque
from collections.abc import Iterable

from dissectors.events import UNBOUNDED, AnyEvent, Command, Message, Problem, Subscription
from dissectors.problems import PROBLEMS
from dissectors.snapshots import Live, Part, quick
from dissectors.zmtp.commands import Fault

Moment = tuple[int, int, int, int]
"""The packet read last: its time in nanoseconds, its number, its stream offset, and what its sender had seen."""

Tally = tuple[int, int, int]
"""A count of messages: those of earlier packets, the packet of the last ones, and how many end in it."""

_NONE: frozenset[str] = frozenset()


@quick
class Journal(Part, gc=False):
    """Takes the events of one direction from all parts that read it, and places them in the capture."""

    out: Live[list[AnyEvent]]
    flow: int
    src: str
    dst: str
    time_ns: int = 0  # of the packet read last
    packet: int = 0
    begin: int = 0  # the stream offset of the octets read last
    seen: int = UNBOUNDED  # so much of the other side's stream their sender can have seen
    _reported: frozenset[str] = _NONE  # problem codes reported so far that need no second report in this direction
    part: int = 0  # so many messages end in the packet `counted`, and so many in earlier ones
    counted: int = 0
    earlier: int = 0

    def place(self) -> tuple[int, int, int, str, str]:
        """The first fields of every event: time in nanoseconds, packet, flow, sender, receiver."""
        return self.time_ns, self.packet, self.flow, self.src, self.dst

    def moment(self) -> Moment:
        """The position of the last octets that were read."""
        return self.time_ns, self.packet, self.begin, self.seen

    def go_to(self, moment: Moment) -> None:
        """Write what comes now as if that was read last."""
        self.time_ns, self.packet, self.begin, self.seen = moment

    def go_on_at(self, time_ns: int, packet: int) -> None:
        """Write what comes now as of this packet, from the place in the stream that has been reached."""
        self.time_ns, self.packet = time_ns, packet

    @property
    def tally(self) -> "Tally":
        """How many messages were counted."""
        return self.earlier, self.counted, self.part

    @tally.setter
    def tally(self, tally: "Tally") -> None:
        self.earlier, self.counted, self.part = tally

    @property
    def messages(self) -> int:
        """How many messages were counted."""
        return self.earlier + self.part

    def turn(self) -> None:
        """Count the messages that end in the packet read last."""
        if self.packet != self.counted:
            self.earlier += self.part
            self.counted, self.part = self.packet, 0

    def count(self) -> int:
        """Count a message. Returns which of those that end in its packet it is, from 1."""
        self.turn()
        self.part += 1
        return self.part

    def recount(self, event: Message) -> None:
        """Count a message that was read before; those before it have been counted."""
        now, self.packet = self.packet, event.packet
        event.part = self.count()
        self.packet = now

    def problem(self, code: str, detail: str, since_ns: int | None = None) -> None:
        """Report a problem of this direction at the packet read last. Octets may be missing ``since_ns``."""
        self.out.append(Problem(PROBLEMS[code].severity, code, detail, *self.place(), since_ns))

    def problems(self, faults: Iterable[Fault]) -> None:
        """Report these problems at the packet read last."""
        for code, detail in faults:
            self.problem(code, detail)

    def problem_once(self, code: str, detail: str) -> None:
        """Report a problem only once in this direction, since every later frame may have it, too."""
        if code not in self._reported:
            self._reported |= {code}
            self.problem(code, detail)


def in_causal_order(one: list[AnyEvent], other: list[AnyEvent]) -> list[AnyEvent]:
    """The events of both sides of a connection, merged in an order in which they can have happened.

    Acknowledgments tell which of two events came first. Where they do not, the order of packets does.
    """
    out: list[AnyEvent] = []
    rest, others = deque(one), deque(other)
    while rest and others:
        out.append((rest if _is_first(rest[0], others[0]) else others).popleft())
    return [*out, *rest, *others]


def _is_first(event: AnyEvent, another: AnyEvent) -> bool:
    """Whether an event comes before that of the other side."""
    if not isinstance(event, Message | Command | Subscription):
        return True  # a problem, of the event before it
    if not isinstance(another, Message | Command | Subscription):
        return False
    if another.offset < event.seen < UNBOUNDED:
        return False
    return event.offset < another.seen < UNBOUNDED or event.packet <= another.packet
