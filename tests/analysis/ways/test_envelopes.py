"""Messages that hosts have taken, and the ids of the connections that they came on."""

import inspect
from collections.abc import Callable, Iterator

import pytest

from dissectors.address import host_of
from dissectors.events import Command, Message
from tests.analysis.ways.scenes import Scene
from tests.support.footprint import entries
from zmtpsniff.analysis.ways import envelopes
from zmtpsniff.analysis.ways.envelopes import Envelopes, HeldMessages
from zmtpsniff.analysis.ways.hops import Hop, Receipts, RequestCount, SharedFacts, Stream
from zmtpsniff.analysis.ways.way_records import Terminus
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.net.witness import Attempt, Outcome

BODY = b"the same again"


def taken(held: HeldMessages, flow: int, count: int = 1) -> list[Hop]:
    """Messages of a connection that end with the same frame."""
    stream = Stream("PUSH", "PULL", "10.0.0.1", "10.0.0.2", RequestCount(), SharedFacts(), Receipts())
    hops = [Hop("10.0.0.1:1", "10.0.0.2:5555", flow, packet, packet, 1, stream, [BODY]) for packet in range(count)]
    for hop in hops:
        held.add(hop)
    return hops


def elsewhere(held: HeldMessages, flow: int) -> list[Hop]:
    return list(held.on_other_connections(BODY, flow))


def test_those_of_other_connections_in_their_order() -> None:
    held = HeldMessages()
    assert elsewhere(held, 1) == []
    first, second, third = taken(held, 1), taken(held, 2, 3), taken(held, 3)
    assert elsewhere(held, 2) == first + third
    assert elsewhere(held, 9) == first + second + third
    held.remove(third[0])
    assert elsewhere(held, 2) == first
    for hop in first + second:
        held.remove(hop)
    assert elsewhere(held, 9) == []


def test_one_sender_that_says_the_same_again_and_again() -> None:
    held = HeldMessages()
    taken(held, 1, 500)
    found = held.on_other_connections(BODY, 1)
    assert not inspect.isgenerator(found), "it would look at each of them"
    assert list(found) == []
    for hop in [*held[hash(BODY)]]:
        held.remove(hop)
    taken(held, 2)
    assert not inspect.isgenerator(held.on_other_connections(BODY, 2)), "none of the first one is left"


@pytest.mark.parametrize("most", [0, 16])
def test_of_many_that_end_alike_equal_ones_are_found(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A publication may end with a frame that never changes, behind a number: with a table for these and without."""
    monkeypatch.setattr(envelopes, "_LOOKED_THROUGH", most)
    held = HeldMessages()
    hops = taken(held, 1, 3) + taken(held, 2)
    for number, hop in enumerate(hops):
        held.remove(hop)
        hop.frames = [b"%d" % (number % 2), BODY]
        held.add(hop)
    asked = Hop("10.0.0.2:2", "10.0.0.3:5556", 9, 9, 9, 1, hops[0].stream, [b"0", BODY])
    assert held.equal_at("10.0.0.2", asked) == [hops[0], hops[2]]
    assert held.equal_at("10.0.0.1", asked) == [], "that host did not take them"
    held.pass_on(hops[0], asked)
    one, zero = (Hop("10.0.0.5:2", "", 2, 9, 9, 1, hops[0].stream, [number, BODY]) for number in (b"1", b"0"))
    assert held.equal_at("10.0.0.2", one) == [hops[1]]
    assert held.equal_at("10.0.0.2", zero) == [hops[2], asked]
    for hop in (hops[1], hops[2], hops[3], asked):
        held.remove(hop)
    assert entries(held) == entries(HeldMessages())


def test_of_a_sender_that_repeats_itself_no_message_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelopes, "_LOOKED_THROUGH", 0)
    held = HeldMessages()
    first, _ = hops = taken(held, 1) + taken(held, 2)
    asked = Hop(first.src, "10.0.0.3:5556", 9, 9, 9, 1, first.stream, [BODY])
    assert held.equal_at("10.0.0.2", asked) == []
    other = Hop("10.0.0.9:1", "10.0.0.2:5555", 3, 9, 9, 1, first.stream, [BODY])
    held.add(other)
    assert held.equal_at("10.0.0.2", asked) == [*hops, other], "several sockets sent it"


@pytest.mark.parametrize("most", [0, 16])
def test_messages_of_a_process_are_found_once_it_is_known(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(envelopes, "_LOOKED_THROUGH", most)
    held = HeldMessages()
    hops = taken(held, 1, 2) + taken(held, 2)
    stream = hops[0].stream
    stream.dst_host = "process 7"
    held.move_stream(stream, "10.0.0.2")
    asked = Hop("10.0.0.7:2", "10.0.0.3:5556", 9, 9, 9, 1, stream, [BODY])
    assert held.equal_at("process 7", asked) == hops[:2]
    assert held.equal_at("10.0.0.2", asked) == hops[2:]


def test_between_two_routers_a_connection_has_an_id_at_each() -> None:
    """Each names itself, and gives what it takes from the other to a worker (as the brokers of the guide's peering)."""
    scene = Scene()
    east, west = "10.0.0.1:40000", "10.0.1.1:5701"
    scene.connect(1, east, west, types=("ROUTER", "ROUTER"))
    for command, name in zip(scene.events[-2:], (b"east", b"west"), strict=True):
        assert isinstance(command, Command)
        command.identity = name
    scene.connect(2, "10.0.2.1:41000", "10.0.1.1:5704", types=("REQ", "ROUTER"))
    ready = scene.say(2, b"", b"READY")
    scene.say(1, b"", b"\0\0\0\0\7", b"", b"work")
    given = scene.say(2, b"", b"east", b"", b"\0\0\0\0\7", b"", b"work", by_server=True, answers=ready)
    scene.say(2, b"", b"east", b"", b"\0\0\0\0\7", b"", b"done", answers=given)
    scene.say(1, b"", b"\0\0\0\0\7", b"", b"done", by_server=True)
    assert [[leg.flow for leg in way.legs] for way in scene.ways()] == [[1, 2, 2, 1]]


@pytest.mark.parametrize(
    "routing_id",
    [b"\0\0\0\0\7", b"4ba5ea3b-6124-406e-80b8-a5eeb74fb01c", bytes.fromhex("4ba5ea3b6124406e80b8a5eeb74fb01c")],
    ids=["libzmq", "zmq4", "zmq.rs"],
)
def test_a_router_gives_ids_in_the_form_of_its_library(routing_id: bytes) -> None:
    scene = Scene()
    scene.connect(1, "10.0.0.2:40000", "10.0.0.1:5000", types=("REQ", "ROUTER"))
    scene.connect(2, "10.0.0.3:41000", "10.0.0.1:5001", types=("REP", "DEALER"))
    asked = scene.say(1, b"", b"question")
    given = scene.say(2, routing_id, b"", b"question", by_server=True)
    scene.say(2, routing_id, b"", b"answer", answers=given)
    scene.say(1, b"", b"answer", by_server=True, answers=asked)
    (way,) = scene.ways()
    assert [(leg.flow, leg.joined) for leg in way.legs[1:]] == [(2, "envelope"), (2, "envelope"), (1, "envelope")]


@pytest.mark.parametrize(("routing_id", "is_joined"), [(b"\0\0\0\0\7", True), (b"name", False)])
def test_joined_late_a_router_that_connects_is_known_by_an_id_that_it_makes_up(
    routing_id: bytes, is_joined: bool
) -> None:
    """A balancer connects to the back of a broker, and puts the id of that in front of what it takes there."""
    scene = Scene()
    scene.join_late(1, "10.0.0.2:40000", "10.0.0.1:5556")
    scene.join_late(2, "10.0.0.3:41000", "10.0.0.2:5557")
    for number in (b"1", b"2", b"3"):
        scene.say(1, b"\0\0\0\0\1", b"", number, by_server=True)
        scene.say(2, b"", routing_id, b"\0\0\0\0\1", b"", number, by_server=True)
        scene.say(2, b"", routing_id, b"\0\0\0\0\1", b"", b"done " + number)
        scene.say(1, b"\0\0\0\0\1", b"", b"done " + number)
    assert any(len(way.legs) == 4 for way in scene.ways()) is is_joined


@pytest.mark.parametrize("are_named", [True, False])
def test_a_router_puts_the_sender_where_the_receiver_stood(are_named: bool) -> None:
    """Two clients ask two engines the same at once; each names its engine (as ipyparallel's direct view).

    If the engines have no names of their own, nobody knows which of the four ids is whose.
    """
    scene = Scene()
    clients = b"\0\0\0\0\1", b"\0\0\0\0\2"
    engines = (b"engine-1", b"engine-2") if are_named else (b"\0\0\0\0\x15", b"\0\0\0\0\x16")
    for number, name in enumerate(engines):
        scene.connect(1 + number, f"10.0.0.{number}:40000", "10.0.1.1:5555", types=("DEALER", "ROUTER"))
        scene.connect(3 + number, f"10.0.2.{number}:40000", "10.0.1.1:5556", types=("ROUTER", "ROUTER"))
        if are_named:
            command = scene.events[-2]
            assert isinstance(command, Command)
            command.identity = name
    asked = [scene.say(1 + number, engines[1 - number], b"count") for number in range(2)]
    given = [scene.say(4 - number, clients[number], b"count", by_server=True) for number in range(2)]
    for number in (1, 0):
        scene.say(4 - number, clients[number], b"7", answers=given[number])
        scene.say(1 + number, engines[1 - number], b"7", by_server=True, answers=asked[number])
    ways = scene.ways()
    if are_named:
        assert [[leg.flow for leg in way.legs] for way in ways] == [[1, 4, 4, 1], [2, 3, 3, 2]]
        assert all(way.answered and all(leg.certain for leg in way.legs) for way in ways)
    for way in ways:
        flows = {leg.flow for leg in way.legs if leg.certain}
        assert any(flows <= pair for pair in ({1, 4}, {2, 3})), "a certain leg is wrong"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_replies_over_two_brokers_in_any_order_have_the_envelopes_of_their_requests(order: tuple[int, ...]) -> None:
    """The ROUTER of the second broker has one id for all that the first one passes on, and the bodies tell nothing.

    When the first requests come, nobody knows the ids of the connections yet.
    """
    scene = Scene()
    for client in range(3):
        scene.connect(client + 1, f"10.0.0.{client + 1}:40000", "10.0.1.1:5555", types=("REQ", "ROUTER"))
    scene.connect(11, "10.0.2.1:40000", "10.0.1.1:5556", types=("ROUTER", "DEALER"))
    scene.connect(21, "10.0.3.1:40000", "10.0.2.1:5557", types=("DEALER", "ROUTER"))
    ids = [b"\x00\x6b\x8b\x45" + bytes([place]) for place in range(3)]
    ways: list[list[int]] = []
    for client, body in enumerate((b"one", b"two", b"three")):
        asked = scene.say(client + 1, b"", body)
        passed = scene.say(11, ids[client], b"", body, by_server=True)
        given = scene.say(21, b"", ids[0], ids[client], b"", body, by_server=True)
        ways.append([asked.packet, passed.packet, given.packet])
    for client in order:
        body = b"done %d" % client
        replies = [
            scene.say(21, b"", ids[0], ids[client], b"", body),
            scene.say(11, ids[client], b"", body),
            scene.say(client + 1, b"", body, by_server=True),
        ]
        ways[client] += [reply.packet for reply in replies]
    assert [[leg.packet for leg in way.legs] for way in scene.ways()] == ways


def two_brokers() -> Scene:
    """A client, two brokers behind each other and a worker: connections 1, 2 and 3."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.1.1:5555", types=("REQ", "ROUTER"))
    scene.connect(2, "10.0.1.1:40000", "10.0.2.1:5556", types=("DEALER", "ROUTER"))
    scene.connect(3, "10.0.3.1:40000", "10.0.2.1:5557", types=("REP", "DEALER"))
    return scene


CLIENT, BROKER = b"\x00\x6b\x8b\x45\x68", b"\x00\x6b\x8b\x45\x67"


@pytest.mark.parametrize(("is_refused", "is_one_batch"), [(True, False), (True, True), (False, False)])
def test_a_broker_that_begins_anew_gives_its_ids_anew_though_a_leg_of_it_overtakes_the_one_before(
    is_refused: bool, is_one_batch: bool
) -> None:
    """The connections from before were reset, and it is not known yet whether more of their packets come.

    If the first broker comes back at once, nothing shows that the ids are new. Then no leg is left out, at least. All
    refusals are told before the messages of the same batch, also one from before the first message.
    """
    scene = two_brokers()
    ways = Ways()
    expected: list[list[int]] = []
    for number, (near, far) in enumerate([(2, 3), (4, 5), (4, 5)]):
        if number == 1:
            if not is_one_batch:
                ways.take(scene.events)
                scene.events.clear()
            outcome: Outcome = "refused" if is_refused else "accepted"
            for time_ns in (0, scene.now_ns) if is_one_batch else (scene.now_ns,):
                ways.attempt(Attempt(outcome, 9, "10.0.1.1:40001", "10.0.2.1:5556", 1, time_ns, time_ns, 9))
            scene.connect(4, "10.0.1.1:40002", "10.0.2.1:5556", types=("DEALER", "ROUTER"))
            scene.connect(5, "10.0.3.1:40002", "10.0.2.1:5557", types=("REP", "DEALER"))
        body = b"%d" % number
        asked = scene.say(1, b"", body)
        if number:
            given = scene.say(far, BROKER, CLIENT, b"", body, by_server=True)
            passed = scene.say(near, CLIENT, b"", body)
        else:
            passed = scene.say(near, CLIENT, b"", body)
            given = scene.say(far, BROKER, CLIENT, b"", body, by_server=True)
        replies = [
            scene.say(far, BROKER, CLIENT, b"", body + b" done", answers=given),
            scene.say(near, CLIENT, b"", body + b" done", by_server=True),
            scene.say(1, b"", body + b" done", by_server=True, answers=asked),
        ]
        expected.append([one.packet for one in (asked, passed, given, *replies)])
    found = ways.take(scene.events) + ways.finish(scene.now_ns)
    legs = [hop for way in found for hop in way.hops]
    assert all(hop.certain and host_of(hop.src) == host_of(hop.before.dst) for hop in legs if hop.before is not None)
    if is_refused:
        assert [[hop.packet for hop in way.hops] for way in found] == expected


def test_a_broker_whose_replies_overtook_those_that_it_took_has_answered_no_request_itself() -> None:
    scene = two_brokers()
    for number in range(4):
        body = b"%d" % number
        asked = scene.say(1, b"", body)
        scene.say(2, CLIENT, b"", body)
        given = scene.say(3, BROKER, CLIENT, b"", body, by_server=True)
        scene.say(1, b"", body + b" done", by_server=True, answers=asked)
        scene.say(3, BROKER, CLIENT, b"", body + b" done", answers=given)
        scene.say(2, CLIENT, b"", body + b" done", by_server=True)
    scene.say(1, b"", b"lost", after_ms=100)
    way = scene.ways()[-1]
    assert way.ended == Terminus("10.0.1.1:5555", "not-forwarded")


def test_a_request_that_two_brokers_passed_on_before_it_came_begins_its_way() -> None:
    scene = two_brokers()
    for number, is_late in enumerate((False, True)):
        body = b"job-%d" % number
        legs: list[tuple[int, list[bytes]]] = [(1, [b""]), (2, [CLIENT, b""]), (3, [BROKER, CLIENT, b""])]
        said: dict[int, Message] = {}
        for flow, envelope in (*legs[1:], legs[0]) if is_late else legs:
            said[flow] = scene.say(flow, *envelope, body, by_server=flow == 3)
        scene.say(3, BROKER, CLIENT, b"", body + b" done", answers=said[3])
        scene.say(2, CLIENT, b"", body + b" done", by_server=True)
        scene.say(1, b"", body + b" done", by_server=True, answers=said[1])
    assert [[leg.flow for leg in way.legs] for way in scene.ways()] == 2 * [[1, 2, 3, 3, 2, 1]]


def test_a_leg_that_stands_before_the_one_of_which_it_comes_is_joined_though_the_times_are_right() -> None:
    """Files were merged, and their packets were not sorted."""
    scene = two_brokers()
    asked = scene.say(1, b"", b"asked")
    given = scene.say(3, BROKER, CLIENT, b"", b"asked", by_server=True)
    passed = scene.say(2, CLIENT, b"", b"asked")
    back = scene.say(2, CLIENT, b"", b"done", by_server=True)
    done = scene.say(3, BROKER, CLIENT, b"", b"done", answers=given)
    scene.say(1, b"", b"done", by_server=True, answers=asked)
    for one, other in ((given, passed), (back, done)):
        one.time_ns, other.time_ns = other.time_ns, one.time_ns
    (way,) = scene.ways()
    assert [leg.flow for leg in way.legs] == [1, 2, 3, 3, 2, 1]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_replies_over_two_brokers_that_overtake_each_other_stand_in_the_order_of_their_way(
    order: tuple[int, ...],
) -> None:
    """A network card with several queues shows the reply that a broker passed back before the one that it took."""
    scene = two_brokers()
    asked = scene.say(1, b"", b"asked")
    scene.say(2, CLIENT, b"", b"asked")
    given = scene.say(3, BROKER, CLIENT, b"", b"asked", by_server=True)
    replies: list[Callable[[], Message]] = [
        lambda: scene.say(3, BROKER, CLIENT, b"", b"done", answers=given),
        lambda: scene.say(2, CLIENT, b"", b"done", by_server=True),
        lambda: scene.say(1, b"", b"done", by_server=True, answers=asked),
    ]
    for place in order:
        replies[place]()
    (way,) = scene.ways()
    assert [leg.flow for leg in way.legs] == [1, 2, 3, 3, 2, 1]


def test_on_a_bus_of_named_peers_a_reply_is_no_new_request() -> None:
    """As intrabus does it: behind the delimiter the broker puts the name of the sender where the receiver's stood."""
    scene, ways = Scene(), []
    names = b"gamma", b"delta", b"alpha", b"beta"
    for flow, name in enumerate(names):
        scene.connect(flow, f"10.0.0.{flow}:40000", "10.0.1.1:5560", types=("DEALER", "ROUTER"))
        command = scene.events[-2]
        assert isinstance(command, Command)
        command.identity = name
    for number in range(20):
        client, service = number % 2, 2 + number // 2 % 2
        question, answer = b"ask %d" % number, b"result %d" % number
        asked = scene.say(client, b"", names[service], b"", question)
        given = scene.say(service, b"", names[client], b"", question, by_server=True)
        done = scene.say(service, b"", names[client], b"", answer, answers=given)
        back = scene.say(client, b"", names[service], b"", answer, by_server=True, answers=asked)
        ways.append([asked.packet, given.packet, done.packet, back.packet])
    found = scene.ways()
    assert [[leg.packet for leg in way.legs] for way in found] == ways
    assert all(way.answered for way in found)


@pytest.mark.parametrize("service", [(), (b"laser",), (b"lab", b"laser")])
def test_a_broker_puts_the_id_of_the_client_among_frames_of_its_own(service: tuple[bytes, ...]) -> None:
    """As qweather does it: the name of the service goes, the id comes, and there may be fewer frames than before."""
    scene, ways = Scene(), []
    scene.connect(1, "10.0.0.2:40000", "10.0.0.1:5555", types=("DEALER", "ROUTER"))
    ready = scene.say(1, b"", b"S", b"1", b"laser")
    scene.say(1, b"", b"11", by_server=True, answers=ready)
    for client in (2, 3):
        scene.connect(client, f"10.0.1.{client}:40000", "10.0.0.1:5555", types=("DEALER", "ROUTER"))
    for number in range(12):
        client = 2 + number % 3 % 2
        routing_id, count = b"\x00\x6b\x8b\x45" + bytes([client]), b"%02d" % number
        asked = scene.say(client, b"", b"C", b"2", count, *service, b"measure", b"arguments")
        legs = [
            asked,
            scene.say(1, b"", b"2", count, routing_id, b"measure", b"arguments", by_server=True),
            scene.say(1, b"", b"S", b"3", count, routing_id, b"result %d" % number),
            scene.say(client, b"", b"211", count, *service, b"result %d" % number, by_server=True, answers=asked),
        ]
        ways.append([leg.packet for leg in legs])
    found = [way for way in scene.ways() if way.legs[0].packet > ready.packet]
    assert [[leg.packet for leg in way.legs] for way in found] == ways
    assert all(way.answered for way in found)


def over_websockets(rounds: int = 8) -> Scene:
    """Two clients and two workers of a broker, all on WebSockets without a mechanism. jszmq gives such ids."""
    scene = Scene()
    for number in (1, 2):
        scene.upgrade(number, f"10.0.1.{number}:40000", "10.0.0.1:5556")
        scene.upgrade(2 + number, f"10.0.2.{number}:40000", "10.0.0.1:5555")
        scene.say(number, b"", b"\1")
    for place in range(rounds):
        worker, client = 1 + place % 2, 3 + place // 2 % 2
        routing_id = (b"\1\0\0\0\0", b"\0alice")[client - 3]
        scene.say(client, b"", b"question %d" % place)
        scene.say(worker, b"", routing_id, b"", b"question %d" % place, by_server=True)
        scene.say(worker, b"", routing_id, b"", b"answer %d" % place)
        scene.say(client, b"", b"answer %d" % place, by_server=True)
    return scene


def test_over_websockets_without_a_mechanism_no_side_announces_its_type() -> None:
    ways = [way for way in over_websockets().ways() if len(way.legs) > 1]
    assert [[leg.flow for leg in way.legs] for way in ways] == [
        [client, worker, worker, client] for client, worker in ((3, 1), (3, 2), (4, 1), (4, 2)) * 2
    ]
    assert all(way.answered for way in ways)


class _Looks(list[Hop]):
    """Messages that count how often somebody goes through them."""

    looks = 0

    def __iter__(self) -> Iterator[Hop]:
        self.looks += 1
        return super().__iter__()


def test_who_says_the_same_all_the_time_is_not_looked_through() -> None:
    """A broker never passes a message on over the connection on which it came."""
    held = HeldMessages()
    hops = taken(held, 1, 100)
    alike = held[hash(BODY)] = _Looks(held[hash(BODY)])
    assert Envelopes(held).find(hops[-1], None) is None
    assert alike.looks == 0
    taken(held, 2)
    Envelopes(held).find(hops[-1], None)
    assert alike.looks > 0
