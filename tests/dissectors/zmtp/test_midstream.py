"""Captures that begin in the middle of a connection: which are ZMTP, which are not, and which cannot be told."""

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from dissectors.events import AnyEvent, Connection, Message, Problem
from tests.support.examples import crossed, sampled
from tests.support.settings import WIRE
from tests.world.conversation import CLIENT, SERVER, Conversation, Piece, binary_body, json_body, text_body
from tests.world.events import sniff
from tests.world.lookalikes import LOOKALIKES
from tests.world.network import SentSegment, packets, resegment, segments
from tests.world.octets import COMMAND, frame, message
from tests.world.tap import Packets
from zmtpsniff.engine.sniffer import Sniffer

FLOWS = int(os.environ.get("ZMTPSNIFF_FLOWS", "3"))

each_flow = pytest.mark.parametrize("number", sampled(range(FLOWS), FLOWS), ids=lambda number: f"flow{number}")
"""Flows of each protocol and shape; 100 are for an afternoon."""

Body = Callable[[Random, int], bytes]
BODIES: tuple[Body, ...] = (text_body, json_body, binary_body)


def begin_late(sent: list[SentSegment], random: Random, side: int | None = None) -> list[SentSegment]:
    """The rest of a capture that begins somewhere in the first half, perhaps of one side alone."""
    kept = [one for one in sent if side is None or one.side == side]
    octets = sum(len(one.payload) for one in kept)
    skip = random.random() * octets / 2
    at = 0
    while skip >= len(kept[at].payload):
        skip -= len(kept[at].payload)
        at += 1
    first = kept[at]
    if random.random() < 0.5 or len(first.payload) > octets / 20:  # inside a segment
        cut = int(skip)
        return [replace(first, offset=first.offset + cut, payload=first.payload[cut:]), *kept[at + 1 :]]
    rest = kept[at + 1 :]
    return rest[next(index for index, one in enumerate(rest) if one.payload) :]


def is_claimed(events: list[AnyEvent]) -> bool:
    return any(isinstance(event, Connection) for event in events)


def notes(events: list[AnyEvent]) -> list[Problem]:
    return [event for event in events if isinstance(event, Problem) and event.code == "perhaps-zmtp"]


# ---------------------------------------------------------------------- what is none


@each_flow
@pytest.mark.parametrize("name", sampled(LOOKALIKES, 2))
def test_other_protocols_are_not_claimed(name: str, number: int) -> None:
    random = Random(f"{name} {number}")
    pieces = [Piece(side, data) for side, data in LOOKALIKES[name](random, random.choice([20, 60])) if data]
    sent = segments(Conversation(name, tuple(pieces)), fin=random.random() < 0.5)
    if random.random() < 0.5:
        sent = resegment(sent, lambda: 1448)
    for side in (None, CLIENT, SERVER):
        given = begin_late(sent, random, side)
        assert not is_claimed(sniff(packets(given))), side


def item(form: str, zeros: int, kinds: bytes, random: Random, most: int) -> bytes:
    """Zeros or a type, a length in this form, and so many octets."""
    body = random.choice(BODIES)(random, random.randrange(1, most))
    kind = bytes([random.choice(kinds)]) if kinds else b""
    return bytes(zeros) + kind + struct.pack(form, len(body)) + body


@each_flow
@pytest.mark.parametrize(
    ("form", "zeros", "kinds"),
    crossed(["B", "!H", "<H", "!I", "<I", "!Q", "<Q"], [0, 1, 2], [b"", b"\0", b"\1", b"\2", b"\4", bytes(range(8))]),
)
def test_streams_of_items_are_not_claimed(form: str, zeros: int, kinds: bytes, number: int) -> None:
    """One side streams, the other asks now and then; of either side alone, joined in the middle."""
    random = Random(f"{form} {zeros} {kinds.hex()} {number}")
    most = random.choice([20, 100, 250])
    pieces = []
    for index in range(80):
        if index % 20 == 5:
            pieces.append(Piece(CLIENT, item(form, zeros, kinds, random, most)))
        count = random.choice([1, 1, 3])
        pieces.append(Piece(SERVER, b"".join(item(form, zeros, kinds, random, most) for _ in range(count))))
    silent = [piece for piece in pieces if piece.side == SERVER]
    for stream, side in ((pieces, SERVER), (pieces, CLIENT), (pieces, None), (silent, SERVER)):
        sent = segments(Conversation("items", tuple(stream)), fin=random.random() < 0.5)
        assert not is_claimed(sniff(packets(begin_late(sent, random, side)))), side


def test_what_is_certainly_something_else_is_not_told_of() -> None:
    for name in ("dns", "http", "32-bit lengths"):
        random = Random(name)
        pieces = tuple(Piece(side, data) for side, data in LOOKALIKES[name](random, 40))
        assert not notes(sniff(packets(begin_late(segments(Conversation(name, pieces)), random)))), name


# ---------------------------------------------------------------------- what is ZMTP


def bodies(random: Random, most: int, least: int = 1) -> Callable[[], bytes]:
    body = random.choice(BODIES)
    return lambda: body(random, random.randrange(least, most))


def requests(random: Random) -> list[Piece]:
    body = bodies(random, random.choice([10, 120, 600]))
    return [Piece(side, message(3, b"", body())) for _ in range(50) for side in (CLIENT, SERVER)]


def all_alike(random: Random) -> list[Piece]:
    return [
        Piece(side, message(3, b"", body)) for _ in range(50) for side, body in ((CLIENT, b"ping"), (SERVER, b"pong"))
    ]


def parts(random: Random) -> list[Piece]:
    body = bodies(random, random.choice([20, 100, 400]))

    def several() -> bytes:
        return message(3, *(body() for _ in range(random.randint(1, 5))))

    return [Piece(side, several()) for _ in range(50) for side in (CLIENT, SERVER)]


def pushed(random: Random) -> list[Piece]:
    body = bodies(random, random.choice([20, 100, 250]))
    batch = random.choice([1, 1, 20])
    return [Piece(CLIENT, b"".join(message(3, body()) for _ in range(random.randint(1, batch)))) for _ in range(60)]


def pushed_parts(random: Random) -> list[Piece]:
    body = bodies(random, random.choice([20, 100, 400]))
    return [Piece(CLIENT, message(3, *(body() for _ in range(random.randint(1, 4))))) for _ in range(60)]


def long_and_short(random: Random) -> list[Piece]:
    long, short = bodies(random, 9000, 300), bodies(random, 100)
    return [Piece(side, message(3, body())) for _ in range(40) for side, body in ((CLIENT, long), (SERVER, short))]


def published(random: Random) -> list[Piece]:
    topics = (b"weather.oslo", b"weather.rome", b"stock.ACME")
    body = bodies(random, 90)
    return [Piece(SERVER, message(3, random.choice(topics), body())) for _ in range(50)]


def published_whole(random: Random) -> list[Piece]:
    topics = (b"weather.oslo ", b"weather.rome ", b"stock.ACME ")
    return [
        Piece(SERVER, message(3, random.choice(topics) + text_body(random, random.randrange(1, 90)))) for _ in range(60)
    ]


def subscribed_late(random: Random) -> list[Piece]:
    pieces = published_whole(random)
    for at in (35, 50):
        topic = random.choice([b"weather.", b"stock.", b"weather.r"])
        pieces.insert(at, Piece(CLIENT, frame(bytes([random.randrange(2)]) + topic)))
    return pieces


def alive(random: Random) -> list[Piece]:
    body = bodies(random, random.choice([20, 100]))
    pieces = []
    for number in range(60):
        pieces += [Piece(CLIENT, message(3, body())), Piece(SERVER, message(3, body()))]
        if number % 7 == 3:
            ping = frame(b"\4PING" + struct.pack("!H", 100), COMMAND)
            pieces += [Piece(CLIENT, ping), Piece(SERVER, frame(b"\4PONG", COMMAND))]
    return pieces


def encrypted(random: Random) -> list[Piece]:
    def box() -> bytes:
        return frame(
            b"\7MESSAGE" + struct.pack("!Q", random.randrange(1000)) + random.randbytes(random.randrange(18, 150))
        )

    return [Piece(side, box()) for _ in range(50) for side in (CLIENT, SERVER)]


SHAPES: dict[str, Callable[[Random], list[Piece]]] = {
    "requests": requests,
    "requests that are all alike": all_alike,
    "messages of several frames": parts,
    "pushes": pushed,
    "pushes of several frames": pushed_parts,
    "long frames": long_and_short,
    "publications": published,
    "publications of one frame": published_whole,
    "late subscriptions": subscribed_late,
    "heartbeats": alive,
    "CURVE": encrypted,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_zmtp_is_found(shape: str) -> None:
    flows = max(FLOWS, 10)
    found = 0
    for number in range(flows):
        random = Random(f"{shape} {number}")
        sent = segments(Conversation(shape, tuple(SHAPES[shape](random))), fin=random.random() < 0.5)[3:]
        if random.random() < 0.5:
            sent = resegment(sent, lambda: 1448)
        events = sniff(packets(begin_late(sent, random)))
        found += is_claimed(events)
        assert not [event for event in events if isinstance(event, Problem) and event.severity != "note"]
    assert found >= 0.95 * flows


@pytest.mark.parametrize("shape", ["pushes", "publications of one frame"])
def test_what_talks_alone_is_not_claimed_without_the_packets_of_the_other_side(shape: str) -> None:
    """Its acknowledgments stand still, as those of any stream of items behind lengths do."""
    random = Random(shape)
    pieces = [piece for _ in range(3) for piece in SHAPES[shape](random)]
    sent = [one for one in segments(Conversation(shape, tuple(pieces)), fin=False)[3:] if one.side == pieces[0].side]
    events = sniff(packets(sent))
    assert not is_claimed(events)
    assert len(notes(events)) == 1


def test_what_talks_alone_is_believed_as_soon_as_it_is_known_to() -> None:
    """Messages are shown while they come, and none is held until the end."""
    sent = segments(Conversation("pushes", tuple(pushed(Random(2)) * 2)), fin=False)[3:]
    given = packets(sent, step_ns=10_000_000)  # so that what comes late is not waited for
    sniffer = Sniffer(Packets(given, 1), WIRE)
    shown = 0
    for number, events in enumerate(sniffer.events()):
        shown = shown or (number if any(isinstance(event, Message) for event in events) else 0)
    assert 0 < shown < 60


def test_an_answer_to_pipelined_requests_is_waited_for() -> None:
    """Five requests come before the first answer, which shows that this is not pushed."""
    random = Random(4)
    ask = [struct.pack("!H", 40) + random.randbytes(40) for _ in range(60)]
    pieces = [*(Piece(CLIENT, one) for one in ask[:5]), *(Piece(side, one) for one in ask for side in (SERVER, CLIENT))]
    assert not is_claimed(sniff(packets(segments(Conversation("pipelined", tuple(pieces)))[3:])))


# ---------------------------------------------------------------------- what cannot be told


def pair(random: Random, count: int = 40) -> Conversation:
    """Messages of one short frame, both ways."""
    body = bodies(random, random.choice([20, 100, 250]))
    return Conversation(
        "pair", tuple(Piece(side, message(3, body())) for _ in range(count) for side in (CLIENT, SERVER))
    )


def test_many_flows_of_a_port_are_told_of_once() -> None:
    given = []
    for number in range(30):
        given += packets(segments(pair(Random(number)))[3:], ports=(40_000 + number, 5555))
    (note,) = notes(sniff(given))
    assert note.detail.startswith("30 connections may be ZMTP (the first: connection 1, ")


def test_one_captured_side_of_a_dialogue_is_not_claimed() -> None:
    """Its acknowledgments say that there were answers."""
    sent = [one for one in segments(pair(Random(3)))[3:] if one.side == CLIENT]
    events = sniff(packets(sent))
    assert not is_claimed(events)
    assert len(notes(events)) == 1


def test_one_accident_is_no_proof() -> None:
    """A message whose length looks like MORE, and leads to what looks like another frame, again and again."""
    odd = b"\1\5" + b"other\0\xfe" + b"x" * 254
    usual = struct.pack("!H", 100) + b"y" * 100
    for answers in (usual, odd):
        pieces = [Piece(side, data) for _ in range(40) for side, data in ((CLIENT, odd), (SERVER, answers))]
        assert not is_claimed(sniff(packets(segments(Conversation("odd", tuple(pieces)))[3:])))
