"""The pieces of one tuple, put together in order of time: verdicts on what the scans gave out, and what is left to say.

The state of the connection so far is fed the head of the next piece. If each half then stands exactly where the scan of
that file saw its own stand, and nothing of what the scan noted depends on what it could not know, then the piece's end
is the connection's: the counts of the stretch are added, and the ends of both halves are put in its place.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from dissectors.events import AnyEvent, WireEvent
from dissectors.zmtp import sockets
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.stream import Limits as DissectorLimits
from zmtpsniff.addresses import Address, addresses
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.flows import End, Flow, FlowTable, Limits
from zmtpsniff.segment import Segment
from zmtpsniff.spark import states
from zmtpsniff.spark.pieces import Identity, Outcome, Piece, Verdict, connection_id, placed
from zmtpsniff.spark.transplant import (
    MODULO,
    DoubtError,
    check_direction,
    check_half,
    moved,
    place_flow,
    sync_packets,
    transplant_direction,
    transplant_half,
)
from zmtpsniff.spark.watch import UNIX_KEY

_BOUNDS = {"bounds", "unix", "syn", "many resets", "unnumbered"}  # what counts for connections that are not ZMTP, too


class CarriedFlow(Flow):
    """A flow that can go on in another file."""

    __slots__ = ()
    direction_type = states.CarriedDirection


class TupleTable(FlowTable):
    """The flows of one tuple, which can begin with a state."""

    flow_type = CarriedFlow
    unsure = False  # octets came again of which the first copy was not kept

    def current(self, key: bytes) -> Flow | None:
        """The flow that the tuple has now, ended or not."""
        direction = self._directions.get(key)
        return direction.flow if direction is not None else None

    def adopt(self, flow: Flow) -> None:
        """Put a flow that was kept in the place of what there is."""
        self.drop()
        flow.number = self.number()
        self._flows[flow.number] = flow
        for direction in (flow.client, flow.server):
            self._directions[direction.key] = direction
            self.waiting_octets += direction.waiting_octets

    def drop(self) -> None:
        """Forget all flows, without a word."""
        self._flows.clear()
        self._directions.clear()
        self.waiting_octets = 0

    def expire(self, now_ns: int) -> None:
        """End what has been idle for too long if a segment comes now."""
        for flow in list(self._flows.values()):
            if self._is_left(flow, now_ns):
                self._discard(flow, "timeout")

    def end(self, flow: Flow, end: End, discard: bool) -> None:
        """End a flow as it ended in the piece that it is from."""
        self._end(flow, (flow.closed or end) if discard else end)

    def outlasts(self, pause_ns: int) -> bool:
        """Whether no flow with octets of ZMTP is over after such a pause."""
        return pause_ns <= self._idle_ns

    def outlasts_unknown(self, pause_ns: int) -> bool:
        """The same of flows of anything else."""
        return pause_ns <= self._idle_unknown_ns

    def is_left(self, flow: Flow, now_ns: int) -> bool:
        """Whether what comes at ``now_ns`` is not part of a flow."""
        return self._is_left(flow, now_ns)

    def over_ns(self, flow: Flow) -> int:
        """The first time at which what comes is not part of a flow."""
        return flow.last_ns + self._longest_pause_ns(flow) + 1

    def close(self, now_ns: int) -> None:
        """The series is over; its last segment came at ``now_ns``."""
        self._now_ns = now_ns
        self.finish()


class Join:
    """The connections of one tuple, in order."""

    def __init__(
        self,
        state: bytes | None = None,
        dissector_limits: DissectorLimits | None = None,
        flow_limits: Limits | None = None,
        decode_as: Sequence[DecodeAs] = (),
        numbers: int = 0,
    ) -> None:
        """Begin with what :meth:`state` gave, number flows from ``numbers`` + 1 on; raises StateError."""
        self._limits = dissector_limits or DissectorLimits()
        self._decode_as = decode_as
        self._events: list[AnyEvent] = []
        self._table = TupleTable(self._connect, flow_limits)
        self._table.count = numbers
        self._doubted = False
        self.identities: dict[int, Identity] = {}
        if state == states.LOST:
            self._table.unsure = True
        elif state is not None:
            self._adopt(states.decode(state, self._table))

    # ------------------------------------------------------------------ in and out

    def take(self, pieces: Iterable[Piece]) -> Iterator[Outcome]:
        """Join pieces of the tuple, in order of ``(first_ns, file)``; an outcome for each.

        After a verdict ``redo`` the state is that of before it, and nothing can be joined any more.
        """
        for piece, following in pairwise([*pieces, None]):
            assert piece is not None
            entangled = following is not None and (following.first_ns, following.file) <= (piece.last_ns, piece.file)
            verdict = self._judge(piece, "entangled" if entangled else "")
            events, self._events[:] = self._events[:], []
            yield Outcome(verdict, events)

    def dissect(self, segments: list[Segment]) -> list[AnyEvent]:
        """Take segments of the tuple, numbered by ``placed``, instead of a piece; the events that they tell."""
        if segments and len(segments[0][2]) == UNIX_KEY:
            for segment in segments:
                self._table.take([self._counted(segment)])
        else:
            self._table.take(segments)
        events, self._events[:] = self._events[:], []
        return events

    def _counted(self, segment: Segment) -> Segment:
        """A segment of a Unix domain socket, where only the order of a whole series tells the sequence number."""
        time_ns, packet, key, _, *rest = segment
        flow = self._table.current(key)
        directions = () if flow is None else (flow.client, flow.server)
        known = next((direction.next for direction in directions if direction.key == key), None)
        return (time_ns, packet, key, 1 if known is None else known, *rest)  # type: ignore[return-value]

    @property
    def unsure(self) -> bool:
        """Whether octets came again of which the first copy was not kept, so that nobody compared the two."""
        return self._table.unsure

    def state(self) -> bytes | None:
        """What the tuple's next pieces begin with, None for nothing."""
        if self._table.unsure:
            return states.LOST
        flow = self._flow
        try:
            return None if flow is None else states.encode(flow)
        except states.StateError:
            return states.LOST

    def whole_state(self) -> bytes | None:
        """The same with all latest segments, however long they are; None if there is none that can be kept."""
        flow = self._flow
        try:
            return None if flow is None or self._table.unsure else states.encode(flow, most_recent=None)
        except states.StateError:
            return None

    @property
    def is_long(self) -> bool:
        """Whether that is more than :meth:`state` has."""
        flow = self._flow
        return flow is not None and any(states.is_long(direction) for direction in (flow.client, flow.server))

    @property
    def held_octets(self) -> int:
        """Octets that wait behind holes, and those of the latest segments."""
        flow = self._flow
        directions = () if flow is None else (flow.client, flow.server)
        recent = sum(len(octets) for direction in directions for _, octets in direction.recent)
        return self._table.waiting_octets + recent

    @property
    def over_ns(self) -> int:
        """The first time at which nothing that comes is of what is known, nanoseconds since the Unix epoch."""
        flow = self._flow
        return 0 if flow is None else self._table.over_ns(flow)

    def finish(self, now_ns: int) -> list[AnyEvent]:
        """End what is open; ``now_ns`` is when the last segment of the series came."""
        self._table.close(now_ns)
        events, self._events[:] = self._events[:], []
        return events

    @property
    def numbers(self) -> int:
        """The number of the flow that began last."""
        return self._table.count

    def number(self) -> int:
        """The number of another flow, which is not of TCP."""
        return self._table.number()

    def going_on(self, now_ns: int) -> set[int]:
        """The numbers of the flows that may go on at ``now_ns``."""
        return set(self._table.open_flows(now_ns))

    def lasts(self, now_ns: int) -> bool:
        """Whether segments that come at ``now_ns`` may be of a flow that is known, be it over."""
        flow = self._flow
        return flow is not None and not self._table.is_left(flow, now_ns)

    @property
    def _flow(self) -> Flow | None:
        return next(iter(self._table._flows.values()), None)

    def _connect(self, number: int, client: Address, server: Address, from_start: bool) -> ZmtpConnection:
        rules = (rule.version for rule in self._decode_as if rule.matches("tcp", server.port, client.port))
        flow = self._table._flows[number]
        self._identify(flow, client, server)
        starts = (from_start, from_start)
        return ZmtpConnection(
            self._events, number, client.text, server.text, starts, self._limits, next(rules, None), client.transport
        )

    def _identify(self, flow: Flow, client: Address, server: Address) -> None:
        name = connection_id(client.transport, client.text, server.text, flow.start_ns)
        key = min(flow.client.key, flow.server.key)
        self.identities[flow.number] = Identity(name, key, client.text, server.text, flow.start_ns, 0)

    # ------------------------------------------------------------------ states

    def _adopt(self, flow: Flow, piece: Piece | None = None) -> None:
        """Go on with a flow that was kept, numbered as those here, its packets as those of ``piece``."""
        self._table.adopt(flow)
        if piece is not None:
            place_flow(flow, piece)
        connection = flow.dissection
        if not isinstance(connection, ZmtpConnection):
            return
        held = connection.out
        connection.flow = flow.number
        connection._final = self._events
        if connection.accepted:
            connection.out = self._events
        for half in connection.halves:
            half.flow = flow.number
            half.out = connection.out
        for event in held:
            if isinstance(event, WireEvent) or getattr(event, "flow", None) is not None:
                event.flow = flow.number  # type: ignore[union-attr]
                if piece is not None and event.packet:  # type: ignore[union-attr]
                    event.packet = placed(piece.first_ns, piece.file, event.packet)  # type: ignore[union-attr]
        client, server = addresses(flow.client.key)
        self._identify(flow, client, server)

    # ------------------------------------------------------------------ verdicts

    def _judge(self, piece: Piece, why: str) -> Verdict:
        if self._doubted:
            return Verdict(piece.file, piece.number, "redo", around=piece.loose, why="an earlier piece is redone")
        flow = self._flow
        if self.state() == states.LOST:
            self._doubted = True
            return Verdict(piece.file, piece.number, "redo", around=piece.loose, anew=True, why="no state")
        if flow is not None and piece.first_ns < flow.last_ns:
            self._doubted = True
            return Verdict(piece.file, piece.number, "redo", around=piece.loose, anew=True, why="late")
        self._table.expire(piece.first_ns)
        flow = self._flow
        before = None if flow is None else states.encode(flow)
        done = len(self._events)
        try:
            if why or piece.loose or piece.lost:
                raise DoubtError(why or ("fragments" if piece.loose else "no state"))
            verdict = self._verdict(piece, flow)
            if self._table.unsure or ("again" in piece.reasons and verdict.fate != "alone"):
                raise DoubtError("again")
        except DoubtError as doubt:
            del self._events[done:]
            self._table.drop()
            if before is not None:
                self._adopt(states.decode(before, self._table))
            self._doubted = True
            anew = self._table.unsure
            state = None if anew else before
            return Verdict(piece.file, piece.number, "redo", state=state, around=piece.loose, anew=anew, why=str(doubt))
        return verdict

    def _verdict(self, piece: Piece, flow: Flow | None) -> Verdict:
        if flow is None:
            if piece.last is not None:
                self._adopt(states.decode(piece.last, self._table), piece)
            return Verdict(piece.file, piece.number, "alone")
        if piece.birth:
            return self._bear(piece, flow)
        if _BOUNDS.intersection(piece.reasons):
            raise DoubtError(", ".join(piece.reasons))
        self._table.take([moved(segment, piece) for segment in piece.start])
        if piece.is_start:
            return Verdict(piece.file, piece.number, "told")
        if self._table.current(piece.key) is not flow or flow.ended or flow.closing:
            raise DoubtError("an end, and more")
        if flow.unwanted:
            return self._pass(piece, flow)
        if piece.reasons:
            raise DoubtError(", ".join(piece.reasons))
        return self._continue(piece, flow)

    def _bear(self, piece: Piece, flow: Flow) -> Verdict:
        """A piece that begins with a SYN, on the addresses of a connection that is not forgotten."""
        if any(segment[6] or segment[7] for segment in piece.birth):
            raise DoubtError("a SYN with octets")
        syn = piece.birth[0]
        for segment in piece.birth if piece.answered else piece.birth[:1]:
            self._table.take([moved(segment, piece)])
        born = self._table.current(piece.key)
        if born is None or born is flow or born.start_ns != syn[0] or born.dissection is not None:
            raise DoubtError("a SYN on a connection in use")
        self._table.drop()
        if piece.last is not None:
            self._adopt(states.decode(piece.last, self._table), piece)
        return Verdict(piece.file, piece.number, "alone")

    def _pass(self, piece: Piece, flow: Flow) -> Verdict:
        """More of a connection that is not ZMTP."""
        if piece.opened > 1 or piece.others or not self._table.outlasts_unknown(piece.seen_ns - flow.last_ns):
            raise DoubtError("not zmtp, and long")
        for segment in piece.notable:
            self._table.take([moved(segment, piece)])
        flow.last_ns = max(flow.last_ns, piece.seen_ns)
        return Verdict(piece.file, piece.number, "passed")

    # ------------------------------------------------------------------ more of a connection

    def _continue(self, piece: Piece, flow: Flow) -> Verdict:
        if piece.opened > 1 + piece.others and not self._table.outlasts(piece.seen_ns - flow.last_ns):
            raise DoubtError("idle")
        kept = piece.first or (piece.last if not piece.others else None)
        if kept is None:
            raise DoubtError("no state")  # it was idle, or never a flow at all
        end = states.decode(kept, self._table)
        ways = [(mine, end.client if mine.key == end.client.key else end.server) for mine in (flow.client, flow.server)]
        for mine, theirs in ways:
            check_direction(mine, theirs, piece)
        before = [(mine.offset - piece.bases[mine.key][1], [*mine.recent]) for mine, _ in ways]
        if piece.has_octets:
            self._read(piece, flow, end)
        for (mine, theirs), (offset, recent) in zip(ways, before, strict=True):
            transplant_direction(mine, theirs, offset, recent, piece)
        flow.closing = end.closing
        flow.last_ns, flow.last_packet = end.last_ns, placed(piece.first_ns, piece.file, end.last_packet)
        verdict = self._describe(piece, flow)
        if piece.end is not None and (piece.has_octets or piece.end != "timeout"):
            self._table.end(flow, piece.end, piece.discarded)
            self._table.drop()
            if piece.last is not None:
                self._adopt(states.decode(piece.last, self._table), piece)
                last = self._flow
                if not piece.others and last is not None:
                    last.start_ns = flow.start_ns
                    for mine in (flow.client, flow.server):
                        theirs = last.client if last.client.key == mine.key else last.server
                        theirs.isn = mine.isn
        return verdict

    def _describe(self, piece: Piece, flow: Flow) -> Verdict:
        connection = flow.dissection
        if not isinstance(connection, ZmtpConnection):
            return Verdict(piece.file, piece.number, "joined", socket_types={})
        identity = self.identities[flow.number]
        types = {
            half.src: half.socket_type if half.framing == 2 else None for half in (connection.client, connection.server)
        }
        return Verdict(
            piece.file,
            piece.number,
            "joined",
            identity.conn_id,
            identity.client,
            identity.server,
            identity.start_ns,
            types,
        )

    def _read(self, piece: Piece, flow: Flow, end: Flow) -> None:
        """Feed the heads of a piece, and let both halves go on where the piece ends."""
        theirs = end.dissection
        if piece.heads is None or not isinstance(theirs, ZmtpConnection):
            raise DoubtError("no head")
        swapped = flow.client.key != end.client.key
        sides = (flow.server, flow.client) if swapped else (flow.client, flow.server)
        places = [direction.next for direction in sides]
        packets = sync_packets(piece)
        facts: list[object] = []
        for packet, time_ns, side, octets in piece.heads:
            if packets and packet > min(packets) and not facts:
                facts = self._facts(flow)
            direction = sides[side]
            seq = places[side]
            if seq is None:
                far = end.server if side else end.client
                assert far.next is not None
                seq = (far.next - far.offset) % MODULO
            self._table.take([(time_ns, piece.placed(packet), direction.key, seq, 0, 0, octets, 0)])
            if direction.flow.ended or flow.unwanted:
                raise DoubtError("it ends in the head")
            if direction.waiting:
                raise DoubtError("a head that does not fit")
            places[side] = direction.next
        if not any(piece.synced):
            return
        connection = flow.dissection
        if not isinstance(connection, ZmtpConnection):
            raise DoubtError("no octets before")
        after = self._facts(flow)
        if facts and facts != after:
            raise DoubtError("the handshake is not over")
        self._check_context(piece, connection, theirs)
        halves = (connection.server, connection.client) if swapped else (connection.client, connection.server)
        for half, other, synced in zip(halves, theirs.halves, piece.synced, strict=True):
            if synced is not None:
                check_half(half, synced, piece)
                transplant_half(half, other, synced, piece)
        for half in halves:
            half.look_again()

    def _facts(self, flow: Flow) -> list[object]:
        """What of a connection must not change while its halves are read apart from each other."""
        connection = flow.dissection
        if not isinstance(connection, ZmtpConnection):
            raise DoubtError("no octets before")
        security = connection.security
        facts: list[object] = [connection.accepted, connection.version, connection.protocol]
        facts += [security.mechanism, security.unknown_start, security.failed, sorted(security._done)]
        for half in connection.halves:
            facts += [half.greeted, half.framing, half.socket_type, half.version, half.mechanism]
        return facts

    def _check_context(self, piece: Piece, connection: ZmtpConnection, theirs: ZmtpConnection) -> None:
        """Raise DoubtError unless what was noted in the stretch means the same in this connection."""
        security = connection.security
        halves = connection.halves
        if not connection.accepted or connection.forced or any(half.upgraded for half in halves):
            raise DoubtError("not ZMTP over TCP")
        if not all(half.greeted for half in halves):
            raise DoubtError("the greeting is not over")
        if security.mechanism not in (None, "NULL", "PLAIN", "CURVE"):
            raise DoubtError(security.mechanism or "")
        if not security.unknown_start and len(security._done) < 2:
            raise DoubtError("the handshake is not over")
        kinds = ("topic", "clear", "box", "command", *sockets.SENDERS)
        seen = {name: {side for what, side in piece.seen if what == name} for name in kinds}
        if seen["box"] and not security.may_encrypt:
            raise DoubtError("boxes on a connection in clear")
        if seen["clear"] and security.encrypts:
            raise DoubtError("clear messages on an encrypted connection")
        if seen["command"] and security.encrypts:
            raise DoubtError("clear commands on an encrypted connection")
        if connection.version == "3.0" and seen["command"]:
            raise DoubtError("commands of a later version")
        known = security.mechanism or halves[0].mechanism or halves[1].mechanism
        if known is None:
            if security._assumed not in (None, piece.assumed) and (piece.assumed or seen["box"]):
                raise DoubtError("other commands")
            security._assumed = security._assumed or piece.assumed
        elif seen["box"] and (known != "CURVE" or piece.assumed != "CURVE"):
            raise DoubtError("boxes of another mechanism")
        sides = {half.src: half for half in halves}
        for other, synced in zip(theirs.halves, piece.synced, strict=True):
            half = sides[other.src]
            if (
                synced is not None
                and half.subscribes != synced.subscribes
                and (synced.subscribes or other.side in seen["topic"])
            ):
                raise DoubtError("subscriptions")
            wrong = (name for name in sockets.SENDERS if not sockets.may_send(half.socket_type, name))
            if any(other.side in seen[name] for name in wrong):
                raise DoubtError("commands of another socket type")
