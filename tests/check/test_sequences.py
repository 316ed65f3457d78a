"""Numbers in messages: programs that count right and wrong, and captures with holes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Connection, Cut, Message, Payload, Peer, Problem, Sides, Subscription
from tests.program.test_shop import record_program
from tests.support import counters
from tests.support.check_program import check, outcomes, without_packets
from tests.support.namespaces import needs_namespaces
from tests.support.paths import FIXTURES
from zmtpsniff.check.model import Outcome
from zmtpsniff.check.numbers import NotAtHandError, number_reader
from zmtpsniff.check.policy import parse_policy
from zmtpsniff.check.rules import Check

COUNTERS = FIXTURES / "counters"
RULES = """
[[rule]]
name = "jobs"
sequence = 'body.job.seq'

[[rule]]
name = "prices"
sequence = 'frames[1]'
by = "topic"

[[rule]]
name = "euros"
sequence = 'frames[1]'
where = 'frames[0].text == "EUR"'
by = "connection"
"""


def _found(capture: Path) -> dict[str, str]:
    return {name: outcome.found for name, outcome in outcomes(str(capture), RULES).items()}


def test_programs_that_count_right() -> None:
    assert _found(COUNTERS / "whole.pcap.gz") == {
        "jobs": "60 numbers of 1 sender: none is missing, repeated or out of order",
        "prices": "180 numbers of 1 sender: none is missing, repeated or out of order",
        "euros": "not checked: what 127.0.0.1:5571 sends is not all meant for each receiver",
    }


def test_programs_that_count_wrong() -> None:
    # Two workers get the jobs, so that nobody knows their order. The prices are three copies of the same faults.
    assert _found(COUNTERS / "faulty.pcap.gz") == {
        "jobs": "58 numbers of 1 sender: 3 missing, 1 repeated",
        "prices": "174 numbers of 1 sender: 9 missing, 3 repeated, 3 out of order",
        "euros": "116 numbers of 1 sender: 3 missing, 2 repeated, 2 out of order",
    }


def test_the_first_faults_are_shown() -> None:
    found = outcomes(str(COUNTERS / "faulty.pcap.gz"), RULES, shown=100)
    said = [offence.text.partition(": ")[0] for offence in found["prices"].offences]
    assert set(said) == {
        "17 to 19 are missing before", "1017 to 1019 are missing before",
        "30 again", "1030 again", "40 after 41", "1040 after 1041",
    }  # fmt: skip
    assert all(offence.packet and offence.flow for offence in found["prices"].offences)


def test_as_a_command(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(RULES)
    done = check(COUNTERS / "faulty.pcap.gz", "--policy", tmp_path / "policy.toml")
    assert done.status == 1
    assert "17 to 19 are missing before: " in done.out
    assert check(COUNTERS / "whole.pcap.gz", "--policy", tmp_path / "policy.toml").status == 0


@pytest.mark.parametrize("lost", [range(100, 101), range(90, 160), range(60, 300, 9), range(1, 70), range(200, 400)])
def test_nobody_is_accused_of_a_hole_in_the_capture(lost: range, tmp_path: Path) -> None:
    found = outcomes(str(without_packets("counters/whole.pcap.gz", lost, tmp_path)), RULES)
    assert [outcome.found for outcome in found.values() if outcome.failed] == []


@pytest.mark.slow
@needs_namespaces
@pytest.mark.parametrize("way", ["whole", "faulty"])
def test_programs_of_today(way: str, tmp_path: Path) -> None:
    record_program(tmp_path / "c.pcap", counters, way)
    failed = {name for name, outcome in outcomes(str(tmp_path / "c.pcap"), RULES).items() if outcome.failed}
    assert failed == (set() if way == "whole" else {"jobs", "prices", "euros"})


# --------------------------------------------------------------------- by hand

SERVER, CLIENT = "10.0.0.1:5555", "10.0.0.2:40000"


def _message(value: int, flow: int = 1, kind: str | None = "DEALER", src: str = SERVER, **more: Any) -> Message:
    return Message(flow, flow, flow, src, f"{CLIENT}{flow}", [b"%d" % value], socket_type=kind, **more)


def _gap(flow: int = 1) -> Problem:
    return Problem("error", "capture-gap", "", 1, 1, flow, SERVER, CLIENT)


def _over(flow: int = 1, end: str = "fin") -> Connection:
    peers = Peer(f"{CLIENT}{flow}"), Peer(SERVER)
    return Connection(flow, "tcp", *peers, Sides(0, 0), Sides(0, 0), 1, 2, end, handshake="complete")  # type: ignore[arg-type]


def _judged(*events: AnyEvent, keys: str = "") -> Outcome:
    trial = Check(parse_policy(f'[[rule]]\nname = "it"\nsequence = "frames[0]"\n{keys}', "x"))
    for event in events:
        trial.take([event])
    (outcome,) = trial.finish()
    return outcome


def _words(*events: AnyEvent, keys: str = "") -> str:
    return _judged(*events, keys=keys).found.rpartition(": ")[2]


def test_shares_of_several_connections_are_one_sequence() -> None:
    shares = [_message(1, 1), _message(3, 1), _message(2, 2), _message(4, 2), _message(5, 1), _message(6, 2)]
    assert _words(*shares) == "none is missing, repeated or out of order"
    assert _words(*shares, _message(8, 1), _message(9, 2)) == "1 missing"
    # the second connection may still bring it, unless it is over
    assert _words(*shares, _message(8, 1)) == "none is missing, repeated or out of order"
    assert _words(*shares, _message(8, 1), _over(2)) == "1 missing"
    assert _words(*shares, _message(8, 1), _over(2, "open")) == "none is missing, repeated or out of order"
    assert _words(*shares, _message(3, 2)) == "1 repeated"


def test_a_hole_in_one_connection_of_several_accuses_none_of_them() -> None:
    shares: list[AnyEvent] = [_message(1, 1), _message(2, 2), _message(4, 2), _gap(1), _message(5, 1), _message(6, 2)]
    assert _words(*shares) == "none is missing, repeated or out of order"
    assert _words(*shares, _message(8, 1), _message(9, 2)) == "1 missing"


def test_what_is_incomplete_is_a_hole() -> None:
    cut = _message(2, incomplete=True)
    assert _judged(_message(1), cut, _message(3)).passed
    assert _judged(_message(1), _message(3)).failed
    kept = Message(1, 1, 1, SERVER, CLIENT, [Cut(b"2", 1000)], socket_type="DEALER")
    assert _judged(_message(1), kept, _message(3)).passed


def test_a_socket_that_comes_back_counts_from_the_beginning() -> None:
    assert _judged(_message(1), _message(2), _over(1), _message(1, 2), _message(2, 2)).passed
    assert _words(_message(1), _message(2), _message(1, 2)) == "1 repeated"


def test_one_that_connects_to_several_may_share_its_messages() -> None:
    here, there = f"{CLIENT}1", f"{CLIENT}2"
    events = [_message(1, 1, src=here), _message(2, 2, src=there), _message(3, 1, src=here), _message(4, 2, src=there)]
    assert _judged(*events).found == "not checked: 10.0.0.2:400001 may share what it sends among several connections"


def test_a_subscription_that_ends_leaves_a_hole() -> None:
    def subscription(action: str, topic: bytes) -> Subscription:
        return Subscription(1, 1, 1, CLIENT, SERVER, action, topic, "command")  # type: ignore[arg-type]

    prices = [_message(1, kind="PUB"), _message(3, kind="PUB")]
    assert _words(subscription("subscribe", b""), *prices) == "1 missing"
    assert not _judged(subscription("subscribe", b"1"), *prices).checked
    whole: list[AnyEvent] = [subscription("subscribe", b""), prices[0], subscription("cancel", b"x"), prices[1]]
    assert not _judged(*whole).failed


def test_some_faults_may_be_tolerated() -> None:
    events = [_message(1), _message(3), _message(3)]
    assert _judged(*events, keys="max = 2").passed
    assert _judged(*events, keys="max = 1").failed


def test_without_numbers_nothing_is_checked() -> None:
    words = Message(1, 1, 1, SERVER, CLIENT, [b"hello"], socket_type="PUSH")
    assert _judged(words).found == "not checked: no message has a number at frames[0]"
    assert _judged(_message(1), words, _message(2)).passed


@given(st.sets(st.integers(1, 40)), st.lists(st.integers(1, 3), min_size=40, max_size=40))
def test_what_is_missing_is_counted_however_it_is_shared(missing: set[int], flows: list[int]) -> None:
    sent = [(value, flow) for value, flow in zip(range(1, 41), flows, strict=True) if value not in missing]
    by_flow = sorted(sent, key=lambda each: each[1])  # the packets of one connection after those of another
    ends = [(50 + flow, flow) for flow in (1, 2, 3)]
    for order in (sent, by_flow):
        events = [_message(0), *[_message(*each) for each in order], *[_message(*each) for each in ends]]
        gone = len(missing) + 10  # 41 to 50
        assert _words(*events) == f"{gone:,} missing"


READ = [
    ("frames[0]", [b" 17\n"], 17),
    ("frames[-1]", [b"", b"-3"], -3),
    ("frames[1]", [b"1"], None),
    ("frames[0]", [b"1.5"], None),
    ("frames[0]", [b"\xb2"], None),  # a digit, but not of ASCII
    ("frames[0].uint", [b"\x00\x00\x01\x02"], 258),
    ("frames[0].uint_le", [b"\x02\x01"], 258),
    ("frames[0].uint", [b"\xff" * 8], 2**64 - 1),
    ("frames[0].uint", [bytes(9)], None),
    ("frames[0][1:2].uint", [b"\xff\x01\x02\xff"], 258),
    ("frames[0][1:2]", [b"x17y"], 17),
    ("frames[0][1:2].uint_le", [b"\xff\x01"], None),
    ("frames[-2]", [b"7", b"8"], 7),
    ("frames[-3]", [b"7", b"8"], None),
    ("body.seq", [b"topic", b'{"seq": 5}'], 5),
    ("body.order.numbers[1]", [b'{"order": {"numbers": [1, "2"]}}'], 2),
    ("body.seq", [b'{"seq": true}'], None),
    ("body.seq", [b"[1]"], None),
]


@pytest.mark.parametrize(("text", "frames", "number"), READ, ids=range(len(READ)))
def test_where_numbers_are(text: str, frames: list[bytes], number: int | None) -> None:
    assert number_reader(text)(Message(1, 1, 1, "a:1", "b:1", list(frames))) == number


def test_numbers_of_what_an_application_says() -> None:
    message = Message(1, 1, 1, "a:1", "b:1", [], payload=Payload("x", "", {"sequence": 9, "key": b"4"}))
    assert number_reader("payload.sequence")(message) == 9
    assert number_reader("payload.key")(message) == 4
    assert number_reader("payload.other")(message) is None


def test_what_is_not_at_hand_is_not_taken_for_none() -> None:
    message = Message(1, 1, 1, "a:1", "b:1", [Cut(b"12", 100)])
    for text in ("frames[0]", "frames[0].uint", "frames[0][1:4].uint", "body.seq"):
        with pytest.raises(NotAtHandError):
            number_reader(text)(message)


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("body.order.seq", 7),
        ("body.lines.seq", 3),  # a name goes into each item of a list, as in filters
        ("body.lines[1].seq", 4),
        ("body.lines[2].seq", None),
        ("body.order", None),
    ],
)
def test_places_in_bodies_are_those_of_filters(place: str, number: int | None) -> None:
    body = b'{"order": {"seq": 7}, "lines": [{"seq": 3}, {"seq": "4"}]}'
    message = Message(0, 1, 1, "10.0.0.1:1", "10.0.0.2:2", [b"orders", body])
    assert number_reader(place)(message) == number
