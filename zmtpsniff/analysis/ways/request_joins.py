"""Joins requests and replies: which request a broker passes on, and which one a reply answers.

Theory
------

Requests and replies share connections, so the order of the questions also tells one from the other:

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

*Packets that overtake others.* A mirror port feeds a network card with several queues, so the packet of a message may
come here behind that of what a broker made of it. Then the latter begins a way, or is joined to the message before the
missing one. When the missing one comes, within some milliseconds, it is put in front of that.
"""

from itertools import islice

from dissectors.events import Octets
from zmtpsniff.analysis.dossier import has_client_id, says_ready
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.envelopes import Join, is_early_reply
from zmtpsniff.analysis.ways.hops import Hop, OpenWay, Stream
from zmtpsniff.analysis.ways.job_joins import JobJoins
from zmtpsniff.analysis.ways.join_tables import JoinTables
from zmtpsniff.analysis.ways.open_ways import OpenWays
from zmtpsniff.analysis.ways.retries import Retries
from zmtpsniff.analysis.ways.way_connections import WayConnection, envelope_of

_ORPHANS = 65_536
_PASSERS = 64  # late brokers that are looked at
_LAST_LEGS = 16  # among so many, the newest, is a reply that overtook the one before
_READY_NS = 5_000_000_000  # what a REQ said so long before its first request was no READY


class RequestJoins:
    """Finds the message of which a request or a reply comes, or begins a way with it."""

    def __init__(self, tables: JoinTables, ways: OpenWays, jobs: JobJoins, retries: Retries) -> None:
        """``tables`` have the messages that hosts hold; new ways are added to ``ways``.

        ``jobs`` joins what turns out to be the result of a job, and ``retries`` links the requests of one client.
        """
        self.late_passers: Ledger[tuple[int, str], int] = Ledger(int, _PASSERS)
        """By late connection and sender: how long a broker has sent requests whose legs before did not come here."""
        self._unseen_since: Ledger[int, int] = Ledger(int)
        self._dispatched: dict[int, Hop] = {}  # by connection: the last request that a broker passed on over it
        # By host and envelope: requests that a broker passed on over a connection that has ended since.
        self._orphans: Ledger[tuple[str, int], Hop] = Ledger(limit=_ORPHANS)
        self._ways = ways
        self._jobs = jobs
        self._retries = retries
        self._held = tables.held
        self._envelopes = tables.envelopes
        self._equal = tables.equal
        self._correlation = tables.correlation
        self._lanes = tables.lanes
        self._pushed = tables.pushed
        self._programs = tables.programs
        self._connections = tables.connections
        self._endings = tables.endings
        self._answerable = tables.answerable

    def paired(self, hop: Hop, request: int, request_part: int) -> Hop | None:
        """The request that a message answers by the patterns: part ``request_part`` of packet ``request``, if not 0."""
        return self._answerable.get((hop.flow, request, request_part)) if request else None

    def end(self, connection: WayConnection) -> None:
        """A connection was closed: hold again what had no reply there.

        Its receiver may answer on another connection. Its sender may pass the same on to another receiver.
        """
        for stream in connection.streams.values():
            for hop in stream.unanswered:
                self._orphans[stream.dst_host, envelope_of(hop)] = hop
                before = hop.before
                if before is not None and before.held_as is None and not before.way.is_over:
                    before.is_passed_on = False
                    self._held.add(before)

    def stop_following(self, flow: int) -> None:
        """The messages of a connection do not come here any more."""
        self._dispatched.pop(flow, None)
        self._envelopes.ids.forget(flow)

    def join(self, hop: Hop, request: int, request_part: int) -> None:
        """Ask the six questions of the theory above, in their order.

        ``dispatched`` is the last request that a broker passed on over this connection, ``paired`` the request that the
        message answers by the patterns.
        """
        dispatched = self._dispatched.get(hop.flow)
        paired = self.paired(hop, request, request_part)
        if not request and (asked := self._connections[hop.flow].turn(hop)) is not None:
            self._join_reply(hop, asked, is_certain=False)
            return
        is_for_req = hop.stream.dst_kind == "REQ"
        if dispatched is not None and dispatched.stream.dst_kind == "REQ" and self._is_result_of(hop, dispatched):
            self._join_reply(
                hop, dispatched, is_certain=paired is dispatched or not self._connections[hop.flow].has_gap
            )
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
        self._receive(hop)

    def join_forwarded(self, hop: Hop, original: Hop, paired: Hop | None) -> None:
        """A TCP proxy passes a request or a reply on over the other half of a conversation.

        ``paired`` is the request that the message answers there. The way of ``original`` has the message already.
        """
        if hop.reply:
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
        self._receive(hop)

    def _receive(self, hop: Hop) -> None:
        """A host has taken a request or a reply, which may be answered on its connection."""
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
        return not self._connections[hop.flow].has_gap or dispatched.routing_id in hop.frames[:-1]

    def _note_asker(self, stream: Stream, paired: Hop) -> None:
        """A request got its reply, so the receiver of the reply asks others, perhaps for requests that it takes."""
        if stream.is_late:
            self._connections[paired.flow].see_answer(paired)
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
        self._ways.begin(OpenWay.begin("request", hop))

    def _request_answered_by(self, hop: Hop, paired: Hop | None) -> tuple[Hop, bool] | None:
        """The request that a message answers, and whether that is certain; None if there is none.

        It is the one that patterns have ``paired`` with it; else one that a broker passed on over this connection; else
        one that it passed on over a connection of the worker that has ended.
        """
        if paired is not None and not paired.answered:
            return paired, True
        orphan, given = self._orphan_answered_by(hop), self._connections[hop.flow].request_answered_by(hop)
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
            if self._connections[hop.flow].has_gap:
                hop.measure_envelope()
                self._connections[hop.flow].see_possible_reply(hop)
            self._ways.begin(OpenWay.begin("request", hop))
        return hop.reply

    def _is_further_reply(self, hop: Hop, dispatched: Hop) -> bool:
        """Whether it is one more part of a reply, or the reply to an earlier request with the same envelope.

        A REQ sends no more parts: it gets more work before it sends its next message.
        """
        if dispatched.stream.dst_kind == "REQ" or dispatched.dst != hop.src:
            return False
        is_blind = hop.stream.is_late or self._connections[hop.flow].has_gap
        return not is_blind and dispatched.routing_id in hop.frames[:-1]

    def _excludes_unseen_request(self, reply: Hop, asked: Hop) -> bool:
        """Whether no request that the capture lacks can be the one that a reply with this envelope answers."""
        return self._endings.sees_all or not reply.tokens.isdisjoint(asked.tokens)

    def _excludes_unseen_original(self, hop: Hop, join: Join) -> bool:
        """Whether no message that the capture lacks can be the one that a broker passed on as ``hop``."""
        if self._endings.sees_all or not self._endings.is_blind(join.before):
            if not (hop.stream if join.is_back else join.before.stream).is_late:
                return True
            connection = self._connections.get(join.flow)  # None once it has ended
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
            self._programs.take_back(early, early.before)
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
        worker = self._connections[job.flow].streams.get(job.dst)
        for way in reversed(worker.begun if worker is not None and worker.begun is not None else ()):
            if way not in self._ways or way.last_ns < job.time_ns - _READY_NS:
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
            self._ways.begin(way)
            return
        if not stream.src_kind and (job := self._correlation.find(hop)) is not None:
            stream.note_source(job)  # the sender is a PUSH of results, as only many of these show
            self._jobs.pass_on(hop, job, "correlation", is_certain=stream.is_proven)
            return
        self._connections[hop.flow].see_request(hop)
        if stream.src_kind in ("DEALER", "CLIENT"):
            self._lanes.add_service(stream.src_host)
        asks_for_work = is_from_req and stream.shared.has_ready_worker
        cause = None if asks_for_work else self._lanes.join_question(way)
        if cause is not None:
            cause.before.way.add(hop, cause.before, cause.joined, certain=cause.is_certain)
            return
        hop.note_request()
        self._ways.begin(way)
        if is_from_req:
            self._retries.note_request(way)
