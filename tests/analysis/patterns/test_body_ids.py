"""Replies are paired by an id in their bodies if one is sure to be there, and never to another request."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from struct import pack
from typing import Any

import msgspec
import pytest

from dissectors.events import AnyEvent, Message, Problem, at_hand
from tests.analysis.findings.diagnoses import alarms, diagnose, diagnose_events
from tests.analysis.ways.scenes import Scene
from tests.support.paths import FIXTURES
from tests.world.tap import load, save
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings

CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.9:5555"
FROM_CLIENT, FROM_SERVER = False, True


def scene() -> Scene:
    one = Scene()
    one.connect(1, CLIENT, SERVER, types=("DEALER", "ROUTER"))
    return one


def told_events(one: Scene) -> list[AnyEvent]:
    """All events, each message acknowledged at once."""
    for event in one.events:
        if isinstance(event, Message):
            event.seen = event.offset
    return [*Patterns().take(one.events)]


def told(one: Scene) -> tuple[list[Message], list[Problem]]:
    """The messages and the problems."""
    events = told_events(one)
    return [one for one in events if isinstance(one, Message)], [one for one in events if isinstance(one, Problem)]


def say(one: Scene, by_server: bool, after_ms: float = 1, **body: Any) -> Message:
    return one.say(1, json.dumps(body).encode(), by_server=by_server, after_ms=after_ms)


def call(one: Scene, number: Any, after_ms: float = 5) -> None:
    say(one, FROM_CLIENT, after_ms, id=number, method="get")
    say(one, FROM_SERVER, id=number, result="x")


def content(event: Message) -> dict[str, Any]:
    (frame,) = event.frames
    assert isinstance(frame, bytes)
    found = (msgspec.json if frame[:1] == b"{" else msgspec.msgpack).decode(frame)
    assert isinstance(found, dict)
    return found


ASKED_BY = {"rows": "query", "answer": "ask", "result": "submit", "done": "compute"}


@pytest.mark.parametrize(
    ("name", "field", "word"),
    [("work_stealing", "key", "op"), ("calls_in_messagepack", "id", ""), ("routers_call_each_other", "id", "t")],
)
def test_replies_of_real_peers_have_their_requests(name: str, field: str, word: str) -> None:
    path = FIXTURES / "healthy" / f"{name}.pcap.gz"
    messages = [event for event in open_files([path], Settings()) if isinstance(event, Message)]
    by_place = {(event.flow, event.packet, event.part): content(event) for event in messages}
    pairs = [one for one in messages if one.paired == "id" and one.request is not None]
    assert len(pairs) > len(messages) / 5
    for event in pairs:
        request = by_place[event.flow, event.request or 0, event.request_part]
        assert request[field] == content(event)[field]
        if word:
            assert request[word] == ASKED_BY[content(event)[word]]


def test_a_worker_that_stops_is_named_and_not_its_scheduler() -> None:
    found = diagnose(FIXTURES / "systems" / "stealing_worker_stops.pcap.gz")
    assert [(one.code, one.endpoints) for one in found if one.severity != "note"] == [
        ("request-unanswered", ["10.1.0.3:59464"])
    ]


@pytest.mark.parametrize("numbers", [range(7, 47), [f"job-{(7 * one) % 40}" for one in range(40)]])
def test_what_comes_at_uneven_times_or_in_uneven_steps_is_no_accident(numbers: Any) -> None:
    one, chance = scene(), Random(1)
    for number in numbers:
        call(one, number, chance.randrange(5, 200) if isinstance(number, int) else 20)
    messages, problems = told(one)
    assert sum(each.paired == "id" for each in messages) >= 20
    assert problems == []


def test_a_question_that_its_answer_repeats_as_it_is_has_that_answer() -> None:
    one, chance = scene(), Random(1)
    for number in range(60):
        for by_server, after_ms in ((FROM_SERVER, chance.randrange(50, 400)), (FROM_CLIENT, 5)):
            say(one, by_server, after_ms, id=f"q{number}", ask="load")
    messages, problems = told(one)
    assert sum(each.paired == "id" for each in messages) >= 40
    assert problems == []


def two_clocks(one: Scene) -> None:
    """Both sides count their own heartbeats, and the server's come a little later."""
    for number in range(300):
        say(one, FROM_CLIENT, 900, beat=number + 1)
        say(one, FROM_SERVER, 100, beat=number + 1)


def two_binary_clocks(one: Scene) -> None:
    for number in range(300):
        for by_server, after_ms in ((FROM_CLIENT, 900), (FROM_SERVER, 100)):
            one.say(1, b"beat", pack("=LLd", number, 9, one.now_ns / 1e9), by_server=by_server, after_ms=after_ms)


def constant(one: Scene) -> None:
    for _ in range(300):
        call(one, 7)


def loads(one: Scene) -> None:
    """Numbers that are equal now and then."""
    chance = Random(3)
    for _ in range(600):
        say(one, chance.random() < 0.5, chance.randrange(20), load=chance.randrange(1, 100))


@pytest.mark.parametrize("play", [two_clocks, two_binary_clocks, constant, loads])
def test_numbers_that_are_equal_by_accident_pair_nothing(play: Callable[[Scene], None]) -> None:
    one = scene()
    play(one)
    messages, problems = told(one)
    assert not any(each.request for each in messages)
    assert not problems


def unanswered(*more: Callable[[Scene], object]) -> list[str]:
    """The requests that are told to have no reply, of a connection where thirty got one."""
    one, chance = scene(), Random(1)
    for number in range(30):
        call(one, f"a{number}", chance.randrange(5, 200))
    for play in more:
        play(one)
    for number in range(3):
        call(one, f"b{number}", 4000)
    messages, problems = told(one)
    by_packet = {each.packet: content(each) for each in messages}
    return [by_packet[each.packet or 0]["id"] for each in problems if each.code == "request-unanswered"]


def test_a_request_without_a_reply_is_told() -> None:
    asks = [lambda one, number=number: say(one, FROM_CLIENT, id=number, method="get") for number in ("x1", "x2")]
    assert unanswered(*asks) == ["x1", "x2"]


def test_what_needs_no_reply_is_not_told() -> None:
    def notify(one: Scene) -> None:
        say(one, FROM_CLIENT, id="n1", method="log")

    def cancel(one: Scene) -> None:
        say(one, FROM_CLIENT, id="c1", method="get")
        say(one, FROM_CLIENT, id="c1", method="cancel")

    def fail(one: Scene) -> None:
        say(one, FROM_CLIENT, id="e1", method="get")
        say(one, FROM_SERVER, id="e1", error="no such thing")

    assert unanswered(notify, cancel, fail) == []


def test_nobody_knows_which_of_two_equal_requests_a_reply_answers() -> None:
    one, chance = scene(), Random(1)
    for number in range(30):
        call(one, f"a{number}", chance.randrange(5, 200))
    for _ in range(2):
        say(one, FROM_CLIENT, id="again", method="get")
    say(one, FROM_SERVER, id="again", result="x")
    assert told(one)[0][-1].request is None


def test_octets_that_are_missing_accuse_nobody(tmp_path: Path) -> None:
    packets = load(FIXTURES / "healthy" / "routers_call_each_other.pcap.gz")
    for seed in range(5):
        chance, path = Random(seed), tmp_path / "lossy.pcap"
        save(path, [one for one in packets if chance.random() > 0.02])
        assert alarms(diagnose(path)) == []


def uuid(chance: Random) -> str:
    return f"{chance.getrandbits(128):032x}"


def test_a_random_value_that_comes_back_at_once_names_the_first_request() -> None:
    """A program that asks once and leaves, such as circusctl, gives no more examples."""
    one, chance = scene(), Random(1)
    session = uuid(chance)
    for _ in range(2):
        number = uuid(chance)
        say(one, FROM_CLIENT, session=session, id=number, command="list")
        say(one, FROM_SERVER, session=session, id=number, pids=[1, 2])
    messages, problems = told(one)
    assert [each.request for each in messages] == [None, messages[0].packet, None, messages[2].packet]
    assert problems == []


@pytest.mark.parametrize("value", ["list-of-all-watchers", "0123", "aaaaaaaaaaaaaaaa1111", 12345678901234567890])
def test_a_value_that_may_be_equal_by_accident_names_no_first_request(value: Any) -> None:
    one = scene()
    say(one, FROM_CLIENT, id=value, command="list")
    say(one, FROM_SERVER, id=value, pids=[1, 2])
    assert told(one)[0][-1].request is None


def test_a_random_value_that_came_before_a_hole_is_not_new() -> None:
    one, chance = scene(), Random(1)
    number = uuid(chance)
    say(one, FROM_CLIENT, id=number, command="list")
    one.events.append(Problem("error", "capture-gap", "", None, None, 1))
    say(one, FROM_CLIENT, id=number, command="more")
    say(one, FROM_SERVER, id=number, pids=[1, 2])
    assert told(one)[0][-1].request is None


def zerorpc(one: Scene, by_server: bool, name: str, number: str, response_to: str = "", after_ms: float = 1) -> Message:
    header = {"message_id": number.encode(), "v": 3} | ({"response_to": response_to.encode()} if response_to else {})
    return one.say(1, b"", msgspec.msgpack.encode([header, name, ["x"]]), by_server=by_server, after_ms=after_ms)


def test_an_id_comes_back_in_another_field_and_heartbeats_are_no_reply() -> None:
    """As zerorpc does it: two calls under way, streams whose reader asks for more, and a slow call."""
    one, chance = scene(), Random(1)
    pairs: list[tuple[Message, Message]] = []
    for number in range(30):
        calls = [uuid(chance) for _ in range(2)]
        asked = [zerorpc(one, FROM_CLIENT, "hello", each, after_ms=chance.randrange(5, 50)) for each in calls]
        places = sorted(range(2), reverse=number % 2 > 0)
        pairs += [(asked[place], zerorpc(one, FROM_SERVER, "OK", uuid(chance), calls[place])) for place in places]
        stream, slow = uuid(chance), uuid(chance)
        zerorpc(one, FROM_CLIENT, "range", stream)
        for name in ("STREAM", "STREAM", "STREAM"):
            zerorpc(one, FROM_SERVER, name, uuid(chance), stream)
            zerorpc(one, FROM_CLIENT, "_zpc_more", uuid(chance), stream)
        waits = zerorpc(one, FROM_CLIENT, "hello", slow)
        zerorpc(one, FROM_SERVER, "_zpc_hb", uuid(chance), slow, after_ms=1000)
        pairs.append((waits, zerorpc(one, FROM_SERVER, "OK", uuid(chance), slow, after_ms=500)))
    messages, problems = told(one)
    replies = {reply.packet: request.packet for request, reply in pairs}
    learnt = [each for each in messages if each.packet > 300]
    assert {each.packet: each.request for each in learnt if each.packet in replies} == {
        packet: request for packet, request in replies.items() if packet > 300
    }
    others = {content_of(each) for each in learnt if each.request is not None and each.packet not in replies}
    assert others <= {"STREAM"}  # the first of a stream
    assert problems == []


def test_a_heartbeat_behind_a_hole_asks_nothing() -> None:
    """Its own id is new, and the one that it repeats came before the hole."""
    one, chance = scene(), Random(1)
    for _ in range(30):
        call_id = uuid(chance)
        zerorpc(one, FROM_CLIENT, "hello", call_id, after_ms=5)
        zerorpc(one, FROM_SERVER, "OK", uuid(chance), call_id)
    slow = uuid(chance)
    zerorpc(one, FROM_CLIENT, "slow", slow)
    one.events.append(Problem("error", "capture-gap", "", None, None, 1))
    zerorpc(one, FROM_CLIENT, "_zpc_hb", uuid(chance), slow, after_ms=1000)
    reply = zerorpc(one, FROM_SERVER, "OK", uuid(chance), slow)
    last = [each for each in told(one)[0] if each.packet == reply.packet]
    assert [each.request for each in last] == [None]


def test_a_word_of_a_binary_header_is_the_id() -> None:
    """As aiozmq does it: process, random number, number of the call, time, and in a reply whether it failed."""
    one, chance = scene(), Random(1)
    pairs = []
    for number in range(60):
        asked = [
            one.say(1, pack("=HHLd", 77, 4711, 2 * number + place, chance.random()), b"add", b"\x92\1\2", after_ms=gap)
            for place, gap in enumerate((chance.randrange(5, 80), 1))
        ]
        for place in sorted(range(2), reverse=number % 2 > 0):
            header = pack("=HHLd?", 12, 99, 2 * number + place, chance.random(), False)
            pairs.append((asked[place], one.say(1, header, b"\3", by_server=True)))
    messages, problems = told(one)
    replies = {reply.packet: request.packet for request, reply in pairs if reply.packet > 120}
    assert {each.packet: each.request for each in messages if each.packet in replies} == replies
    assert problems == []


def work(one: Scene, chance: Random, client: bytes, parts: int = 0) -> list[Message]:
    """A broker gives its worker a request and gets the reply, as pigato does it: with an empty frame behind words.

    Returns the request, the parts of its reply, and the last of these.
    """
    number, after_ms = uuid(chance).encode(), chance.randrange(5, 60)
    request = one.say(1, b"W", b"2", client, b"echo", b"", number, b'"x"', b"{}", by_server=True, after_ms=after_ms)
    return [request, *(one.say(1, b"W", kind, client, b"", number, b"0", b'"x"') for kind in [b"6"] * parts + [b"3"])]


def hired() -> Scene:
    """A worker says that it is ready, and both sides that they are alive, as pigato does it."""
    one = scene()
    one.say(1, b"W", b"1", b"echo")
    alive(one)
    return one


def alive(one: Scene, after_ms: float = 1) -> None:
    one.say(1, b"W", b"4", b"", b'{"concurrency":100}', after_ms=after_ms)
    one.say(1, b"W", b"4", by_server=True)


def test_words_of_a_command_in_front_of_an_empty_frame_are_no_envelope() -> None:
    """The names of clients come again with each request, and no reply answers by them."""
    one, chance = hired(), Random(1)
    clients = [b"C" + uuid(chance).encode() for _ in range(40)]
    expected = {}
    for number in range(120):
        request, *replies = work(
            one, chance, clients[number % 3 if number < 60 else number % 40], parts=3 * (number % 4 == 3)
        )
        expected[replies[0].packet] = request.packet
        if number % 5 == 0:
            alive(one)
    messages, problems = told(one)
    assert {each.packet: each.request for each in messages if each.request is not None} == expected
    assert problems == []


def test_a_broker_that_has_no_more_work_leaves_no_heartbeat_of_its_worker_unanswered() -> None:
    one, chance = hired(), Random(1)
    for number in range(20):
        work(one, chance, b"C" + uuid(Random(2)).encode(), parts=3 * (number % 8 == 7))
    for _ in range(8):
        alive(one, 1000)
    one.close(1)
    assert alarms(diagnose_events(told_events(one))) == []


def test_an_envelope_that_pairs_is_not_looked_into() -> None:
    """The first message had none. Then the ids of requests in the bodies say nothing that the envelopes do not say."""
    one, chance = scene(), Random(1)
    one.say(1, b"HELLO", b"v1")
    for _ in range(20):
        number = uuid(chance).encode()
        one.say(1, b"client-7", b"", number, b"ask", by_server=True, after_ms=chance.randrange(5, 60))
        one.say(1, b"client-7", b"", number, b"done")
    assert {each.paired for each in told(one)[0]} == {None, "envelope"}


def content_of(event: Message) -> str:
    name = msgspec.msgpack.decode(at_hand(event.frames[-1]))[1]
    assert isinstance(name, str)
    return name
