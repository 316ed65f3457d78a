"""Numbers in messages that prove that some are missing, and others that prove nothing."""

import json
import struct
from collections.abc import Callable, Iterable

import pytest

from dissectors.events import Connection, Message, Peer, Sides, Subscription
from tests.analysis.findings.diagnoses import diagnose
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.analysis.findings.numbering import Numbering
from zmtpsniff.net.witness import Stall

MS = 1_000_000
PUBLISHER, SUBSCRIBER = "10.0.0.5:5555", "10.0.0.9:40000"
HOLE = [*range(30), *range(35, 60)]


def claimed(
    messages: Iterable[list[bytes]],
    *,
    topics: Iterable[bytes] = (b"",),
    stalled: bool = True,
    hole_at: int | None = None,
    incomplete_at: int | None = None,
) -> list[Claim]:
    """The claims about messages to one subscriber."""
    numbering = Numbering()
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
        "the number in frame 1 grew by one 75 times, and by more 1 time; its TCP window was closed before"
    )


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda n: [b"%d" % n], "frame 0"),
        (lambda n: [b"tick %d!" % n], "frame 0"),
        (lambda n: [b"topic", b"body", struct.pack(">Q", n)], "frame 2"),
        (lambda n: [struct.pack("<I", n)], "frame 0"),
        (lambda n: [json.dumps({"x": 7, "seq": n}).encode()], "'seq' in the JSON of frame 0"),
    ],
)
def test_the_number_is_found_wherever_it_is(make: Callable[[int], list[bytes]], where: str) -> None:
    (claim,) = claimed(map(make, HOLE))
    assert (claim.severity, claim.occurrences.count) == (None, 5)
    assert claim.known.startswith(f"the number in {where} grew by one 53 times, and by more 1 time; ")
    assert claimed(make(number) for number in range(60)) == []


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
