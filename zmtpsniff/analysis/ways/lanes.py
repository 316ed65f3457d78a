"""Lanes: a service that takes a request asks another service before it answers.

Theory
------

A *question* is a request that a service sends for a request that it works on. It has nothing of the envelope of that
one. So other evidence must show to which request a question belongs. It is looked for in this order:

1. *body*: the same octets as one request that the host has. A TCP proxy forwards so. Certain after three in a row.
2. *correlation*: a number or id that this question and one request alone have. Certain.
3. *process*: live, the process that asks has this request only. Certain.
4. *order*: the lane of the question, once the service answers (below). Never certain.

A *lane* is a connection on which a host asks. A service that works on several requests at once has a lane for each
worker, since a REQ waits for its reply. All questions of a lane between two answers of the service belong to one
request, which the host took before. A lane goes through these states:

- *free*: it has asked nothing since its last turn.
- *asking*: it has questions (``questions``) for a request that is not known yet. If the host has one request only that
  no other lane works on, that is the ``reason``.
- its *turn*: the service answers a request. Of the lanes whose questions are all answered, one has worked on it: the
  only one, else the one whose turn it is, since a DEALER gives requests to its workers in turns. Its questions become
  a part of the way of the request, and the lane is free again.
- *given up*: the connection was closed while questions had no reply. They belong to the ``reason``, if there is one.
  Until the service answers, it may have waited for these replies.

Invariant: a question belongs to at most one request; a request that is answered gets no more questions.

*Clients that look like lanes.* A connection that asks while its host has no request is no lane, but a client that runs
there, too. On the loopback interface all programs have one address, so any client looks like a lane. Three things tell
them apart there. A lane asks equally often for each request; a client asks now twice, now not at all while one is open.
A client often asks while the service has no request. And a client that takes the quickest reply, or has given a service
up, asks two services the same.

Live, a host is one process, once the machine's processes are known.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import msgspec

from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.correlation import Correlation
from zmtpsniff.analysis.ways.envelopes import HeldMessages
from zmtpsniff.analysis.ways.equal_messages import EqualMessages
from zmtpsniff.analysis.ways.hops import PATIENCE_NS, Hop, OpenWay, Streak, Stream
from zmtpsniff.analysis.ways.way_records import Joined

_REQUESTS = 4096  # open requests of one host
_LANES = 1024  # of one host
_LOOKED_AT = 8  # so many requests, the oldest, are looked at to find one of another program
_HELD = 256  # so many messages, the newest, are looked at for requests of a host that asks for the first time
_UNKNOWN = 16  # questions of a connection whose process is not known yet
_GIVEN_UP = 64  # lanes of one host that were given up
_MEANWHILE = 64  # so many open requests of a host, the newest, are noted when one of its programs asks
_ALONE = 4  # a service asks at most once in so many times without a request, beside the first time, when it starts
_SURE = 3  # so many different requests in a row that a connection forwards are no chance
_CLEAR = 5  # so often a lane alone had a turn: the turn is its own

_time_ns = attrgetter("time_ns")


class ServiceJoin(NamedTuple):
    """The message after which a service asks another one, or answers, and what joins the two."""

    before: Hop
    joined: Joined
    is_certain: bool


class _Lane(msgspec.Struct, eq=False):
    """A connection on which a host asks."""

    questions: deque[OpenWay] = msgspec.field(default_factory=deque)  # the ways that they begin, since its last turn
    reason: Hop | None = None  # the only request for which it can have asked them
    closed_ns: int | None = None  # when its connection was closed; None if it is open
    free_ns: int = 0  # when the service answered the request of its last turn
    latest: Hop | None = None  # its last question
    got_reply: bool = False  # to one before that
    # Live: its questions while its process was not known.
    unknown: deque[OpenWay] = msgspec.field(default_factory=lambda: deque(maxlen=_UNKNOWN))
    asked: int = 0  # how often it asked
    alone: int = 0  # how often it asked while the host had no request of another program
    is_client: bool = False  # it asks on its own account
    # By socket of its host: how often it asked while that socket had an open request.
    meanwhile: Ledger[str, int] = msgspec.field(default_factory=lambda: Ledger(int, _LANES))
    forwarded: Hop | None = None  # the last request that it forwarded as it was, as a TCP proxy does
    forwards: int = 0  # how many different requests of one connection it forwarded in a row
    turns: Counter[int] = msgspec.field(default_factory=Counter)  # by turn: how often it alone can have had that

    def ask(self, has_reason: bool) -> bool:
        """It asks once more, while the host has a request or not. Return whether it may ask for that request."""
        self.asked += 1
        if not has_reason:
            self.alone += 1
            self.is_client = self.alone > 1 and _ALONE * self.alone > self.asked
        return has_reason and not self.is_client

    def is_client_beside(self, socket: str) -> bool:
        """Whether it often asks while a socket of its host has no request: it belongs to another program than that."""
        return _ALONE * (self.asked - self.meanwhile.get(socket, 0)) > self.asked

    def forward(self, alike: Sequence[Hop], hop: Hop) -> Hop | None:
        """The request that it forwards, of those ``alike``, with the same octets; None if it may be one of several.

        A TCP proxy has one connection to the server for each connection of a client. So of several, the request is the
        one of the same connection as before.
        """
        before = self.forwarded
        if len(alike) > 1 and before is not None:
            alike = [one for one in alike if one.flow == before.flow]
        if len(alike) != 1:
            return None
        request = self.forwarded = alike[0]
        if before is None or before.flow != request.flow:
            self.forwards = 0
        is_whole = all(type(frame) is bytes for frame in hop.frames)  # octets that are cut off may differ
        self.forwards += is_whole and (before is None or before.frames != request.frames)
        return request

    def forget(self, before_ns: int) -> None:
        """Drop the questions from before a time: the service has not answered their request, and will not."""
        while self.questions and self.questions[0].first.time_ns < before_ns:
            self.questions.popleft()

    def works_for(self, asked: Hop) -> bool:
        """Whether its questions may be for the request ``asked``.

        They are not if that came from the socket that is asked now, nor if they are the READY of a worker to its
        broker, nor if the lane belongs to a client beside the service.
        """
        first = self.questions[0].first
        is_worker = first.stream.shared.upstream == first.dst
        # On loopback all programs have one address.
        is_other = asked.stream.is_local and not asked.stream.knows_receiver and self.is_client_beside(asked.dst)
        return not (self.is_client or is_worker or is_other or asked.passed_through(first.dst))

    def waits_ns(self, since_ns: int, until_ns: int) -> int:
        """How long it waited for replies between two times."""
        waited_ns = 0
        given_up_ns = until_ns if self.closed_ns is None else self.closed_ns
        for question in reversed(self.questions):
            begin_ns, end_ns = question.first.time_ns, question.last_ns if question.first.answered else given_up_ns
            if end_ns < since_ns:
                break
            waited_ns += max(min(end_ns, until_ns) - max(begin_ns, since_ns), 0)
        return waited_ns


class _Service(msgspec.Struct, eq=False):
    """A host that takes requests and asks others: its open requests, and the connections on which it asks."""

    is_scheduler: bool = False  # it asks with a ROUTER, so several requests of it are open on each connection
    requests: OrderedDict[Hop, None] = msgspec.field(default_factory=OrderedDict)  # taken, and not answered
    taken: int = 0  # how many it took
    lanes: Ledger[int, _Lane] = msgspec.field(default_factory=lambda: Ledger(_Lane, _LANES))  # by connection
    given_up: deque[_Lane] = msgspec.field(default_factory=lambda: deque(maxlen=_GIVEN_UP))
    # By the socket that took requests: how many questions each of them needed.
    streaks: Ledger[str, Streak] = msgspec.field(default_factory=lambda: Ledger(Streak, _LANES))

    def has_request(self, asker: str) -> bool:
        """Whether the host has an open request that the socket ``asker`` did not send itself."""
        return any(request.way.first.src != asker for request in islice(self.requests, _LOOKED_AT))

    def single_request(self) -> Hop | None:
        """Its only open request; None if it has none, or several."""
        return next(iter(self.requests)) if len(self.requests) == 1 else None

    def only_request_for(self, asker: str) -> Hop | None:
        """The only open request that the socket ``asker`` can ask for; None if there is none, or several.

        It cannot ask for its own requests, nor for those on which other lanes work.
        """
        if len(self.requests) > _LOOKED_AT:
            return None
        taken = [lane.reason for lane in self.lanes.values() if lane.questions]
        free = [one for one in self.requests if one.way.first.src != asker and one not in taken]
        return free[0] if len(free) == 1 else None


class Lanes:
    """Finds the requests to which the questions of services belong."""

    def __init__(self, equal: EqualMessages, held: HeldMessages) -> None:
        """``equal`` finds messages with the same octets, of those that are ``held``."""
        self._equal = equal
        self._held = held
        self._services: Ledger[str, _Service] = Ledger()  # by host
        self._related = Correlation()
        self._knows_processes = False

    def add_service(self, host: str, *, is_scheduler: bool = False) -> None:
        """A host has a socket that asks others, perhaps a ROUTER: from now on its requests and questions are noted.

        The host may have made the socket for a request that it took before.
        """
        if host not in self._services:
            self._services[host] = _Service()
            for hop in reversed([one for hops in islice(reversed(self._held.values()), _HELD) for one in hops]):
                if hop.stream.dst_host == host and not (hop.reply or hop.is_signal or hop.is_passed_on):
                    self.receive(hop)
        self._services[host].is_scheduler |= is_scheduler

    def know_process(self, process: str) -> None:
        """Live: a process is known. It may ask others."""
        self._knows_processes = True
        self.add_service(process)

    def move_lane(self, flow: int, before: str, host: str) -> None:
        """The program that asks on a connection is known now. So far, its lane counted to the host ``before``."""
        service = self._services.get(before)
        lane = None if service is None else service.lanes.pop(flow, None)
        if lane is None:
            return
        self.add_service(host)
        self._services[host].lanes[flow] = lane
        unknown, lane.unknown = lane.unknown, deque()
        for way in unknown:
            if way.is_over or way.first.answered:  # perhaps its request is answered, too, and another one is open
                continue
            join = self.join_question(way)
            if join is not None:
                join.before.way.take_over(way, join.before, join.joined, certain=join.is_certain)

    def move_requests(self, stream: Stream, before: str) -> None:
        """The program that takes the messages of a stream is known now. So far, they counted to the host ``before``."""
        self._held.move_stream(stream, before)
        service = self._services.get(before)
        if service is not None:
            for hop in [one for one in service.requests if one.stream is stream]:
                del service.requests[hop]
                self.receive(hop)

    def receive(self, hop: Hop) -> None:
        """A host has taken a request."""
        service = self._services.get(hop.stream.dst_host)
        if service is None or hop.stream.sends != "request":
            return
        service.requests[hop] = None
        if len(service.requests) > _REQUESTS:
            service.requests.popitem(last=False)
        hop.number = service.taken
        service.taken += 1
        self._related.add(hop)

    def drop(self, hop: Hop) -> None:
        """A request is answered, or a broker passes it on: it is no open request of a service."""
        service = self._services.get(hop.stream.dst_host)
        if service is not None:
            service.requests.pop(hop, None)

    def forget(self, hop: Hop) -> None:
        """The way of a request is over: nothing is joined to it any more."""
        self._related.forget(hop)

    def related(self, hop: Hop) -> Hop | None:
        """The request at the sender's host that alone shares a number or id with a message; None if there is none."""
        if hop.stream.src_host not in self._services:
            return None
        found = self._related.find(hop)
        return found if found is not None and not found.way.is_over else None

    def join_question(self, way: OpenWay) -> ServiceJoin | None:
        """A host asks: its question begins ``way``. Return the message of which it comes, if that is known now.

        If it is not, the lane keeps the question until the service answers.
        """
        hop = way.first
        service = self._services.get(hop.stream.src_host)
        if service is None:
            return None
        lane = service.lanes[hop.flow]
        if self._knows_processes and hop.stream.is_local and not hop.stream.knows_sender:
            lane.unknown.append(way)
            return None
        if hop.stream.knows_sender and not service.taken:
            return None  # the process has only just become known: its requests were not noted before
        if hop.stream.knows_sender or not hop.stream.is_local:  # there all programs have one address
            alike = [one for one in self._equal.before(hop) if one in service.requests and not one.is_passed_on]
            forwarded = lane.forward(alike, hop)
            if forwarded is not None:
                forwarded.is_passed_on = True
                return ServiceJoin(forwarded, "body", lane.forwards >= _SURE)
        elif any(one in service.requests for one in self._equal.before(hop)):
            return None  # perhaps its client asks another service the same
        if service.is_scheduler and hop.stream.src_kind == "ROUTER":
            return self._join_scheduled(service, hop)
        if not lane.ask(service.has_request(hop.src)):
            return None
        if hop.stream.is_local and not hop.stream.knows_sender:
            for socket in {one.dst for one in islice(reversed(service.requests), _MEANWHILE)}:
                lane.meanwhile[socket] += 1
        hop.free_ns = lane.free_ns
        before, lane.latest = lane.latest, hop
        lane.got_reply = lane.got_reply or (before is not None and before.answered)
        related = self.related(hop)
        if related is not None and related in service.requests:
            if before is not None and before.way is not related.way:  # the capture may lack the answer to that one
                hop.free_ns = max(lane.free_ns, before.way.last_ns)
            return _join_known(service, related, hop, "correlation")
        only = service.single_request() if hop.stream.knows_sender else None
        if only is not None and only.time_ns <= hop.time_ns:
            return _join_known(service, only, hop, "process")
        lane.forget(hop.time_ns - PATIENCE_NS)
        if not lane.questions:
            lane.reason = service.only_request_for(hop.src)
        lane.questions.append(way)
        return None

    def _join_scheduled(self, service: _Service, hop: Hop) -> ServiceJoin | None:
        """A ROUTER asks for several requests at once on each connection, so only an id tells for which it asks.

        The first message with the id of a request gives it to a worker. Another one is no leg: the scheduler gives the
        request to another worker, or tells the first one more.
        """
        request = self.related(hop)
        if request is None or request not in service.requests:
            return None
        given = next((one for one in request.way.hops if one.before is request), None)
        if given is None:
            return ServiceJoin(request, "correlation", True)
        request.way.is_reassigned = request.way.is_reassigned or given.flow != hop.flow
        return None

    def join_answer(self, asked: Hop, reply: Hop) -> ServiceJoin | None:
        """A service answers a request. Its questions for the request become a part of the way of the request.

        Return the message after which the service answers, if that is not the request itself.
        """
        service = self._services.get(asked.stream.dst_host)
        self.drop(asked)
        if service is None:
            return None
        last = _last_at(asked.way, asked, reply.time_ns)
        if last is not asked:
            self._free_lanes(service, asked, reply)
            return ServiceJoin(last, "envelope", all(hop.certain for hop in asked.way.hops))
        if service.is_scheduler:
            reply.sender_may_have_waited = True
            return None
        lane = _lane_that_worked(service, asked, reply)
        is_proven = service.streaks.at(asked.dst).proves(0 if lane is None else len(lane.questions))
        if lane is None:
            reply.sender_may_have_waited = _may_have_waited(
                (*service.lanes.values(), *service.given_up), asked, reply.time_ns
            )
            return None
        for stream in (reply.stream, lane.questions[0].first.stream):
            stream.is_proven = is_proven
        before = _join_questions(service, lane, asked)
        self._free_lanes(service, asked, reply)
        return ServiceJoin(before, _by_process_or_order(asked), False)

    def end(self, flow: int, host: str, closed_ns: int) -> None:
        """A connection on which a host may have asked was closed: the service gets no reply there any more."""
        service = self._services.get(host)
        lane = None if service is None else service.lanes.pop(flow, None)
        if service is not None and lane is not None:
            _join_to_reason(service, lane)
            if lane.questions:
                lane.closed_ns = closed_ns
                service.given_up.append(lane)

    def finish(self) -> None:
        """The capture is over: no lane has another turn."""
        for service in self._services.values():
            for lane in service.lanes.values():
                _join_to_reason(service, lane)

    @staticmethod
    def _free_lanes(service: _Service, asked: Hop, reply: Hop) -> None:
        """A service has answered a request: the lanes on which it asked for that are free for the next request."""
        reply.free_ns = 0
        for hop in asked.way.hops:
            lane = service.lanes.get(hop.flow)
            if lane is not None:
                lane.free_ns = reply.time_ns


def _lane_that_worked(service: _Service, asked: Hop, reply: Hop) -> _Lane | None:
    """The lane that worked on a request, now that the service answers it: it asked since, and has all replies.

    Of several, it is the one that alone had the same turn before; else the one that got its last reply first.
    """
    if asked.stream.is_late:
        _forget_unseen(service, asked)
    fits = [
        lane
        for flow, lane in service.lanes.items()
        if lane.questions
        and flow != asked.flow  # else a broker and its worker on one machine look like one service
        and lane.works_for(asked)
        and lane.questions[0].first.time_ns >= asked.time_ns
        and all(question.first.answered and question.last_ns <= reply.time_ns for question in lane.questions)
    ]
    if not fits:
        return None
    turn = asked.number % len(service.lanes)
    if len(fits) == 1:
        fits[0].turns[turn] += 1
        return fits[0]
    with_turn = [lane for lane in fits if lane.turns[turn] >= _CLEAR]
    return min(with_turn or fits, key=lambda lane: lane.questions[-1].last_ns)


def _forget_unseen(service: _Service, asked: Hop) -> None:
    """Drop the questions from before a request if the service has one lane: it works on one request at a time.

    It answered those for which it asked them, though no reply was known: at first, sockets without types do not show
    which of their messages are replies. Such replies look like questions that get no reply.
    """
    lanes = [one for one in service.lanes.values() if one.got_reply or (one.latest is not None and one.latest.answered)]
    if len(lanes) == 1:
        lanes[0].forget(asked.time_ns)


def _may_have_waited(lanes: Iterable[_Lane], asked: Hop, until_ns: int) -> bool:
    """Whether a service may have waited for others most of the time since it got a request.

    Questions of the way of the request count if they got no reply, and so do the questions of these ``lanes``, which
    may belong to it.
    """
    since_ns = asked.time_ns
    waited_ns = sum(lane.waits_ns(since_ns, until_ns) for lane in lanes if lane.questions and lane.works_for(asked))
    for hop in asked.way.hops:
        if hop.before is asked and hop.is_question and not hop.answered:
            waited_ns += max(min(hop.stream.shared.closed_ns or until_ns, until_ns) - hop.time_ns, 0)
    return 2 * waited_ns > until_ns - since_ns


def _join_questions(service: _Service, lane: _Lane, asked: Hop) -> Hop:
    """Join all questions of a lane since its last turn to a request, one behind the other. Return the last message."""
    questions, lane.questions, lane.reason = lane.questions, deque(), None
    before = asked
    joined = _by_process_or_order(asked)
    first = questions[0].first
    first.sender_may_have_waited = _may_have_waited(service.given_up, asked, first.time_ns)
    for question in questions:
        if question.first.way is question:  # else it has become a part of another way
            asked.way.take_over(question, before, joined, certain=False)
            before = asked.way.hops[-1]
    # The answer to a question that was given up may have come behind the next question.
    asked.way.hops.sort(key=_time_ns)
    return before


def _join_known(service: _Service, asked: Hop, hop: Hop, joined: Joined) -> ServiceJoin:
    """Join a question to the request ``asked``, to which it is known to belong."""
    hop.sender_may_have_waited = _may_have_waited(service.given_up, asked, hop.time_ns)
    return ServiceJoin(_last_at(asked.way, asked, hop.time_ns), joined, True)


def _by_process_or_order(asked: Hop) -> Joined:
    """The kind of join of a question to a request at the same host: live, that host is known to be one process."""
    return "process" if asked.stream.knows_receiver else "order"


def _join_to_reason(service: _Service, lane: _Lane) -> None:
    """A lane gets no more replies, so the service may never answer: join its questions to the only request they fit."""
    reason = lane.reason
    if (
        reason is not None
        and lane.questions
        and not lane.is_client
        and reason.way.first.expects_reply  # a peer of ZRE only tells others something, and is told something
        and (reason.stream.knows_receiver or not reason.stream.is_local)  # where all programs have one address
        and reason in service.requests
        and not reason.way.is_over
        and not any(question.is_over for question in lane.questions)
        and _last_at(reason.way, reason, lane.questions[-1].last_ns) is reason
    ):
        _join_questions(service, lane, reason)


def _last_at(way: OpenWay, asked: Hop, by_ns: int) -> Hop:
    """The last message of a way, up to then, that came to the host of the request ``asked``; at least that request.

    A publication of the host is no such message, even if its subscriber is on the same host. Nor is a message to a
    program there that has gone.
    """
    for hop in reversed(way.hops):
        if (
            hop.stream.dst_host == asked.stream.dst_host
            and hop.stream.sends != "publication"
            and not hop.is_dropped(by_ns)
        ):
            return hop
    return asked
