"""One direction of a TCP connection: segments in any order become octets in order.

The common case, a segment that continues where the last one ended, is handled by the loop in
:mod:`zmtpsniff.flows`; everything else is here.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from zmtpsniff.segment import FIN, RST, SYN, Segment

if TYPE_CHECKING:
    from zmtpsniff.flows import Flow

_MODULO = 1 << 32
_HALF = 1 << 31

# An acknowledgment of octets that have not been seen proves that they are missing from the capture only if they do
# not turn up soon: the two directions are often captured by different queues. So many packets must acknowledge them
# for so long, or any number for longer.
_GRACE_PACKETS = 32
_GRACE_NS = 10_000_000
LONG_GRACE_NS = 100_000_000
# So many packets that acknowledge the same show that the other side says nothing; so many if no more will come.
_SILENT_PACKETS = 8
_SILENT_PACKETS_IN_ALL = 2
_NEVER = -1  # acknowledged
# What a waiting segment costs beside its octets, so that many tiny ones are bounded, too.
_SEGMENT_COST = 256
# Delivered segments, and octets of them, kept to compare retransmissions with.
_RECENT_SEGMENTS = 16
_RECENT_OCTETS = 256 << 10
_WINDOW = 1 << 24  # how far from the number expected next those of a connection are at most
_EVERY_FLAG = -1
_OFFSET = itemgetter(0)


class Receiver(Protocol):
    """Who takes the octets of one direction."""

    def feed(self, data: bytes, time_ns: int, packet: int, /) -> None:
        """Take the next octets."""

    def gap(self, length: int, cut: bool, time_ns: int, packet: int, /) -> None:
        """Learn that octets are missing; ``cut`` if the snaplen cost them."""

    def quiet(self) -> None:
        """Learn that this direction has sent no octets since the other one was captured first."""

    def absent(self, time_ns: int, packet: int, /) -> None:
        """Learn that no packet of this direction is captured."""

    def conflict(self, offset: int, length: int, time_ns: int, packet: int, /) -> None:
        """Learn that octets already seen came again with another value."""


class Waiting(NamedTuple):
    """A segment, or a part of one, that waits for octets before it."""

    offset: int  # in the stream
    payload: bytes
    missing: int  # octets after the payload that the snaplen cost
    time_ns: int
    packet: int

    @property
    def end(self) -> int:
        """The stream offset after it."""
        return self.offset + len(self.payload) + self.missing


_NONE_RECENT: deque[tuple[int, bytes]] = deque(maxlen=0)  # of every direction that nobody takes


def _nobody(data: bytes, time_ns: int, packet: int) -> None:
    """Take octets that nobody wants."""


def distance(number: int, origin: int) -> int:
    """How far a sequence number is ahead of another, negative if it is behind (RFC 9293, section 3.4)."""
    return (number - origin + _HALF) % _MODULO - _HALF


class Direction:
    """What is known of one direction of a flow."""

    __slots__ = (
        "acked",
        "deliver",
        "doubts",
        "doubts_at",
        "doubts_since",
        "fin",
        "flow",
        "isn",
        "key",
        "latest",
        "next",
        "notable",
        "offset",
        "other",
        "pending",
        "receiver",
        "recent",
        "recent_until",
        "reset",
        "reset_before",
        "reset_ns",
        "seen",
        "silence",
        "silence_ack",
        "waiting",
        "waiting_octets",
    )

    def __init__(self, flow: "Flow", key: bytes) -> None:
        """Begin a direction of ``flow`` before its first segment."""
        self.flow = flow
        self.key = key  # source and destination, as in a Segment
        self.other: Direction = self
        self.isn: int | None = None  # initial sequence number
        self.next: int | None = None  # the sequence number expected next
        self.offset = 0  # of `next` in the stream
        self.fin: int | None = None  # stream offset at which it ends
        # Sequence number and time of a RST that is not at `next`, and what was expected next of the other direction: it
        # counts unless what follows shows that it did not.
        self.reset: int | None = None
        self.reset_ns = 0
        self.reset_before: int | None = None
        self.notable = SYN | FIN | RST  # flags of segments to be looked at more closely
        self.pending: Segment | None = None  # a SYN that does not fit: forged, or of the next connection
        self.seen = False  # a packet of this direction has been captured
        # Packets of the other direction that acknowledged the same, while no octets of this one have been seen.
        self.silence = 0
        self.silence_ack: int | None = None
        self.receiver: Receiver | None = None
        self.deliver: Callable[[bytes, int, int], None] = _nobody  # receiver.feed, looked up once
        self.latest = (0, 0)  # number and time of the latest packet that an event out of the common case was told with
        self.waiting: list[Waiting] = []
        self.waiting_octets = 0
        self.acked = 0  # stream offset that the other side has acknowledged, where beyond `offset`
        self.doubts = 0  # packets that acknowledged octets beyond `offset` while it stood at `doubts_at`
        self.doubts_at = 0
        self.doubts_since = 0
        self.recent = _NONE_RECENT
        self.recent_until = 0  # stream offset from which `recent` may hold too much

    @property
    def finished(self) -> bool:
        """Whether everything up to the FIN has been delivered."""
        return self.fin is not None and self.offset >= self.fin

    @property
    def awaits_reset(self) -> bool:
        """Whether octets before a RST have not been seen, or it may be none that counts."""
        return self.reset is not None and self.reset != self.next

    def is_far(self, seq: int) -> bool:
        """Whether a sequence number is so far from those expected that it is another connection's."""
        return self.next is not None and abs(distance(seq, self.next)) > _WINDOW

    @property
    def is_guessed(self) -> bool:
        """Whether all that is known of its numbers is what the other side once acknowledged."""
        return self.next is not None and not (self.seen or self.offset)

    def begins_another(self, seq: int, ack: int, answers: bool) -> bool:
        """Whether a SYN begins another connection, instead of repeating or answering the one that began this."""
        if self.isn is not None:
            return self.isn != seq
        other = self.other
        if self.is_guessed:
            return self.is_far(seq)
        if self.next is not None:  # octets were seen before this SYN: does it number them?
            return (self.next - self.offset) % _MODULO != (seq + 1) % _MODULO
        if answers:  # a SYN may carry octets, which are acknowledged with it
            return other.isn is not None and ack not in ((other.isn + 1) % _MODULO, other.next)
        return self.flow.ended or other.offset > 0

    def begin(self, receiver: Receiver) -> None:
        """Let ``receiver`` take the octets."""
        self.receiver = receiver
        self.deliver = receiver.feed
        self.recent = deque(maxlen=_RECENT_SEGMENTS)

    def forget(self) -> None:
        """Keep nothing of the octets."""
        self.receiver = None
        self.deliver = _nobody
        self._account(-self.waiting_octets)
        self.waiting = []
        self.recent = _NONE_RECENT

    def part(self) -> None:
        """Know neither flow nor other direction any more, so that no cycle keeps them in memory."""
        del self.flow, self.other

    def suspect(self) -> None:
        """Have every segment looked at more closely from now on."""
        self.notable = _EVERY_FLAG

    def thin(self) -> None:
        """Keep no more octets of delivered segments than allowed, and so few less that this is not due each time."""
        kept = 0
        for _, octets in self.recent:
            kept += len(octets)
        while kept > _RECENT_OCTETS * 3 // 4:
            kept -= len(self.recent.popleft()[1])
        self.recent_until = self.offset + _RECENT_OCTETS - kept

    def swallow(self, seq: int, length: int) -> None:
        """Take octets of a flow that is over, of which nothing is wanted but that they are its own."""
        end = (seq + length) % _MODULO
        if self.next is None or distance(end, self.next) > 0:
            self.next = end

    def take(self, seq: int, payload: bytes, missing: int, time_ns: int, packet: int) -> None:
        """Take a segment that is not simply the next one."""
        if self.next is None:
            self.next = seq
        ahead = distance(seq, self.next)
        offset = self.offset + ahead
        if ahead <= 0 and offset + len(payload) + missing <= self.offset:
            # All of it has been seen. One octet just below the window is a keep-alive probe, its value garbage.
            if not (len(payload) <= 1 and ahead == -1):
                self._compare(seq, payload, time_ns, packet)
            return
        if ahead < 0:
            self._compare(seq, payload, time_ns, packet)
        self._wait(Waiting(offset, payload, missing, time_ns, packet))
        self._drain()

    def _deliver(self, payload: bytes, time_ns: int, packet: int) -> None:
        assert self.receiver is not None
        assert self.next is not None
        self.recent.append((self.next, payload))
        self._pass(len(payload))
        if self.offset > self.recent_until:
            self.thin()
        self.receiver.feed(payload, time_ns, packet)

    def _pass(self, length: int) -> None:
        assert self.next is not None
        self.next = (self.next + length) % _MODULO
        self.offset += length

    def _compare(self, seq: int, payload: bytes, time_ns: int, packet: int) -> None:
        """Compare a retransmission with what is kept of the first copy, which wins."""
        for first, octets in self.recent:
            shift = distance(seq, first)
            begin, end = max(shift, 0), min(shift + len(payload), len(octets))
            if begin < end and octets[begin:end] != payload[begin - shift : end - shift]:
                self._conflict(distance(first, self.next or 0) + self.offset + begin, end - begin, time_ns, packet)
                return

    def _conflict(self, offset: int, length: int, time_ns: int, packet: int) -> None:
        assert self.receiver is not None
        packet, time_ns = self._not_before(packet, time_ns)
        self.receiver.conflict(offset, length, time_ns, packet)

    def _wait(self, segment: Waiting) -> None:
        """Put a segment among those that wait, without what of it already waits."""
        waiting = self.waiting
        if not waiting or waiting[-1].end <= segment.offset:
            waiting.append(segment)
            self._account(len(segment.payload) + _SEGMENT_COST)
            return
        # What waits is sorted and free of overlaps: those that overlap the segment are neighbours.
        first = bisect_right(waiting, segment.offset, key=_OFFSET)
        if first and waiting[first - 1].end > segment.offset:
            first -= 1
        last = bisect_left(waiting, segment.end, lo=first, key=_OFFSET)
        together = []
        end = segment.offset  # of what of the segment has been looked at
        for other in waiting[first:last]:
            self._compare_waiting(segment, other)
            if end < other.offset:
                together.append(self._part(segment, end, other.offset))
            together.append(other)
            end = other.end
        if end < segment.end:
            together.append(self._part(segment, end, segment.end))
        waiting[first:last] = together

    def _compare_waiting(self, segment: Waiting, other: Waiting) -> None:
        """Compare a segment with one that already waits, which wins."""
        begin = max(other.offset, segment.offset)
        end = min(other.offset + len(other.payload), segment.offset + len(segment.payload))
        if begin < end:
            theirs = other.payload[begin - other.offset : end - other.offset]
            if theirs != segment.payload[begin - segment.offset : end - segment.offset]:
                self._conflict(begin, end - begin, segment.time_ns, segment.packet)

    def _part(self, segment: Waiting, begin: int, end: int) -> Waiting:
        """What of a segment lies between two stream offsets; it is going to wait."""
        begin = max(begin, segment.offset)
        payload = segment.payload[begin - segment.offset : end - segment.offset]
        self._account(len(payload) + _SEGMENT_COST)
        return segment._replace(offset=begin, payload=payload, missing=end - begin - len(payload))

    def _account(self, octets: int) -> None:
        self.waiting_octets += octets
        self.flow.table.waiting_octets += octets

    def _drain(self) -> None:
        """Deliver what waits no longer."""
        assert self.receiver is not None
        drained = 0
        for segment in self.waiting:
            if segment.offset > self.offset:
                break
            drained += 1
            self._account(-len(segment.payload) - _SEGMENT_COST)
            packet, time_ns = self._not_before(segment.packet, segment.time_ns)
            skip = self.offset - segment.offset
            if skip < len(segment.payload):
                self._deliver(segment.payload[skip:] if skip else segment.payload, time_ns, packet)
            if segment.end > self.offset:
                length = segment.end - self.offset
                self._pass(length)
                self.receiver.gap(length, True, time_ns, packet)
        del self.waiting[:drained]

    def _not_before(self, packet: int, time_ns: int) -> tuple[int, int]:
        """The packet that an event is told with, and its time: those of one sender stay in order of packets.

        A segment that came early is completed by a later packet, or waits while another is found to differ.
        """
        self.latest = max(self.latest, (packet, time_ns))
        return self.latest

    def acknowledged(self, ack: int, time_ns: int, packet: int) -> None:
        """The other side acknowledges octets that have not been seen."""
        if self.receiver is None:
            return
        if self.next is None:
            self._count_silence(ack)
            if not self.seen:
                self._doubt_presence(time_ns, packet)
            elif self.silence >= _SILENT_PACKETS:
                self.receiver.quiet()
            return
        offset = self.offset + distance(ack, self.next)
        if self.fin is not None and offset == self.fin + 1:
            offset -= 1
        if offset <= self.offset:
            return
        if offset == self.offset + 1 and not self.waiting:
            return  # a FIN that is not in the capture: no frame is of a single octet
        if not self.seen:
            self._doubt_presence(time_ns, packet)
            return
        self.acked = max(self.acked, offset)
        if self.doubts == 0 or self.doubts_at != self.offset:
            self.doubts = 0
            self.doubts_at = self.offset
            self.doubts_since = time_ns
        self.doubts += 1
        waited = time_ns - self.doubts_since
        if waited > LONG_GRACE_NS or (self.doubts > _GRACE_PACKETS and waited > _GRACE_NS):
            while self.acked > self.offset:
                self.lose(time_ns, packet)

    def settle(self, now_ns: int) -> None:
        """It is ``now_ns``: octets that were acknowledged long ago and have not been seen are lost."""
        in_doubt = self.doubts and self.seen and self.doubts_at == self.offset
        if in_doubt and now_ns - self.doubts_since > LONG_GRACE_NS:
            while self.acked > self.offset:
                self.lose(self.flow.last_ns, self.flow.last_packet)

    def _count_silence(self, ack: int) -> None:
        """What is acknowledged tells whether a direction is silent, also if none of its packets is captured."""
        if self.silence_ack is None:
            self.silence_ack = ack
        if ack == self.silence_ack:
            self.silence += 1
        else:
            self.silence, self.silence_ack = 0, _NEVER

    def _doubt_presence(self, time_ns: int, packet: int) -> None:
        self.doubts += 1
        if self.doubts == _GRACE_PACKETS:
            self.miss(time_ns, packet)

    def miss(self, time_ns: int, packet: int) -> None:
        """Tell that no packet of this direction is captured, and before that if it had nothing to say."""
        if self.receiver is None:
            return
        if self.silence >= _SILENT_PACKETS_IN_ALL:
            self.receiver.quiet()
        self.receiver.absent(time_ns, packet)

    def lose(self, time_ns: int, packet: int) -> None:
        """Declare the hole at the front lost and deliver what waits behind it."""
        assert self.receiver is not None
        end = self.waiting[0].offset if self.waiting else self.acked
        length = end - self.offset
        if length > 0:
            self._pass(length)
            if self.waiting:
                # The hole counts where it was, before what waits, so that events stay in order of packets.
                packet, time_ns = self.waiting[0].packet, self.waiting[0].time_ns
            packet, time_ns = self._not_before(packet, time_ns)
            self.receiver.gap(length, False, time_ns, packet)
        self._drain()

    def flush(self, time_ns: int, packet: int) -> None:
        """No more segments will come: everything that is missing is lost."""
        if self.receiver is None or self.next is None:
            return
        if self.fin is not None:
            self.acked = max(self.acked, self.fin)
        if self.reset is not None and 1 < distance(self.reset, self.next) <= _WINDOW:
            self.acked = max(self.acked, self.offset + distance(self.reset, self.next))
        while self.waiting:
            self.lose(time_ns, packet)
        if self.acked > self.offset and self.seen:
            self.lose(time_ns, packet)
