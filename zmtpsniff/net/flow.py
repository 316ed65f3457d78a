"""One TCP connection: the octets of both sides, in an order in which they can have been sent.

Theory
------

A capture comes from a point beside the connection, not from one of its ends. The queues of a network card deliver one
direction later than the other. A mirror port swaps packets. Two hosts' clocks differ, and their files are merged. So
the packets in the capture may stand in another order than the events. But each packet says by its acknowledgment what
its sender had received when it sent the packet. A segment that acknowledges an octet was sent after that octet.

Therefore a segment goes on to the dissector only when

1. all octets before it in its own direction have gone on, and
2. all octets of the other direction that it acknowledges have gone on.

This order is the same whatever the capture point did. If neither of two segments acknowledges the other, they were sent
independently: their order means nothing, and no later stage may conclude anything from it. So each segment goes on
together with the stream offset up to which its sender had seen the other direction.

A flow has two states, and then it ends::

    not begun ─ both initial sequence numbers known, or patience over ─▶ begun ─ FINs, RST, too long idle ─▶ ended
    begun ─ another connection begins on its addresses ─▶ predecessor of that one, while packets may still come

*It has not begun.* Until the SYNs are known, nobody knows where the streams begin: the first segment in the capture may
not be the first that was sent. So the flow gathers segments. It begins when both initial sequence numbers are known
(the SYN-ACK alone has both), or when patience is over. Then a direction without a SYN begins at the lowest number in
the capture.

*It has begun.* A segment that has to wait does so in its direction (see :mod:`~zmtpsniff.net.reassembly`). It waits
for octets that come late, or never, because the capture lost them. A direction *owes* octets if the other side has
acknowledged them: they were sent and received, so the network did not lose them. If they do not come, the capture has
lost them. The flow waits for them with *patience*: for some packets and for some time, at least. It learns from the
capture how long: where one direction always comes late, patience is longer.

When patience with a direction is over, there are two cases. If octets behind the hole are there, the flow reports the
hole as a gap, and they go on. If there is only the acknowledgment, the flow *presumes* the octets lost, so that the
other direction can go on. They may still come. If they do not, the flow reports the gap when octets behind them come,
or at the end. If the capture has no packet at all of a direction, the flow reports that direction as absent.

A hole that nobody has acknowledged is most likely one of the network, before the capture point, and TCP will fill it.
The hole stays until something says more, until too much waits, or until nothing has happened for very long. If a RST
ends the connection first, the network has lost these octets for good.

*It has ended.* The table keeps the flow for some seconds, so that late segments do not begin another one. If the
connection came whole, the table keeps a :class:`WholeFlow`, and makes the flow once a segment comes for it.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import field

from dissectors.snapshots import LATER, Live, Part, load, quick, save
from zmtpsniff.net.addresses import addresses, reverse
from zmtpsniff.net.flow_dissection import End, FlowDissection, Side
from zmtpsniff.net.notices import CaptureProblem, Doubt, Notice
from zmtpsniff.net.reassembly import (
    ATTENTION,
    MODULO,
    RECENT_OCTETS,
    SEGMENT_COST,
    WINDOW,
    Direction,
    Holdings,
    Reset,
    WaitingSegment,
    distance,
)
from zmtpsniff.net.segment import ACK, FIN, Segment, packet_of

_PACKETS = 32  # so many packets of the flow pass before octets are presumed lost
_LEAST_NS = 250_000_000  # and at least so much time
_MOST_NS = 5_000_000_000
_PAUSE_NS = 120_000_000_000  # after such a pause nobody sends acknowledged octets again (RFC 9293, section 3.4.3)
_SYN_AGAIN_NS = 100_000_000  # a SYN is sent again no sooner; a capture point may see one several times
_RESET_GRACE_NS = 100_000_000  # segments that were sent before a RST may come so long after it
_KIND = "flow"  # of snapshots
_MUCH_DISORDER = 10  # so many packets captured before the octets that they acknowledge are reported


class Patience(Part, gc=False):
    """How long to wait for octets that must exist; it learns that from how late others came."""

    time_ns: int = _LEAST_NS
    late: int = 0  # segments that were captured before the octets that they acknowledge
    latest_ns: int = 0  # the longest time by which octets came late
    latest: bytes = b""  # the key of the direction whose octets came so late

    def see(self, late_ns: int, direction: bytes, segments: int) -> None:
        """Octets of a direction came ``late_ns`` after ``segments`` that acknowledge them."""
        self.late += segments
        if late_ns > self.latest_ns:
            self.latest_ns, self.latest = late_ns, direction
        self.time_ns = min(max(self.time_ns, 4 * late_ns), _MOST_NS)

    def problems(self) -> list[CaptureProblem]:
        """The problem that the capture is out of order, if it is."""
        if not self.much_is_late:
            return []
        detail = f"{self.late:,} packets stand before octets that they acknowledge"
        if self.latest:  # else the times in the capture are those of the events
            latest, _ = addresses(self.latest)
            by = f"{self.latest_ns / 1e6:.1f} ms"
            detail += f", by up to {by}: the capture point was late with what {latest.text} sent"
        return [CaptureProblem("capture-disorder", detail, self.latest_ns)]

    @property
    def much_is_late(self) -> bool:
        """Whether so much came late that it is reported, and that packets after a RST get more time."""
        return self.late >= _MUCH_DISORDER

    def is_over(self, since_ns: int, since_count: int, time_ns: int, count: int) -> bool:
        """Whether octets that a segment has waited for since then should have come by now."""
        return count - since_count >= _PACKETS and time_ns - since_ns >= self.time_ns


FlowDirection = Direction["Flow"]

Notify = Callable[[Notice], None]
"""Called with each notice of a flow."""


class Commons(Part):
    """The parts that all flows of a table share."""

    holdings: Holdings = field(default_factory=Holdings)
    patience: Patience = field(default_factory=Patience)
    retired: Live[dict[bytes, "Flow"]] = field(default_factory=dict)  # by the keys of their directions
    waiting: Live[dict[int, "Flow"]] = field(default_factory=dict)  # flows that lack octets, by their numbers
    notify: Live[Notify | None] = None


class WholeFlow(NamedTuple):
    """A connection that came whole, from SYN to FINs, and in order. So it is over: only late segments can follow.

    Where there are two, the client's comes first.
    """

    number: int
    key: bytes  # of the client's direction
    start_ns: int
    isn: int  # initial numbers
    answered: int
    sent: int  # octets of each stream
    received: int
    segments: int  # with octets
    closer: int  # 0: the client closed first, 1: the server, 2: both at once
    ack: int  # the number that the first FIN acknowledges
    last_ns: int
    last_packet: int

    @property
    def initial_numbers(self) -> tuple[int, int]:
        """As of a Flow."""
        return self.isn, self.answered

    @property
    def closed_by(self) -> Side | None:
        """As of a Flow."""
        return None if self.closer == 2 else "server" if self.closer else "client"


@quick
class Flow(Part):
    """A TCP connection."""

    commons: Live[Commons]
    number: int = 0
    start_ns: int = 0
    last_ns: int = 0
    sure_ns: int = 0  # until then no octets are missing
    last_packet: int = 0
    client: FlowDirection = LATER
    server: FlowDirection = LATER
    begun: bool = False
    count: int = 0  # packets that were looked at closely; while a segment waits all are
    syns: int = 0  # that the client sent; a SYN that a capture point sees several times counts once
    early: list[Segment] | None = None  # segments before it has begun
    early_octets: int = 0
    recent_octets: int = 0  # octets of delivered segments that were kept, at the last count
    dissection: Live[FlowDissection | None] = None
    saved: bytes | None = None  # the dissection in a snapshot
    unwanted: bool = False
    closing: Literal["", "fin", "rst"] = ""  # "fin" or "rst" once that has been seen
    # The direction that closed first, by its key, with the number that its FIN or RST acknowledges; no FIN if both
    # closed at once.
    first_fin: tuple[bytes, int | None] | None = None
    first_reset: tuple[bytes, int | None] | None = None
    was_reset: bool = False  # either side has sent a RST, and nothing shows that it did not count
    ended: bool = False
    retired_ns: int = 0  # when another flow began on the same addresses
    watched: Live[bool] = False  # a receiver lets its peer wait, and a witness wants to know how long

    def __post_init__(self) -> None:
        """Begin with two directions."""
        self.last_ns = self.sure_ns = self.start_ns
        self.client = Direction(self, b"", self.commons.holdings)
        self.server = Direction(self, b"", self.commons.holdings)
        self.client.other, self.server.other = self.server, self.client

    @classmethod
    def between(cls, commons: Commons, number: int, client: bytes, server: bytes, time_ns: int) -> "Flow":
        """The flow ``number``, which begins at ``time_ns``, with the keys of its two directions."""
        flow = cls(commons, number, time_ns)
        flow.client.key, flow.server.key = client, server
        return flow

    @classmethod
    def of_whole(cls, commons: Commons, whole: WholeFlow) -> "Flow":
        """The flow of a connection that came whole, as after all of its segments."""
        flow = cls.between(commons, whole.number, whole.key, reverse(whole.key), whole.start_ns)
        streams = (whole.isn, whole.sent), (whole.answered, whole.received)
        for direction, (isn, length) in zip(flow.directions, streams, strict=True):
            direction.isn, direction.next = isn, (isn + 1 + length) % MODULO
            direction.offset = direction.fin = length
            direction.recent_until = RECENT_OCTETS
            direction.seen = True
        flow.begun = flow.unwanted = flow.ended = True
        flow.count, flow.syns, flow.closing = 2, 1, "fin"
        flow.first_fin = None if whole.closer == 2 else (flow.directions[whole.closer].key, whole.ack)
        flow.last_ns, flow.last_packet = whole.last_ns, whole.last_packet
        return flow

    def snapshot(self, of_dissection: Callable[[FlowDissection], bytes]) -> bytes:
        """The state of the flow between two segments; ``of_dissection`` makes a snapshot of its dissection."""
        self.saved = None if self.dissection is None else of_dissection(self.dissection)
        octets = save(_KIND, self)
        self._clear_saved()
        return octets

    @classmethod
    def restore(cls, commons: Commons, octets: bytes, dissection_of: Callable[[bytes], FlowDissection]) -> "Flow":
        """The flow of a :meth:`snapshot`; ``dissection_of`` makes the dissection from its own.

        Raises SnapshotError if the octets are no snapshot, or one of another format, and whatever ``dissection_of``
        raises.
        """
        flow = cls(commons)
        load(_KIND, octets, flow)
        if flow.saved is not None:
            flow.dissection = dissection_of(flow.saved)
            flow.client.resume(flow.dissection.client)
            flow.server.resume(flow.dissection.server)
        flow._clear_saved()
        flow.count_recent()
        commons.holdings.waiting_octets += flow.waiting_octets + flow.doubtful_octets
        commons.holdings.recent_octets += flow.recent_octets
        flow.note_lack()
        return flow

    def _clear_saved(self) -> None:
        """Forget the parts that only a snapshot needs."""
        self.saved = self.client.kept = self.server.kept = None

    def direction(self, key: bytes) -> FlowDirection:
        """The direction with this key."""
        return self.client if key == self.client.key else self.server

    @property
    def directions(self) -> tuple[FlowDirection, FlowDirection]:
        """Both, the client's first."""
        return self.client, self.server

    @property
    def initial_numbers(self) -> tuple[int, int] | None:
        """The initial sequence numbers (RFC 9293, section 3.4.1), the client's first; None unless both are known."""
        client, server = self.client.isn, self.server.isn
        return None if client is None or server is None else (client, server)

    @property
    def closed(self) -> Literal["", "fin", "rst"]:
        """How the wire says that the flow is over; a side that is not captured needs no FIN."""
        ends = self.directions
        if not self.closing and any(end.finished for end in ends) and not all(end.seen for end in ends):
            return "fin"
        return self.closing

    @property
    def closed_by(self) -> Side | None:
        """Which side closed first; None if octets are missing that may be the other side's FIN."""
        client, server = self.client, self.server
        first = self.first_reset if client.fin is None and server.fin is None else self.first_fin
        if first is None or not (client.seen and server.seen):
            return None
        closer, ack = self.direction(first[0]), first[1]
        if closer.other.fin is None and ack is not None:
            acknowledged = closer.other.place(ack)
            if acknowledged is None or acknowledged > closer.other.offset:
                return None
        return "client" if closer is client else "server"

    @property
    def waiting_octets(self) -> int:
        """How many octets wait."""
        return self.early_octets + self.client.waiting_octets + self.server.waiting_octets

    @property
    def doubtful_octets(self) -> int:
        """How many octets are kept of segments whose numbers do not fit."""
        return sum(len(one[6]) + SEGMENT_COST for end in self.directions for one in end.doubtful)

    @property
    def since_ns(self) -> int:
        """The time of a waiting segment, if there is one; no other waiting segment is much older."""
        if self.early:
            return self.early[0][0]
        times = [direction.waiting[0].time_ns for direction in self.directions if direction.waiting]
        return min(times, default=self.last_ns)

    def attend(self) -> None:
        """Look closely at every segment while something is unusual, otherwise at few."""
        self.note_lack()
        unusual = self.ended or not self.begun or self.watched or self.client.key in self.commons.retired
        if not unusual:
            unusual = self.client.is_unusual or self.server.is_unusual
        for direction in (self.client, self.server):
            direction.usual = ATTENTION if unusual or direction.absent or not direction.seen else ACK

    # ------------------------------------------------------------------ the beginning

    @property
    def awaits_octets(self) -> bool:
        """Whether segments wait, or a connection that is over lacks octets before its FIN or RST."""
        waits = self.early or self.client.waiting or self.server.waiting or self.lacks_end
        return bool(waits) and not self.ended

    def note_lack(self) -> None:
        """Join the flows that lack octets, or leave them."""
        if self.awaits_octets:
            self.commons.waiting.setdefault(self.number, self)
        else:
            self.commons.waiting.pop(self.number, None)

    @property
    def lacks_end(self) -> bool:
        """Whether the wire says that the connection is over, but octets before its FIN or RST have not come."""
        if not self.closing or self.unwanted:
            return False
        return any(end.awaits_reset or (end.fin is not None and not end.finished) for end in self.directions)

    @property
    def awaits_network(self) -> bool:
        """Whether nobody has acknowledged the missing octets: then the network lost them, and TCP sends them again."""
        if not self.begun:
            return False
        return not any(end.acked > end.offset or (end.waiting and not end.other.seen) for end in self.directions)

    def synchronise(self, direction: FlowDirection, syn: Segment) -> None:
        """Take a SYN of this connection: its first one, a repetition, or the answer (RFC 9293, section 3.5)."""
        time_ns, _, _, seq, ack, flags, _, _ = syn
        other, answers = direction.other, bool(flags & ACK)
        if direction.isn is None:
            if self.dissection is None and (answers or other.isn is None):  # ports may have suggested the other side
                self.client, self.server = (other, direction) if answers else (direction, other)
            direction.isn = seq
        if answers:
            if other.isn is None and not self.begun:
                other.isn = self._acknowledged_isn(other, ack)
        elif not self.syns or time_ns - self.last_ns >= _SYN_AGAIN_NS:
            self.syns += 1

    def _acknowledged_isn(self, direction: FlowDirection, ack: int) -> int:
        """The initial sequence number that a SYN-ACK acknowledges, with the octets that the SYN may have carried."""
        ahead = (distance(one[3], ack) for one in self.early or () if one[2] == direction.key)
        return (ack + min((by for by in ahead if -WINDOW <= by <= 0), default=0) - 1) % MODULO

    def gather(self, direction: FlowDirection, segment: Segment) -> None:
        """Keep a segment until the flow has begun."""
        if self.early is None:
            self.early = []
        if direction.gathered is None:
            direction.gathered = segment[3]
        self.early.append(segment)
        self.early_octets += len(segment[6]) + SEGMENT_COST
        self.commons.holdings.waiting_octets += len(segment[6]) + SEGMENT_COST
        self.note_lack()

    def gathers_too_long(self, time_ns: int) -> bool:
        """Whether segments were gathered for so long that the SYNs should have come by now."""
        return self.early is not None and self.commons.patience.is_over(self.early[0][0], 0, time_ns, self.count)

    def begin(self) -> list[Segment]:
        """Decide where both streams begin; returns the segments that were gathered."""
        self.begun = True
        early = self.early or []
        for direction in (self.client, self.server):
            direction.next = _origin(direction, early)
            direction.gathered = None
        if early:
            self.early = None
            self.commons.holdings.waiting_octets -= self.early_octets
            self.early_octets = 0
            self.start_ns = min(self.start_ns, min(segment[0] for segment in early))
        return early

    def dissect(self, dissection: FlowDissection) -> None:
        """Let ``dissection`` take the octets from here on."""
        self.dissection = dissection
        self.client.begin(dissection.client)
        self.server.begin(dissection.server)

    # ------------------------------------------------------------------ going on

    def see(self, direction: FlowDirection, time_ns: int, packet: int) -> None:
        """Take note of a packet of a direction that is looked at closely."""
        other = direction.other
        if self.begun:
            lacks = direction.acked > direction.offset or other.acked > other.offset
            waits = direction.waiting or other.waiting or direction.doubtful or other.doubtful
            if not (waits or (lacks and (direction.owes or other.owes)) or self.lacks_end):
                self.sure_ns = self.last_ns
            if time_ns - self.last_ns > _PAUSE_NS:
                direction.forget_past()
                other.forget_past()
        elif not self.early:
            self.sure_ns = self.last_ns
        self.last_ns, self.last_packet = time_ns, packet
        self.count += 1
        direction.seen = True

    def trust(self) -> None:
        """Forget doubtful segments of both directions."""
        self.client.trust()
        self.server.trust()

    def insert(self, direction: FlowDirection, offset: int, segment: Segment) -> None:
        """Take a segment with octets, which stands at this offset of its direction's stream."""
        time_ns, packet, _, _, ack, flags, payload, missing = segment
        if direction.doubtful and time_ns - direction.doubtful[-1][0] >= self.commons.patience.time_ns:
            direction.trust()
        if flags & ACK:
            direction.other.acknowledge(ack, time_ns, packet)
        direction.insert(offset, payload, missing, time_ns, packet, ack if flags & ACK else None)

    def advance(self, first: FlowDirection, time_ns: int, packet: int, *, arrived: bool = True) -> None:
        """Deliver segments that need not wait, first of the direction ``first``, of which a packet has ``arrived``."""
        direction, idle = first, 0
        while idle < 2:
            if direction.waiting and (delivered := direction.drain(time_ns, packet)):
                idle = 0
                if arrived and direction is not first:  # what was given up has not come late: it has not come
                    self._learn(first, delivered, time_ns, packet)
            else:
                idle += 1
            direction = direction.other

    def _learn(self, late: FlowDirection, delivered: list[WaitingSegment], time_ns: int, packet: int) -> None:
        """Octets of a direction have come, and segments of the other one waited for them: learn how late they came."""
        times = [one.time_ns for one in delivered if one.packet < packet]
        if times:
            self.commons.patience.see(time_ns - min(times), late.key, len(times))

    def count_recent(self) -> None:
        """Count the octets of delivered segments that are kept."""
        self.recent_octets = self.client.recent_octets + self.server.recent_octets

    def forget_recent(self) -> None:
        """Forget delivered segments."""
        self.client.recent.clear()
        self.server.recent.clear()
        self.recent_octets = 0

    # ------------------------------------------------------------------ FIN and RST

    def close(self, direction: FlowDirection, end: int, ack: int | None) -> None:
        """Take the FIN of a side at the stream offset ``end``, which acknowledges ``ack``.

        The order of the capture may be wrong, so the side whose FIN comes first has not always closed first.
        """
        other = direction.other
        is_first, direction.fin = direction.fin is None, end
        direction.acked = min(direction.acked, end)
        if is_first:
            if other.fin is None or (self.first_fin is not None and direction.is_acknowledged(self.first_fin[1])):
                self.first_fin = direction.key, ack
            elif not other.is_acknowledged(ack):
                self.first_fin = None  # neither knew that the other one closes
        if other.fin is not None:
            self.closing = self.closing or "fin"

    def reset(self, direction: FlowDirection, segment: Segment) -> bool:
        """Take a RST; returns whether its number is one of this connection.

        Octets in a RST are a text for people, no part of the stream (RFC 9293, section 3.5.3).
        """
        time_ns, packet, key, seq, ack, flags, _, _ = segment
        self.last_ns, self.last_packet = time_ns, packet
        ahead = 0 if direction.next is None else distance(seq, direction.next)
        if not -WINDOW < ahead < 1 << 30:
            return False  # far outside of the window: forged, or of an old connection
        self.closing = "rst" if ahead else self.closing or "rst"
        if self.unwanted:
            return False
        self.first_reset = self.first_reset or (key, ack if flags & ACK else None)
        self.was_reset = direction.seen = True
        if ahead and not (ahead == 1 and direction.finished):
            # A receiver obeys only a RST with exactly the number that it expects (RFC 9293, section 3.10.7.4). Any
            # other RST is forged or late, unless the octets before it are late, or the capture lacks them.
            direction.reset = Reset(seq, time_ns, ack if flags & ACK else direction.other.highest)
            self.attend()
        else:
            direction.reset = None
            direction.acked = min(direction.acked, direction.offset)  # what acknowledges more is of another connection
        if flags & ACK:
            direction.other.acknowledge(ack, time_ns, packet)
        return True

    def doubt_reset(self, direction: FlowDirection, segment: Segment) -> None:
        """Take a segment from the side that sent a RST. If it was sent after the RST, the RST did not count."""
        time_ns, _, _, seq, ack, flags, payload, missing = segment
        reset, patience = direction.reset, self.commons.patience
        assert reset is not None
        left = distance(reset.seq, seq + len(payload) + missing + (flags & FIN > 0))
        acknowledges = flags & ACK and reset.before is not None and distance(ack, reset.before) > 0
        in_time = time_ns - reset.time_ns <= (patience.time_ns if patience.much_is_late else _RESET_GRACE_NS)
        if in_time and not acknowledges and (left == 0 or (left > 0 and not flags & FIN)):
            return
        direction.reset = None
        if direction.other.reset is None:
            self.closing = "fin" if all(end.fin is not None for end in self.directions) else ""
            self.was_reset = False
            self.first_reset = None

    @property
    def is_over(self) -> bool:
        """Whether everything up to the FINs, or the RST, has been delivered.

        Octets that arrive at the sender of a RST are not acknowledged. In a capture where much comes late, such octets
        may come late, too, so the flow stays open for a while.
        """
        if self.client.finished and self.server.finished:
            return True
        return not (self.closing == "fin" or self.commons.patience.much_is_late) and not any(
            one.waiting or one.owes or one.awaits_reset or (one.fin is not None and not one.finished)
            for one in self.directions
        )

    def behind_end(self) -> list[Segment]:
        """Give up the segments that wait behind the end of a flow that is over: another connection sent them."""
        if not (self.client.waiting or self.server.waiting):
            return []
        return sorted([*self.client.behind_end(), *self.server.behind_end()], key=packet_of)

    def finish(self, end: End) -> None:
        """No segment of this flow counts any more."""
        self.ended = True
        if self.dissection is not None and not self.unwanted:
            self._end(self.last_ns, self.last_packet)
            self.dissection.finish(end, self.start_ns, self.last_ns, self.closed_by)
        self.drop()

    def drop(self) -> None:
        """Forget everything, except the numbers that distinguish this flow's segments from another flow's."""
        self.unwanted = True
        if self.dissection is not None:
            self.dissection.release()
            self.dissection = None
        self.client.forget()
        self.server.forget()
        self.recent_octets = 0
        self.attend()

    # ------------------------------------------------------------------ giving up

    def give_up_late(self, time_ns: int, packet: int) -> None:
        """Wait no longer for octets that should have come by now."""
        if self.dissection is None:
            return
        patience = self.commons.patience
        for direction in self.directions:
            while direction.owes and patience.is_over(direction.owed_ns, direction.owed_count, time_ns, self.count):
                self._give_up(direction, time_ns, packet)

    def _give_up(self, direction: FlowDirection, time_ns: int, packet: int) -> None:
        """Wait no longer for the next octets that a direction owes."""
        if direction.hole:
            direction.lose(min(direction.waiting[0].offset, direction.acked), time_ns, packet)
        elif direction.waiting:  # its octets are here; they acknowledge octets that are not
            other = direction.other
            self._presume(other, other.seen_by(direction.waiting[0].ack), time_ns, packet)
        else:
            self._presume(direction, direction.acked, time_ns, packet)
        self.advance(direction, time_ns, packet, arrived=False)

    def _presume(self, direction: FlowDirection, end: int, time_ns: int, packet: int) -> None:
        """Presume the octets before ``end`` lost, so that no segment waits for them. They may still come."""
        assert direction.receiver is not None
        if not direction.seen:
            if not direction.absent:
                direction.absent = True
                direction.receiver.absent(time_ns, packet)
        elif (
            end > direction.offset + 1 and self.commons.notify is not None
        ):  # one number may be a FIN: no frame has one
            self.commons.notify(Doubt(time_ns, self.number, self.sure_ns))
        direction.presumed = max(direction.presumed, end)

    def give_up(self, time_ns: int, packet: int) -> None:
        """Let no segment wait any longer, though others may follow.

        If the connection was reset, TCP had no time to fill the holes of the network. The receiver never took the
        octets behind such a hole, so they are not shown.
        """
        if self.was_reset:
            for direction in self.directions:
                direction.forget_untaken()
        while self.client.waiting or self.server.waiting:
            self.give_up_first(time_ns, packet)

    def give_up_first(self, time_ns: int, packet: int) -> None:
        """Deliver the segment that has waited for longest, or one that it waits for."""
        fronts = [direction for direction in self.directions if direction.waiting]
        holes = [direction for direction in fronts if direction.hole]
        direction = min(holes or fronts, key=lambda one: one.waiting[0].packet)
        if direction.hole:
            direction.lose(direction.waiting[0].offset, time_ns, packet)
        else:
            other = direction.other
            self._presume(other, other.seen_by(direction.waiting[0].ack), time_ns, packet)
        self.advance(direction, time_ns, packet, arrived=False)

    def _end(self, time_ns: int, packet: int) -> None:
        """No more segments will come: missing octets are lost."""
        self.give_up(time_ns, packet)
        for direction in (self.client, self.server):
            if direction.seen:
                direction.lose_end(time_ns, packet)
            elif direction.receiver is not None and not direction.absent:
                direction.receiver.absent(time_ns, packet)


def _origin(direction: FlowDirection, early: list[Segment]) -> int:
    """The sequence number of the first octet of a direction, by its SYN or by the lowest number in the capture."""
    if direction.isn is not None:
        return (direction.isn + 1) % MODULO
    numbers = [segment[3] for segment in early if segment[2] == direction.key]
    if direction.other.isn is not None or not numbers:  # a stream whose start is known has no octets before it
        numbers += [segment[4] for segment in early if segment[2] != direction.key and segment[5] & ACK]
    if not numbers:
        return 0
    # The first one decides which connection it is, if there are segments of two.
    near = [ahead for ahead in (distance(number, numbers[0]) for number in numbers) if abs(ahead) <= WINDOW]
    return (numbers[0] + min(near)) % MODULO
