"""Requests and their replies (28/REQREP): which reply answers which request, how late, and which requests get none.

A reply has the envelope of its request: all that stands before the delimiter, of any depth. A REP answers in order. Any
other peer may answer in any order. So a reply belongs to a request only if no other request with that envelope is open,
or if the reply passed a proxy and its pair on the other side is known.

Messages without an envelope, or with a delimiter alone, may have an id in their bodies instead
(:mod:`~zmtpsniff.analysis.patterns.body_ids`).

A reply can only answer a request that its sender had seen. Events come in an order in which they can have happened. But
of two independent events either may come first. So the order of events does not show who knew what; acknowledgments do
(:func:`~zmtpsniff.analysis.patterns.conversation.can_know`).

Theory
------

A request goes through these states: it *waits*; it is *told* as late, once it has waited for longer than the timeout;
it is *answered*, or *given up* by a REQ that asks again. At the end of the connection those that wait are unanswered.

Which side asks is known from the start for REQ and REP. Any other pair of sockets learns it from the first message:
that is a request. It stays a guess until a proxy shows a message of that side on its way (``_is_proven``).

A hole in the capture ends what is known: requests that wait are forgotten. After it, a reply is paired only if nothing
that is missing can be its request:

- of a REQ, once it asked anew: it takes turns;
- of others, from the second reply with an envelope on, as long as no request came before the reply to the one before.

Of a REQ, a hole may also hide that its next request is a copy of the last, and that a reply came in between. So that
request pairs nothing, and the one after it does.
"""

from collections import deque
from typing import Any

from dissectors.columns import ENVELOPES, IN_TURN
from dissectors.events import Connection, Message, Place
from zmtpsniff.analysis.dossier import gives_work, is_of_worker, says_ready
from zmtpsniff.analysis.patterns.body_ids import BodyIds, has_random
from zmtpsniff.analysis.patterns.conversation import RoomShare, Rules, latency_ns
from zmtpsniff.analysis.patterns.exchange import Exchange
from zmtpsniff.analysis.patterns.pending import ByEnvelope, InOrder
from zmtpsniff.analysis.patterns.requests import Request, envelope_of, key_of, request_of
from zmtpsniff.analysis.patterns.returning import PATIENCE_NS

_PENDING = 65_536  # the most requests of one connection that may wait for a reply; all are forgotten if there are more
_REQUEST_COST = 200  # octets of memory
_NEITHER = 2  # of both sides
_GIVEN_UP = 16  # requests to remember of a REQ socket that asked again


class RequestReply(Rules):
    """One connection between sockets that may have several requests under way."""

    def __init__(self, exchange: Exchange) -> None:
        """Follow the connection from its first message on."""
        self._exchange = exchange
        self._forwarding = exchange.forwarding
        self._types = exchange.dossier.types
        # REQ and REP need the delimiter. Either of two other sockets may ask: the side that is the first with an
        # envelope of identities asks all those (True), and so does the first with a delimiter alone (False), unless a
        # proxy proves the contrary.
        addresses = {kind: address for address, kind in self._types.items()}
        self._is_req, self._is_rep = "REQ" in addresses, "REP" in addresses
        self._strict = self._is_proven = self._is_req or self._is_rep
        self.waits = True
        # If messages have no envelope, as the first one shows, or a delimiter alone and a random value: ids in bodies.
        self._ids: BodyIds | None = None
        self._askers: dict[bool, str] = {}  # by whether the envelope has identities: the side that asks
        if self._strict:
            asks = addresses.get("REQ") or next(one for one, kind in self._types.items() if kind != "REP")
            self._askers = {True: asks, False: asks}
        self._began_late = exchange.dossier.blind
        self._has_begun = self._strict
        self._is_work = False  # between a worker and a broker whose commands tell who asks
        self._requests = InOrder() if self._is_rep else ByEnvelope()
        self._share = RoomShare(exchange.room, _REQUEST_COST)
        # Behind a gap, a delimiter alone pairs nothing, unless a REQ asks, which takes turns. Nor do identities once
        # one has asked again before its reply: it is not known how many of its requests are under way.
        self._has_gap = False
        self._asks_again = False
        # Envelopes of replies since the gap. The first reply with an envelope may answer a request that is missing.
        self._trusted_keys: set[int] = set()
        self._is_reported = False  # the request that has waited for longest is reported as late
        # Of a REQ:
        self._last: Request | None = None  # its last request, if that waits
        self._seen_at_request = -1  # how far it had seen the other side when it sent its last request
        self._asked_packet = 0  # the packet of its last request; 0 if that is not known
        self._gives_up = False  # it has asked again before a reply came
        self._may_be_copy = False  # behind a gap: its next request may be a copy of the one that waits
        self._unread_replies: tuple[int, int] | None = None  # the first and last reply that it had not seen then
        self._extra_replies = 0  # replies too many, each of which it may have taken for the reply to a later request
        self._given_up: deque[Request] = deque(maxlen=_GIVEN_UP)
        self._inherited_ns = 0  # when the last request of an earlier connection came that may get its reply here
        self.message = self.take

    def resume(self, waiting: Request | None, asked: int, seen: int, answered: int, *, is_late: bool) -> None:
        """Go on with a REQ where :class:`~zmtpsniff.analysis.patterns.lock_step.LockStep` ended.

        ``waiting`` is its request without a reply, ``asked`` the packet of its last request, ``seen`` how far it had
        seen the other side then, ``answered`` the offset of the last reply. ``is_late``: the request is reported.
        """
        self._asked_packet, self._is_reported = asked, is_late
        # Behind a hole its last request may be a copy, sent when its sender had seen more than before. That it asks
        # again is then not certain; of a side whose type is a guess, it shows that the guess is wrong.
        dossier = self._exchange.dossier
        self._seen_at_request = -1 if dossier.blind and dossier.guesses is None else seen
        self._exchange.has_answers = answered >= 0
        if answered >= seen:
            self._unread_replies = (answered, answered)
        if waiting is not None:
            self._last = waiting
            self._requests.add(waiting)
            self._may_be_copy = self._seen_at_request < 0
            self._take_room()

    def take(self, event: Message) -> None:
        """Take a message: find out whether it is a request or a reply, and pair a reply.

        These show which side asks, the later ones in doubt: the sockets' types; commands of Majordomo; the first
        message with an envelope; a proxy that passed it on. ``asks`` is None if nothing does.
        """
        frames = event.frames
        if frames == [b""] and not self._is_rep:
            return  # ZMQ_PROBE_ROUTER: it only shows that a peer is there
        envelope = event.envelope = self._exchange.envelope(event) if self._strict else envelope_of(frames)
        if envelope is None and self._strict and not event.incomplete:
            return  # its receiver drops it
        key = key_of(frames, envelope)
        if key is None and self._strict:
            key = 0
        if not (self._strict or self._has_begun) and (envelope is None or (not key and has_random(frames))):
            self._ids = BodyIds(self._exchange.room, *self._types, is_whole=not self._began_late)
        is_first, self._has_begun = not self._has_begun, True
        if is_first and self._types[event.dst] == "ROUTER" and says_ready(frames):
            self._askers = {True: event.dst, False: event.dst}
            return  # a worker is ready
        if not self._strict and is_of_worker(frames):
            self._is_work = True
            gives = gives_work(frames)
            if gives is None:
                return  # a worker is ready, or both show that they are alive
            self._askers[False] = event.src if gives else event.dst
        asks = None
        # Behind a gap the first message with an envelope may be a reply, whose request is missing.
        shows_asker = key is not None and (not self._has_gap or (key != 0) in self._askers)
        if shows_asker and (self._is_proven or not self._began_late):
            asks = event.src == self._askers.setdefault(key != 0, event.src)
        asks, meant = self._find_forwarded(event, key, asks)
        request = None
        by_id = self._pair_by_id(event) if self._looks_for_id(key) else None
        tells = self._ids is None or not (self._ids.is_known or self._ids.says_more)
        if key is not None and asks is not None and tells:
            if asks:
                self._take_request(event, key)
            else:
                request = self._take_reply(event, key, meant or (by_id and not key and by_id.place) or None)
                self._exchange.has_envelopes |= request is not None and 0 != request.key == key
        if by_id is not None and not (key and request is not None):
            event.latency_ns = latency_ns(event, by_id.time_ns)
            event.request, event.request_part, event.paired = by_id.packet, by_id.part, "id"
        self._remember_forwarded(event, asks, request)

    def _looks_for_id(self, key: int | None) -> bool:
        """Whether a message may be joined by an id: it has no envelope, or one that pairs nothing on this connection.

        An empty frame behind words of a command looks as if these were an envelope.
        """
        return self._ids is not None and (not key or self._ids.is_known or not self._exchange.has_envelopes)

    def _pair_by_id(self, event: Message) -> Request | None:
        """The request that a message answers by an id in its body; None if there is none."""
        self.pass_time(event.time_ns)
        assert self._ids is not None
        request = self._ids.take(event)
        if self._ids.is_over:
            self._ids = None
        elif self._ids.is_known:
            self._requests.clear()
        return request

    # ------------------------------------------------------------------ messages in columns

    @property
    def in_columns(self) -> bool:
        """Whether its messages may be paired in columns."""
        return self._column_facts() is not None

    def _column_facts(self) -> tuple[bytes, bytes] | None:
        """The facts of the requests that wait; None if messages need a closer look."""
        is_new = self._ids is not None or not self._has_begun
        is_odd = self._is_req or self._is_work or self._has_gap or self._is_reported or is_new
        return None if is_odd or self._inherited_ns or self._exchange.may_inherit else self._requests.facts()

    def facts(self, client: str, most: int) -> tuple[int, int, str, str, tuple[Any, ...]] | None:
        """The facts of this connection before ``most`` messages in columns; None if they need a closer look.

        They are: their kind, the flow, the ``client`` and its peer, and of requests to a REP: the side that asks, how
        long one may wait, and the requests that do. Of others: whether they are paired, whether one side is known to
        pass requests on, which sides are ROUTERs, the side that asks with a delimiter alone, that with identities (2:
        not known yet), the requests that wait, and how many of those with one envelope are taken.
        """
        held = self._column_facts()
        if held is None or self._exchange.room.left < 2 * most * _REQUEST_COST:
            return None
        plain, named = (
            int(self._askers[has_names] != client) if has_names in self._askers else _NEITHER
            for has_names in (False, True)
        )
        ends = self._exchange.dossier.flow, client, next(one for one in self._types if one != client)
        if self._is_rep:
            return IN_TURN, *ends, (plain, self._exchange.timeout_ns, *held)
        routers = sum(1 << (one != client) for one, kind in self._types.items() if kind == "ROUTER")
        pairs, relays = self._is_proven or not self._began_late, self._is_proven
        return ENVELOPES, *ends, (pairs, relays, routers, plain, named, *held)

    def go_on_from(self, client: str, facts: tuple[Any, ...]) -> None:
        """Go on behind messages that were paired in columns."""
        plain, named, asks_again, has_answers, waiting, taken = facts
        sides = client, next(one for one in self._types if one != client)
        if not self._is_rep:
            askers = (False, plain), (True, named)
            self._askers = {has_names: sides[asker] for has_names, asker in askers if asker != _NEITHER}
        self._asks_again = self._asks_again or bool(asks_again)
        self._exchange.has_answers = self._exchange.has_answers or bool(has_answers)
        flow = self._exchange.dossier.flow

        def request(one: tuple[int, ...]) -> Request:
            key, packet, time_ns, offset, via, part, via_part, via_flow = one
            src = self._askers[key != 0]
            forwards = Place(via_flow, via, via_part) if via else None
            return Request(time_ns, packet, part, offset, key, flow, src, sides[src == sides[0]], forwards)

        self._requests.go_on_from(waiting, taken, request)
        self._take_room()

    # ------------------------------------------------------------------ through proxies

    def _find_forwarded(self, event: Message, key: int | None, asks: bool | None) -> tuple[bool | None, Place | None]:
        """Find the message that a proxy passes on here (``event.forwards``).

        Return whether this one is a request, None if that is not known; and the request that it answers, if the other
        side of the proxy shows that.
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
                self._prove_asker(event.src)
                return True, None
        return asks, None

    def _prove_asker(self, asker: str) -> None:
        """A proxy passes requests on at this side, so this side asks.

        If the other one seemed to ask, the first message was a reply to a request of an earlier connection.
        """
        self._is_proven = True
        if self._askers.get(True) != asker:
            self._askers[True] = asker
            self._requests.clear()
            self._take_room()

    def _remember_forwarded(self, event: Message, asks: bool | None, request: Request | None) -> None:
        """Remember a message that a proxy may pass on."""
        if asks is not False and self._types[event.dst] == "ROUTER":
            self._forwarding.begin(event)
        is_reply = asks is False or (asks is None and event.forwards is None)
        if is_reply and self._forwarding.is_relayed(event.frames):
            self._forwarding.begin_reply(event, event.frames, request and request.forwards)

    # ------------------------------------------------------------------ requests

    def _inherit_requests(self, now_ns: int) -> None:
        """Wait for replies to requests of the connection before, which the same peer gave up."""
        for request in self._exchange.inherited(now_ns):
            self._requests.add(request._replace(offset=-1))
            self._inherited_ns, self._gives_up = now_ns, True
        if self._is_req and self._inherited_ns and now_ns - self._inherited_ns > PATIENCE_NS:
            self._inherited_ns, self._gives_up = 0, False  # they get none
        self._take_room()

    def _take_request(self, event: Message, key: int) -> None:
        """Let a request wait for its reply, unless a gap hides which reply that would be."""
        if self._inherited_ns or self._exchange.may_inherit:
            self._inherit_requests(event.time_ns)
        if self._is_req and not self._take_req_request(event, key):
            return
        if not self._is_trusted(key):
            return
        self.pass_time(event.time_ns)
        request = request_of(event, key)
        if self._requests.add(request):
            self._asks_again = True
        if self._is_req:
            self._last, self._is_reported = request, False
        self._take_room()
        if self._has_gap and self._asks_again:
            self.lose()

    def _take_req_request(self, event: Message, key: int) -> bool:
        """Take a request of a REQ, which gives up the one before that has no reply. Return whether to wait for one."""
        dossier = self._exchange.dossier
        self.pass_time(event.time_ns)
        if self._may_be_copy:
            self._may_be_copy = False
            self._requests.clear()
            self._last, self._seen_at_request, self._asked_packet = None, event.seen, event.packet
            return False
        is_again = self._asked_packet > 0 and not self._exchange.hides_reply(event, self._seen_at_request)
        if self._unread_replies is not None and self._unread_replies[0] < event.seen:
            is_again = False
            self._unread_replies = (
                (event.seen, self._unread_replies[1]) if self._unread_replies[1] >= event.seen else None
            )
        if is_again and not key:
            if dossier.guesses is not None and event.seen <= self._seen_at_request:
                # Nothing came in between, so it is no REQ, or one that gave up: the next reply may answer any request.
                # If the user says that the other side is a REP, this one may be a DEALER, too.
                self._has_gap = self._asks_again = True
                self.lose()
                return False
            if self._extra_replies:
                self._extra_replies -= 1
            else:
                self._exchange.report_again(event, self._asked_packet)
        self._gives_up = self._gives_up or is_again
        if not self._gives_up:
            self._requests.clear()  # those before have got their replies
        if self._last is not None and self._last.key and not self._is_reported:
            self._given_up.append(self._last)
        self._seen_at_request, self._asked_packet = event.seen, event.packet
        return True

    def _is_trusted(self, key: int) -> bool:
        """Whether an envelope tells which request a reply answers, also behind a gap."""
        return not self._has_gap or ((key != 0 or self._is_req) and not self._asks_again)

    def _take_room(self) -> None:
        """Take room for the requests that wait, or forget them."""
        waiting = len(self._requests)
        if waiting > max(_PENDING, self._share.held) or not self._share.hold(waiting):
            self._exchange.dossier.blind = True
            self.lose()

    # ------------------------------------------------------------------ replies

    def _take_reply(self, event: Message, key: int, meant: Place | None) -> Request | None:
        """Pair a reply with its request, and return that; ``meant`` is the one that other evidence names."""
        self.pass_time(event.time_ns)
        if self._is_req:
            self._unread_replies = (
                event.offset if self._unread_replies is None else self._unread_replies[0],
                event.offset,
            )
            self._may_be_copy = False
        if not self._is_trusted(key):
            return None
        if self._exchange.may_inherit:
            self._inherit_requests(event.time_ns)
        answer = self._requests.answer(event, key, meant)
        if answer is None:
            if self._is_req and self._exchange.dossier.is_guessed and self._asked_packet and not self._has_gap:
                # The request has its reply, and no octets are missing: so this is no REP, and messages answer nothing.
                self._has_gap = self._asks_again = True
                self.lose()
            elif self._strict:
                self._exchange.report_unasked(event)
                self._extra_replies += self._is_req
            elif not self._exchange.dossier.blind:
                self._requests.distrust(key)
                self._take_room()
            return None
        self._take_room()
        self._exchange.has_answers = True
        request = answer.request
        if request is not None and request.flow != event.flow:
            request = None  # of the connection before
        if self._last is not None and self._last.key == key and request in (self._last, None):
            self._last = None
        for passed_over in answer.passed_over:
            if not self._is_reported:
                self._exchange.report_passed_over(passed_over)
        if self._has_gap and not self._is_req and key not in self._trusted_keys:
            request = None  # it may answer one that is missing
            if len(self._trusted_keys) < _PENDING:
                self._trusted_keys.add(key)
        if request is None:
            return None
        if request in self._given_up:
            self._given_up.remove(request)
        if not self._is_req:
            is_late = event.time_ns - request.time_ns > self._exchange.timeout_ns
            self._is_reported = self._is_reported and is_late and len(self._requests) > 0
        event.latency_ns = latency_ns(event, request.time_ns)
        event.request, event.request_part, event.paired = request.packet, request.part, answer.paired
        return request

    # ------------------------------------------------------------------ waiting

    @property
    def asked_ns(self) -> int | None:  # type: ignore[override]
        """When the last request of a REQ was sent, if it waits for its reply."""
        return None if self._last is None else self._last.time_ns

    def _oldest_waiting(self) -> Request | None:
        """The request that has waited for longest; of a REQ the last one, since it gave up those before."""
        if self._is_req or not isinstance(self._requests, InOrder):
            return self._last
        return self._requests.waiting[0] if self._requests.waiting else None

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing would be reported if time passed: no request waits."""
        return self._oldest_waiting() is None and self._ids is None

    def lose(self) -> None:
        """Octets are missing, and requests or replies with them: forget the requests that wait."""
        self._requests.clear()
        self._take_room()
        self._has_gap = True
        self._trusted_keys.clear()
        if not (self._strict or self._is_proven or self._exchange.has_answers):
            self._askers.clear()  # the first message may have been a reply to an earlier connection
        self._is_reported = False
        self._last = self._unread_replies = None
        self._asked_packet = 0
        self._given_up.clear()
        if self._ids is not None:
            self._ids.lose()

    def pass_time(self, now_ns: int) -> None:
        """Report once that a request has waited for too long."""
        waiting = self._oldest_waiting()
        if waiting is not None and not self._is_reported and now_ns - waiting.time_ns > self._exchange.timeout_ns:
            self._is_reported = True
            self._exchange.report_late(waiting)
        if self._ids is not None:
            for request in self._ids.overdue(now_ns, self._exchange.timeout_ns):
                self._exchange.report_late(request)

    def finish(self, event: Connection, now_ns: int) -> None:
        """The connection is over: report the requests without a reply."""
        self.pass_time(now_ns)
        waiting = self._oldest_waiting()
        if waiting is not None and not self._is_reported:
            more = 0 if self._is_req else len(self._requests) - 1
            self._exchange.report_unanswered(waiting, event.end == "open", more)
        for request in self._given_up:
            self._exchange.report_given_up(request)
        self._exchange.leave(event, self._requests.open())
        self._requests.clear()
        if self._ids is not None:
            self._ids.give_up()
        self._take_room()
