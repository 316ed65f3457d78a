"""Requests and their replies (28/REQREP): which reply answers which request, how late, and which requests get none.

A reply has the envelope of its request: all that stands before the delimiter, of any depth. A REP answers in order. Any
other peer may answer in any order. So a reply belongs to a request only if no other request with that envelope is open,
or if the reply passed a proxy and its pair on the other side is known.

A reply can only answer a request that its sender had seen. Events come in an order in which they can have happened. But
of two independent events either may come first. So the order of events does not show who knew what; acknowledgments do
(:func:`~zmtpsniff.analysis.patterns.dossier.can_know`).
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Literal, NamedTuple

from dissectors.events import UNBOUNDED, Connection, Envelope, Message, Octets, Place
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.insertions import Problems
from zmtpsniff.analysis.patterns.alike import Alike
from zmtpsniff.analysis.patterns.conversation import Room, Rules, can_know, latency_ns
from zmtpsniff.analysis.patterns.proxies import Proxies

_PENDING = 65_536  # the most requests of one connection that may wait for a reply; all are forgotten if there are more
_ALIKE = 1024  # of these the most with the same envelope
_LOOKED_THROUGH = 1024  # so many of them to compare with the envelope of a reply of a REP
_REQUEST_COST = 200  # octets of memory
_GIVEN_UP = 16  # requests to remember of a REQ socket that asked again
_OFFSET = attrgetter("offset")
_WHOLE = frozenset({bytes})  # the type of frames whose octets are all at hand


class _Request(NamedTuple):
    """A request without its frames, which may be large."""

    time_ns: int
    packet: int
    part: int
    offset: int  # where the octets begin in its sender's stream that completed the request
    key: int  # a number for its envelope, 0 if that is the delimiter alone
    flow: int
    src: str
    dst: str
    forwards: Place | None

    @property
    def place(self) -> Place:
        return Place(self.flow, self.packet, self.part)


def _request(event: Message, key: int) -> _Request:
    return _Request(
        event.time_ns, event.packet, event.part, event.offset, key, event.flow, event.src, event.dst, event.forwards
    )


class Exchange:
    """What all kinds of requests need: their connection, and how long they may take."""

    def __init__(self, dossier: Dossier, problems: Problems, forwarding: Proxies, room: Room, timeout_ns: int) -> None:
        """Report requests of ``dossier`` that wait for more than ``timeout_ns``."""
        self.dossier = dossier
        self.problems = problems
        self.forwarding = forwarding
        self.room = room
        self.timeout_ns = timeout_ns
        self.has_answers = False  # whether a reply on this connection answered a request on it

    def report_late(self, request: _Request) -> None:
        """Report a request that has waited for too long; a reply may still come."""
        if not self.dossier.blind:
            detail = f"no reply to this request within {self.timeout_ns / 1e9:g} s"
            self.problems.report("request-unanswered", request, detail)

    def report_unanswered(self, request: _Request, is_open: bool, more: int) -> None:
        """Report a request without a reply at the end, a note if the reply may have come a moment later."""
        if not self.dossier.blind:
            what = "the capture ended" if is_open else "the connection was closed"
            others = f", nor to {more:,} after it" if more else ""
            detail = f"no reply to this request before {what}{others}"
            self.problems.report("request-unanswered", request, detail, "note" if is_open else None)

    def report_given_up(self, request: _Request) -> None:
        """Report a request that its sender gave up."""
        if not self.dossier.blind:
            detail = "no reply to this request before its sender gave it up and asked again"
            self.problems.report("request-unanswered", request, detail, "note")

    def report_passed_over(self, request: _Request) -> None:
        """Report a request that a REP did not answer, though it answered a later one."""
        if not self.dossier.blind:
            self.problems.report("request-unanswered", request, "no reply to this request, but to a later one")

    def report_unasked(self, event: Message) -> None:
        """Report a reply that answers nothing. The first one may answer a request on an earlier connection."""
        if self.has_answers and not (self.dossier.blind or event.incomplete):
            self.problems.report("reply-without-request", event, "a reply to which no request was seen")

    def report_again(self, event: Message, before: int) -> None:
        """Report a request that comes before the reply to the one in packet ``before``."""
        if not (self.dossier.blind or event.seen == UNBOUNDED):
            detail = f"a REQ socket asks again before the reply to its request in packet {before} came"
            self.problems.report("request-before-reply", event, detail)

    def hides_reply(self, event: Message, seen: int) -> bool:
        """Whether the capture may lack the reply to the request before ``event``, whose sender had seen ``seen``."""
        return self.dossier.blind and event.seen > seen

    def envelope(self, event: Message) -> Envelope | None:
        """The envelope of a message that must have one."""
        envelope = _envelope(event.frames)
        if envelope is None and not event.incomplete and self.dossier.is_guessed:
            self.dossier.guesses = {}  # the sender is no REQ or REP
        elif envelope is None and not event.incomplete:
            detail = "a message without the empty frame that a REQ or REP socket needs"
            if b"" in event.frames:
                detail = "a message in which nothing follows the empty frame that a REQ or REP socket needs"
            self.problems.report("no-delimiter", event, detail)
        return envelope


class LockStep(Rules):
    """One connection of a REQ socket that sends a request only after the reply to the one before, and numbers none.

    Most requests are of this kind, so this class is made to be fast. Whatever else a REQ does is left to others.
    """

    waits = True

    def __init__(self, exchange: Exchange) -> None:
        """Look at the connection from its first message on."""
        self._exchange = exchange
        self._flow = exchange.dossier.flow
        self._timeout_ns = exchange.timeout_ns
        types = exchange.dossier.types
        one, other = types
        self._requester, self._replier = (one, other) if types[one] == "REQ" else (other, one)
        self._forwarding = exchange.forwarding if types[self._replier] == "ROUTER" else None
        # About the request that waits for its reply. Packets are counted from 1.
        self._packet = 0
        self._part = 0
        self._time_ns = 0
        self._offset = 0
        self._seen = -1  # what its sender had seen of the other side
        self._asked = 0  # the packet of the last request
        self._answered = -1  # stream offset of the last reply
        self._late = False  # whether the waiting request was reported
        self._job: _Request | None = None  # what a broker gave to a REQ that works for it
        self._rest: RequestReply | None = None  # what takes all messages from the first on that does not keep step
        self.message = self._take

    def _take(self, event: Message) -> None:
        frames = event.frames
        if frames[0] != b"" or len(frames) == 1 or self._rest is not None:
            self._leave(event)
            return
        if event.src == self._requester:
            if (self._packet or event.seen <= self._answered) and not self._exchange.hides_reply(event, self._seen):
                self._leave(event)
                return
            event.envelope = _DELIMITER_ONLY
            self._seen = event.seen
            self._packet = self._asked = event.packet
            self._part = event.part
            self._time_ns = event.time_ns
            self._offset = event.offset
            if self._forwarding is not None:
                if self._job is not None:
                    self._end_job(event, self._forwarding)
                self._forwarding.begin(event, alone=True)
        elif self._packet and event.seen > self._offset:
            event.envelope = _DELIMITER_ONLY
            latency = event.time_ns - self._time_ns
            event.request = self._packet
            event.request_part = self._part
            if latency >= 0:
                event.latency_ns = latency
                if latency > self._timeout_ns:
                    self.pass_time(event.time_ns)
            self._answered = event.offset
            self._packet = 0
            self._late = False
            if self._forwarding is not None:
                leg = self._forwarding.forwarded_reply(event)
                if leg is not None:
                    event.forwards = leg.place
                elif len(frames) > 3:
                    self._begin_job(event, self._forwarding)
        elif not self._exchange.dossier.blind:
            self._leave(event)

    def _leave(self, event: Message) -> None:
        """Leave this message, and all after it, to the rules for whatever may come."""
        if self._rest is None:
            waiting = self._waiting() if self._packet else None
            self._rest = RequestReply(self._exchange)
            self._rest.resume(waiting, self._asked, self._seen, self._answered, is_late=self._late)
        self._rest.take(event)

    # ------------------------------------------------------------------ a REQ that works for a broker

    def _begin_job(self, event: Message, forwarding: Proxies) -> None:
        """Take a reply that is a request of somebody else: a client's identity and its envelope are in it."""
        content = event.frames[1:]
        if forwarding.is_relayed(content):
            key = _key(content, _envelope(content))
            if key:
                event.forwards = forwarding.forwarded(event, content)
                self._job = _request(event, key)

    def _end_job(self, event: Message, forwarding: Proxies) -> None:
        """Take what the REQ says after a request of somebody else: the answer, if it has the same envelope in it."""
        job, self._job = self._job, None
        content = event.frames[1:]
        if job is not None and _key(content, _envelope(content)) == job.key:
            event.request, event.request_part, event.paired = job.packet, job.part, "envelope"
            event.latency_ns = latency_ns(event, job.time_ns)
            forwarding.begin_reply(event, content, job.forwards)

    # ------------------------------------------------------------------ waiting

    @property
    def asked_ns(self) -> int | None:  # type: ignore[override]
        """When the waiting request was sent."""
        if self._rest is not None:
            return self._rest.asked_ns
        return self._time_ns if self._packet else None

    def lose(self) -> None:
        """The missing octets may hold the request or its reply."""
        self._packet = 0
        self._job = None
        if self._rest is not None:
            self._rest.lose()

    def pass_time(self, now_ns: int) -> None:
        """Report a request that has waited for too long, once."""
        if self._rest is not None:
            self._rest.pass_time(now_ns)
        elif self._packet and not self._late and now_ns - self._time_ns > self._timeout_ns:
            self._late = True
            self._exchange.report_late(self._waiting())

    def finish(self, event: Connection, now_ns: int) -> None:
        """Report a request without a reply, and requests that the REQ socket gave up."""
        self.pass_time(now_ns)
        if self._rest is not None:
            self._rest.finish(event, now_ns)
        elif self._packet and not self._late:
            self._exchange.report_unanswered(self._waiting(), event.end == "open", 0)

    def _waiting(self) -> _Request:
        ends = (self._flow, self._requester, self._replier)
        return _Request(self._time_ns, self._packet, self._part, self._offset, 0, *ends, None)


class _Answer(NamedTuple):
    """The request that a reply answers."""

    request: _Request | None  # None if several requests may be meant
    paired: Literal["envelope", "order", "forwards"] | None = None
    passed_over: Sequence[_Request] = ()  # requests that nobody will answer any more


class _InOrder:
    """The requests to a REP, which answers them in order."""

    def __init__(self) -> None:
        self.waiting: deque[_Request] = deque()
        self._keys: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, request: _Request) -> bool:
        """One more waits. Returns whether another one with its envelope does."""
        self.waiting.append(request)
        self._keys[request.key] += 1
        return self._keys[request.key] > 1

    def answer(self, event: Message, key: int, _meant: Place | None) -> _Answer | None:
        """The request that a reply answers; None if it answers nothing."""
        waiting, keys = self.waiting, self._keys
        for place, request in enumerate(islice(waiting, _LOOKED_THROUGH)):
            if not can_know(event, request.offset):
                break
            if request.key == key:
                paired: Literal["order"] | None = "order" if keys[key] > 1 else None
                passed = [waiting.popleft() for _ in range(place + 1)]
                for one in passed:
                    keys[one.key] -= 1
                    if not keys[one.key]:
                        keys.pop(one.key)
                return _Answer(request, paired, passed[:-1])
        return None

    def distrust(self, key: int) -> None:
        """There was a reply to nothing, which says nothing of the order."""

    def clear(self) -> None:
        """Forget all."""
        self.waiting.clear()
        self._keys.clear()


class _ByEnvelope:
    """The requests to any other socket. A reply answers one of those that have its envelope."""

    def __init__(self) -> None:
        self._alike: dict[int, Alike[_Request]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, request: _Request) -> bool:
        """One more waits. Returns whether another one with its envelope does."""
        alike = self._of(request.key)
        length = len(alike.waiting)
        alike.add(request)
        self._length += len(alike.waiting) - length
        return length > 0

    def _of(self, key: int) -> Alike[_Request]:
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = Alike(_ALIKE)
            self._length += 1
        return alike

    def answer(self, event: Message, key: int, meant: Place | None) -> _Answer | None:
        """The request that a reply answers, ``meant`` if that is known; None if it answers nothing."""
        alike = self._alike.get(key)
        if alike is None:
            return None
        waiting = alike.waiting
        length = len(waiting)
        if meant is not None:
            answer = _Answer(next((one for one in waiting if one.place == meant), None), "forwards")
            if answer.request is not None:
                alike.remove(answer.request)
        else:
            known = bisect_left(waiting, event.seen, key=_OFFSET)
            if not alike.are_left(known):
                return None
            answer = _Answer(alike.take(known), "envelope")
        self._length -= length - len(waiting)
        if not waiting and alike.is_certain:
            del self._alike[key]
            self._length -= 1
        return answer

    def distrust(self, key: int) -> None:
        """There was a reply to nothing: whoever replies with this envelope says more than replies."""
        self._of(key).give_up()

    def clear(self) -> None:
        """Forget all."""
        self._alike.clear()
        self._length = 0


class RequestReply(Rules):
    """One connection between sockets that may have several requests under way."""

    def __init__(self, exchange: Exchange) -> None:
        """Look at the connection from its first message on."""
        self._exchange = exchange
        self._forwarding = exchange.forwarding
        self._types = exchange.dossier.types
        # REQ and REP need the delimiter. Either of two other sockets may ask: the side that is the first with an
        # envelope of identities asks all those (True), and so does the first with a delimiter alone (False), unless a
        # proxy proves the contrary.
        addresses = {kind: address for address, kind in self._types.items()}
        self._is_req, self._is_rep = "REQ" in addresses, "REP" in addresses
        self._strict = self.waits = self._is_proven = self._is_req or self._is_rep
        self._askers: dict[bool, str] = {}
        if self._strict:
            asks = addresses.get("REQ") or next(one for one, kind in self._types.items() if kind != "REP")
            self._askers = {True: asks, False: asks}
        self._began_late = exchange.dossier.blind
        self._requests = _InOrder() if self._is_rep else _ByEnvelope()
        self._paid = 0  # requests for which room was taken
        # If octets are missing, a delimiter alone pairs nothing any more, except for a REQ, which takes turns. Nor do
        # identities after one has asked again before its reply: nobody knows how many of its requests are under way.
        self._lost = False
        self._asks_again = False
        self._known: set[int] = set()  # envelopes of replies since then: before the first, nobody knows which request
        self._late = False  # whether the request that waits for longest has been reported
        # Of a REQ: its last request, what it had seen by then, the first and last reply that it had not.
        self._last: _Request | None = None
        self._seen = -1
        self._asked = 0  # the packet of the last request, 0 if that is unknown
        self._gives_up = False  # whether it ever asked again before a reply came
        self._unseen: tuple[int, int] | None = None
        self._given_up: deque[_Request] = deque(maxlen=_GIVEN_UP)
        self.message = self.take

    def resume(self, waiting: _Request | None, asked: int, seen: int, answered: int, *, is_late: bool) -> None:
        """Go on with a REQ: the request that waits, the last one, what it had seen then, and where its reply was."""
        self._asked, self._seen, self._late = asked, seen, is_late
        self._exchange.has_answers = answered >= 0
        if answered >= seen:
            self._unseen = (answered, answered)
        if waiting is not None:
            self._last = waiting
            self._requests.add(waiting)
            self._pay()

    def take(self, event: Message) -> None:
        """Take a message."""
        frames = event.frames
        if frames == [b""] and not self._is_rep:
            return  # ZMQ_PROBE_ROUTER: it only says that somebody is there
        envelope = event.envelope = self._exchange.envelope(event) if self._strict else _envelope(frames)
        if envelope is None and self._strict and not event.incomplete:
            return  # dropped
        key = _key(frames, envelope)
        if key is None and self._strict:
            key = 0
        asks = None
        if key is not None and (self._is_proven or not self._began_late):
            asks = event.src == self._askers.setdefault(key != 0, event.src)
        asks, meant = self._follow_back(event, key, asks)
        request = None
        if key is not None and asks is not None:
            if asks:
                self._ask(event, key)
            else:
                request = self._answer(event, key, meant)
        self._follow_on(event, asks, request)

    # ------------------------------------------------------------------ through proxies

    def _follow_back(self, event: Message, key: int | None, asks: bool | None) -> tuple[bool | None, Place | None]:
        """Join a message with its copy on the other side of a proxy.

        Returns whether it is a request, None if nobody knows, and what it answers, if that is known there.
        """
        forwarding = self._forwarding
        if asks is not True and self._types[event.src] == "ROUTER":
            leg = forwarding.forwarded_reply(event)
            if leg is not None:
                event.forwards = leg.place
                return asks, leg.answers
        if (asks is not False or not self._is_proven) and forwarding.is_relayed(event.frames):
            event.forwards = forwarding.forwarded(event, event.frames)
            if event.forwards is not None and key is not None and not self._is_proven:
                self._prove(event.src)
                return True, None
        return asks, None

    def _prove(self, asker: str) -> None:
        """This side passes on requests. The first message may have been a reply to an earlier connection."""
        self._is_proven = True
        if self._askers.get(True) != asker:
            self._askers[True] = asker
            self._requests.clear()
            self._pay()

    def _follow_on(self, event: Message, asks: bool | None, request: _Request | None) -> None:
        """Remember a message that a proxy may send on."""
        if asks is not False and self._types[event.dst] == "ROUTER":
            self._forwarding.begin(event)
        is_reply = asks is False or (asks is None and event.forwards is None)
        if is_reply and self._forwarding.is_relayed(event.frames):
            self._forwarding.begin_reply(event, event.frames, request and request.forwards)

    # ------------------------------------------------------------------ requests

    def _ask(self, event: Message, key: int) -> None:
        if self._is_req and not self._take_turn(event, key):
            return
        if not self._is_trusted(key):
            return
        self.pass_time(event.time_ns)
        request = _request(event, key)
        if self._requests.add(request):
            self._asks_again = True
        if self._is_req:
            self._last, self._late = request, False
        self._pay()
        if self._lost and self._asks_again:
            self.lose()

    def _take_turn(self, event: Message, key: int) -> bool:
        """Take a request of a REQ. Returns whether it is one."""
        dossier = self._exchange.dossier
        self.pass_time(event.time_ns)
        is_again = self._asked > 0 and not self._exchange.hides_reply(event, self._seen)
        if self._unseen is not None and self._unseen[0] < event.seen:
            is_again = False
            self._unseen = (event.seen, self._unseen[1]) if self._unseen[1] >= event.seen else None
        if is_again and not key:
            if dossier.guesses is not None and event.seen <= self._seen:
                # Nothing came in between: it is no REQ, or one that gave up, and nobody knows what the next reply
                # answers. Of a REP that the user declares the peer may be a DEALER, too.
                self._lost = self._asks_again = True
                self.lose()
                return False
            self._exchange.report_again(event, self._asked)
        self._gives_up = self._gives_up or is_again
        if not self._gives_up:
            self._requests.clear()  # those before have got their replies
        if self._last is not None and self._last.key and not self._late:
            self._given_up.append(self._last)
        self._seen, self._asked = event.seen, event.packet
        return True

    def _is_trusted(self, key: int) -> bool:
        return not self._lost or ((key != 0 or self._is_req) and not self._asks_again)

    def _pay(self) -> None:
        """Take room for the requests that wait, or forget them."""
        owed = len(self._requests) - self._paid
        if owed > 0 and (len(self._requests) > _PENDING or not self._exchange.room.take(owed * _REQUEST_COST)):
            self._exchange.dossier.blind = True
            self.lose()
            return
        if owed < 0:
            self._exchange.room.give(-owed * _REQUEST_COST)
        self._paid += owed

    # ------------------------------------------------------------------ replies

    def _answer(self, event: Message, key: int, meant: Place | None) -> _Request | None:
        self.pass_time(event.time_ns)
        if self._is_req:
            self._unseen = (event.offset if self._unseen is None else self._unseen[0], event.offset)
        if not self._is_trusted(key):
            return None
        answer = self._requests.answer(event, key, meant)
        if answer is None:
            if self._strict:
                self._exchange.report_unasked(event)
            elif not self._exchange.dossier.blind:
                self._requests.distrust(key)
                self._pay()
            return None
        self._pay()
        self._exchange.has_answers = True
        request = answer.request
        if self._last is not None and self._last.key == key and request in (self._last, None):
            self._last = None
        for passed_over in answer.passed_over:
            if not self._late:
                self._exchange.report_passed_over(passed_over)
        if self._lost and not self._is_req and key not in self._known:
            request = None  # perhaps it answers one that is missing
            if len(self._known) < _PENDING:
                self._known.add(key)
        if request is None:
            return None
        if request in self._given_up:
            self._given_up.remove(request)
        if not self._is_req:
            is_late = event.time_ns - request.time_ns > self._exchange.timeout_ns
            self._late = self._late and is_late and len(self._requests) > 0
        event.latency_ns = latency_ns(event, request.time_ns)
        event.request, event.request_part, event.paired = request.packet, request.part, answer.paired
        return request

    # ------------------------------------------------------------------ waiting

    @property
    def asked_ns(self) -> int | None:  # type: ignore[override]
        """When the last request of a REQ was sent, if it waits for its reply."""
        return None if self._last is None else self._last.time_ns

    def _waiting(self) -> _Request | None:
        """The request that has waited for longest; of a REQ the last one, since it gave up those before."""
        if self._is_req or not isinstance(self._requests, _InOrder):
            return self._last
        return self._requests.waiting[0] if self._requests.waiting else None

    def lose(self) -> None:
        """Requests or replies are missing, so nobody knows which wait."""
        self._requests.clear()
        self._pay()
        self._lost = True
        self._known.clear()
        self._late = False
        self._last = self._unseen = None
        self._asked = 0
        self._given_up.clear()

    def pass_time(self, now_ns: int) -> None:
        """Report a request that has waited for too long, once."""
        waiting = self._waiting()
        if waiting is not None and not self._late and now_ns - waiting.time_ns > self._exchange.timeout_ns:
            self._late = True
            self._exchange.report_late(waiting)

    def finish(self, event: Connection, now_ns: int) -> None:
        """Report the requests that nobody answered."""
        self.pass_time(now_ns)
        waiting = self._waiting()
        if waiting is not None and not self._late:
            more = 0 if self._is_req else len(self._requests) - 1
            self._exchange.report_unanswered(waiting, event.end == "open", more)
        for request in self._given_up:
            self._exchange.report_given_up(request)
        self._requests.clear()
        self._pay()


def request_reply(exchange: Exchange) -> Rules:
    """The rules for a connection between sockets of request-reply types that may talk to each other."""
    return LockStep(exchange) if "REQ" in exchange.dossier.types.values() else RequestReply(exchange)


def _key(frames: Sequence[Octets], envelope: Envelope | None) -> int | None:
    """A number for the envelope of a message; 0 if that is the delimiter alone, None if it is not known."""
    if envelope is None:
        return None
    if not envelope.identities:
        return 0
    identities = tuple(frames[: envelope.identities])
    return (hash(identities) or 1) if _WHOLE.issuperset(map(type, identities)) else None


def _envelope(frames: Sequence[Octets]) -> Envelope | None:
    try:
        identities = frames.index(b"")
    except ValueError:
        return None
    return _interned(identities) if identities + 1 < len(frames) else None  # behind a delimiter something must come


@lru_cache(256)
def _interned(identities: int) -> Envelope:
    return Envelope(identities, True)


_DELIMITER_ONLY = _interned(0)
