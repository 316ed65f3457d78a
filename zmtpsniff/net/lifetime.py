"""Which connection a segment belongs to, where several have the same addresses one after the other.

Theory
------

Ports are used again, and packets of two connections on the same addresses may come in any order. A segment belongs to
the connection whose sequence numbers are near those of the segment (RFC 9293, section 3.4). Anybody can forge one
packet, so one packet proves little:

- A SYN with other numbers, on a connection that is in use, is *pending*. It begins a connection once another segment
  continues it, or once octets that came before it stand where it says that its stream begins.
- A segment with far numbers is *doubtful*. If another segment agrees with it, both stand behind a large hole, or both
  belong to a connection whose SYNs the capture lacks.
- A segment on the addresses of a connection that is over is late, unless its numbers are far.

The functions here decide. They change no flow, but for the segments that it holds: they take out or forget those of
another connection. The table of flows acts on what they return.
"""

from collections.abc import Sequence
from typing import NamedTuple

from zmtpsniff.net.flow import Flow, FlowDirection
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.reassembly import MODULO, WINDOW, distance
from zmtpsniff.net.segment import ACK, RST, SYN, Segment, packet_of
from zmtpsniff.words.durations import nanoseconds
from zmtpsniff.words.set_clocks import SET_BACK_NS

_FASTEST = 2  # octets a nanosecond: no network sends faster
_LARGEST_HOLE = 1 << 30  # octets: numbers that are further ahead belong to another connection
_STILL_SENT = 1 << 16  # octets beyond the known ones that a flow may still send when another follows it


class SilenceLimits:
    """How long flows may be silent before later segments on their addresses begin others."""

    def __init__(self, limits: FlowLimits) -> None:
        """Within ``limits``."""
        self.linger_ns = nanoseconds(limits.linger_seconds)
        self._idle_ns = nanoseconds(limits.idle_seconds)
        self._idle_unknown_ns = min(self._idle_ns, nanoseconds(limits.idle_seconds_unknown))
        self.least_ns = min(self.linger_ns, self._idle_unknown_ns)
        """No flow is over after a shorter silence."""

    def longest_ns(self, flow: Flow) -> int:
        """How long a flow may be silent."""
        if flow.ended or flow.closing:
            return self.linger_ns
        return self._idle_ns if flow.dissection is not None else self._idle_unknown_ns

    def is_over(self, flow: Flow, now_ns: int) -> bool:
        """Whether a flow can be forgotten at ``now_ns``; also one that ended before its clock was set back."""
        return self.is_too_long(flow, now_ns) or (flow.ended and flow.last_ns - now_ns > SET_BACK_NS)

    def is_too_long(self, flow: Flow, now_ns: int) -> bool:
        """Whether a flow has been silent for so long that segments at ``now_ns`` begin another."""
        silent_ns = now_ns - flow.last_ns
        return silent_ns > self.least_ns and silent_ns > self.longest_ns(flow)


class Succession(NamedTuple):
    """The segments by which another connection follows on the addresses of a flow."""

    syns: list[Segment]  # which began it
    segments: list[Segment]  # which the old flow held, and which may belong to it


class FarSegment(NamedTuple):
    """The verdict on a segment whose numbers are far from all known ones."""

    offset: int | None = None  # where it stands in its stream; None to leave it out
    confirmed: Sequence[Segment] = ()  # doubtful segments that stand behind the same hole
    successor: Sequence[Segment] = ()  # the segments of another connection; empty if nothing proves one


def continues(syn: Segment, number: int) -> bool:
    """Whether a sequence number is one that follows a SYN, or the octets that came with it."""
    return (number - syn[3] - 1) % MODULO <= len(syn[6])


def agree(segment: Segment, other: Segment) -> bool:
    """Whether two segments, of any directions, belong to one connection by their numbers."""
    if segment[2] == other[2]:
        return segment[3] != other[3] and abs(distance(segment[3], other[3])) <= WINDOW
    return abs(distance(segment[4], other[3])) <= WINDOW and abs(distance(segment[3], other[4])) <= WINDOW


def is_of_another(direction: FlowDirection, segment: Segment) -> bool:
    """Whether a segment, by its numbers, belongs to another connection than one that is over."""
    _, _, _, seq, ack, flags, _, _ = segment
    other = direction.other
    if direction.is_far(seq) or not flags & ACK:
        return direction.is_far(seq)
    return other.is_far(ack) or (direction.is_ahead(seq, _STILL_SENT) and other.is_ahead(ack, _STILL_SENT))


def begins_another(direction: FlowDirection, syn: Segment) -> bool:
    """Whether a SYN begins another connection, by its own numbers or by those of segments gathered before it."""
    _, _, _, seq, ack, flags, _, _ = syn
    if direction.begins_another(seq, ack, bool(flags & ACK)):
        return True
    if not direction.flow.early:
        return False
    mine, theirs = direction.gathered, direction.other.gathered
    if mine is not None and not 0 <= distance(mine, seq) <= WINDOW:
        return True
    return bool(flags & ACK) and theirs is not None and abs(distance(theirs, ack)) > WINDOW


def has_successor(direction: FlowDirection, segment: Segment) -> bool:
    """Whether a segment proves that an earlier SYN, which did not fit, began another connection."""
    _, _, _, seq, ack, flags, _, _ = segment
    other = direction.other
    syn, answered = direction.pending, other.pending
    if flags & RST:
        return False
    if flags & SYN:  # one of two SYNs answers the other
        return answered is not None and bool(
            continues(answered, ack) if flags & ACK else answered[5] & ACK and continues(segment, answered[4])
        )
    if answered is not None and flags & ACK and continues(answered, ack) and other.is_beyond(ack):
        return True
    return (  # the capture lacks its answer
        syn is not None
        and continues(syn, seq)
        and (direction.is_beyond(seq) or (bool(flags & ACK) and other.is_beyond(ack)))
    )


def succession(direction: FlowDirection, segment: Segment) -> Succession:
    """The pending SYNs that a segment continues, answers or is itself, and the segments that the old flow gives up."""
    _, _, _, seq, ack, flags, _, _ = segment
    other = direction.other
    isns = [seq if flags & SYN else None, (ack - 1) % MODULO if flags & SYN and flags & ACK else None]
    syns: list[Segment] = []
    if (syn := direction.pending) is not None and (syn is segment or (not flags & SYN and continues(syn, seq))):
        syns.append(syn)
        isns[0] = syn[3]
        if syn[5] & ACK:
            isns[1] = (syn[4] - 1) % MODULO
    if (syn := other.pending) is not None and (
        continues(syn, ack) if flags & ACK else syn[5] & ACK and continues(segment, syn[4])
    ):
        syns.append(syn)
        isns[1] = syn[3]
        if syn[5] & ACK:
            isns[0] = (syn[4] - 1) % MODULO
    if isns[0] is None:
        assert isns[1] is not None
        segments = separate(other, isns[1], None, [seq])
    else:
        segments = separate(direction, isns[0], isns[1], [ack] if flags & ACK else [])
    return Succession(sorted(syns, key=packet_of), segments)


def separate(direction: FlowDirection, isn: int, other_isn: int | None, numbers: Sequence[int] = ()) -> list[Segment]:
    """Take the segments that belong to another connection, begun with these numbers, out of a flow; also doubtful ones.

    If the other side's initial number is not known, its segments are known by what they acknowledge, and by what
    acknowledges them; ``numbers`` are of the other side, too.
    """
    other = direction.other
    segments = [*direction.doubtful, *other.doubtful, *direction.separate(isn)]
    if other_isn is None:
        theirs = [*numbers, *(one[4] for one in segments if one[2] == direction.key and one[5] & ACK)]
        theirs += [one[3] for one in other.doubtful if 0 < distance(one[4], isn) <= WINDOW]
        theirs += other.numbers_after(isn)
        if theirs:
            other_isn = min(theirs, key=lambda number: distance(number, theirs[0])) - 1
    if other_isn is not None:
        segments += other.separate(other_isn)
    direction.flow.trust()
    return sorted(segments, key=packet_of)


def is_of_predecessor(before: FlowDirection, direction: FlowDirection, segment: Segment) -> bool:
    """Whether a segment still belongs to ``before``, of the previous flow, and not to ``direction`` of this one."""
    _, _, _, seq, ack, flags, _, _ = segment
    if flags & SYN or before.place(seq) is None or (flags & ACK and before.other.is_far(ack)):
        return False
    isn, other_isn = direction.isn, direction.other.isn if flags & ACK else None
    if isn is not None and not 0 < distance(seq, isn) <= WINDOW:
        return True
    beyond = distance(seq, before.highest or 0) - (before.fin is not None)  # a FIN takes one number
    if other_isn is not None and beyond <= 0 and not 0 < distance(ack, other_isn) <= WINDOW:
        return True
    if isn is not None or (other_isn is not None and distance(other_isn, before.other.highest or 0) >= 0):
        return False
    return beyond <= _STILL_SENT


def is_followed(direction: FlowDirection, isn: int) -> bool:
    """Whether a connection is over, and a SYN with this number of a direction begins the next one on its addresses.

    Then no segment between the SYNs and the FINs of the next one is of this one, see is_of_predecessor().
    """
    if not direction.flow.ended or direction.isn is None or direction.isn == isn:
        return False
    return not any(one.pending or one.doubtful for one in (direction, direction.other))


def begins_behind(direction: FlowDirection, segment: Segment) -> list[Segment] | None:
    """The doubtful segments of another connection that begins on the addresses of an ended flow with this segment.

    It is None if the segment is a late one of that flow: its numbers are not far away.
    """
    _, _, _, seq, _, flags, payload, missing = segment
    length = 0 if flags & RST else len(payload) + missing
    if not length and direction.next is not None and 0 <= seq - direction.next <= 1:  # a FIN takes one number
        return None
    if not is_of_another(direction, segment):
        direction.swallow(seq, length)
        return None
    if not length:
        return None
    early = [one for one in (*direction.doubtful, *direction.other.doubtful) if agree(segment, one)]
    direction.flow.trust()
    return early


def take_far(direction: FlowDirection, segment: Segment) -> FarSegment:
    """Say where a segment belongs whose numbers are far from all known ones, and keep it if nobody knows that yet.

    Doubtful segments that it confirms are inserted into the stream; segments of another connection are given up.
    """
    verdict = _judge_far(direction, segment)
    if verdict.offset is not None and not verdict.confirmed:
        return verdict
    direction.doubt(segment)
    direction.flow.attend()
    if verdict.offset is None and not verdict.successor:
        return verdict
    for time_ns, packet, _, seq, ack, flags, payload, missing in verdict.confirmed:
        offset = direction.ahead(seq)
        direction.insert(offset, payload, missing, time_ns, packet, ack if flags & ACK else None)
    direction.trust()
    if verdict.successor:
        direction.other.trust()
    return verdict


def _judge_far(direction: FlowDirection, segment: Segment) -> FarSegment:
    """Say where a segment belongs whose numbers are far from all known ones.

    It may stand behind a large hole, or belong to another connection. Only two segments that agree prove anything but
    the simplest explanation, so one alone is left out, and becomes doubtful.
    """
    time_ns, _, _, seq, ack, flags, _, _ = segment
    flow, other = direction.flow, direction.other
    assert direction.next is not None
    assert other.next is not None
    ahead = distance(seq, direction.next)
    acknowledged = distance(ack, other.next) if flags & ACK else 0
    # A hole in one direction does not change the numbers of the other. If both directions are ahead, they are ahead
    # by no more than a network can have sent meanwhile.
    sent = min(max(time_ns - flow.sure_ns, 0) * _FASTEST, _LARGEST_HOLE)
    of_this_connection = abs(acknowledged) <= WINDOW or (0 < ahead <= sent and 0 < acknowledged <= sent)
    if of_this_connection and 0 < ahead <= _LARGEST_HOLE:
        return FarSegment(direction.offset + ahead)
    mine = [one for one in direction.doubtful if agree(segment, one)]
    theirs = any(agree(segment, one) for one in other.doubtful)
    if not mine and not theirs:
        return FarSegment()
    if of_this_connection and not theirs:
        return FarSegment(direction.offset + ahead % MODULO, mine)
    # Both sides have other numbers: another connection uses the ports again. The capture lacks its SYNs, or what
    # continues them directly comes later. Packets of the old connection may still come.
    pending = ((direction.pending, seq), (other.pending, ack))
    syns = [syn for syn, number in pending if syn is not None and abs(distance(number, syn[3])) <= WINDOW]
    held = [*direction.doubtful, segment, *other.doubtful, *syns]
    return FarSegment(successor=sorted(held, key=packet_of))
