"""Flows that are watched while one file is dissected, so that they can be joined with what came before.

What is in the middle of a connection is dissected as ``read`` would dissect it if there were nothing before. Octets
fed to a half are kept (its *head*) until it stands between two messages; from that *sync point* on its events hold
whatever came before, as long as nothing happens that depends on it. What does is noted here, and judged by the join.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from dissectors.events import AnyEvent
from dissectors.zmtp.half import Half
from zmtpsniff.flows import End, Flow, FlowTable, Limits
from zmtpsniff.reassembly import Direction, distance
from zmtpsniff.segment import ACK, FIN, RST, SYN, Segment
from zmtpsniff.spark import states
from zmtpsniff.spark.states import CarriedDirection
from zmtpsniff.spark.watched_half import Sync, WatchedConnection, WatchedHalf

_MOST_HEAD_OCTETS = 4 << 20  # of one flow, while its file is read
_MOST_HEADS = 4096
_MOST_NOTABLE = 16
# So many segments, or octets, of what does not begin in the file are kept as they are; more if they are out of order.
_START_SEGMENTS = 6
_START_OCTETS = 1024
_MOST_START_SEGMENTS = 64
UNIX_KEY = 20  # octets of a key of Unix domain sockets
_LAST = 0xFFFF_FFFF  # sequence number
# A half that could be synchronised waits for the other one to say something for so long.
_PATIENCE_FEEDS = 6
_PATIENCE_OCTETS = 16 << 10

Head = tuple[int, int, int, bytes]
"""Packet, time, half (0: client), octets."""


class WatchedDirection(CarriedDirection):
    """One direction of a flow, and what in it may be other than it seems."""

    __slots__ = ("odd", "top_ack")

    odd: bool  # octets came again of which the first copy is not known here, and may be known in the whole
    top_ack: int | None  # the highest acknowledgment before the first octets

    def __init__(self, flow: Flow, key: bytes) -> None:
        """Begin before the first segment."""
        super().__init__(flow, key)
        self.odd = False
        self.top_ack = None

    def acknowledged(self, ack: int, time_ns: int, packet: int) -> None:
        """The other side acknowledges octets that have not been seen."""
        if self.next is None:
            if self.top_ack is None or distance(ack, self.top_ack) > 0:
                self.top_ack = ack
        elif self.doubts and not self.offset and self.fin is None:
            self.odd = True
        super().acknowledged(ack, time_ns, packet)

    def _compare(self, seq: int, payload: bytes, time_ns: int, packet: int) -> None:
        if not self.covers(seq, payload):
            self.odd = True
        super()._compare(seq, payload, time_ns, packet)


class WatchedFlow(Flow):
    """A flow that is watched."""

    __slots__ = ("trace",)
    direction_type = WatchedDirection

    trace: Trace


class Trace:
    """What one file has of a tuple."""

    def __init__(self, number: int, key: bytes, segment: Segment) -> None:
        """Begin with the first segment of the tuple ``key`` in the file."""
        self.number = number
        self.key = key
        self.first_ns = self.last_ns = segment[0]
        self.first: Flow | None = None  # the flow that may come from an earlier file
        self.birth: list[Segment] = []  # SYN, and the SYN that answers it, if the tuple begins with one
        self.answered = False  # it follows at once
        # The first segments of what does not begin here: they are taken as they are by those who join.
        self.start: list[Segment] = []
        self.start_octets = 0
        self.opening = not segment[5] & SYN or bool(segment[5] & ACK)
        self.bases: dict[bytes, tuple[int | None, int]] = {}  # next and offset of each direction after them
        self.notable: list[Segment] = []  # SYN, FIN and RST after them
        self.others = 0  # flows that begin in this file
        self.opened = 0
        self.reasons: list[str] = []  # to doubt what follows the first sync point
        self.seen: set[tuple[str, str]] = set()
        self.keeps = self.heads_kept = True
        self.heads: list[Head] = []
        self.head_octets = 0
        self.top_acks: dict[bytes, int] = {}
        self.halves: tuple[WatchedHalf, ...] = ()
        self.connection: WatchedConnection | None = None
        self.alone: list[AnyEvent] = []
        self.stretch: list[AnyEvent] = []
        self.state: bytes | None = None  # of the first flow, before it was ended
        self.end: End | None = None
        self.discarded = False
        if not self.opening:
            self.birth.append(segment)

    def begin(self, connection: WatchedConnection) -> None:
        """The first flow has octets, which ``connection`` takes."""
        self.connection = connection
        client, server = connection.client, connection.server
        assert isinstance(client, WatchedHalf)
        assert isinstance(server, WatchedHalf)
        self.halves = (client, server)

    @property
    def assumed(self) -> str | None:
        """The mechanism that commands looked like."""
        return self.connection.security._assumed if self.connection is not None else None

    def doubt(self, reason: str) -> None:
        """Note something that makes a difference if there is something before this file."""
        if self.end is None and len(self.reasons) < 4:
            self.reasons.append(reason)

    def keep(self, head: Head) -> None:
        """Keep octets of a half that has no sync point yet."""
        self.heads.append(head)
        self.head_octets += len(head[3])
        if self.head_octets > _MOST_HEAD_OCTETS or len(self.heads) > _MOST_HEADS:
            self.give_up("long head")

    def give_up(self, reason: str) -> None:
        """Keep no heads: this can only be the first file that has the tuple."""
        self.doubt(reason)
        self.keeps = self.heads_kept = False
        self.heads = []

    def settle(self, half: WatchedHalf) -> None:
        """After octets of ``half``: synchronise it, and the other one, if they stand between messages."""
        if not half.rests:
            return
        connection = self.connection
        assert connection is not None
        if not connection.is_unknown:
            return
        other = half.other
        assert isinstance(other, WatchedHalf)
        if other.sync is None:
            if other.rests:
                self._synchronise(other)
            elif len(self.heads) < _PATIENCE_FEEDS or (other.octets and self.head_octets < _PATIENCE_OCTETS):
                return
        self._synchronise(half)

    def _synchronise(self, half: WatchedHalf) -> None:
        if half._held > sum(len(head[3]) for head in self.heads if head[2] == int(half.side == "server")):
            return  # it stands before what is kept
        half.sync = Sync(half)
        half.out = self.stretch
        assert self.first is not None
        direction = self.first.client if half.side == "client" else self.first.server
        direction.deliver = MethodType(Half.feed, half)  # no need to look at each segment any more
        # What it holds comes after the sync point.
        side = int(half.side == "server")
        held = half._held
        index = len(self.heads)
        while held:
            index -= 1
            packet, time_ns, mine, data = self.heads[index]
            if mine == side:
                taken = min(held, len(data))
                held -= taken
                self.heads[index] = packet, time_ns, mine, data[: len(data) - taken]
        self.heads = [head for head in self.heads if head[3]]
        if all(each.sync for each in self.halves):
            self.keeps = False


class WatchedTable(FlowTable):
    """All flows of a file, the first of each tuple watched."""

    flow_type = WatchedFlow

    def __init__(self, connect: Callable[..., Any], limits: Limits | None = None) -> None:
        """As a FlowTable; ``connect`` may ask :meth:`trace_of` about the flow."""
        super().__init__(connect, limits)
        self.traces: dict[bytes, Trace] = {}
        self.bounded = False  # flows or octets were given up for want of room

    def trace_of(self, number: int) -> tuple[Trace, Flow]:
        """The trace of a flow that lives, by its number."""
        flow = self._flows[number]
        return self.traces[flow.client.key], flow

    def current(self, trace: Trace) -> Flow | None:
        """The last flow of a tuple, if it is known still."""
        direction = self._directions.get(trace.key)
        return direction.flow if direction is not None else None

    def _examine(self, segment: Segment) -> Direction | None:
        key = segment[2]
        trace = self.traces.get(key)
        if trace is None:
            back = reverse(key)
            trace = Trace(len(self.traces) // 2 + 1, min(key, back), segment)
            self.traces[key] = self.traces[back] = trace
        if trace.opening:
            return self._examine_start(trace, segment)
        if segment[5] & (SYN | FIN | RST):
            self._note(trace, segment)
        return super()._examine(segment)

    def _examine_start(self, trace: Trace, segment: Segment) -> Direction | None:
        """Take one of the first segments of what does not begin here, if it is one of them still."""
        enough = len(trace.start) >= _START_SEGMENTS or trace.start_octets > _START_OCTETS
        if enough and self._close_start(trace):
            return self._examine(segment)
        trace.start.append(segment)
        trace.start_octets += len(segment[6])
        direction = super()._examine(segment)
        current = self.current(trace)
        if current is not None:
            current.client.suspect()
            current.server.suspect()
        return direction

    def _close_start(self, trace: Trace) -> bool:
        """Whether the segments so far left a flow in good order; then its segments need no look any more."""
        flow = self.current(trace)
        too_many = len(trace.start) >= _MOST_START_SEGMENTS
        in_order = flow is not None and flow is trace.first and not (flow.ended or flow.closing or flow.unwanted)
        ends = (flow.client, flow.server) if flow is not None else ()
        for end in ends:
            if end.waiting or end.acked > end.offset or end.fin is not None or end.pending is not None:
                in_order = False
        if not in_order and not too_many:
            return False
        trace.opening = False
        if not in_order:
            trace.give_up("no order")
            trace.reasons.append("no order")  # also if it seems to have ended, which a RST of unknown numbers does
        for end in ends:
            assert isinstance(end, WatchedDirection)
            if not (end.flow.ended or end.pending or end.other.pending):
                end.notable = SYN | FIN | RST
            end.odd = False
            end.top_ack = None
            trace.bases[end.key] = end.next, end.offset
        trace.reasons = [reason for reason in ("no order", "syn") if reason in trace.reasons]
        trace.top_acks.clear()
        return True

    def _note(self, trace: Trace, segment: Segment) -> None:
        direction = self._directions.get(segment[2])
        if trace.birth:
            syn = trace.birth[0]
            answers = (
                segment[5] & (SYN | ACK) == SYN | ACK and segment[2] != syn[2] and segment[4] == syn[3] + 1 & _LAST
            )
            if answers and len(trace.birth) == 1 and direction is not None:
                trace.birth.append(segment)
                trace.answered = direction.flow.last_packet == syn[1]
            return
        if segment[5] & SYN and direction is not None and direction.flow is trace.first:
            # Whether it begins another connection can depend on how this one began.
            _, _, _, seq, ack, flags, _, _ = segment
            if not direction.flow.ended or not direction.begins_another(seq, ack, bool(flags & ACK)):
                trace.reasons.append("syn")
        if trace.others:
            return
        if len(trace.notable) < _MOST_NOTABLE:
            trace.notable.append((*segment[:6], b"", len(segment[6]) + segment[7]))
        else:
            trace.doubt("many resets")

    def _follow(self, direction: Direction, segment: Segment) -> Direction | None:
        trace = self.traces[segment[2]]
        if direction.flow is trace.first and not trace.birth and direction.next is None:
            # Whether its number is far from those before, so that it is of another connection, is not known here.
            trace.reasons.append("unnumbered")
        return super()._follow(direction, segment)

    def _open(self, key: bytes, time_ns: int, by_port: bool, server: bool = False) -> Direction:
        direction = super()._open(key, time_ns, by_port, server)
        trace = self.traces[key]
        trace.opened += 1
        flow = direction.flow
        flags = any(segment[5] & (SYN | FIN | RST) for segment in (*trace.start[:-1], *trace.notable))
        if trace.birth or trace.others or trace.connection is not None or (flags and trace.opened > 1):
            trace.others += 1
        else:
            if trace.first is not None:
                self.gather(trace)
            trace.first = flow
            trace.state = trace.end = None
            trace.keeps = trace.heads_kept
            trace.discarded = False
        return direction

    def gather(self, trace: Trace) -> None:
        """Note in a trace what its first flow saw acknowledged."""
        assert trace.first is not None
        for direction in (trace.first.client, trace.first.server):
            assert isinstance(direction, WatchedDirection)
            if direction.odd and "again" not in trace.reasons:
                trace.reasons.append("again")
            top, mine = trace.top_acks.get(direction.key), direction.top_ack
            if mine is not None and (top is None or distance(mine, top) > 0):
                trace.top_acks[direction.key] = mine

    def _end(self, flow: Flow, end: End) -> None:
        if not flow.ended:
            trace = self.traces[flow.client.key]
            if trace.first is flow and not trace.birth and not flow.unwanted:
                trace.end = end
                self._keep(trace, flow)
        super()._end(flow, end)

    def _discard(self, flow: Flow, end: End) -> None:
        trace = self.traces[flow.client.key]
        trace.last_ns = max(trace.last_ns, flow.last_ns)
        if trace.first is flow and not flow.ended:
            trace.discarded = True
        super()._discard(flow, end)

    def _keep(self, trace: Trace, flow: Flow) -> None:
        """Keep the state of a flow that is over, before its end is told."""
        self.gather(trace)
        try:
            trace.state = states.encode(flow, most_recent=0)
        except states.StateError as error:
            trace.give_up(str(error))
        trace.keeps = False
        for half in trace.halves:
            half.out = half.connection.out  # what is told at the end is told by those who join, too

    def _evict(self) -> None:
        self.bounded = True
        super()._evict()

    def _shed_all(self, time_ns: int, packet: int) -> None:
        self.bounded = True
        super()._shed_all(time_ns, packet)


def reverse(key: bytes) -> bytes:
    """The key of the other direction."""
    size = (len(key) - 4) // 2
    return key[size : 2 * size] + key[:size] + key[-2:] + key[-4:-2]
