"""What all patterns need to know of one connection while it lasts."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dissectors.events import Command, Connection, Message, Subscription

if TYPE_CHECKING:
    from zmtpsniff.analysis.patterns.inference import Guesses, Inference

_ROOM = 32 << 20


class Doubt(NamedTuple):
    """Octets of a connection are presumed lost from ``since_ns`` on. It is no event, since they may still come."""

    time_ns: int
    flow: int
    since_ns: int


class Delay(NamedTuple):
    """Octets of a connection that were sent after ``since_ns`` are still missing, or come only now."""

    time_ns: int
    flow: int
    since_ns: int


def can_know(event: Message | Command, offset: int) -> bool:
    """Whether the sender of an event can have seen an event of the other side whose octets begin at ``offset``.

    A sender can have seen no more than it had acknowledged. If that is unknown, it can have seen everything.
    """
    return event.seen > offset


def latency_ns(answer: Message | Command, asked_ns: int) -> int | None:
    """The nanoseconds from a question to its answer, as captured; None if the capture has the answer first."""
    latency = answer.time_ns - asked_ns
    return latency if latency >= 0 else None


class Room:
    """The octets that patterns may remember for all connections together; without it peers would decide."""

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
    """A pattern on one connection. It overrides the methods for the events that it needs.

    What it does with an event must not depend on how often :meth:`pass_time` was called before: a capture that is read
    in one piece gives the same problems as one that is watched live.
    """

    message: Callable[[Message], None] | None = None  # called with each message
    waits = False  # whether it must know that time passes
    asked_ns: int | None = None  # when the message was sent that waits for an answer, if only one can wait

    def subscription(self, event: Subscription) -> None:
        """Take note of a subscription."""

    def command(self, event: Command) -> None:
        """Take note of a command."""

    def lose(self) -> None:
        """Octets are missing: they may hold what this pattern waits for."""

    def excuse(self, now_ns: int) -> None:
        """What the sides said before ``now_ns`` may be late: their silence until then proves nothing."""

    def pass_time(self, now_ns: int) -> None:
        """It is ``now_ns``: report what should have happened by now."""

    def finish(self, event: Connection, now_ns: int) -> None:
        """The connection or the capture is over, at ``now_ns``: give back all room."""


NO_RULES = Rules()
"""Those of a connection of which no pattern wants to know anything, or not yet; shared, and never changed."""


class Conversation:
    """One connection: its two sockets, and whether the capture has all of it."""

    __slots__ = (
        "blind", "early", "early_octets", "flow", "guesses", "identities", "inference", "is_declared",
        "patience_ns", "pings",        "rules", "types", "websocket",
    )  # fmt: skip

    def __init__(self, flow: int) -> None:
        """Begin with the first greeting."""
        self.flow = flow
        self.types: dict[str, str] = {}  # address to socket type
        self.identities: dict[str, bytes] = {}
        # Events that came before both sides announced their types.
        self.early: list[Message | Subscription | Command] = []
        self.early_octets = 0
        self.blind = False  # octets are missing, so the absence of a message proves nothing
        self.websocket = False
        self.inference: Inference | None = None  # while the socket types are not known, and not announced
        self.guesses: Guesses | None = None  # what they are that did not announce it
        self.patience_ns: int | None = None  # as in the inference that made the guesses
        self.is_declared = False  # the user says which they are
        self.pings: Rules | None = None
        self.rules = NO_RULES

    @property
    def is_guessed(self) -> bool:
        """Whether the socket types are inferred: neither the sockets nor the user gave them."""
        return self.guesses is not None and not self.is_declared

    def part(self) -> None:
        """Break the references back to this object, so that its memory is free at once."""
        for rules in (self.rules, self.pings):
            if rules is not None and rules.message is not None:
                rules.message = None
        self.rules = NO_RULES
        self.pings = None
        self.inference = None
