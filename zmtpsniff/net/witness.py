"""Facts that connections show below their octets: whether a SYN was answered, whether a receiver took octets.

The flow table reports this of every TCP connection, whatever its protocol: if nobody answers, nobody knows the
protocol.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Protocol

from zmtpsniff.words.set_clocks import ForwardJumps

Outcome = Literal["accepted", "refused", "silent", "before"]
# Unheard: octets that the receiver acknowledged are sent again, so its acknowledgments do not reach the sender.
# Moment: the window was closed for so short a time that nobody probed it, and the sender went on as soon as it opened.
Cause = Literal["window", "moment", "unacknowledged", "unheard"]


class Attempt(NamedTuple):
    """A TCP connection that somebody tried to make."""

    # Refused: a RST answered the SYN; silent: nothing did; before: it was accepted before the capture began. Then
    # nobody knows which of the two sides connected.
    outcome: Outcome
    flow: int  # 0: none, since the capture lacks the SYN
    client: str  # address and port
    server: str
    syns: int  # SYNs of the client, at least; 0: the capture has none
    first_ns: int  # when the first SYN, or that RST, was captured; below: the last packet of the attempt
    last_ns: int
    packet: int  # the number of that last packet
    answer_ns: int | None = None  # how long the answer to the SYN took


class Stall(NamedTuple):
    """A receiver let its peer wait: its window was closed, it acknowledged nothing, or the network lost that."""

    flow: int
    receiver: str  # address and port
    sender: str
    cause: Cause
    since_ns: int  # when the window closed, or the sender first sent octets again
    until_ns: int  # when the receiver went on, or the last packet of the connection
    packet: int  # the packet that closed the window, or the first that was sent again
    attempts: int  # attempts of the sender to go on: probes of the window, copies of the same octets
    is_open: bool  # the receiver went on


class Pause(NamedTuple):
    """For a while no packet of a flow came."""

    flow: int
    sender: str  # of the packet that ended the pause: address and port
    since_ns: int  # when the packet before it came
    until_ns: int  # when that packet came
    sender_acked_ns: int  # when its sender last acknowledged octets without sending any; 0: never
    receiver_acked_ns: int  # when the receiver did
    resent: int | None = None  # octets that came again ended it, which the network may have lost: their stream offset


Acknowledgment = tuple[int, int, str, int]  # as NamedTuple it would take most of the time
"""A receiver says how many octets of a stream have come.

When, of which flow, the address and port of the sender of the octets, and the stream offset behind the last one.
"""

Acknowledge = Callable[[Iterable[Acknowledgment]], None]
"""Hears what receivers acknowledge, before the events of the same packets come."""


class Witness(Protocol):
    """Whom the flow table reports to."""

    jumps: ForwardJumps
    """Those of the clock of the capture, which become known meanwhile. All that it hears has times without them."""

    def attempt(self, attempt: Attempt, /) -> None:
        """Take an attempt to connect; called once the outcome is known."""

    def stall(self, stall: Stall, /) -> None:
        """A receiver let its peer wait for a while. Called once the wait, or the connection, is over."""

    def pause(self, pause: Pause, /) -> None:
        """No packet of a connection came for a while."""


class Witnesses:
    """Several witnesses that hear the same."""

    def __init__(self, *witnesses: Witness) -> None:
        """Pass each report on to all ``witnesses``."""
        self._witnesses = witnesses
        self.jumps = ForwardJumps()
        for witness in witnesses:
            witness.jumps = self.jumps

    def attempt(self, attempt: Attempt) -> None:
        """As that of Witness."""
        for witness in self._witnesses:
            witness.attempt(attempt)

    def stall(self, stall: Stall) -> None:
        """As that of Witness."""
        for witness in self._witnesses:
            witness.stall(stall)

    def pause(self, pause: Pause) -> None:
        """As that of Witness."""
        for witness in self._witnesses:
            witness.pause(pause)
