"""Numbers in messages that prove that some are missing, and others that prove nothing."""

import json
import struct
from collections.abc import Callable, Iterable, Sequence

import msgspec
import pytest

from dissectors.events import Connection, Cut, Message, Octets, Peer, Sides, Subscription
from tests.analysis.findings.diagnoses import diagnose
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.analysis.findings.numbering import Numbering, NumberPlace
from zmtpsniff.check.numbers import number_reader
from zmtpsniff.net.witness import Stall

MS = 1_000_000
PUBLISHER, SUBSCRIBER = "10.0.0.5:5555", "10.0.0.9:40000"
HOLE = [*range(30), *range(35, 60)]


def claimed(
    messages: Iterable[Sequence[Octets]],
    *,
    topics: Iterable[bytes] = (b"",),
    stalled: bool = True,
    hole_at: int | None = None,
    incomplete_at: int | None = None,
    place: str | None = None,
) -> list[Claim]:
    """The claims about messages to one subscriber."""
    numbering = Numbering(None if place is None else NumberPlace(place, number_reader(place)))
    if stalled:
        numbering.stall(Stall(1, SUBSCRIBER, PUBLISHER, "window", 5 * MS, 9 * MS, 5, 3, True))
    dossier = Dossier(1, types={PUBLISHER: "PUB", SUBSCRIBER: "SUB"})
    hear = numbering.begin(dossier)
    assert hear is not None
    for topic in topics:
        numbering.subscription(dossier, Subscription(0, 1, 1, SUBSCRIBER, PUBLISHER, "subscribe", topic, "message"))
    for at, frames in enumerate(messages):
        if at == hole_at:
            numbering.lose(dossier)
        hear([Message(at * MS, at, 1, PUBLISHER, SUBSCRIBER, [*frames], incomplete=at == incomplete_at)])
    zero = Sides(0, 0)
    over = Connection(1, "tcp", Peer(SUBSCRIBER), Peer(PUBLISHER), zero, zero, 0, 99 * MS, "open")
    numbering.end(dossier, over, over.end_ns)
    return list(numbering.claims(99 * MS))


def test_a_publisher_that_drops_for_its_one_subscriber() -> None:
    (found,) = (one for one in diagnose(FIXTURES / "rec_numbered_messages.pcap") if one.severity != "note")
    assert (found.severity, found.code, found.certainty, found.count) == ("error", "messages-dropped", "likely", 13)
    assert found.known == (
        "the number at frames[1] grew by one 75 times, and by more once; its TCP window was closed before"
    )


def test_whoever_wants_one_topic_has_holes_at_a_place_that_is_named() -> None:
    """By itself nobody knows that the publisher counts the topic, and not all that it sends."""
    broken, healthy = FIXTURES / "rec_numbered_topics.pcap", FIXTURES / "rec_numbered_topics_ok.pcap"
    assert diagnose(broken) == []
    place = NumberPlace("body.header.seq", number_reader("body.header.seq"))
    (found,) = diagnose(broken, sequence=place)
    assert (found.severity, found.code, found.certainty, found.count) == ("warning", "messages-dropped", "possible", 11)
    assert found.known.endswith("its TCP window was closed before; it did not subscribe to everything")
    assert diagnose(healthy, sequence=place) == []


def test_a_proxy_passes_holes_on_and_is_not_blamed() -> None:
    numbering = Numbering()
    later = (PUBLISHER, SUBSCRIBER, 0), ("10.0.0.9:5556", "10.0.0.12:4000", 1)
    hear = []
    for flow, (publisher, subscriber, _) in enumerate(later):
        dossier = Dossier(flow, types={publisher: "XPUB", subscriber: "XSUB"})
        hear.append(numbering.begin(dossier))
        everything = Subscription(0, 1, flow, subscriber, publisher, "subscribe", b"", "message")
        numbering.subscription(dossier, everything)
    for at, number in enumerate(HOLE):
        for flow, (publisher, subscriber, delay) in enumerate(later):
            heard = hear[flow]
            assert heard is not None
            heard([Message(at * MS + delay, at, flow, publisher, subscriber, [b"%d" % number])])
    zero = Sides(0, 0)
    for flow, (publisher, subscriber, _) in enumerate(later):
        over = Connection(flow, "tcp", Peer(subscriber), Peer(publisher), zero, zero, 0, 99 * MS, "open")
        numbering.end(None, over, over.end_ns)
    (claim,) = numbering.claims(99 * MS)
    assert claim.subject == SUBSCRIBER


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda n: [b"%d" % n], "frames[0]"),
        (lambda n: [b"tick %d!" % n], "the last digits of frames[0]"),
        (lambda n: [b"tick %d: %s" % (n, b"x" * 300)], "the first digits of frames[0]"),
        (lambda n: [b"topic", b"body", struct.pack(">Q", n)], "frames[2].uint"),
        (lambda n: [struct.pack("<I", n)], "frames[0].uint_le"),
        (lambda n: [struct.pack("<I", n) + b"\xff" * (20 + n % 3)], "frames[0][0:4].uint_le"),
        (lambda n: [json.dumps({"x": 7, "seq": n}).encode()], "body.seq"),
        (lambda n: [b"t", json.dumps([{"head": {"seq": n}}]).encode()], "body[0].head.seq"),
        (lambda n: [msgspec.msgpack.encode({"seq": n, "at": 0.5})], "body.seq"),
    ],
)
def test_the_number_is_found_wherever_it_is(make: Callable[[int], list[bytes]], where: str) -> None:
    (claim,) = claimed(map(make, HOLE))
    assert (claim.severity, claim.occurrences.count) == (None, 5)
    assert claim.known.startswith(f"the number at {where} grew by one 53 times, and by more once; ")
    assert claimed(make(number) for number in range(60)) == []
    if "digits" not in where:
        (named,) = claimed(map(make, HOLE), place=where)
        assert named.known == claim.known


@pytest.mark.parametrize(
    ("numbers", "missing"),
    [
        ([*range(5), *range(7, 9)], 2),  # few steps, and a hole at once
        ([1, 3, 4, 5, 6], 1),
        ([*range(9), *range(3), *range(5, 9)], 2),  # the publisher was started again
        ([0, 10, 20, 30, 40, 50], 0),  # it does not count
        ([5, 5, 5, 6, 7, 8], 0),
    ],
)
def test_a_named_place_counts_from_its_first_step_on(numbers: list[int], missing: int) -> None:
    found = claimed(([b"t", b"%d" % number] for number in numbers), place="frames[1]")
    assert sum(claim.occurrences.count for claim in found) == missing


def test_octets_that_are_not_at_hand_end_a_named_sequence() -> None:
    cut: list[Octets] = [Cut(b"1", 90_000)]
    messages: list[list[Octets]] = [[b"%d" % number] for number in range(9)]
    assert claimed([*messages, cut, [b"90"]], place="frames[0]") == []


def test_each_topic_may_have_its_numbers() -> None:
    (claim,) = claimed(frames for number in HOLE for frames in ([b"a", b"%d" % number], [b"b", b"%d" % (number % 7)]))
    assert claim.occurrences.count == 5


def test_numbers_of_all_topics_have_no_hole_where_a_topic_has_one() -> None:
    """The publisher counts all it sends, thirty messages of one topic at a time."""
    assert claimed([b"ab"[number // 30 % 2 :][:1], b"%d" % number] for number in range(120)) == []


def test_a_subscriber_that_was_never_slow_is_a_note() -> None:
    (claim,) = claimed(([b"%d" % number] for number in HOLE), stalled=False)
    assert claim.severity == "note"


@pytest.mark.parametrize(
    "numbers",
    [
        [*range(10), *range(15, 60)],  # too few before the hole
        [*range(30), 29, *range(35, 60)],
        range(0, 120, 2),
        [1_700_000_000 + number for number in HOLE],  # seconds since 1970
        [number + 3 * (number // 25) for number in range(25)] + [100 + 5 * number for number in range(30)],
    ],
)
def test_other_numbers_count_nothing(numbers: Iterable[int]) -> None:
    assert claimed([b"%d" % number] for number in numbers) == []


def test_what_is_not_all_sent_or_not_all_captured_has_no_holes() -> None:
    messages = [[b"%d" % number] for number in HOLE]
    assert claimed(messages, topics=[b"1", b"2"]) == []
    assert claimed(messages, hole_at=20) == []
    assert claimed(messages, incomplete_at=25) == []
    assert claimed(messages, topics=[b"", b"1"]) != []


@pytest.mark.parametrize(
    "odd",
    [b"{" * 4096, b'{"a":' * 800, b"[" * 4000, b"1" * 9000, b"\xff" * 8, b"", b'{"seq": "31"}', b"\x31 \xb2"],
)
def test_octets_of_any_kind_raise_nothing(odd: bytes) -> None:
    for text in ("%d", "tick %d", '{"seq": %d}'):
        messages = [[(text % number).encode()] for number in HOLE]
        assert claimed([*messages[:40], [odd], *messages[40:]]) == []
        assert claimed([[odd], *messages]) == []
