"""Finds the side that lets the other one wait, by what TCP shows: stalls and pauses.

Theory
------

A receiver says with each segment how many octets it has room for. When its program takes nothing, the room ends: the
window is closed. A sender that has more to send then probes, again and again. The first probe comes after 200 ms or
later. If the window opens before, only what follows shows that somebody waited: octets that come at once. Else nobody
did.

A receiver's kernel acknowledges what comes, whatever its program does. If it does not, its host is gone or asleep, or
the network loses packets. The sender then sends the same octets again, each time after a longer pause, until they are
acknowledged. One copy proves little, since a capture point may see a packet twice. So a stall needs several copies. If
octets come again after they were acknowledged, the sender does not know of the acknowledgment: the network loses the
receiver's packets after the capture point, or a second point saw the octets by another clock.

The host of a service acknowledges a request when its octets arrive. The time from then until the reply passes in the
service. So at the end of a pause the witness gets the last acknowledgments of both sides. It also learns whether the
pause ended with octets that had come before, since the network may have lost these.
"""

import msgspec

from zmtpsniff.net.addresses import addresses
from zmtpsniff.net.flow import Flow, FlowDirection
from zmtpsniff.net.reassembly import distance
from zmtpsniff.net.segment import ACK, CLOSED, FIN, RST, SYN, Segment
from zmtpsniff.net.witness import Cause, Pause, Stall, Witness

PAUSE_NS = 50_000_000  # no packet of a flow came for so long; acknowledgments come at most 40 ms later (Linux)
_LEAST_COPIES = 3  # copies of the same octets, beside the first: so many take at least a second
_MOMENT_NS = 5_000_000  # a shorter time costs little, and so soon after it the sender goes on if it waited
_AGAIN_NS = 100_000_000  # a sender waits longer before it sends again; a capture point may see one packet several times


class _ClosedWindow(msgspec.Struct, eq=False):
    """A window that is closed."""

    since_ns: int
    packet: int
    probes: int = 0  # of the other side, which has something to send
    open_ns: int = 0  # when it opened


class _Retransmission(msgspec.Struct, eq=False):
    """Octets that were sent again: nobody acknowledged them, or the acknowledgment did not arrive."""

    begin: int  # the sequence number of the first of them
    since_ns: int  # when they came again first
    last_ns: int  # the last time
    packet: int
    copies: int = 1
    is_acknowledged: bool = False
    unheard: int = 0  # copies that came after that


class WaitWatch:
    """Looks at segments of flows. Tells a witness of each stall and each pause once it is over."""

    def __init__(self, witness: Witness) -> None:
        """Tell ``witness``."""
        self._witness = witness
        self._closed: dict[bytes, _ClosedWindow] = {}  # by the key of the receiver's direction
        self._opened: dict[bytes, _ClosedWindow] = {}  # likewise: those that nobody probed, until the sender goes on
        self._resent: dict[bytes, _Retransmission] = {}  # likewise

    def see(self, direction: FlowDirection, segment: Segment) -> None:
        """Look at a segment of a direction that is looked at closely, before its flow takes the time from it.

        Look at every segment of a flow that is watched, and of any other flow at the first one after a pause.
        """
        self._see_pause(direction, segment)
        if segment[5] & (SYN | RST | FIN):
            return
        self._see_window(direction, segment)
        self._see_copy(direction, segment)

    def end(self, flow: Flow) -> None:
        """A flow is over: who still waits waited until now."""
        for direction in flow.directions:
            if direction.key in self._closed:
                self._tell_window(direction, flow.last_ns, is_open=False)
            self._opened.pop(direction.key, None)
            if direction.key in self._resent:
                self._tell_copies(direction, flow.last_ns, is_open=False)

    def _watch(self, flow: Flow) -> None:
        keys = [end.key for end in flow.directions]
        flow.watched = any(key in watched for watched in (self._closed, self._opened, self._resent) for key in keys)
        flow.attend()

    def _see_pause(self, direction: FlowDirection, segment: Segment) -> None:
        """Take note of an acknowledgment without octets, and of a pause that is over."""
        time_ns, key, payload = segment[0], segment[2], segment[6]
        flow = direction.flow
        if not payload:
            direction.acked_ns = time_ns
        if time_ns - flow.last_ns >= PAUSE_NS and not flow.unwanted:
            sender, _ = addresses(key)
            ahead = distance(segment[3], direction.next) if len(payload) > 1 and direction.next is not None else 0
            resent: int | None = direction.offset + ahead
            if ahead >= 0 or direction.is_acknowledged_to(direction.offset + ahead + len(payload)):
                resent = None
            acked = direction.acked_ns, direction.other.acked_ns
            self._witness.pause(Pause(flow.number, sender.text, flow.last_ns, time_ns, *acked, resent))

    def _see_window(self, direction: FlowDirection, segment: Segment) -> None:
        """Take note of a window that closes or opens, and of a sender that waits for it."""
        time_ns, packet, key, seq, _, flags, payload, _ = segment
        if len(payload) > 1 and direction.other.key in self._opened:
            self._go_on(direction.other, time_ns)
        theirs = self._closed.get(direction.other.key)
        if theirs is not None:
            if len(payload) > 1:
                self._open(direction.other, time_ns)
            elif payload or (direction.next is not None and distance(seq, direction.next) == -1):
                theirs.probes += 1  # RFC 9293, section 3.8.6.1
        if not flags & CLOSED:
            if key in self._closed:
                self._open(direction, time_ns)
        elif key not in self._closed:
            self._opened.pop(key, None)
            self._closed[key] = _ClosedWindow(time_ns, packet)
            self._watch(direction.flow)

    def _open(self, direction: FlowDirection, time_ns: int) -> None:
        closed = self._closed[direction.key]
        if not closed.probes and time_ns - closed.since_ns >= _MOMENT_NS:
            closed.open_ns = time_ns
            self._opened[direction.key] = closed
        self._tell_window(direction, time_ns, is_open=True)
        self._watch(direction.flow)

    def _go_on(self, direction: FlowDirection, time_ns: int) -> None:
        """The other side sends octets after the window opened: at once, if it had waited."""
        opened = self._opened.pop(direction.key)
        if time_ns - opened.open_ns <= _MOMENT_NS:
            self._tell("moment", direction, opened.since_ns, opened.open_ns, opened.packet, 0, is_open=True)
        self._watch(direction.flow)

    def _see_copy(self, direction: FlowDirection, segment: Segment) -> None:
        """Take note of octets that are sent again, and of their acknowledgment."""
        time_ns, packet, key, seq, ack, flags, payload, _ = segment
        mine = self._resent.get(key)
        if mine is not None and flags & ACK and distance(ack, mine.begin) > 0 and not mine.is_acknowledged:
            mine.is_acknowledged = True
            if mine.copies >= _LEAST_COPIES:
                self._end_copies(direction, time_ns)
        if len(payload) < 2 or direction.next is None:
            return
        receiver = direction.other
        theirs = self._resent.get(receiver.key)
        if distance(seq, direction.next) >= 0:  # new octets: the sender knows that the others are there
            if theirs is not None and theirs.is_acknowledged:
                self._end_copies(receiver, time_ns)
        elif theirs is None or (theirs.is_acknowledged and seq != theirs.begin):
            if theirs is not None:
                self._end_copies(receiver, time_ns)
            self._resent[receiver.key] = _Retransmission(seq, time_ns, time_ns, packet)
            self._watch(direction.flow)
        elif theirs.is_acknowledged:
            theirs.unheard += time_ns - theirs.last_ns >= _AGAIN_NS
            theirs.last_ns = time_ns
        elif distance(seq, theirs.begin) <= 0:  # the first copy may have been a probe with the last octets (RFC 8985)
            theirs.begin = seq
            theirs.copies += 1
            theirs.last_ns = time_ns

    def _end_copies(self, direction: FlowDirection, time_ns: int) -> None:
        self._tell_copies(direction, time_ns, is_open=True)
        self._watch(direction.flow)

    def _tell_window(self, direction: FlowDirection, until_ns: int, *, is_open: bool) -> None:
        closed = self._closed.pop(direction.key)
        if closed.probes:
            self._tell("window", direction, closed.since_ns, until_ns, closed.packet, closed.probes, is_open)

    def _tell_copies(self, direction: FlowDirection, until_ns: int, *, is_open: bool) -> None:
        resent = self._resent.pop(direction.key)
        if not direction.seen:
            return  # one direction only is in the capture
        since_ns, packet = resent.since_ns, resent.packet
        if resent.unheard >= _LEAST_COPIES:
            self._tell("unheard", direction, since_ns, until_ns, packet, resent.unheard, is_open)
        elif resent.copies >= _LEAST_COPIES:
            self._tell("unacknowledged", direction, since_ns, until_ns, packet, resent.copies, is_open)

    def _tell(
        self,
        cause: Cause,
        direction: FlowDirection,
        since_ns: int,
        until_ns: int,
        packet: int,
        attempts: int,
        is_open: bool,
    ) -> None:
        receiver, sender = (address.text for address in addresses(direction.key))
        flow = direction.flow.number
        self._witness.stall(Stall(flow, receiver, sender, cause, since_ns, until_ns, packet, attempts, is_open))
