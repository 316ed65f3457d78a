"""Requests and replies inside CURVE that no key opens: their boxes show which message is which.

Theory
------

CURVE hides contents, but neither senders nor lengths. In the handshake each side announces its socket type, and some
types an identity, too. libzmq's REP announces 19 octets; its REQ 32, its DEALER 35, and more with an identity. PUB and
SUB announce 19 as well. But if one of two sockets announces 19, and the other one at least 32, these are a REP and
somebody who asks it. Both put an empty frame, the delimiter, in front of each message, whose box has 17 octets. No
heartbeat and no subscription is that short.

A REQ waits after it has asked. So its first box of 17 octets is a request, and the first one of a REP that had seen it
is the reply. Later ones, until then, are frames of the same message.

A DEALER goes on to ask. Then each delimiter stands for a message only if no other frame is empty. The envelope tells:
a REP answers in turn, and copies the frames in front of the delimiter. So the box in front of a reply's delimiter is as
long as that of the request that has waited longest, and the last frame of the message before is in front of that.
Without an envelope nothing tells an empty frame of a request from another request, so there the DEALER must wait as a
REQ does. Where one message does not fit, nothing is said of the connection.

So :class:`~zmtpsniff.analysis.findings.unanswered_requests.Requests` counts these connections like all others. Who
passed a message on is not known: nothing joins two connections. But a program that waits for a reply of its own is not
slow. So the time in which requests of its host were open is left out of its latency. That holds if all that the host
does is seen: if each of its other connections is one of those told apart here, as far as it is not one of the same
socket.

A REQ that talks to a ROUTER may be a worker: it says that it is ready, then waits for work for hours. So there is no
finding about it.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from dissectors.address import host_of, is_loopback
from dissectors.events import Command, Connection, Greeting, Message, at_hand
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.exchanges import ExchangeCount
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.findings.unanswered_requests import Requests
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import about, nanoseconds

_AUTHENTICATOR = 16  # octets of a box beside its content
_IDENTIFIED = 128  # octets of INITIATE's box before the metadata: the client's key, and the vouch
_REQ, _REP = 32, 19  # octets that they announce
_DELIMITER = _AUTHENTICATOR + 1  # octets of the box of an empty frame: only its flags are in it
_WAITING = 1000  # requests of one connection
_PING = _AUTHENTICATOR + 8  # octets of the box of a heartbeat
_MOST = 10_000  # connections at a time
_SOCKETS = 16  # of one host, that are not told apart
_KNOWN = (
    "CURVE hides what is said, but not how long it is: the two sides announce as much as {asker} and a REP, and their "
    "messages have the empty frame in front; none comes back after this request"
)


class Announcements:
    """How many octets both sides announce in the handshake of CURVE, by flow."""

    def __init__(self) -> None:
        """Start without any."""
        self._octets: Ledger[int, dict[str, int]] = Ledger(dict)

    def of_both(self, dossier: Dossier, event: Command) -> dict[str, int] | None:
        """Take a command. Returns the octets by address if it is the announcement that was missing, else None."""
        if event.name not in ("INITIATE", "READY") or not isinstance(event.box, bytes) or dossier.blind:
            return None
        announced = self._octets.at(event.flow)
        announced[event.src] = len(event.box) - _AUTHENTICATOR - (_IDENTIFIED if event.name == "INITIATE" else 0)
        return announced if len(announced) == 2 else None

    def end(self, flow: int) -> None:
        """A connection is over."""
        self._octets.pop(flow, None)


class _Request(msgspec.Struct, eq=False):
    """A request in boxes."""

    time_ns: int
    packet: int
    offset: int  # in the stream of its sender
    before: int  # length of the box in front of its delimiter; 0 if there is none
    waited_ns: int  # so long the host of the replier had waited for others by then


class _Frames(msgspec.Struct, eq=False):
    """The boxes of one side since its last delimiter: the end of one message, and the envelope of the next one."""

    is_first: bool = True  # no message came before
    count: int = 0
    last: int = 0  # length of the last one


class _HostWaits(msgspec.Struct, eq=False):
    """How long a host has waited for replies to its own requests: while one is open, and while another one is, too."""

    open: int = 0
    changed_ns: int = 0
    waited_ns: tuple[int, int] = (0, 0)

    def at(self, time_ns: int) -> tuple[int, int]:
        """Both sums at that time."""
        one, two = self.waited_ns
        passed_ns = max(time_ns - self.changed_ns, 0)
        return one + passed_ns * (self.open >= 1), two + passed_ns * (self.open >= 2)

    def change(self, time_ns: int, more: int) -> None:
        """So many more requests are open."""
        self.waited_ns = self.at(time_ns)
        self.changed_ns = max(self.changed_ns, time_ns)
        self.open += more


class _SealedExchange(msgspec.Struct, eq=False):
    """The boxes of one connection between a REP and who asks it."""

    asker: str
    replier: str
    count: ExchangeCount
    asker_waits: _HostWaits
    replier_waits: _HostWaits
    in_turns: bool  # the asker is a REQ
    has_envelope: bool = False
    heard: int = 0  # the replier had read so much of the asker's stream when it last sent a delimiter
    asks: _Frames = msgspec.field(default_factory=_Frames)
    answers: _Frames = msgspec.field(default_factory=_Frames)
    waiting: deque[_Request] = msgspec.field(default_factory=deque)

    def take(self, event: Command) -> bool:
        """Take a MESSAGE. Return whether it fits those before."""
        length = len(at_hand(event.box or b""))
        frames = self.asks if event.src == self.asker else self.answers
        if length != _DELIMITER:
            frames.count += 1
            frames.last = length
            # A REP says nothing before it is asked. A SUB of another library, that announces as much, subscribes.
            return frames is self.asks or self.count.asked > 0 or length == _PING
        if self.in_turns:
            return self._take_turn(event)
        if frames.is_first and frames is self.asks:
            self.has_envelope = frames.count > 0
        has_room = frames.count >= self.has_envelope + (not frames.is_first)
        before = frames.last
        frames.is_first, frames.count, frames.last = False, 0, 0
        if not has_room:
            return False
        if frames is self.asks:
            self._ask(event, before)
            return len(self.waiting) <= (_WAITING if self.has_envelope else 1)
        if not self.waiting or event.seen <= self.waiting[0].offset:
            return False
        asked = self.waiting[0].before
        self._answer(event)
        return not self.has_envelope or asked == before

    def _take_turn(self, event: Command) -> bool:
        if event.src == self.asker:
            # While one waits, it is a frame of the same request. The reply may stand before it in the capture.
            if not self.waiting and event.offset >= self.heard:
                self._ask(event, 0)
            return True
        self.heard = max(self.heard, event.seen)
        if self.waiting and event.seen > self.waiting[0].offset:
            self._answer(event)
        return True

    def _ask(self, event: Command, before: int) -> None:
        waited_ns = self._waited_ns(event.time_ns)
        self.waiting.append(_Request(event.time_ns, event.packet, event.offset, before, waited_ns))
        self.asker_waits.change(event.time_ns, 1)
        self._count(event, None)

    def _answer(self, event: Command) -> None:
        request = self.waiting.popleft()
        waited_ns = self._waited_ns(event.time_ns) - request.waited_ns
        self.asker_waits.change(event.time_ns, -1)
        if waited_ns:
            self.count.pauses = deque()  # which would be held against another time
        self._count(event, max(event.time_ns - request.time_ns - waited_ns, 0))

    def _waited_ns(self, time_ns: int) -> int:
        """How long the replier's host has waited for others, without the requests of this connection."""
        return self.replier_waits.at(time_ns)[self.replier_waits is self.asker_waits]

    def _count(self, event: Command, latency_ns: int | None) -> None:
        place = event.time_ns, event.packet, event.flow, event.src, event.dst
        self.count.take([Message(*place, frames=[b""], offset=event.offset, latency_ns=latency_ns)])

    def stop(self, time_ns: int) -> None:
        """The connection is over, so its requests wait no longer."""
        self.asker_waits.change(time_ns, -len(self.waiting))


class _Silence(msgspec.Struct, eq=False):
    """Requests of one host that one REP does not answer."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    asker: str = "a REQ"
    answered: int = 0
    longest_ns: int = 0
    flows: list[int] = []


class SealedRequests(Inquiry):
    """Requests and replies in boxes."""

    def __init__(self, requests: Requests, timeout_seconds: float = REPLY_SECONDS) -> None:
        """``requests`` counts them; ``timeout_seconds`` is how long a request may wait for its reply."""
        self._requests = requests
        self._timeout_ns = nanoseconds(timeout_seconds)
        self._announcements = Announcements()
        self._exchanges: dict[int, _SealedExchange] = {}
        self._waits: Ledger[str, _HostWaits] = Ledger(_HostWaits)
        self._repliers: Ledger[str, None] = Ledger()  # sockets of such connections
        self._silences: Ledger[tuple[str, str], _Silence] = Ledger(_Silence, 1000)
        self._met: Ledger[int, None] = Ledger()  # flows with a MESSAGE
        self._ends: Ledger[str, list[str]] = Ledger(list)  # by host: two addresses that it has on such flows
        # By host: its sockets with connections that are not told apart here.
        self._unknown: Ledger[str, dict[str, None]] = Ledger(dict)

    def may_ask(self, address: str) -> bool:
        """Whether the host of a socket has another one whose messages no key opens: it may wait for a third."""
        return any(end != address for end in self._ends.get(host_of(address), ()))

    def hides_waits(self, address: str) -> bool:
        """Whether the host of a socket may wait for a third, and that is not left out of the socket's latencies."""
        if address not in self._repliers:
            return self.may_ask(address)
        return any(end != address for end in self._unknown.get(host_of(address), ()))

    def greeting(self, dossier: Dossier, event: Greeting) -> None:
        """Note that a host does something, of which nothing more is known yet."""
        self._forget(event.src)
        self._forget(event.dst)

    def _forget(self, address: str) -> None:
        unknown = self._unknown.at(host_of(address))
        if len(unknown) < _SOCKETS:
            unknown[address] = None

    def command(self, dossier: Dossier, event: Command) -> None:
        """Learn how much a side announces."""
        announced = self._announcements.of_both(dossier, event)
        if announced is not None and len(self._exchanges) < _MOST:
            replier, asker = sorted(announced, key=announced.__getitem__)
            if announced[replier] == _REP and announced[asker] >= _REQ:
                self._begin(event.flow, asker, replier, in_turns=announced[asker] == _REQ)

    def _begin(self, flow: int, asker: str, replier: str, in_turns: bool) -> None:
        """The boxes of a connection are requests and replies."""
        count = self._requests.open_boxes(flow, asker, replier)
        asker_waits, replier_waits = (self._waits.at(host_of(one)) for one in (asker, replier))
        self._exchanges[flow] = _SealedExchange(asker, replier, count, asker_waits, replier_waits, in_turns)
        self._repliers.at(replier)
        for one in (asker, replier):
            unknown = self._unknown.at(host_of(one))
            if len(unknown) < _SOCKETS:
                unknown.pop(one, None)

    def sealed(self, event: Command) -> None:
        """Take a MESSAGE, if it is a request or a reply."""
        exchange = self._exchanges.get(event.flow)
        if exchange is not None and not exchange.take(event):
            self._stop(event.flow, event.time_ns)
        if event.flow not in self._met:
            self._met.at(event.flow)
            for end in (event.src, event.dst):
                ends = self._ends.at(host_of(end))
                if len(ends) < 2 and end not in ends and not is_loopback(end):  # programs share loopback
                    ends.append(end)

    def lose(self, dossier: Dossier) -> None:
        """The missing octets may be the reply."""
        self._stop(dossier.flow, dossier.start_ns)

    def _stop(self, flow: int, time_ns: int) -> None:
        """Say nothing of a connection: it is not clear what its boxes are."""
        exchange = self._exchanges.pop(flow, None)
        if exchange is not None:
            exchange.stop(time_ns)
            self._requests.forget_boxes(flow)
            self._forget(exchange.asker)
            self._forget(exchange.replier)

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Look whether a request waits."""
        self._announcements.end(event.flow)
        exchange = self._exchanges.pop(event.flow, None)
        if exchange is None:
            return
        exchange.stop(until_ns)
        oldest = exchange.waiting[0] if exchange.waiting else None
        if oldest is None or until_ns - oldest.time_ns < self._timeout_ns:
            return
        silence = self._silences.at((host_of(exchange.asker), exchange.replier))
        silence.asker = "a REQ" if exchange.in_turns else "a DEALER"
        silence.seen.add(oldest.time_ns, oldest.packet, event.flow, len(exchange.waiting))
        silence.answered += exchange.count.answered
        silence.longest_ns = max(silence.longest_ns, until_ns - oldest.time_ns)
        silence.flows.append(event.flow)

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Each REP that does not answer a host."""
        for (host, replier), silence in self._silences.items():
            if all(map(self._requests.tells_of, silence.flows)):
                continue  # of a worker among others
            after = f", after {plural(silence.answered, 'reply')}" if silence.answered else ""
            requests = f"{plural(silence.seen.count, 'request')} under CURVE"
            summary = f"{replier} does not answer {host}: {requests} without a reply for "
            summary += f"{about(silence.longest_ns)}{after}"
            known = _KNOWN.format(asker=silence.asker)
            yield Claim(
                "request-unanswered", summary, known, silence.seen, [replier], certainty="likely", waiting={host}
            )
