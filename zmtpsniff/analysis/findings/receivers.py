"""Receivers that take messages more slowly than they come, or not at all: subscriber-slow.

TCP says so itself (:mod:`zmtpsniff.net.stalls`). A program that does not receive lets its queue (ZMQ_RCVHWM) fill,
then the buffer of its kernel, and then the window is closed: the sender must wait, and asks again and again whether it
may go on. Where octets are not even acknowledged, the receiver's host is gone, or the network loses them.

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
_UNREACHED = (
    "Its program may be healthy: look at its host, which may be down or asleep, and at the network between the two, "
    "which may lose packets. ZMQ_HEARTBEAT_IVL ends such a connection sooner. Until then PUB queues up to ZMQ_SNDHWM "
    "messages for it and drops the rest."
)


class _Receiver:
    """The stalls of one side of a connection, of one cause."""

    __slots__ = ("attempts", "is_open", "seen", "sender", "total_ns")

    def __init__(self) -> None:
        self.seen = Occurrences()
        self.sender = ""
        self.attempts = 0  # to go on
        self.total_ns = 0
        self.is_open = True  # whether it went on in the end


class Receivers(Inquiry):
    """Receivers that stop for a while."""

    def __init__(self) -> None:
        """Start without any."""
        self._full: Ledger[tuple[int, str], _Receiver] = Ledger(_Receiver)
        self._unreached: Ledger[tuple[int, str], _Receiver] = Ledger(_Receiver)
        self._kinds: dict[tuple[int, str], str] = {}  # of those that stopped
        self._inferred: set[tuple[int, str]] = set()  # of these, whose types were inferred

    def stall(self, stall: Stall) -> None:
        """Count a stall."""
        lasted_ns = stall.until_ns - stall.since_ns
        if stall.cause == "unacknowledged" and lasted_ns < _LEAST_NS:
            return  # a network that loses packets now and then
        ledger = self._full if stall.cause == "window" else self._unreached
        receiver = ledger.at((stall.flow, stall.receiver))
        receiver.sender = stall.sender
        receiver.attempts += stall.attempts
        receiver.total_ns += lasted_ns
        receiver.is_open = stall.is_open
        receiver.seen.add(stall.since_ns, stall.packet, stall.flow)

    def end(self, contact: Contact | None, event: Connection, until_ns: int) -> None:
        """Learn which types the sockets have that stopped."""
        for peer in (event.client, event.server):
            key = event.flow, peer.address
            if contact is None or contact.blind:
                self._unreached.entries.pop(key, None)  # the acknowledgments may be what the capture lacks
            if key in self._full.entries or key in self._unreached.entries:
                self._kinds[key] = peer.type_name or "receiver"
                if peer.inferred:
                    self._inferred.add(key)

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Those that stopped for long."""
        for key, receiver in self._full.entries.items():
            kind = self._kinds.get(key)
            if kind is None or receiver.total_ns < _LEAST_NS:
                continue  # of another protocol, or only for a moment
            did = "takes messages too slowly" if receiver.is_open else "stopped taking messages"
            known = f"its TCP window was closed, {times(receiver.seen.count, 'time')}, while there was more to send"
            yield _claim(key[1], kind, receiver, did, known + self._remark(key))
        for key, receiver in self._unreached.entries.items():
            kind = self._kinds.get(key)
            if kind is None:
                continue
            did = "acknowledged nothing for a while" if receiver.is_open else "acknowledges nothing any more"
            known = f"the same octets were sent again {times(receiver.attempts, 'time')} before it acknowledged them"
            if not receiver.is_open:
                known = f"the same octets were sent again {times(receiver.attempts, 'time')}, and never acknowledged"
            yield _claim(key[1], kind, receiver, did, known + self._remark(key), _UNREACHED)

    def _remark(self, key: tuple[int, str]) -> str:
        return f"; that it is a {self._kinds[key]} is inferred from its messages" if key in self._inferred else ""


def _claim(address: str, kind: str, receiver: _Receiver, did: str, known: str, advice: str | None = None) -> Claim:
    severity: Severity | None = None if kind in SUBSCRIBERS else "note"
    return Claim(
        "subscriber-slow",
        f"the {kind} at {address} {did}: {receiver.sender} waited {span(receiver.total_ns)} for it",
        known,
        receiver.seen,
        [address, receiver.sender],
        severity,
        advice=advice,
        subject=address,
    )
