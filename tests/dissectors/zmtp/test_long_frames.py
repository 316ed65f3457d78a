"""Captures that begin inside messages so long that no window of the search holds two of them."""

import array
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable
from functools import cache
from random import Random

import pytest
import zmq

from dissectors.events import AnyEvent, Message, Octets
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.limits import Limits
from dissectors.zmtp.long_frames import TAIL, LongFrames
from dissectors.zmtp.search import Search
from tests.support.examples import crossed, sampled
from tests.support.settings import WIRE
from tests.world.conversation import CLIENT, SERVER, Conversation, Piece, binary_body, greetings, text_body, zeros_body
from tests.world.events import is_subsequence, sniff, whole_messages
from tests.world.network import SentSegment, packets, resegment, segments
from tests.world.octets import frame, message
from zmtpsniff.net.segment import ACK

MIB = 1 << 20
LIMITS = Limits(64)
SHORT = WIRE._replace(limits=LIMITS)


def floats_body(random: Random, length: int) -> bytes:
    """A tensor of which a third is zero, over and over."""
    some = array.array("f", (random.gauss(0, 1) if random.random() < 0.7 else 0.0 for _ in range(5000))).tobytes()
    return (some * (length // len(some) + 1))[:length]


def image_body(random: Random, length: int) -> bytes:
    """A body like a JPEG: random octets, and after each 0xff another."""
    return (b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1" + random.randbytes(length).replace(b"\xff", b"\xff\0"))[:length]


def long_text_body(random: Random, length: int) -> bytes:
    return (text_body(random, 5000) * (length // 5000 + 1))[:length]


BODIES: dict[str, Callable[[Random, int], bytes]] = {
    "random octets": binary_body,
    "zeros": zeros_body,
    "text": long_text_body,
    "floats": floats_body,
    "images": image_body,
}


def size(octets: Octets) -> int:
    """How many octets a frame has, shown or not."""
    return len(octets) if isinstance(octets, bytes) else octets.length


# ---------------------------------------------------------------------- real peers


def relay(source: socket.socket, sink: socket.socket, side: int, pieces: list[Piece]) -> threading.Thread:
    """Pass on what one peer sends, and keep it."""

    def run() -> None:
        while data := source.recv(60_000):
            pieces.append(Piece(side, data))
            sink.sendall(data)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@cache
def recorded(pattern: str, kind: str, length: int, count: int) -> Conversation:
    """The octets of two peers of libzmq: ``count`` messages of about ``length`` octets."""
    random = Random(f"{pattern}{kind}")
    client_type, server_type = {"push": (zmq.PUSH, zmq.PULL), "req": (zmq.REQ, zmq.REP), "pub": (zmq.SUB, zmq.PUB)}[
        pattern
    ]
    pieces: list[Piece] = []
    with zmq.Context() as context, socket.create_server(("127.0.0.1", 0)) as listener:
        server = context.socket(server_type)
        port = server.bind_to_random_port("tcp://127.0.0.1")
        client = context.socket(client_type)
        client.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", port))
        threads = [relay(near, far, CLIENT, pieces), relay(far, near, SERVER, pieces)]
        if pattern == "pub":
            client.subscribe(b"")
        for one in (client, server):
            one.rcvtimeo = one.sndtimeo = 60_000
        sender, receiver = (server, client) if pattern == "pub" else (client, server)
        for number in range(-1, count):
            body = b"first" if number < 0 else BODIES[kind](random, length + random.randrange(5000))
            if pattern == "pub":
                sender.send_multipart([b"camera", body])
                while number < 0 and not receiver.poll(100):  # until the subscription has arrived
                    sender.send_multipart([b"camera", body])
            else:
                sender.send(body)
            if number >= 0 or pattern != "pub":
                while receiver.recv_multipart()[-1] != body:
                    pass
            if pattern == "req":
                receiver.send(b"done")
                sender.recv()
        client.close(0)
        server.close(0)
        for thread in threads:
            thread.join(60)
        near.close()
        far.close()
    return Conversation(f"{pattern} {kind}", tuple(pieces))


def begin_inside(talk: Conversation, part: float, size: int) -> list[SentSegment]:
    """The segments of ``size`` octets of what follows the first ``part`` of a conversation."""
    sent = resegment(segments(talk), lambda: size)
    return sent[int(len(sent) * part) :]


@pytest.mark.parametrize(
    ("pattern", "kind"), crossed(["push", "req", pytest.param("pub", marks=pytest.mark.slow)], [*BODIES])
)
def test_messages_of_real_peers_are_found(pattern: str, kind: str) -> None:
    """Of ten messages of 600 kB no more than three whole ones are lost, the one in which the capture begins aside."""
    talk = recorded(pattern, kind, 600_000, 10)
    everything = whole_messages(sniff(packets(segments(talk)), settings=SHORT))
    for part, segment in ((0.13, 1448), (0.37, 60_000)):
        found = whole_messages(sniff(packets(begin_inside(talk, part, segment)), settings=SHORT))
        for side, messages in found.items():
            assert is_subsequence(messages, everything[side])
        most = max((sum(size(frames[-1]) > 500_000 for frames in messages) for messages in found.values()), default=0)
        assert most >= 10 * (1 - part) - 1 - 4, (part, segment)


# ---------------------------------------------------------------------- made-up ones, longer


def many(version: int, body: Callable[[Random, int], bytes], length: int, count: int) -> bytes:
    random = Random(f"{version}{body.__name__}")
    return b"".join(message(version, body(random, length + random.randrange(length // 8))) for _ in range(count))


def feed(stream: bytes, at: int, size: int = 1448, forced: int | None = None) -> tuple[list[AnyEvent], ZmtpConnection]:
    """The events of a side of which the capture has all from ``at`` on."""
    events: list[AnyEvent] = []
    connection = ZmtpConnection(events, 1, "a:1", "b:2", (False, False), LIMITS, forced)
    for number, begin in enumerate(range(at, len(stream), size), 1):
        connection.client.feed(stream[begin : begin + size], number, number)
    connection.finish("open", 0, len(stream))
    return events, connection


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 3])
def test_messages_longer_than_what_was_searched_for_an_unknown_flow(version: int) -> None:
    stream = many(version, binary_body, 8 * MIB, 7)
    events, _ = feed(stream, 3 * MIB)
    messages = [event for event in events if isinstance(event, Message)]
    assert len(messages) >= 3
    assert not any(event.incomplete for event in messages[1:])
    at = len(stream)
    for event in reversed(messages):  # they are the last of the stream
        at -= size(event.frames[0]) + (10 if version == 1 else 9)
        assert stream[at] == (255 if version == 1 else 2)


def test_long_frames_between_short_ones() -> None:
    random = Random(4)
    parts = [(b"camera %d" % number, b'{"width": 1920}', random.randbytes(3 * MIB), b"") for number in range(5)]
    events, _ = feed(b"".join(message(3, *frames) for frames in parts), 100)
    found = [event.frames for event in events if isinstance(event, Message) and not event.incomplete]
    assert [[*frames[:2], size(frames[2]), *frames[3:]] for frames in found] == [
        [*frames[:2], len(frames[2]), *frames[3:]] for frames in parts[-len(found) :]
    ]
    assert len(found) >= 2


def test_a_hole_in_a_long_body_does_not_lose_where_it_leads() -> None:
    stream = many(3, binary_body, 2 * MIB, 6)
    events: list[AnyEvent] = []
    connection = ZmtpConnection(events, 1, "a:1", "b:2", (False, False), LIMITS)
    for number, begin in enumerate(range(MIB, len(stream), 1448), 1):
        data = stream[begin : begin + 1448]
        if number % 400 == 0:
            connection.client.gap(len(data), False, number, number)
        else:
            connection.client.feed(data, number, number)
    connection.finish("open", 0, len(stream))
    assert len([event for event in events if isinstance(event, Message)]) >= 2


def test_a_hole_of_unknown_length_loses_all_places() -> None:
    """The next frame is not where a header led, though there is a frame at just that distance."""
    random = Random(5)
    long, rest = frame(random.randbytes(2 * MIB)), random.randbytes(2 * MIB)
    connection = ZmtpConnection([], 1, "a:1", "b:2", (False, False), LIMITS)
    half = connection.client
    for begin in range(0, MIB + 20_000, 1448):
        half.feed((random.randbytes(20_000) + long)[begin : begin + 1448], 1, 1)
    assert isinstance(half.search, Search)
    assert half.search.long_frames.trails
    half.lose("capture-gap", "octets are missing", 2, 2)
    assert not half.search.long_frames.trails
    half.feed(rest, 3, 3)
    assert not connection.accepted


def test_a_lost_header_of_a_known_connection() -> None:
    """The second header behind the hole is where frames are found again, though 8 MiB lie between the two."""
    random = Random(6)
    bodies = [random.randbytes(8 * MIB + random.randrange(1000)) for _ in range(5)]
    stream = b"".join(map(frame, bodies))
    talk = Conversation(
        "lost",
        (*greetings(3, b"PUSH", b"PULL"), *(Piece(CLIENT, stream[at : at + MIB]) for at in range(0, len(stream), MIB))),
    )
    sent = resegment(segments(talk), lambda: 60_000)
    first = next(index for index, one in enumerate(sent) if one.side == CLIENT and one.offset > 100 and one.payload)
    del sent[first]  # with the header of the first message
    events = sniff(packets(sent), settings=SHORT)
    found = [event for event in events if isinstance(event, Message) and not event.incomplete]
    assert [size(event.frames[0]) for event in found] == [len(body) for body in bodies[-len(found) :]]
    assert len(found) >= 1


def test_what_is_followed_holds_no_memory() -> None:
    """Messages of 40 MiB are found again, and nothing is held of them but the place where they end."""
    block = Random(7).randbytes(MIB)
    connection = ZmtpConnection([], 1, "a:1", "b:2", (False, False), LIMITS)
    half = connection.client
    for _ in range(2):  # which is searched closely, which takes memory for a moment
        half.feed(block, 1, 1)
    tracemalloc.start()
    try:
        for _ in range(3):
            half.feed(struct.pack("!BQ", 2, 40 * MIB), 1, 1)
            for _ in range(40):
                half.feed(block, 1, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert connection.accepted
    assert peak < 5 * MIB  # a segment of 1 MiB is copied a few times


# ---------------------------------------------------------------------- what is none


def test_what_is_no_zmtp_is_given_up() -> None:
    """Encrypted octets: nothing in them looks like a header, so a flow of them costs no more than its first 70 MiB."""
    block = Random(8).randbytes(MIB)
    connection = ZmtpConnection([], 1, "a:1", "b:2", (False, False), LIMITS)
    fed = 0
    while not connection.rejected and fed < 300:
        connection.client.feed(b"\x17\x03\x03\x40\x11" + block, 1, 1)
        fed += 1
    assert 60 < fed <= 70


@pytest.mark.slow
def test_headers_that_lead_nowhere_do_not_keep_a_flow() -> None:
    random = Random(9)
    connection = ZmtpConnection([], 1, "a:1", "b:2", (False, False), LIMITS)
    fed = 0
    octets = random.randbytes(MIB)
    while not connection.rejected and fed < 600:
        block = bytearray(octets)
        struct.pack_into("!BQ", block, random.randrange(MIB - 9), 2, random.randrange(300 * MIB))
        connection.client.feed(bytes(block), 1, 1)
        fed += 1
    assert connection.rejected
    assert fed <= 300


def follow(octets: bytes, known: bool) -> bool:
    """Whether long frames are found in these octets."""
    long_frames = LongFrames()
    step = 1 << 15
    return any(
        long_frames.take(octets[at : at + step + TAIL], step, list(range(0, step, 1448)), 0, known)
        for at in range(0, len(octets) - step, step)
    )


@pytest.mark.parametrize(
    ("known", "form"), crossed([False, True], sampled(["<q", ">q", "<i", ">i", "<h", ">h", ">d", "<d"], 3))
)
def test_tables_of_numbers_have_no_frames(form: str, known: bool) -> None:
    """Sparse and small numbers have what looks like headers everywhere."""
    random = Random(form)
    makers: list[Callable[[], int]] = [
        lambda: random.randrange(600),
        lambda: random.randrange(30_000) if random.random() < 0.1 else 0,
        lambda: random.choice([0, 0, 1, 2, 3, 255, 256, 512, 515, 770, 1024]),
    ]
    for make in makers:
        some = b"".join(struct.pack(form, make()) for _ in range(MIB // struct.calcsize(form)))
        assert not follow(some, known)


def test_one_header_after_the_other_by_chance_is_no_proof() -> None:
    """A table of records whose first octets are those of a long frame, but for what follows them."""
    random = Random(10)
    records = b"".join(
        struct.pack("!BQ", random.choice([2, 3]), random.randrange(256, 100_000)) + random.randbytes(991)
        for _ in range(3000)
    )
    assert not follow(records, known=True)


# ---------------------------------------------------------------------- what goes on in another process


@pytest.mark.parametrize("kept", range(1, 12))
def test_the_header_of_a_long_frame_cut_by_a_gap(kept: int) -> None:
    """Of ZMTP 1.0, where the length is followed by the flags, it is the longest there is."""
    header = b"\xff" + (1 << 20).to_bytes(8, "big") + b"\0"
    sent = [
        SentSegment(CLIENT, 0, b"in the middle of something" + header[:kept], 0, ACK),
        SentSegment(CLIENT, 5000, b"and more of it", 0, ACK),
        *(SentSegment(SERVER, 0, b"", 5014, ACK) for _ in range(60)),
    ]
    events = sniff(packets(sent, step_ns=10_000_000))
    assert not [event for event in events if isinstance(event, Message)]
