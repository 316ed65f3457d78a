"""TCP connections: which segment belongs to which, when one begins and ends, and what is kept of them.

Octets go to whoever is given by ``connect``; a flow that nobody wants costs a look-up a packet.
"""

import socket
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from zmtpsniff.reassembly import Direction, Receiver, distance
from zmtpsniff.segment import ACK, FIN, RST, SYN, Segment

_MODULO = 1 << 32
_SWEEP_NS = 1_000_000_000  # how often flows are looked through, in time of the capture
_SWEEP_PART = 4096  # flows looked at in one go

End = Literal["fin", "rst", "timeout", "open"]

_CONTROL = SYN | FIN | RST


class Dissection(Protocol):
    """What takes the octets of a flow."""

    rejected: bool

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


class Limits(NamedTuple):
    """Bounds of memory and time."""

    waiting_octets_per_direction: int = 4 << 20
    waiting_octets: int = 64 << 20
    flows: int = 100_000
    idle_seconds: float = 86_400.0
    idle_seconds_unknown: float = 600.0  # of flows that are not ZMTP, or not yet
    linger_seconds: float = 5.0  # how long late segments of a closed flow are expected


class Address(NamedTuple):
    """One end of a flow."""

    text: str  # "10.0.0.1:5555", "[::1]:5555"
    port: int


Connect = Callable[[int, Address, Address, bool], Dissection | None]
"""Called with a flow's number, client, server and whether its start is in the capture."""


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

    def __init__(self, table: "FlowTable", number: int, client: bytes, server: bytes, time_ns: int) -> None:
        """Begin the flow ``number`` of ``table`` at ``time_ns``, with the keys of its two directions."""
        self.table = table
        self.number = number
        self.start_ns = self.last_ns = time_ns
        self.last_packet = 0
        self.client = Direction(self, client)
        self.server = Direction(self, server)
        self.client.other, self.server.other = self.server, self.client
        self.from_start = False
        self.dissection: Dissection | None = None
        self.unwanted = False
        self.closing: Literal["", "fin", "rst"] = ""  # "fin" or "rst" once that has been seen
        self.ended = False


class FlowTable:
    """All TCP connections of a capture."""

    def __init__(self, connect: Connect, limits: Limits | None = None) -> None:
        """Ask ``connect`` who takes the octets of each flow, within ``limits``."""
        self._connect = connect
        self._limits = limits or Limits()
        self._directions: dict[bytes, Direction] = {}
        self._flows: dict[int, Flow] = {}
        self._sweeping: list[int] = []
        self._next_sweep = 0
        self.count = 0  # flows so far
        self.waiting_octets = 0

    # ------------------------------------------------------------------ the hot loop

    def take(self, segments: list[Segment]) -> None:
        """Take segments in the order of the capture."""
        directions = self._directions
        for time_ns, packet, key, seq, ack, flags, payload, missing in segments:
            direction = directions.get(key)
            if direction is None or flags & _CONTROL:
                direction = self._control(key, seq, ack, flags, len(payload), time_ns)
                if direction is None:
                    continue
            flow = direction.flow
            flow.last_ns = time_ns
            flow.last_packet = packet
            if flow.unwanted:
                if flow.ended and payload and direction.is_ahead(seq):
                    direction = self._open(key, time_ns, by_port=True)
                    flow = direction.flow
                else:
                    continue
            direction.seen = True
            if payload:
                if direction.receiver is None and not self._begin(flow, direction, seq, ack, flags):
                    continue
                if seq == direction.next and not (direction.waiting or missing):
                    length = len(payload)
                    direction.next = (seq + length) % _MODULO
                    direction.offset += length
                    direction.recent.append((seq, payload))
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
        if segments:
            now = segments[-1][0]
            if now >= self._next_sweep:
                self.sweep(now)

    # ------------------------------------------------------------------ beginning

    def _control(self, key: bytes, seq: int, ack: int, flags: int, length: int, time_ns: int) -> Direction | None:
        """Handle what begins and ends flows: the direction that the segment belongs to, None if to none."""
        direction = self._directions.get(key)
        if flags & SYN:
            return self._synchronise(direction, key, seq, ack, flags, time_ns)
        if direction is None:
            if flags & RST:
                return None
            return self._open(key, time_ns, by_port=True)
        self._close(direction, seq, flags, length)
        return direction

    def _synchronise(
        self, direction: Direction | None, key: bytes, seq: int, ack: int, flags: int, time_ns: int
    ) -> Direction:
        """A SYN begins a flow, or repeats or answers the one that did (RFC 9293, section 3.5)."""
        answers = bool(flags & ACK)
        if direction is None or _begins_another(direction, seq, ack, answers):
            direction = self._open(key, time_ns, by_port=False, server=answers)
        direction.flow.from_start = True
        if direction.isn is None:
            direction.isn = seq
            if direction.next is None:
                direction.next = (seq + 1) % _MODULO
        other = direction.other
        if answers and other.next is None:
            other.isn = (ack - 1) % _MODULO
            other.next = ack
        return direction

    def _open(self, key: bytes, time_ns: int, by_port: bool, server: bool = False) -> Direction:
        """Begin a flow with a segment of the direction ``key``; an old one on the same addresses is over."""
        old = self._directions.get(key)
        if old is not None:
            self._end(old.flow, old.flow.closing or "open")
        self.count += 1
        size = (len(key) - 4) // 2
        back = key[size : 2 * size] + key[:size] + key[-2:] + key[-4:-2]
        if by_port:
            server = int.from_bytes(key[-4:-2], "big") < int.from_bytes(key[-2:], "big")
        flow = Flow(self, self.count, *((back, key) if server else (key, back)), time_ns)
        mine, theirs = (flow.server, flow.client) if server else (flow.client, flow.server)
        self._directions[key] = mine
        self._directions[back] = theirs
        self._flows[flow.number] = flow
        if len(self._flows) > self._limits.flows:
            self._evict()
        return mine

    def _begin(self, flow: Flow, direction: Direction, seq: int, ack: int, flags: int) -> bool:
        """The first octets of a direction: find somebody who takes them."""
        if flow.ended:
            return False
        if flow.dissection is None:
            client, server = addresses(flow.client.key)
            dissection = self._connect(flow.number, client, server, flow.from_start)
            if dissection is None:
                self._drop(flow)
                return False
            flow.dissection = dissection
            flow.client.receiver = dissection.client
            flow.server.receiver = dissection.server
            flow.client.deliver = dissection.client.feed
            flow.server.deliver = dissection.server.feed
        if direction.next is None:
            direction.next = (seq + (flags & SYN > 0)) % _MODULO
        if direction.other.next is None and flow.from_start and flags & ACK:
            direction.other.next = ack
        return True

    # ------------------------------------------------------------------ ending

    def _close(self, direction: Direction, seq: int, flags: int, length: int) -> None:
        flow = direction.flow
        if flow.ended:
            return
        if flags & RST:
            if direction.next is not None and not -(1 << 24) < distance(seq, direction.next) < 1 << 30:
                return  # far outside of the window: forged, or of an old connection
            flow.closing = flow.closing or "rst"
        elif flags & FIN:
            if direction.next is None:
                direction.next = seq
            direction.fin = max(direction.offset + distance(seq, direction.next) + length, 0)
            direction.acked = min(direction.acked, direction.fin)
            if direction.other.fin is not None:
                flow.closing = flow.closing or "fin"

    def _close_if_over(self, flow: Flow) -> None:
        """End a flow once everything up to its FINs, or its RST, has been delivered."""
        ends = (flow.client, flow.server)
        if flow.closing == "fin":
            over = all(direction.finished for direction in ends)
        else:
            over = not any(direction.waiting or (direction.fin and not direction.finished) for direction in ends)
        if over:
            self._end(flow, flow.closing or "open")

    def _end(self, flow: Flow, end: End) -> None:
        """Finish a flow; it stays known for a while, so that late segments do not begin another."""
        if flow.ended:
            return
        flow.ended = True
        if flow.dissection is not None and not flow.unwanted:
            for direction in (flow.client, flow.server):
                direction.flush(flow.last_ns, flow.last_packet)
            flow.dissection.finish(end, flow.start_ns, flow.last_ns)
        self._drop(flow)

    def _drop(self, flow: Flow) -> None:
        """Keep no more of a flow than what tells its segments from those of another."""
        flow.unwanted = True
        flow.dissection = None
        for direction in (flow.client, flow.server):
            direction.forget()

    def _forget(self, flow: Flow) -> None:
        """Know nothing of a flow any more."""
        del self._flows[flow.number]
        for direction in (flow.client, flow.server):
            if self._directions.get(direction.key) is direction:
                del self._directions[direction.key]

    def _shed(self, direction: Direction, time_ns: int, packet: int) -> None:
        """Give up holes before which too much waits."""
        while direction.waiting_octets > self._limits.waiting_octets_per_direction:
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
        """End flows that are idle and forget those that are over, some at a time."""
        self._next_sweep = now_ns + _SWEEP_NS
        limits = self._limits
        if not self._sweeping:
            self._sweeping = list(self._flows)
        for number in self._sweeping[-_SWEEP_PART:]:
            flow = self._flows.get(number)
            if flow is None:
                continue
            idle = (now_ns - flow.last_ns) / 1e9
            if flow.ended:
                if idle > limits.linger_seconds:
                    self._forget(flow)
            elif flow.closing and idle > limits.linger_seconds:
                self._end(flow, flow.closing)
            elif idle > limits.idle_seconds_unknown and (idle > limits.idle_seconds or flow.dissection is None):
                self._end(flow, "timeout")
                self._forget(flow)
        del self._sweeping[-_SWEEP_PART:]

    def _evict(self) -> None:
        """Make room: forget those flows that have been idle for longest."""
        flows = sorted(self._flows.values(), key=lambda flow: (not flow.ended, flow.last_ns))
        for flow in flows[: max(len(flows) // 16, 1)]:
            self._end(flow, flow.closing or "timeout")
            self._forget(flow)

    def finish(self) -> None:
        """The capture is over, and with it every flow."""
        for flow in list(self._flows.values()):
            one_sided = any(not direction.seen for direction in (flow.client, flow.server))
            over = one_sided and any(direction.finished for direction in (flow.client, flow.server))
            self._end(flow, flow.closing or ("fin" if over else "open"))
        self._flows.clear()
        self._directions.clear()


def _begins_another(direction: Direction, seq: int, ack: int, answers: bool) -> bool:
    """Whether a SYN on known addresses begins another connection, instead of repeating or answering one."""
    if direction.isn is not None:
        return direction.isn != seq
    other = direction.other
    if direction.next is not None:  # octets were seen before this SYN: does it number them?
        return (direction.next - direction.offset) % _MODULO != (seq + 1) % _MODULO
    if answers:  # a SYN may carry octets, which are acknowledged with it
        return other.isn is not None and ack not in ((other.isn + 1) % _MODULO, other.next)
    return direction.flow.ended or other.offset > 0


def addresses(key: bytes) -> tuple[Address, Address]:
    """The two ends of a direction's key: source and destination."""
    size = (len(key) - 4) // 2
    family = socket.AF_INET if size == 4 else socket.AF_INET6
    ends = []
    for host, port_octets in ((key[:size], key[-4:-2]), (key[size : 2 * size], key[-2:])):
        port = int.from_bytes(port_octets, "big")
        name = socket.inet_ntop(family, host)
        ends.append(Address(f"{name}:{port}" if size == 4 else f"[{name}]:{port}", port))
    return ends[0], ends[1]
