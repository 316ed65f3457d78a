"""The state that all patterns share for one connection while it lasts."""

from collections.abc import Callable

import msgspec

from dissectors.events import Command, Connection, Message, Subscription
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.patterns.inference import Inference


def can_know(event: Message | Command, offset: int) -> bool:
    """Whether the sender of an event can have seen an event of the other side whose octets begin at ``offset``.

    A sender can have seen no more than it had acknowledged. If that is unknown, it can have seen everything.
    """
    return event.seen > offset


def latency_ns(answer: Message | Command, asked_ns: int) -> int | None:
    """The nanoseconds from a question to its answer, as captured; None if the capture has the answer first."""
    latency = answer.time_ns - asked_ns
    return latency if latency >= 0 else None


class Room(msgspec.Struct, eq=False):
    """The octets that patterns may remember for all connections together; without it peers would decide."""

    left: int = 32 << 20

    def take(self, octets: int) -> bool:
        """Take a part, if so much is left."""
        if octets > self.left:
            return False
        self.left -= octets
        return True

    def give(self, octets: int) -> None:
        """Give a part back."""
        self.left += octets


class RoomShare:
    """The part of the room that one pattern on one connection has."""

    def __init__(self, room: Room, cost: int = 1) -> None:
        """Nothing is taken yet; each thing that is remembered takes ``cost`` octets."""
        self._room = room
        self._cost = cost
        self.held = 0

    def hold(self, things: int) -> bool:
        """Have room for so many things, and no more. False if there is not enough: then all stays as it is."""
        more = (things - self.held) * self._cost
        if more > 0 and not self._room.take(more):
            return False
        if more < 0:
            self._room.give(-more)
        self.held = things
        return True


class Rules:
    """A pattern on one connection. It overrides the methods for the events that it needs.

    The response to an event must not depend on how often :meth:`pass_time` was called before: a capture that is read
    in one piece gives the same problems as one that is watched live.
    """

    message: Callable[[Message], None] | None = None  # called with each message
    waits = False  # whether it must know that time passes
    asked_ns: int | None = None  # when the message was sent that waits for an answer, if only one can wait

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing can happen before the next event of the connection, so that its facts may be put aside."""
        return not self.waits

    def subscription(self, event: Subscription) -> None:
        """Take note of a subscription."""

    def command(self, event: Command) -> None:
        """Take note of a command."""

    def lose(self) -> None:
        """Octets are missing: they may hold what this pattern waits for."""

    def excuse(self, now_ns: int) -> None:
        """Events from before ``now_ns`` may be late: silence until then proves nothing."""

    def pass_time(self, now_ns: int) -> None:
        """It is ``now_ns``: report what should have happened by now."""

    def finish(self, event: Connection, now_ns: int) -> None:
        """The connection or the capture is over, at ``now_ns``: give back all room."""


NO_RULES = Rules()
"""Those of a connection of which no pattern wants to know anything, or not yet; shared, and never changed."""


class Conversation(msgspec.Struct, eq=False):
    """The state of patterns for one connection: its rules, and what came before they were known."""

    dossier: Dossier
    is_odd: bool = False  # pairs of its messages often need a closer look than columns give
    early_octets: int = 0  # of its early events
    inference: Inference | None = None  # while the socket types are not known, and not announced
    patience_ns: int | None = None  # as in the inference that made the guesses
    pings: Rules | None = None
    rules: Rules = NO_RULES

    @property
    def awaits_types(self) -> bool:
        """Whether a side may still announce its type. Where the capture begins late, none does."""
        return len(self.dossier.types) < 2 and self.inference is None

    def part(self) -> None:
        """Break the references back to this object, so that its memory is free at once."""
        for rules in (self.rules, self.pings):
            if rules is not None and rules.message is not None:
                rules.message = None
        self.rules = NO_RULES
        self.pings = None
        self.inference = None
