"""One file dissected by itself: events at once, and a piece of each tuple for those who join it with other files."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from dissectors.events import AnyEvent, Comment, Problem
from dissectors.problems import PROBLEMS
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.stream import Limits as DissectorLimits
from zmtpsniff.addresses import Address
from zmtpsniff.capture.source import Packet
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.flows import Limits
from zmtpsniff.packets import TCP, HeaderDecoder
from zmtpsniff.segment import Datagram, Segment
from zmtpsniff.spark import states
from zmtpsniff.spark.disorder import Orders
from zmtpsniff.spark.inputs import PlacedSource
from zmtpsniff.spark.pieces import Batch, Identity, Piece, Synced, connection_id, marks, place
from zmtpsniff.spark.watch import UNIX_KEY, Trace, WatchedTable
from zmtpsniff.spark.watched_half import WatchedConnection, WatchedHalf

# A head is kept if it has at most so many octets, or is at most such a part of what its connection has in the file.
_HEAD_OCTETS = 64 << 10
_HEAD_PART = 2
_GIVE_PACKETS = 4096


class Summary(NamedTuple):
    """What is told of a file."""

    packets: int
    dropped: int
    first_ns: int | None  # None: no packet
    last_ns: int  # the latest time
    end_ns: int | None  # when the last segment of TCP came: of a series' last file, what Join.finish is told
    flows: int


class Datagrams(Protocol):
    """Who takes the datagrams of UDP and PGM in a file."""

    def take(self, datagram: Datagram, /) -> None:
        """Take the next one."""


class Scan:
    """Dissects one file."""

    def __init__(
        self,
        source: PlacedSource,
        file: int,
        dissector_limits: DissectorLimits | None = None,
        flow_limits: Limits | None = None,
        decode_as: Sequence[DecodeAs] = (),
        datagrams: Datagrams | None = None,
    ) -> None:
        """Read ``source``, which is file number ``file`` of its series; the limits are those of ``read``.

        Datagrams of UDP and PGM are left to ``datagrams``, in their order: what one sender says cannot be told apart
        from what it said in other files, so that there is nothing to be done with them here.
        """
        self._source = source
        self._file = file
        self._limits = dissector_limits or DissectorLimits()
        self._decode_as = decode_as
        self._headers = HeaderDecoder()
        self._events: list[AnyEvent] = []  # of what begins here
        self._flows = WatchedTable(self._connect, flow_limits)
        self._datagrams = datagrams
        self._running: list[Trace] = []  # with events of their own
        self._given = 0  # packets of which the events have been given out
        self._packets = 0
        self._first_ns: int | None = None
        self._orders = Orders()
        self._end_ns: int | None = None
        self._comments = 0
        self.identities: dict[int, Identity] = {}
        self.pieces: list[Piece] = []

    @property
    def summary(self) -> Summary:
        """What is known of the file; complete after the last batch."""
        return Summary(
            self._packets, self._source.dropped, self._first_ns, self._orders.latest_ns, self._end_ns, self._flows.count
        )

    def batches(self) -> Iterator[Batch]:
        """Yield events as soon as they are known; after the last of them ``pieces`` and ``summary`` are complete.

        Raises CaptureError if the source is no capture.
        """
        for packets in self._source.batches():
            self._take(packets)
            if self._events:
                yield Batch("born", 0, self._events[:])
                self._events.clear()  # the connections hold this list
            if self._packets - self._given >= _GIVE_PACKETS:
                self._given = self._packets
                yield from self._give()
        self._finish()
        yield from self._give()

    # ------------------------------------------------------------------ packets

    def _take(self, packets: list[Packet]) -> None:
        if not packets:
            return
        times = [packet[0] for packet in packets]
        first = min(times)
        self._first_ns = first if self._first_ns is None else min(self._first_ns, first)
        self._orders.take(self._packets + 1, times)
        numbers = marks(self._packets + 1, self._source.offsets)
        self._packets += len(packets)
        begin = 0
        for index, packet in enumerate(packets):
            if packet[4] is not None:
                self._dissect(packets[begin:index], numbers[begin:index])
                begin = index
                self._events.append(Comment(packet[4], packet[0], numbers[index]))
        self._dissect(packets[begin:] if begin else packets, numbers[begin:] if begin else numbers)

    def _dissect(self, packets: list[Packet], numbers: list[int]) -> None:
        segments = self._headers.segments(packets, numbers)
        if segments:
            self._end_ns = segments[-1][0]
        if self._datagrams is not None:
            for datagram in self._headers.datagrams:
                self._datagrams.take(datagram)
        self._flows.take(segments)

    # ------------------------------------------------------------------ flows

    def _connect(self, number: int, client: Address, server: Address, from_start: bool) -> ZmtpConnection:
        trace, flow = self._flows.trace_of(number)
        rules = (rule.version for rule in self._decode_as if rule.matches("tcp", server.port, client.port))
        forced = next(rules, None)
        name = connection_id(client.transport, client.text, server.text, flow.start_ns)
        self.identities[number] = Identity(name, trace.key, client.text, server.text, flow.start_ns, trace.number)
        ends = (number, client.text, server.text, (from_start, from_start), self._limits, forced, client.transport)
        if trace.birth or trace.first is not flow:
            return ZmtpConnection(self._events, *ends)
        connection = WatchedConnection(trace, trace.alone, *ends)
        trace.begin(connection)
        self._running.append(trace)
        return connection

    # ------------------------------------------------------------------ events

    def _give(self) -> Iterator[Batch]:
        comments = self._source.comments[self._comments :]
        self._comments += len(comments)
        self._events[:0] = [Comment(comment) for comment in comments]
        if self._events:
            yield Batch("born", 0, self._events[:])
            self._events.clear()  # the connections hold this list
        for trace in self._running:
            if trace.alone:
                yield Batch("alone", trace.number, trace.alone[:])
                trace.alone.clear()
            if trace.stretch:
                yield Batch("stretch", trace.number, trace.stretch[:])
                trace.stretch.clear()

    def _finish(self) -> None:
        for code, detail in (*self._source.faults, *self._headers.skipped()):
            self._events.append(Problem(PROBLEMS[code].severity, code, detail))
        unfinished = self._headers.unfinished(self._first_ns or 0, self._orders.latest_ns)
        # Of version 4 the protocol is known, too. What is inside a tunnel may be of any addresses.
        hosts = {key[0] for key in unfinished}
        everywhere = self._headers.tunnels and any(len(key) == 2 or key[1] != TCP for key in unfinished)
        for key, trace in self._flows.traces.items():
            if key == trace.key:
                piece = self._piece(trace)
                size = (len(key) - 4) // 2
                piece.loose = everywhere or key[:-4] in hosts or key[size : 2 * size] + key[:size] in hosts
                self.pieces.append(piece)

    def _piece(self, trace: Trace) -> Piece:
        flow = self._flows.current(trace)
        last_ns = trace.first_ns if flow is None else flow.last_ns
        piece = Piece(self._file, trace.number, trace.key, trace.first_ns, 0, 0, plain=False)
        try:
            if flow is not None:
                piece.last = states.encode(flow)
        except states.StateError:
            piece.lost = True
        piece.seen_ns = max(last_ns, trace.last_ns)
        last_packet = 0 if flow is None else place(flow.last_packet)[1]
        piece.last_ns = max(self._orders.order_ns(last_packet, last_ns), trace.last_ns)
        piece.birth, piece.answered = _kept(piece, trace.birth), trace.answered
        piece.opened, piece.others = trace.opened, trace.others
        piece.start, piece.is_start, piece.bases = _kept(piece, trace.start), trace.opening, trace.bases
        if trace.first is not None and not trace.birth and not trace.opening:
            self._describe(trace, piece)
        if self._flows.bounded:
            trace.doubt("bounds")
        if len(trace.key) == UNIX_KEY:
            trace.doubt("unix")
        piece.reasons = trace.reasons
        piece.plain = bool(trace.birth) and (flow is None or flow.ended)
        return piece

    def _describe(self, trace: Trace, piece: Piece) -> None:
        """What is to be known of the first flow to join it with what comes before."""
        first = trace.first
        assert first is not None
        if trace.state is None and not first.ended:
            self._flows.gather(trace)
        piece.top_acks = trace.top_acks
        piece.notable = _kept(piece, trace.notable)
        piece.end, piece.discarded, piece.first = trace.end, trace.discarded, trace.state
        if trace.connection is None:
            piece.heads = []
            return
        piece.has_octets = True
        if trace.connection.rejected and trace.state is None:
            trace.doubt("not zmtp")
            return
        piece.assumed = trace.assumed
        piece.seen = sorted(trace.seen | {("clear", half.side) for half in trace.halves if half.has_clear})
        client, server = trace.halves
        if trace.heads_kept and trace.head_octets <= max(_HEAD_OCTETS, (client.octets + server.octets) // _HEAD_PART):
            piece.heads = [(piece.kept(packet), *rest) for packet, *rest in trace.heads]  # type: ignore[misc]
        piece.synced = (_synced(client), _synced(server))


def _kept(piece: Piece, segments: list[Segment]) -> list[Segment]:
    """Segments as a piece has them."""
    return [(time_ns, piece.kept(packet), *rest) for time_ns, packet, *rest in segments]  # type: ignore[misc]


def _synced(half: WatchedHalf) -> Synced | None:
    sync = half.sync
    if sync is None:
        return None
    topics = [
        (on, topic, -1) if isinstance(topic, bytes) else (on, getattr(topic, "data", b""), topic.length)
        for on, topic in half.topic_changes
    ]
    return Synced(sync.framing, sync.octets, sync.messages, sync.told, sync.subscribes, topics, half.nonces)
