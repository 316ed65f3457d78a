"""Lanes: a host that takes a request asks another one before it answers.

The request that a service sends has nothing of the envelope of the one that it works on. Three things can show whose it
is: a number or id that both have (certain), that the host holds one request only, or the turns that the connections of
the service take.

*Turns.* A service that works on several requests at once has a connection for each worker, since a REQ waits for its
reply. Such a connection is a *lane*: all that it asks between two answers of the service belongs to one request, which
the host took before. When the service answers a request, the lane whose questions are all answered is the one that
worked on it. If several lanes may be, the one whose turn it is: a DEALER gives requests to its workers in turns. A
connection that asks while its host has no request of somebody else is no lane, but a client that runs there, too.

On the loopback interface all programs have one address, so that any client looks like a lane. Three things tell them
apart there. A lane asks equally often for each request; a client asks now twice, now not at all while one is open. A
client often asks while the service has no request. And a client that takes the quickest answer, or has given a service
up, asks two services the same.

Live, a host is one process, if the machine's processes are known. A question of a process that has one request only
belongs to that.

A service whose question gets no reply may not answer. Then the lane worked on the one request that the host had when
it asked, and that no other lane worked on. Or it gives the question up and closes the connection, perhaps asks again on
another one, and answers at last that it does not know. All that time it waited for others.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import msgspec

from dissectors.address import is_loopback
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.correlation import Correlation
from zmtpsniff.analysis.ways.envelopes import HeldMessages
from zmtpsniff.analysis.ways.equal_messages import EqualMessages
from zmtpsniff.analysis.ways.hops import PATIENCE_NS, Hop, OpenWay, Streak, Stream
from zmtpsniff.analysis.ways.records import Joined

_REQUESTS = 4096  # at one host
_LANES = 1024
_LOOKED_AT = 8  # requests, to find one of somebody else
_HELD = 256  # messages, the newest, of which some may be requests of a host that asks for the first time
_UNKNOWN = 16  # questions of a connection whose process is not known yet
_GIVEN_UP = 64  # lanes of a host that have closed before their questions had replies
_MEANWHILE = 64  # open requests of a host, the newest, while one of its programs asks
_ALONE = 4  # a service asks at most once in so many times for no request, but for the first time, when it starts
_SURE = 3  # different requests in a row that a connection repeats are no accident
_CLEAR = 5  # times that a lane had its turn, with no other

_time_ns = attrgetter("time_ns")


class ServiceJoin(NamedTuple):
    """The message of a way after which a service asks another one, or answers."""

    before: Hop
    joined: Joined
    is_certain: bool


class _Lane(msgspec.Struct, eq=False):
    """A connection on which a host asks."""

    pieces: deque[OpenWay] = msgspec.field(default_factory=deque)  # what it asked since its last turn
    reason: Hop | None = None  # the only request that it can have asked them for
    closed_ns: int | None = None  # when its connection was closed; None if it is open
    free_ns: int = 0  # when the service answered what it had asked the last one for
    latest: Hop | None = None  # the last question
    # Live: what it asked while its process was not known.
    unknown: deque[OpenWay] = msgspec.field(default_factory=lambda: deque(maxlen=_UNKNOWN))
    asked: int = 0
    alone: int = 0  # how often while the host had no request of somebody else
    is_client: bool = False  # it asks on its own account
    # By socket: how often that had a request then.
    meanwhile: Ledger[str, int] = msgspec.field(default_factory=lambda: Ledger(int, _LANES))
    repeated: Hop | None = None  # the last request that it passed on as it was, as a TCP proxy does
    repeats: int = 0  # how many such requests in a row were of that connection, each other than the one before
    turns: Counter[int] = msgspec.field(default_factory=Counter)  # how often each turn was its

    def ask(self, has_reason: bool) -> bool:
        """It asks once more, perhaps since the host has a request. Returns whether it may do so for that."""
        self.asked += 1
        if not has_reason:
            self.alone += 1
            self.is_client = self.alone > 1 and _ALONE * self.alone > self.asked
        return has_reason and not self.is_client

    def is_client_beside(self, socket: str) -> bool:
        """Whether it often asks while a socket of its host has no request, so that it is not that socket's program."""
        return _ALONE * (self.asked - self.meanwhile.get(socket, 0)) > self.asked

    def repeat(self, alike: Sequence[Hop], hop: Hop) -> Hop | None:
        """The request with the same octets that it passes on; None if it may be one of several, as those ``alike``.

        So does a TCP proxy, which has a connection to the server for each of a client.
        """
        before = self.repeated
        if len(alike) > 1 and before is not None:
            alike = [one for one in alike if one.flow == before.flow]
        if len(alike) != 1:
            return None
        request = self.repeated = alike[0]
        if before is None or before.flow != request.flow:
            self.repeats = 0
        is_whole = all(type(frame) is bytes for frame in hop.frames)  # octets that are cut off may differ
        self.repeats += is_whole and (before is None or before.frames != request.frames)
        return request

    def forget(self, before_ns: int) -> None:
        """Drop what it asked before a time: the request that this was for has got no answer."""
        while self.pieces and self.pieces[0].first.time_ns < before_ns:
            self.pieces.popleft()

    def works_for(self, asked: Hop) -> bool:
        """Whether its questions may be for this request: its host did not get that from whom the lane asks.

        A worker that tells its broker that it is ready asks nothing.
        """
        first = self.pieces[0].first
        is_worker = first.stream.shared.upstream == first.dst
        # On loopback all programs have one address.
        is_other = is_loopback(asked.dst) and not asked.stream.knows_receiver and self.is_client_beside(asked.dst)
        return not (self.is_client or is_worker or is_other or asked.passed_through(first.dst))

    def waits_ns(self, since_ns: int, until_ns: int) -> int:
        """How long it waited for replies between two times."""
        waited_ns = 0
        given_up_ns = until_ns if self.closed_ns is None else self.closed_ns
        for piece in reversed(self.pieces):
            begin_ns, end_ns = piece.first.time_ns, piece.last_ns if piece.first.answered else given_up_ns
            if end_ns < since_ns:
                break
            waited_ns += max(min(end_ns, until_ns) - max(begin_ns, since_ns), 0)
        return waited_ns


class _Service(msgspec.Struct, eq=False):
    """A host with the requests that it has not answered, and the connections on which it asks."""

    is_scheduler: bool = False  # a ROUTER asks
    requests: OrderedDict[Hop, None] = msgspec.field(default_factory=OrderedDict)
    taken: int = 0
    lanes: Ledger[int, _Lane] = msgspec.field(default_factory=lambda: Ledger(_Lane, _LANES))  # by connection
    given_up: deque[_Lane] = msgspec.field(default_factory=lambda: deque(maxlen=_GIVEN_UP))
    # By socket: how often it asked for each request.
    streaks: Ledger[str, Streak] = msgspec.field(default_factory=lambda: Ledger(Streak, _LANES))

    def has_request(self, asker: str) -> bool:
        """Whether the host has a request that this socket did not send itself."""
        return any(request.way.first.src != asker for request in islice(self.requests, _LOOKED_AT))

    def open_request(self) -> Hop | None:
        """The only request that it has taken and not answered; None if there are several."""
        return next(iter(self.requests)) if len(self.requests) == 1 else None

    def only_request(self, asker: str) -> Hop | None:
        """The one request that neither this socket sent nor another lane works on; None if there are more."""
        if len(self.requests) > _LOOKED_AT:
            return None
        taken = [lane.reason for lane in self.lanes.values() if lane.pieces]
        free = [one for one in self.requests if one.way.first.src != asker and one not in taken]
        return free[0] if len(free) == 1 else None


class Lanes:
    """Requests of services for the requests that they work on."""

    def __init__(self, equal: EqualMessages, held: HeldMessages) -> None:
        """``equal`` finds messages with the same octets, of those that are ``held``."""
        self._equal = equal
        self._held = held
        self._services: Ledger[str, _Service] = Ledger()  # by host
        self._related = Correlation()
        self._knows_processes = False

    def add_service(self, host: str, *, is_scheduler: bool = False) -> None:
        """A host has a socket that asks others, perhaps a ROUTER. It may have made it for a request that it has."""
        if host not in self._services:
            self._services[host] = _Service()
            for hop in reversed([one for hops in islice(reversed(self._held.values()), _HELD) for one in hops]):
                if hop.stream.dst_host == host and not (hop.reply or hop.is_signal or hop.is_passed_on):
                    self.receive(hop)
        self._services[host].is_scheduler |= is_scheduler

    def move_lane(self, flow: int, before: str, host: str) -> None:
        """Live: the process that asks on a connection is known now, which was taken for one of the host ``before``."""
        self._knows_processes = True
        service = self._services.get(before)
        lane = None if service is None else service.lanes.pop(flow, None)
        if lane is None:
            return
        self._services[host].lanes[flow] = lane
        unknown, lane.unknown = lane.unknown, deque()
        for way in unknown:
            if way.is_over or way.first.answered:  # and so, perhaps, is the request that it was for
                continue
            outer = self.join_question(way)
            if outer is not None:
                outer.before.way.take_over(way, outer.before, outer.joined, certain=outer.is_certain)

    def move_requests(self, stream: Stream, before: str) -> None:
        """Live: the process that takes the messages of a sender is known now, likewise."""
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
        """A request is answered, or passed on by its envelope."""
        service = self._services.get(hop.stream.dst_host)
        if service is not None:
            service.requests.pop(hop, None)

    def forget(self, hop: Hop) -> None:
        """The way of a message is over."""
        self._related.forget(hop)

    def related(self, hop: Hop) -> Hop | None:
        """The request at the host of a sender that alone has a number or id that the message has, too."""
        if hop.stream.src_host not in self._services:
            return None
        found = self._related.find(hop)
        return found if found is not None and not found.way.is_over else None

    def join_question(self, way: OpenWay) -> ServiceJoin | None:
        """A host sends a request that begins ``way``; returns the message of which it comes, if that is known now."""
        hop = way.first
        service = self._services.get(hop.stream.src_host)
        if service is None:
            return None
        lane = service.lanes[hop.flow]
        if self._knows_processes and is_loopback(hop.src) and not hop.stream.knows_sender:
            lane.unknown.append(way)
            return None
        if hop.stream.knows_sender and not service.taken:
            return None  # the process is not known for long: nobody noted what it took before
        if hop.stream.knows_sender or not is_loopback(hop.src):  # there all programs have one address
            alike = [one for one in self._equal.before(hop) if one in service.requests and not one.is_passed_on]
            repeated = lane.repeat(alike, hop)
            if repeated is not None:
                repeated.is_passed_on = True
                return ServiceJoin(repeated, "body", lane.repeats >= _SURE)
        elif any(one in service.requests for one in self._equal.before(hop)):
            return None  # perhaps its client asks another service the same
        if service.is_scheduler and hop.stream.src_kind == "ROUTER":
            return self._schedules(service, hop)
        if not lane.ask(service.has_request(hop.src)):
            return None
        if is_loopback(hop.src) and not hop.stream.knows_sender:
            for socket in {one.dst for one in islice(reversed(service.requests), _MEANWHILE)}:
                lane.meanwhile[socket] += 1
        hop.free_ns = lane.free_ns
        before, lane.latest = lane.latest, hop
        related = self.related(hop)
        if related is not None and related in service.requests:
            if before is not None and before.way is not related.way:  # nobody may have seen the answer to that
                hop.free_ns = max(lane.free_ns, before.way.last_ns)
            return _service_join(service, related, hop, "correlation")
        only = service.open_request() if hop.stream.knows_sender else None
        if only is not None and only.time_ns <= hop.time_ns:
            return _service_join(service, only, hop, "process")
        lane.forget(hop.time_ns - PATIENCE_NS)
        if not lane.pieces:
            lane.reason = service.only_request(hop.src)
        lane.pieces.append(way)
        return None

    def _schedules(self, service: _Service, hop: Hop) -> ServiceJoin | None:
        """A ROUTER asks for several requests at once, on each of its connections, so that only ids tell for which."""
        request = self.related(hop)
        if request is None or request not in service.requests:
            return None
        given = next((one for one in request.way.hops if one.before is request), None)
        if given is None:
            return ServiceJoin(request, "correlation", True)
        request.way.is_reassigned = request.way.is_reassigned or given.flow != hop.flow
        return None

    def join_answer(self, asked: Hop, reply: Hop) -> ServiceJoin | None:
        """A service answers a request. What it asked for it becomes a part of the way of the request."""
        service = self._services.get(asked.stream.dst_host)
        self.drop(asked)
        if service is None:
            return None
        last = _last_at(asked.way, asked, reply.time_ns)
        if last is not asked:
            self._free(service, asked, reply)
            return ServiceJoin(last, "envelope", all(hop.certain for hop in asked.way.hops))
        if service.is_scheduler:
            reply.sender_may_have_waited = True
            return None
        lane = _lane(service, asked, reply)
        is_proven = service.streaks.at(asked.dst).proves(0 if lane is None else len(lane.pieces))
        if lane is None:
            reply.sender_may_have_waited = _may_have_waited(
                (*service.lanes.values(), *service.given_up), asked, reply.time_ns
            )
            return None
        for stream in (reply.stream, lane.pieces[0].first.stream):
            stream.is_proven = is_proven
        before = _join(service, lane, asked)
        self._free(service, asked, reply)
        return ServiceJoin(before, _joint(asked), False)

    def end(self, flow: int, host: str, closed_ns: int) -> None:
        """A connection on which a host may have asked was closed: the service gets no reply there any more."""
        service = self._services.get(host)
        lane = None if service is None else service.lanes.pop(flow, None)
        if service is not None and lane is not None:
            _give_up(service, lane)
            if lane.pieces:
                lane.closed_ns = closed_ns
                service.given_up.append(lane)

    def finish(self) -> None:
        """The capture is over: so is what is left of all lanes."""
        for service in self._services.values():
            for lane in service.lanes.values():
                _give_up(service, lane)

    @staticmethod
    def _free(service: _Service, asked: Hop, reply: Hop) -> None:
        """A service has answered: the connections on which it asked for that are free for the next request."""
        reply.free_ns = 0
        for hop in asked.way.hops:
            lane = service.lanes.get(hop.flow)
            if lane is not None:
                lane.free_ns = reply.time_ns


def _lane(service: _Service, asked: Hop, reply: Hop) -> _Lane | None:
    """The connection on which a service asked for a request, before it answers the request."""
    fits = [
        lane
        for flow, lane in service.lanes.items()
        if lane.pieces
        and flow != asked.flow  # else a broker and its worker on one machine look like one service
        and lane.works_for(asked)
        and lane.pieces[0].first.time_ns >= asked.time_ns
        and all(piece.first.answered and piece.last_ns <= reply.time_ns for piece in lane.pieces)
    ]
    if not fits:
        return None
    turn = asked.number % len(service.lanes)
    if len(fits) == 1:
        fits[0].turns[turn] += 1
        return fits[0]
    mine = [lane for lane in fits if lane.turns[turn] >= _CLEAR]
    return min(mine or fits, key=lambda lane: lane.pieces[-1].last_ns)


def _may_have_waited(lanes: Iterable[_Lane], asked: Hop, until_ns: int) -> bool:
    """Whether a service may have waited for others most of the time since it got a request.

    It knows some questions that it gave up to be for the request; what these ``lanes`` asked may be.
    """
    since_ns = asked.time_ns
    waited_ns = sum(lane.waits_ns(since_ns, until_ns) for lane in lanes if lane.pieces and lane.works_for(asked))
    for hop in asked.way.hops:
        if hop.before is asked and hop.is_question and not hop.answered:
            waited_ns += max(min(hop.stream.shared.closed_ns or until_ns, until_ns) - hop.time_ns, 0)
    return 2 * waited_ns > until_ns - since_ns


def _join(service: _Service, lane: _Lane, asked: Hop) -> Hop:
    """All that a lane asked since its last turn belongs to a request; returns the last message of that."""
    pieces, lane.pieces, lane.reason = lane.pieces, deque(), None
    before = asked
    joined = _joint(asked)
    pieces[0].first.sender_may_have_waited = _may_have_waited(service.given_up, asked, pieces[0].first.time_ns)
    for piece in pieces:
        if piece.first.way is piece:  # else it has become a part of another way
            asked.way.take_over(piece, before, joined, certain=False)
            before = asked.way.hops[-1]
    # The answer to a question that was given up may have come behind the next question.
    asked.way.hops.sort(key=_time_ns)
    return before


def _service_join(service: _Service, asked: Hop, hop: Hop, joined: Joined) -> ServiceJoin:
    """A service asks for a request that it is known to work on."""
    hop.sender_may_have_waited = _may_have_waited(service.given_up, asked, hop.time_ns)
    return ServiceJoin(_last_at(asked.way, asked, hop.time_ns), joined, True)


def _joint(asked: Hop) -> Joined:
    """How a question is joined to a request of the same place: live, the place is known to be one process."""
    return "process" if asked.stream.knows_receiver else "order"


def _give_up(service: _Service, lane: _Lane) -> None:
    """A lane gets no reply to what it asked, so the service does not answer: join it to the only request it can be."""
    reason = lane.reason
    if (
        reason is not None
        and lane.pieces
        and not lane.is_client
        and reason.way.first.expects_reply  # a peer of ZRE only tells others something, and is told something
        and (reason.stream.knows_receiver or not is_loopback(reason.dst))  # where all programs have one address
        and reason in service.requests
        and not reason.way.is_over
        and not any(piece.is_over for piece in lane.pieces)
        and _last_at(reason.way, reason, lane.pieces[-1].last_ns) is reason
    ):
        _join(service, lane, reason)


def _last_at(way: OpenWay, asked: Hop, by_ns: int) -> Hop:
    """The last message of a way by then that came to the host that has a request; the request if there is no later.

    A message that it published meanwhile is no answer, even if a subscriber is on the same host. Nor is a message that
    it gave to a program there that has gone.
    """
    for hop in reversed(way.hops):
        if (
            hop.stream.dst_host == asked.stream.dst_host
            and hop.stream.sends != "publication"
            and not hop.is_dropped(by_ns)
        ):
            return hop
    return asked
