"""A reply names its own request or none, whatever clients ask, brokers drop and workers answer."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Command, Greeting, Message, Octets, Place, Problem
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings

BROKERS = FIXTURES / "brokers"


def messages(path: Path) -> list[Message]:
    return [event for event in open_files([path], Settings(payload=False)) if isinstance(event, Message)]


def number(event: Message) -> str | None:
    """The number in a body: that of a reply is the one of its request."""
    body = event.frames[-1]
    return json.loads(body)["id"] if isinstance(body, bytes) and body.startswith(b"{") else None


def of(told: list[Message]) -> dict[tuple[int, int, int], Message]:
    return {(event.flow, event.packet, event.part): event for event in told}


@pytest.mark.parametrize("name", ["two_brokers", "load_balancing"])
def test_replies_behind_brokers_name_their_requests(name: str) -> None:
    told = messages(BROKERS / f"{name}.pcap.gz")
    by_place, asked = of(told), set()
    pairs = 0
    for event in told:
        if event.request is not None:
            request = by_place[event.flow, event.request, event.request_part]
            assert request.src == event.dst
            pairs += number(request) == number(event)
            if name == "two_brokers":  # behind the other a job is also the reply to what its worker said last
                assert number(request) == number(event)
        elif number(event) is not None:
            assert (event.flow, event.dst, number(event)) not in asked  # no reply is left unpaired
        asked.add((event.flow, event.src, number(event)))
    assert pairs > 30


@pytest.mark.parametrize("name", ["two_brokers", "load_balancing"])
def test_every_leg_behind_a_broker_names_the_one_before(name: str) -> None:
    told = messages(BROKERS / f"{name}.pcap.gz")
    by_place = of(told)
    seen = set()
    for event in told:
        if event.forwards is not None:
            before = by_place[event.forwards.flow, event.forwards.packet, event.forwards.part]
            assert number(before) == number(event)
        elif number(event) is not None:
            assert (number(event), event.request is None) not in seen  # only the first leg of each way has none
            seen.add((number(event), event.request is None))
    assert any(event.forwards is not None and event.request is not None for event in told)


class World:
    """Clients, one broker and workers. All bodies are the same, so only envelopes tell who is meant."""

    def __init__(self, clients: list[str], workers: list[str]) -> None:
        """Connect all of them."""
        self.events: list[AnyEvent] = []
        self.truth: dict[int, int] = {}  # a reply's packet to its request's
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
        self.front.append((client, frames, self.say(client, by_broker=False, frames=frames)))
        self.waits[client] = True

    def forward(self, worker: int, *, drop: bool) -> None:
        if self.front:
            client, frames, asked = self.front.pop(0)
            if not drop:
                frames = [b"\0kE" + client.to_bytes(2), *frames]
                packet = self.say(100 + worker, by_broker=True, frames=frames)
                self.in_hand[worker].append((frames, packet, (client, asked)))

    def answer(self, worker: int, which: int) -> None:
        hand = self.in_hand[worker]
        if hand:
            frames, packet, (client, asked) = hand.pop(0 if self.workers[worker] == "REP" else which % len(hand))
            frames = [*frames[:-1], b"pong"]
            self.truth[self.say(100 + worker, by_broker=False, frames=frames)] = packet
            self.back.append((client, frames[1:], asked))

    def give_back(self, *, drop: bool) -> None:
        if self.back:
            client, frames, asked = self.back.pop(0)
            if not drop:
                self.truth[self.say(client, by_broker=True, frames=frames)] = asked
                self.waits[client] = False


steps = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "forward", "answer", "back"]), st.integers(0, 5), st.integers(0, 9)),
    max_size=150,
)


@settings(max_examples=300, deadline=None)
@given(
    clients=st.lists(st.sampled_from(["req", "rel", "correlate", "dealer"]), min_size=1, max_size=4),
    workers=st.lists(st.sampled_from(["REP", "DEALER"]), min_size=1, max_size=3),
    script=steps,
)
def test_no_pair_is_wrong(clients: list[str], workers: list[str], script: list[Any]) -> None:
    world = World(clients, workers)
    for what, who, chance in script:
        if what == "ask":
            world.ask(who % len(clients))
        elif what == "forward":
            world.forward(who % len(workers), drop=chance == 0)
        elif what == "answer":
            world.answer(who % len(workers), chance)
        else:
            world.give_back(drop=chance == 0)
    told = Patterns().take(world.events)
    alone = {flow for flow, kind in enumerate(clients) if kind != "rel"}
    for event in told:
        if isinstance(event, Message):
            right = world.truth.get(event.packet)
            assert event.request in (None, right)
            if right is not None and event.flow in alone:
                assert event.request == right  # such clients are never left without
    codes = [event.code for event in told if isinstance(event, Problem)]
    assert codes.count("request-before-reply") <= world.again
    assert "reply-without-request" not in codes


def test_equal_messages_on_their_way_together_are_not_told_apart() -> None:
    world = World(["rel"], ["DEALER"])
    world.ask(0)
    world.ask(0)
    for _ in range(2):
        world.forward(0, drop=False)
    legs = [event for event in Patterns().take(world.events) if isinstance(event, Message) and event.flow == 100]
    assert [leg.forwards for leg in legs] == [None, None]
    world = World(["rel"], ["DEALER"])
    world.ask(0)
    world.forward(0, drop=False)
    legs = [event for event in Patterns().take(world.events) if isinstance(event, Message) and event.flow == 100]
    assert [leg.forwards for leg in legs] == [Place(0, 1)]
