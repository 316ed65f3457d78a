"""Relations of messages, in captures of programs that misbehave and of the same ones when they do not."""

from pathlib import Path
from typing import Any

import pytest

import zmtpsniff
from dissectors.events import AnyEvent, Message, Problem, Subscription
from tests.analysis.ways.scenes import MS, Scene
from tests.support.paths import CAPTURES, FIXTURES
from tests.world.events import CLIENT, SERVER, dissect
from tests.world.octets import frame, peers
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.notices import Refusal

# program of fixtures/misbehaving.py: code, severity and packet of each problem when it misbehaves
PROGRAMS: dict[str, list[tuple[str, str, int | None]]] = {
    "late_reply": [("request-unanswered", "warning", 17)],
    "two_replies": [("reply-without-request", "warning", 19)],
    "no_delimiter": [("no-delimiter", "warning", 16), ("request-unanswered", "warning", 14)],
    "dealer_without_delimiter": [("no-delimiter", "warning", 14), ("no-delimiter", "warning", 16)],
    "relaxed_request": [("request-before-reply", "warning", 16)],
    "request_to_pull": [("incompatible-socket-types", "error", 13)],
    "late_subscriber": [("slow-joiner", "note", 30)],
    "manual_publisher": [("unmatched-message", "warning", 16)],
    "odd_subscriptions": [("subscribed-twice", "note", 13), ("cancel-without-subscribe", "warning", 14)],
    "same_identity": [("identity-in-use", "warning", 29)],
    "stolen_identity": [("identity-in-use", "warning", 30)],
    "returning_identity": [("identity-in-use", "note", 27)],
    "third_of_a_pair": [("pair-in-use", "warning", 28)],
    "reconnect_storm": [("reconnect-storm", "warning", None)],
    "cut_message": [("truncated-frame", "note", 55)],
    "growing_connections": [],
    "numbered_messages": [],
    "numbered_topics": [],
    "returning_publisher": [],
    "refused": [("connection-refused", "note", 2)],
    "frozen_peer": [("heartbeat-late", "warning", 69), ("ping-unanswered", "warning", 75)],
    "multipart_client": [("multipart-not-allowed", "warning", 13)],
    "group_not_joined": [("group-not-joined", "warning", 14)],
    "unequal_work": [],
    "closing_worker": [("request-unanswered", "warning", 39)],
    "proxy": [("request-unanswered", "warning", 61), ("request-unanswered", "warning", 62)],
    "forwarder": [("slow-joiner", "note", 46)],
}
# Problems of a handshake that never ends, beside those that patterns find.
OF_HANDSHAKES = {"greeting-truncated", "handshake-incomplete"}


def events(path: Path, timeout: float = 0.5, **options: Any) -> list[AnyEvent]:
    return list(open_files([path], Settings(reply_seconds=timeout, payload=False, **options)))


def found(name: str) -> list[tuple[str, str, int | None]]:
    return [
        (event.code, event.severity, event.packet)
        for event in events(FIXTURES / f"rec_{name}.pcap")
        if isinstance(event, Problem) and event.code not in OF_HANDSHAKES
    ]


def messages(name: str) -> list[Message]:
    return [event for event in events(FIXTURES / f"rec_{name}.pcap") if isinstance(event, Message)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_misbehaviour_is_found_where_it_is(name: str) -> None:
    assert found(name) == PROGRAMS[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_its_cause_nothing_is_found(name: str) -> None:
    assert found(f"{name}_ok") == []


def test_every_recorded_program_is_tested() -> None:
    recorded = {path.stem for path in FIXTURES.glob("rec_*_ok.pcap")}
    assert recorded == {f"rec_{name}_ok" for name in PROGRAMS}


# ------------------------------------------------------------------ what messages are given


@pytest.mark.parametrize(
    ("client", "frames", "says"),
    [
        (b"REQ", frame(b""), "nothing follows the empty frame"),
        (b"DEALER", frame(b"id", 1) + frame(b""), "nothing follows the empty frame"),
        (b"DEALER", frame(b"x"), "without the empty frame"),
    ],
)
def test_what_is_wrong_about_the_delimiter_is_told(client: bytes, frames: bytes, says: str) -> None:
    events = Patterns().take(dissect([*peers(client, b"REP"), (0, frames)]))
    told = [event.detail for event in events if isinstance(event, Problem) and event.code == "no-delimiter"]
    assert len(told) == 1
    assert says in told[0]


@pytest.mark.parametrize("client", [b"REQ", b"DEALER"])
def test_a_rep_that_speaks_first_answers_a_request_of_a_connection_before(client: bytes) -> None:
    """libzmq's REP keeps a reply while its connection is away, and sends it on the next one."""
    reply, request = frame(b"", 1) + frame(b"reply"), frame(b"", 1) + frame(b"request")
    talk = [*peers(client, b"REP"), (1, reply), (0, request), (1, reply), (1, reply)]
    events = Patterns().take(dissect(talk))
    told = [event for event in events if isinstance(event, Problem) and event.code == "reply-without-request"]
    assert [event.packet for event in told] == [len(talk)]


def test_without_patterns_nothing_is_said() -> None:
    plain = list(zmtpsniff.open(FIXTURES / "rec_two_replies.pcap", patterns=False))
    assert not [event for event in plain if isinstance(event, Problem)]
    assert all(event.latency_ns is None for event in plain if isinstance(event, Message))


# ------------------------------------------------------------------ no false alarms

_TRUTHS = sorted(CAPTURES.glob("*.truth.json"))


@pytest.mark.skipif(not _TRUTHS, reason=f"no captures at {CAPTURES} (set ZMTPSNIFF_CAPTURES)")
@pytest.mark.parametrize("name", [path.name.removesuffix(".truth.json") for path in _TRUTHS] or ["none"])
def test_patterns_raise_no_false_alarm(name: str) -> None:
    (path,) = [path for path in CAPTURES.glob(f"{name}.*") if not path.name.endswith(".truth.json")]
    with_patterns = [event for event in events(path, 5.0) if isinstance(event, Problem)]
    without = list(zmtpsniff.open(path, patterns=False, payload=False).problems())
    assert [problem for problem in with_patterns if problem not in without and problem.severity != "note"] == []


# ------------------------------------------------------------------ refused connections


def test_refused_connections_of_other_protocols_are_not_reported() -> None:
    patterns = Patterns()
    refusals = [(0, Refusal(1, 1, 1, "10.0.0.1:40000", "10.0.0.2:80")) for _ in range(20)]
    assert patterns.take([], None, refusals) == []
    assert patterns.finish() == []


@pytest.mark.parametrize(("after_ms", "is_whole", "told"), [(3, True, 1), (3, False, 0), (0, True, 0)])
def test_a_subscription_that_waited_for_lost_packets_may_have_come_first(
    after_ms: int, is_whole: bool, told: int
) -> None:
    """Octets are missing, or a packet that its connection begins with, and it comes behind messages to another one."""
    scene = Scene()
    for flow, host in ((1, "10.0.0.1"), (2, "10.0.0.2")):
        scene.connect(flow, f"{host}:40000", SERVER, types=("SUB", "PUB"))
        time_ns = after_ms * MS if flow == 2 else 0
        late = Subscription(time_ns, 1, flow, f"{host}:40000", SERVER, "subscribe", b"", encoding="message")
        if flow == 1:
            scene.events.append(late)
            scene.say(1, b"beat", by_server=True)
    if not is_whole:
        scene.events.append(Problem("error", "capture-gap", "octets are missing", 0, 1, 2, SERVER, "10.0.0.2:40000"))
    events = Patterns().take([*scene.events, late])
    assert [event.code for event in events if isinstance(event, Problem)].count("slow-joiner") == told


def said(reply: bool, identity: bytes, octets: int) -> Message:
    src, dst = (CLIENT, SERVER) if not reply else (SERVER, CLIENT)
    return Message(octets, octets, 1, src, dst, [b"\0\0\0\0" + identity, b"", b"x"], offset=octets, seen=octets)


def hole(octets: int) -> Problem:
    return Problem("error", "capture-gap", "octets are missing", octets, octets, 1, SERVER, CLIENT)


@pytest.mark.parametrize("again", [False, True])
def test_identities_pair_behind_a_hole_unless_they_ask_again_before_the_reply(again: bool) -> None:
    flow = dissect(peers())[:-1]
    first, second, answer = said(False, b"a", 1000), said(False, b"a" if again else b"b", 1001), said(True, b"a", 1002)
    asked, reply = said(False, b"a", 1004), said(True, b"a", 1005)
    late, last = said(False, b"a", 1006), said(True, b"a", 1007)
    Patterns().take([*flow, first, second, answer, hole(1003), asked, reply, late, last])
    assert answer.request == (None if again else first.packet)  # it may be the reply to the second
    assert reply.request is None  # a request with this envelope may be missing
    assert last.request == (None if again else late.packet)


@pytest.mark.parametrize("begin", [0, 1])
def test_the_first_message_shows_who_asks_unless_it_may_be_a_late_reply(begin: int) -> None:
    """It may answer a request of an earlier connection, or one that the capture lacks."""
    late: list[AnyEvent] = [said(True, b"z", 1000), hole(1001), said(True, b"a", 1002)]
    talk = [said(place % 2 > 0, b"a", 1003 + place) for place in range(6)]
    Patterns().take([*dissect(peers())[:-1], *late[begin:], *talk])
    assert [event.request for event in talk] == [None] * 6


def test_a_req_that_asks_again_behind_a_hole_may_get_either_reply() -> None:
    flow = dissect(peers(b"REQ"))[:-1]
    asked, again, reply = said(False, b"", 1002), said(False, b"", 1003), said(True, b"", 1004)
    for event in (asked, again, reply):
        event.frames = [b"", b"x"]
    again.seen = asked.seen  # it had seen nothing meanwhile
    Patterns().take([*flow, hole(1001), asked, again, reply])
    assert reply.request is None


@pytest.mark.parametrize(
    ("host", "topic", "told"), [("10.0.0.1", b"a", 0), ("10.0.0.1", b"b", 1), ("10.0.0.2", b"a", 1)]
)
def test_a_subscriber_that_comes_back_is_not_late(host: str, topic: bytes, told: int) -> None:
    """It closed and connected anew, as clients of Tango do once they lack heartbeats: it had the first messages."""
    scene = Scene()
    for flow, address, first in ((1, "10.0.0.1:40000", b"a"), (2, f"{host}:40001", topic)):
        scene.connect(flow, address, SERVER, types=("SUB", "PUB"))
        scene.events.append(
            Subscription(scene.now_ns, 1, flow, address, SERVER, "subscribe", first, encoding="message")
        )
        if flow == 1:
            scene.say(1, b"a beat", by_server=True)
            scene.close(1)
    events = Patterns().take(scene.events)
    assert [event.code for event in events if isinstance(event, Problem)].count("slow-joiner") == told
