"""Events of clients, a broker or two in a row, and workers, who do at each step what a script says."""

from collections import defaultdict
from typing import Any

from hypothesis import strategies as st

from dissectors.events import AnyEvent, Command, Greeting, Message, Octets

Step = tuple[str, int, int]
"""An event of a script: its kind, its actor, and a number for chance."""
SCRIPTS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "forward", "answer", "back"]), st.integers(0, 5), st.integers(0, 9)),
    max_size=150,
)


_BETWEEN = 50  # the connection of two brokers


class BrokerWorld:
    """Clients, brokers and workers. All bodies are the same, so only envelopes tell who is meant."""

    def __init__(self, clients: list[str], workers: list[str], brokers: int = 1) -> None:
        """Connect all of them: the clients to the first of one or two brokers, the workers to the last."""
        self.events: list[AnyEvent] = []
        self.truth: dict[int, int] = {}  # a reply's packet to its request's
        self.first: dict[int, int] = {}  # each message's packet to that of the client's request that it comes of
        self.packet = 0
        self.sent: defaultdict[tuple[int, str], int] = defaultdict(int)
        self.kinds = clients
        self.workers = workers
        self.numbers: defaultdict[int, int] = defaultdict(int)
        self.waits: dict[int, bool] = {}
        self.front: list[tuple[int, list[Octets], int]] = []  # what the broker has to forward
        self.back: list[tuple[int, list[Octets], int]] = []  # replies that it has
        # Likewise of the last of two brokers.
        self.last_front: list[tuple[int, list[Octets], int, int]] = []
        self.last_back: list[tuple[int, list[Octets], int, int]] = []
        self.has_two = brokers == 2
        self.types: dict[tuple[int, str], str] = {}
        self.ends: dict[int, tuple[str, str]] = {}
        self.in_hand: defaultdict[int, list[tuple[list[Octets], int, Any]]] = defaultdict(list)
        self.again = 0
        first = "a:1" if self.has_two else "b:1"
        for flow, kind in enumerate(clients):
            self._connect(flow, (f"c:{flow}", first), "DEALER" if kind == "dealer" else "REQ", "ROUTER")
        if self.has_two:
            self._connect(_BETWEEN, ("a:2", "b:1"), "DEALER", "ROUTER")
        for flow, kind in enumerate(workers, 100):
            self._connect(flow, (f"c:{flow}", "b:1"), kind, "DEALER")

    def _connect(self, flow: int, ends: tuple[str, str], one: str, other: str) -> None:
        self.ends[flow] = ends
        for src, dst, kind in ((*ends, one), (*reversed(ends), other)):
            self.types[flow, src] = kind
            self.events.append(Greeting(1, 1, flow, src, dst, version="3.1", mechanism="NULL"))
            self.events.append(Command(1, 1, flow, src, dst, "READY", {"Socket-Type": kind.encode()}, kind))

    def say(self, flow: int, *, by_broker: bool, frames: list[Octets]) -> int:
        """A message on a connection. Returns its packet."""
        src, dst = reversed(self.ends[flow]) if by_broker else self.ends[flow]
        self.packet += 1
        offset = self.sent[flow, src]
        self.sent[flow, src] += 10
        time_ns = self.packet * 1000
        self.events.append(
            Message(time_ns, self.packet, flow, src, dst, frames, offset=offset, seen=self.sent[flow, dst])
        )
        return self.packet

    def ask(self, client: int) -> None:
        kind = self.kinds[client]
        if kind == "req" and self.waits.get(client):
            return
        self.again += kind == "rel" and bool(self.waits.get(client))
        self.numbers[client] += 1
        own = [self.numbers[client].to_bytes(4)] if kind in ("correlate", "dealer") else []
        frames: list[Octets] = [*own, b"", b"ping"]
        packet = self.say(client, by_broker=False, frames=frames)
        self.first[packet] = packet
        self.front.append((client, frames, packet))
        self.waits[client] = True

    def to_last(self, *, drop: bool) -> None:
        """The first of two brokers passes a request on to the last."""
        if self.front:
            client, frames, asked = self.front.pop(0)
            if not drop:
                frames = [b"\0kE" + client.to_bytes(2), *frames]
                packet = self.say(_BETWEEN, by_broker=False, frames=frames)
                self.first[packet] = asked
                self.last_front.append((client, frames, asked, packet))

    def to_first(self, *, drop: bool) -> None:
        """The last of two brokers passes a reply back to the first."""
        if self.last_back:
            client, frames, asked, packet = self.last_back.pop(0)
            if not drop:
                reply = self.say(_BETWEEN, by_broker=True, frames=frames)
                self.truth[reply], self.first[reply] = packet, asked
                self.back.append((client, frames[1:], asked))

    def forward(self, worker: int, *, drop: bool) -> None:
        if self.last_front:
            client, frames, asked, between = self.last_front.pop(0)
            if not drop:
                frames = [b"\0kE\0\7", *frames]
                packet = self.say(100 + worker, by_broker=True, frames=frames)
                self.first[packet] = asked
                self.in_hand[worker].append((frames, packet, (client, asked, between)))
        elif self.front and not self.has_two:
            client, frames, asked = self.front.pop(0)
            if not drop:
                frames = [b"\0kE" + client.to_bytes(2), *frames]
                packet = self.say(100 + worker, by_broker=True, frames=frames)
                self.first[packet] = asked
                self.in_hand[worker].append((frames, packet, (client, asked, 0)))

    def answer(self, worker: int, which: int) -> None:
        hand = self.in_hand[worker]
        if hand:
            frames, packet, (client, asked, between) = hand.pop(
                0 if self.workers[worker] == "REP" else which % len(hand)
            )
            frames = [*frames[:-1], b"pong"]
            reply = self.say(100 + worker, by_broker=False, frames=frames)
            self.truth[reply], self.first[reply] = packet, asked
            if self.has_two:
                self.last_back.append((client, frames[1:], asked, between))
            else:
                self.back.append((client, frames[1:], asked))

    def give_back(self, *, drop: bool) -> None:
        if self.back:
            client, frames, asked = self.back.pop(0)
            if not drop:
                reply = self.say(client, by_broker=True, frames=frames)
                self.truth[reply] = self.first[reply] = asked
                self.waits[client] = False

    def seen_from(self, packet: int) -> list[AnyEvent]:
        """The messages of a capture that begins behind this packet; the user has declared all types."""
        seen = [event for event in self.events if isinstance(event, Message) and event.packet > packet]
        for event in seen:
            event.socket_type = self.types[event.flow, event.src]
        return list(seen)

    def play(self, script: list[Step]) -> None:
        """Do one thing after the other."""
        for what, who, chance in script:
            if self.has_two and what in ("forward", "back") and who % 2:
                (self.to_last if what == "forward" else self.to_first)(drop=chance == 0)
            elif what == "ask":
                self.ask(who % len(self.kinds))
            elif what == "forward":
                self.forward(who // (2 if self.has_two else 1) % len(self.workers), drop=chance == 0)
            elif what == "answer":
                self.answer(who % len(self.workers), chance)
            else:
                self.give_back(drop=chance == 0)
