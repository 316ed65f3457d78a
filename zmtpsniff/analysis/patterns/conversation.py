"""What all patterns need to know of one connection while it lasts."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dissectors.events import AnyEvent, Command, Connection, Message, Problem, Severity, Subscription
from dissectors.problems import PROBLEMS

if TYPE_CHECKING:
    from zmtpsniff.analysis.patterns.inference import Guesses, Inference

_ROOM = 32 << 20


class Doubt(NamedTuple):
    """Octets of a connection are presumed lost from ``since_ns`` on; no event, since they may still come."""

    time_ns: int
    flow: int
    since_ns: int


class Subject(Protocol):
    """The event that a problem is about."""

    @property
    def time_ns(self) -> int: ...  # noqa: D102
    @property
    def packet(self) -> int: ...  # noqa: D102
    @property
    def flow(self) -> int: ...  # noqa: D102
    @property
    def src(self) -> str: ...  # noqa: D102
    @property
    def dst(self) -> str: ...  # noqa: D102


def can_know(event: Message | Command, offset: int) -> bool:
    """Whether the sender of an event can have seen what the other side's octets from ``offset`` on completed.

    What a sender had acknowledged is the most that it can have seen. Where that is not known it can have seen all.
    """
    return event.seen > offset


def latency_ns(answer: Message | Command, asked_ns: int) -> int | None:
    """The nanoseconds between a question and its answer as captured; None if the capture has the answer first."""
    latency = answer.time_ns - asked_ns
    return latency if latency >= 0 else None


class Findings:
    """Problems found by looking at an event, which then follow it."""

    def __init__(self) -> None:
        """Start with none."""
        self.events: list[AnyEvent] = []

    def report(self, code: str, event: Subject, detail: str, severity: Severity | None = None) -> None:
        """Report a problem of the sender of ``event``, as severe as its code is unless told otherwise."""
        self.events.append(
            Problem(
                severity or PROBLEMS[code].severity,
                code,
                detail,
                event.time_ns,
                event.packet,
                event.flow,
                event.src,
                event.dst,
            )
        )

    def report_of_none(
        self, code: str, detail: str, severity: Severity | None = None, event: Subject | None = None
    ) -> None:
        """Report a problem that belongs to no connection that has a record, with the place of ``event`` if given."""
        problem = Problem(severity or PROBLEMS[code].severity, code, detail)
        if event is not None:
            problem.time_ns, problem.packet = event.time_ns, event.packet
        self.events.append(problem)

    def take(self) -> list[AnyEvent]:
        """The problems found since the last time."""
        events, self.events = self.events, []
        return events


class Room:
    """The octets that patterns may remember for all connections together. Without a limit peers would decide."""

    def __init__(self, octets: int = _ROOM) -> None:
        """Start with all room left."""
        self.left = octets

    def take(self, octets: int) -> bool:
        """Take a part, if so much is left."""
        if octets > self.left:
            return False
        self.left -= octets
        return True

    def give(self, octets: int) -> None:
        """Give a part back."""
        self.left += octets


class Rules:
    """What one pattern wants to know of a connection; by default nothing.

    Whatever is done with an event must not depend on how often time passed before it: a capture that is read in one
    piece and one that is watched live give the same findings.
    """

    message: Callable[[Message], None] | None = None  # called with each message
    waits = False  # whether it wants to know that time passes
    asked_ns: int | None = None  # when what waits for an answer was sent, where only one thing can

    def subscription(self, event: Subscription) -> None:
        """Take note of a subscription."""

    def command(self, event: Command) -> None:
        """Take note of a command."""

    def lose(self) -> None:
        """Octets are missing: they may hold what this pattern waits for."""

    def pass_time(self, now_ns: int) -> None:
        """It is ``now_ns``: report what should have happened by now."""

    def finish(self, event: Connection, now_ns: int) -> None:
        """The connection is over, or the capture, whose last packet came at ``now_ns``: give back all room."""


class Conversation:
    """One connection: who takes part, and whether all of it can be seen."""

    __slots__ = (
        "blind", "early", "early_octets", "flow", "guesses", "identities", "inference", "is_declared",
        "patience_ns", "pings",        "rules", "types", "websocket",
    )  # fmt: skip

    def __init__(self, flow: int) -> None:
        """Begin with the first greeting."""
        self.flow = flow
        self.types: dict[str, str] = {}  # address to socket type
        self.identities: dict[str, bytes] = {}
        self.early: list[Message | Subscription] = []  # events before both sides announced their socket types
        self.early_octets = 0
        self.blind = False  # octets are missing, so the absence of a message proves nothing
        self.websocket = False
        self.inference: Inference | None = None  # while the socket types are not known, and not announced
        self.guesses: Guesses | None = None  # what they are that did not announce it
        self.patience_ns: int | None = None  # as in the inference that made the guesses
        self.is_declared = False  # the user says which they are
        self.pings: Rules | None = None
        self.rules = Rules()

    @property
    def is_guessed(self) -> bool:
        """Whether neither the sockets nor the user said what they are."""
        return self.guesses is not None and not self.is_declared

    def part(self) -> None:
        """Let go of what refers back to this object, so that memory is freed at once and not by the cycle collector."""
        for rules in (self.rules, self.pings):
            if rules is not None:
                rules.message = None
        self.rules = Rules()
        self.pings = None
        self.inference = None
