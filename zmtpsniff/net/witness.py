"""What connections show below their octets: whether anybody answered, and whether a receiver stopped taking.

This is told of every TCP connection, whatever it speaks: where nobody answers, nobody knows what would be spoken.
"""

from typing import Literal, NamedTuple, Protocol

Outcome = Literal["accepted", "refused", "silent"]
# Unheard: what the receiver acknowledged is sent again all the same, so the acknowledgments do not reach the sender.
Cause = Literal["window", "unacknowledged", "unheard"]


class Attempt(NamedTuple):
    """A TCP connection that somebody tried to make."""

    outcome: Outcome  # refused: a RST answered the SYN; silent: nothing did
    flow: int
    client: str  # address and port
    server: str
    syns: int  # of the client, at least
    first_ns: int  # when the first one was captured, and the last packet of the attempt
    last_ns: int
    packet: int  # the number of that last packet
    answer_ns: int | None = None  # how long the answer to the SYN took


class Stall(NamedTuple):
    """A receiver let its peer wait: its TCP window was closed, it acknowledged nothing, or that never arrived."""

    flow: int
    receiver: str  # address and port
    sender: str
    cause: Cause
    since_ns: int  # when the window closed, or octets were sent again first
    until_ns: int  # when it went on, or the last packet of the connection
    packet: int  # the packet that closed the window, or was sent again first
    attempts: int  # of the sender to go on: probes of the window, copies of the same octets
    is_open: bool  # it went on


class Pause(NamedTuple):
    """For a while no packet of a flow came."""

    flow: int
    sender: str  # of the packet that ended it: address and port
    until_ns: int  # when that came
    sender_acked_ns: int  # when its sender acknowledged octets last, without sending any; 0: never
    receiver_acked_ns: int  # when the receiver did
    resends: bool = False  # the packet that ended it has octets that came before: the network may have lost them


class Witness(Protocol):
    """Who wants to know."""

    def attempt(self, attempt: Attempt, /) -> None:
        """A TCP connection was tried; told once its outcome is known."""

    def stall(self, stall: Stall, /) -> None:
        """A receiver let its peer wait for a while; told once it is over, or the connection is."""

    def pause(self, pause: Pause, /) -> None:
        """Nothing came for a while."""
