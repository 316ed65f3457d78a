"""A TCP that carries a conversation: segments that know when they were sent, when they arrived, and what they say.

Offsets count the octets of a side's stream, so a SYN has -1 and a FIN the length of the stream. A segment acknowledges
exactly what its sender had received when it sent it, never more: this is what makes causality visible in a capture.
"""

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import accumulate
from random import Random

from tests.world.conversation import CLIENT, SERVER, Piece
from tests.world.network import SentSegment
from tests.world.scripts import MS, US, KnownConversation
from zmtpsniff.net.segment import ACK, FIN, PSH, RST, SYN

_MODULO = 1 << 32
_MOST_SEGMENTS = 300  # of a connection, about; a case is to take milliseconds


@dataclass
class Link:
    """How two hosts and the network between them behave."""

    delay_ns: int = 200 * US  # one way
    jitter_ns: int = 50 * US  # more than that, at most
    mss: int = 1448
    window: int = 1 << 20
    delayed_ack_ns: int = 0  # 0: every segment is acknowledged at once
    ack_share: float = 1.0  # of segments that are acknowledged by themselves, unless that is overdue
    cork: float = 0.0  # share of writes that wait for the next one
    loss: float = 0.0
    spurious: float = 0.0  # share of segments that are sent again though they arrived
    timeout_ns: int = 5 * MS  # until a lost segment is sent again
    reorder: float = 0.0  # share of segments that others overtake on their way

    @classmethod
    def choose(cls, random: Random) -> "Link":
        """Any link."""
        delay = random.choice([10, 100, 100, 300, 1000]) * US
        return cls(
            delay_ns=delay,
            jitter_ns=random.choice([1, delay // 4, delay]),
            mss=random.choice([1448, 1448, 1448, 536, 65_000, 65_000, 37]),  # or what is handed to the card at once
            window=random.choice([1 << 20, 1 << 20, 1 << 16, 4096]),
            delayed_ack_ns=random.choice([0, 0, 200 * US, 5 * MS, 40 * MS]),
            ack_share=random.choice([1.0, 1.0, 0.5, 0.0]),
            cork=random.choice([0.0, 0.0, 0.2, 0.6]),
            loss=random.choice([0.0, 0.0, 0.0, 0.02, 0.1]),
            spurious=random.choice([0.0, 0.0, 0.0, 0.05]),
            reorder=random.choice([0.0, 0.0, 0.0, 0.05]),
        )


@dataclass(eq=False, slots=True, kw_only=True)
class CarriedSegment(SentSegment):
    """A segment on its way."""

    session: "Session" = field(repr=False)
    arrival_ns: int = 0  # when it arrives, or would have arrived
    reach: float = 1.0  # how far it gets, as a part of its way; less than 1 if it is lost

    def passes(self, place: float) -> int:
        """When it passes a place: 0 is at the client, 1 at the server; -1 if it is lost before."""
        part = 1 - place if self.side else place
        if part > self.reach:
            return -1
        return self.time_ns + int(part * (self.arrival_ns - self.time_ns))


@dataclass
class Session:
    """A connection: who talks to whom, and what was sent."""

    talk: KnownConversation
    hosts: tuple[bytes, bytes]
    ports: tuple[int, int]
    isn: tuple[int, int]
    link: Link
    segments: list[CarriedSegment]
    hole: tuple[int, int, int] | None = None  # side, offset and length of octets that are not in `segments`

    def address(self, side: int) -> str:
        """Address and port, as records have them."""
        return f"{'.'.join(map(str, self.hosts[side]))}:{self.ports[side]}"


def connect(talk: KnownConversation, random: Random, link: Link, place: int = 0, start_ns: int = 0) -> Session:
    """Carry a conversation over a link, from ``start_ns`` on; ``place`` tells its addresses from those of others.

    Segments are larger than the link says where there would be too many of them.
    """
    octets = sum(len(piece.data) for piece in talk.pieces)
    if octets // link.mss > _MOST_SEGMENTS:
        link = replace(link, mss=min(max(octets // _MOST_SEGMENTS, 1448), 65_000), window=1 << 20)
    ports = random.choice([40_000, 40_000, 40_000, 4000]) + place, 5555 + place
    isn = random.choice([random.randrange(_MODULO), _MODULO - 1 - random.randrange(3000)]), random.randrange(_MODULO)
    session = Session(
        talk, (b"\x0a\0\0\1", b"\x0a\0\1\2"), ports, isn if random.random() < 0.5 else isn[::-1], link, []
    )
    _Exchange(session, random, start_ns).run()
    return session


@dataclass(eq=False, slots=True)
class _End:
    """One end of the connection."""

    queue: list[Piece]  # its writes
    next: int = 0  # of the writes
    writing: bool = False  # the next write has its time
    ready: bool = False  # the connection is established
    stream: bytearray = field(default_factory=bytearray)  # written so far
    sent: int = 0  # of it
    acked: int = 0  # by the other end
    received: int = 0  # of the other's stream, in order
    early: list[tuple[int, int]] = field(default_factory=list)  # beyond that
    since_ack: int = 0  # segments since then
    due: int = 0  # number of the acknowledgment that is waited with
    arrived: int = 0  # writes of the other end
    last_arrival: int = 0  # of its segments at the other end
    fin_at: int = -1  # offset of its FIN
    peer_fin: int = -1  # offset of the other's, once it has come
    fin_seen: bool = False
    waits: bool = False  # corked
    asked: bool = False  # to close
    boundaries: list[int] = field(init=False)  # where its writes end

    def __post_init__(self) -> None:
        self.boundaries = list(accumulate(len(write.data) for write in self.queue))

    @property
    def length(self) -> int:
        """All octets that it writes."""
        return self.boundaries[-1] if self.boundaries else 0


_WRITE, _ARRIVE, _ACK, _AGAIN, _CLOSE, _PUSH = range(6)


class _Exchange:
    """The simulation: events in order of time."""

    def __init__(self, session: Session, random: Random, start_ns: int) -> None:
        self.session = session
        self.random = random
        self.link = session.link
        self.now = start_ns
        self.order = 0
        self.events: list[tuple[int, int, int, int, object]] = []
        talk = session.talk
        self.ends = tuple(_End([piece for piece in talk.pieces if piece.side == side]) for side in (CLIENT, SERVER))
        self.reset_by = -1  # the side that has sent a RST and knows nothing of the connection any more

    def run(self) -> None:
        talk = self.session.talk
        self._send(CLIENT, -1, b"", SYN)
        events = self.events
        while events:
            self.now, _, kind, side, what = heappop(events)
            if kind == _ARRIVE:
                self._arrive(side, what)  # type: ignore[arg-type]
            elif kind == _WRITE:
                self._write(side)
            elif kind == _ACK:
                if self.ends[side].due == what and self.reset_by != side:
                    self._acknowledge(side)
            elif kind == _AGAIN:
                self._again(side, *what)  # type: ignore[misc]
            elif kind == _PUSH:
                self.ends[side].waits = False
                self._push(side)
            elif kind == _CLOSE:
                self._close(side)
        for end in self.ends:
            assert end.next == len(end.queue), f"{talk.name}: a write waits for ever"

    def _at(self, time_ns: int, kind: int, side: int, what: object = None) -> None:
        self.order += 1
        heappush(self.events, (time_ns, self.order, kind, side, what))

    # ------------------------------------------------------------------ sending

    def _send(self, side: int, offset: int, payload: bytes, flags: int) -> None:
        end, link = self.ends[side], self.link
        ack = -1
        if flags & ACK:
            ack = end.received + (end.peer_fin >= 0 and end.received == end.peer_fin)
            end.since_ack = 0
            end.due = 0
        segment = CarriedSegment(side, offset, payload, ack, flags, self.now, session=self.session)
        self.session.segments.append(segment)
        random = self.random
        arrival = self.now + link.delay_ns + int(link.jitter_ns * random.random())
        if payload and link.reorder and random.random() < link.reorder:
            arrival += 3 * link.delay_ns  # those behind it do not wait
        else:
            arrival = end.last_arrival = max(arrival, end.last_arrival + 1)
        segment.arrival_ns = arrival
        if payload and link.loss and random.random() < link.loss:
            segment.reach = random.random() * 0.999
            self._at(self.now + link.timeout_ns, _AGAIN, side, (offset, len(payload)))
            return
        self._at(arrival, _ARRIVE, 1 - side, segment)
        if payload and link.spurious and random.random() < link.spurious:
            self._at(self.now + link.timeout_ns, _AGAIN, side, (offset, len(payload)))

    def _again(self, side: int, offset: int, length: int) -> None:
        """Send octets again; with luck in other segments than before."""
        end = self.ends[side]
        if (end.fin_at >= 0 and end.acked > end.fin_at) or self.reset_by == side:
            return
        if self.random.random() < 0.3:
            length = min(end.sent - offset, self.link.mss)
        while length > 0:
            size = min(length, self.link.mss)
            self._send(side, offset, bytes(end.stream[offset : offset + size]), PSH | ACK)
            offset += size
            length -= size

    def _push(self, side: int) -> None:
        """Send what may be sent."""
        end, link = self.ends[side], self.link
        while end.sent < len(end.stream):
            size = min(link.mss, len(end.stream) - end.sent, end.acked + link.window - end.sent)
            if size <= 0:
                return
            at = end.sent
            end.sent += size
            last = end.sent == len(end.stream)
            self._send(side, at, bytes(end.stream[at : at + size]), ACK | PSH if last else ACK)
        self._close_when_done(side)

    def _acknowledge(self, side: int) -> None:
        end = self.ends[side]
        self._send(side, end.sent + (end.fin_at >= 0), b"", ACK)

    # ------------------------------------------------------------------ writing

    def _write_next(self, side: int) -> None:
        """Give the next write its time, once what it needs is there."""
        end = self.ends[side]
        if end.writing or not end.ready or end.next == len(end.queue):
            return
        write = end.queue[end.next]
        if end.arrived >= write.needs:
            end.writing = True
            self._at(self.now + write.pause_ns, _WRITE, side)

    def _write(self, side: int) -> None:
        end, link = self.ends[side], self.link
        end.stream += end.queue[end.next].data
        end.next += 1
        end.writing = False
        if link.cork and self.random.random() < link.cork:
            if not end.waits:
                end.waits = True
                self._at(self.now + int(self.random.random() * link.delay_ns) + 1, _PUSH, side)
        elif not end.waits:
            self._push(side)
        self._write_next(side)

    # ------------------------------------------------------------------ receiving

    def _arrive(self, side: int, segment: CarriedSegment) -> None:
        end, other = self.ends[side], self.ends[1 - side]
        if self.reset_by == side:
            return
        if segment.flags & SYN:
            if segment.flags & ACK:
                self._establish(side)
                if self.random.random() < 0.9 or not end.writing:
                    self._acknowledge(side)
            else:
                self._send(side, -1, b"", SYN | ACK)
            return
        if segment.flags & RST:
            self.events.clear()
            return
        if not end.ready:
            self._establish(side)
        if segment.ack > end.acked:
            end.acked = segment.ack
            self._push(side)
        if segment.flags & FIN:
            end.peer_fin = segment.offset + len(segment.payload)
        stop = segment.offset + len(segment.payload)
        if segment.payload:
            in_order = segment.offset <= end.received
            if in_order and stop > end.received:
                end.received = stop
                while end.early and end.early[0][0] <= end.received:
                    end.received = max(end.received, end.early.pop(0)[1])
                while end.arrived < len(other.boundaries) and other.boundaries[end.arrived] <= end.received:
                    end.arrived += 1
                self._plan_ack(side)
                self._write_next(side)
            else:
                if not in_order:
                    end.early.append((segment.offset, stop))
                    end.early.sort()
                self._acknowledge(side)  # a duplicate acknowledgment
        if end.peer_fin >= 0 and end.received == end.peer_fin and not end.fin_seen:
            end.fin_seen = True
            self._acknowledge(side)
        self._close_when_done(side)

    def _establish(self, side: int) -> None:
        self.ends[side].ready = True
        self._write_next(side)

    def _plan_ack(self, side: int) -> None:
        """Acknowledge at once, later, or with what is sent by itself."""
        end, link = self.ends[side], self.link
        end.since_ack += 1
        if (not link.delayed_ack_ns and self.random.random() < link.ack_share) or end.since_ack > 3:
            self._acknowledge(side)
        elif not end.due:
            self.order += 1
            end.due = self.order
            self._at(self.now + max(link.delayed_ack_ns, link.delay_ns // 2), _ACK, side, self.order)

    # ------------------------------------------------------------------ closing

    def _close_when_done(self, side: int) -> None:
        """Close once all is said and heard; the side that begins that, or the one that follows."""
        end, other, talk = self.ends[side], self.ends[1 - side], self.session.talk
        if end.asked or talk.end == "open" or end.next < len(end.queue) or end.sent < end.length:
            return
        if end.received < other.length or (side != talk.closer and not end.fin_seen):
            return
        if side == talk.closer and end.acked < end.length and talk.end == "rst":
            return
        end.asked = True
        self._at(self.now + int(self.random.random() * self.link.delay_ns) + 1, _CLOSE, side)

    def _close(self, side: int) -> None:
        end = self.ends[side]
        if self.session.talk.end == "rst":
            self._send(side, end.sent, b"", RST | ACK)
            self.reset_by = side
            return
        end.fin_at = end.sent
        self._send(side, end.sent, b"", FIN | ACK)
