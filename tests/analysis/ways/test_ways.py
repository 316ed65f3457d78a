"""The way of a message: every leg that is certain is right, over brokers, balancers and services."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import zmtpsniff
from dissectors.events import AnyEvent, Message, Place, Problem, at_hand
from tests.analysis.ways.scenes import Scene
from tests.support.broker_world import SCRIPTS, BrokerWorld
from tests.support.examples import examples
from tests.support.paths import FIXTURES
from tests.world.tap import load, save
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.analysis.ways.hops import OpenWay
from zmtpsniff.analysis.ways.way_records import Leg, Way
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.capture import files
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings

BROKERS = FIXTURES / "brokers"
NEAR, FAR = b"\0\x01\x02\x03\x04", b"\0\x05\x06\x07\x08"
"""Ids that a ROUTER gives its peers."""


def traced(path: Path) -> tuple[list[Way], dict[tuple[Place, str], Message]]:
    """The ways of a capture, and its messages by place and sender."""
    return followed(open_files([path], Settings()).batches())


def followed(batches: Iterable[list[AnyEvent]]) -> tuple[list[Way], dict[tuple[Place, str], Message]]:
    """The ways of events, and their messages by place and sender."""
    ways = Ways()
    found: list[OpenWay] = []
    messages: dict[tuple[Place, str], Message] = {}
    for events in batches:
        found += ways.take(events)
        messages |= {(event.place, event.src): event for event in events if isinstance(event, Message)}
    found += ways.finish()
    return [record for way in found if (record := ways.record(way)) is not None], messages


def message_of(leg: Leg, messages: dict[tuple[Place, str], Message]) -> Message:
    return messages[Place(leg.flow, leg.packet, leg.part), leg.src]


def number(event: Message) -> str | None:
    """The number in a body, which all messages of a way have."""
    found = re.search(rb'"id": ?"([^"]+)"', event.frames[-1]) if isinstance(event.frames[-1], bytes) else None
    return found[1].decode() if found else None


@pytest.mark.parametrize(("name", "legs"), [("two_brokers", 6), ("load_balancing", 4)])
def test_requests_cross_brokers(name: str, legs: int) -> None:
    ways, messages = traced(BROKERS / f"{name}.pcap.gz")
    lengths: Counter[int] = Counter()
    told = [(leg.flow, leg.packet, leg.part, leg.src) for way in ways for leg in way.legs]
    assert len(told) == len(set(told))  # no leg is in two ways
    for way in ways:
        numbers = {number(message_of(leg, messages)) for leg in way.legs}
        if numbers == {None}:
            continue  # READY of a worker that got no job
        assert len(numbers) == 1
        assert way.kind == "request"
        assert all(leg.certain for leg in way.legs)
        assert way.answered is (way.legs[-1].dst == way.legs[0].src)
        lengths[len(way.legs)] += 1
    assert lengths.most_common(1)[0][0] == legs


def test_a_tcp_proxy_passes_requests_on_as_they_are() -> None:
    """It has a connection to the server for each of a client. Two clients send the same requests at the same time."""
    ways, _ = traced(FIXTURES / "systems" / "tcp_proxy.pcap.gz")
    whole = [way for way in ways if len(way.legs) == 4]
    assert len(whole) >= 78  # the first request of a client may come before the proxy's other side is known
    partners = {(way.legs[0].flow, way.legs[1].flow) for way in whole}
    assert len(partners) == len({flow for pair in partners for flow in pair}) // 2 == 2
    slow = [way.slowest.at for way in whole if way.slowest is not None and way.slowest.ns > 100_000_000]
    assert slow == ["10.3.0.3:5555"] * 2


def test_work_of_a_balancer_is_a_way_each_where_only_the_worker_is_seen(tmp_path: Path) -> None:
    """The capture is of a worker's host alone. The worker is a REQ, and what it gets next is no answer to its reply."""
    worker = bytes([10, 9, 0, 58])
    packets = [packet for packet in load(BROKERS / "load_balancing.pcap.gz") if worker in packet[2][:34]]
    save(tmp_path / "worker.pcap", packets)
    ways, _ = traced(tmp_path / "worker.pcap")
    assert [[leg.reply for leg in way.legs] for way in ways if len(way.legs) > 1] == [[False, True]] * 14
    assert {way.slowest.at for way in ways if way.slowest is not None} == {"10.9.0.58:55316"}


@pytest.mark.parametrize("begin", [60, 100])
def test_work_of_a_balancer_answers_no_work_before_it_where_the_capture_lacks_its_types(
    begin: int, tmp_path: Path
) -> None:
    save(tmp_path / "late.pcap", load(BROKERS / "load_balancing.pcap.gz")[begin:])
    ways, messages = traced(tmp_path / "late.pcap")
    for way in ways:
        assert len({number(message_of(leg, messages)) for leg in way.legs}) == 1 or not way.legs[1].certain


def test_a_request_that_a_broker_drops_ends_there() -> None:
    ways, _ = traced(BROKERS / "two_brokers.pcap.gz")
    lost = [way for way in ways if way.ended is not None and way.ended.why == "not-forwarded"]
    assert len(lost) == 5
    assert {str(way.ended and way.ended.at) for way in lost} == {"10.9.0.37:6206"}
    assert {len(way.legs) for way in lost} == {2}
    assert any(way.again is not None for way in ways)


@pytest.mark.parametrize("name", ["app_majordomo_mdp01", "app_majordomo_mdp02"])
def test_requests_cross_majordomo(name: str) -> None:
    ways, _ = traced(FIXTURES / f"{name}.pcap")
    whole = [way for way in ways if len(way.legs) >= 4]
    assert whole
    assert all(way.answered for way in whole)
    for way in whole:
        assert [leg.reply for leg in way.legs] == sorted(leg.reply for leg in way.legs)  # there, then back


def test_the_session_of_a_jupyter_client_joins_none_of_its_messages() -> None:
    """An engine registers, and later publishes under the same session."""
    ways, messages = traced(FIXTURES / "healthy" / "app_ipyparallel.pcap.gz")
    registrations = {
        (one.flow, one.packet)
        for one in messages.values()
        if one.payload is not None and "registration_request" in one.payload.summary
    }
    assert registrations
    assert [way for way in ways if (way.legs[0].flow, way.legs[0].packet) in registrations] == []


@pytest.mark.parametrize("name", ["app_circus", "calls_through_a_switch"])
def test_nothing_ends_where_an_answer_may_have_come(name: str) -> None:
    """An id alone joins it, a peer asks over the connection of its replies, or news of the request came later."""
    ways, _ = traced(FIXTURES / "healthy" / f"{name}.pcap.gz")
    assert [way.ended for way in ways if way.ended is not None] == []


def test_of_messages_with_the_same_body_the_one_with_the_same_frames_is_passed_on() -> None:
    """The frames have no delimiter, and the broker answers the first of them itself."""
    ways, messages = traced(FIXTURES / "healthy" / "app_szrpc.pcap.gz")
    requests = [way for way in ways if len(way.legs) > 2]
    assert len(requests) == 25
    for way in requests:
        asked, given = (message_of(leg, messages).frames for leg in way.legs[:2])
        assert given[1:] == asked


def test_what_a_kernel_publishes_belongs_to_the_request() -> None:
    ways, messages = traced(FIXTURES / "app_jupyter.pcap")
    outputs = 0
    for way in ways:
        published = [leg for leg in way.legs if leg.joined == "correlation"]
        if not published or way.kind != "request":
            continue
        outputs += len(published)
        answer = next(leg for leg in way.legs if leg.reply)
        assert way.slowest is not None
        assert way.slowest.ns == answer.time_ns - way.time_ns  # whatever it published meanwhile, and later
        request = message_of(way.legs[0], messages)
        asked = next(json.loads(frame)["msg_id"] for frame in request.frames if b'"msg_id"' in frame)  # type: ignore[arg-type, operator]
        for leg in published:
            assert asked.encode() in b"".join(message_of(leg, messages).frames)  # type: ignore[arg-type]
    assert outputs >= 10


def test_a_request_without_a_broker_is_a_way_of_two_legs() -> None:
    ways, _ = traced(FIXTURES / "m31_req_rep.pcap")
    assert {len(way.legs) for way in ways} == {2}
    assert all(way.answered and way.slowest is not None and way.slowest.what == "inside" for way in ways)


def of_world(events: list[AnyEvent]) -> list[Way]:
    return followed([Patterns().take(events)])[0]


@settings(max_examples=examples(300), deadline=None)
@given(
    clients=st.lists(st.sampled_from(["req", "rel", "correlate", "dealer"]), min_size=1, max_size=4),
    workers=st.lists(st.sampled_from(["REP", "DEALER"]), min_size=1, max_size=3),
    script=SCRIPTS,
    brokers=st.sampled_from([1, 2]),
)
@example(
    brokers=1, clients=["rel"], workers=["DEALER"], script=[("ask", 0, 0), ("forward", 0, 1)] * 2 + [("answer", 0, 0)]
)
@example(
    brokers=1,
    clients=["req", "req"],
    workers=["REP"],
    script=[
        ("ask", 0, 0),
        ("ask", 1, 0),
        *[("forward", 0, 1)] * 2,
        *[("answer", 0, 0)] * 2,
        ("back", 0, 0),
        ("back", 0, 1),
    ],
)
def test_no_certain_leg_is_wrong(clients: list[str], workers: list[str], script: list[Any], brokers: int) -> None:
    """All bodies are the same: nothing but envelopes tells the messages apart."""
    world = BrokerWorld(clients, workers, brokers)
    world.play(script)
    told = set()
    for way in of_world(world.events):
        first = way.legs[0].packet
        for leg in way.legs:
            assert leg.packet not in told
            told.add(leg.packet)
        if all(leg.certain for leg in way.legs) and first in world.first.values():
            assert {world.first[leg.packet] for leg in way.legs} == {first}


def test_ids_that_nobody_announced_are_found_out() -> None:
    world = BrokerWorld(["req", "req"], ["REP"])
    for _ in range(2):  # both ask the same at a time: which is which, nobody knows yet
        world.play([("ask", 0, 1), ("ask", 1, 1), ("forward", 0, 1), ("forward", 0, 1)])
        world.play([("answer", 0, 1), ("back", 0, 1), ("answer", 0, 1), ("back", 0, 1)])
    ways = of_world(world.events)
    assert [len(way.legs) for way in ways] == [4, 4, 4, 4]
    for way in ways:
        assert {world.first[leg.packet] for leg in way.legs} == {way.legs[0].packet}


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.2"])
def test_clients_that_ask_the_same_at_once_are_told_apart(host: str) -> None:
    """Also on one machine, and where an answer ends as the request does: a REP passes nothing on."""
    scene = Scene()
    front, back = f"{host}:5561", f"{host}:5562"
    for number in (1, 2):
        scene.connect(number, f"{host}:4000{number}", front, types=("REQ", "ROUTER"))
        scene.connect(number + 2, f"{host}:4100{number}", back, types=("REP", "DEALER"))
    for order in (b"0", b"1"):
        asked = [scene.say(number, b"", b"order", order) for number in (1, 2)]
        for number, request in zip((1, 2), asked, strict=True):
            routing_id = b"\0id-%d" % number
            given = scene.say(number + 2, routing_id, b"", b"order", order, by_server=True)
            scene.say(number + 2, routing_id, b"", b"done", b"order", order, answers=given)
            scene.say(number, b"", b"done", b"order", order, by_server=True, answers=request)
    for flow in (1, 2, 3, 4):
        scene.close(flow)
    ways = scene.ways()
    assert [[leg.flow for leg in way.legs] for way in ways] == [[1, 3, 3, 1], [2, 4, 4, 2]] * 2
    assert [way.again for way in ways] == [None] * 4


def test_a_network_that_loses_packets_is_to_blame_and_no_program() -> None:
    """TCP sends a message again that the broker did not get: it had the message only then."""
    path = BROKERS / "lossy_line.pcap.gz"
    slow = [way.slowest for way in zmtpsniff.open(path).ways() if way.slowest and way.slowest.ns > 100_000_000]
    # Its connection to the worker lost packets, too, while it was made: two messages waited for that.
    assert Counter(one.what for one in slow) == {"network": 6, "queue": 2}
    assert all(one.at.startswith("10.7.0.4:") for one in slow)
    (told,) = [one for one in zmtpsniff.open(path).findings() if one.code == "replies-slow"]
    assert told.summary.startswith("the network loses packets on the way to 10.7.0.4:5551: 6 of 298 messages")


def test_holes_in_a_capture_make_no_way_wrong_and_no_peer_share_an_identity() -> None:
    """The octets behind a hole come late: so do an old connection's end, and requests that replies belong to."""
    path = BROKERS / "lossy_identities.pcap.gz"
    ways, messages = traced(path)
    for way in ways:
        assert len({at_hand(message_of(leg, messages).frames[-1]).lstrip(b"r") for leg in way.legs}) == 1
        flows = {leg.flow for leg in way.legs}
        is_at_broker = way.slowest is not None and way.slowest.at.startswith("10.5.0.1:")
        assert len(flows) > 1 or not is_at_broker, "the worker may have had it meanwhile"
    assert {one.severity for one in zmtpsniff.open(path).findings()} == {"note"}


@pytest.mark.parametrize("seed", [0, 2, 11])
@pytest.mark.parametrize("name", ["load_balancing", "two_brokers"])
def test_messages_that_the_capture_lacks_make_no_certain_leg_wrong(name: str, seed: int, tmp_path: Path) -> None:
    """Of one with the same envelope it may be another request that a worker has answered."""
    chance, path = random.Random(seed), tmp_path / "lossy.pcap"
    save(path, [packet for packet in load(BROKERS / f"{name}.pcap.gz") if chance.random() > 0.05])
    ways, messages = traced(path)
    sure = [way for way in ways if all(leg.certain for leg in way.legs)]
    assert sum(len(way.legs) > 1 for way in sure) > 20
    for way in sure:
        assert len({number(message_of(leg, messages)) for leg in way.legs}) == 1


def test_what_a_broker_passed_on_before_it_came_accuses_nobody_else(tmp_path: Path) -> None:
    """The capture point shows messages of different connections out of order. No leg is in two ways.

    One of the two brokers drops every 20th request.
    """
    healthy = [
        (f"healthy/{name}", seed) for name, seed in (("answers_in_any_order_brokered", 1), ("calls_over_a_bus", 0))
    ]
    for name, seed in ("brokers/two_brokers", 0), *healthy:
        chance, path = random.Random(seed), tmp_path / "disorder.pcap"
        save(path, sorted(load(FIXTURES / f"{name}.pcap.gz"), key=lambda packet: packet[0] + chance.random() * 1e6))
        told = {one.code: one.endpoints[0] for one in zmtpsniff.open(path).findings() if one.severity != "note"}
        told.pop("protocol-violated", None)  # by a REQ that asks again: its connection alone shows that
        assert told == ({"not-passed-on": "10.9.0.37:6206"} if name == "brokers/two_brokers" else {})
        legs = [(leg.flow, leg.packet, leg.part, leg.src) for way in traced(path)[0] for leg in way.legs]
        assert len(legs) == len(set(legs))


@pytest.mark.parametrize("seconds", [0.3, -0.9])
def test_a_capture_of_two_points_whose_clocks_differ_accuses_nobody(seconds: float, tmp_path: Path) -> None:
    """Packets that one of them saw look as if they came again after a pause, or came late."""
    packets, path = load(FIXTURES / "healthy" / "majordomo_two_services.pcap.gz"), tmp_path / "two.pcap"
    seen = [one for one in packets if bytes([10, 77, 0, 13]) in (one[2][26:30], one[2][30:34])]
    shifted = [(one[0] + int(seconds * 1e9), *one[1:]) for one in seen]
    save(path, sorted([*packets, *shifted], key=lambda packet: packet[0]))
    assert {one.severity for one in zmtpsniff.open(path).findings()} == {"note"}


def test_a_message_with_another_envelope_is_not_passed_on_though_its_body_is_the_same() -> None:
    world = BrokerWorld(["req", "req"], ["REP"], brokers=2)
    there, back = [("forward", 1, 1), ("forward", 0, 1)], [("answer", 0, 1), ("back", 1, 1), ("back", 0, 1)]
    world.play([("ask", 0, 1), *there, *back, ("ask", 1, 1), *there, *back])
    # The second broker drops the next request of the first client, and passes on that of the other one.
    world.play([("ask", 0, 1), ("ask", 1, 1), *[("forward", 1, 1)] * 2, ("forward", 0, 0), ("forward", 0, 1), *back])
    ways = of_world(world.events)
    assert [len(way.legs) for way in ways] == [6, 6, 2, 6]
    assert all(leg.certain for way in ways for leg in way.legs)


def test_a_client_that_comes_back_with_its_identity_gets_the_reply_to_what_it_asked_before() -> None:
    ways, messages = traced(BROKERS / "identity_ignored.pcap.gz")
    moved = [way for way in ways if way.answered and way.legs[-1].dst != way.legs[0].src]
    assert moved
    for way in moved:
        assert len({number(message_of(leg, messages)) for leg in way.legs}) == 1
        assert way.ended is None


def test_a_router_ignores_who_comes_back_with_its_identity_too_early() -> None:
    findings = zmtpsniff.open(BROKERS / "identity_ignored.pcap.gz").findings()
    (told,) = [one for one in findings if one.code == "identity-shared"]
    assert (told.severity, told.endpoints, told.evidence[0].packet) == ("note", ["10.9.0.47:52282"], 1426)
    assert not [one for one in findings if one.code == "not-passed-on"]


def test_of_two_with_one_identity_that_are_both_alive_none_came_back() -> None:
    diagnosis = Diagnosis()
    diagnosis.take(list(zmtpsniff.open(BROKERS / "identity_ignored.pcap.gz")))
    (back,) = (one for one in diagnosis.findings() if one.code == "identity-shared")
    assert back.certainty == "likely"
    seen = back.evidence[0]
    diagnosis.take([Problem("warning", "identity-in-use", "both stay", back.first_ns, seen.packet, seen.flow)])
    (shared,) = (one for one in diagnosis.findings() if one.code == "identity-shared")
    assert shared.summary == "both stay"


def test_a_broker_that_hangs_is_to_blame_though_its_client_comes_back_with_its_identity() -> None:
    """It sends no messages at all any more, so it is not the ROUTER that ignores one peer."""
    (told,) = zmtpsniff.open(BROKERS / "hung_returning.pcap.gz").findings()
    assert (told.code, told.severity, told.endpoints, told.count) == ("not-passed-on", "error", ["127.0.0.2:5561"], 15)


@pytest.mark.parametrize("name", ["rec_cut_message_ok", "rec_late_reply", "rec_numbered_topics_ok"])
def test_ends_of_blocks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a connection and its end are in one block."""
    found = []
    for octets in (1 << 20, 4000, 100):
        monkeypatch.setattr(files, "CHUNK", octets)
        with zmtpsniff.open(FIXTURES / f"{name}.pcap") as capture:
            found.append(list(capture.ways()))
    assert found[0]
    assert all(leg.seen_ns for way in found[0] for leg in way.legs[:-1])
    assert found[0] == found[1] == found[2]


def test_an_id_that_one_leg_tells_another_one_while_a_third_waits() -> None:
    """The reply to one client tells its id, that the id of the next; then a request comes that may be of two others."""
    scene = Scene()
    for flow in range(1, 5):
        scene.connect(flow, f"10.0.0.{flow}:40000", "10.0.1.1:5555", types=("REQ", "ROUTER"))
    scene.connect(5, "10.0.2.1:40000", "10.0.1.1:5556", types=("REP", "DEALER"))
    asked = [scene.say(flow, b"", body) for flow, body in ((1, b"x"), (2, b"x"), (3, b"y"), (4, b"y"))]
    ids = [b"\0\1\2\3%d" % number for number in range(4)]
    passed = [scene.say(5, one, b"", b"x", by_server=True) for one in ids[:2]]
    scene.say(5, ids[0], b"", b"re x", answers=passed[0])
    scene.say(1, b"", b"re x", by_server=True, answers=asked[0])
    passed = [scene.say(5, one, b"", b"y", by_server=True) for one in ids[2:]]
    for flow, number in ((4, 1), (3, 0)):
        scene.say(5, ids[2 + number], b"", b"re y %d" % flow, answers=passed[number])
        scene.say(flow, b"", b"re y %d" % flow, by_server=True, answers=asked[flow - 1])
    ways = {way.legs[0].flow: [leg.packet for leg in way.legs] for way in scene.ways()}
    assert ways == {1: [1, 5, 7, 8], 2: [2, 6], 3: [3, 9, 13, 14], 4: [4, 10, 11, 12]}


def test_what_came_over_a_connection_that_is_over_keeps_its_id() -> None:
    """A client asks again on a new connection, which has another id: the broker passes on the second one."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.1.1:5555", types=("REQ", "ROUTER"))
    scene.connect(3, "10.0.2.1:40000", "10.0.1.1:5556", types=("REQ", "ROUTER"))
    scene.say(3, b"", b"READY")
    first = scene.say(1, b"", b"first")
    passed = scene.say(3, b"", NEAR, *first.frames, by_server=True)
    scene.say(3, b"", NEAR, b"", b"re first", answers=passed)
    scene.say(1, b"", b"re first", by_server=True, answers=first)
    scene.say(1, b"", b"again")  # the broker drops it
    scene.close(1)
    scene.connect(2, "10.0.0.1:40002", "10.0.1.1:5555", types=("REQ", "ROUTER"))
    again = scene.say(2, b"", b"again")
    passed = scene.say(3, b"", FAR, *again.frames, by_server=True)
    scene.say(3, b"", FAR, b"", b"re again", answers=passed)
    scene.say(2, b"", b"re again", by_server=True, answers=again)
    ways = Ways(in_order=False)  # what comes later shows nothing of a way that is over
    told = [[hop.packet for hop in way.hops] for event in scene.events for way in ways.take([event])]
    assert told == [[2, 3, 4, 5], [7, 8, 9, 10]]


def test_a_reply_is_certain_to_be_of_one_worker_only_if_no_other_one_of_its_host_owes_one() -> None:
    """One of two workers closes with a request in hand, and the other one has one with the same envelope."""
    scene = Scene()
    scene.connect(1, "127.0.0.1:40001", "127.0.0.1:5555", types=("DEALER", "ROUTER"))
    scene.connect(2, "127.0.0.1:40002", "127.0.0.1:5556", types=("DEALER", "DEALER"))
    scene.connect(3, "127.0.0.1:40003", "127.0.0.1:5556", types=("DEALER", "DEALER"))
    asked = [scene.say(1, b"question %c" % letter) for letter in b"ab"]
    for flow, one in zip((2, 3), asked, strict=True):
        scene.say(flow, NEAR, *one.frames, by_server=True)
    scene.close(2)
    scene.say(3, NEAR, b"answer b")
    scene.say(1, b"answer b", by_server=True)
    lost, answered = scene.ways()
    assert [leg.packet for leg in lost.legs] == [1, 3]
    assert [(leg.packet, leg.certain) for leg in answered.legs] == [(2, True), (4, True), (5, False), (6, True)]


def test_a_peer_of_zmtp_2_sends_before_the_other_one_has_said_its_type() -> None:
    """JeroMQ 0.3 does: its greeting and its first request are one segment."""
    scene = Scene()
    client, front, back = "10.0.0.2:40000", "10.0.0.1:5000", "10.0.0.1:5001"
    scene.connect(1, "10.0.0.3:41000", back, types=("REP", "DEALER"))
    scene.greet(2, client, front, "REQ")
    asked = scene.say(2, b"", b"first")
    scene.greet(2, client, front, "ROUTER", by_server=True)
    given = scene.say(1, b"\0abcd", b"", b"first", by_server=True)
    scene.say(1, b"\0abcd", b"", b"done", answers=given)
    scene.say(2, b"", b"done", by_server=True, answers=asked)
    (way,) = scene.ways()
    assert way.answered
    assert [(leg.dst, leg.certain) for leg in way.legs] == [
        (front, True), ("10.0.0.3:41000", True), (back, True), (client, True),
    ]  # fmt: skip


def test_a_client_and_a_server_take_turns() -> None:
    """Nothing in their messages tells which one answers which. A service asks another one for each of two clients."""
    scene = Scene()
    for number in (1, 2):
        scene.connect(number, f"10.0.1.{number}:40000", "10.0.0.1:5555", types=("CLIENT", "SERVER"))
    scene.connect(3, "10.0.0.1:40000", "10.0.0.9:5556", types=("CLIENT", "SERVER"))
    for place in range(6):
        client = 1 + place % 2
        scene.say(client, b"question")
        scene.say(3, b"select")
        scene.say(3, b"row", by_server=True)
        scene.say(client, b"answer", by_server=True)
    ways = scene.ways()
    assert [[leg.flow for leg in way.legs] for way in ways] == [[1, 3, 3, 1], [2, 3, 3, 2]] * 3
    assert all(way.answered and not any(leg.certain for leg in way.legs[1:]) for way in ways)


@pytest.mark.parametrize("before", [("ask", "ask", "tell", "tell"), ("tell",)])
def test_a_client_and_a_server_that_take_no_turns(before: Sequence[str]) -> None:
    """Of several open requests nobody knows which is answered, and a server may tell something by itself."""
    scene = Scene()
    scene.connect(1, "10.0.1.1:40000", "10.0.0.1:5555", types=("CLIENT", "SERVER"))
    for word in (*before, "ask", "tell"):
        scene.say(1, word.encode(), by_server=word == "tell")
    assert not any(way.answered for way in scene.ways())
