"""Infers the types of sockets that do not announce them: the capture lacks the handshake, or the version has none.

Theory
------

ZMTP 1.0 has no socket types, and neither has a connection whose handshake came before the capture began. The messages
of a socket give its type away, if it is watched for long enough. An inference is right or silent: it says nothing while
another explanation is as good. If a socket of one other type can send the very same octets, the inference names that
type, too: the lookalike.

- REQ and REP take turns, strictly, and every message has an empty frame in front. DEALER and ROUTER do the same if
  their programs play REQ or REP: these are the lookalikes. Such programs mostly give their sockets identities, so
  nothing is said of sockets that have one. A client of Majordomo asks a ROUTER, and its workers are DEALERs.
- A subscription comes from a SUB, and its peer is a PUB.
- One publisher sends copies of the same messages to several peers; one PUSH deals its messages out, in turns. So one
  sender is watched on all its connections. Messages whose beginnings all differ prove neither: the beginnings may be
  topics, each with one subscriber. A DEALER deals out, too, and may hear nothing from workers that hang: messages with
  an empty frame in front of the last one have envelopes, so they prove no PUSH.
- A proxy passes messages on, so two sockets send them. Only copies tell its type then, and an XPUB sends these as a PUB
  does: it is the lookalike.
- Messages of several frames whose first frames repeat have topics, if they come from the side that was connected to.
  With two frames they may be of a RADIO, and a group is what repeats.
- A bound socket has one type. If it announced the type on one connection, it has it on all.
- A socket that connects, sends, and never hears anything is a PUSH: a PUB that connects hears a subscription first.
  But that may have come before the capture began: then the PUB is its lookalike. A bound socket, or one that sends
  topics, is rather a PUB, unless several peers share its messages or the first of several frames never repeats. The
  inference says this only at the end, when nothing more will decide.

The side that asks is the one that connected. But a REP may have connected to a REQ. Three signs show that: the side
does not speak first, though the capture has the first message; it repeats new words of the other side, such as numbers
and names, as replies do; or it has the last word in the end. Then the inference says nothing.
"""

import re
from collections import Counter
from collections.abc import Container
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import msgspec

from dissectors.address import FIRST_CLIENT_PORT, port_of
from dissectors.events import UNBOUNDED, Command, Connection, Message, Subscription, at_hand
from dissectors.zmtp.sockets import REQUEST_REPLY, USUAL_PEER
from zmtpsniff.analysis.dossier import Guess, Guesses, has_envelope_inside, is_of_client, is_of_worker
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.words.text import common_start

_TURNS = 3  # requests with their replies
_CLEARLY = 2  # times longer is clearly longer
_COPIES = 3  # messages that two peers of one sender got
_DEALT = 4  # messages of each of two peers, which the other did not get
_TOPICS = 6  # messages with topics that repeat
_GRANTED = 2  # messages that begin as somebody wished
_ONE_WAY = 5  # messages of one side, while the other is silent
_WINDOW = 64  # messages of one connection that are remembered
_MOST = 1000  # after so many messages of one connection, no further one will tell more
_CONTENTS = 4096  # messages of all connections that are remembered
_SENDERS = 1000
_OUTLETS = 128  # connections of one sender that are compared
_ANNOUNCED = 2000  # sockets; one that announces its type to a new peer is new
_LONGEST_TOPIC = 256  # octets that are remembered of one
_PREFIX = 32  # octets of the beginning of messages
# Words that replies may repeat from their requests, in the first octets of the last frame.
_WORD = re.compile(rb"\d+|[^\W\d]{4,}")
_WORDS_OCTETS = 256
_REPEATED = 2  # times that are no accident
_GROUP_FRAMES = 2  # of a RADIO's message: the group and the body


class _Turn(NamedTuple):
    """A message of two sides that may take turns."""

    progress: int  # the octets that both sides had sent as far as its sender knew: causes have less than effects
    sender: str
    time_ns: int
    offset: int  # in the stream of its sender
    seen: int  # the octets of the other side that its sender had by then end before this
    words: frozenset[bytes]


def _has_envelope(event: Message) -> bool:
    """Whether an empty frame stands in front of the last one of a message."""
    return b"" in event.frames[:-1]


class _Outlet(msgspec.Struct, eq=False):
    """The messages of one sender on one connection."""

    # Contents, and whether they came once only.
    bodies: Ledger[int, bool] = msgspec.field(default_factory=lambda: Ledger(limit=_WINDOW))
    prefix: bytes | None = None
    has_envelopes: bool = False  # so it seems
    last_ns: int = 0
    is_over: bool = False  # its connection is

    def add(self, event: Message) -> int:
        """Remember a message; returns its contents as a number."""
        contents = hash(tuple(event.frames))
        self.bodies[contents] = contents not in self.bodies
        self.has_envelopes = self.has_envelopes or _has_envelope(event)
        first = b"\0".join(map(at_hand, event.frames))[:_PREFIX]
        self.prefix = first if self.prefix is None else common_start(self.prefix, first)
        self.last_ns = event.time_ns
        return contents


def contradicts(guesses: Guesses, event: Connection, silent: Container[str] = ("PULL",)) -> bool:
    """Whether the messages up to the end of a connection contradict such sockets.

    ``silent`` are types that send no messages. If the beginning is missing, subscriptions may look like messages.
    """
    sent = {event.client.address: event.messages.client, event.server.address: event.messages.server}
    kinds = {guess.kind: sent.get(address, 0) for address, guess in guesses.items()}
    if any(count and kind in silent for kind, count in kinds.items()):
        return True
    return kinds.keys() == {"REQ", "REP"} and abs(kinds["REQ"] - kinds["REP"]) > _TURNS


class BoundSockets:
    """The types that sockets announced, by address: a bound socket has several connections on one address."""

    def __init__(self) -> None:
        """Start without any."""
        self._kinds: Ledger[str, str] = Ledger(limit=_ANNOUNCED)

    def announce(self, address: str, kind: str) -> None:
        """The socket at an address announces its type. If it announced another type before, nobody knows its type."""
        said = self._kinds.pop(address, kind)
        self._kinds[address] = kind if said == kind else ""

    def guesses(self, one: str, other: str) -> Guesses | None:
        """The types of two connected sockets, if one of them announced a type elsewhere that settles both."""
        for bound, peer in ((one, other), (other, one)):
            kind = self._kinds.get(bound)
            if kind == "REP":
                return {bound: Guess(kind), peer: Guess("REQ", "DEALER")}
            if kind in USUAL_PEER and kind not in REQUEST_REPLY:
                return {bound: Guess(kind), peer: Guess(USUAL_PEER[kind])}
        return None

    def settle(self, guesses: Guesses) -> Guesses:
        """The inferences, without those that an announced type contradicts."""
        return {
            address: Guess(said) if (said := self._kinds.get(address)) and said in guess else guess
            for address, guess in guesses.items()
        }


class SenderShape(msgspec.Struct, eq=False):
    """One socket that sends and hears nothing, on all its connections."""

    outlets: dict[int, _Outlet] = {}
    round: list[int] = []  # flows in the order in which messages went to them
    kind: str | None = None  # PUB or PUSH if that is what it is

    def take(self, event: Message) -> str | None:
        """Take a message; returns PUB or PUSH if that is what it is."""
        if self.kind is None:
            self.kind = self._look_at(event)
        return self.kind

    @property
    def shares(self) -> bool:
        """Whether no message to one of several peers went to another peer, too."""
        bodies = [body for outlet in self.outlets.values() for body in outlet.bodies]
        return len(self.outlets) > 1 and len(set(bodies)) == len(bodies)

    def end(self, flow: int) -> None:
        """A connection is over: another one may take its place."""
        if flow in self.outlets:
            self.outlets[flow].is_over = True

    def _outlet(self, flow: int) -> _Outlet | None:
        """The messages of a connection; None if there are too many connections already, which tell enough."""
        outlet = self.outlets.get(flow)
        if outlet is not None:
            return outlet
        if len(self.outlets) >= _OUTLETS:
            ended = next((one for one, other in self.outlets.items() if other.is_over), None)
            if ended is None:
                return None
            del self.outlets[ended]
            self.round = [one for one in self.round if one != ended]
        made = self.outlets[flow] = _Outlet()
        return made

    def _look_at(self, event: Message) -> str | None:
        outlet = self._outlet(event.flow)
        if outlet is None:
            return None
        contents = outlet.add(event)
        others = [one for flow, one in self.outlets.items() if flow != event.flow]
        if not others:
            return None
        if any(one.bodies.get(contents) for one in others) and outlet.bodies[contents]:
            for one in others:
                common = [body for body, once in outlet.bodies.items() if once and one.bodies.get(body)]
                if len(common) >= _COPIES:
                    return "PUB"
            return None
        return "PUSH" if self._deals_out(event.flow) else None

    def _deals_out(self, flow: int) -> bool:
        """Whether messages go to its connections in turns, each to one."""
        self.round.append(flow)
        count = len(self.outlets)
        if len(self.round) > _DEALT * count:
            del self.round[0]
        if len(self.round) < _DEALT * count or count < 2:
            return False
        first = self.round[:count]
        if len(set(first)) < count or self.round != first * _DEALT:
            return False
        outlets = list(self.outlets.values())
        if any(outlet.has_envelopes for outlet in outlets):
            return False
        seen: set[int] = set()
        for outlet in outlets:
            if not seen.isdisjoint(outlet.bodies):
                return False
            seen.update(outlet.bodies)
        prefixes = {outlet.prefix.rstrip(b"0123456789") for outlet in outlets if outlet.prefix is not None}
        return len(prefixes) == 1


class Senders:
    """All sockets whose types are unknown, by their addresses."""

    def __init__(self) -> None:
        """Start without any."""
        self._senders: Ledger[str, SenderShape] = Ledger(SenderShape, _SENDERS)
        # Contents, and who sent them first, to whom.
        self._first: Ledger[int, tuple[str, str]] = Ledger(limit=_CONTENTS)
        self._relayed: set[str] = set()  # senders whose messages others sent, too

    def is_relayed(self, event: Message) -> bool:
        """Whether another socket forwarded messages of this sender, or this sender forwarded those of another.

        Messages that both send to the same receiver do not count: neither has them from the other.
        """
        contents = hash(tuple(event.frames))
        first, receiver = self._first.setdefault(contents, (event.src, event.dst))
        if first != event.src and receiver != event.dst and len(self._relayed) < _SENDERS:
            self._relayed |= {first, event.src}
        return event.src in self._relayed

    def is_proxy(self, address: str) -> bool:
        """Whether another sender sent the messages of this sender, too."""
        return address in self._relayed

    def at(self, address: str) -> SenderShape:
        """The one at an address."""
        return self._senders.at(address)

    def end(self, event: Connection) -> None:
        """A connection is over."""
        for address in (event.client.address, event.server.address):
            if address in self._senders:
                self._senders[address].end(event.flow)


class Inference(msgspec.Struct, eq=False):
    """One connection whose socket types are not known."""

    _ends: tuple[str, str]  # the addresses of its two sides
    _senders: Senders
    _sent: Counter[str] = msgspec.field(default_factory=Counter)  # messages
    # The first messages; None: it is no REQ and REP.
    _talk: list[_Turn] | None = []
    _seen: dict[str, int] = {}  # octets of the other side that a sender had seen when it sent first
    _frames: int | None = None  # of each message; 0 if they differ
    _counted: int = 0  # messages while the other side was silent
    _topics: dict[int, None] = {}  # first frames of messages that have others
    _granted: int = 0  # messages with such a topic
    _wishes: dict[str, list[bytes]] = {}  # what may be topics that a side subscribes to
    _firsts: list[tuple[str, bytes]] = []  # senders of messages, and how these begin
    _heard: dict[str, int] = {}  # sides whose commands are known, and the stream offset of the first
    _parts: set[str] = set()  # sides of which there are messages that may not be whole
    _delimited: int = 0  # messages with an empty frame in front
    _enveloped: int = 0  # messages with an empty frame in front of the last one
    left: int = _MOST  # messages that are looked at
    patience_ns: int | None = None  # of sides that take turns: who waits longer will hear nothing more

    def name(self) -> None:
        """A side has an identity: programs that play REQ or REP with a DEALER or ROUTER give it one."""
        self._talk = None

    def subscription(self, event: Subscription) -> Guesses | None:
        """A side that subscribes is a SUB."""
        if self._sent.get(event.src) or self._senders.is_proxy(event.dst):
            return None  # a message that begins as a subscription does, or an XPUB
        return {event.src: Guess("SUB"), event.dst: Guess("PUB")}

    def message(self, event: Message, blind: bool) -> Guesses | None:
        """Take a message. Returns the types of both sides once they are certain.

        On a ``blind`` connection octets are missing: the message may not be the first.
        """
        if event.src not in self._ends:
            return None
        self.left -= 1
        if self._is_as_wished(event):
            return {event.dst: Guess("SUB"), event.src: Guess("PUB")}
        if self._is_wish(event):
            return {event.src: Guess("SUB"), event.dst: Guess("PUB")}
        guesses = self._take_turn(event, blind)
        if event.incomplete:
            self._parts.add(event.src)
            return guesses
        self._sent[event.src] += 1
        if 0 <= event.seen < UNBOUNDED:
            self._seen.setdefault(event.src, event.seen)
        # Acknowledgments may show that the other side sent octets whose frames are not found yet.
        is_silent = event.seen == self._seen.get(event.src) or self._heard.get(event.dst) == 0
        if guesses is None and is_silent and not self._sent[event.dst]:
            guesses = self._one_way(event)
        return guesses

    def command(self, event: Command) -> None:
        """Take note of a command. It does not make its sender less silent."""
        self._heard.setdefault(event.src, event.offset)

    def _is_as_wished(self, event: Message) -> bool:
        """Whether messages begin with what the other side subscribed to; before ZMTP 3.1 subscriptions are messages."""
        first = at_hand(event.frames[0])
        if len(self._firsts) < _WINDOW:
            self._firsts.append((event.src, first[:_LONGEST_TOPIC]))
        self._granted += any(first.startswith(topic) for topic in self._wishes.get(event.dst, ()) if topic)
        return self._are_wishes(event.dst)

    def _is_wish(self, event: Message) -> bool:
        """Whether a message is one more subscription, to what the other side has sent."""
        first = at_hand(event.frames[0])
        wishes = self._wishes.setdefault(event.src, [])
        if len(event.frames) > 1 or first[:1] not in (b"\0", b"\1") or len(wishes) >= _WINDOW:
            return False
        wishes.append(topic := first[1 : 1 + _LONGEST_TOPIC])
        if topic:  # its frames may have been found later than what it was sent
            self._granted += sum(src == event.dst and other.startswith(topic) for src, other in self._firsts)
        return self._are_wishes(event.src, 1)

    def _are_wishes(self, side: str, more: int = 0) -> bool:
        """Whether all that a side has sent, and ``more``, were subscriptions, and there were messages to them."""
        wishes = len(self._wishes.get(side, ()))
        return self._granted >= _GRANTED and 0 < self._sent[side] + more <= wishes

    def _take_turn(self, event: Message, blind: bool) -> Guesses | None:
        """Look whether both sides take turns, in the order of causes."""
        talk = self._talk
        if talk is None:
            return None
        delimited = event.frames[0] == b"" and len(event.frames) > 1
        # A worker of Majordomo is a DEALER, and takes turns with its broker where both only say that they are alive.
        # Any worker takes turns with its broker; then the broker asks.
        is_of_broker = is_of_worker(event.frames) or has_envelope_inside(event.frames)
        if is_of_broker or (not delimited and not event.incomplete):
            self._talk = None
            return None
        if not 0 <= event.seen < UNBOUNDED:  # nobody knows when it was sent: what comes next has its order
            talk.clear()
            return None
        progress = event.offset + event.seen
        words = frozenset(_WORD.findall(at_hand(event.frames[-1])[:_WORDS_OCTETS]))
        talk.append(_Turn(progress, event.src, event.time_ns, event.offset, event.seen, words))
        talk.sort(key=itemgetter(0))  # frames of one side may have been found later than those of the other
        if len(talk) > _WINDOW:
            self._talk = None
            return None
        if not self._is_in_turns(talk):
            return None
        # Waits tell nothing: a service may take as long as a client thinks.
        asker = self._client()
        if asker is None or not (blind or asker == talk[0].sender):
            return None
        replies = sum(turn.sender != asker for turn in talk[1:])
        if replies < _TURNS or event.incomplete or self._repeats(asker, talk):
            return None
        self.patience_ns = _CLEARLY * max(after.time_ns - before.time_ns for before, after in pairwise(talk))
        replier = Guess("ROUTER", "REP") if is_of_client(event.frames) else Guess("REP", "ROUTER")
        return {asker: Guess("REQ", "DEALER"), self._other(asker): replier}

    @staticmethod
    def _is_in_turns(talk: list[_Turn]) -> bool:
        """Whether each message was sent after its sender had the one before, of the other side."""
        return all(before.sender != after.sender and before.offset < after.seen for before, after in pairwise(talk))

    @staticmethod
    def _repeats(side: str, talk: list[_Turn]) -> bool:
        """Whether a side repeats new words of the other side more often than the other side repeats its words."""
        more = 0
        known = set(talk[0].words)
        for before, after in pairwise(talk[1:]):
            new = before.words - known
            known |= new
            if not after.words.isdisjoint(new):
                more += 1 if after.sender == side else -1
        return more >= _REPEATED

    def _one_way(self, event: Message) -> Guesses | None:
        """The other side has said nothing so far."""
        if self._senders.is_relayed(event):  # PUSH or PUB cannot be told apart by topics
            by_copies = self._senders.at(event.src).take(event)
            return self._sent_by(event.src, by_copies) if by_copies == "PUB" else None
        by_topics = self._by_topics(event)
        kind = self._senders.at(event.src).take(event) or by_topics
        if kind is None:
            return None
        return self._sent_by(event.src, kind)

    def _sent_by(self, sender: str, kind: str) -> Guesses:
        """The types of both sides if the sender has this type, on this and its other connections."""
        receiver = self._other(sender)
        self._senders.at(sender).kind = kind
        if kind == "PUB" and self._senders.is_proxy(sender):
            return {sender: Guess(kind, "XPUB"), receiver: Guess("SUB", "XSUB")}
        if kind == "PUB" and self._frames == _GROUP_FRAMES:
            return {sender: Guess(kind, "RADIO"), receiver: Guess("SUB", "DISH")}
        return {sender: Guess(kind), receiver: Guess(USUAL_PEER[kind])}

    def _by_topics(self, event: Message) -> str | None:
        """Messages whose first frames repeat have topics, if the bound side sends them."""
        self._counted = sent = self._counted + 1
        frames = event.frames
        self._frames = len(frames) if self._frames in (None, len(frames)) else 0
        self._delimited += frames[0] == b"" and len(frames) > 1
        self._enveloped += _has_envelope(event)
        if len(frames) > 1 and len(self._topics) < _WINDOW:
            self._topics[hash(frames[0])] = None
        return "PUB" if sent >= _TOPICS and self._has_topics() and event.dst == self._client() else None

    def _has_topics(self) -> bool:
        """Whether messages of several frames begin with several frames that repeat."""
        return bool(self._frames) and 1 < len(self._topics) <= self._counted // 2 and not self._delimited

    def at_end(self) -> Guesses | None:
        """The types of the sides if one has sent all messages and the other none, and no more will come."""
        senders = [end for end in self._ends if self._sent[end]]
        if len(senders) != 1:
            return None
        (sender,) = senders
        receiver, sent, client = self._other(sender), self._sent[sender], self._client()
        # All of them while the other side was silent.
        if sent < _ONE_WAY or sent != self._counted or receiver in self._parts or self._enveloped == sent:
            return None
        if client is None or self._senders.is_proxy(sender):
            return None
        shape = self._senders.at(sender)
        if shape.kind is not None:
            return self._sent_by(sender, shape.kind)
        # A PUB that connects hears a subscription first, which may have come before the capture began.
        pushes = len(self._topics) == sent or shape.shares or (sender == client and not self._has_topics())
        if pushes:
            return {sender: Guess("PUSH", "PUB"), receiver: Guess("PULL", "SUB")}
        return {sender: Guess("PUB", "PUSH"), receiver: Guess("SUB", "PULL")}

    def _client(self) -> str | None:
        """The side that connected, if only one has a port of those that systems choose; else None."""
        chosen = [end for end in self._ends if port_of(end) >= FIRST_CLIENT_PORT]
        return chosen[0] if len(chosen) == 1 else None

    def _other(self, address: str) -> str:
        return self._ends[1] if address == self._ends[0] else self._ends[0]
