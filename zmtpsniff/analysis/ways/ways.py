"""Follows requests, jobs and publications from socket to socket, over any number of brokers and services.

Theory
------

A *way* is what happened to one request, job or publication. Its *legs* are messages. A message is *held* at the host
that took it, until the host passes it on or answers it. For each message that a host sends, this module looks for the
message of which it comes: one that the host took before. The first evidence that fits joins the two.

*Requests and replies* share connections, so the order of the questions also tells one from the other:

1. Has a REQ been given a request by its broker? Then its next message is the reply: a REQ must answer before it says
   anything else. Certain, unless octets of the connection are missing.
2. Does an *envelope* show that a broker passed a held message on (:mod:`~zmtpsniff.analysis.ways.envelopes`)? Certain
   once one connection alone can have the routing id, and no message that the capture lacks can be the original.
3. Does a broker give work to a REQ, and nothing tells yet which request that is? Then it begins a way; the routing id
   may show later of which way that is a piece.
4. Is it the reply to a request on its own connection? Certain where the patterns have paired the two by the rules of
   the sockets. Else the envelope, or an id that both have, tells which request it answers.
5. Is it a reply without such a request: one more part of a reply, or the reply to a request before the capture?
6. Else it is a request. A service may send it for another request that it works on (*correlation*, *process*,
   *order*: :mod:`~zmtpsniff.analysis.ways.lanes`). If not, it begins a way.

*Jobs* are joined by equal octets (*body*), then by an id that one held message alone has (*correlation*), then as
replies that a PUSH gives (:mod:`~zmtpsniff.analysis.ways.pushed_replies`). *Publications* are joined by equal octets:
to the copy that a proxy took, else to the first copy that the publisher sent; then by an id to the request that they
are about.

A message without any of these begins a way. A way goes through these states:

- *open*: legs are added. The way may become a part of another one (``OpenWay.take_over()``), and is over then.
- *finished*: its request is answered, or it has waited long enough; or there are too many ways, or too many octets in
  them. ``pop_finished()`` gives it once, and ``record()`` makes its record before the next call.
- *forgotten*: with the call after that. Its messages join no others any more.

Invariants: each message has one way. A message comes of an earlier one only, but for those below. No guess replaces a
join that is certain.

*Packets that overtake others.* A mirror port feeds a network card with several queues, so the packet of a message may
come here behind that of what a broker made of it. Then the latter begins a way, or is joined to the message before the
missing one. When the missing one comes, within some milliseconds, it is put in front of that: as a request, a reply or
the original of a publication.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from itertools import islice
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
    Octets,
    Payload,
    Problem,
    at_hand,
)
from dissectors.problems import BLINDING
from zmtpsniff.analysis.dossier import Dossiers, has_client_id, says_ready, task_of
from zmtpsniff.analysis.event_times import retimed
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.correlation import Correlation, asks_by_name, ids_of
from zmtpsniff.analysis.ways.endings import Endings
from zmtpsniff.analysis.ways.envelopes import EARLY_NS, Envelopes, HeldMessages, Join, is_early_reply
from zmtpsniff.analysis.ways.equal_messages import EqualMessages
from zmtpsniff.analysis.ways.first_copies import FirstCopies
from zmtpsniff.analysis.ways.hops import PATIENCE_NS, Hop, OpenWay, Stream
from zmtpsniff.analysis.ways.lanes import Lanes
from zmtpsniff.analysis.ways.programs import Programs
from zmtpsniff.analysis.ways.pushed_replies import PushedReplies
from zmtpsniff.analysis.ways.tcp_proxies import TcpProxies
from zmtpsniff.analysis.ways.way_connections import WayConnection, WayConnections, envelope_of
from zmtpsniff.analysis.ways.way_records import Joined, Way, moved
from zmtpsniff.net.witness import Acknowledgment, Attempt, Pause, Stall
from zmtpsniff.words.set_clocks import SET_BACK_NS, ForwardJumps, later

_WAYS = 65_536  # open ways at most; with one more, the oldest is finished as it is
_BEGUN = 4  # ways that a REQ began, of which the last ones may be its READY
_LEGS = 4096  # of one request: a service may send replies to it for ever
_PASSERS = 64  # late brokers that are looked at
_LAST_LEGS = 16  # among so many, the newest, is a reply that overtook the one before
_LATE = 4096  # messages of ways whose records are made; they may be answered or passed on
_LATE_OCTETS = 8 << 20  # of those
_OCTETS = 64 << 20  # of the messages of open ways
_GRACE_NS = 5_000_000_000  # a way without open request or job is finished so long after its last leg
_GIVEN_UP = 16  # requests in vain that are remembered of the clients of one host that closed connections to one server
_SERVED = 4096  # such pairs of a host and a server
_REFUSED = 65_536  # connections, between two messages
# Inferred types, and lookalikes. An XPUB has announced its type on another connection of its bound socket.
_SHOWN = frozenset({("PUSH", None), ("PUB", None), ("XPUB", None), ("PUB", "XPUB"), ("PUB", "RADIO")})
_APART_NS = 20_000_000  # of clients that close within this time, any may be the one that connects next
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
        self._dossiers = Dossiers()
        self._held = HeldMessages()
        self._envelopes = Envelopes(self._held)
        self._equal = EqualMessages(self._held)
        self._correlation = Correlation()
        self._lanes = Lanes(self._equal, self._held)
        self._pushed = PushedReplies()
        self.connections = WayConnections(self._dossiers, self._envelopes.ids, self._lanes, self._pushed)
        self.programs = Programs()
        self.proxies = TcpProxies()
        self.endings = Endings(self.programs)
        # By flow, packet and part: messages that may be answered on their connection.
        self._answerable: dict[tuple[int, int, int], Hop] = {}
        # By host and envelope: requests that a broker passed on over a connection that has ended since.
        self._orphans: Ledger[tuple[str, int], Hop] = Ledger(limit=_WAYS)
        self.late_passers: Ledger[tuple[int, str], int] = Ledger(int, _PASSERS)
        """By late connection and sender: how long a broker has sent requests whose legs before did not come here."""
        self._unseen_since: Ledger[int, int] = Ledger(int)
        self._dispatched: dict[int, Hop] = {}  # by connection: the last request that a broker passed on over it
        self._ways: OrderedDict[OpenWay, None] = OrderedDict()  # open ones, in the order of their beginnings
        self._octets = 0  # of the messages of open ways, and of those that came and went since they were counted
        self._oldest: OpenWay | None = None  # the first of the open ways; None if that has to be looked up
        self._due_ns = 0  # the oldest is not finished before, unless it becomes a part of another one
        self._in_order = in_order
        self._answered: list[OpenWay] = []  # finished since the last call of pop_finished()
        self._late: deque[Hop] = deque()  # the last messages of ways whose records had been made before
        self._late_octets = 0
        self._popped: list[OpenWay] = []  # returned by the last call
        self._first_copies = FirstCopies()
        # By the client's host and the server: the last requests of clients that closed their connections.
        self._given_up: Ledger[tuple[str, str], deque[OpenWay]] = Ledger(partial(deque, maxlen=_GIVEN_UP), _SERVED)
        # By flow and sender: the time of the last octets before those that were found missing last.
        self._gap_since_ns: Ledger[tuple[int, str], int] = Ledger(int)
        # When servers refused connections, later than the last message. Attempts are told before the messages of the
        # same packets, and how long before depends on where batches end.
        self._refused: deque[tuple[int, str]] = deque(maxlen=_REFUSED)
        self.jumps = ForwardJumps()  # of the clock of the capture; all times in here are without them
        self._now_ns = 0

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
                self._now_ns = max(self._now_ns, event.end_ns)
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
                self._envelopes.ids.learn(event.flow, event.dst, event.identity)

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
            self._hold_again(connection)
            for stream in connection.streams.values():
                self._lanes.end(event.flow, stream.src_host, event.end_ns)
                if stream.last_request is not None and not stream.last_request.first.answered:
                    self._given_up.at((stream.src_host, stream.last_request.first.dst)).append(stream.last_request)
        self.stop_following(event.flow)

    def stop_following(self, flow: int) -> None:
        """The messages of a connection do not come here any more, until connections.connect() is called again."""
        self.connections.pop(flow, None)
        self._dispatched.pop(flow, None)
        self._envelopes.ids.forget(flow)

    def end_unfollowed(self, event: Connection) -> WayConnection | None:
        """A connection is over. Return it if some of its messages came here."""
        self.programs.end(event.client.address)
        self.proxies.end(event)
        self.endings.pass_time(event.end_ns)
        return self.connections.end(event.flow, event.client.address)

    def _hold_again(self, connection: WayConnection) -> None:
        """Hold again what had no reply on a connection that is over.

        Its receiver may answer on another connection. Its sender may pass the same on to another receiver.
        """
        for stream in connection.streams.values():
            for hop in stream.unanswered:
                self._orphans[stream.dst_host, envelope_of(hop)] = hop
                before = hop.before
                if before is not None and before.held_as is None and not before.way.is_over:
                    before.is_passed_on = False
                    self._held.add(before)

    def _is_due(self) -> bool:
        """Whether pop_finished() may find a finished way: a quick test for each batch."""
        oldest = self._oldest
        return (
            oldest is None
            or bool(self._answered)
            or oldest.is_over
            or self._now_ns >= self._due_ns
            or len(self._ways) >= _WAYS
            or self._octets > _OCTETS
        )

    def _make_room(self) -> list[OpenWay]:
        """Close the oldest ways, as they are, until the messages of the others take little enough memory."""
        closed: list[OpenWay] = []
        if self._octets > _OCTETS:
            self._octets = sum(way.octets for way in self._ways)
            while self._octets > _OCTETS * 3 // 4 and self._ways:
                way = next(iter(self._ways))
                if way.is_over:
                    del self._ways[way]  # another way has its messages
                else:
                    self._octets -= way.octets
                    closed.append(way)
                    self._close(way)
        return closed

    def pop_finished(self) -> list[OpenWay]:
        """Return the ways to which no more legs come, each once. The caller makes its record before the next call."""
        if self.connections.process_of is not None:
            self.connections.learn_processes(self._now_ns)
        if not self._is_due():
            return []
        self.endings.pass_time(self._now_ns)
        for way in self._popped:
            way.earlier = None  # else each way of a client would keep all those before it in memory
            way.is_told = True
            self.programs.forget(way)
            if way.kind == "publication":
                del way.hops[1:]  # late copies may keep the first one in memory, but not all that came in time
            for hop in way.hops:
                if hop.tokens_:  # only tokens that were looked up stand in tables
                    self._correlation.forget(hop)
                    self._lanes.forget(hop)
                    self._pushed.forget(hop)
        self._popped = found = self._answered
        self._answered = []
        for way in found:
            self._close(way)
        if not self._is_due():
            return found
        self._oldest = None
        found += self._make_room()
        while self._ways:
            way = next(iter(self._ways))
            patience_ns = PATIENCE_NS if self.endings.may_go_on(way) else _GRACE_NS
            waited_ns = self._now_ns - way.last_ns
            if not way.is_over and -SET_BACK_NS < waited_ns < patience_ns and len(self._ways) < _WAYS:
                self._oldest, self._due_ns = way, way.last_ns + _GRACE_NS
                break
            if way.is_over:
                del self._ways[way]
            else:
                self._close(way)
                found.append(way)
        return found

    def _set_back(self, now_ns: int) -> None:
        """The clock was set back to ``now_ns``: the times of open ways do not tell any more how long these waited."""
        self._now_ns, self._oldest = now_ns, None
        self.endings.set_back(now_ns)

    def finish(self, now_ns: int = 0) -> list[OpenWay]:
        """Return the ways that are left. The capture is over, at ``now_ns`` or with the last event."""
        self._lanes.finish()
        left = self._answered + self.open_ways(now_ns)
        self._answered = []
        self._ways.clear()
        for way in left:
            _name_task(way)
        return left

    def open_ways(self, now_ns: int) -> list[OpenWay]:
        """Return the ways that are open at ``now_ns``. They stay open: legs may still come."""
        self._now_ns = later(self._now_ns, now_ns or self._now_ns)
        self.endings.pass_time(self._now_ns)
        return [way for way in self._ways if not way.is_over]

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
            way.earlier = self._request_given_up_before(way.first)
        record = self.endings.record(way)
        return moved(record, self.jumps.captured(record.time_ns) - record.time_ns) if self.jumps else record

    def _close(self, way: OpenWay) -> None:
        """Finish a way: take its messages out of all tables by which others could be joined to them."""
        way.is_over = True
        self._ways.pop(way, None)
        _name_task(way)
        for hop in way.hops:
            self._let_go(hop)

    def _let_go(self, hop: Hop) -> None:
        """Nothing can be joined to a message any more."""
        if hop.held_as is not None:
            self._held.remove(hop)
        if not hop.answered:
            hop.stream.unanswered.pop(hop, None)
        self._answerable.pop((hop.flow, hop.packet, hop.part), None)
        hop.frames = ()

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
        self._octets += sum(map(len, map(at_hand, frames)))
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
        self._octets += sum(map(len, bodies))
        last_row = flow = -1
        packet = time_ns = 0
        for row, sender, part, first, count, request_part, offset, request in PAIR.iter_unpack(batch.columns):
            side = sides[sender]
            if side is None:
                continue
            if side.flow != flow:
                if take_finished is not None and self._is_due():
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
        if time_ns > self._now_ns:
            self._now_ns = time_ns
            while self._refused and self._refused[0][0] <= time_ns:
                self._envelopes.ids.begin_anew(self._refused.popleft()[1])
        elif self._now_ns > time_ns:
            self.endings.overtake(hop, self._now_ns - time_ns)
            if self._now_ns - time_ns > SET_BACK_NS:
                self._set_back(time_ns)
        if self.endings.knows_acknowledged:
            stream.receipts.expect(hop)
        if self.proxies.is_active and (original := self.proxies.forwarded(hop)) is not None:
            self._join_forwarded(hop, original, self._answerable.get((hop.flow, request, request_part)))
        elif sends == "request":
            if is_idle or hop.frames == _PROBE:
                return  # it asks for nothing
            self._join_request_or_reply(hop, request, request_part)
        elif sends == "publication":
            hop.topic = hop.frames[0]
            self._join_publication(hop)
        elif sends == "job":
            self._join_job(hop)
        else:
            return  # a subscriber sent it to its publisher, in a form that is no subscription
        self.programs.send(hop)
        if self.programs.united:
            self.connections.unite(*self.programs.united.pop())
        way = hop.way
        if way.is_told:
            self._keep_late(hop)
        elif not way.is_over and (len(way.hops) > _LEGS or (hop.reply and not self._in_order)):
            is_long = way.kind == "request" and len(way.hops) > _LEGS
            if is_long or self._is_answered_by(hop):
                way.is_over = True
                self._answered.append(way)

    def _keep_late(self, hop: Hop) -> None:
        """The record of the way of a message is made. Of such messages the last ones stay, since others may follow."""
        late = self._late
        late.append(hop)
        self._late_octets += hop.octets
        while len(late) > _LATE or (self._late_octets > _LATE_OCTETS and len(late) > 1):
            oldest = late.popleft()
            self._late_octets -= oldest.octets
            if oldest.tokens_:
                self._correlation.forget(oldest)
                self._lanes.forget(oldest)
                self._pushed.forget(oldest)
            self._let_go(oldest)

    def _is_answered_by(self, hop: Hop) -> bool:
        """Whether a message is the reply that the first sender of its way waits for, and ways are told so early."""
        first, before = hop.way.first, hop.before
        if self._in_order or not hop.reply or hop.flow != first.flow or before is None:
            return False
        if not hop.stream.is_local:
            is_next = before.stream.dst_host == hop.stream.src_host
            while before.reply and before.before is not None:
                before = before.before
            if before.is_passed_on or not is_next:
                return False  # the reply that a broker passed back may have overtaken the one that the broker took
        return not self._may_be_passed_back(first)

    def _may_be_passed_back(self, first: Hop) -> bool:
        """Whether a broker sent a request with the envelope of one that nobody saw, and may pass its reply back."""
        frames = first.frames
        return len(frames) > 0 and frames[0] != b"" and b"" in frames and self.programs[first.src].longest_relay_ns >= 0

    def _join_forwarded(self, hop: Hop, original: Hop, paired: Hop | None) -> None:
        """A TCP proxy passes a message on over the other half of a conversation, perhaps the reply to ``paired``."""
        way = original.way
        original.is_passed_on = True
        self._held.remove(original)
        self._lanes.drop(original)
        way.add(hop, original, "body", certain=True, reply=original.reply)
        hop.topic = original.topic
        if hop.stream.sends == "publication":
            original.copied = (original.copied or set()) | {hop.flow}
        elif hop.stream.sends == "job":
            self.programs.take_job(hop)
            self._correlation.add(hop)
        elif hop.reply:
            self._note_answered_by(hop)
        else:
            hop.measure_envelope()
            if original in original.stream.unanswered:
                self._note_dispatch(hop, original.routing_id)
            if self._dispatched.get(original.flow) is original:
                self._dispatched[hop.flow] = hop
                if hop.stream.dst_kind == "REQ":
                    self._drop_ready_message(hop)
        if paired is not None:
            self._note_asker(hop.stream, paired)
            if not paired.answered:
                paired.note_answer()
        self._held.add(hop)
        if hop.stream.sends == "request":
            if not hop.reply and not hop.is_signal:
                self._lanes.receive(hop)
                self._pushed.receive(hop)
            self._answerable[hop.flow, hop.packet, hop.part] = hop

    def _join_publication(self, hop: Hop) -> None:
        """A publication: join it to the one that a proxy took, and passes on here, if there is one."""
        flow = hop.flow
        options = [one for one in self._equal.before(hop) if one.copied is None or flow not in one.copied]
        if options and not self._first_copies.is_one_more(hop, options[0].time_ns):
            before, is_certain = self._original(options, hop)
            self._note_publisher(before)
            before.copied = (before.copied or set()) | {flow}
            before.is_passed_on = True
            before.way.add(hop, before, "body", certain=is_certain)
        else:
            self._begin_publication(hop)
        self._equal.add_taker(hop)
        proxy = self.programs.get(hop.dst)
        if proxy is not None and len(proxy.sockets) > 1 and self._first_copies.has_copy_of(hop, proxy.sockets):
            hop.is_passed_on = True
        self._held.add(hop)

    def _note_publisher(self, passed_on: Hop) -> None:
        """A message is passed on as a publication: so it is one, if the capture lacks its sender's type.

        A sender whose receiver says something does not publish, and no publication has a delimiter.
        """
        way, connection = passed_on.way, self.connections.get(passed_on.flow)
        is_request = passed_on.depth > 0 or len(way.hops) > 1
        if passed_on.stream.src_kind or way.kind != "request" or is_request or connection is None:
            return
        if passed_on.dst not in connection.streams:
            passed_on.stream = connection.publish(passed_on.src)
            passed_on.topic, way.kind = passed_on.frames[0], "publication"

    def _original(self, options: Sequence[Hop], hop: Hop) -> tuple[Hop, bool]:
        """The one of several equal messages that a program passes on here, and whether that is certain.

        It is the oldest, if nothing shows which. On one host, where all programs may have one address, it may be what
        another proxy took, if the capture lacks the leg between the two.
        """
        is_only = len(options) == 1
        before = options[0] if is_only else self.programs.likely(options, hop)
        if is_only and not hop.stream.is_local:
            return before, self._equal.proves(before, hop)
        if self.programs.are_two(before, hop):
            hop.stream.is_proven = False  # by this one
            return before, False
        is_as_before = hop.stream.note_source(before)
        return before, is_only and is_as_before and self._equal.proves(before, hop)

    def _is_of_same_program(self, hop: Hop, related: Hop) -> bool:
        """Whether the program that sends a message took the ``related`` one, which has the same id.

        On one host all programs may have one address, and other programs know the id as well: the sender of
        that message, or one that has the id for its name. There, only many messages show it: if all of them are related
        to messages of one socket.
        """
        if not hop.stream.is_local or (hop.stream.knows_sender and related.stream.knows_receiver):
            return True
        hop.stream.note_source(related)
        return hop.stream.is_proven

    def _note_overtaken_original(self, hop: Hop) -> None:
        """A publication comes behind later messages, perhaps behind its original, whose packet it overtook."""
        for one in self._held.equal_at(hop.stream.src_host, hop):
            if one.stream.sends == "publication" and 0 < one.time_ns - hop.time_ns <= EARLY_NS:
                one.is_passed_on = True
                return

    def _begin_publication(self, hop: Hop) -> None:
        """A publication that no proxy passes on: one more copy of what the publisher sent before, or a new one."""
        if hop.time_ns < self._now_ns:
            self._note_overtaken_original(hop)
        first = self._first_copies.first_of(hop)
        if first is not None:
            first.way.join_copy(hop, first)
            return
        request = self._lanes.related(hop)
        if request is not None:  # such as the output of a Jupyter kernel, while it works on a request
            request.way.add(hop, request, "correlation", certain=True)
        else:
            self._open(OpenWay.begin("publication", hop))

    def _join_job(self, hop: Hop) -> None:
        """Join what a PUSH sends: a job passed on, the result of a job, or replies to requests; else begin a way."""
        alike = [one for one in self._equal.before(hop) if one.stream.dst_kind == "PULL"]
        if alike:
            before, is_certain = self._original(alike, hop)
            self._pass_job_on(hop, before, "body", is_certain=is_certain)
        elif (related := self._correlation.find(hop)) is not None:
            self._pass_job_on(hop, related, "correlation", is_certain=self._is_of_same_program(hop, related))
        elif asked := self._pushed.answered_by(hop):
            self._answer_pushed(hop, asked)
        else:
            self.programs.begin_job(hop)
            self._open(OpenWay.begin("job", hop))
        self.programs.take_job(hop)
        self._held.add(hop)
        self._correlation.add(hop)

    def _pass_job_on(self, hop: Hop, before: Hop, joined: Joined, *, is_certain: bool) -> None:
        """A program passes a job on, or sends its result."""
        is_new, before.is_passed_on = not before.is_passed_on, True
        self._held.remove(before)
        before.way.add(hop, before, joined, certain=is_certain)
        hop.stream.carries_results |= joined == "correlation"
        if is_new and (joined == "body" or not hop.is_guess):
            self.programs.pass_job_on(before)

    def _answer_pushed(self, hop: Hop, asked: dict[Hop, bool]) -> None:
        """A pushed message has the replies to the requests ``asked``: it is a leg of the way of each."""
        for place, (request, is_certain) in enumerate(asked.items()):
            way = request.way
            self.programs[request.dst].is_parallel |= len(asked) > 1
            request.note_answer()
            self._held.remove(request)
            way.add(hop if not place else hop.copy(), request, "correlation", certain=is_certain, reply=True)
            if not self._in_order and request is way.first and not way.is_over:
                way.is_over = True
                self._answered.append(way)

    def _join_request_or_reply(self, hop: Hop, request: int, request_part: int) -> None:
        """Ask the six questions of the theory above, in their order.

        ``dispatched`` is the last request that a broker passed on over this connection, ``paired`` the request that the
        message answers by the patterns.
        """
        dispatched = self._dispatched.get(hop.flow)
        paired = self._answerable.get((hop.flow, request, request_part)) if request else None
        if not request and (asked := self.connections[hop.flow].turn(hop)) is not None:
            self._join_reply(hop, asked, is_certain=False)
            return
        is_for_req = hop.stream.dst_kind == "REQ"
        if dispatched is not None and dispatched.stream.dst_kind == "REQ" and self._is_result_of(hop, dispatched):
            self._join_reply(hop, dispatched, is_certain=paired is dispatched or not self.connections[hop.flow].has_gap)
        else:
            join = self._envelopes.find(hop, paired)
            is_certain = join is not None and not join.before.is_ambiguous and self._excludes_unseen_original(hop, join)
            if paired is not None:
                self._note_asker(hop.stream, paired)
            if self._envelopes.has_learnt:
                for waiting, its_join in self._envelopes.settled():
                    self._join_waiting_leg(waiting, its_join)
            if join is not None:
                self._join_relayed(hop, join, paired, is_certain=is_certain)
            elif hop.is_work or (is_for_req and (dispatched is not None or self._envelopes.is_passed_on(hop))):
                self._begin_dispatched(hop, paired)
            elif (found := self._request_answered_by(hop, paired)) is not None:
                self._join_reply(hop, found[0], is_certain=found[1])
            elif not self._join_unpaired_reply(hop, dispatched, is_paired=request > 0):
                self._join_request(hop)
        if hop.held_as is None:
            self._held.add(hop)  # its receiver may pass it on
        if not hop.stream.is_local:
            if hop.reply:
                self._put_before_early_reply(hop)
            elif (early := self._envelopes.early_leg(hop)) is not None:
                self._join_early_leg(hop, *early)
        if not hop.reply and not hop.is_signal:
            self._lanes.receive(hop)
            self._pushed.receive(hop)
        self._answerable[hop.flow, hop.packet, hop.part] = hop

    def _is_result_of(self, hop: Hop, dispatched: Hop) -> bool:
        """Whether a message is the reply of a REQ to the request that its broker gave it: the next that the REQ sends.

        If octets of the connection are missing, the next one may be missing. Then the envelope must show it.
        """
        if dispatched.dst != hop.src or dispatched.answered:
            return False
        return not self.connections[hop.flow].has_gap or dispatched.routing_id in hop.frames[:-1]

    def _note_asker(self, stream: Stream, paired: Hop) -> None:
        """A request got its reply, so the receiver of the reply asks others, perhaps for requests that it takes."""
        if stream.is_late:
            self.connections[paired.flow].see_answer(paired)
            self._lanes.add_service(stream.dst_host)
        elif stream.has_ids and stream.dst_kind == "ROUTER":
            self._lanes.add_service(stream.dst_host, is_scheduler=True)

    def _join_relayed(self, hop: Hop, join: Join, paired: Hop | None, *, is_certain: bool) -> None:
        """A broker passes a message on, perhaps the reply to ``paired``."""
        if paired is not None and join.is_back and paired.way is not join.before.way:
            self._put_before_reply(paired, join.before.way)
        self._join_by_envelope(hop, join, is_certain=is_certain)
        if paired is not None and not paired.answered:
            paired.note_answer()  # by a reply whose origin is not known; or it was a READY, which asks for this work

    def _begin_dispatched(self, hop: Hop, paired: Hop | None) -> None:
        """A broker gives a worker a request that the capture lacks, or that the routing id does not identify yet.

        If it is ``paired``, that was the READY of the worker.
        """
        hop.measure_envelope()
        if hop.is_work:
            hop.routing_id = hop.frames[1]
            if paired is not None and not paired.answered:
                paired.note_answer()
        self._drop_ready_message(hop)
        if hop.stream.dst_kind != "REQ":  # the worker may have several requests at once
            hop.stream.unanswered[hop] = None
        self._dispatched[hop.flow] = hop
        self._open(OpenWay.begin("request", hop))

    def _request_answered_by(self, hop: Hop, paired: Hop | None) -> tuple[Hop, bool] | None:
        """The request that a message answers, and whether that is certain; None if there is none.

        It is the one that patterns have ``paired`` with it; else one that a broker passed on over this connection; else
        one that it passed on over a connection of the worker that has ended.
        """
        if paired is not None and not paired.answered:
            return paired, True
        orphan, given = self._orphan_answered_by(hop), self.connections[hop.flow].request_answered_by(hop)
        if orphan is None:
            return given
        if given is None or not hop.tokens.isdisjoint(orphan.tokens - given[0].tokens):  # only the orphan has its id
            return orphan, self._excludes_unseen_request(hop, orphan)
        return given[0], given[1] and not hop.tokens.isdisjoint(given[0].tokens)

    def _join_unpaired_reply(self, hop: Hop, dispatched: Hop | None, *, is_paired: bool) -> bool:
        """If a message is a reply, though no request waits for one: join it, or begin a way with it. Return whether.

        With ``is_paired`` the patterns have a request for it, which did not come here.
        """
        if dispatched is not None and self._is_further_reply(hop, dispatched):
            is_sure = dispatched.is_only_unanswered and self._excludes_unseen_request(hop, dispatched)
            dispatched.way.add(hop, dispatched, "envelope", certain=is_sure, reply=True)
        elif (reply := self._equal.readdressed(hop)) is not None:
            reply.is_passed_on = True
            reply.way.add(hop, reply, "body", certain=False, reply=True)
            self._note_answered_by(hop)
        elif not hop.stream.is_late and (is_paired or hop.stream.src_kind == "REP"):
            hop.reply = True  # to a request that was sent before this connection was followed, or that is missing
            if self.connections[hop.flow].has_gap:
                hop.measure_envelope()
                self.connections[hop.flow].see_possible_reply(hop)
            self._open(OpenWay.begin("request", hop))
        return hop.reply

    def _is_further_reply(self, hop: Hop, dispatched: Hop) -> bool:
        """Whether it is one more part of a reply, or the reply to an earlier request with the same envelope.

        A REQ sends no more parts: it gets more work before it sends its next message.
        """
        if dispatched.stream.dst_kind == "REQ" or dispatched.dst != hop.src:
            return False
        is_blind = hop.stream.is_late or self.connections[hop.flow].has_gap
        return not is_blind and dispatched.routing_id in hop.frames[:-1]

    def _excludes_unseen_request(self, reply: Hop, asked: Hop) -> bool:
        """Whether no request that the capture lacks can be the one that a reply with this envelope answers."""
        return self.endings.sees_all or not reply.tokens.isdisjoint(asked.tokens)

    def _excludes_unseen_original(self, hop: Hop, join: Join) -> bool:
        """Whether no message that the capture lacks can be the one that a broker passed on as ``hop``."""
        if self.endings.sees_all or not self.endings.is_blind(join.before):
            if not (hop.stream if join.is_back else join.before.stream).is_late:
                return True
            connection = self.connections.get(join.flow)  # None once it has ended
            if connection is not None and connection.in_step:
                return True
        return len(hop.tokens) > 0

    def _orphan_answered_by(self, hop: Hop) -> Hop | None:
        """The request with the envelope of a reply, if its connection has ended: a worker answers on its next one."""
        if not self._orphans or len(hop.frames) < 2:
            return None
        key = hop.stream.src_host, envelope_of(hop)
        orphan = self._orphans.get(key)
        if orphan is not None and (orphan.answered or orphan.way.is_over):
            del self._orphans[key]
            return None
        return orphan

    def _join_by_envelope(self, hop: Hop, join: Join, *, is_certain: bool) -> None:
        """A broker passes a message on: a request to a worker or the next broker, or a reply back to the asker."""
        before = join.before
        before.is_passed_on = True
        self._held.pass_on(before, hop)
        self._lanes.drop(before)
        before.way.add(hop, before, "envelope", certain=is_certain, reply=join.is_back)
        if join.is_back:
            self._note_answered_by(hop)
            return
        hop.measure_envelope()
        if before.before is None and before.stream.is_late and has_client_id(before.frames):
            since_ns = self._unseen_since.setdefault(before.flow, before.time_ns)  # the sender is a broker, too
            self.late_passers[before.flow, before.src] = before.time_ns - since_ns
        self._note_dispatch(hop, join.routing_id)
        self._dispatched[hop.flow] = hop
        if hop.stream.dst_kind == "REQ":
            self._drop_ready_message(hop)

    @staticmethod
    def _note_dispatch(hop: Hop, routing_id: Octets) -> None:
        """Remember a request that a broker gave to a peer. The reply of the peer will have the same routing id."""
        shared = hop.stream.shared
        if hop.depth < shared.depth or not shared.depth:
            shared.depth = hop.depth
        shared.upstream = hop.src
        hop.routing_id = routing_id
        hop.stream.unanswered[hop] = None

    def _join_waiting_leg(self, hop: Hop, join: Join) -> None:
        """A leg that waited for its routing id has its place: the way that it began is a piece of another one."""
        join.before.is_passed_on = True
        self._held.remove(join.before)
        if hop.way is not join.before.way and hop is hop.way.first:
            is_certain = not join.before.is_ambiguous and self._excludes_unseen_original(hop, join)
            join.before.way.take_over(hop.way, join.before, "envelope", certain=is_certain)
            hop.reply = join.is_back
            if not (join.is_back or hop.answered):
                self._note_dispatch(hop, join.routing_id)

    def _join_early_leg(self, hop: Hop, early: Hop, join: Join) -> None:
        """A broker passed a message on, in a packet that came here before that of the message itself."""
        before = early.before
        if before is not None:
            early.way.put_between(hop, before, early)
            self._note_dispatch(hop, early.routing_id)
        self._join_waiting_leg(early, join)

    def _put_before_early_reply(self, hop: Hop) -> None:
        """If a broker passed a reply back in a packet that came here before that of the reply itself: join the two.

        Until now the broker seemed to have answered the request itself, or to pass back the reply before that one.
        """
        hops, first = hop.way.hops, hop.way.first
        last = hops[-2] if len(hops) > 1 and hops[-1] is hop else hop
        if not last.reply or last is hop or (last is hop.before and not (first.answered and hop.flow != first.flow)):
            return  # as nearly always
        early = next((one for one in islice(reversed(hops), _LAST_LEGS) if is_early_reply(one, hop)), None)
        if early is None or early.before is None or hop.comes_of(early):
            return
        if early.before.reply:
            hop.before = early.before
        else:
            self.programs.take_back(early, early.before)
        early.before, hop.is_passed_on = hop, True
        self._held.remove(hop)
        place = hops.index(early)
        moved = [one for one in hops[place:] if one.comes_of(early)]
        hops[place:] = [*(one for one in hops[place:] if one not in moved), *moved]

    def _put_before_reply(self, asked: Hop, way: OpenWay) -> None:
        """Make a way a piece of the way of the request ``asked``: its last message most likely led to the reply.

        If a capture begins late, messages of several connections may come here out of order: the one that a broker
        sent before the request that it passes on.
        """
        if way is not asked.way and not asked.is_passed_on and self._envelopes.can_pass_on(way.first, asked):
            asked.is_passed_on = True
            asked.way.take_over(way, asked, "envelope", certain=False)

    def _drop_ready_message(self, job: Hop) -> None:
        """A broker gives a request to a REQ: the REQ sent READY before, which is no request. Drop the way of that."""
        worker = self.connections[job.flow].streams.get(job.dst)
        for way in reversed(worker.begun if worker is not None and worker.begun is not None else ()):
            if way not in self._ways or way.last_ns < job.time_ns - _GRACE_NS:
                return
            if len(way.hops) == 1:
                way.drop()
                self._held.remove(way.first)
                return

    def _join_reply(self, hop: Hop, asked: Hop, *, is_certain: bool) -> None:
        """The receiver of the request ``asked`` answers on the same connection, perhaps after it asked others."""
        asked.stream.shared.uses_delimiter |= asked.depth > 0
        asked.note_answer()
        self._held.remove(asked)
        way = asked.way
        after_others = self._lanes.join_answer(asked, hop)
        if after_others is not None:
            way.add(hop, after_others.before, after_others.joined, certain=after_others.is_certain, reply=True)
        else:
            way.add(hop, asked, "envelope", certain=is_certain, reply=True)

    def _note_answered_by(self, reply: Hop) -> None:
        """A broker passes a reply back: the request of the same way on that connection is answered."""
        for one in reply.way.hops:
            if one.flow == reply.flow and one.src == reply.dst and not one.answered:
                one.note_answer()
                self._held.remove(one)
                return

    def _join_request(self, hop: Hop) -> None:
        """A request that no broker passes on: a service sends it for another request, or it begins a way."""
        way = OpenWay.begin("request", hop)
        hop.measure_envelope()
        stream = hop.stream
        is_from_req = stream.src_kind == "REQ"
        stream.shared.has_ready_worker |= is_from_req and not stream.own_requests.asked and says_ready(hop.frames)
        if hop.is_signal:  # it becomes a request only if somebody passes it on
            self._open(way)
            return
        if not stream.src_kind and (job := self._correlation.find(hop)) is not None:
            stream.note_source(job)  # the sender is a PUSH of results, as only many of these show
            self._pass_job_on(hop, job, "correlation", is_certain=stream.is_proven)
            return
        self.connections[hop.flow].see_request(hop)
        if stream.src_kind in ("DEALER", "CLIENT"):
            self._lanes.add_service(stream.src_host)
        asks_for_work = is_from_req and stream.shared.has_ready_worker
        cause = None if asks_for_work else self._lanes.join_question(way)
        if cause is not None:
            cause.before.way.add(hop, cause.before, cause.joined, certain=cause.is_certain)
            return
        hop.note_request()
        self._open(way)
        if is_from_req:
            self._note_retry(way)

    def _note_retry(self, way: OpenWay) -> None:
        """Link a request of a REQ with the one before on its connection: the REQ may have given that up."""
        stream = way.first.stream
        way.earlier, way.is_first = stream.last_request, stream.last_request is None
        if way.earlier is not None:
            way.earlier.again_ns = way.first.time_ns
        stream.last_request = way

    def _request_given_up_before(self, first: Hop) -> OpenWay | None:
        """The request that a client gave up when it closed its connection, and made a new one for ``first``.

        None if no client on its host closed a connection to this server, or if several did at about the same time.
        """
        given_up = self._given_up.get((first.stream.src_host, first.dst), deque[OpenWay]())
        by_ns = first.stream.connected_ns + _APART_NS  # the kernel may close the old connection a little later
        others = [way for way in given_up if way.first.time_ns < first.time_ns]
        closed = sorted((_closed_ns(way), place) for place, way in enumerate(others) if _closed_ns(way) <= by_ns)
        if not closed or (len(closed) > 1 and closed[-2][0] > closed[-1][0] - _APART_NS):
            return None
        way = others[closed[-1][1]]
        given_up.remove(way)
        return way

    def _open(self, way: OpenWay) -> None:
        """A message begins a way: nothing joins it to an earlier one."""
        self._ways[way] = None
        stream = way.first.stream
        if stream.src_kind == "REQ":
            if stream.begun is None:
                stream.begun = deque(maxlen=_BEGUN)
            stream.begun.append(way)


def _name_task(way: OpenWay) -> None:
    """Note the task that the first message of a way names, as long as its frames are there."""
    first = way.first
    first.topic = first.topic or task_of(first.frames, first.depth)


def _closed_ns(way: OpenWay) -> int:
    """When the connection over which a way begins was closed; 0 if it is open."""
    return way.first.stream.shared.closed_ns or 0


def _is_housekeeping(payload: Payload) -> bool:
    """Whether a message is between a broker of Majordomo and its worker alone (7/MDP, 18/MDP)."""
    return payload.protocol == "mdp" and payload.fields.get("command") in _HOUSEKEEPING
