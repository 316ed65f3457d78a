"""Ways in captures that begin when the connections are there already."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.analysis.ways.scenes import Scene
from tests.analysis.ways.test_ways import BROKERS, followed, message_of, number, of_world, traced
from tests.support.broker_world import SCRIPTS, BrokerWorld
from tests.support.examples import examples
from tests.support.late_captures import without_beginnings
from tests.support.paths import FIXTURES
from tests.support.settings import RELATIONS
from tests.world.events import events_of
from tests.world.tap import Packets, load
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.capture.block import Packet
from zmtpsniff.decode_as import parse
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators, Sniffer

NAME = "two_brokers.pcap.gz"
RULES = ("tcp.port==7702,zmtp/ROUTER", "tcp.port==6206,zmtp/ROUTER", "tcp.port==5469,zmtp/DEALER")


@pytest.mark.parametrize(
    ("rules", "share", "least"), [(RULES, 0.0, 40), (RULES, 0.05, 35), (RULES, 0.5, 3), ((), 0.0, 40)]
)
def test_what_is_answered_is_never_said_to_be_unanswered(rules: tuple[str, ...], share: float, least: int) -> None:
    """Each connection is found at another time, and its messages wait until then: causes come behind their effects."""
    legs_of: defaultdict[str | None, int] = defaultdict(int)
    answered = set()
    ended = []
    whole, messages = traced(BROKERS / NAME)
    for way in whole:
        identifier = number(message_of(way.legs[0], messages))
        legs_of[identifier] += len(way.legs)
        ended.append((identifier, way.ended))
        if way.answered:
            answered.add(identifier)

    events = events_of(
        without_beginnings(BROKERS / NAME, share), RELATIONS._replace(decode_as=tuple(map(parse, rules)))
    )
    found, late = followed([events])
    joined = 0
    for way in found:
        numbers = {number(message_of(leg, late)) for leg in way.legs}
        assert len(numbers) == 1 or not all(leg.certain for leg in way.legs)
        assert way.answered is not False or numbers.isdisjoint(answered)
        if way.ended is not None and way.ended.why != "capture-ended":
            assert all((one, way.ended) in ended for one in numbers)
        joined += len(way.legs) == legs_of[numbers.pop()] > 2
    assert joined >= least


@settings(max_examples=examples(300), deadline=None)
@given(
    clients=st.lists(st.sampled_from(["req", "rel", "correlate", "dealer"]), min_size=1, max_size=4),
    workers=st.lists(st.sampled_from(["REP", "DEALER"]), min_size=1, max_size=3),
    script=SCRIPTS,
    begin=st.integers(0, 20),
    brokers=st.sampled_from([1, 2]),
)
@example(
    clients=["rel"],
    workers=["REP"],
    script=[*[("ask", 0, 0)] * 3, *[("forward", 0, 1)] * 2, *[("answer", 0, 0)] * 2, ("back", 0, 1)],
    begin=6,
    brokers=1,
)
@example(  # the id of one whose first request nobody saw may be that of another one, by all that is seen
    clients=["correlate"] * 3,
    workers=["REP"],
    script=[*[("ask", client, 0) for client in (0, 2, 0, 1, 1)], *[("forward", 0, 1)] * 3],
    begin=1,
    brokers=1,
)
def test_messages_before_the_capture_make_no_certain_leg_wrong(
    clients: list[str], workers: list[str], script: list[Any], begin: int, brokers: int
) -> None:
    """All bodies are the same, so a message that nobody saw may be the one that is passed on or answered."""
    world = BrokerWorld(clients, workers, brokers)
    world.play(script)
    for way in of_world(world.seen_from(begin)):
        if all(leg.certain for leg in way.legs):
            assert len({world.first[leg.packet] for leg in way.legs}) == 1


def test_messages_that_wait_for_lost_octets_know_when_they_were_acknowledged() -> None:
    """However long the blocks are: an acknowledgment may come in an earlier one than its message."""
    packets = load(FIXTURES / "systems" / "worker_slow_at_times.pcap.gz")
    lacking = [packet for place, packet in enumerate(packets) if place % 50 or place < 500]
    told = []
    for size in (1, len(lacking)):
        ways = Ways()
        found = []
        for events in Sniffer(Packets(lacking, size), Settings(), Collaborators(acknowledge=ways.acknowledge)).events():
            found += ways.take(events)
        told.append([ways.record(way) for way in (*found, *ways.finish())])
    by_packet, whole = told
    assert sum(leg.seen_ns is not None for way in whole if way is not None for leg in way.legs) > 1000
    assert by_packet == whole


@pytest.mark.parametrize("begin", range(150, 1000, 200))
def test_the_first_acknowledgment_of_a_late_connection_tells_no_time(begin: int) -> None:
    """Messages that wait until their connection is found were acknowledged meanwhile."""
    packets = load(FIXTURES / "healthy" / "majordomo_two_services.pcap.gz")
    ways = Ways()
    found = []
    collaborators = Collaborators(witness=ways, acknowledge=ways.acknowledge)
    for events in Sniffer(Packets(packets[begin:]), Settings(), collaborators).events():
        found += ways.take(events)
    records = [ways.record(way) for way in (*found, *ways.finish())]
    lasted = [way.duration_ns for way in records if way is not None and way.answered]
    assert len(lasted) > 50
    assert max(lasted) < 250_000_000  # a request to the slow service waits behind another one, at most


@pytest.mark.parametrize(("share", "least"), [(0.1, 150), (0.3, 100), (0.5, 50)])
def test_no_type_is_needed_to_follow_requests_over_brokers(share: float, least: int) -> None:
    """The ids that libzmq's ROUTERs give prove the joins, and no two requests are joined."""
    packets = load(FIXTURES / "systems" / "worker_slow_at_times.pcap.gz")
    found, messages = followed([events_of(packets[int(share * len(packets)) :], Settings())])
    whole = 0
    for way in found:
        assert len({number(message_of(leg, messages)) for leg in way.legs}) == 1
        whole += len(way.legs) == 6  # over two brokers and back
    assert whole >= least


def _publications(packets: Sequence[Packet]) -> dict[tuple[int, str, str], set[tuple[int, str, str]]]:
    """By leg of a publication that was passed on: all legs of its way."""
    found, _ = followed([events_of(packets, Settings())])
    ways = [{(leg.time_ns, leg.src, leg.dst) for leg in way.legs} for way in found if way.kind == "publication"]
    return {leg: way for way in ways if len(way) > 1 for leg in way}


@pytest.mark.parametrize(("name", "share", "least"), [("proxy_drops", 0.1, 300), ("proxy_stops", 0.3, 60)])
def test_publications_are_followed_over_proxies_once_copies_show_them(name: str, share: float, least: int) -> None:
    """No connection has a handshake. The copies of the last proxy show a publisher, and so do those that it took."""
    packets = load(FIXTURES / "systems" / f"{name}.pcap.gz")
    whole, late = _publications(packets), _publications(packets[int(share * len(packets)) :])
    assert len(late) >= least
    assert all(legs <= whole[leg] for leg, legs in late.items())
    assert sum(legs == whole[leg] for leg, legs in late.items()) > len(late) // 2


@pytest.mark.parametrize(("delimiter", "published"), [([b""], 0), ([], 1)])
def test_a_sender_that_gets_replies_does_not_publish(delimiter: list[bytes], published: int) -> None:
    """A service takes requests, tells all who subscribed of each of them in the same words, and answers.

    Without a delimiter, the first request looks like a publication until it has its reply.
    """
    scene = Scene()
    scene.join_late(1, "10.0.0.2:40000", "10.0.0.1:5555")
    for flow, client in ((2, "10.0.0.3:40000"), (3, "10.0.0.4:40000")):
        scene.connect(flow, client, "10.0.0.1:5556", types=("SUB", "PUB"))
    for number_ in range(5):
        asked = scene.say(1, *delimiter, b"item %d" % number_)
        for flow in (2, 3):
            scene.say(flow, *delimiter, b"item %d" % number_, by_server=True)
        scene.say(1, *delimiter, b"done", by_server=True, answers=asked)
    kinds = [way.kind for way in scene.ways()]
    assert (kinds.count("publication"), kinds.count("request")) == (published, 5 - published)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_jobs_are_followed_once_it_shows_that_a_push_deals_them_out(share: float) -> None:
    """A worker's next message is the result of the job that alone has its id, whatever socket sends it.

    Once so many of its messages were results that this is no accident, its next ones are so certainly.
    """
    packets = without_beginnings(FIXTURES / "systems" / "worker_stops.pcap.gz", share)
    found, late = followed([events_of(packets, RELATIONS)])
    passed_on = [way for way in found if len(way.legs) > 1]
    jobs = sum(event.socket_type == "PUSH" for event in late.values())
    assert len(passed_on) > jobs / 3 > 20  # one worker of three stops
    for way in passed_on:
        assert len({number(message_of(leg, late)) for leg in way.legs}) == 1
        assert (way.kind, way.ended) == ("job", None)
    are_certain = [all(leg.certain for leg in way.legs) for way in passed_on]
    assert not are_certain[0]
    assert are_certain[-1]
