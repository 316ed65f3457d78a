"""Which sockets they are that never say so: their beginning is not in the capture, or their version has no such words.

Theory
------

ZMTP 1.0 has no socket types, and neither has a connection whose handshake came before the capture began. What a socket
sends gives it away, if it is watched for long enough. An inference is right or silent: it says nothing until there is
no other explanation that is as good.

- REQ and REP take turns, strictly, and every message has an empty frame in front. DEALER and ROUTER do the same if
  their programs play REQ or REP. Then they mostly have identities, so nothing is said of sockets that have one. Of
  those whose identities are not in the capture REQ and REP is the better guess, and they are understood as such.
- A subscription comes from a SUB, and its peer is a PUB.
- One publisher sends copies of the same messages to several peers; one PUSH deals its messages out, in turns. So one
  sender is watched on all its connections. Messages that differ in all their beginnings are of neither: these may be
  topics, each with one subscriber.
- Messages of several frames whose first frames repeat have topics, if they come from the side that was connected to.
- A bound socket that said what it is on another connection is the same on all of them.
- A socket that connects, sends, and never hears anything is a PUSH: a PUB that connects hears a subscription first.

Who takes turns is told as REQ and REP only where everything is in the capture, as of ZMTP 1.0. Behind a missing
beginning a DEALER and a ROUTER whose programs do the same send the very same octets. Who asks is known there, too, so
replies find their requests; but no type is told.

The side that asks is the one that connected, if it gets its answers clearly sooner than it asks again, and if its
message is the first where the capture has the first. If not, nothing is said.
"""

from collections import OrderedDict
from collections.abc import Container
from itertools import pairwise
from typing import NamedTuple

from dissectors.events import UNBOUNDED, Connection, Message, Subscription, at_hand

_TURNS = 3  # requests with their replies
_CLEARLY = 2  # times longer is clearly longer
_COPIES = 3  # messages that two peers of one sender got
_DEALT = 4  # messages of each of two peers, which the other did not get
_TOPICS = 6  # messages with topics that repeat
_GRANTED = 2  # messages that begin as somebody wished
_ONE_WAY = 5  # messages of one side, while the other is silent
_WINDOW = 64  # messages of one connection that are remembered
_CONTENTS = 4096  # messages of all connections that are remembered
_SENDERS = 1000
_ADDRESSES = 10_000
_PEER_OF = {"PUB": "SUB", "XPUB": "SUB", "SUB": "PUB", "XSUB": "PUB", "PUSH": "PULL", "PULL": "PUSH", "PAIR": "PAIR"}
_FIRST_CHOSEN_PORT = 32_768  # of those that Linux chooses for who connects; other systems begin later
_PREFIX = 32  # octets of the beginning of messages


class _Turn(NamedTuple):
    """A message of two sides that may take turns."""

    packet: int
    sender: str
    delimited: bool  # an empty frame is in front
    time_ns: int
    offset: int  # in the stream of its sender
    seen: int  # the octets of the other side that its sender had by then end before this


class _Outlet:
    """What one sender sent on one connection."""

    __slots__ = ("bodies", "last_ns", "prefix")

    def __init__(self) -> None:
        self.bodies: OrderedDict[int, bool] = OrderedDict()  # contents, and whether they came once only
        self.prefix: bytes | None = None
        self.last_ns = 0

    def add(self, event: Message) -> int:
        """Remember a message; returns its contents as a number."""
        contents = hash(tuple(event.frames))
        self.bodies[contents] = contents not in self.bodies
        if len(self.bodies) > _WINDOW:
            self.bodies.popitem(last=False)
        first = b"\0".join(map(at_hand, event.frames))[:_PREFIX]
        self.prefix = first if self.prefix is None else _common(self.prefix, first)
        self.last_ns = event.time_ns
        return contents


def contradicts(types: dict[str, str], event: Connection, silent: Container[str] = ("PULL",)) -> bool:
    """Whether what was sent until the end of a connection cannot be from sockets of these types.

    ``silent`` are those that send no messages; subscriptions may look like some where the beginning is missing.
    """
    sent = {event.client.address: event.messages.client, event.server.address: event.messages.server}
    kinds = {kind: sent.get(address, 0) for address, kind in types.items()}
    if any(count and kind in silent for kind, count in kinds.items()):
        return True
    return kinds.keys() == {"REQ", "REP"} and abs(kinds["REQ"] - kinds["REP"]) > _TURNS


def _common(one: bytes, other: bytes) -> bytes:
    """What both begin with."""
    length = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    return one[: min(len(one), len(other))] if length is None else one[:length]


class BoundSockets:
    """What sockets said that they are, by their addresses: who is connected to has several connections on one."""

    def __init__(self) -> None:
        """Start without any."""
        self._kinds: OrderedDict[str, str] = OrderedDict()

    def announce(self, address: str, kind: str) -> None:
        """The socket at an address says what it is; if it said something else before, nobody knows."""
        self._kinds[address] = kind if self._kinds.get(address, kind) == kind else ""
        self._kinds.move_to_end(address)
        if len(self._kinds) > _ADDRESSES:
            self._kinds.popitem(last=False)

    def types(self, one: str, other: str) -> dict[str, str] | None:
        """The types of two that are connected, if one of them said elsewhere what it is, and that says it of both.

        The peer of a REP may be a REQ or a DEALER: it is left out.
        """
        for bound, peer in ((one, other), (other, one)):
            kind = self._kinds.get(bound)
            if kind == "REP":
                return {bound: kind}
            if kind in _PEER_OF:
                return {bound: kind, peer: _PEER_OF[kind]}
        return None


class SenderShape:
    """One socket that sends and hears nothing, on all its connections."""

    __slots__ = ("deals", "last", "outlets", "round")

    def __init__(self) -> None:
        """Start without connections."""
        self.outlets: dict[int, _Outlet] = {}
        self.last: int | None = None
        self.round: list[int] = []  # flows in the order in which messages went to them
        self.deals = 0

    def take(self, event: Message) -> str | None:
        """Take a message; returns PUB or PUSH if that is what it is."""
        outlet = self.outlets.setdefault(event.flow, _Outlet())
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
        seen: set[int] = set()
        for outlet in outlets:
            if not seen.isdisjoint(outlet.bodies):
                return False
            seen.update(outlet.bodies)
        prefixes = {outlet.prefix.rstrip(b"0123456789") for outlet in outlets if outlet.prefix is not None}
        return len(prefixes) == 1


class Senders:
    """All sockets of which it is not known what they are, by their addresses."""

    def __init__(self) -> None:
        """Start without any."""
        self._senders: OrderedDict[str, SenderShape] = OrderedDict()
        self._first: OrderedDict[int, str] = OrderedDict()  # contents, and who sent them first
        self._relayed: set[str] = set()  # senders whose messages others sent, too

    def is_relayed(self, event: Message) -> bool:
        """Whether another socket sent messages of this sender, or this one those of another."""
        contents = hash(tuple(event.frames))
        first = self._first.setdefault(contents, event.src)
        if len(self._first) > _CONTENTS:
            self._first.popitem(last=False)
        if first != event.src and len(self._relayed) < _SENDERS:
            self._relayed |= {first, event.src}
        return event.src in self._relayed

    def is_proxy(self, address: str) -> bool:
        """Whether the messages of a sender are known from another one, too."""
        return address in self._relayed

    def at(self, address: str) -> SenderShape:
        """The one at an address."""
        sender = self._senders.setdefault(address, SenderShape())
        self._senders.move_to_end(address)
        if len(self._senders) > _SENDERS:
            self._senders.popitem(last=False)
        return sender


class Inference:
    """One connection whose socket types are not known."""

    __slots__ = (
        "_counted",
        "_ends",
        "_frames",
        "_granted",
        "_seen",
        "_senders",
        "_sent",
        "_shapes",
        "_talk",
        "_topics",
        "_wishes",
        "is_late",
    )

    def __init__(self, one: str, other: str, senders: Senders) -> None:
        """``one`` and ``other`` are the addresses of its two sides."""
        self._ends = (one, other)
        self._senders = senders
        self._sent = {one: 0, other: 0}  # messages
        # The first messages; None: it is no REQ and REP.
        self._talk: list[_Turn] | None = []
        self._seen: dict[str, int] = {}  # octets of the other side that a sender had seen when it sent first
        self.is_late = False  # messages were there before frames were found
        self._frames: int | None = None  # of each message; 0 if they differ
        self._counted = 0  # messages while the other side was silent
        self._topics: dict[int, None] = {}  # first frames of messages that have others
        self._shapes: dict[bytes, None] = {}  # the same without digits
        self._granted = 0  # messages with such a topic
        self._wishes: dict[str, list[bytes]] = {}  # what may be topics that a side subscribes to

    def name(self) -> None:
        """A side has an identity: programs that play REQ or REP with a DEALER or ROUTER give it one."""
        self._talk = None

    def subscription(self, event: Subscription) -> dict[str, str] | None:
        """Who subscribes is a SUB."""
        if self._sent.get(event.src) or self._senders.is_proxy(event.dst):
            return None  # a message that begins as a subscription does, or an XPUB
        return {event.src: "SUB", event.dst: "PUB"}

    def message(self, event: Message, blind: bool) -> dict[str, str] | None:
        """Take a message; returns the socket type of each side once that is certain.

        On a connection that is ``blind`` octets are missing: the message may not be the first.
        """
        if event.src not in self._sent:
            return None
        first = at_hand(event.frames[0])
        if len(event.frames) == 1 and first[:1] in (b"\0", b"\1"):
            self._wishes.setdefault(event.src, []).append(first[1:])
        elif any(first.startswith(topic) for topic in self._wishes.get(event.dst, ()) if topic):
            self._granted += 1
            if self._granted >= _GRANTED and self._sent[event.dst] <= len(self._wishes[event.dst]):
                return {event.dst: "SUB", event.src: "PUB"}  # before ZMTP 3.1 subscriptions are messages
        types = self._take_turn(event, blind)
        if event.incomplete:
            return None
        self._sent[event.src] += 1
        if 0 <= event.seen < UNBOUNDED:
            self._seen.setdefault(event.src, event.seen)
        # Octets of the other side may be there whose frames are not found yet: acknowledgments say so.
        is_silent = event.seen == self._seen.get(event.src)
        if types is None and is_silent and not self._sent[event.dst]:
            types = self._one_way(event)
        return types

    def _take_turn(self, event: Message, blind: bool) -> dict[str, str] | None:
        """Look whether both sides take turns, in the order of the packets."""
        talk = self._talk
        if talk is None:
            return None
        delimited = event.frames[0] == b"" and len(event.frames) > 1
        if not delimited and not event.incomplete:
            self._talk = None
            return None
        if event.seen < 0:  # it was there earlier, and found only now: what comes next has its order
            self.is_late = True
            talk.clear()
            return None
        talk.append(_Turn(event.packet, event.src, delimited, event.time_ns, event.offset, event.seen))
        talk.sort()
        if len(talk) > _WINDOW:
            self._talk = None
            return None
        if not self._is_in_turns(talk):
            return None
        asker = self._asker(talk)
        if asker is None or not (blind or asker == talk[0].sender):
            return None
        replies = sum(turn.sender != asker for turn in talk[1:])
        return {asker: "REQ", self._other(asker): "REP"} if replies >= _TURNS else None

    @staticmethod
    def _is_in_turns(talk: list[_Turn]) -> bool:
        """Whether each message was sent when its sender had the one before, by the other side."""
        return all(
            before.sender != after.sender and before.offset < after.seen < UNBOUNDED for before, after in pairwise(talk)
        ) and all(turn.delimited for turn in talk)

    def _asker(self, talk: list[_Turn]) -> str | None:
        """Who waits: it connected, and gets answers clearly sooner than it asks again; None if it may be either."""
        waits: dict[str, list[int]] = {end: [] for end in self._ends}
        for before, after in pairwise(talk):
            waits[before.sender].append(after.time_ns - before.time_ns)  # until its message was answered
        client = self._client()
        if client is None or not all(waits.values()):
            return None
        own, others = (sorted(waits[end])[len(waits[end]) // 2] for end in (client, self._other(client)))
        return client if others > _CLEARLY * max(own, 1) else None

    def _one_way(self, event: Message) -> dict[str, str] | None:
        """The other side has said nothing so far."""
        if self._senders.is_relayed(event):
            return None  # a proxy: XPUB or PUB, PUSH or PUB cannot be told apart
        kind = self._senders.at(event.src).take(event) or self._by_topics(event)
        if kind is None:
            return None
        return {event.src: kind, event.dst: "SUB" if kind == "PUB" else "PULL"}

    def _by_topics(self, event: Message) -> str | None:
        """Messages whose first frames repeat have topics; who connects and sends others is a PUSH."""
        self._counted = sent = self._counted + 1
        frames = event.frames
        self._frames = len(frames) if self._frames in (None, len(frames)) else 0
        if len(frames) > 1 and len(self._topics) < _WINDOW:
            self._topics[hash(frames[0])] = None
            self._shapes[at_hand(frames[0]).translate(None, b"0123456789")] = None
        if self._topics and len(self._topics) <= sent // 2:
            are_topics = len(self._topics) > 1 and frames[0] != b"" and self._frames and event.dst == self._client()
            return "PUB" if sent >= _TOPICS and are_topics else None
        may_have_topics = len(self._topics) == sent and len(self._shapes) == 1
        if event.src != self._client() or sent < _ONE_WAY or frames[0] == b"" or may_have_topics:
            return None
        return "PUSH"

    def _client(self) -> str | None:
        """The side that connected: only one has a port of those that systems choose; None if ports do not tell."""
        chosen = [end for end in self._ends if int(end.rpartition(":")[2] or 0) >= _FIRST_CHOSEN_PORT]
        return chosen[0] if len(chosen) == 1 else None

    def _other(self, address: str) -> str:
        return self._ends[1] if address == self._ends[0] else self._ends[0]
