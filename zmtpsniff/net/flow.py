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

*It has ended.* The table keeps the flow for some seconds, so that late segments do not begin another one.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import field

from dissectors.snapshots import LATER, Live, Part, quick
from zmtpsniff.net.dissection import FlowDissection, Side
from zmtpsniff.net.reassembly import (
    ATTENTION,
    MODULO,
    SEGMENT_COST,
    WINDOW,
    Direction,
    Holdings,
    WaitingSegment,
    distance,
)
from zmtpsniff.net.segment import ACK, Segment

_PACKETS = 32  # so many packets of the flow pass before octets are presumed lost
_LEAST_NS = 250_000_000  # and at least so much time
_MOST_NS = 5_000_000_000


class Patience(Part, gc=False):
    """How long to wait for octets that must exist; it learns that from how late others came."""

    time_ns: int = _LEAST_NS
    late: int = 0  # segments that were captured before the octets that they acknowledge
    latest_ns: int = 0  # the longest time by which octets came late
    latest: bytes = b""  # the key of the direction whose octets came so late

    def observe(self, late_ns: int, direction: bytes, segments: int) -> None:
        """Octets of a direction came ``late_ns`` after ``segments`` that acknowledge them."""
        self.late += segments
        if late_ns > self.latest_ns:
            self.latest_ns, self.latest = late_ns, direction
        self.time_ns = min(max(self.time_ns, 4 * late_ns), _MOST_NS)

    def is_over(self, since_ns: int, since_count: int, time_ns: int, count: int) -> bool:
        """Whether octets that a segment has waited for since then should have come by now."""
        return count - since_count >= _PACKETS and time_ns - since_ns >= self.time_ns


FlowDirection = Direction["Flow"]

Doubt = Callable[[int, int, int, int], None]
"""Called with the number of a flow, time and packet, and the time of the last packet before the octets in doubt."""


class Commons(Part):
    """The parts that all flows of a table share."""

    holdings: Holdings = field(default_factory=Holdings)
    patience: Patience = field(default_factory=Patience)
    retired: Live[dict[bytes, "Flow"]] = field(default_factory=dict)  # by the keys of their directions
    doubt: Live[Doubt | None] = None


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

    def save(self, save: Callable[[FlowDissection], bytes]) -> None:
        """Get ready for a snapshot; ``save`` makes one of the dissection."""
        self.saved = None if self.dissection is None else save(self.dissection)

    def resume(self, load: Callable[[bytes], FlowDissection]) -> None:
        """Go on from a snapshot; ``load`` makes the dissection from its own."""
        if self.saved is not None:
            self.dissection = load(self.saved)
            self.client.resume(self.dissection.client)
            self.server.resume(self.dissection.server)
        self.clear_saved()

    def clear_saved(self) -> None:
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
    def closed(self) -> Literal["", "fin", "rst"]:
        """How the wire says that the flow is over; a side that is not captured needs no FIN."""
        ends = self.directions
        if not self.closing and any(end.finished for end in ends) and not all(end.seen for end in ends):
            return "fin"
        return self.closing

    def close(self, direction: FlowDirection, ack: int | None) -> None:
        """Take the FIN of a side, which acknowledges ``ack``. The order of the capture may be wrong."""
        if direction.other.fin is None or (self.first_fin is not None and direction.is_acknowledged(self.first_fin[1])):
            self.first_fin = direction.key, ack
        elif not direction.other.is_acknowledged(ack):
            self.first_fin = None  # neither knew that the other one closes

    @property
    def closed_by(self) -> Side | None:
        """Which side closed first; None if octets are missing that may be the other side's FIN."""
        has_fin = any(end.fin is not None for end in self.directions)
        first = self.first_fin if has_fin else self.first_reset
        if first is None or not all(end.seen for end in self.directions):
            return None
        closer, ack = self.direction(first[0]), first[1]
        if closer.other.fin is None and ack is not None:
            acknowledged = closer.other.place(ack)
            if acknowledged is None or acknowledged > closer.other.offset:
                return None
        return "client" if closer is self.client else "server"

    @property
    def waiting_octets(self) -> int:
        """How many octets wait."""
        return self.early_octets + self.client.waiting_octets + self.server.waiting_octets

    @property
    def since_ns(self) -> int:
        """The time of a waiting segment, if there is one; no other waiting segment is much older."""
        if self.early:
            return self.early[0][0]
        times = [direction.waiting[0].time_ns for direction in self.directions if direction.waiting]
        return min(times, default=self.last_ns)

    def attend(self) -> None:
        """Look closely at every segment while something is unusual, otherwise at few."""
        client, server = self.client, self.server
        if self.ended or not self.begun:
            client.usual = server.usual = ATTENTION
            return
        unusual = (
            client.key in self.commons.retired
            or client.waiting
            or server.waiting
            or client.owes
            or server.owes
            or client.reset
            or server.reset
            or client.pending
            or server.pending
            or client.doubtful
            or server.doubtful
            or self.watched
        )
        client.usual = ATTENTION if unusual or client.absent or not client.seen else ACK
        server.usual = ATTENTION if unusual or server.absent or not server.seen else ACK

    # ------------------------------------------------------------------ the beginning

    @property
    def awaits_octets(self) -> bool:
        """Whether segments wait, or a connection that is over lacks octets before its FIN or RST."""
        return bool(self.early or self.client.waiting or self.server.waiting or self.lacks_end)

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

    def gather(self, direction: FlowDirection, segment: Segment) -> None:
        """Keep a segment until the flow has begun."""
        if self.early is None:
            self.early = []
        if direction.gathered is None:
            direction.gathered = segment[3]
        self.early.append(segment)
        self.early_octets += len(segment[6]) + SEGMENT_COST
        self.commons.holdings.waiting_octets += len(segment[6]) + SEGMENT_COST

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

    # ------------------------------------------------------------------ going on

    def advance(self, first: FlowDirection, time_ns: int, packet: int, *, arrived: bool = True) -> None:
        """Deliver what can go on, beginning with the direction ``first``, of which a packet has ``arrived``."""
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
            self.commons.patience.observe(time_ns - min(times), late.key, len(times))

    def count_recent(self) -> None:
        """Count the octets of delivered segments that are kept."""
        self.recent_octets = self.client.recent_octets + self.server.recent_octets

    def forget_recent(self) -> None:
        """Forget delivered segments."""
        self.client.recent.clear()
        self.server.recent.clear()
        self.recent_octets = 0

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
        """Presume the octets before ``end`` lost: segments that acknowledge them go on. They may still come."""
        assert direction.receiver is not None
        if not direction.seen:
            if not direction.absent:
                direction.absent = True
                direction.receiver.absent(time_ns, packet)
        elif (
            end > direction.offset + 1 and self.commons.doubt is not None
        ):  # one number may be a FIN: no frame has one octet
            self.commons.doubt(self.number, time_ns, packet, self.sure_ns)
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
        """Let the segment that has waited for longest go on, or one that it waits for."""
        fronts = [direction for direction in self.directions if direction.waiting]
        holes = [direction for direction in fronts if direction.hole]
        direction = min(holes or fronts, key=lambda one: one.waiting[0].packet)
        if direction.hole:
            direction.lose(direction.waiting[0].offset, time_ns, packet)
        else:
            other = direction.other
            self._presume(other, other.seen_by(direction.waiting[0].ack), time_ns, packet)
        self.advance(direction, time_ns, packet, arrived=False)

    def end(self, time_ns: int, packet: int) -> None:
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
