"""Requests and their replies (28/REQREP): what answers what, how long that took, what stays without an answer."""

from collections import OrderedDict, deque
from functools import lru_cache
from typing import NamedTuple

from dissectors.events import Connection, Envelope, Message, Octets, Place
from zmtpsniff.patterns.conversation import Conversation, Findings, Rules

SOCKET_TYPES = frozenset({"REQ", "REP", "DEALER", "ROUTER"})
_PENDING = 4096  # requests of one connection that wait for a reply; older ones are forgotten
_FORWARDED = 4096  # requests to all proxies that wait for their second leg
_LIBZMQ_IDENTITY = 5  # octets: a zero and four that are random


class _Request(NamedTuple):
    """What is kept of a request: not its frames, which may be large."""

    time_ns: int
    packet: int
    flow: int
    src: str
    dst: str
    identities: tuple[Octets, ...]


class Forwarding:
    """Requests on their way through proxies: the second leg is the first with one identity in front."""

    def __init__(self) -> None:
        """Start without any."""
        self._seen: OrderedDict[int, Place] = OrderedDict()

    def begin(self, event: Message) -> None:
        """Remember a request that a ROUTER gets, which may forward it."""
        self._seen[hash(tuple(event.frames))] = Place(event.flow, event.packet)
        if len(self._seen) > _FORWARDED:
            self._seen.popitem(last=False)

    def find(self, event: Message) -> Place | None:
        """Where the request came from that this one forwards; each is forwarded once."""
        place = self._seen.get(hash(tuple(event.frames[1:])))
        if place is None or place.flow == event.flow:
            return None
        return self._seen.pop(hash(tuple(event.frames[1:])))


class LockStep(Rules):
    """One connection of a REQ socket, which asks only once it has been answered.

    Most requests there are are of this kind, so this is made to cost little.
    """

    def __init__(self, conversation: Conversation, findings: Findings, forwarding: Forwarding, timeout_ns: int) -> None:
        """Look at the connection from its first message on."""
        self._conversation = conversation
        self._findings = findings
        self._timeout_ns = timeout_ns
        types = conversation.types
        self._requester, self._replier = sorted(types, key=lambda address: types[address] != "REQ")
        self._forwarding = forwarding if types[self._replier] == "ROUTER" else None
        # Of the request that waits for its reply; packets are counted from 1.
        self._packet = 0
        self._time_ns = 0
        self._late = False  # it was reported
        self.message = self._take

    def _take(self, event: Message) -> None:
        if event.frames[0] == b"":  # nearly always
            event.envelope = _DELIMITER_ONLY
        else:
            event.envelope = _envelope_of(event, self._findings)
        if event.src == self._requester:
            if self._packet:
                self._asks_again(event)
            self._packet = event.packet
            self._time_ns = event.time_ns
            if self._forwarding is not None and event.envelope is not None:
                self._forwarding.begin(event)
        elif self._packet:
            event.latency_ns = event.time_ns - self._time_ns
            event.request = self._packet
            self._packet = 0
            self._late = False
        elif not self._conversation.blind:
            self._findings.report("reply-without-request", event, "a reply to which no request was seen")

    def _asks_again(self, event: Message) -> None:
        if not self._conversation.blind:
            detail = f"a REQ socket asks again before the reply to its request in packet {self._packet} came"
            self._findings.report("request-before-reply", event, detail)

    def _request(self) -> "_Request":
        return _Request(self._time_ns, self._packet, self._conversation.flow, self._requester, self._replier, ())

    def pass_time(self, now_ns: int) -> None:
        """Report a request that has waited for too long, once."""
        if not self._packet or self._late or now_ns - self._time_ns <= self._timeout_ns or self._conversation.blind:
            return
        self._late = True
        _report_late(self._findings, self._request(), self._timeout_ns)

    def finish(self, event: Connection, now_ns: int) -> None:
        """Report a request that nobody answered."""
        if self._packet and not self._conversation.blind:
            if event.end == "open":
                self.pass_time(now_ns)
            if not self._late:
                _report_unanswered(self._findings, self._request(), event.end == "open", 0)


class RequestReply(Rules):
    """One connection between sockets that may have several requests under way."""

    def __init__(self, conversation: Conversation, findings: Findings, forwarding: Forwarding, timeout_ns: int) -> None:
        """Look at the connection from its first message on."""
        self._conversation = conversation
        self._findings = findings
        self._forwarding = forwarding
        self._timeout_ns = timeout_ns
        types = conversation.types
        # A REP socket needs the delimiter, answers in order, and never asks.
        self._strict = "REP" in types.values()
        self._requester = next((address for address, kind in types.items() if kind != "REP"), None)
        if not self._strict:
            self._requester = None  # who speaks first
        self._to_router = "ROUTER" in types.values()
        # Requests without a reply; the first ones have waited for longest.
        self._pending: deque[_Request] = deque(maxlen=_PENDING)
        self._late = False  # the first of them was reported
        self.message = self._take

    def _take(self, event: Message) -> None:
        if self._strict:
            envelope = _envelope_of(event, self._findings)
        else:
            # Between DEALER and ROUTER anything may be in front of an empty frame; libzmq's own identities can be told.
            envelope = _envelope(event.frames)
            if envelope is not None and not all(map(_is_identity, event.frames[: envelope.identities])):
                envelope = None
        event.envelope = envelope
        identities = tuple(event.frames[: envelope.identities]) if envelope is not None else ()
        if self._requester is None:
            self._requester = event.src
        if event.src == self._requester:
            self._request(event, identities)
        else:
            self._reply(event, identities)

    def _request(self, event: Message, identities: tuple[Octets, ...]) -> None:
        if identities:
            event.forwards = self._forwarding.find(event)
        if self._to_router and event.envelope is not None:
            self._forwarding.begin(event)
        self._pending.append(_Request(event.time_ns, event.packet, event.flow, event.src, event.dst, identities))

    def _reply(self, event: Message, identities: tuple[Octets, ...]) -> None:
        pending = self._pending
        if not pending:
            if self._strict and not self._conversation.blind:
                self._findings.report("reply-without-request", event, "a reply to which no request was seen")
            return
        request = pending[0]
        if len(pending) == 1 or request.identities == identities:
            pending.popleft()
        else:  # replies through a proxy come in any order, to whom their envelope says
            request = next((one for one in pending if one.identities == identities), request)
            pending.remove(request)
        self._late = self._late and bool(pending)
        event.latency_ns = event.time_ns - request.time_ns
        event.request = request.packet

    def pass_time(self, now_ns: int) -> None:
        """Report a request that has waited for too long, once."""
        if self._pending and self._strict and not self._late and not self._conversation.blind:
            request = self._pending[0]
            if now_ns - request.time_ns > self._timeout_ns:
                self._late = True
                _report_late(self._findings, request, self._timeout_ns)

    def finish(self, event: Connection, now_ns: int) -> None:
        """Report the requests that nobody answered."""
        if self._pending and self._strict and not self._conversation.blind:
            if event.end == "open":
                self.pass_time(now_ns)
            if not self._late:
                _report_unanswered(self._findings, self._pending[0], event.end == "open", len(self._pending) - 1)


def request_reply(conversation: Conversation, findings: Findings, forwarding: Forwarding, timeout_ns: int) -> Rules:
    """The rules for a connection between sockets of request-reply types."""
    kinds = sorted(conversation.types.values())
    if kinds in (["DEALER", "DEALER"], ["ROUTER", "ROUTER"]):
        return Rules()  # two equals: nothing tells whether one answers the other
    kind = LockStep if "REQ" in conversation.types.values() else RequestReply
    return kind(conversation, findings, forwarding, timeout_ns)


def _report_late(findings: Findings, request: _Request, timeout_ns: int) -> None:
    findings.report("request-unanswered", request, f"no reply to this request within {timeout_ns / 1e9:g} s")


def _report_unanswered(findings: Findings, request: _Request, is_open: bool, more: int) -> None:
    """Report a request without a reply at the end, a note if the reply may have come a moment later."""
    what = "the capture ended" if is_open else "the connection was closed"
    others = f", nor to {more} after it" if more else ""
    findings.report(
        "request-unanswered", request, f"no reply to this request before {what}{others}", "note" if is_open else None
    )


def _envelope_of(event: Message, findings: Findings) -> Envelope | None:
    """The envelope of a message that must have one."""
    envelope = _envelope(event.frames)
    if envelope is None and not event.incomplete:
        detail = "a message without the empty frame that a REQ or REP socket needs"
        findings.report("no-delimiter", event, detail)
    return envelope


def _envelope(frames: list[Octets]) -> Envelope | None:
    try:
        return _interned(frames.index(b""))
    except ValueError:
        return None


@lru_cache(256)
def _interned(identities: int) -> Envelope:
    return Envelope(identities, True)


_DELIMITER_ONLY = _interned(0)


def _is_identity(frame: Octets) -> bool:
    return isinstance(frame, bytes) and len(frame) == _LIBZMQ_IDENTITY and frame[0] == 0
