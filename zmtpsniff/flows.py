"""TCP connections: which segment belongs to which, when one begins and ends, and what is kept of them.

Octets go to whoever is given by ``connect``; a flow that nobody wants costs a look-up a packet.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from zmtpsniff.addresses import Address, addresses
from zmtpsniff.reassembly import LONG_GRACE_NS, Direction, Receiver, distance
from zmtpsniff.segment import ACK, FIN, RST, SYN, Segment

_MODULO = 1 << 32
_SWEEP_NS = 1_000_000_000  # how often flows are looked through, in time of the capture
_SWEEP_PART = 4096  # flows looked at in one go
_LONGEST_SECONDS = 1e9

End = Literal["fin", "rst", "timeout", "open"]


class Dissection(Protocol):
    """What takes the octets of a flow."""

    @property
    def rejected(self) -> bool:
        """Whether nothing more is wanted of the flow."""
        ...

    @property
    def client(self) -> Receiver:
        """Who takes the client's octets."""
        ...

    @property
    def server(self) -> Receiver:
        """Who takes the server's octets."""
        ...

    def finish(self, end: End, start_ns: int, end_ns: int, /) -> None:
        """The flow is over."""

    def release(self) -> None:
        """Nothing more is asked of it: let go of what refers back to it."""


class Limits(NamedTuple):
    """Bounds of memory and time."""

    waiting_octets_per_direction: int = 4 << 20
    waiting_octets: int = 64 << 20
    flows: int = 100_000
    idle_seconds: float = 86_400.0
    idle_seconds_unknown: float = 600.0  # of flows that are not ZMTP, or not yet
    linger_seconds: float = 5.0  # how long late segments of a closed flow are expected


Connect = Callable[[int, Address, Address, bool], Dissection | None]
"""Called with a flow's number, client, server and whether its start is in the capture."""

Refuse = Callable[[int, str, str, int, int], None]
"""Called with the number of a flow that was refused, its client, its server, time and packet."""


class Flow:
    """A TCP connection."""

    __slots__ = (
        "client",
        "closing",
        "dissection",
        "ended",
        "from_start",
        "last_ns",
        "last_packet",
        "number",
        "server",
        "start_ns",
        "table",
        "unwanted",
    )
    direction_type = Direction  # of its two directions; another one may watch them

    def __init__(self, table: "FlowTable", number: int, client: bytes, server: bytes, time_ns: int) -> None:
        """Begin the flow ``number`` of ``table`` at ``time_ns``, with the keys of its two directions."""
        self.table = table
        self.number = number
        self.start_ns = self.last_ns = time_ns
        self.last_packet = 0
        self.client = self.direction_type(self, client)
        self.server = self.direction_type(self, server)
        self.client.other, self.server.other = self.server, self.client
        self.from_start = False
        self.dissection: Dissection | None = None
        self.unwanted = False
        self.closing: Literal["", "fin", "rst"] = ""  # "fin" or "rst" once that has been seen
        self.ended = False

    @property
    def closed(self) -> Literal["", "fin", "rst"]:
        """How the wire says that it is over; of a side that is not captured no FIN is expected."""
        ends = (self.client, self.server)
        if not self.closing and any(end.finished for end in ends) and not all(end.seen for end in ends):
            return "fin"
        return self.closing


class FlowTable:
    """All TCP connections of a capture."""

    flow_type = Flow

    def __init__(self, connect: Connect, limits: Limits | None = None, refuse: Refuse | None = None) -> None:
        """Ask ``connect`` who takes the octets of each flow, within ``limits``; tell ``refuse`` of a SYN that is not.

        A SYN is refused if a RST answers it, whatever protocol would have been spoken.
        """
        self._connect = connect
        self._refuse = refuse
        self._limits = limits = limits or Limits()
        self._linger_ns = _nanoseconds(limits.linger_seconds)
        self._idle_ns = _nanoseconds(limits.idle_seconds)
        self._idle_unknown_ns = min(self._idle_ns, _nanoseconds(limits.idle_seconds_unknown))
        self._now_ns = 0
        self._directions: dict[bytes, Direction] = {}
        self._flows: dict[int, Flow] = {}
        self._sweeping: list[int] = []
        self._next_sweep = 0
        self.count = 0  # flows so far
        self.waiting_octets = 0

    def number(self) -> int:
        """The number of another flow, which is counted, too, though it is none of TCP."""
        self.count += 1
        return self.count

    # ------------------------------------------------------------------ the hot loop

    def take(self, segments: list[Segment]) -> None:
        """Take segments in the order of the capture."""
        if not segments:
            return
        directions = self._directions
        now_ns = segments[-1][0]
        least_ns = min(self._linger_ns, self._idle_unknown_ns)  # no flow is over after a shorter pause
        stale_ns = now_ns - least_ns  # a flow used since then has had none: most need no more than this comparison
        for time_ns, packet, key, seq, ack, flags, payload, missing in segments:
            direction = directions.get(key)
            if (
                direction is None
                or flags & direction.notable
                or (direction.flow.last_ns < stale_ns and time_ns - direction.flow.last_ns > least_ns)
            ):
                direction = self._examine((time_ns, packet, key, seq, ack, flags, payload, missing))
                if direction is None:
                    continue
            flow = direction.flow
            flow.last_ns = time_ns
            flow.last_packet = packet
            if flow.unwanted:
                continue
            direction.seen = True
            if payload:
                if direction.receiver is None and not self._begin(flow, direction, seq, ack, flags):
                    continue
                if seq == direction.next and not (direction.waiting or missing):
                    length = len(payload)
                    direction.next = (seq + length) % _MODULO
                    direction.offset = offset = direction.offset + length
                    direction.recent.append((seq, payload))
                    if offset > direction.recent_until:
                        direction.thin()
                    direction.deliver(payload, time_ns, packet)
                else:
                    direction.take(seq + (flags & SYN > 0), payload, missing, time_ns, packet)
                    if direction.waiting_octets > self._limits.waiting_octets_per_direction:
                        self._shed(direction, time_ns, packet)
                    elif self.waiting_octets > self._limits.waiting_octets:
                        self._shed_all(time_ns, packet)
                if flow.dissection.rejected:  # type: ignore[union-attr]
                    self._drop(flow)
                    continue
            elif missing and direction.receiver is not None:
                direction.take(seq, payload, missing, time_ns, packet)
            if ack != direction.other.next and flags & ACK:
                direction.other.acknowledged(ack, time_ns, packet)
            if flow.closing:
                self._close_if_over(flow)
        self._now_ns = now_ns
        if now_ns >= self._next_sweep:
            self.sweep(now_ns)

    # ------------------------------------------------------------------ beginning

    def _examine(self, segment: Segment) -> Direction | None:
        """Look at what may begin or end a flow: the direction that the segment belongs to, None if to none."""
        time_ns, _, key, seq, _, flags, payload, missing = segment
        direction = self._directions.get(key)
        if direction is not None and self._is_left(direction.flow, time_ns):
            self._discard(direction.flow, "timeout")
            direction = None
        if direction is not None and self._replace(direction, segment):
            direction = self._directions[key]
        if flags & SYN:
            direction = self._synchronise(direction, segment)
        elif direction is None:
            direction = None if flags & RST else self._open(key, time_ns, by_port=True)
        elif direction.flow.ended:
            direction = self._follow(direction, segment)
        else:
            if direction.reset is not None and not flags & RST:
                self._doubt_reset(direction, segment)
            if flags & RST:
                self._take_reset(direction, segment)
                return None
            self._close(direction, seq, flags, len(payload) + missing)
        return None if direction is None or direction.flow.ended else direction

    def _synchronise(self, direction: Direction | None, segment: Segment) -> Direction | None:
        """A SYN begins a flow, or repeats or answers the one that did (RFC 9293, section 3.5)."""
        time_ns, _, key, seq, ack, flags, _, _ = segment
        answers = bool(flags & ACK)
        if direction is None or direction.begins_another(seq, ack, answers):
            if direction is not None and direction.flow.dissection is not None and not direction.flow.closing:
                self._suspect(direction, segment)
                return None
            direction = self._open(key, time_ns, by_port=False, server=answers)
        flow = direction.flow
        flow.from_start = True
        other = direction.other
        if direction.isn is None:
            if flow.dissection is None and (answers or other.isn is None):  # ports may have told otherwise
                flow.client, flow.server = (other, direction) if answers else (direction, other)
            direction.isn = seq
            if direction.next is None or direction.is_guessed:
                direction.next = (seq + 1) % _MODULO
        if answers and other.next is None:
            other.isn = (ack - 1) % _MODULO
            other.next = ack
        return direction

    def _suspect(self, direction: Direction, segment: Segment) -> None:
        """Remember a SYN that does not fit a connection in use: anybody can forge one."""
        direction.pending = segment
        direction.suspect()
        direction.other.suspect()

    def _replace(self, direction: Direction, segment: Segment) -> bool:
        """Whether a segment shows that a SYN that did not fit was genuine, and so began another connection."""
        _, _, _, seq, ack, flags, _, _ = segment
        other = direction.other
        pending = None
        if flags & RST:
            return False
        if flags & ACK and other.pending and _continues(other.pending, ack):
            if flags & SYN or other.next is None or other.is_far(ack):
                pending = other.pending
        elif not flags & SYN and direction.pending and _continues(direction.pending, seq):  # its answer is lost
            pending = direction.pending if direction.next is None or direction.is_far(seq) else None
        if pending is None:
            return False
        self._discard(direction.flow, "open")
        self.take([pending])
        return True

    def _follow(self, direction: Direction, segment: Segment) -> Direction | None:
        """A segment of a flow that has ended: on its way when that happened, unless it is far away."""
        time_ns, _, key, seq, _, flags, payload, missing = segment
        length = 0 if flags & RST else len(payload) + missing
        if length and direction.is_far(seq):
            return self._open(key, time_ns, by_port=True)
        direction.swallow(seq, length)
        return None

    def _open(self, key: bytes, time_ns: int, by_port: bool, server: bool = False) -> Direction:
        """Begin a flow with a segment of the direction ``key``; an old one on the same addresses is over."""
        old = self._directions.get(key)
        if old is not None:
            self._discard(old.flow, "open")
        if len(self._flows) >= self._limits.flows:
            self._evict()
        number = self.number()
        size = (len(key) - 4) // 2
        back = key[size : 2 * size] + key[:size] + key[-2:] + key[-4:-2]
        if by_port:
            server = int.from_bytes(key[-4:-2], "big") < int.from_bytes(key[-2:], "big")
        flow = self.flow_type(self, number, *((back, key) if server else (key, back)), time_ns)
        mine, theirs = (flow.server, flow.client) if server else (flow.client, flow.server)
        self._directions[key] = mine
        self._directions[back] = theirs
        self._flows[flow.number] = flow
        return mine

    def _begin(self, flow: Flow, direction: Direction, seq: int, ack: int, flags: int) -> bool:
        """The first octets of a direction: find somebody who takes them."""
        if flow.dissection is None:
            client, server = addresses(flow.client.key)
            dissection = self._connect(flow.number, client, server, flow.from_start)
            if dissection is None:
                self._drop(flow)
                return False
            flow.dissection = dissection
            flow.client.begin(dissection.client)
            flow.server.begin(dissection.server)
        if direction.next is None:
            direction.next = (seq + (flags & SYN > 0)) % _MODULO
        if direction.other.next is None and flow.from_start and flags & ACK:
            direction.other.next = ack
        return True

    # ------------------------------------------------------------------ ending

    def _close(self, direction: Direction, seq: int, flags: int, length: int) -> None:
        """Take note of a FIN, if there is one."""
        if flags & FIN:
            if direction.next is None:
                direction.next = seq
            direction.fin = max(direction.offset + distance(seq, direction.next) + length, 0)
            direction.acked = min(direction.acked, direction.fin)
            if direction.other.fin is not None:
                direction.flow.closing = direction.flow.closing or "fin"

    def _take_reset(self, direction: Direction, segment: Segment) -> None:
        """A RST; octets in it are a text for people, no part of the stream (RFC 9293, section 3.5.3)."""
        time_ns, packet, _, seq, ack, flags, _, _ = segment
        flow = direction.flow
        if self._refuse is not None and direction.isn is None:
            self._tell_refusal(direction, segment)
        flow.last_ns, flow.last_packet = time_ns, packet
        ahead = 0 if direction.next is None else distance(seq, direction.next)
        if not -(1 << 24) < ahead < 1 << 30:
            return  # far outside of the window: forged, or of an old connection
        flow.closing = "rst" if ahead else flow.closing or "rst"
        if flow.unwanted:
            return
        direction.seen = True
        if ahead and not (ahead == 1 and direction.finished):
            # Its receiver takes none but one with the very number that it expects (RFC 9293, section 3.10.7.4). Others
            # are forged or late, unless octets before it are still to come here, or not in the capture.
            direction.reset, direction.reset_ns, direction.reset_before = seq, time_ns, direction.other.next
            direction.suspect()
        else:
            direction.reset = None
        if ack != direction.other.next and flags & ACK:
            direction.other.acknowledged(ack, time_ns, packet)
        self._close_if_over(flow)

    def _doubt_reset(self, direction: Direction, segment: Segment) -> None:
        """A segment of who has sent a RST: if it cannot be from before that, the RST did not count."""
        time_ns, _, _, seq, ack, flags, payload, missing = segment
        assert direction.reset is not None
        left = distance(direction.reset, seq + len(payload) + missing + (flags & FIN > 0))
        acknowledges = flags & ACK and direction.reset_before is not None and distance(ack, direction.reset_before) > 0
        in_time = time_ns - direction.reset_ns <= LONG_GRACE_NS
        if in_time and not acknowledges and (left == 0 or (left > 0 and not flags & FIN)):
            return
        direction.reset = None
        flow, other = direction.flow, direction.other
        if other.reset is None:
            flow.closing = "fin" if other.fin is not None and direction.fin is not None else ""

    def _tell_refusal(self, direction: Direction, segment: Segment) -> None:
        """Tell of a RST if it answers a SYN, the only thing that was said so far."""
        time_ns, packet, key, _, ack, flags, _, _ = segment
        isn = direction.other.isn
        if self._refuse is None or isn is None or not flags & ACK or direction.next is not None:
            return
        if direction.other.offset == 0 and ack == (isn + 1) % _MODULO:
            server, client = addresses(key)
            self._refuse(direction.flow.number, client.text, server.text, time_ns, packet)

    def _close_if_over(self, flow: Flow) -> None:
        """End a flow once everything up to its FINs, or its RST, has been delivered."""
        ends = (flow.client, flow.server)
        if flow.closing == "fin":
            over = all(direction.finished for direction in ends)
        else:
            over = not any(
                direction.waiting or direction.awaits_reset or (direction.fin and not direction.finished)
                for direction in ends
            )
        if over:
            self._end(flow, flow.closing or "open")

    def _end(self, flow: Flow, end: End) -> None:
        """Finish a flow; it stays known for a while, so that late segments do not begin another."""
        if flow.ended:
            return
        flow.ended = True
        if flow.dissection is not None and not flow.unwanted:
            for direction in (flow.client, flow.server):
                if not direction.seen:
                    direction.miss(flow.last_ns, flow.last_packet)
                direction.flush(flow.last_ns, flow.last_packet)
            flow.dissection.finish(end, flow.start_ns, flow.last_ns)
        self._drop(flow)
        for direction in (flow.client, flow.server):
            direction.suspect()

    def _drop(self, flow: Flow) -> None:
        """Keep no more of a flow than what tells its segments from those of another."""
        flow.unwanted = True
        if flow.dissection is not None:
            flow.dissection.release()
            flow.dissection = None
        for direction in (flow.client, flow.server):
            direction.forget()

    def _discard(self, flow: Flow, end: End) -> None:
        """End a flow, by ``end`` if the wire does not say how, and know nothing of it any more."""
        self._end(flow, flow.closed or end)
        del self._flows[flow.number]
        for direction in (flow.client, flow.server):
            if self._directions.get(direction.key) is direction:
                del self._directions[direction.key]
            direction.part()

    def _is_left(self, flow: Flow, now_ns: int) -> bool:
        """Whether a flow has been idle for so long that what comes now is not part of it."""
        return now_ns - flow.last_ns > self._longest_pause_ns(flow)

    def _longest_pause_ns(self, flow: Flow) -> int:
        """How long a flow may be silent before what comes is not part of it."""
        if flow.ended or flow.closing:
            return self._linger_ns
        return self._idle_ns if flow.dissection is not None else self._idle_unknown_ns

    def _shed(self, direction: Direction, time_ns: int, packet: int) -> None:
        """Give up holes before which too much waits, until there is room for a while."""
        while direction.waiting_octets > self._limits.waiting_octets_per_direction * 3 // 4:
            direction.lose(time_ns, packet)

    def _shed_all(self, time_ns: int, packet: int) -> None:
        """Give up holes, those before which most waits first, until there is room for a while."""
        waiting = [d for flow in self._flows.values() for d in (flow.client, flow.server) if d.waiting]
        waiting.sort(key=lambda direction: direction.waiting_octets)
        while waiting and self.waiting_octets > self._limits.waiting_octets * 3 // 4:
            direction = waiting.pop()
            while direction.waiting:
                direction.lose(time_ns, packet)

    def sweep(self, now_ns: int) -> None:
        """End flows that are idle and forget those that are over, some at a time.

        This only makes room: a segment that comes too late for its flow does not find it in any case.
        """
        self._next_sweep = now_ns + _SWEEP_NS
        if not self._sweeping:
            self._sweeping = list(self._flows)
        for number in self._sweeping[-_SWEEP_PART:]:
            flow = self._flows.get(number)
            if flow is not None and self._is_left(flow, now_ns):
                self._discard(flow, "timeout")
        del self._sweeping[-_SWEEP_PART:]

    def settle(self, now_ns: int) -> None:
        """Take note that it is ``now_ns``, though no packet says so: end what is idle, give up what does not come."""
        self._now_ns = max(self._now_ns, now_ns)
        for flow in list(self._flows.values()):
            if flow.dissection is not None:
                flow.client.settle(now_ns)
                flow.server.settle(now_ns)
                if flow.dissection.rejected:
                    self._drop(flow)
                elif flow.closing:
                    self._close_if_over(flow)
        if now_ns >= self._next_sweep:
            self.sweep(now_ns)

    def _evict(self) -> None:
        """Make room: forget those flows that have been idle for longest."""
        flows = sorted(self._flows.values(), key=lambda flow: (not flow.ended, flow.last_ns))
        for flow in flows[: max(len(flows) // 16, 1)]:
            self._discard(flow, "timeout")

    def started_ns(self, number: int) -> int:
        """When a flow that is not over began, nanoseconds since the Unix epoch; KeyError if there is none."""
        return self._flows[number].start_ns

    def open_flows(self, now_ns: int) -> list[int]:
        """The numbers of the flows that may go on at ``now_ns``."""
        return [n for n, flow in self._flows.items() if not flow.ended and not self._is_left(flow, now_ns)]

    def finish(self, now_ns: int | None = None) -> None:
        """The capture is over, and with it every flow; at ``now_ns``, if it has segments that did not come here."""
        if now_ns is not None:
            self._now_ns = now_ns
        for flow in list(self._flows.values()):
            self._discard(flow, "timeout" if self._is_left(flow, self._now_ns) else "open")


def _nanoseconds(seconds: float) -> int:
    return int(min(seconds, _LONGEST_SECONDS) * 1e9)


def _continues(syn: Segment, number: int) -> bool:
    """Whether a sequence number is one that follows a SYN, or the octets that came with it."""
    return (number - syn[3] - 1) % _MODULO <= len(syn[6])
