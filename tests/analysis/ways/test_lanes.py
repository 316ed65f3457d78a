"""A service asks another one before it answers: whose request that is."""

import pytest

from dissectors.events import Cut, Message, Octets, Process
from tests.analysis.ways.scenes import Scene
from zmtpsniff.analysis.ways.way_records import Way
from zmtpsniff.analysis.ways.ways import Ways

REQ_REP = ("REQ", "REP")


def service(clients: int, lanes: int) -> Scene:
    """Clients of a service (flows from 1 on), which has connections to a database (flows from 11 on)."""
    scene = Scene()
    for number in range(clients):
        scene.connect(1 + number, f"10.0.0.{number + 1}:40000", "10.0.1.1:5555", types=("REQ", "ROUTER"))
    for number in range(lanes):
        scene.connect(11 + number, f"10.0.1.1:4100{number}", "10.0.2.1:7777", types=REQ_REP)
    return scene


def ask_database(scene: Scene, lane: int, question: Octets) -> None:
    asked = scene.say(lane, b"", question)
    scene.say(lane, b"", b"result", by_server=True, answers=asked)


def packets(scene: Scene) -> list[list[int]]:
    return [[leg.packet for leg in way.legs] for way in scene.ways()]


def test_a_number_that_both_have_is_certain() -> None:
    scene = service(clients=2, lanes=1)
    one = scene.say(1, b"", b'{"order": "A-1001"}')
    other = scene.say(2, b"", b'{"order": "A-1002"}')
    ask_database(scene, 11, b"select A-1002")  # 3, 4
    ask_database(scene, 11, b"select A-1001")  # 5, 6
    scene.say(1, b"", b"done", by_server=True, answers=one)
    scene.say(2, b"", b"done", by_server=True, answers=other)
    first, second = scene.ways()
    assert [leg.packet for leg in first.legs] == [1, 5, 6, 7]
    assert [leg.packet for leg in second.legs] == [2, 3, 4, 8]
    assert all(leg.certain for way in (first, second) for leg in way.legs)
    assert first.legs[1].joined == "correlation"


def test_a_token_that_many_have_says_nothing() -> None:
    scene = service(clients=2, lanes=1)
    asked = [scene.say(flow, b"", b"on 2026-11-25") for flow in (1, 2)]
    ask_database(scene, 11, b"rate of 2026-11-25")
    for flow, request in enumerate(asked, 1):
        scene.say(flow, b"", b"ok", by_server=True, answers=request)
    assert not any(leg.joined == "correlation" for way in scene.ways() for leg in way.legs)


def test_the_time_of_day_joins_nothing() -> None:
    """Heartbeats of EventMQ have it: two programs that say something in the same second have it in common."""
    scene = service(clients=1, lanes=1)
    scene.now_ns = 1_795_876_360 * 10**9
    asked = scene.say(1, b"", b"alive at 1795876360.019")
    ask_database(scene, 11, b"alive at 1795876360.023")
    scene.say(1, b"", b"ok", by_server=True, answers=asked)
    assert not any(leg.joined == "correlation" for way in scene.ways() for leg in way.legs)


def test_a_number_that_is_cut_off_joins_nothing() -> None:
    """Other numbers may begin with the same digits."""
    scene = service(clients=1, lanes=1)
    scene.say(1, b"", Cut(b'{"order": "A-10', 17))
    ask_database(scene, 11, Cut(b"select A-10", 13))
    assert not any(leg.joined == "correlation" for way in scene.ways() for leg in way.legs)


def test_one_open_request_is_likely_never_certain() -> None:
    scene = service(clients=1, lanes=1)
    asked = scene.say(1, b"", b"price?")
    ask_database(scene, 11, b"select")
    ask_database(scene, 11, b"and more")
    scene.say(1, b"", b"42", by_server=True, answers=asked)
    (way,) = scene.ways()
    assert [leg.packet for leg in way.legs] == [1, 2, 3, 4, 5, 6]
    assert [leg.joined for leg in way.legs][1] == "order"
    assert not any(leg.certain for leg in way.legs[1:])


@pytest.mark.parametrize(("host", "joined"), [("127.0.0.1", []), ("10.0.1.1", ["body"])])
def test_on_one_host_a_client_may_ask_two_services_the_same(host: str, joined: list[str]) -> None:
    """The first one hangs, and the client asks the second one. On a host of its own, a service passes that on."""
    scene = Scene()
    client = "127.0.0.1" if host == "127.0.0.1" else "10.0.0.1"
    scene.connect(1, f"{client}:40001", f"{host}:5555", types=REQ_REP)
    scene.connect(2, f"{host}:40002", "127.0.0.1:7777" if host == client else "10.0.2.1:7777", types=REQ_REP)
    scene.say(1, b"", b"order 4711")
    asked = scene.say(2, b"", b"order 4711")
    scene.say(2, b"", b"done", by_server=True, answers=asked)
    found = [leg.joined for way in scene.ways() for leg in way.legs if leg.flow == 2 and not leg.reply]
    assert [one for one in found if one is not None] == joined


def test_a_question_without_reply_belongs_to_the_only_request_that_it_can() -> None:
    scene = service(clients=2, lanes=2)
    scene.say(1, b"", b"price?")
    scene.say(11, b"", b"select")
    scene.say(2, b"", b"stock?")
    scene.say(12, b"", b"count")
    scene.close(11, by_server=True)
    assert packets(scene) == [[1, 2], [3, 4]]
    assert not any(way.legs[1].certain for way in scene.ways())


def test_a_question_without_reply_that_may_belong_to_two_requests_belongs_to_none() -> None:
    scene = service(clients=2, lanes=1)
    scene.say(1, b"", b"price?")
    scene.say(2, b"", b"stock?")
    scene.say(11, b"", b"select")
    scene.close(11, by_server=True)
    assert packets(scene) == [[1], [2], [3]]


def test_a_service_that_asks_on_a_socket_which_it_makes_for_its_first_request_has_a_lane() -> None:
    scene = service(clients=1, lanes=0)
    for number in range(3):
        asked = scene.say(1, b"", b"work %d" % number)
        if number == 0:
            scene.connect(11, "10.0.1.1:41000", "10.0.2.1:7777", types=REQ_REP)
        ask_database(scene, 11, b"select")
        scene.say(1, b"", b"done", by_server=True, answers=asked)
    assert packets(scene) == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]


def test_what_a_service_asks_when_it_starts_does_not_make_it_a_client() -> None:
    scene = service(clients=1, lanes=1)
    ask_database(scene, 11, b"settings")
    for _ in range(2):
        asked = scene.say(1, b"", b"work")
        ask_database(scene, 11, b"select")
        scene.say(1, b"", b"done", by_server=True, answers=asked)
    assert packets(scene) == [[1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]


@pytest.mark.parametrize("is_answered_at_last", [False, True])
def test_a_service_that_asks_again_on_new_connections_waits_all_the_time(is_answered_at_last: bool) -> None:
    """It is not slow itself, though only the last connection is open when it answers."""
    scene = service(clients=1, lanes=1)
    asked = scene.say(1, b"", b"work")
    for lane in (11, 12):
        scene.say(lane, b"", b"select")
        scene.now_ns += 700_000_000
        scene.close(lane)
        scene.connect(lane + 1, f"10.0.1.1:410{lane}", "10.0.2.1:7777", types=REQ_REP)
    if is_answered_at_last:
        ask_database(scene, 13, b"select")
    scene.say(1, b"", b"done", by_server=True, answers=asked)
    (way,) = scene.ways()
    assert way.answered
    assert way.slowest is None
    assert [leg.packet for leg in way.legs] == ([1, 2, 3, 4, 5, 6] if is_answered_at_last else [1, 2, 3, 4])


def test_workers_take_turns() -> None:
    """Three workers of a service: what each asks between two answers of the service is of one request."""
    scene = service(clients=3, lanes=3)
    asked: list[Message] = []
    for _ in range(4):
        asked = [scene.say(flow, b"", b"?") for flow in (1, 2, 3)]
        for lane in (12, 11, 13):
            ask_database(scene, lane, b"select")
            if lane == 12:
                scene.say(1, b"", b"!", by_server=True, answers=asked[0])
            elif lane == 11:
                scene.say(2, b"", b"!", by_server=True, answers=asked[1])
            else:
                scene.say(3, b"", b"!", by_server=True, answers=asked[2])
    ways = scene.ways()
    assert len(ways) == 12
    assert {tuple(leg.flow for leg in way.legs) for way in ways} == {
        (1, 12, 12, 1),
        (2, 11, 11, 2),
        (3, 13, 13, 3),
    }
    assert not any(all(leg.certain for leg in way.legs) for way in ways)


def test_replies_that_are_not_known_at_first_hide_no_later_question() -> None:
    """In ZMTP 1.0 only messages show who asks, so the first replies are none that answer something."""
    scene = Scene()
    scene.join_late(1, "10.0.0.1:40000", "10.0.1.1:5555")
    scene.join_late(11, "10.0.1.1:41000", "10.0.2.1:7777")
    known = []
    for number in range(8):
        asked = scene.say(1, b"", b"request of %d" % number)
        question = scene.say(11, b"", b"select %d" % (number + 70))
        result = scene.say(11, b"", b"row %d" % (number + 90), by_server=True, answers=question if number > 0 else None)
        reply = scene.say(1, b"", b"done", by_server=True, answers=asked if number > 3 else None)
        known.append([one.packet for one in (asked, question, result, reply)])
    assert [one for one in packets(scene) if len(one) == 4] == known[4:]


def test_a_service_that_asks_nobody_answers_alone() -> None:
    scene = service(clients=1, lanes=1)
    asked = scene.say(1, b"", b"price?")
    scene.say(1, b"", b"42", by_server=True, answers=asked)
    ask_database(scene, 11, b"a thing of its own")
    assert packets(scene) == [[1, 2], [3, 4]]


@pytest.mark.parametrize(("question_ms", "is_known"), [(100, True), (400, False)])
def test_questions_hide_where_the_time_went_only_if_they_took_most_of_it(question_ms: float, is_known: bool) -> None:
    """The connection worked on an older request before, so nobody knows for which one it asks now."""
    scene = service(clients=2, lanes=1)
    scene.say(2, b"", b"never answered")
    ask_database(scene, 11, b"select")
    asked = scene.say(1, b"", b"price?")
    question = scene.say(11, b"", b"select more")
    scene.say(11, b"", b"result", by_server=True, answers=question, after_ms=question_ms)
    scene.say(1, b"", b"42", by_server=True, answers=asked, after_ms=500 - question_ms)
    (slowest,) = [way.slowest for way in scene.ways() if way.legs[0].packet == asked.packet]
    assert (slowest is not None) == is_known


def test_the_clients_of_a_broker_are_no_lanes_of_its_workers() -> None:
    """On the loopback interface all have one address, and a client waits as long as the worker of another one works."""
    scene = Scene()
    for number in (1, 2):
        scene.connect(number, f"127.0.0.1:4000{number}", "127.0.0.1:5561", types=("REQ", "ROUTER"))
        scene.connect(10 + number, f"127.0.0.1:4100{number}", "127.0.0.1:5562", types=("REP", "DEALER"))
    asked: list[Message] = []
    for number in (1, 2):
        scene.say(number, b"", b"order %d" % number)
        asked.append(scene.say(10 + number, bytes([0, 0, 0, 0, number]), b"", b"order %d" % number, by_server=True))
    for number, request in enumerate(asked, 1):
        reply = b"", b"done %d" % number
        scene.say(10 + number, bytes([0, 0, 0, 0, number]), *reply, answers=request, after_ms=500)
        scene.say(number, *reply, by_server=True)
    assert [way.slowest.at if way.slowest else "" for way in scene.ways()] == ["127.0.0.1:41001", "127.0.0.1:41002"]


def test_who_asks_while_a_worker_has_nothing_to_do_is_no_part_of_it() -> None:
    """On the loopback interface: a client of another service, which often asks while somebody has a request there."""
    scene = Scene()
    scene.connect(1, "127.0.0.1:40001", "127.0.0.1:5555", types=("REQ", "REP"))
    scene.connect(2, "127.0.0.1:40002", "127.0.0.1:6666", types=("REQ", "REP"))
    scene.connect(3, "127.0.0.1:40003", "127.0.0.1:7777", types=("REQ", "REP"))
    for _ in range(20):
        for flow, meanwhile in ((1, 2), (3, 2)):
            asked = scene.say(flow, b"", b"work")
            question = scene.say(meanwhile, b"", b"price?")
            scene.say(meanwhile, b"", b"42", by_server=True, answers=question, after_ms=30)
            scene.say(flow, b"", b"done", by_server=True, answers=asked)
    ways = scene.ways()
    assert {tuple(leg.flow for leg in way.legs) for way in ways[-20:]} == {(1, 1), (2, 2), (3, 3)}


def test_a_worker_that_is_ready_asks_nothing() -> None:
    """Its READY waits for the first job, and makes no reply of another worker of its host doubtful."""
    scene = Scene()
    scene.connect(1, "127.0.0.1:40001", "127.0.0.1:5555", types=("REQ", "ROUTER"))
    for number in (1, 2):
        scene.connect(10 + number, f"127.0.0.1:4100{number}", "127.0.0.1:5556", types=("DEALER", "ROUTER"))
        scene.say(10 + number, b"", b"READY")
    for number in range(20):
        worker, body = 11 + number % 2, b"job %d" % number
        asked = scene.say(1, b"", body)
        scene.say(worker, b"", b"\0\0\0\0\1", b"", body, by_server=True)
        scene.say(worker, b"", b"\0\0\0\0\1", b"", b"done", body, after_ms=500)
        scene.say(1, b"", b"done", body, by_server=True, answers=asked)
    assert [way.slowest is not None for way in scene.ways() if len(way.legs) == 4] == [True] * 20


def test_processes_of_one_machine_are_told_apart() -> None:
    """Two services ask at the same time; a third program is a client of the database on its own account."""
    scene = Scene()
    pids = {"127.0.0.1:5001": 1, "127.0.0.1:41001": 1, "127.0.0.1:5002": 2, "127.0.0.1:41002": 2, "127.0.0.1:41003": 3}
    for flow, (client, server) in enumerate(
        [(40001, 5001), (40002, 5002), *((41000 + one, 7777) for one in (1, 2, 3))]
    ):
        scene.connect(flow, f"127.0.0.1:{client}", f"127.0.0.1:{server}", types=REQ_REP)
    for _ in range(3):
        one = scene.say(0, b"", b"price?")
        scene.say(4, b"", b"all")
        other = scene.say(1, b"", b"stock?")
        rows = [scene.say(3, b"", b"count"), scene.say(2, b"", b"select")]
        for flow, row in zip((3, 2), rows, strict=True):
            scene.say(flow, b"", b"row", by_server=True, answers=row)
        scene.say(0, b"", b"42", by_server=True, answers=one)
        scene.say(1, b"", b"17", by_server=True, answers=other)

    def process_of(_flow: int, address: str) -> Process | None:
        return Process(pids[address], "python") if address in pids else None

    ways = scene.ways(process_of=process_of)
    clients = [way.legs[0].src.rpartition(":")[2] for way in ways]
    assert clients == ["40001", "41003", "40002"] * 3
    assert [[leg.packet for leg in way.legs] for way in ways[:3]] == [[1, 5, 7, 8], [2], [3, 4, 6, 9]]
    asked = [leg for way in ways if len(way.legs) > 1 for leg in way.legs[1:2]]
    assert {(leg.joined, leg.certain) for leg in asked} == {("process", True)}
    assert not any(leg.certain for way in scene.ways() for leg in way.legs if leg.joined == "order")


@pytest.mark.parametrize("is_answered", [False, True])
def test_what_a_process_asked_before_it_was_known_is_for_no_later_request(is_answered: bool) -> None:
    """When the process is found, it works on the next request already."""
    scene = Scene()
    scene.connect(1, "127.0.0.1:40000", "127.0.0.1:5555", types=REQ_REP)
    scene.connect(11, "127.0.0.1:41000", "127.0.0.1:7777", types=REQ_REP)
    scene.connect(3, "10.0.0.1:40000", "10.0.0.2:5557", types=("PUSH", "PULL"))
    known = {"127.0.0.1:40000": 1, "127.0.0.1:5555": 10, "127.0.0.1:7777": 30}
    ways = Ways()
    ways.connections.process_of = lambda flow, address: Process(pid, "") if (pid := known.get(address)) else None
    first = scene.say(1, b"", b"work")
    asked = scene.say(11, b"", b"select")
    if is_answered:
        scene.say(11, b"", b"row", by_server=True, answers=asked)
    scene.say(1, b"", b"done", by_server=True, answers=first)
    second = scene.say(1, b"", b"more work", after_ms=100)
    found, taken = ways.take(scene.events), len(scene.events)
    known["127.0.0.1:41000"] = 10
    scene.say(3, b"tick", after_ms=100)
    found += ways.take(scene.events[taken:])
    taken = len(scene.events)
    scene.say(1, b"", b"done", by_server=True, answers=second)
    found += ways.take(scene.events[taken:]) + ways.finish(scene.now_ns)
    records = [record for way in found if (record := ways.record(way)) is not None]
    assert [len(way.legs) for way in records if way.legs[0].packet == second.packet] == [2]


def test_what_a_process_asked_before_it_was_known_is_its_own() -> None:
    """It asks again on a new socket, of which nobody knows the process when the question comes."""
    scene = Scene()
    scene.connect(1, "127.0.0.1:40000", "127.0.0.1:5555", types=REQ_REP)
    scene.connect(2, "127.0.0.1:40001", "127.0.0.1:5556", types=REQ_REP)  # another service
    scene.connect(3, "10.0.0.1:40000", "10.0.0.2:5557", types=("PUSH", "PULL"))
    others = {f"127.0.0.1:{port}": pid for port, pid in ((40000, 1), (40001, 2), (5555, 10), (5556, 20), (7777, 30))}
    ways, done = Ways(), 0

    def take() -> list[Way]:
        nonlocal done
        found, done = ways.take(scene.events[done:]), len(scene.events)
        return [record for way in found if (record := ways.record(way)) is not None]

    known = dict(others)
    ways.connections.process_of = lambda flow, address: Process(pid, "") if (pid := known.get(address)) else None
    other = scene.say(2, b"", b"work for the other one")
    asked = scene.say(1, b"", b"work")
    for lane in (11, 12):
        scene.connect(lane, f"127.0.0.1:410{lane}", "127.0.0.1:7777", types=REQ_REP)
        scene.say(lane, b"", b"select")
        take()
        known[f"127.0.0.1:410{lane}"] = 10
        scene.say(3, b"tick", after_ms=100)
        take()
        scene.now_ns += 600_000_000
        scene.close(lane)
    scene.say(1, b"", b"no answer", by_server=True, answers=asked)
    scene.say(2, b"", b"done", by_server=True, answers=other)
    scene.now_ns += 20_000_000_000
    records = take() + [record for way in ways.finish(scene.now_ns) if (record := ways.record(way)) is not None]
    requests = [way for way in records if way.kind == "request"]
    assert [[leg.packet for leg in way.legs] for way in requests] == [[1, 8], [2, 3, 5, 7]]
    mine = requests[1]
    assert mine.slowest is None, "it waited for others"
    assert [leg.joined for leg in mine.legs] == [None, "process", "process", "envelope"]


@pytest.mark.parametrize("pids", [(7, 7, 7), (7, 8, 8)])
def test_a_process_that_pushes_to_itself_passes_nothing_on(pids: tuple[int, int, int]) -> None:
    """It may push the same octets again: these come from the program, and not from its own PULL."""
    scene, owners = Scene(), dict(zip(("127.0.0.1:40001", "127.0.0.1:5555", "127.0.0.1:40002"), pids, strict=True))
    for flow, client in enumerate((40001, 40002), 1):
        scene.connect(flow, f"127.0.0.1:{client}", "127.0.0.1:5555", types=("PUSH", "PULL"))
        scene.say(flow, b"tick", after_ms=10)

    def process_of(_flow: int, address: str) -> Process | None:
        return Process(owners[address], "python")

    legs = [len(way.legs) for way in scene.ways(process_of=process_of)]
    assert legs == ([1, 1] if pids[0] == pids[1] else [2])
