"""One direction of a TCP connection: segments in any order become octets in order.

In the common case a segment continues where the last one ended: the loop in :mod:`zmtpsniff.net.flows` handles that.
Everything else is here. The flow decides when a segment goes on, since that depends on both directions
(:mod:`zmtpsniff.net.flow`).
"""

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec import field

from dissectors.snapshots import LATER, Live, Part, quick
from zmtpsniff.net.clocks import LEAST_CLOCK_NS, ClockComparison
from zmtpsniff.net.segment import (
    ACK,
    CLOSED,
    RST,
    SYN,
    Segment,
)

MODULO = 1 << 32
HALF = 1 << 31
UNBOUNDED = 1 << 62  # a stream offset that means: nobody knows what the sender had seen

# Memory of a kept segment, in octets, beside its own. It bounds the memory of many tiny segments, too.
SEGMENT_COST = 256
# Delivered segments, and octets of them, kept to compare retransmissions with.
RECENT_SEGMENTS = 16
RECENT_OCTETS = 256 << 10
WINDOW = 1 << 24  # numbers of one connection are hardly ever further than this from the expected number
# An acknowledgment can be so far behind the last octets. If it seems to be further behind, it is ahead, and the capture
# lacks more than 2 GiB of the octets that it acknowledges.
LATEST_ACK = 1 << 26
TELLING_FLAGS = SYN | RST | ACK | CLOSED  # a FIN tells no more than an octet does if it comes in order
ATTENTION = -1  # no segment has such flags, so the hot loop passes each one to the code here
_OFFSET = itemgetter(0)
_MOST_DOUBTFUL = 8  # segments of a direction


class Receiver(Protocol):
    """Takes the octets of one direction."""

    def feed(self, data: bytes, time_ns: int, packet: int, offset: int, seen: int, /) -> None:
        """Take the next octets, one at least, which begin at ``offset`` of the stream.

        Their sender had seen no octet of the other direction from stream offset ``seen`` on.
        """

    def gap(self, length: int, cut: bool, time_ns: int, packet: int, /) -> None:
        """Octets are missing; ``cut`` if the snaplen cut them off."""

    def absent(self, time_ns: int, packet: int, /) -> None:
        """The capture has no packet of this direction so far; octets may still come later."""

    def conflict(self, offset: int, length: int, time_ns: int, packet: int, /) -> None:
        """Octets came again with another value."""


class WaitingSegment(NamedTuple):
    """A segment or a part of one. It waits for octets before it, or for octets that it acknowledges."""

    offset: int  # in the stream
    payload: bytes
    missing: int  # octets that the snaplen cut off behind the payload
    time_ns: int
    packet: int
    ack: int | None  # the sequence number that it acknowledges, if it acknowledges any

    @property
    def end(self) -> int:
        """The stream offset after it."""
        return self.offset + len(self.payload) + self.missing


class Reset(NamedTuple):
    """A RST, as far as later segments are compared with it."""

    seq: int  # its sequence number
    time_ns: int
    before: int | None  # its sender can have seen the other direction up to this sequence number


RecentSegment = tuple[int, bytes, int, int]
"""A delivered segment: its stream offset, octets, time, and what its sender had seen of the other direction."""


def distance(number: int, origin: int) -> int:
    """How far a sequence number is ahead of another, negative if it is behind (RFC 9293, section 3.4)."""
    return (number - origin + HALF) % MODULO - HALF


def _is_before(ack: int | None, other: int | None) -> bool:
    """Whether an acknowledgment is known to be older than another."""
    return ack is not None and other is not None and distance(ack, other) < 0


def _sent_before(segment: WaitingSegment, other: WaitingSegment) -> WaitingSegment:
    """A segment with the acknowledgment of its first copy: that was sent before ``other``, whose octets follow."""
    return segment._replace(ack=other.ack) if _is_before(other.ack, segment.ack) else segment


class Holdings(Part):
    """The number of octets that all flows keep together."""

    waiting_octets: Live[int] = 0
    recent_octets: Live[int] = 0  # of delivered segments, at most: the last count, and what has come since
    clocks: ClockComparison = field(default_factory=ClockComparison)


class DirectionOwner(Protocol):
    """The flow of a direction, as the direction sees it."""

    count: int  # packets that were looked at closely
    ended: bool


Owner = TypeVar("Owner", bound=DirectionOwner)


@quick
class Direction(Part, Generic[Owner]):
    """One direction of a flow: the numbers of its octets, and the segments that wait."""

    flow: Live[Owner]
    key: bytes  # source and destination, as in a Segment
    holdings: Live[Holdings]  # the octets that it keeps count there
    other: Live["Direction[Owner]"] = LATER
    isn: int | None = None  # initial sequence number
    gathered: int | None = None  # the sequence number of the first segment, while the flow has not begun
    # The facts that a segment in order changes: the loop of FlowTable.take() sets these, and no others.
    next: int | None = None  # the sequence number expected next; known once the flow has begun
    offset: int = 0  # of `next` in the stream
    recent: Live[list[RecentSegment]] = field(default_factory=list)  # a deque takes 600 octets, however few there are
    recent_until: int = 0  # from this stream offset on `recent` may hold too much
    acked_ns: int = 0  # when its sender acknowledged octets last without sending any; only a witness asks
    acknowledges: int = 0  # up to here, its sender's packets without octets acknowledge the other side's

    floor: int = -UNBOUNDED  # octets before this do not come again
    fin: int | None = None  # stream offset at which it ends
    reset: Reset | None = None  # one that is not at `next`: it counts unless what follows shows otherwise
    usual: int = ATTENTION  # the telling flags of a segment that needs no closer look
    pending: Segment | None = None  # a SYN that does not fit: it is forged, or begins the next connection
    # Segments whose numbers do not fit: they stand behind a large hole, or belong to the next connection.
    doubtful: tuple[Segment, ...] = ()
    seen: bool = False  # a packet of this direction has been captured
    absent: bool = False  # its receiver knows that the capture has no packet of it
    receiver: Live[Receiver | None] = None
    latest: tuple[int, int] = (0, 0)  # number and time of the latest packet of an event outside of the hot loop
    waiting: list[WaitingSegment] = field(default_factory=list)
    waiting_octets: int = 0
    acked: int = 0  # stream offset up to which the other side has acknowledged octets
    acked_at: int = 0  # `offset` when `acked` was set last
    presumed: int = 0  # octets before this stream offset are presumed lost
    owed_ns: int = 0  # since when octets before `acked` are missing, or when the last of them came
    owed_count: int = 0
    kept: list[RecentSegment] | None = None  # `recent` in a snapshot

    @property
    def highest(self) -> int | None:
        """The sequence number behind the last octet that is known to have been sent."""
        if self.next is None:
            return None
        end = max(self.offset, self.acked, self.waiting[-1].end if self.waiting else 0)
        return self._number(end)

    @property
    def finished(self) -> bool:
        """Whether everything up to the FIN has been delivered."""
        return self.fin is not None and self.offset >= self.fin

    def is_acknowledged(self, number: int | None) -> bool:
        """Whether an acknowledgment number of the other side covers the FIN."""
        if number is None or self.fin is None:
            return False
        acknowledged = self.place(number)
        return acknowledged is not None and acknowledged > self.fin

    def is_acknowledged_to(self, offset: int) -> bool:
        """Whether the other side has acknowledged the octets before a stream offset."""
        other = self.other
        return offset <= max(self.acked, other.acknowledges) or any(seen >= offset for *_, seen in other.recent)

    @property
    def awaits_reset(self) -> bool:
        """Whether octets before a RST are missing, or the RST may not count."""
        return self.reset is not None and self.reset.seq != self.next

    @property
    def available(self) -> int:
        """A segment that acknowledges no octet after this stream offset need not wait."""
        return self.presumed if self.presumed > self.offset else self.offset

    @property
    def owes(self) -> bool:
        """Whether the capture lacks octets so far that the other side has acknowledged."""
        return self.acked > self.offset and self.acked > self.presumed

    @property
    def recent_octets(self) -> int:
        """Octets of delivered segments that are kept."""
        return sum(len(octets) + SEGMENT_COST for _, octets, _, _ in self.recent)

    @property
    def is_unusual(self) -> bool:
        """Whether segments of the flow need a closer look because of what this direction lacks or holds."""
        return bool(self.waiting or self.owes or self.reset or self.pending or self.doubtful)

    @property
    def hole(self) -> int:
        """How many octets are missing before the first waiting segment."""
        return max(self.waiting[0].offset - self.offset, 0) if self.waiting else 0

    def is_far(self, seq: int) -> bool:
        """Whether a sequence number is so far away that it stands behind a large hole, or is another connection's."""
        return self.next is not None and abs(distance(seq, self.next)) > WINDOW

    def is_ahead(self, seq: int, octets: int) -> bool:
        """Whether a sequence number is more than so many octets ahead of the expected one."""
        return self.next is not None and distance(seq, self.next) > octets

    def is_beyond(self, number: int) -> bool:
        """Whether nothing shows that the octet before a sequence number was sent.

        No acknowledgment shows it: one of octets behind a hole may be another connection's.
        """
        if self.next is None or (offset := self.place(number)) is None:
            return True
        before = bisect_left(self.waiting, offset, key=_OFFSET)
        return offset > (self.waiting[before - 1].end if before else self.offset)

    def is_behind_hole(self, number: int) -> bool:
        """Whether octets begin here, or acknowledgments say so, and nothing is known of what stands before."""
        if any(one[3] == number for one in self.doubtful) or any(one[4] == number for one in self.other.doubtful):
            return True
        if self.next is None or (offset := self.place(number)) is None or not self.is_beyond(number):
            return False
        place = bisect_left(self.waiting, offset, key=_OFFSET)
        return offset == self.acked or (place < len(self.waiting) and self.waiting[place].offset == offset)

    def numbers_after(self, other_isn: int) -> list[int]:
        """The numbers of waiting segments that acknowledge a SYN of the other side, if it is later than all octets."""
        known = self.other.next
        if known is None or distance(other_isn, known) < 0 or not self.other.is_beyond(other_isn + 1):
            return []
        behind = [one for one in self.waiting if one.ack is not None and 0 < distance(one.ack, other_isn) <= WINDOW]
        return [self._number(one.offset) for one in behind]

    def _number(self, offset: int) -> int:
        """The sequence number of a stream offset."""
        assert self.next is not None
        return (self.next + offset - self.offset) % MODULO

    def begins_another(self, seq: int, ack: int, answers: bool) -> bool:
        """Whether a SYN begins another connection, instead of repeating or answering the one that began this."""
        if self.isn is not None:
            return self.isn != seq
        if self.next is not None:
            if self.seen or self.offset:  # octets came before this SYN: do they have its numbers?
                return (self.next - self.offset) % MODULO != (seq + 1) % MODULO
            return self.is_far(seq)  # only acknowledgments tell the numbers of this direction
        if not answers:
            return self.flow.ended
        if self.seen and self.flow.ended:
            return True  # a RST refused that SYN, and was lost: the SYN was sent again, and now somebody listens
        isn = self.other.isn  # a SYN may carry octets, which are acknowledged with it
        return isn is not None and not 0 < distance(ack, isn) <= WINDOW + 1

    def skips(self, segment: Segment) -> bool:
        """Whether only SYNs are known, and a segment shows that octets were sent before it."""
        _, _, _, seq, ack, flags, _, _ = segment
        if self.isn is not None and 1 < distance(seq, self.isn) <= WINDOW:
            return True
        return bool(flags & ACK) and self.other.isn is not None and 1 < distance(ack, self.other.isn) <= WINDOW

    def before_save(self) -> None:
        """Keep the delivered segments as data."""
        self.kept = list(self.recent)

    def resume(self, receiver: Receiver) -> None:
        """Let ``receiver`` take the octets that follow a snapshot."""
        self.receiver = receiver
        self.recent = list(self.kept or ())

    def begin(self, receiver: Receiver) -> None:
        """Let ``receiver`` take the octets."""
        self.receiver = receiver
        self.recent = []
        self.recent_until = self.offset + RECENT_OCTETS

    def go_on_from(self, number: int, offset: int, old: int, recent: list[RecentSegment], until: int) -> None:
        """Go on behind octets that were delivered in order, up to the sequence ``number`` at a stream ``offset``.

        Of the delivered segments the last ``old`` stay, with ``recent`` ones behind them; they may hold too much from
        ``until`` on.
        """
        self.next, self.offset, self.recent_until = number, offset, until
        del self.recent[: max(len(self.recent) - old, 0)]
        self.recent += recent

    def forget(self) -> None:
        """Keep nothing of the octets."""
        self.receiver = None
        if self.waiting:
            self._account(-self.waiting_octets)
            self.waiting = []
        if self.doubtful and not self.flow.ended:  # else they may be the first octets of another connection
            self.trust()
        self.recent = []

    def forget_untaken(self) -> None:
        """Forget segments after a hole that the receiver has not acknowledged, though the capture has its packets."""
        if self.hole and self.other.seen and self.acked <= self.offset:
            self._account(-self.waiting_octets)
            self.waiting = []

    def part(self) -> None:
        """Forget the flow and the other direction, so that no cycle keeps them in memory."""
        if self.doubtful:
            self.trust()
        del self.flow, self.other

    def thin(self) -> None:
        """Forget delivered segments until there is room for several more, so that this does not happen for each one."""
        kept = 0
        for _, octets, _, _ in self.recent:
            kept += len(octets)
        while kept > RECENT_OCTETS * 3 // 4:
            kept -= len(self.recent.pop(0)[1])
        self.recent_until = self.offset + RECENT_OCTETS - kept

    def forget_past(self) -> None:
        """Octets that have been acknowledged do not come again, except for a keep-alive probe."""
        self.floor = min(self.offset, self.acked) - 1

    def swallow(self, seq: int, length: int) -> None:
        """Take late octets of an ended flow. No reader wants them, but they must not begin another flow."""
        end = (seq + length) % MODULO
        if self.next is None or distance(end, self.next) > 0:
            self.next = end

    # ------------------------------------------------------------------ segments come

    def place(self, seq: int) -> int | None:
        """The stream offset of a sequence number; None if it is far from all known ones."""
        assert self.next is not None
        ahead = (seq - self.next + HALF) % MODULO - HALF  # as distance(), which a call makes slower
        if -WINDOW <= ahead <= WINDOW and self.offset + ahead >= self.floor:
            return self.offset + ahead
        if self.waiting:  # it may be over 2 GiB ahead, which looks like a number of the past
            end = self.waiting[-1].end
            beyond = distance(seq, (self.next + end - self.offset) % MODULO)
            if -WINDOW <= beyond <= WINDOW:
                return end + beyond
        return None

    def ahead(self, seq: int) -> int:
        """The stream offset of a sequence number behind a hole of any size."""
        assert self.next is not None
        return self.offset + (seq - self.next) % MODULO

    def end_at(self, offset: int) -> int:
        """Where the stream ends, by the offset of its FIN: behind a large hole, if not behind all that has come."""
        behind = offset + MODULO
        if offset < self.offset and self.waiting and abs(behind - self.waiting[-1].end) <= WINDOW:
            return behind
        return offset

    def insert(self, offset: int, payload: bytes, missing: int, time_ns: int, packet: int, ack: int | None) -> None:
        """Deliver a segment if it need not wait; else let it wait."""
        if self.absent:
            self._appear(offset)
        if (end := offset + len(payload) + missing) <= self.offset:
            # All of it has been seen. One octet just below the window is a keep-alive probe, its value garbage.
            if not (len(payload) <= 1 and offset == self.offset - 1):
                self.holdings.clocks.see(self.key, offset, end, self.is_acknowledged_to(end))
                self._compare(offset, payload, time_ns, packet)
            return
        if (known := self.offset - offset) > 0:
            self._compare(offset, payload, time_ns, packet)
            missing -= max(known - len(payload), 0)
            offset, payload = self.offset, payload[known:]
        segment = WaitingSegment(offset, payload, missing, time_ns, packet, ack)
        if offset == self.offset and not self.waiting:
            seen = self.other.seen_by(ack)
            if seen == UNBOUNDED or seen <= self.other.available:
                self._deliver(segment, seen)
                self._pay(time_ns)
                return
        self._wait(segment)

    def _appear(self, offset: int) -> None:
        """A direction that seemed absent has octets after all, from ``offset`` on."""
        self.absent = False
        self.presumed = self.offset
        self._pass((offset if self.isn is None else 0) - self.offset)

    def repeats(self, seq: int, payload: bytes, time_ns: int) -> bool:
        """Whether a segment is a delivered one that was captured again at once, as on two interfaces of one host.

        TCP does not send octets again so soon. ``seq`` is at or before the number that follows.
        """
        assert self.next is not None
        offset = self.offset - (self.next - seq) % MODULO
        for first, octets, first_ns, _ in reversed(self.recent):
            if first <= offset:
                return first == offset and octets == payload and 0 <= time_ns - first_ns < LEAST_CLOCK_NS
        return False

    def _compare(self, offset: int, payload: bytes, time_ns: int, packet: int) -> None:
        """Compare a retransmission with the octets kept of the first copy, which wins."""
        for first, octets, first_ns, _ in self.recent:
            if first == offset and octets == payload:
                self.holdings.clocks.add(self.key, time_ns - first_ns)
                return
            shift = offset - first
            begin, end = max(shift, 0), min(shift + len(payload), len(octets))
            if begin < end and octets[begin:end] != payload[begin - shift : end - shift]:
                self._conflict(first + begin, end - begin, time_ns, packet)
                return

    def _conflict(self, offset: int, length: int, time_ns: int, packet: int) -> None:
        assert self.receiver is not None
        packet, time_ns = self._not_before(packet, time_ns)
        self.receiver.conflict(offset, length, time_ns, packet)

    def _wait(self, segment: WaitingSegment) -> None:
        """Let a segment wait, without those of its octets that wait already."""
        waiting = self.waiting
        if not waiting or waiting[-1].end <= segment.offset:
            waiting.append(segment)
            self._account(len(segment.payload) + SEGMENT_COST)
            return
        # Waiting segments are sorted and free of overlaps: those that overlap the segment are neighbours.
        first = bisect_right(waiting, segment.offset, key=_OFFSET)
        if first and waiting[first - 1].end > segment.offset:
            first -= 1
        last = bisect_left(waiting, segment.end, lo=first, key=_OFFSET)
        if last < len(waiting):
            segment = _sent_before(segment, waiting[last])
        together = []
        end = segment.offset  # up to which the segment has been looked at
        for other in waiting[first:last]:
            self._compare_waiting(segment, other)
            if end < other.offset:
                together.append(self._part(_sent_before(segment, other), end, other.offset))
            if _is_before(segment.ack, other.ack):  # the retransmission was captured first
                together += self._sent_earlier(other, segment)
            else:
                together.append(other)
            end = other.end
        if end < segment.end:
            together.append(self._part(segment, end, segment.end))
        waiting[first:last] = together

    def _sent_earlier(self, waiting: WaitingSegment, segment: WaitingSegment) -> list[WaitingSegment]:
        """A waiting segment in up to three parts: of some of its octets another segment has an earlier copy."""
        begin, end = max(waiting.offset, segment.offset), min(waiting.end, segment.end)
        self._account(-len(waiting.payload) - SEGMENT_COST)
        parts = []
        for first, last in ((waiting.offset, begin), (begin, end), (end, waiting.end)):
            if first < last:
                part = self._part(waiting, first, last)
                parts.append(part._replace(ack=segment.ack) if first == begin else part)
        return parts

    def _compare_waiting(self, segment: WaitingSegment, other: WaitingSegment) -> None:
        """Compare a segment with one that already waits, which wins."""
        begin = max(other.offset, segment.offset)
        end = min(other.offset + len(other.payload), segment.offset + len(segment.payload))
        if begin < end:
            theirs = other.payload[begin - other.offset : end - other.offset]
            if theirs != segment.payload[begin - segment.offset : end - segment.offset]:
                self._conflict(begin, end - begin, segment.time_ns, segment.packet)

    def _part(self, segment: WaitingSegment, begin: int, end: int) -> WaitingSegment:
        """The part of a segment between two stream offsets, which will wait."""
        begin = max(begin, segment.offset)
        payload = segment.payload[begin - segment.offset : end - segment.offset]
        self._account(len(payload) + SEGMENT_COST)
        return segment._replace(offset=begin, payload=payload, missing=end - begin - len(payload))

    def doubt(self, segment: Segment) -> None:
        """Keep a segment whose numbers do not fit, until another shows which connection it belongs to."""
        self.holdings.waiting_octets += len(segment[6]) + SEGMENT_COST
        if len(self.doubtful) == _MOST_DOUBTFUL:
            self.holdings.waiting_octets -= len(self.doubtful[0][6]) + SEGMENT_COST
        self.doubtful = (*self.doubtful[1 - _MOST_DOUBTFUL :], segment)

    def trust(self) -> None:
        """Forget segments whose numbers did not fit: others with the expected numbers came."""
        self.holdings.waiting_octets -= sum(len(segment[6]) + SEGMENT_COST for segment in self.doubtful)
        self.doubtful = ()

    def separate(self, isn: int) -> list[Segment]:
        """Return the waiting segments that belong to another connection on the same addresses, begun with ``isn``.

        Segments of the other connection may come before its SYN. Only the SYN distinguishes them from segments behind a
        hole of this connection.
        """
        if self.next is None or -WINDOW <= distance(isn, self.next) < 0:
            return []
        first = self.offset - self.next + isn + 1  # stream offset that its first octet would have, but for wraps

        def is_of_it(offset: int) -> bool:
            return offset > self.offset and (offset - first) % MODULO <= WINDOW

        segments = self._take_out([one for one in self.waiting if is_of_it(one.offset)])
        if is_of_it(self.acked):
            self.acked = self.offset
        if self.fin is not None and is_of_it(self.fin):
            self.fin = None
        return segments

    def behind_end(self) -> list[Segment]:
        """Return what waits behind the FIN, if everything up to that is here: another connection sent it."""
        return self._take_out(self.waiting[:]) if self.finished else []

    def _take_out(self, waiting: list[WaitingSegment]) -> list[Segment]:
        segments: list[Segment] = []
        for one in waiting:
            seq = self._number(one.offset)
            flags = 0 if one.ack is None else ACK
            segments.append((one.time_ns, one.packet, self.key, seq, one.ack or 0, flags, one.payload, one.missing))
            self._account(-len(one.payload) - SEGMENT_COST)
            self.waiting.remove(one)
        return segments

    def _account(self, octets: int) -> None:
        self.waiting_octets += octets
        self.holdings.waiting_octets += octets

    # ------------------------------------------------------------------ acknowledgments

    def seen_by(self, ack: int | None) -> int:
        """The stream offset that the other side acknowledges; UNBOUNDED if the number says nothing."""
        if ack is None or self.next is None:
            return UNBOUNDED
        ahead = (ack - self.next + HALF) % MODULO - HALF
        if ahead <= -LATEST_ACK or self.offset + ahead < self.floor:
            ahead += MODULO
        offset = self.offset + ahead
        return offset if self.fin is None else min(offset, self.fin)

    def acknowledge(self, ack: int, time_ns: int, packet: int) -> None:
        """The other side acknowledges octets, perhaps some that have not been seen."""
        offset = self.seen_by(ack)
        if offset == UNBOUNDED or offset <= self.acked:
            return
        if not self.owes:
            self.owed_ns, self.owed_count = time_ns, self.flow.count
        self.acked = offset
        self.acked_at = self.offset
        if self.absent:
            self.go_along(ack, offset - self.offset)

    def go_along(self, ack: int, octets: int) -> int:
        """Go on behind octets that the capture lacks: the other side's acknowledgment is all that shows them."""
        self.next = ack
        self.offset = self.acked = self.acked_at = offset = self.offset + octets
        return offset

    # ------------------------------------------------------------------ segments go on

    def drain(self, time_ns: int, packet: int) -> list[WaitingSegment]:
        """Deliver the segments that need not wait any more, and return them.

        ``time_ns`` and ``packet`` are those of the packet that may have brought what was missing.
        """
        assert self.receiver is not None
        waiting, other = self.waiting, self.other
        drained = 0
        while drained < len(waiting):
            segment = waiting[drained]
            if segment.offset > self.offset:
                break
            seen = other.seen_by(segment.ack)
            if seen != UNBOUNDED and seen > other.available:
                break
            drained += 1
            self._account(-len(segment.payload) - SEGMENT_COST)
            self._deliver(segment, seen)
        if not drained:
            return []
        self._pay(time_ns)
        delivered = waiting[:drained]
        del waiting[:drained]
        return delivered

    def _pay(self, time_ns: int) -> None:
        """Some octets have come: patience with the octets still owed begins anew."""
        if self.acked > self.available:
            self.owed_ns, self.owed_count = time_ns, self.flow.count

    def _deliver(self, segment: WaitingSegment, seen: int) -> None:
        """Deliver those octets of a segment that have not gone on."""
        assert self.receiver is not None
        packet, time_ns = self._not_before(segment.packet, segment.time_ns)
        skip = self.offset - segment.offset
        if skip < len(segment.payload):
            payload = segment.payload[skip:] if skip else segment.payload
            begin = self.offset
            self.recent.append((begin, payload, segment.time_ns, seen))
            del self.recent[:-RECENT_SEGMENTS]
            self.holdings.recent_octets += len(payload) + SEGMENT_COST
            self._pass(len(payload))
            if self.offset > self.recent_until:
                self.thin()
            if self.isn is None and not self.other.seen:
                seen = UNBOUNDED  # an acknowledgment that stands still says nothing of octets that nobody captured
            self.receiver.feed(payload, time_ns, packet, begin, seen)
        if segment.end > self.offset:
            length = segment.end - self.offset
            self._pass(length)
            self.receiver.gap(length, True, time_ns, packet)

    def _pass(self, length: int) -> None:
        assert self.next is not None
        self.next = (self.next + length) % MODULO
        self.offset += length

    def _not_before(self, packet: int, time_ns: int) -> tuple[int, int]:
        """The packet of an event, and its time. Events of one sender stay in the order of packets.

        A segment that came early is completed by a later packet, or waits while another is found to differ.
        """
        self.latest = max(self.latest, (packet, time_ns))
        return self.latest

    # ------------------------------------------------------------------ octets are lost

    def lose(self, end: int, time_ns: int, packet: int) -> None:
        """Declare the octets before stream offset ``end`` lost."""
        assert self.receiver is not None
        length = end - self.offset
        if length <= 0:
            return
        self._pass(length)
        if self.waiting:
            # The hole counts where it was, before what waits, so that events stay in order of packets.
            packet, time_ns = self.waiting[0].packet, self.waiting[0].time_ns
        packet, time_ns = self._not_before(packet, time_ns)
        self.receiver.gap(length, False, time_ns, packet)

    def lose_end(self, time_ns: int, packet: int) -> None:
        """No more segments of a direction that has some will come: octets that were sent and are missing are lost."""
        if self.receiver is None or self.next is None:
            return
        end = self.acked
        if end > self.offset:
            if end - self.offset > WINDOW and self.offset > self.acked_at:
                end = self.offset  # octets kept coming at their old place, so nobody can have acknowledged so many
            elif end == self.offset + 1 and self.fin is None:
                end = self.offset  # one number is a FIN that the capture lacks: no frame has one octet
        if self.fin is not None and not self.other.seen:
            end = self.fin  # nothing can tell whether its octets arrived
        if self.reset is not None and 1 < distance(self.reset.seq, self.next) <= WINDOW:
            end = max(end, self.offset + distance(self.reset.seq, self.next))
        if end > self.offset:
            self.lose(end, time_ns, packet)
