"""Events of clients, one broker and workers, who do at each step what a script says."""

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


class BrokerWorld:
    """Clients, one broker and workers. All bodies are the same, so only envelopes tell who is meant."""

    def __init__(self, clients: list[str], workers: list[str]) -> None:
        """Connect all of them."""
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
        self.in_hand: defaultdict[int, list[tuple[list[Octets], int, Any]]] = defaultdict(list)
        self.again = 0
        for flow, kind in enumerate(clients):
            self._connect(flow, "DEALER" if kind == "dealer" else "REQ", "ROUTER")
        for flow, kind in enumerate(workers, 100):
            self._connect(flow, kind, "DEALER")

    def _connect(self, flow: int, one: str, other: str) -> None:
        for src, dst, kind in ((f"c:{flow}", "b:1", one), ("b:1", f"c:{flow}", other)):
            self.events.append(Greeting(1, 1, flow, src, dst, version="3.1", mechanism="NULL"))
            self.events.append(Command(1, 1, flow, src, dst, "READY", {"Socket-Type": kind.encode()}, kind))

    def say(self, flow: int, *, by_broker: bool, frames: list[Octets]) -> int:
        """A message on a connection. Returns its packet."""
        src, dst = ("b:1", f"c:{flow}") if by_broker else (f"c:{flow}", "b:1")
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

    def forward(self, worker: int, *, drop: bool) -> None:
        if self.front:
            client, frames, asked = self.front.pop(0)
            if not drop:
                frames = [b"\0kE" + client.to_bytes(2), *frames]
                packet = self.say(100 + worker, by_broker=True, frames=frames)
                self.first[packet] = asked
                self.in_hand[worker].append((frames, packet, (client, asked)))

    def answer(self, worker: int, which: int) -> None:
        hand = self.in_hand[worker]
        if hand:
            frames, packet, (client, asked) = hand.pop(0 if self.workers[worker] == "REP" else which % len(hand))
            frames = [*frames[:-1], b"pong"]
            reply = self.say(100 + worker, by_broker=False, frames=frames)
            self.truth[reply], self.first[reply] = packet, asked
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
        kinds = {(flow, False): kind for flow, kind in enumerate(self.workers, 100)}
        kinds |= {(flow, True): "DEALER" for flow in range(100, 100 + len(self.workers))}
        for flow, kind in enumerate(self.kinds):
            kinds[flow, False], kinds[flow, True] = "DEALER" if kind == "dealer" else "REQ", "ROUTER"
        seen = [event for event in self.events if isinstance(event, Message) and event.packet > packet]
        for event in seen:
            event.socket_type = kinds[event.flow, event.src == "b:1"]
        return list(seen)

    def play(self, script: list[Step]) -> None:
        """Do one thing after the other."""
        for what, who, chance in script:
            if what == "ask":
                self.ask(who % len(self.kinds))
            elif what == "forward":
                self.forward(who % len(self.workers), drop=chance == 0)
            elif what == "answer":
                self.answer(who % len(self.workers), chance)
            else:
                self.give_back(drop=chance == 0)
