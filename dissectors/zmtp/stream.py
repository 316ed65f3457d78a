"""One direction of a connection as a stream of octets, read by a state machine whose state is a method."""

from collections.abc import Callable

from dissectors.events import UNBOUNDED, AnyEvent, Problem
from dissectors.problems import PROBLEMS
from dissectors.zmtp.limits import Limits as Limits

State = Callable[[bytes, int], int]


class OctetStream:
    """Takes octets in any pieces and lets the state of the moment read them.

    A state is given a buffer and a position and returns how far it got. One that needs more octets than there are
    says how many in ``_need`` and is not called before, so that no octet is read twice.
    """

    __slots__ = (
        "_chunks",
        "_held",
        "_need",
        "_running",
        "_searching",
        "_starts",
        "_state",
        "_told",
        "begin",
        "dst",
        "flow",
        "limits",
        "octets",
        "out",
        "packet",
        "seen",
        "silence",
        "src",
        "time_ns",
    )

    def __init__(self, out: list[AnyEvent], flow: int, src: str, dst: str, limits: Limits) -> None:
        """Append events to ``out``, as sent by ``src`` to ``dst`` in connection ``flow``."""
        self.out = out
        self.flow = flow
        self.src = src
        self.dst = dst
        self.limits = limits
        self.time_ns = 0  # of the packet read last
        self.packet = 0
        self.begin = 0  # the stream offset of the octets read last
        self.seen = UNBOUNDED  # how much their sender can have seen of the other side's stream
        self.octets = 0  # of the stream so far, gaps included
        self._state: State = self._dead
        self._chunks: list[bytes] = []  # octets that wait until there are _need of them
        self._held = 0
        self._need = 1
        self._running = False
        self._searching = False  # where segments begin matters
        self.silence = 0  # segments in which it had seen nothing new of the other side, since it is searched
        self._starts: list[int] = []  # where they do in the octets held
        self._told: frozenset[str] = frozenset()  # codes that are reported once for each direction

    def feed(self, data: bytes, time_ns: int, packet: int, begin: int = 0, seen: int = UNBOUNDED) -> None:
        """Take the next octets of the stream, which packet ``packet`` brought at ``time_ns``; events go to ``out``.

        They begin at ``begin`` of the stream. Their sender had seen the other side's octets before ``seen`` at most.
        """
        self.time_ns = time_ns
        self.packet = packet
        self.begin = begin
        before, self.seen = self.seen, seen
        self.octets += len(data)
        if self._held:
            if self._searching:
                self._starts.append(self._held)
                self.silence = self.silence + 1 if seen == before != UNBOUNDED else -UNBOUNDED
            self._chunks.append(data)
            self._held += len(data)
            if self._held < self._need:
                return
            self._run(b"".join(self._chunks))
            return
        # Nearly always the segment holds whole frames, so that nothing has to be kept.
        reached = self._state(data, 0)
        if reached != len(data):
            self._run(data, reached)

    def resume(self) -> None:
        """Look again at the octets held, because something else than octets made progress possible."""
        if self._held and not self._running:
            self._run(b"".join(self._chunks))

    def _run(self, data: bytes, position: int = 0) -> None:
        """Let one state after the other take octets until one of them needs more, and keep the rest."""
        self._chunks = []
        self._held = 0
        self._running = True
        end = len(data)
        while True:
            state = self._state
            self._need = 1
            reached = state(data, position)
            if reached == position and self._state is state:
                break
            position = reached
            if position == end:
                break
        self._running = False
        if position < end:
            self._chunks.append(data[position:] if position else data)
            self._held = end - position
            if self._need <= self._held:
                self._need = self._held + 1

    def problem(self, code: str, detail: str, since_ns: int | None = None) -> None:
        """Report a problem of this direction at the packet read last; octets may be missing ``since_ns``."""
        self.out.append(
            Problem(
                PROBLEMS[code].severity, code, detail,
                self.time_ns, self.packet, self.flow, self.src, self.dst, since_ns,
            )
        )  # fmt: skip

    def problem_once(self, code: str, detail: str) -> None:
        """Report a problem that would repeat with every frame once only."""
        if code not in self._told:
            self._told |= {code}
            self.problem(code, detail)

    def _dead(self, data: bytes, position: int) -> int:
        """The state in which nothing can be read any more."""
        return len(data)
