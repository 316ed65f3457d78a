"""Receivers that take messages more slowly than they come: subscriber-slow.

TCP says so itself. A receiver announces with each segment how many octets it has room for. A program that does not
receive lets first its queue (ZMQ_RCVHWM) fill, then the buffer of its kernel, and then the window is closed: the sender
must wait, and asks again and again whether it may go on. A window that is closed while nobody waits means nothing.

What that does depends on the sockets. A publisher queues up to ZMQ_SNDHWM messages for the slow subscriber and drops
the rest, so this is a warning. PUSH, DEALER and the like wait, as they are meant to: a note.
"""

from collections.abc import Iterable

from dissectors.events import Connection, Severity
from dissectors.zmtp.sockets import SUBSCRIBERS
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Contact, Inquiry, Ledger, span, times
from zmtpsniff.net.witness import Stall

_LEAST_NS = 1_000_000_000


class _Receiver:
    """The stalls of one side of a connection."""

    __slots__ = ("is_open", "seen", "sender", "total_ns")

    def __init__(self) -> None:
        self.seen = Occurrences()
        self.sender = ""
        self.total_ns = 0
        self.is_open = True  # whether it went on in the end


class Receivers(Inquiry):
    """Receivers that stop for a while."""

    def __init__(self) -> None:
        """Start without any."""
        self._receivers: Ledger[tuple[int, str], _Receiver] = Ledger(_Receiver)
        self._kinds: dict[tuple[int, str], str] = {}  # of those that stopped

    def stall(self, stall: Stall) -> None:
        """Count a stall."""
        receiver = self._receivers.at((stall.flow, stall.receiver))
        receiver.sender = stall.sender
        receiver.total_ns += stall.until_ns - stall.since_ns
        receiver.is_open = stall.is_open
        receiver.seen.add(stall.since_ns, stall.packet, stall.flow)

    def end(self, contact: Contact | None, event: Connection, until_ns: int) -> None:
        """Learn which types the sockets have that stopped."""
        for peer in (event.client, event.server):
            if (event.flow, peer.address) in self._receivers.entries:
                self._kinds[event.flow, peer.address] = peer.socket_type or "receiver"

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Those that stopped for long."""
        for key, receiver in self._receivers.entries.items():
            kind = self._kinds.get(key)
            if kind is None or receiver.total_ns < _LEAST_NS:
                continue  # of another protocol, or only for a moment
            _, address = key
            seen = receiver.seen
            lasted = span(receiver.total_ns)
            if receiver.is_open:
                summary = f"the {kind} at {address} takes messages too slowly: {receiver.sender} waited {lasted} for it"
            else:
                summary = f"the {kind} at {address} stopped taking messages: {receiver.sender} waited {lasted} for it"
            known = f"its TCP window was closed, {times(seen.count, 'time')}, while there was more to send"
            severity: Severity | None = None if kind in SUBSCRIBERS else "note"
            yield Claim("subscriber-slow", summary, known, seen, [address, receiver.sender], severity, subject=address)
