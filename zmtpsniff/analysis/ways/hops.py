"""A message on its way, and the way that it belongs to, while more legs may come.

Theory
------

A :class:`Hop` is one message that a socket has taken. It points to the message of which it comes (``before``), and to
its :class:`OpenWay`. So the hops of a way are a tree: its root is the message that began the way, and a message that a
program passed on to several peers has several children.

A hop has two independent states. *Held*: its receiver may still pass it on; ``held_as`` says under which key. *Waiting
for a reply*: ``answered`` is false. A request leaves the first state when its receiver passes it on, and the second one
when the reply passes on the same connection. So a request that a broker passed on is not held, but waits for its reply.

Invariants: a hop has exactly one way once it is joined, and that way has it in ``hops``. A way that became a part of
another one is over, and owns no hop: ``take_over()`` moves them all.

Facts that hold for many messages stand once: those of one sender on a connection in a :class:`Stream`, those of both
sides in :class:`SharedFacts`.
"""

import re
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from string import ascii_letters, digits
from typing import Any

import msgspec

from dissectors.address import has_bound_port
from dissectors.events import Octets, at_hand
from dissectors.snapshots import quick
from zmtpsniff.analysis.dossier import WORK_FRAMES, has_envelope_inside
from zmtpsniff.analysis.ways.way_records import Joined, Kind, Leg

_UNSEEN = 65_536  # messages of one sender on a connection that wait for their acknowledgment
RECEIPTS = 128
"""So many acknowledgments are kept of one sender on a connection while the messages for them have not come."""
_TOKENS_OCTETS = 4096  # the search for tokens ends behind so many octets of a message
_MOST_TOKENS = 64
_SECONDS_DIGITS = 10  # of Unix time in seconds
_DAY_SECONDS = 86_400
_FRAMES = 1024  # the tokens of so many frames are cached
TRACEPARENT = re.compile(rb"\b00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}\b")
"""The ids of a trace and of a span in it (W3C Trace Context)."""
# A token is a word of at least four characters with a digit: a number, an id, a UUID. Of a traceparent it is the id of
# the trace alone, since each span of the trace has another id.
_TOKEN = re.compile(TRACEPARENT.pattern + rb"|([A-Za-z0-9_][\w-]{2,62}[A-Za-z0-9_])")
MOST_COMPARED = 1024
"""A reply is compared with so many requests on its connection, the newest, to find the one that it answers."""
_NO_ACCIDENT = 16  # the same observation so often in a row is no chance
PATIENCE_NS = 60_000_000_000
"""A request waits so long for its reply before it counts as lost."""
_ONE_WAY = 8  # so many messages to one reply, or more, are no requests
_MAY_TELL = frozenset({("DEALER", "ROUTER")})  # types of sockets that may tell each other what needs no reply
_MAY_TELL_ALONE = frozenset({("ROUTER", "DEALER"), ("ROUTER", "ROUTER")})  # likewise, without envelopes of others
_ANSWERS = 3  # replies that other peers got show that messages of the same kind expect replies
GUESSES = frozenset({"body", "correlation", "envelope"})
"""Joins that prove nothing where another join is possible."""
BY_SERVICES = frozenset({"order", "process", "correlation"})
"""Joins of a question that a service asks to the request that it works on."""
_BY_ADDRESS = frozenset({"order", "correlation", "body"})  # joins that rest on the address of the sender's host
_DIGIT = re.compile(rb"\d")
_IN_TOKENS = (ascii_letters + digits + "_-").encode()


@quick
class RequestCount(msgspec.Struct, gc=False):
    """How many requests one side of a connection sent, or all peers of a socket, and how many of them got replies."""

    asked: int = 0
    answered: int = 0

    def others_get_replies(self, own: "RequestCount") -> bool:
        """Whether the other peers of a socket, beside the one with ``own``, got replies to nearly all requests."""
        asked, answered = self.asked - own.asked, self.answered - own.answered
        return answered >= _ANSWERS and 5 * answered >= 4 * asked


class SharedFacts(msgspec.Struct):
    """The facts of a connection that both of its streams share."""

    uses_delimiter: bool = False  # an empty frame stands in front of the bodies of requests
    depth: int = 0  # the least depth of the envelopes of requests that a broker passed on here; 0: it passed none on
    upstream: str | None = None  # the socket of the broker that passed requests on here
    has_ready_worker: bool = False  # a REQ said first that it is ready, so its peer sends the requests here
    closed_ns: int | None = None  # when the connection was closed
    closer: str | None = None  # the socket that closed it; None if it is open, or the capture does not show it


class Receipts(msgspec.Struct):
    """Brings the messages of one sender on a connection together with their acknowledgments by TCP.

    Both come in the order of the stream, but either may come first. A message comes long after its acknowledgment if
    zmtpsniff held it back: for octets that were lost, or until it had recognised the connection. Of messages in front
    of the first acknowledgment in the capture, nobody knows when they were acknowledged.
    """

    waiting: "deque[Hop]" = msgspec.field(default_factory=lambda: deque(maxlen=_UNSEEN))  # messages that came first
    # Acknowledgments that came first, behind the last message: when, and up to which stream offset.
    known: deque[tuple[int, int]] = msgspec.field(default_factory=deque)
    since: int = -1  # the capture shows acknowledgments from this stream offset on
    acked: int = -1  # the stream offset up to which the receiver has acknowledged all octets

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
            self._stamp(waiting.popleft(), time_ns)

    def trim(self) -> None:
        """Forget old acknowledgments once the messages of the same packets have come.

        A connection of another protocol never has a message, and would keep all of them.
        """
        while len(self.known) > RECEIPTS:
            _, self.since = self.known.popleft()

    def expect(self, hop: "Hop") -> None:
        """The next message of the stream: write down when it was acknowledged, now or once that is known."""
        known, offset = self.known, hop.offset
        while known and known[0][1] <= offset:
            known.popleft()
        if known:
            self._stamp(hop, known[0][0])
        else:
            self.waiting.append(hop)

    def _stamp(self, hop: "Hop", time_ns: int) -> None:
        """Write the time of its acknowledgment into a message, if the capture shows the first one for it."""
        if hop.offset >= self.since and hop.time_ns <= time_ns:
            hop.seen_ns = time_ns


class Streak(msgspec.Struct, eq=False):
    """The same observation, time after time."""

    observed: str | int = 0
    times: int = 0

    def proves(self, observed: str | int) -> bool:
        """Add an observation; return whether it came so often in a row that chance does not explain it.

        An empty observation, "" or 0, proves nothing.
        """
        self.times = self.times + 1 if observed == self.observed else 1
        self.observed = observed
        return bool(observed) and self.times >= _NO_ACCIDENT


@quick
class Stream(msgspec.Struct):
    """The messages of one sender on a connection: the facts that hold for each of them."""

    src_kind: str  # the socket types; "" for one that is not known
    dst_kind: str
    src_host: str  # the host; live, once it is known: the process; that of its other sockets if a program has several
    dst_host: str
    own_requests: RequestCount
    shared: SharedFacts
    receipts: Receipts
    connected_ns: int = 0  # when the connection was made
    round_trip_ns: int = 0  # from the capture point to the receiver's host and back
    # Octets that TCP sent again after a pause: their first offset in the stream, and when they came again.
    resent: list[tuple[int, int]] = []
    answered_ns: int = 0  # when the message was sent that the receiver answered last
    identity: Octets = b""  # the identity that the sender announced
    dst_identity: Octets = b""
    unanswered: dict["Hop", None] = {}  # messages that the sender passed on here, and that have no reply yet
    sends: Kind | None = "request"  # the kind of the ways of its messages; a reply counts to the way of its request
    knows_sender: bool = False  # src_host is one process, not a host with several
    knows_receiver: bool = False
    is_late: bool = False  # the capture lacks the beginning of the connection
    is_local: bool = False  # both ends have one address, and so may several programs; no packet overtakes another
    dst: str = ""  # the receiver's address
    # If a PUSH gives the replies: how many messages of each form were sent since one got a reply, and got one.
    pushed_forms: dict[tuple[int, bytes], RequestCount] | None = None
    has_ids: bool = False  # ids in the bodies tell which message answers which, and whether others like it got replies
    is_proven: bool = False  # guesses have joined its last messages so regularly that chance does not explain it
    is_followed: bool = False  # one of its messages is known to have been passed on or answered, so its ids are known
    carries_results: bool = False  # of jobs that its sender took: only an id joins the two, for the octets differ
    source: Streak | None = None  # if it carries copies: the socket that most likely took the originals
    last_request: "OpenWay | None" = None  # of a REQ
    begun: "deque[OpenWay] | None" = None  # of a REQ: the last ways that began with its messages
    # By depth of the envelope: when the receiver last sent something that may be the reply to a message of that depth.
    possible_reply_ns: dict[int, int] = {}
    all_requests: RequestCount = msgspec.field(default_factory=RequestCount)  # from all peers of the same type

    @property
    def is_one_way(self) -> bool:
        """Whether hardly any message of a DEALER got a reply on its connection.

        Two brokers may each have a DEALER to the other one: the first message is answered on its connection, and
        replies to later ones come over the other connection.
        """
        own = self.own_requests
        is_plain = self.src_kind == "DEALER" and not self.shared.uses_delimiter
        return is_plain and own.asked >= _ONE_WAY * (1 + own.answered)

    def note_source(self, before: "Hop") -> bool:
        """The next message of this stream most likely comes of ``before``. Returns whether the last did not differ.

        It differs if it came of a message to another socket.
        """
        if self.source is None:
            self.source = Streak()
        last = self.source.observed
        self.is_proven = self.source.proves(before.dst)
        return last in (0, before.dst)


@quick
class Hop(msgspec.Struct, eq=False):
    """A message that a socket has taken."""

    # The fields of its Leg. A Leg for each message would take time and room.
    src: str
    dst: str
    flow: int
    packet: int
    time_ns: int
    part: int
    stream: Stream
    frames: Sequence[Octets]
    offset: int = 0  # in the stream of its sender, where the octets begin that completed it
    seen_ns: int | None = None  # this one and the next three: also fields of its Leg
    reply: bool = False
    joined: Joined | None = None
    certain: bool = True
    way: "OpenWay" = None  # type: ignore[assignment]  # until it is joined
    before: "Hop | None" = None  # the message of which it comes
    held_as: int | None = None  # while the receiver may pass it on: the hash of its last frame
    number: int = 0  # of a request or a job: its place among those that its receiver took
    expects_reply: bool = False  # as far as the capture shows when it is sent
    reply_is_promised: bool = False  # its protocol promises a reply
    depth: int = 0  # of its envelope: the frames up to the delimiter, with it; 0 if there is no delimiter
    answered: bool = False  # its receiver answered on the same connection
    is_overtaken: bool = False  # later messages came here before it, perhaps the one that its receiver made of it
    is_ambiguous: bool = False  # another message may be the one that was passed on in its place
    # Before this message, its sender asked others, and the capture does not show for which request.
    sender_may_have_waited: bool = False
    is_passed_on: bool = False  # its receiver sent it, or what came of it, to another socket
    mark: Any = None  # the mark that the caller of Ways gave it
    routing_id: Octets = b""  # of a request that a broker passed on: the id of the connection that brought it there
    topic: Octets = b""  # of a publication; of a request or job that begins a way: the task that it names, if any
    copied: set[int] | None = None  # of a publication: the connections on which its receiver passed it on
    busy_until_ns: int = 0  # its sender worked on other messages until then
    free_ns: int = -1  # of a service with a worker for each connection: this worker worked on others until then
    tokens_: frozenset[bytes] | None = None  # the cache of ``tokens``

    @property
    def leg(self) -> Leg:
        """The leg that the record of its way shows."""
        return Leg(
            self.src, self.dst, self.flow, self.packet, self.time_ns, self.part, self.seen_ns, self.reply, self.joined,
            self.certain,
        )  # fmt: skip

    @property
    def is_guess(self) -> bool:
        """Whether its join proves nothing: other messages had the same octets, envelope or id.

        A stream whose guesses come out the same again and again is proven by that.
        """
        return not self.certain and self.joined in GUESSES and not self.stream.is_proven

    @property
    def shows_program(self) -> bool:
        """Whether its join shows that the socket that sent it belongs to the program that took ``before``."""
        if self.is_side_publication and self.before is not None and self.before.stream.sends == "request":
            return False
        if self.joined in _BY_ADDRESS and self.stream.is_local:  # all programs share this address
            return self.stream.is_proven or self.stream.knows_sender
        return not self.is_guess

    @property
    def is_question(self) -> bool:
        """Whether it is a request that a service sends for a request that it works on."""
        return self.joined in BY_SERVICES and self.stream.sends == "request" and not self.reply

    @property
    def may_expect_reply(self) -> bool:
        """Whether there is a sign that it expects a reply.

        Signs are a reply on its connection, and the delimiter that requests have. A DEALER without them may only tell
        its peer something, as peers of 36/ZRE do. The delimiter of a DEALER whose messages nobody answers or passes on
        is no sign: that may be a worker that says that it is alive. Nor is the delimiter alone from a ROUTER, if nobody
        answers: its peer may take messages only, as in Pushpin. Of a message that was passed on, replies to other peers
        of the same type are a sign, too.
        """
        stream = self.stream
        if stream.pushed_forms is not None or stream.has_ids:
            return self.expects_reply
        if self.expects_reply or stream.own_requests.answered > 0:
            return True
        kinds = stream.src_kind, stream.dst_kind
        may_tell = kinds in _MAY_TELL or (kinds in _MAY_TELL_ALONE and self.depth == 1)
        if self.depth > 0 and (self.is_passed_on or stream.all_requests.answered or not may_tell):
            return True
        return self.is_passed_on and stream.all_requests.others_get_replies(stream.own_requests)

    @property
    def may_be_answered(self) -> bool:
        """Whether its receiver has sent something since that may be the reply to it."""
        return not self.reply and self.stream.possible_reply_ns.get(self.depth, 0) >= self.time_ns

    @property
    def is_side_publication(self) -> bool:
        """Whether it is a publication about a request, such as the output of a Jupyter kernel.

        The programs that take or pass on such a publication do not work on the request.
        """
        return self.stream.sends == "publication" and self.way.kind == "request"

    @property
    def is_work(self) -> bool:
        """Whether it is a request that a broker sends to its worker, a REQ: behind the delimiter stands an envelope.

        A READY of the worker shows that its peer is a broker. Where the capture lacks READY or the socket type, the
        envelope shows it: the id that a ROUTER gave to the client stands there.
        """
        stream, frames = self.stream, self.frames
        if len(frames) <= WORK_FRAMES or stream.dst_kind not in ("REQ", ""):
            return False
        if stream.dst_kind and stream.shared.has_ready_worker:
            return True
        return has_envelope_inside(frames) and (stream.dst_kind == "REQ" or has_bound_port(self.src))

    @property
    def is_signal(self) -> bool:
        """Whether it is a message between a broker and its worker alone: READY, or a heartbeat.

        It lacks the envelope that requests on its connection have (chapter 4 of the ZeroMQ guide).
        """
        shared = self.stream.shared
        return self.depth < shared.depth or (shared.uses_delimiter and not self.depth)

    @property
    def tokens(self) -> frozenset[bytes]:
        """The numbers and ids in the message. Another message that has one of them may speak of the same thing."""
        if self.tokens_ is None:
            found: set[bytes] = set()
            left = _TOKENS_OCTETS
            for frame in self.frames:
                octets = at_hand(frame)[:left]
                left -= len(octets)
                if len(octets) < len(frame):
                    octets = octets.rstrip(_IN_TOKENS)  # the rest of the last word may be missing
                found.update(_tokens_in(octets))
                if left <= 0 or len(found) >= _MOST_TOKENS:
                    break
            self.tokens_ = frozenset(word for word in found if not _is_time(word, self.time_ns))
        return self.tokens_

    @property
    def is_only_unanswered(self) -> bool:
        """Of a request that a broker passed on: whether no other one waits that came over the same two connections."""
        unanswered = islice(reversed(self.stream.unanswered), MOST_COMPARED)
        return not any(one is not self and one.routing_id == self.routing_id for one in unanswered)

    @property
    def octets(self) -> int:
        """How many of its octets are in memory."""
        return sum(map(len, map(at_hand, self.frames)))

    def copy(self) -> "Hop":
        """The same message, as a leg of another way."""
        return Hop(
            self.src, self.dst, self.flow, self.packet, self.time_ns, self.part, self.stream, self.frames, self.offset,
            self.seen_ns, self.reply, mark=self.mark,
        )  # fmt: skip

    def measure_envelope(self) -> None:
        """Set ``depth``: count the frames of its envelope."""
        try:
            self.depth = self.frames.index(b"") + 1
        except ValueError:
            self.depth = 0

    def may_come_of(self, before: "Hop") -> bool:
        """Whether it may be the message ``before``, passed on.

        It is not if a socket, or a process, sent both: then the sender repeats itself. Nor if both went to one socket:
        no program passes a message back to a socket that has had it, so these are messages of two clients.
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

    def comes_of(self, other: "Hop") -> bool:
        """Whether it comes of another message, over any number of legs, or is that one."""
        one: Hop | None = self
        while one is not None and one is not other:
            one = one.before
        return one is other

    def passed_through(self, address: str) -> bool:
        """Whether this socket took it, or one of the messages of which it comes."""
        one: Hop | None = self
        while one is not None:
            if one.dst == address:
                return True
            one = one.before
        return False

    def is_dropped(self, by_ns: int) -> bool:
        """Whether its receiver closed the connection by then, and had not answered."""
        shared = self.stream.shared
        is_closed = shared.closed_ns is not None and self.time_ns <= shared.closed_ns <= by_ns
        return is_closed and not self.answered and shared.closer == self.dst

    def note_request(self) -> None:
        """Count it as a request, and decide whether it expects a reply.

        A message of a REQ expects one, and so does a message to a REP. Messages of other types do if most of those
        before them got replies. On a connection that the capture lacks the beginning of, the type may be a guess, and
        this message a reply: there, only the replies count.
        """
        stream, own = self.stream, self.stream.own_requests
        always = (stream.src_kind == "REQ" or (stream.dst_kind == "REP" and self.depth > 0)) and not stream.is_late
        if not stream.has_ids:
            self.expects_reply = always or (own.answered > 0 and 2 * own.answered >= own.asked)
        own.asked += 1
        stream.all_requests.asked += 1

    def note_answer(self) -> None:
        """Its receiver has answered on the same connection."""
        self.answered = True
        self.stream.unanswered.pop(self, None)
        self.stream.own_requests.answered += 1
        self.stream.all_requests.answered += 1


def _is_time(word: bytes, now_ns: int) -> bool:
    """Whether a word may be the time of day in seconds: what programs say in one second has it in common."""
    return len(word) == _SECONDS_DIGITS and word.isdigit() and abs(int(word) - now_ns // 10**9) < _DAY_SECONDS


@lru_cache(_FRAMES)  # each leg of a way has the same body
def _tokens_in(octets: bytes) -> tuple[bytes, ...]:
    """The numbers and ids in a frame."""
    words = [match[1] or match[3] for match in _TOKEN.finditer(octets)]
    return tuple(word for word in words if _DIGIT.search(word))


def _goes_to_asker(reply: Hop, first: Hop) -> bool:
    """Whether a reply goes to the peer that asked: from the ROUTER that was asked, to the identity of the asker."""
    return reply.src == first.dst and reply.stream.dst_identity == first.stream.identity


@quick
class OpenWay(msgspec.Struct, eq=False):
    """A way to which legs may still be added."""

    kind: Kind
    first: Hop  # its first message
    hops: list[Hop]
    last_ns: int  # the time of its latest message
    is_over: bool = False  # its record is made, or it is a part of another way, or it turned out to be no way
    is_told: bool = False  # its record is made, so that it keeps nothing of what comes later
    earlier: "OpenWay | None" = None  # of a request: the request that the same client sent before
    is_first: bool = False  # of a request of a REQ: it is the first one on its connection
    is_reassigned: bool = False  # a scheduler gave it to another worker than at first
    again_ns: int = 0  # of a request of a REQ: when the REQ sent its next request on the same connection

    @classmethod
    def begin(cls, kind: Kind, first: Hop) -> "OpenWay":
        """A way that begins with this message."""
        way = first.way = cls(kind, first, [first], first.time_ns)
        return way

    @property
    def octets(self) -> int:
        """How many octets of its messages are in memory."""
        return sum(hop.octets for hop in self.hops)

    @property
    def is_signal(self) -> bool:
        """Whether it is no request, but a READY or a heartbeat, and perhaps the one that came back."""
        first = self.first
        return first.is_signal and all(hop.flow == first.flow for hop in self.hops)

    @property
    def may_need_no_reply(self) -> bool:
        """Whether it is a single message that may need no reply: it tells something, or asks its broker for work."""
        first = self.first
        return len(self.hops) == 1 and (not first.expects_reply or first.stream.shared.upstream == first.dst)

    @property
    def last(self) -> Hop:
        """Its last message, without publications about a request: its receiver is the one that has to act."""
        return next(hop for hop in reversed(self.hops) if not hop.is_side_publication)

    @property
    def answer(self) -> Hop | None:
        """The reply to the first sender. It may come on a new connection, if the client came back with its identity."""
        first = self.first
        for hop in self.hops:
            is_back = hop.flow == first.flow or (hop.before is first and hop.stream.sends == "job")
            if hop.reply and (is_back or (first.stream.identity and _goes_to_asker(hop, first))):
                return hop
        return None

    @property
    def answered_ns(self) -> int | None:
        """When the reply to the first sender was sent; None if there is none."""
        answer = self.answer
        return None if answer is None else answer.time_ns

    def add(self, hop: Hop, before: Hop, joined: Joined, *, certain: bool, reply: bool = False) -> None:
        """Add a message that comes of ``before``, one of the messages of this way."""
        hop.way, hop.before, hop.joined = self, before, joined
        if not certain:
            hop.certain = False
        if reply:
            hop.reply = True
        if self.is_told:
            return
        self.hops.append(hop)
        if hop.time_ns > self.last_ns:
            self.last_ns = hop.time_ns

    def put_between(self, hop: Hop, before: Hop, after: Hop) -> None:
        """Add a message, the only one of another way, between two messages of this way."""
        hop.way.drop()
        hop.way, hop.before, hop.joined, hop.certain = self, before, after.joined, after.certain
        after.before = hop
        if not self.is_told:
            self.hops.insert(self.hops.index(after), hop)

    def join_copy(self, hop: Hop, first: Hop) -> None:
        """Add the copy of the publication ``first`` that its publisher sends to one more subscriber."""
        hop.way, hop.before = self, first.before
        hop.joined, hop.certain = first.joined, first.certain
        if self.is_told:
            return
        self.hops.append(hop)
        self.last_ns = max(self.last_ns, hop.time_ns)

    def drop(self) -> None:
        """End the way without a record, and forget the way before it, which would stay in memory otherwise."""
        self.is_over, self.earlier = True, None

    def take_over(self, other: "OpenWay", before: Hop, joined: Joined, *, certain: bool) -> None:
        """Make another way a part of this one: its first message comes of ``before``, a message of this way."""
        other.drop()
        other.first.before = before
        other.first.joined = joined
        for hop in other.hops:
            hop.way = self
            hop.certain = hop.certain and certain
        if self.is_told:
            return
        self.hops += other.hops
        self.last_ns = max(self.last_ns, other.last_ns)
