"""Counts of requests and replies: of one connection while it lasts, and of the service at one address."""

from collections import deque
from collections.abc import Sequence
from heapq import heappush, heappushpop
from sys import byteorder
from typing import Literal, NamedTuple

import msgspec

from dissectors.columns import ASKED
from dissectors.events import Connection, Message, Octets, at_hand
from zmtpsniff.analysis.dossier import says_ready
from zmtpsniff.analysis.findings.finding import Occurrences
from zmtpsniff.analysis.findings.rhythms import Rhythm, packed, unpacked
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.net.witness import Pause

_TURNS = 5  # so many replies show that a service answers its peer
_UNASKED = 0.1  # of the replies of a service may come while nothing waits: heartbeats
_SKETCHED = 50  # a sketch knows durations to a part that is less than one of so many
PENDING = 64
"""Requests to remember of one connection."""
INFERRED = "; that these sockets ask and reply is inferred from their messages"
"""Told of a service whose sockets do not announce their types."""
SEALED = (
    "; CURVE hides what they say, but the empty frames in front of messages tell requests from replies; time in which "
    "that host itself waited for a reply is left out"
)
"""Told of a service whose messages no key opens."""
SLOWEST = 4
"""Slow replies to remember of each service."""


class SlowReply(NamedTuple):
    """A reply that took long; the slower is the greater."""

    latency_ns: int
    time_ns: int
    packet: int
    flow: int
    acked_ns: int | None  # how long it took until the host of the service acknowledged the request
    transfer_ns: int  # from the first octets of the reply to the last; 0 if a few packets held it
    resent_ns: int  # pauses that ended with octets sent again, so that the network may have lost them

    @property
    def spell(self) -> tuple[int, int]:
        """When the request came, and when its reply was there."""
        return self.time_ns - self.latency_ns, self.time_ns

    @property
    def takes(self) -> Literal["service", "transfer", "resending"]:
        """The part that takes most of the time. Before the first octet it is the service, or the way to it."""
        if 2 * self.resent_ns >= self.latency_ns:
            return "resending"
        return "transfer" if 2 * self.transfer_ns >= self.latency_ns else "service"


class ExchangeCount(msgspec.Struct, eq=False):
    """The requests and replies of one connection while it lasts."""

    pauses: deque[Pause]  # of its connection; those in a batch are known before its messages
    strict: bool  # patterns know which request is answered
    by_turns: bool = False  # nothing but turns shows which request a reply answers
    is_mutual: bool = False  # nor which side answers, if any does
    ends: tuple[str, ...] = ()  # the addresses of both sides
    asker: str | None = None
    is_inferred: bool = False  # the sockets have not said what they are
    is_sealed: bool = False  # no key opens the messages: their lengths tell
    is_worker: bool = False  # the side that spoke first only said that it is ready
    greets: bool = False  # it said a word first, and no word after that, so perhaps its peer asks
    asked: int = 0
    answered: int = 0
    in_turns: int = 0  # how often every request so far had its reply
    # Time, packet, part: without a reply.
    pending: deque[tuple[int, int, int]] = msgspec.field(default_factory=lambda: deque(maxlen=PENDING))
    latencies: Sketch = msgspec.field(default_factory=Sketch)
    slowest: list[SlowReply] = []  # a heap
    last_ns: int = 0  # when its last message came
    blind: bool = False
    # Of the side that answers, and of the one that asks, where the protocol does not say what waits for what.
    rhythms: Sequence[Rhythm] = ()

    @property
    def takes_turns(self) -> bool:
        """Whether each reply so far came when one request was open, and there were several."""
        return self.in_turns == self.answered >= _TURNS

    @property
    def has_roles(self) -> bool:
        """Whether it is known that one side asks and the other one answers."""
        if self.greets and self.asked > 1 and (self.blind or self.in_turns == min(self.asked, self.answered)):
            return False
        return self.takes_turns or not self.is_mutual

    def latest_ns(self, timeout_ns: int, told: int) -> int | None:
        """How long the slowest reply took if as many came after the timeout as requests were told, else None."""
        late = self.latencies.above(timeout_ns - timeout_ns // _SKETCHED)
        return self.latencies.maximum if late >= told and not self.blind else None

    def take(self, messages: Sequence[Message]) -> None:
        """Count messages."""
        pending = self.pending
        for event in messages:
            if self.asker is None:
                self._begin(event)
            if self.rhythms and self.asker is not None:
                asks = event.src == self.asker
                self.rhythms[asks].say(event.time_ns, event.offset)
                self.rhythms[not asks].hear(event.time_ns)
            if event.src == self.asker and event.paired == "id":
                self._swap_roles(event)
            if event.src == self.asker:
                if self.asked == 1:
                    self.greets = self.greets and not _is_word(event.frames)
                self.asked += 1
                pending.append((event.time_ns, event.packet, event.part))
                continue
            if not self.asked:
                continue
            latency = self._turn_ns(event) if self.by_turns else event.latency_ns
            self.answered += 1
            if pending:
                self._take_off(event)
                if not pending:
                    self.in_turns += 1
            if latency is None or self.is_worker:
                continue
            self.latencies.add(latency)
            if len(self.slowest) < SLOWEST or latency > self.slowest[0].latency_ns:
                self._keep_slow(event, latency)

        self.last_ns = messages[-1].time_ns

    def _swap_roles(self, reply: Message) -> None:
        """The side that spoke first answers: its first message only said that it is there."""
        self.asker, self.rhythms = reply.dst, self.rhythms[::-1]
        self.asked, self.answered, self.in_turns, self.greets = 1, 0, 0, False
        self.pending.clear()

    def _turn_ns(self, reply: Message) -> int | None:
        """How long a reply took, if both sides took turns so far; else nobody knows which request it answers."""
        if self.in_turns == self.answered and len(self.pending) == 1:
            return reply.time_ns - self.pending[0][0]
        self.latencies, self.slowest = Sketch(), []
        return None

    def _keep_slow(self, event: Message, latency: int) -> None:
        """Remember one of the slowest replies."""
        transfer = 0 if event.begun_ns is None else min(event.time_ns - event.begun_ns, latency)
        acked, resent = self._acked_ns(event, latency), self._resent_ns(event, latency)
        slow = SlowReply(latency, event.time_ns, event.packet, event.flow, acked, transfer, resent)
        (heappush if len(self.slowest) < SLOWEST else heappushpop)(self.slowest, slow)

    # ------------------------------------------------------------------ messages in columns

    def facts(self) -> tuple[bytes, bytes, bytes]:
        """The requests that wait, the latencies of the slowest replies, and the rhythms, for the native core."""
        pending = b"".join(ASKED.pack(*one) for one in self.pending)
        latencies = b"".join(slow.latency_ns.to_bytes(8, byteorder) for slow in self.slowest)
        return pending, latencies, packed(self.rhythms)

    def go_on_from(
        self, asked: int, answered: int, in_turns: int, last_ns: int, pending: bytes, rhythms: bytes
    ) -> None:
        """Go on behind messages that the native core has counted, at least one."""
        self.asked += asked
        self.answered += answered
        self.in_turns += in_turns
        self.last_ns = last_ns
        self.pending = deque(ASKED.iter_unpack(pending), PENDING)
        self.rhythms = unpacked(rhythms)

    def add(self, slow: Sequence[Message], sums: tuple[int, int, int, int, list[tuple[int, int]]]) -> None:
        """Count the latencies of such messages: their ``sums``, and those that were ``slow`` when they came."""
        if not self.is_worker:
            self.latencies.add_all(*sums)
            for event in slow:
                self._keep_slow(event, event.latency_ns or 0)

    def _take_off(self, reply: Message) -> None:
        """One of those that wait has its reply: the one that it answers, if that is known, else the first."""
        pending = self.pending
        place = reply.request, reply.request_part
        if reply.request is None or pending[0][1:] == place:
            pending.popleft()
        else:
            del pending[next((at for at, one in enumerate(pending) if one[1:] == place), 0)]

    def _acked_ns(self, event: Message, latency_ns: int) -> int | None:
        """How long the service's host took to acknowledge the request of a reply, if the capture shows it."""
        asked_ns = event.time_ns - latency_ns
        for pause in self.pauses:
            if asked_ns < pause.until_ns <= event.time_ns:
                acked_ns = pause.sender_acked_ns if pause.sender == event.src else pause.receiver_acked_ns
                if acked_ns >= asked_ns:
                    return acked_ns - asked_ns
        return None

    def _resent_ns(self, event: Message, latency_ns: int) -> int:
        """How long nothing came before octets that were sent again, while a reply was waited for."""
        asked_ns = event.time_ns - latency_ns
        return sum(
            pause.until_ns - max(pause.since_ns, asked_ns)
            for pause in self.pauses
            if pause.resent is not None and asked_ns < pause.until_ns <= event.time_ns
        )

    def _begin(self, event: Message) -> None:
        frames = event.frames
        if frames == [b""]:
            return  # ZMQ_PROBE_ROUTER
        self.is_worker = says_ready(frames)
        self.greets = not (self.strict or self.is_worker) and _is_word(frames)
        self.asker = event.dst if self.is_worker else event.src


def _is_word(frames: Sequence[Octets]) -> bool:
    """Whether the body of a message is a word, such as HELLO."""
    return at_hand(frames[-1]).isalpha()


class Suspect:
    """A connection on which requests waited when it ended: ``missing`` so many, for ``waited_ns``."""

    __slots__ = (
        "answered", "asker", "asker_kind", "closed", "doubt", "flow", "is_sealed", "missing", "oldest", "replier",
        "strict", "took_turns", "until_ns", "waited_ns",
    )  # fmt: skip

    def __init__(self, exchange: ExchangeCount, event: Connection, until_ns: int) -> None:
        """Take what is known of a connection that ended at ``until_ns``."""
        client, server = event.client.address, event.server.address
        self.asker = str(exchange.asker)
        self.replier = server if self.asker == client else client
        self.asker_kind = (event.client if self.asker == client else event.server).socket_type
        self.answered, self.missing = exchange.answered, exchange.asked - exchange.answered
        self.oldest = exchange.pending[0]
        # Of two that may both ask, one message more may only tell something, and many more are no questions.
        is_asked = not exchange.is_mutual or 1 < self.missing <= self.answered
        # A peer that speaks while nothing waits answers nothing then, and perhaps never.
        unasked = len(exchange.pending) - self.missing
        self.took_turns = exchange.in_turns >= _TURNS and is_asked and unasked <= self.answered * _UNASKED
        self.strict = exchange.strict
        self.is_sealed, self.doubt = exchange.is_sealed, _doubt(exchange)
        # It closed the connection, and not its peer.
        self.closed = event.closer is not None and event.closer.address == self.replier
        self.flow = event.flow
        self.until_ns, self.waited_ns = until_ns, until_ns - self.oldest[0]

    @property
    def seen(self) -> Occurrences:
        """The requests that wait, with the packet of the oldest."""
        seen = Occurrences()
        time_ns, packet, _ = self.oldest
        seen.add(time_ns, packet, self.flow, self.missing)
        return seen


class ServiceCount(msgspec.Struct, eq=False):
    """One bound address, whose peers ask, or are asked by it."""

    # Of connections on which there were replies:
    asked: int = 0
    answered: int = 0
    last_ns: int = 0  # when the last message came or went
    is_inferred: bool = False  # at least one of these has sockets that have not announced their types
    by_turns: bool = False  # likewise: nothing but turns shows which message answers which
    is_sealed: bool = False  # likewise: no key opens their messages
    suspects: list[Suspect] = []
    latencies: Sketch = msgspec.field(default_factory=Sketch)
    slowest: list[SlowReply] = []
    workers: dict[str, "ServiceCount"] = {}  # by address, if it deals its requests out to its peers

    def take(self, exchange: ExchangeCount) -> None:
        """Add a connection that is over."""
        if exchange.answered:
            self.asked += exchange.asked
            self.answered += exchange.answered
        self.last_ns = max(self.last_ns, exchange.last_ns)
        self.is_inferred |= exchange.is_inferred or exchange.by_turns
        self.by_turns |= exchange.by_turns
        self.is_sealed |= exchange.is_sealed
        if not exchange.by_turns or (exchange.takes_turns and not exchange.blind):
            self.latencies.join(exchange.latencies)
            for slow in exchange.slowest:
                (heappush if len(self.slowest) < SLOWEST else heappushpop)(self.slowest, slow)

    @property
    def doubt(self) -> str:
        """A clause that says why its requests and replies are not certain; empty if they are."""
        return _doubt(self)

    @property
    def answers(self) -> bool:
        """Whether the socket usually answers messages, or its workers do."""
        return self.answered > 0 and 0.8 * self.asked <= self.answered <= 1.25 * self.asked + 1


def _doubt(counted: ExchangeCount | ServiceCount) -> str:
    return SEALED if counted.is_sealed else INFERRED if counted.is_inferred else ""


class UnansweredRequests(msgspec.Struct, eq=False):
    """Requests of one host to one address that got no reply."""

    flows: dict[int, Occurrences] = {}
    details: dict[str, None] = {}
    waiting: int = 0  # how many waited when their connections ended, those behind the one that is told as well
    has_waited: bool = False  # one of them for long enough
    is_at_end: bool = True  # of the capture: the replies may have come later
