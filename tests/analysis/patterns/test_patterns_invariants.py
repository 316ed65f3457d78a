"""Whatever events come, in whatever batches: no exception, the same findings, and nothing is kept beyond its bounds."""

import tracemalloc
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dissectors.events import (
    AnyEvent,
    Command,
    Connection,
    Cut,
    Greeting,
    Message,
    Octets,
    Peer,
    Problem,
    Sides,
    Subscription,
    WireEvent,
)
from tests.support.examples import examples
from tests.support.footprint import entries, only, reachable
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.analysis.patterns.connection_log import ConnectionLog
from zmtpsniff.analysis.patterns.conversation import Conversation, Room, Rules
from zmtpsniff.net.notices import Doubt, Notice, Refusal

What = AnyEvent | Refusal | Doubt

KINDS = [
    *("REQ", "REP", "DEALER", "ROUTER", "PUB", "SUB", "XPUB", "XSUB", "PUSH", "PULL", "PAIR"),
    *("CLIENT", "SERVER", "RADIO", "DISH", "SCATTER", "GATHER", "PEER", "CHANNEL", "BOGUS"),
]
FIT = [
    *(("REQ", "REP"), ("REQ", "ROUTER"), ("DEALER", "REP"), ("DEALER", "ROUTER"), ("DEALER", "DEALER")),
    *(("SUB", "PUB"), ("XSUB", "XPUB"), ("PULL", "PUSH"), ("PAIR", "PAIR"), ("CLIENT", "SERVER"), ("DISH", "RADIO")),
]
MS = 1_000_000
OCTETS: st.SearchStrategy[Octets] = st.sampled_from(
    [b"", b"", b"a", b"ab", b"b", b"\0\1\2\3\4", b"\0\1\2\3\5", b"worker", Cut(b"a", 9)]
)
SERVERS = ["10.0.0.9:5555", "10.0.0.9:5556"]

# One step: which flow, which side, what, how much later.
steps = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 1),
        st.sampled_from(
            ["message"] * 8
            + ["subscribe", "cancel", "PING", "PONG", "JOIN", "LEAVE"]
            + ["gap", "doubt", "end", "refused", "begin"]
        ),
        st.lists(OCTETS, min_size=1, max_size=4),
        st.sampled_from([0, 1, 100, 1500]),
    ),
    max_size=60,
)
types = st.lists(st.one_of(st.sampled_from(FIT), st.tuples(*[st.sampled_from(KINDS)] * 2)), min_size=4, max_size=4)


def played(script: list[Any], kinds: list[tuple[str, str]]) -> Iterator[What]:
    """The events of a script, each time new ones, and what is none."""
    now = 1_700_000_000_000 * MS
    numbers: dict[int, int] = {}  # place in the script to the number of its flow
    count = 0

    def begin(place: int, packet: int) -> Iterator[AnyEvent]:
        nonlocal count
        count += 1
        numbers[place] = count
        for side in (0, 1):
            yield Greeting(now, packet, count, *ends(place, side), version="3.1", mechanism="NULL")
        yield ready(place, 0, packet)

    def ready(place: int, side: int, packet: int) -> Command:
        kind = kinds[place][side]
        properties: dict[str, Octets] = {"Socket-Type": kind.encode(), "Identity": b"worker"}
        return Command(now, packet, numbers[place], *ends(place, side), "READY", properties, kind, b"worker")

    def ends(place: int, side: int) -> tuple[str, str]:
        client, server = f"10.0.0.1:{40000 + place}", SERVERS[place % 2]
        return (server, client) if side else (client, server)

    def end(place: int, how: Any) -> Connection:
        client, server = ends(place, 0)
        one, other = Peer(client, "3.1", kinds[place][0]), Peer(server, "3.1", kinds[place][1])
        flow = numbers.pop(place)
        return Connection(flow, "tcp", one, other, Sides(0, 1), Sides(9, 9), now - MS, now, how, handshake="complete")

    for packet, (place, side, what, frames, later) in enumerate(script, 1):
        now += later * MS
        if what == "refused":
            yield Refusal(now, packet, 0, *ends(place, 0))
            continue
        is_first = place not in numbers
        if is_first:
            yield from begin(place, packet)
            if side:
                yield ready(place, 1, packet)
        flow = numbers[place]
        wire = (now, packet, flow, *ends(place, side))
        if what == "message":
            yield Message(*wire, list(frames), kinds[place][side])
        elif what in ("subscribe", "cancel"):
            yield Subscription(*wire, what, frames[0], "message")
        elif what in ("PING", "PONG"):
            yield Command(*wire, what, context=frames[0], ttl_ms=1000 if what == "PING" and len(frames) > 1 else None)
        elif what in ("JOIN", "LEAVE"):
            yield Command(*wire, what, group=frames[0])
        elif what == "doubt":
            yield Doubt(now, flow, now - MS)
        elif what == "gap":
            yield Problem("error", "capture-gap", "octets are missing", *wire)
        elif what == "end":
            yield end(place, "fin")
            continue
        if is_first and not side:  # what was sent came too early
            yield ready(place, 1, packet)
    for place in list(numbers):
        yield end(place, "open")


def taken(patterns: Patterns, batch: list[What]) -> list[AnyEvent]:
    """A batch of events that patterns have taken, with what is no event in its place."""
    events: list[AnyEvent] = []
    notices: list[tuple[int, Notice]] = []
    for each in batch:
        if isinstance(each, Refusal | Doubt):
            notices.append((len(events), each))
        else:
            events.append(each)
    return patterns.take(events, None, notices)


def findings(patterns: Patterns, events: list[What], cuts: list[int]) -> tuple[list[Any], list[AnyEvent]]:
    """The problems of a capture in these batches, and its other events."""
    out: list[AnyEvent] = []
    snapshots: list[AnyEvent] = []
    places = [0, *sorted(cut for cut in cuts if cut < len(events)), len(events)]
    for start, stop in pairwise(places):
        given_out = taken(patterns, events[start:stop])
        out += given_out
        snapshots += deepcopy(given_out)
    assert out == snapshots, "changed after it was given out"
    out += patterns.finish()
    problems = [event for event in out if isinstance(event, Problem) and event.code != "capture-gap"]
    rest: list[AnyEvent] = [event for event in out if not isinstance(event, Problem)]
    return sorted(map(msgspec.structs.astuple, problems), key=repr), rest


@settings(max_examples=examples(300), deadline=None)
@given(script=steps, kinds=types, cuts=st.lists(st.integers(0, 100), max_size=20))
@example(  # late when octets are missing
    script=[(0, 0, "message", [b"", b""], 0), (0, 0, "message", [b""], 1500), (0, 0, "gap", [b""], 0)],
    kinds=[("REQ", "REP")] * 4,
    cuts=[6],
)
@example(  # late when octets of another connection are missing
    script=[
        (0, 0, "message", [b"", b""], 0),
        (3, 1, "PING", [b""], 0),
        (0, 0, "gap", [b""], 1500),
        (3, 0, "gap", [b""], 0),
    ],
    kinds=[("REQ", "REP")] * 4,
    cuts=[],
)
def test_findings_do_not_depend_on_batches(script: list[Any], kinds: list[tuple[str, str]], cuts: list[int]) -> None:
    whole, in_parts = Patterns(1.2), Patterns(1.2)
    expected = findings(whole, list(played(script, kinds)), [])
    assert findings(in_parts, list(played(script, kinds)), cuts) == expected
    assert findings(Patterns(1.2), list(played(script, kinds)), list(range(200))) == expected


@settings(max_examples=examples(200), deadline=None)
@given(script=steps, kinds=types)
def test_nothing_is_kept_of_connections_that_are_over(script: list[Any], kinds: list[tuple[str, str]]) -> None:
    """Only of their addresses, which others have again."""
    patterns = Patterns(1.2)
    room = only(Room, patterns)
    left = room.left
    findings(patterns, list(played(script, kinds)), [])
    assert room.left == left
    assert not [one for one in reachable(patterns) if isinstance(one, (Conversation, Rules))]
    things = entries(only(ConnectionLog, patterns))
    others = list(played(script, kinds))
    for event in others:
        if isinstance(event, WireEvent | Problem | Connection) and event.flow is not None:
            event.flow += 100
    findings(patterns, others, [])
    assert room.left == left
    assert entries(only(ConnectionLog, patterns)) == things


ROOM = 1 << 20


def opened(count: int, client: str, server: str) -> list[AnyEvent]:
    """So many connections that are open at the same time."""
    out: list[AnyEvent] = []
    for flow in range(1, count + 1):
        ends = (f"10.{flow >> 16}.{flow >> 8 & 255}.{flow & 255}:40000", "10.0.0.9:5555")
        for side, kind in zip((ends, ends[::-1]), (client, server), strict=True):
            out.append(Greeting(1, 1, flow, *side, version="3.1", mechanism="NULL"))
            out.append(Command(1, 1, flow, *side, "READY", {"Socket-Type": kind.encode()}, kind))
    return out


def kept(events: Iterator[AnyEvent] | list[AnyEvent]) -> int:
    """Octets that are kept once these events have gone by, with less room than usual so that they need not be many."""
    patterns = Patterns()
    only(Room, patterns).left = ROOM
    tracemalloc.start()
    try:
        batch: list[AnyEvent] = []
        for event in events:
            batch.append(event)
            if len(batch) == 1000:
                patterns.take(batch)
                batch = []
        patterns.take(batch)
        del batch
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def flood(what: str, flows: int, each: int) -> Iterator[AnyEvent]:
    """Far more of something than anybody should remember."""
    kinds = {"request": ("DEALER", "REP"), "topic": ("SUB", "PUB"), "group": ("DISH", "RADIO")}
    client, server = kinds.get(what, ("DEALER", "ROUTER"))
    yield from opened(flows, client, server)
    for number in range(each):
        for flow in range(1, flows + 1):
            ends = (f"10.{flow >> 16}.{flow >> 8 & 255}.{flow & 255}:40000", "10.0.0.9:5555")
            octets = b"%d of %d" % (number, flow)
            if what == "request":
                yield Message(2, 2, flow, *ends, [octets, b"", bytes(1000)], "DEALER")
            elif what == "topic":
                yield Subscription(2, 2, flow, *ends, "subscribe", octets + bytes(200), "message")
            elif what == "group":
                yield Command(2, 2, flow, *ends, "JOIN", group=octets)
            elif what == "ping":
                yield Command(2, 2, flow, *ends, "PING", ttl_ms=100, context=octets)
            else:
                yield Message(2, 2, flow, *ends, [octets, bytes(1000)], "DEALER")


@pytest.mark.parametrize("what", ["request", "topic", "group", "ping", "message"])
def test_a_flood_takes_bounded_memory(what: str) -> None:
    assert kept(flood(what, 20, 400)) < 4 * ROOM


def test_a_connection_takes_a_few_kibibytes() -> None:
    count = 500
    for kinds in (("REQ", "REP"), ("DEALER", "ROUTER"), ("SUB", "PUB")):
        assert kept(opened(count, *kinds)) < count * 4096


def test_messages_before_the_handshake_take_bounded_memory() -> None:
    def early() -> Iterator[AnyEvent]:
        for flow in range(1, 201):
            yield Greeting(1, 1, flow, f"10.0.0.1:{flow}", "10.0.0.9:5555", version="3.1")
            for number in range(60):
                yield Message(2, 2, flow, f"10.0.0.1:{flow}", "10.0.0.9:5555", [bytes(1000), b"%d" % number])

    assert kept(early()) < 4 * ROOM


def test_what_was_given_out_before_is_not_changed() -> None:
    client, server = ("10.0.0.1:40000", "10.0.0.9:5555"), ("10.0.0.9:5555", "10.0.0.1:40000")
    patterns = Patterns()
    early = Message(2, 2, 1, *client, [b"", b"early"], "REQ")
    first: list[AnyEvent] = [
        Greeting(1, 1, 1, *client, version="3.1"),
        Greeting(1, 1, 1, *server, version="3.1"),
        Command(1, 1, 1, *client, "READY", {"Socket-Type": b"REQ"}, "REQ"),
        early,
    ]
    assert patterns.take(first) == first
    reply = Message(4, 4, 1, *server, [b"", b"reply"], "REP")
    patterns.take([Command(3, 3, 1, *server, "READY", {"Socket-Type": b"REP"}, "REP"), reply])
    assert (early.envelope, reply.request, reply.latency_ns) == (None, 2, 2)


def test_what_time_alone_shows_comes_with_the_next_batch_though_it_is_empty() -> None:
    ends = ("10.0.0.1:40000", "10.0.0.9:5555")
    patterns = Patterns(1)
    patterns.take([*opened(1, "REQ", "REP")])
    patterns.take([Message(10**9, 7, 1, "10.0.0.1:40000", ends[1], [b"", b"hello"], "REQ")])
    assert patterns.take([]) == []
    patterns.settle(int(2.5e9))
    (problem,) = patterns.take([])
    assert isinstance(problem, Problem)
    assert (problem.code, problem.packet) == ("request-unanswered", 7)
    patterns.settle(int(9e9))
    assert patterns.take([]) == []
