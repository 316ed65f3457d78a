"""Requests and their replies (28/REQREP): which reply answers which request, how late, and which requests get none.

A reply can only answer a request that its sender had seen. Events come in an order in which they can have happened. But
of two independent events either may come first. So the order of events does not show who knew what; acknowledgments do
(:func:`~zmtpsniff.analysis.patterns.conversation.can_know`).
"""

from collections import deque
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from dissectors.events import UNBOUNDED, Connection, Envelope, Message, Octets
from zmtpsniff.analysis.patterns.conversation import (
    NO_RULES,
    Conversation,
    Findings,
    Room,
    Rules,
    can_know,
    latency_ns,
)
from zmtpsniff.analysis.patterns.proxies import Proxies

SOCKET_TYPES = frozenset({"REQ", "REP", "DEALER", "ROUTER"})
_PENDING = 65_536  # the most requests of one connection that may wait for a reply; older ones are forgotten
_LOOKED_THROUGH = 1024  # so many of them to compare with the identities of a reply
_REQUEST_COST = 200  # octets of memory
_GIVEN_UP = 16  # requests to remember of a REQ socket that asked again


class _Request(NamedTuple):
    """A request without its frames, which may be large."""

    time_ns: int
    packet: int
    offset: int  # where the octets begin in its sender's stream that completed the request
    key: int  # a number for its identities, 0 if it has none
    flow: int
    src: str
    dst: str


class Exchange:
    """What all kinds of requests need: their connection, and how long they may take."""

    def __init__(
        self, conversation: Conversation, findings: Findings, forwarding: Proxies, room: Room, timeout_ns: int
    ) -> None:
        """Report requests of ``conversation`` that wait for more than ``timeout_ns``."""
        self.conversation = conversation
        self.findings = findings
        self.forwarding = forwarding
        self.room = room
        self.timeout_ns = timeout_ns

    def report_late(self, request: _Request) -> None:
        """Report a request that has waited for too long; a reply may still come."""
        if not self.conversation.blind:
            detail = f"no reply to this request within {self.timeout_ns / 1e9:g} s"
            self.findings.report("request-unanswered", request, detail)

    def report_unanswered(self, request: _Request, is_open: bool, more: int) -> None:
        """Report a request without a reply at the end, a note if the reply may have come a moment later."""
        if not self.conversation.blind:
            what = "the capture ended" if is_open else "the connection was closed"
            others = f", nor to {more:,} after it" if more else ""
            detail = f"no reply to this request before {what}{others}"
            self.findings.report("request-unanswered", request, detail, "note" if is_open else None)

    def report_unasked(self, event: Message) -> None:
        """Report a reply that answers nothing."""
        if not (self.conversation.blind or event.incomplete):
            self.findings.report("reply-without-request", event, "a reply to which no request was seen")

    def envelope(self, event: Message) -> Envelope | None:
        """The envelope of a message that must have one."""
        envelope = _envelope(event.frames)
        if envelope is None and not event.incomplete and self.conversation.is_guessed:
            self.conversation.guesses = {}  # the sender is no REQ or REP
        elif envelope is None and not event.incomplete:
            detail = "a message without the empty frame that a REQ or REP socket needs"
            if b"" in event.frames:
                detail = "a message in which nothing follows the empty frame that a REQ or REP socket needs"
            self.findings.report("no-delimiter", event, detail)
        return envelope


class LockStep(Rules):
    """One connection of a REQ socket, which sends a request only after the reply to the one before.

    Most requests are of this kind, so this class is made to be fast.
    """

    waits = True

    def __init__(self, exchange: Exchange) -> None:
        """Look at the connection from its first message on."""
        self._exchange = exchange
        self._flow = exchange.conversation.flow
        self._timeout_ns = exchange.timeout_ns
        types = exchange.conversation.types
        one, other = types
        self._requester, self._replier = (one, other) if types[one] == "REQ" else (other, one)
        self._forwarding = exchange.forwarding if types[self._replier] == "ROUTER" else None
        # About the request that waits for its reply. Packets are counted from 1.
        self._packet = 0
        self._time_ns = 0
        self._offset = 0
        self._seen = -1  # what its sender had seen of the other side
        self._key = 0
        self._answered = -1  # stream offset of the last reply
        self._answered_packet = 0  # the packet of the request that the last reply answers
        self._late = False  # whether the waiting request was reported
        self._given_up: tuple[_Request, ...] = ()  # requests without a reply when the next one was sent
        self.message = self._take

    def _take(self, event: Message) -> None:
        frames = event.frames
        if frames[0] != b"" or len(frames) == 1 or self._key or self._given_up:
            self._take_rare(event)
            return
        event.envelope = _DELIMITER_ONLY
        if event.src == self._requester:
            if self._packet or event.seen <= self._answered:
                self._ask_again(event, 0)
                if not self._requester:
                    return
            self._seen = event.seen
            self._packet = event.packet
            self._time_ns = event.time_ns
            self._offset = event.offset
            if self._forwarding is not None:
                self._forwarding.begin(event)
        elif self._packet and event.seen > self._offset:
            latency = event.time_ns - self._time_ns
            event.request = self._packet
            if latency >= 0:
                event.latency_ns = latency
                if latency > self._timeout_ns:
                    self.pass_time(event.time_ns)
            self._answered = event.offset
            self._answered_packet = self._packet
            self._packet = 0
            self._late = False
            if self._forwarding is not None:
                event.forwards = self._forwarding.forwarded_reply(event)
        else:
            self._exchange.report_unasked(event)

    # ------------------------------------------------------------------ with ZMQ_REQ_CORRELATE, without delimiter

    def _take_rare(self, event: Message) -> None:
        if event.frames == [b""] and self._forwarding is not None:
            return  # ZMQ_PROBE_ROUTER: it only says that somebody is there
        envelope = event.envelope = self._exchange.envelope(event)
        if envelope is None and not event.incomplete:
            return  # REQ and REP drop it
        key = _key(event.frames, envelope)
        if event.src != self._requester:
            self._answer(event, key)
            return
        if self._packet or event.seen <= self._answered:
            self._ask_again(event, key)
            if not self._requester:
                return
        self._seen = event.seen
        self._packet, self._time_ns, self._offset, self._key = event.packet, event.time_ns, event.offset, key
        if self._forwarding is not None:
            self._forwarding.begin(event)

    def _ask_again(self, event: Message, key: int) -> None:
        """Take a request while another one waits. Only a REQ socket that numbers its requests may send one.

        The reply may stand before this event, and the requester had not seen it.
        """
        self.pass_time(event.time_ns)
        blind = self._exchange.conversation.blind
        if self._exchange.conversation.guesses is not None and not key and event.seen <= self._seen:
            # Nothing came in between: it is no REQ, or one that gave up, and nobody knows what the next reply answers.
            # Of a REP that the user declares the peer may be a DEALER, too.
            self._requester = ""
            self.lose()
            return
        if not (key or blind or event.seen == UNBOUNDED):
            before = self._packet or self._answered_packet
            detail = f"a REQ socket asks again before the reply to its request in packet {before} came"
            self._exchange.findings.report("request-before-reply", event, detail)
        # Otherwise the request has been reported already, or the capture lacks the reply.
        if self._packet and not self._late and (key or not blind):
            self._given_up = (*self._given_up[1 - _GIVEN_UP :], self._request())
        self._packet = 0
        self._late = False

    def _answer(self, event: Message, key: int) -> None:
        requests = (*self._given_up, self._request()) if self._packet else self._given_up
        known = [request for request in requests if request.key == key and can_know(event, request.offset)]
        if not known:
            self._exchange.report_unasked(event)
            return
        request = known[0]
        event.latency_ns = latency_ns(event, request.time_ns)
        event.request = request.packet
        if key or len(known) > 1:
            event.paired = "envelope" if key else "order"
        if request.packet == self._packet:
            self.pass_time(event.time_ns)
            self._answered, self._answered_packet = event.offset, self._packet
            self._packet = 0
            self._late = False
        else:
            self._given_up = tuple(one for one in self._given_up if one is not request)
        if self._forwarding is not None:
            event.forwards = self._forwarding.forwarded_reply(event)

    # ------------------------------------------------------------------ waiting

    @property
    def asked_ns(self) -> int | None:  # type: ignore[override]
        """When the waiting request was sent."""
        return self._time_ns if self._packet else None

    def _request(self) -> _Request:
        return _Request(
            self._time_ns, self._packet, self._offset, self._key, self._flow, self._requester, self._replier
        )

    def lose(self) -> None:
        """The missing octets may hold the request or its reply."""
        self._packet = 0
        self._given_up = ()

    def pass_time(self, now_ns: int) -> None:
        """Report a request that has waited for too long, once."""
        if self._packet and not self._late and now_ns - self._time_ns > self._timeout_ns:
            self._late = True
            self._exchange.report_late(self._request())

    def finish(self, event: Connection, now_ns: int) -> None:
        """Report a request without a reply, and requests that the REQ socket gave up."""
        self.pass_time(now_ns)
        is_open = event.end == "open"
        if self._packet and not self._late:
            self._exchange.report_unanswered(self._request(), is_open, 0)
        for request in self._given_up:
            if request.key and not self._exchange.conversation.blind:
                detail = "no reply to this request before its sender gave it up and asked again"
                self._exchange.findings.report("request-unanswered", request, detail, "note")


class RequestReply(Rules):
    """One connection between sockets that may have several requests under way."""

    waits = True

    def __init__(self, exchange: Exchange) -> None:
        """Look at the connection from its first message on."""
        self._exchange = exchange
        self._forwarding = exchange.forwarding
        types = exchange.conversation.types
        # A REP socket needs the delimiter, answers in order, and never asks. Either of DEALER and ROUTER may ask: the
        # side that speaks first counts as the requester.
        self._strict = "REP" in types.values()
        self._requester = next((a for a, kind in types.items() if kind == "DEALER"), None) if self._strict else None
        self._router = next((address for address, kind in types.items() if kind == "ROUTER"), None)
        self._pending: deque[_Request] = deque()  # requests without a reply, the oldest first
        self._in_order = True  # whether replies without identities come in the order of their requests
        # Whether identities show which request a reply answers. They do not if octets are missing and an identity may
        # have asked again before its reply came: then nobody knows how many of its requests are under way.
        self._by_identity = True
        self._lost = False  # octets are missing
        self._asks_again = False  # an identity has asked again before its reply came
        self._asking: set[int] = set()  # the keys in `_pending`, until one of them is there twice
        self._late = False  # whether the oldest request has been reported
        self.message = self._take

    def _take(self, event: Message) -> None:
        frames = event.frames
        if frames == [b""] and not self._strict:
            return  # ZMQ_PROBE_ROUTER: it only says that somebody is there
        envelope = self._exchange.envelope(event) if self._strict else self._identities(frames)
        if envelope is None and self._strict and not event.incomplete:
            return  # dropped, or nothing that a REP sends
        event.envelope = envelope
        if self._requester is None:
            self._requester = event.src
        if event.src == self._requester:
            self._ask(event, _key(frames, envelope))
        else:
            self._answer(event, _key(frames, envelope))
        self._follow(event)

    def _identities(self, frames: list[Octets]) -> Envelope | None:
        """The identities of a message. Between DEALER and ROUTER other frames may stand before an empty frame, too."""
        envelope = _envelope(frames)
        if envelope is None or not all(map(self._forwarding.is_identity, frames[: envelope.identities])):
            return None
        return envelope

    def _follow(self, event: Message) -> None:
        """Join a message with its copy on the other side of a proxy."""
        forwarding = self._forwarding
        relayed = len(event.frames) > 1 and forwarding.is_identity(event.frames[0])
        if self._router is None:
            if relayed:
                relay(event, forwarding)
        elif event.src == self._router:
            event.forwards = forwarding.forwarded_reply(event)
            if relayed and event.forwards is None:
                forwarding.begin_reply(event)
        else:
            if relayed:
                event.forwards = forwarding.forwarded(event)
            forwarding.begin(event)

    def _ask(self, event: Message, key: int) -> None:
        if not (self._in_order or (key and self._by_identity)):
            return
        self.pass_time(event.time_ns)
        if len(self._pending) >= _PENDING or not self._exchange.room.take(_REQUEST_COST):
            self._exchange.conversation.blind = True
            self.lose()
            return
        request = _Request(event.time_ns, event.packet, event.offset, key, event.flow, event.src, event.dst)
        self._pending.append(request)
        if key and not self._asks_again:
            self._note(key)

    def _note(self, key: int) -> None:
        """Remember which identities wait for a reply."""
        if key not in self._asking:
            self._asking.add(key)
            return
        self._asks_again = True
        self._asking.clear()
        if self._lost:
            self.lose()

    def _answer(self, event: Message, key: int) -> None:
        pending = self._pending
        if not (self._in_order or (key and self._by_identity)):
            return
        request = pending[0] if pending and can_know(event, pending[0].offset) else None
        if request is not None and request.key == key:
            pending.popleft()
            if self._strict and event.time_ns - request.time_ns > self._exchange.timeout_ns:
                if not self._late:
                    self._exchange.report_late(request)
                self._late = bool(pending)
            else:
                self._late = False
        else:
            likely = islice(pending, _LOOKED_THROUGH)
            request = next((one for one in likely if key and one.key == key and can_know(event, one.offset)), None)
            if request is None:
                self._take_unasked(event, key)
                return
            pending.remove(request)
        self._exchange.room.give(_REQUEST_COST)
        self._asking.discard(key)
        event.latency_ns = latency_ns(event, request.time_ns)
        event.request = request.packet
        if not self._strict:
            event.paired = "envelope" if key else "order"

    def _take_unasked(self, event: Message, key: int) -> None:
        if self._strict:
            self._exchange.report_unasked(event)
        elif not key:  # this side sends messages that are no replies, so its next message may be none either
            self._give_up_order()

    def _give_up_order(self) -> None:
        self._in_order = False
        kept = [request for request in self._pending if request.key]
        self._exchange.room.give(_REQUEST_COST * (len(self._pending) - len(kept)))
        self._pending = deque(kept)

    def lose(self) -> None:
        """Requests or replies are missing, so their order shows nothing any more."""
        self._exchange.room.give(_REQUEST_COST * len(self._pending))
        self._pending.clear()
        self._asking.clear()
        self._late = False
        self._in_order = False
        self._lost = True
        self._by_identity = not self._asks_again

    def pass_time(self, now_ns: int) -> None:
        """Report a request that has waited for too long, once."""
        if self._pending and self._strict and not self._late:
            request = self._pending[0]
            if now_ns - request.time_ns > self._exchange.timeout_ns:
                self._late = True
                self._exchange.report_late(request)

    def finish(self, event: Connection, now_ns: int) -> None:
        """Report the requests that nobody answered."""
        self.pass_time(now_ns)
        if self._pending and self._strict and not self._late:
            self._exchange.report_unanswered(self._pending[0], event.end == "open", len(self._pending) - 1)
        self._exchange.room.give(_REQUEST_COST * len(self._pending))
        self._pending.clear()


class DealerPair(Rules):
    """One connection of two DEALERs: nothing shows which message answers which, but one side may be a proxy."""

    def __init__(self, exchange: Exchange) -> None:
        """Look at the connection from its first message on."""
        self._forwarding = exchange.forwarding
        self.message = self._take

    def _take(self, event: Message) -> None:
        if len(event.frames) > 1 and self._forwarding.is_identity(event.frames[0]):
            relay(event, self._forwarding)


def relay(event: Message, forwarding: Proxies) -> None:
    """Join a message with an identity in front: a request that a proxy forwards, or a reply on its way back."""
    event.forwards = forwarding.forwarded(event)
    if event.forwards is None:
        forwarding.begin_reply(event)


def request_reply(exchange: Exchange) -> Rules:
    """The rules for a connection between sockets of request-reply types that may talk to each other."""
    one, other = exchange.conversation.types.values()
    if "REQ" in (one, other):
        return LockStep(exchange)
    if one != other:
        return RequestReply(exchange)
    return DealerPair(exchange) if one == "DEALER" else NO_RULES


def _key(frames: list[Octets], envelope: Envelope | None) -> int:
    """A number for the identities of a message; 0 if it has none."""
    if envelope is None or not envelope.identities:
        return 0
    return hash(tuple(frames[: envelope.identities])) or 1


def _envelope(frames: list[Octets]) -> Envelope | None:
    try:
        identities = frames.index(b"")
    except ValueError:
        return None
    return _interned(identities) if identities + 1 < len(frames) else None  # behind a delimiter something must come


@lru_cache(256)
def _interned(identities: int) -> Envelope:
    return Envelope(identities, True)


_DELIMITER_ONLY = _interned(0)
