"""A message on its way, and the way that it belongs to, while more legs may come."""

import re
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from string import ascii_letters, digits
from typing import Any

import msgspec

from dissectors.address import has_bound_port, is_loopback
from dissectors.events import Octets, at_hand
from dissectors.snapshots import quick
from zmtpsniff.analysis.dossier import WORK_FRAMES, has_envelope_inside
from zmtpsniff.analysis.ways.records import Joined, Kind, Leg

_UNSEEN = 65_536  # messages of one sender on a connection that were not acknowledged
RECEIPTS = 128
"""Acknowledgments of one sender on a connection whose messages have not come."""
_TOKENS_OCTETS = 4096  # of a message that are searched for tokens
_MOST_TOKENS = 64
_FRAMES = 1024  # whose tokens are remembered
TRACEPARENT = re.compile(rb"\b00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}\b")
"""The ids of a trace and of a span in it (W3C Trace Context)."""
# A word with a digit, of at least four characters: a number, an id, a UUID. Of a traceparent the id of the trace alone,
# which all its spans have.
_TOKEN = re.compile(TRACEPARENT.pattern + rb"|([A-Za-z0-9_][\w-]{2,62}[A-Za-z0-9_])")
GIVEN = 1024
"""Requests on one connection that are looked through, to find the one of a reply."""
_NO_ACCIDENT = 16  # observations in a row
PATIENCE_NS = 60_000_000_000
"""A request may get its reply so much later."""
_ANSWERS = 3  # that others got, to show that a message of the same kind expects one
GUESSES = frozenset({"body", "correlation", "envelope"})
"""Joins to the message before that prove nothing where another join is possible."""
BY_SERVICES = frozenset({"order", "process", "correlation"})
"""Joins of a question that a service asks to the request that it works on."""
_DIGIT = re.compile(rb"\d")
_OF_WORDS = (ascii_letters + digits + "_-").encode()


@quick
class RequestCount(msgspec.Struct, gc=False):
    """How often a side of a connection, or all peers of a socket, asked, and got an answer."""

    asked: int = 0
    answered: int = 0

    def gives_others_replies(self, mine: "RequestCount") -> bool:
        """Whether other peers of a socket got answers to nearly all that they asked."""
        asked, answered = self.asked - mine.asked, self.answered - mine.answered
        return answered >= _ANSWERS and 5 * answered >= 4 * asked


class SharedFacts(msgspec.Struct):
    """The form that both sides of a connection give to their messages, and how they part."""

    uses_delimiter: bool = False  # an empty frame stands in front of the bodies of requests
    depth: int = 0  # of the envelope of each request that is passed on here, at least; 0: none was
    upstream: str | None = None  # the address of who passed requests on here
    has_ready_worker: bool = False  # a REQ said first that it is ready, so that its peer's messages are requests
    closed_ns: int | None = None  # when the connection was closed
    closer: str | None = None  # the address of who closed it; None if it is open, or nobody knows


class Receipts(msgspec.Struct):
    """When the octets of one sender on a connection were acknowledged.

    A message may come here long after its acknowledgment: if it waited for lost octets, or for its connection to be
    recognised. Those before the first acknowledgment that is known may have been acknowledged before that.
    """

    waiting: "deque[Hop]" = msgspec.field(default_factory=lambda: deque(maxlen=_UNSEEN))  # for acknowledgments
    known: deque[tuple[int, int]] = msgspec.field(default_factory=deque)  # when, up to where; behind the last message
    since: int = -1  # the stream offset from which on they are known
    acked: int = -1  # that was acknowledged last

    def acknowledge(self, time_ns: int, offset: int) -> None:
        """The receiver has all octets up to ``offset``."""
        if offset <= self.acked:
            return
        if self.acked < 0:
            self.since = offset
        self.acked = offset
        self.known.append((time_ns, offset))
        waiting = self.waiting
        while waiting and waiting[0].offset < offset:
            self._tell(waiting.popleft(), time_ns)

    def trim(self) -> None:
        """The messages of the same packets have come: keep few, since a connection may never have a message."""
        while len(self.known) > RECEIPTS:
            _, self.since = self.known.popleft()

    def expect(self, hop: "Hop") -> None:
        """A message comes, behind those before."""
        known, offset = self.known, hop.offset
        while known and known[0][1] <= offset:
            known.popleft()
        if known:
            self._tell(hop, known[0][0])
        else:
            self.waiting.append(hop)

    def _tell(self, hop: "Hop", time_ns: int) -> None:
        if hop.offset >= self.since and hop.time_ns <= time_ns:
            hop.seen_ns = time_ns


class Streak(msgspec.Struct, eq=False):
    """The same observation, time after time."""

    seen: str | int = 0
    times: int = 0

    def proves(self, seen: str | int) -> bool:
        """It is observed once more; returns whether it came so often in a row that it is no accident."""
        self.times = self.times + 1 if seen == self.seen else 1
        self.seen = seen
        return bool(seen) and self.times >= _NO_ACCIDENT


@quick
class Stream(msgspec.Struct):
    """The facts of a connection that hold for each message of one of its sides."""

    src_kind: str  # socket types; "" for one that is not known
    dst_kind: str
    src_host: str  # live, once it is known: the process
    dst_host: str
    own_requests: RequestCount
    shared: SharedFacts
    receipts: Receipts
    connected_ns: int = 0  # when the connection was made
    round_trip_ns: int = 0  # from the capture point to the receiver's host and back
    # Pauses that octets ended which the sender sent again: where these begin in its stream, and when that was.
    resent: list[tuple[int, int]] = []
    answered_ns: int = 0  # when the message came that the receiver answered last
    identity: Octets = b""  # that the sender, and the receiver, announced
    dst_identity: Octets = b""
    unanswered: dict["Hop", None] = {}  # messages that the sender passed on, and that are not answered
    sends: Kind | None = "request"  # what the messages are; a reply is a part of a request
    knows_sender: bool = False  # src_host is one process, not a host with several
    knows_receiver: bool = False
    is_late: bool = False  # the capture lacks the beginning of the connection
    # If a PUSH gives the replies: the forms of messages that got some, and how many asked since, and got one.
    pushed_forms: dict[tuple[int, bytes], RequestCount] | None = None
    has_ids: bool = False  # ids in the bodies tell which message answers which, and whether others like it got replies
    is_proven: bool = False  # guesses have joined its last messages so regularly that chance does not explain it
    source: Streak | None = None  # of copies: the socket that most likely took their originals
    asked: "OpenWay | None" = None  # of a REQ: the way of its last request
    # By depth of its envelope: when the receiver last sent something that may be the reply to any message.
    possible_reply_ns: dict[int, int] = {}
    all_requests: RequestCount = msgspec.field(
        default_factory=RequestCount
    )  # of all peers of this type that the receiver has

    def note_source(self, before: "Hop") -> None:
        """The next message most likely comes of that one."""
        if self.source is None:
            self.source = Streak()
        self.is_proven = self.source.proves(before.dst)


@quick
class Hop(msgspec.Struct, eq=False):
    """A message that arrives at a socket."""

    # As its Leg has them, which would take time and room for each message.
    src: str
    dst: str
    flow: int
    packet: int
    time_ns: int
    part: int
    stream: Stream
    frames: Sequence[Octets]
    offset: int = 0  # in the stream of its sender, where the octets begin that completed it
    seen_ns: int | None = None  # as its Leg has these, too
    reply: bool = False
    joined: Joined | None = None
    certain: bool = True
    way: "OpenWay" = None  # type: ignore[assignment]  # until it is joined
    before: "Hop | None" = None
    held_as: int | None = None  # while the receiver may pass it on: a number for its last frame
    number: int = 0  # of a request, in which order they came to its receiver's host
    expects_reply: bool = False  # as far as it is known when it is sent, it waits for an answer
    reply_is_promised: bool = False  # its protocol promises an answer
    depth: int = 0  # of its envelope: the frames up to the delimiter; 0 if it has none
    answered: bool = False  # its receiver answered on the same connection
    is_overtaken: bool = False  # later messages came here before it, perhaps what its receiver did with it
    is_ambiguous: bool = False  # another message may be the one that was passed on in its place
    # Of an answer: meanwhile its sender asked others, and nobody knows for which request. Of a question of a service:
    # before it, that asked the same in vain.
    sender_may_have_waited: bool = False
    is_passed_on: bool = False  # its receiver sent it, or what came of it, to another socket
    mark: Any = None  # that of Ways
    routing_id: Octets = b""  # of a request that a broker passed on: of the connection that it came on
    topic: Octets = b""  # of a publication; of a request or job that begins a way: the task that it names, if any
    copied: set[int] | None = None  # of a publication: the connections that its receiver passed it on
    busy_until_ns: int = 0  # its sender worked on other messages until then
    free_ns: int = -1  # of a service with a worker for each connection: until when this one worked on others
    tokens_: frozenset[bytes] | None = None
    body_: int = 0  # of a publication that is over: a number for its last frame

    @property
    def leg(self) -> Leg:
        """Its part of the record of its way."""
        return Leg(
            self.src, self.dst, self.flow, self.packet, self.time_ns, self.part, self.seen_ns, self.reply, self.joined,
            self.certain,
        )  # fmt: skip

    @property
    def is_guess(self) -> bool:
        """Equal octets, or an envelope that others may have, join it to the message before: no proof of anything."""
        return not self.certain and self.joined in GUESSES and not self.stream.is_proven

    @property
    def shows_program(self) -> bool:
        """Whether it shows that one program has the socket that took the message before, and the one that sent it."""
        if self.is_side_publication and self.before is not None and self.before.stream.sends == "request":
            return False
        if self.joined == "order" and is_loopback(self.src):  # there all programs have one address
            return self.stream.is_proven
        return not self.is_guess

    @property
    def is_question(self) -> bool:
        """Whether a service asks it, for a request that it works on."""
        return self.joined in BY_SERVICES and self.stream.sends == "request" and not self.reply

    @property
    def may_expect_reply(self) -> bool:
        """Whether there is a sign that it expects a reply: one on its connection, or the delimiter that requests have.

        A DEALER may as well only tell its peer something, as peers of 36/ZRE do. If it was passed on, answers to other
        peers of the same type are a sign, too. If it was not, nor was anything answered there, the delimiter may be
        that of a worker that says that it is alive.
        """
        stream = self.stream
        if stream.pushed_forms is not None or stream.has_ids:
            return self.expects_reply
        if self.expects_reply or stream.own_requests.answered > 0:
            return True
        may_be_alive = stream.src_kind == "DEALER" and stream.dst_kind == "ROUTER" and not stream.all_requests.answered
        if self.depth > 0 and (self.is_passed_on or not may_be_alive):
            return True
        return self.is_passed_on and stream.all_requests.gives_others_replies(stream.own_requests)

    @property
    def may_be_answered(self) -> bool:
        """Whether its receiver sent something since that answers it, or another message of the same form."""
        return not self.reply and self.stream.possible_reply_ns.get(self.depth, 0) >= self.time_ns

    @property
    def is_side_publication(self) -> bool:
        """Whether it is published about a request: perhaps long after it, perhaps by the program that asked.

        Whoever passes that on, or gets it, has nothing of the request in hand.
        """
        return self.stream.sends == "publication" and self.way.kind == "request"

    @property
    def body(self) -> int:
        """A number for the last frame of a publication."""
        return hash(self.frames[-1]) if self.frames else self.body_

    @property
    def is_work(self) -> bool:
        """Whether a broker gives it to a REQ that works for it: behind the delimiter, the envelope of its request.

        Where the capture lacks the READY of that, or its type, the id that a ROUTER gave to the client shows it.
        """
        stream, frames = self.stream, self.frames
        if len(frames) <= WORK_FRAMES or stream.dst_kind not in ("REQ", ""):
            return False
        if stream.dst_kind and stream.shared.has_ready_worker:
            return True
        return has_envelope_inside(frames) and (stream.dst_kind == "REQ" or has_bound_port(self.src))

    @property
    def is_signal(self) -> bool:
        """Whether it is for its receiver alone: it lacks what stands in front of requests on its connection.

        So a worker says that it is ready, and both sides that they are alive (chapter 4 of the ZeroMQ guide).
        """
        shared = self.stream.shared
        return self.depth < shared.depth or (shared.uses_delimiter and not self.depth)

    @property
    def tokens(self) -> frozenset[bytes]:
        """The numbers and ids in the message, by which another one can be told to speak of the same."""
        if self.tokens_ is None:
            found: set[bytes] = set()
            left = _TOKENS_OCTETS
            for frame in self.frames:
                octets = at_hand(frame)[:left]
                left -= len(octets)
                if len(octets) < len(frame):
                    octets = octets.rstrip(_OF_WORDS)  # the rest of the last word may be missing
                found.update(_tokens_in(octets))
                if left <= 0 or len(found) >= _MOST_TOKENS:
                    break
            self.tokens_ = frozenset(found)
        return self.tokens_

    @property
    def is_unique_on_its_path(self) -> bool:
        """Of a request that was passed on: whether no other one that waits came over the same two connections."""
        given = islice(reversed(self.stream.unanswered), GIVEN)
        return not any(one is not self and one.routing_id == self.routing_id for one in given)

    def copy(self) -> "Hop":
        """The same message, as a leg of another way."""
        return Hop(
            self.src, self.dst, self.flow, self.packet, self.time_ns, self.part, self.stream, self.frames, self.offset,
            self.seen_ns, self.reply, mark=self.mark,
        )  # fmt: skip

    def measure_envelope(self) -> None:
        """Count the frames of its envelope."""
        try:
            self.depth = self.frames.index(b"") + 1
        except ValueError:
            self.depth = 0

    def may_come_of(self, before: "Hop") -> bool:
        """Whether it may be an earlier message, passed on.

        A sender, or a process, that sent the earlier one repeats it. Two messages to one socket are of two clients,
        since no program passes a message on to a socket that it came to before.
        """
        stream = before.stream
        if before.time_ns > self.time_ns or (stream.knows_sender and stream.src_host == self.stream.src_host):
            return False
        one: Hop | None = before
        while one is not None:
            if one.src == self.src or (one.dst == self.dst and not self.stream.knows_sender):
                return False
            one = one.before
        return True

    def passed_through(self, address: str) -> bool:
        """Whether this socket took it, or a message of which it comes."""
        one: Hop | None = self
        while one is not None:
            if one.dst == address:
                return True
            one = one.before
        return False

    def is_dropped(self, by_ns: int) -> bool:
        """Whether its receiver had closed the connection at ``by_ns``, and had not answered."""
        shared = self.stream.shared
        is_closed = shared.closed_ns is not None and self.time_ns <= shared.closed_ns <= by_ns
        return is_closed and not self.answered and shared.closer == self.dst

    def note_request(self) -> None:
        """It may ask for something: a REQ does, and who sends to a REP; others if most of their messages got answers.

        Where a capture begins late, a reply may stand before its request, and a guess or a rule tells the type.
        """
        stream, own = self.stream, self.stream.own_requests
        always = (stream.src_kind == "REQ" or (stream.dst_kind == "REP" and self.depth > 0)) and not stream.is_late
        if not stream.has_ids:
            self.expects_reply = always or (own.answered > 0 and 2 * own.answered >= own.asked)
        own.asked += 1
        stream.all_requests.asked += 1

    def note_answer(self) -> None:
        """Its receiver answered."""
        self.answered = True
        self.stream.unanswered.pop(self, None)
        self.stream.own_requests.answered += 1
        self.stream.all_requests.answered += 1


@lru_cache(_FRAMES)  # each leg of a way has the same body
def _tokens_in(octets: bytes) -> tuple[bytes, ...]:
    """The numbers and ids in a frame."""
    words = [match[1] or match[3] for match in _TOKEN.finditer(octets)]
    return tuple(word for word in words if _DIGIT.search(word))


def _goes_to(reply: Hop, first: Hop) -> bool:
    """Whether a reply goes to the peer of a ROUTER with the identity of the one that asked."""
    return reply.src == first.dst and reply.stream.dst_identity == first.stream.identity


@quick
class OpenWay(msgspec.Struct, eq=False):
    """A way of which more may come."""

    kind: Kind
    first: Hop  # its first message
    hops: list[Hop]
    last_ns: int
    is_over: bool = False  # it has been told, is a part of another way, or is none
    earlier: "OpenWay | None" = None  # of a request: the one before, of the same client
    is_first: bool = False  # of a request of a REQ: on its connection
    is_reassigned: bool = False  # the one that is to do it is not the first that got it
    again_ns: int = 0  # of a request of a REQ: when that asked the next one on the same connection

    @classmethod
    def begin(cls, kind: Kind, first: Hop) -> "OpenWay":
        """Begin with the first message."""
        way = first.way = cls(kind, first, [first], first.time_ns)
        return way

    @property
    def octets(self) -> int:
        """How many octets of its messages are kept."""
        return sum(len(at_hand(frame)) for hop in self.hops for frame in hop.frames)

    @property
    def is_signal(self) -> bool:
        """Whether it is no request: two programs only show each other that they are there."""
        first = self.first
        return first.is_signal and all(hop.flow == first.flow for hop in self.hops)

    @property
    def may_need_no_reply(self) -> bool:
        """Whether it is one message that perhaps asks for nothing, or only for the work that its receiver gives it."""
        first = self.first
        return len(self.hops) == 1 and (not first.expects_reply or first.stream.shared.upstream == first.dst)

    @property
    def last(self) -> Hop:
        """Its last message; of a request or a job what its receiver has in hand, not what was published about it."""
        return next(hop for hop in reversed(self.hops) if not hop.is_side_publication)

    @property
    def answer(self) -> Hop | None:
        """The reply to the first sender, perhaps on another connection that it came back on with its identity."""
        first = self.first
        for hop in self.hops:
            is_back = hop.flow == first.flow or (hop.before is first and hop.stream.sends == "job")
            if hop.reply and (is_back or (first.stream.identity and _goes_to(hop, first))):
                return hop
        return None

    @property
    def answered_ns(self) -> int | None:
        """When the reply came to the first sender."""
        answer = self.answer
        return None if answer is None else answer.time_ns

    def add(self, hop: Hop, before: Hop, joined: Joined, *, certain: bool, reply: bool = False) -> None:
        """Go on with a message that comes of ``before``."""
        hop.way, hop.before, hop.joined = self, before, joined
        if not certain:
            hop.certain = False
        if reply:
            hop.reply = True
        self.hops.append(hop)
        if hop.time_ns > self.last_ns:
            self.last_ns = hop.time_ns

    def join_copy(self, hop: Hop, first: Hop) -> None:
        """A publisher sends the same to one more subscriber as it sent in ``first``."""
        hop.way, hop.before = self, first.before
        hop.joined, hop.certain = first.joined, first.certain
        self.hops.append(hop)
        self.last_ns = max(self.last_ns, hop.time_ns)

    def drop(self) -> None:
        """It becomes no record, and keeps no way before it."""
        self.is_over, self.earlier = True, None

    def take_over(self, other: "OpenWay", before: Hop, joined: Joined, *, certain: bool) -> None:
        """Go on with all of another way, whose first message comes of ``before``."""
        other.drop()
        other.first.before = before
        other.first.joined = joined
        for hop in other.hops:
            hop.way = self
            hop.certain = hop.certain and certain
        self.hops += other.hops
        self.last_ns = max(self.last_ns, other.last_ns)
