"""A reply names its own request or none, whatever clients ask, brokers drop and workers answer."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zmtpsniff
from dissectors.events import Message, Place, Problem, at_hand
from tests.analysis.ways.scenes import Scene
from tests.support.broker_world import SCRIPTS, BrokerWorld
from tests.support.examples import examples
from tests.support.paths import FIXTURES
from tests.world.events import events_of
from tests.world.tap import load
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


@settings(max_examples=examples(300), deadline=None)
@given(
    clients=st.lists(st.sampled_from(["req", "rel", "correlate", "dealer"]), min_size=1, max_size=4),
    workers=st.lists(st.sampled_from(["REP", "DEALER"]), min_size=1, max_size=3),
    script=SCRIPTS,
)
def test_no_pair_is_wrong(clients: list[str], workers: list[str], script: list[Any]) -> None:
    world = BrokerWorld(clients, workers)
    world.play(script)
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


@pytest.mark.parametrize(("replies", "codes"), [(1, ["request-before-reply"]), (2, ["reply-without-request"])])
def test_a_req_may_take_a_reply_too_many_for_the_next_one(replies: int, codes: list[str]) -> None:
    """The REQ of zmq4 for Go does. Its DEALER sends each request to all workers, so each of them replies."""
    scene = Scene()
    scene.connect(1, "10.0.0.2:40000", "10.0.0.1:5555", types=("REQ", "ROUTER"))
    asked = scene.say(1, b"", b"first")
    for _ in range(replies):
        scene.say(1, b"", b"done", by_server=True).seen = asked.offset + 1
    for body in (b"second", b"third"):
        asked = scene.say(1, b"", body)
        asked.seen = asked.offset
    found = [event.code for event in Patterns().take(scene.events) if isinstance(event, Problem)]
    assert found == codes


def test_equal_messages_on_their_way_together_are_not_told_apart() -> None:
    world = BrokerWorld(["rel"], ["DEALER"])
    world.ask(0)
    world.ask(0)
    for _ in range(2):
        world.forward(0, drop=False)
    legs = [event for event in Patterns().take(world.events) if isinstance(event, Message) and event.flow == 100]
    assert [leg.forwards for leg in legs] == [None, None]
    world = BrokerWorld(["rel"], ["DEALER"])
    world.ask(0)
    world.forward(0, drop=False)
    legs = [event for event in Patterns().take(world.events) if isinstance(event, Message) and event.flow == 100]
    assert [leg.forwards for leg in legs] == [Place(0, 1)]


def test_a_reply_to_a_peer_that_came_back_may_answer_what_it_asked_before() -> None:
    """A ROUTER sends a reply to whichever connection has the identity: "done 1" to the one that asks "order 2"."""
    messages = list(zmtpsniff.open(FIXTURES / "rec_identity_returns.pcap").messages())
    assert [bytes(one.octets(1)) for one in messages] == [
        b"order 1", b"order 2", b"done 1", b"order 3", b"done 2", b"done 3",
    ]  # fmt: skip
    assert [one.request for one in messages] == [None] * 6


def test_a_heartbeat_of_majordomo_answers_nothing() -> None:
    """Nor is a worker that says it is ready, or its reply, a request: the next work is no reply to it."""
    told = messages(FIXTURES / "healthy/majordomo.pcap.gz")
    by_place = of(told)
    pairs = [
        (by_place[event.flow, event.request, event.request_part].frames[2], event.frames[2])
        for event in told
        if event.request is not None and len(event.frames) > 1 and event.frames[1] == b"MDPW01"
    ]
    assert pairs == 30 * [(b"\2", b"\3")]


@pytest.mark.parametrize("share", [0.03, 0.05, 0.1])
def test_who_speaks_unasked_answers_nothing(share: float) -> None:
    """Zerorpc, late: after some calls the ROUTER sends streams and heartbeats, so it is not the REP that it seemed."""
    packets = load(FIXTURES / "healthy" / "app_zerorpc.pcap.gz")
    messages = [
        event
        for event in events_of(packets[int(share * len(packets)) :], Settings(payload=False))
        if isinstance(event, Message)
    ]
    bodies = {(one.packet, one.part): at_hand(one.frames[-1]) for one in messages}
    pairs = [(bodies[one.request, one.request_part or 1], at_hand(one.frames[-1])) for one in messages if one.request]
    assert len(pairs) > 20
    wrong = [
        reply
        for request, reply in pairs
        if not any(b"response_to\xc4 " + called in reply for called in re.findall(rb"message_id\xc4 (\w{32})", request))
    ]
    assert len(wrong) <= 2  # the first messages of a stream: only those behind it show that it is no REP
