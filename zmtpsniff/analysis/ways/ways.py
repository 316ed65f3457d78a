"""Follows requests, jobs and publications from socket to socket, over any number of brokers and services.

Theory
------

A *way* is what happened to one request, job or publication. Its *legs* are messages. A message is *held* at the host
that took it, until the host passes it on or answers it. For each message that a host sends, this module looks for the
message of which it comes: one that the host took before. The first evidence that fits joins the two.

*Requests and replies* are joined by their connections, envelopes and ids
(:mod:`~zmtpsniff.analysis.ways.request_joins`).

*Jobs* are joined by equal octets (*body*), then by an id that one held message alone has (*correlation*), then as
replies that a PUSH gives (:mod:`~zmtpsniff.analysis.ways.pushed_replies`). *Publications* are joined by equal octets:
to the copy that a proxy took, else to the first copy that the publisher sent; then by an id to the request that they
are about.

A message without any of these begins a way. :mod:`~zmtpsniff.analysis.ways.open_ways` knows when a way is finished;
then ``record()`` makes its record.

Invariants: each message has one way. It comes of an earlier message, unless its packet overtook that of its original.
No guess replaces a join that is certain.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from dissectors.address import host_of
from dissectors.batches import MessageBatch
from dissectors.columns import PAIR, ROW
from dissectors.events import (
    AnyEvent,
    Capture,
    Command,
    Connection,
    Greeting,
    Message,
    Payload,
    Problem,
    at_hand,
)
from dissectors.problems import BLINDING
from zmtpsniff.analysis.event_times import retimed
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.correlation import asks_by_name, ids_of
from zmtpsniff.analysis.ways.hops import Hop, OpenWay, Stream
from zmtpsniff.analysis.ways.job_joins import JobJoins
from zmtpsniff.analysis.ways.join_tables import JoinTables
from zmtpsniff.analysis.ways.open_ways import OpenWays
from zmtpsniff.analysis.ways.publication_joins import PublicationJoins
from zmtpsniff.analysis.ways.request_joins import RequestJoins
from zmtpsniff.analysis.ways.retries import Retries
from zmtpsniff.analysis.ways.tcp_proxies import TcpProxies
from zmtpsniff.analysis.ways.way_connections import WayConnection
from zmtpsniff.analysis.ways.way_records import Way, moved
from zmtpsniff.net.witness import Acknowledgment, Attempt, Pause, Stall
from zmtpsniff.words.set_clocks import SET_BACK_NS, ForwardJumps

_REFUSED = 65_536  # connections, between two messages
# Inferred types, and lookalikes. An XPUB has announced its type on another connection of its bound socket.
_SHOWN = frozenset({("PUSH", None), ("PUB", None), ("XPUB", None), ("PUB", "XPUB"), ("PUB", "RADIO")})
_PROBE = [b""]  # the message of ZMQ_PROBE_ROUTER
_HOUSEKEEPING = frozenset({"READY", "HEARTBEAT", "DISCONNECT"})  # commands of Majordomo


class Ways:
    """Takes all events of a capture in batches, and returns the ways that are finished."""

    def __init__(self, mark: Callable[[Message], Any] | None = None, *, in_order: bool = True) -> None:
        """``mark`` chooses: only a way with a message for which it returns something true has a record.

        Without ``mark``, all ways have one. With ``in_order`` the ways come in the order of their beginnings, else each
        request as soon as it is answered.
        """
        self._mark = mark
        self._tables = tables = JoinTables()
        self._dossiers = tables.dossiers
        self._ways = OpenWays(tables, in_order=in_order)
        self._retries = Retries()
        self._jobs = JobJoins(tables, self._ways)
        self._publications = PublicationJoins(tables, self._ways)
        self._requests = RequestJoins(tables, self._ways, self._jobs, self._retries)
        self.connections = tables.connections
        self.programs = tables.programs
        self.endings = tables.endings
        self.proxies = TcpProxies()
        self.late_passers = self._requests.late_passers
        # By flow and sender: the time of the last octets before those that were found missing last.
        self._gap_since_ns: Ledger[tuple[int, str], int] = Ledger(int)
        # When servers refused connections, later than the last message. Attempts are told before the messages of the
        # same packets, and how long before depends on where batches end.
        self._refused: deque[tuple[int, str]] = deque(maxlen=_REFUSED)
        self.jumps = ForwardJumps()  # of the clock of the capture; all times in here are without them

    def acknowledge(self, acknowledgments: Iterable[Acknowledgment]) -> None:
        """Receivers have acknowledged octets; the events of the same packets come with the next call of take()."""
        self.endings.knows_acknowledged = True
        self.connections.acknowledge(acknowledgments)

    def attempt(self, attempt: Attempt) -> None:
        """Learn of an attempt to connect.

        A connection that begins shows how far its ends are. A ROUTER that refuses one may give its ids to other
        connections soon.
        """
        if attempt.outcome == "refused":
            self._refused.append((attempt.last_ns, attempt.server))
        self.connections.round_trips.attempt(attempt)

    def stall(self, stall: Stall) -> None:
        """Ignore a stall: the ways themselves show who waited."""

    def pause(self, pause: Pause) -> None:
        """A connection was silent for a while, and perhaps sent octets again then that the network had lost."""
        self.connections.pause(pause)

    def take(self, events: Sequence[AnyEvent]) -> list[OpenWay]:
        """Follow a batch of events of all types. Return the ways that are finished.

        If messages are chosen by ``mark``, none may be in columns.
        """
        if self.jumps:
            events = retimed(events, self.jumps.steady)
        for event in events:
            if type(event) is Message:
                self.take_message(event)
            elif isinstance(event, MessageBatch):
                self.take_columns(event)
            elif isinstance(event, Greeting | Command):
                self.see_announcement(event)
            elif isinstance(event, Connection):
                self.end_connection(event)
            elif isinstance(event, Problem):
                self.see_problem(event)
            elif isinstance(event, Capture) and event.end_ns is not None:
                self._ways.now_ns = max(self._ways.now_ns, event.end_ns)
        self.connections.trim()
        return self.pop_finished()

    def see_announcement(self, event: Greeting | Command) -> None:
        """A side of a connection announces its socket type, and perhaps its identity."""
        dossier = self._dossiers.at(event)
        known = len(dossier.types)
        dossier.learn(event)
        self.proxies.announce(event)
        if isinstance(event, Greeting):
            self.connections.round_trips.greet(event)
        if len(dossier.types) > known:
            self.connections.connect(dossier)
            if event.identity:
                self._tables.envelopes.ids.learn(event.flow, event.dst, event.identity)

    def see_problem(self, event: Problem) -> None:
        """Learn what the capture may lack, or that its packets are out of order."""
        if event.code in ("capture-disorder", "clocks-differ"):
            self.endings.disorder(event.by_ns)
        self.endings.interruptions.take(event)
        if event.code in BLINDING:
            hosts = [host_of(address) for address in (event.src, event.dst) if address is not None]
            has_gap = BLINDING[event.code] == "rest"
            self.endings.blind(*hosts, has_gap=has_gap)
            if event.flow is not None and event.src is not None and event.time_ns is not None and not has_gap:
                self.endings.begin_late(event.flow, host_of(event.src), event.time_ns)
            connection = None if event.flow is None else self.connections.get(event.flow)
            if has_gap:
                self._see_hole(event, hosts)
                if connection is not None:
                    connection.has_gap = True

    def _see_hole(self, event: Problem, hosts: Sequence[str]) -> None:
        """Learn when the octets passed that are missing; where frames are found again, what came until then is, too."""
        side = event.flow or 0, event.src or ""
        since_ns = event.since_ns
        if event.code == "frames-found-again":
            since_ns = self._gap_since_ns.get(side)
        elif since_ns is not None:
            self._gap_since_ns[side] = since_ns
        if event.time_ns is not None:
            self.endings.see_hole(since_ns, event.time_ns, *hosts)

    def end_connection(self, event: Connection) -> None:
        """A connection is over whose messages came here."""
        connection = self.end_unfollowed(event)
        self._dossiers.pop(event.flow)
        if connection is not None and event.end in ("fin", "rst"):
            connection.shared.closed_ns = event.end_ns
            connection.shared.closer = None if event.closer is None else event.closer.address
            self._requests.end(connection)
            for stream in connection.streams.values():
                self._tables.lanes.end(event.flow, stream.src_host, event.end_ns)
            self._retries.end(connection)
        self.stop_following(event.flow)

    def stop_following(self, flow: int) -> None:
        """The messages of a connection do not come here any more, until connections.connect() is called again."""
        self.connections.pop(flow, None)
        self._requests.stop_following(flow)

    def end_unfollowed(self, event: Connection) -> WayConnection | None:
        """A connection is over. Return it if some of its messages came here."""
        self.programs.end(event.client.address)
        self.proxies.end(event)
        self.endings.pass_time(event.end_ns)
        return self.connections.end(event.flow, event.client.address)

    def pop_finished(self) -> list[OpenWay]:
        """Return the ways to which no more legs come, each once. The caller makes its record before the next call."""
        if self.connections.process_of is not None:
            self.connections.learn_processes(self._ways.now_ns)
        return self._ways.pop_finished()

    def finish(self, now_ns: int = 0) -> list[OpenWay]:
        """Return the ways that are left. The capture is over, at ``now_ns`` or with the last event."""
        self._tables.lanes.finish()
        return self._ways.finish(now_ns)

    def open_ways(self, now_ns: int) -> list[OpenWay]:
        """Return the ways that are open at ``now_ns``. They stay open: legs may still come."""
        return self._ways.open_at(now_ns)

    def record(self, way: OpenWay) -> Way | None:
        """The record of a finished way; None if its marks do not choose it, or if it is no request at all.

        Its times are those of the capture again. A jump of the clock lies before or behind a way, never inside:
        no message waited for so long.
        """
        if self._mark is not None and not any(hop.mark for hop in way.hops):
            return None
        if way.kind == "request" and (way.is_signal or way.may_need_no_reply):
            return None
        if way.is_first:
            way.earlier = self._retries.given_up_before(way.first)
        record = self.endings.record(way)
        return moved(record, self.jumps.captured(record.time_ns) - record.time_ns) if self.jumps else record

    # ------------------------------------------------------------------ messages

    def take_message(self, event: Message) -> None:
        """Join a message to the one of which it comes, or begin a way with it."""
        frames = event.frames
        if not frames:
            return  # the capture lacks all of it
        # An inferred type may be a guess. But a PUSH shows by dealing its messages out to its peers in turns, and a
        # publisher by sending copies: if it may be of another type, that one publishes, too.
        is_known = not event.inferred or (event.socket_type, event.lookalike) in _SHOWN
        kind = event.socket_type if is_known else None
        stream = self.connections.stream(event.flow, event.src, event.dst, kind)
        self._ways.hold_octets(sum(map(len, map(at_hand, frames))))
        hop = Hop(
            event.src, event.dst, event.flow, event.packet, event.time_ns, event.part, stream, frames, event.offset
        )  # fmt: skip
        is_idle = False
        if event.payload is not None:
            is_idle = _is_housekeeping(event.payload)
            hop.tokens_ = ids_of(event.payload)
            hop.reply_is_promised = asks_by_name(event.payload)
        if self._mark is not None:
            hop.mark = self._mark(event)
        if event.expects_reply is not None:
            stream.has_ids, hop.expects_reply = True, event.expects_reply
        self._find_way(hop, event.request or 0, event.request_part, is_idle=is_idle)

    def take_columns(
        self,
        batch: MessageBatch,
        wanted: Container[int] | None = None,
        take_finished: Callable[[list[OpenWay]], None] | None = None,
    ) -> None:
        """The same for the messages of a batch, perhaps for those of the ``wanted`` connections alone; without marks.

        ``take_finished`` gets the ways that are finished meanwhile.
        """
        unpack_time, row_size, rows, first_packet = ROW.unpack_from, ROW.size, batch.rows, batch.first_packet
        sides = [side if wanted is None or side.flow in wanted else None for side in batch.senders]
        streams: list[Stream | None] = [None] * len(sides)
        base, bodies = batch.bodies()
        self._ways.hold_octets(sum(map(len, bodies)))
        last_row = flow = -1
        packet = time_ns = 0
        for row, sender, part, first, count, request_part, offset, request in PAIR.iter_unpack(batch.columns):
            side = sides[sender]
            if side is None:
                continue
            if side.flow != flow:
                if take_finished is not None and self._ways.is_due:
                    take_finished(self.pop_finished())
                flow = side.flow
            stream = streams[sender]
            if stream is None:
                stream = streams[sender] = self.connections.stream(flow, side.src, side.dst, side.socket_type)
            if row != last_row:
                last_row, packet, time_ns = row, first_packet + row, unpack_time(rows, row * row_size)[0]
            frames = bodies[first - base : first - base + count]
            hop = Hop(side.src, side.dst, flow, packet, time_ns, part, stream, frames, offset)
            self._find_way(hop, request, request_part)
        if take_finished is not None:
            take_finished(self.pop_finished())

    def _find_way(self, hop: Hop, request: int, request_part: int, *, is_idle: bool = False) -> None:
        """Join a message, or begin a way with it.

        The patterns know that it answers part ``request_part`` of packet ``request``, if that is not 0. With
        ``is_idle`` it is between a broker and its worker alone, and has no way.
        """
        stream, sends, time_ns = hop.stream, hop.stream.sends, hop.time_ns
        late_ns = self._ways.now_ns - time_ns
        if late_ns < 0:
            self._ways.now_ns = time_ns
            while self._refused and self._refused[0][0] <= time_ns:
                self._tables.envelopes.ids.begin_anew(self._refused.popleft()[1])
        elif late_ns:
            self.endings.overtake(hop, late_ns)
            if late_ns > SET_BACK_NS:
                self._ways.set_back(time_ns)
        if self.endings.knows_acknowledged:
            stream.receipts.expect(hop)
        if self.proxies.is_active and (original := self.proxies.forwarded(hop)) is not None:
            self._join_forwarded(hop, original, self._requests.paired(hop, request, request_part))
        elif sends == "request":
            if is_idle or hop.frames == _PROBE:
                return  # it asks for nothing
            self._requests.join(hop, request, request_part)
        elif sends == "publication":
            hop.topic = hop.frames[0]
            self._publications.join(hop)
        elif sends == "job":
            self._jobs.join(hop)
        else:
            return  # a subscriber sent it to its publisher, in a form that is no subscription
        self.programs.send(hop)
        if self.programs.united:
            self.connections.unite(*self.programs.united.pop())
        self._ways.extend(hop)

    def _join_forwarded(self, hop: Hop, original: Hop, paired: Hop | None) -> None:
        """A TCP proxy passes a message on over the other half of a conversation, perhaps the reply to ``paired``."""
        tables = self._tables
        original.is_passed_on = True
        tables.held.remove(original)
        tables.lanes.drop(original)
        original.way.add(hop, original, "body", certain=True, reply=original.reply)
        hop.topic = original.topic
        tables.held.add(hop)
        if hop.stream.sends == "request":
            self._requests.join_forwarded(hop, original, paired)
        elif hop.stream.sends == "job":
            self.programs.take_job(hop)
            tables.correlation.add(hop)
        else:
            original.copied = (original.copied or set()) | {hop.flow}


def _is_housekeeping(payload: Payload) -> bool:
    """Whether a message is between a broker of Majordomo and its worker alone (7/MDP, 18/MDP)."""
    return payload.protocol == "mdp" and payload.fields.get("command") in _HOUSEKEEPING
