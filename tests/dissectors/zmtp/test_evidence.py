"""Streams that are ZMTP from their first octet on, and others: nothing is given out before it is proven.

With ZMTPSNIFF_FAULTS=all a hundred flows of each protocol are looked at.
"""

import os
from random import Random

import pytest

from dissectors.events import Capture, Connection, Greeting, Message, Problem
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.evidence import Doubts
from tests.support.examples import sampled
from tests.support.paths import FIXTURES
from tests.support.settings import WIRE
from tests.world.conversation import CLIENT as CLIENT_SIDE
from tests.world.conversation import SERVER as SERVER_SIDE
from tests.world.conversation import Conversation, Piece
from tests.world.events import CLIENT, SERVER, dissect, events_of, frames_of, problems, sniff, summary
from tests.world.lookalikes import LOOKALIKES
from tests.world.network import packets, segments
from tests.world.octets import SIGNATURE, frame, frame_v1, greeting, peers, ready
from tests.world.tap import load
from zmtpsniff.decode_as import parse

Talk = list[tuple[int, bytes]]
FLOWS = 100 if os.environ.get("ZMTPSNIFF_FAULTS") == "all" else 8  # of each protocol


def cut(talk: Talk, random: Random) -> Talk:
    """The same octets in other pieces, sometimes."""
    size = random.choice([0, 0, 1, 7])
    if not size:
        return talk
    return [(side, data[at : at + size]) for side, data in talk for at in range(0, len(data), size)]


def conversation(talk: Talk, name: str = "") -> Conversation:
    return Conversation(name, tuple(Piece(side, data) for side, data in talk if data))


@pytest.mark.parametrize("name", sampled(LOOKALIKES))
def test_other_protocols_from_their_start(name: str) -> None:
    for number in range(FLOWS):
        random = Random(f"{name} {number}")
        talk = list(LOOKALIKES[name](random, 12))
        end = random.choice(["fin", "rst", "open"])
        assert dissect(cut(talk, random), end) == [], number
        for side in (CLIENT_SIDE, SERVER_SIDE):
            assert dissect([each for each in talk if each[0] == side], end) == [], number
        assert dissect(talk[: random.randrange(len(talk))], "open") == [], number


def test_other_protocols_through_the_whole_program() -> None:
    """Nothing is shown of them, and what may be ZMTP 1.0 is told of in one note."""
    given = []
    for number, (name, make) in enumerate(LOOKALIKES.items()):
        sent = segments(conversation(list(make(Random(name), 12)), name))
        given += packets(sent, ports=(40_000 + number, 5555))
    events = sniff(given)
    *others, total = events
    assert isinstance(total, Capture)
    assert (total.flows, total.zmtp_flows, total.messages) == (len(LOOKALIKES), 0, 0)
    assert problems(others) == ["perhaps-zmtp"]


def test_what_cannot_be_told_is_named_and_shown_if_the_user_says_so() -> None:
    given = []
    for number in range(3):
        talk = [(0, b"\3\0id"), (1, b"\3\0me"), *[(0, b"\6\0hello")] * 9]
        given += packets(segments(conversation(talk)), ports=(40_000 + number, 5555 + number // 2))
    *notes, total = sniff(given)
    assert [note.detail for note in notes if isinstance(note, Problem)] == [
        "2 connections may be ZMTP (the first: connection 1, 10.0.0.1:40000 to 10.0.0.2:5555): "
        "-d tcp.port==5555,zmtp shows them",
        "1 connection may be ZMTP (connection 3, 10.0.0.1:40002 to 10.0.0.2:5556): -d tcp.port==5556,zmtp shows it",
    ]
    for note in notes:
        assert isinstance(note, Problem)
        assert (note.severity, note.code, note.flow, note.src) == ("note", "perhaps-zmtp", None, None)
    assert isinstance(total, Capture)
    assert (total.zmtp_flows, total.problems) == (0, 2)
    settings = WIRE._replace(decode_as=(parse("tcp.port==5555,zmtp"),))
    events = events_of(given, settings)
    assert sum(isinstance(event, Message) for event in events) == 18
    assert [event.flow for event in events if isinstance(event, Connection)] == [1, 2]


def test_a_rejected_connection_is_doubted_once() -> None:
    doubts = Doubts()
    connection = ZmtpConnection([], 7, CLIENT, SERVER, doubts=doubts)
    connection.server.feed(b"\3\0me", 1, 1)
    for number in range(2, 2000):
        connection.client.feed(b"\x29\0" + bytes(40), number, number)
        if connection.rejected:
            break
    assert connection.rejected  # what waits for a proof is bounded
    connection.reject()
    assert [code for code, _ in doubts.problems()] == ["perhaps-zmtp"]
    assert "1 connection may be ZMTP (connection 7, " in doubts.problems()[0][1]


def test_doubts_of_many_ports_are_bounded() -> None:
    doubts = Doubts()
    for number in range(50):
        doubts.add(number, "10.0.0.1:40000", f"10.0.0.2:{5000 + number}")
    details = [detail for _, detail in doubts.problems()]
    assert len(details) == 21
    assert details[-1] == "30 more on other ports may be ZMTP, too"


def test_what_is_disproven_is_not_doubted() -> None:
    doubts = Doubts()
    connection = ZmtpConnection([], 7, CLIENT, SERVER, doubts=doubts)
    for side, octets in ((0, b"\3\0id"), (1, b"\3\0me"), (0, b"\6\0hello" * 9), (1, b"\6\2hello")):
        connection.halves[side].feed(octets, 1, 1)
    assert connection.rejected
    assert doubts.problems() == []


# ---------------------------------------------------------------------- signatures

PADDED = b"\xff" + b"\xa5" * 8 + b"\x7f"  # octets 1 to 8 are padding (23/ZMTP), though all peers that are known count
ODD = SIGNATURE[:9] + b"\x01"
REST = greeting()[10:]


@pytest.mark.parametrize("first", [0, 1], ids=["client first", "server first"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PADDED + REST, greeting()),
        (PADDED + REST, PADDED + REST),
        (ODD + REST, greeting()),
        (b"\xff" + bytes(8) + b"\x7f" + REST, greeting()),  # azmq
    ],
    ids=["padded", "both padded", "odd", "azmq"],
)
def test_odd_signatures_that_the_rest_proves(one: bytes, other: bytes, first: int) -> None:
    sent = [(0, one), (1, other)]
    sent = [sent[first], sent[1 - first], (0, ready(b"DEALER")), (1, ready(b"ROUTER")), (0, frame(b"a"))]
    expected = ["bad-signature"] if one.startswith(ODD) else []
    for size in (1, 3, 1000):
        events = dissect([(side, data[at : at + size]) for side, data in sent for at in range(0, len(data), size)])
        assert problems(events) == expected
        assert frames_of(events) == [[b"a"]]
        assert (summary(events).version, summary(events).handshake) == ("3.1", "complete")


def test_old_versions_behind_signatures_that_prove_little() -> None:
    two = b"\x01\x08\0\0" + frame(b"a")
    events = dissect([(0, PADDED + two), (1, PADDED + b"\x01\x07\0\0")])
    assert frames_of(events) == [[b"a"]]
    assert problems(events) == []
    assert dissect([(0, PADDED + two)]) == []  # alone it proves nothing
    assert dissect([(0, PADDED + two), (1, frame_v1(b"") + frame_v1(b"b"))]) == []


@pytest.mark.parametrize(
    "sent",
    [
        [(0, PADDED)],
        [(0, PADDED), (1, PADDED)],
        [(0, PADDED + b"\x03")],
        [(0, PADDED + b"\x77"), (1, PADDED + b"\x03")],
        [(0, PADDED + b"\x03\x01" + b"\x80" * 52)],
        [(0, ODD + b"\x03"), (1, ODD + b"\x03")],
        [(0, b"\xff" * 10 + b"\x03"), (1, b"\xff" * 10 + b"\x03")],
        [(0, b"\xff" * 9 + b"\x7f\x03"), (1, b"HTTP/1.1 400 Bad Request\r\n\r\n")],
    ],
)
def test_signatures_that_nothing_proves(sent: Talk) -> None:
    assert dissect(sent) == []
    assert dissect([(side, data[at : at + 1]) for side, data in sent for at in range(len(data))]) == []


def test_one_side_alone_proves_it_by_its_whole_greeting() -> None:
    events = dissect([(1, PADDED + REST + ready(b"PUB") + frame(b"x"))])
    assert frames_of(events) == [[b"x"]]


@pytest.mark.parametrize("first", [0, 1])
def test_something_else_beside_a_signature(first: int) -> None:
    """The events do not depend on the side that is seen first."""
    telnet = b"\xff\xfb\x18\xff\xfb\x20\xff\xfb\x23\xff\xfb\x27"
    sent = [(0, telnet), (1, greeting()[:10])]
    events = dissect([sent[first], sent[1 - first]])
    found = [event for event in events if isinstance(event, Problem) and event.code == "not-zmtp"]
    assert [event.detail for event in found] == [
        "the client does not speak ZMTP: its octets begin ff fb 18 ff fb 20 ff fb 23 ff fb 27"
    ]


def test_forced_signatures_are_read_as_they_are() -> None:
    sent = [(0, b"\xff" * 9 + b"\x01" + REST), *peers()[1:], (0, frame(b"a"))]
    assert frames_of(dissect(sent, forced=0)) == [[b"a"]]
    assert problems(dissect(sent, forced=0)) == ["bad-signature"]
    assert problems(dissect(sent))[0] == "not-zmtp"


# ---------------------------------------------------------------------- ZMTP 1.0, which has no mark

ANONYMOUS, NAMED = frame_v1(b""), frame_v1(b"me")
SINGLE = frame_v1(b"hello")
DOUBLE = frame_v1(b"topic", 1) + frame_v1(b"body")
LONG = frame_v1(b"x" * 300)
REQUEST = frame_v1(b"", 1) + SINGLE
ROUTED = frame_v1(b"id", 1) + REQUEST


@pytest.mark.parametrize(
    ("sent", "accepted"),
    [
        ([(0, ANONYMOUS), (1, ANONYMOUS)], True),
        ([(0, ANONYMOUS), (1, ANONYMOUS + SINGLE)], True),
        ([(0, ANONYMOUS), (1, ANONYMOUS + SINGLE + b"\0")], True),
        ([(0, ANONYMOUS), (1, ANONYMOUS + b"\5\2odd")], False),
        ([(0, ANONYMOUS), (1, NAMED + SINGLE * 2)], False),
        ([(0, ANONYMOUS), (1, NAMED + SINGLE * 5)], True),
        ([(0, ANONYMOUS), (1, NAMED + DOUBLE * 3)], True),
        ([(0, ANONYMOUS), (1, NAMED + (SINGLE + DOUBLE) * 9)], False),  # as if 0 and 1 were types
        ([(0, NAMED), (1, NAMED + SINGLE * 99)], False),
        ([(0, frame_v1(b"me", 0x7E)), (1, frame_v1(b"you", 0x7E) + frame_v1(b"x", 0x7E))], True),
        ([(0, ANONYMOUS)], False),
        ([(0, NAMED), (1, NAMED + DOUBLE * 7)], True),
        ([(0, NAMED), (1, NAMED + DOUBLE * 6 + SINGLE)], False),
        # A long frame, and what stands where it ends
        ([(0, NAMED), (1, NAMED + LONG + SINGLE)], True),
        ([(0, NAMED), (1, NAMED + LONG)], True),
        ([(0, NAMED), (1, NAMED + LONG[:-1])], False),
        ([(0, NAMED), (1, NAMED + LONG + b"\5\2odd")], False),
        ([(0, NAMED), (1, NAMED + b"\xff" + bytes(7) + b"\xfe\0" + bytes(253) + SINGLE)], False),  # needs no 8 octets
        ([(0, NAMED), (1, NAMED + b"\xff\0\0\0\1" + bytes(5) + SINGLE)], False),
        ([(0, frame_v1(b"i" * 255)), (1, NAMED + SINGLE)], True),
        # Delimiters in all requests and replies
        ([(0, NAMED + REQUEST * 2), (1, NAMED + REQUEST * 2)], True),
        ([(0, NAMED + REQUEST), (1, NAMED + REQUEST)], False),
        ([(0, NAMED + ROUTED * 2), (1, NAMED + ROUTED * 2)], True),
        ([(0, NAMED + REQUEST + SINGLE), (1, NAMED + REQUEST)], False),
        ([(0, NAMED + b"\1\0" + SINGLE), (1, NAMED + b"\1\0" + SINGLE)], False),  # heartbeats of type 0
    ],
)
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_evidence_of_zmtp_1_0(sent: Talk, accepted: bool, first: int, size: int) -> None:
    """However it is cut, and whoever is seen first."""
    turns = [(side, data[at : at + size]) for side, data in sent for at in range(0, len(data), size)]
    turns.sort(key=lambda turn: turn[0] != first)
    events = dissect(turns)
    assert bool(events) == accepted
    if accepted:
        assert [event.version for event in events if isinstance(event, Greeting)] == ["1.0", "1.0"]


@pytest.mark.parametrize("length", [300, 70_000, 1_000_000])
@pytest.mark.parametrize("other_first", [False, True])
def test_a_long_frame_is_waited_for(length: int, other_first: bool) -> None:
    """However long it is, its end tells; the other side may send more meanwhile."""
    long, piece = NAMED + frame_v1(bytes(length)) + SINGLE, 1448
    sent = [(0, long[at : at + piece]) for at in range(0, len(long), piece)]
    sent.insert(0 if other_first else len(sent) // 2, (1, NAMED))
    sent.insert(len(sent) - 1, (1, SINGLE))
    found = [event for event in dissect(sent) if isinstance(event, Message)]
    sizes = [len(first) if isinstance(first := event.frames[0], bytes) else first.length for event in found]
    assert sorted(sizes) == [5, 5, length]


@pytest.mark.parametrize("name", sorted(path.name for path in (FIXTURES / "versions").glob("*.pcap.gz")))
def test_old_and_new_peers_are_shown_from_their_first_octet(name: str) -> None:
    """libzmq 2.2, 3.2 and 4.3 with and without identities, all socket types: all connections."""
    events = events_of(load(FIXTURES / "versions" / name), WIRE)
    total = events[-1]
    assert isinstance(total, Capture)
    assert total.zmtp_flows == total.flows > 0
    assert total.messages > 0
    assert "perhaps-zmtp" not in problems(events)


def test_a_hole_in_what_may_be_zmtp_1_0_proves_nothing() -> None:
    assert dissect([(0, NAMED + SINGLE * 3), (1, NAMED), (0, 100), (0, SINGLE * 2)]) == []
