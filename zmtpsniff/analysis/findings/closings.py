"""Connections that are closed when they should not be: message-cut, unsent-at-end, handshake-timer.

Theory
------

A program that ends takes what its sockets still queue with it, unless it waits (ZMQ_LINGER). The wire does not show
what was queued. But if libzmq had to stop in the middle of a message, since the receiver had no room for all of it, the
connection ends inside that message: then messages are lost for certain. If the receiver closes, the sender did nothing
wrong: what was under way to it is lost with any connection that a receiver closes.

Where the receiver had no room, and the sender still asked for it when the connection ended, its kernel had octets that
were never sent. Whoever closed then lost them: a sender that reset the connection, or a receiver that was behind. So
it is where the receiver was behind before, and closes in the middle of a message. The kernel of a program that closes
in peace goes on asking, so that only the end by the receiver shows. A subscriber may leave when it likes; a client that
leaves loses its own replies, which is a note. Octets that were sent and never acknowledged may have arrived all the
same: that is a note, too.

A peer must end its handshake within ZMQ_HANDSHAKE_IVL, 30 s. libzmq 4.3.3 and its like forget to stop that timer where
the other side speaks ZMTP 1.0 or 2.0, so that they close each such connection after 30 s, whatever passes on it.
"""

from collections.abc import Iterable

import msgspec

from dissectors.address import host_of
from dissectors.events import Connection, Peer, Problem
from dissectors.zmtp.sockets import SUBSCRIBERS
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.net.witness import Stall
from zmtpsniff.words.counts import again, often, plural
from zmtpsniff.words.durations import about

_CUTS = frozenset({"truncated-frame", "truncated-message"})
_TIMER_NS = (29_900_000_000, 31_000_000_000)  # from the SYN to the last packet, with the way there and back
_WORKERS = frozenset({"PULL", "ROUTER", "REP", "SERVER", "GATHER"})  # whoever else leaves loses only what is its own
_SURE = 3  # connections that end so


class _Closed(msgspec.Struct, eq=False):
    """Connections between the same two that were closed in the same way, in the words for the last of them."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    summary: str = ""
    known: str = ""
    endpoints: tuple[str, ...] = ()
    is_note: bool = False


class Closings(Inquiry):
    """How connections are closed."""

    def __init__(self) -> None:
        """Start without any."""
        self._unfinished: Ledger[tuple[int, str], Problem] = Ledger()  # sides that end in a message
        self._waiting: Ledger[tuple[int, str], Stall] = Ledger()  # senders that waited to the end
        self._behind: Ledger[tuple[int, str], None] = Ledger()  # receivers that lost what waited for them
        self._closed: Ledger[tuple[str, str, str], _Closed] = Ledger(_Closed)  # by finding and the names of both

    def problem(self, event: Problem) -> None:
        """A side ended inside a message."""
        if event.code in _CUTS and event.flow is not None and event.src is not None:
            self._unfinished[event.flow, event.src] = event

    def stall(self, stall: Stall) -> None:
        """A sender waited; if its connection is not over by that, for room."""
        if stall.cause == "window" or (not stall.is_open and stall.cause == "unacknowledged"):
            self._waiting[stall.flow, stall.sender] = stall

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Learn who closed a connection."""
        sides = [(event.flow, one.address) for one in (event.client, event.server)]
        cuts = [self._unfinished.pop(side, None) for side in sides]
        stalls = [self._waiting.pop(side, None) for side in sides]
        if event.closed_by is None or not event.is_closed or dossier is None or dossier.blind:
            return
        is_server = event.closed_by == "server"
        cut = cuts[is_server]
        closer, other = event.client, event.server
        if is_server:
            closer, other = other, closer
        first, second = (one.address if one is event.server else host_of(one.address) for one in (closer, other))
        if cut is None:
            for stall, is_cut in zip(stalls, cuts, strict=True):
                if stall is not None and (not stall.is_open or is_cut):
                    self._see_unsent(event, closer, other, stall)
        else:
            closed = self._closed.at(("message-cut", first, second))
            closed.summary = f"{_named(closer)} closed its connection to {second} in the middle of a message"
            closed.known, closed.endpoints = cut.detail, (closer.address, second)
            closed.seen.add(event.end_ns, cut.packet, event.flow)
        lasted_ns = event.end_ns - event.start_ns
        if (
            event.handshake == "complete"
            and other.version in ("1.0", "2.0")
            and (closer.version is None or closer.version.startswith("3"))
            and _TIMER_NS[0] <= lasted_ns <= _TIMER_NS[1]
        ):
            closed = self._closed.at(("handshake-timer", first, second))
            closed.summary = f"{first} closes its connection to {second} 30 s after it was made"
            closed.known = f"{second} speaks ZMTP {other.version}, the handshake was done, and {first} closes first"
            closed.endpoints = first, second
            closed.seen.add(event.end_ns, dossier.packet, event.flow)

    def _see_unsent(self, event: Connection, closer: Peer, other: Peer, stall: Stall) -> None:
        """A connection ended while one side waited for the other one."""
        by_receiver, had_room = stall.receiver == closer.address, stall.cause != "window"
        if by_receiver and (closer.socket_type in SUBSCRIBERS or had_room):
            return
        lasted, probes = about(stall.until_ns - stall.since_ns), plural(stall.attempts, "probe")
        if had_room:
            how = "before its last octets were acknowledged"
            known = f"it sent them again, {often(stall.attempts)} in {lasted}, and then it closed"
        elif stall.is_open:
            how = f"in the middle of a message that {other.address} was sending"
            known = f"its TCP window had been closed for {lasted}, and {probes} did not open it"
        else:
            how = f"while {stall.sender if by_receiver else 'it'} waited to send more"
            known = f"the TCP window of {stall.receiver} had been closed for {lasted}, and {probes} did not open it"
        closed = self._closed.at(("unsent-at-end", host_of(closer.address), host_of(other.address)))
        closed.summary = f"{_named(closer)} closed its connection to {other.address} {how}"
        closed.known, closed.endpoints = known, (closer.address, other.address)
        closed.is_note = had_room or (by_receiver and closer.socket_type not in _WORKERS)
        closed.seen.add(event.end_ns, stall.packet, event.flow)
        if by_receiver and not closed.is_note:
            self._behind[event.flow, stall.receiver] = None

    def tells_of(self, flow: int, receiver: str) -> bool:
        """Whether a finding says that a receiver closed a connection while messages waited for it."""
        return (flow, receiver) in self._behind

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Connections that ended too early."""
        for (code, _, _), closed in self._closed.items():
            yield Claim(
                code,
                closed.summary + again(closed.seen.count),
                closed.known,
                closed.seen,
                closed.endpoints,
                "note" if closed.is_note else None,
                "likely" if code == "handshake-timer" and closed.seen.count < _SURE else "certain",
            )


def _named(peer: Peer) -> str:
    return f"the {peer.type_name or 'peer'} at {peer.address}"
