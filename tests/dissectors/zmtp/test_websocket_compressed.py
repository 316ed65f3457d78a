"""Compressed WebSocket messages, and connections whose upgrade is not in the capture; wsproto makes the frames."""

import zlib
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import FrameProtocol

from dissectors.events import AnyEvent, Connection, Cut, Message
from dissectors.zmtp import deflate
from tests.dissectors.zmtp.test_websocket import Sent, message, plain, request
from tests.support.examples import examples
from tests.support.paths import FIXTURES
from tests.support.successors import successor
from tests.world.events import CLIENT, SERVER, Said, dissect, frames_of, problems, sniff, summary
from tests.world.octets import prop
from tests.world.tap import load

NO_TAKEOVER = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
OFFERS = ["permessage-deflate", NO_TAKEOVER, "permessage-deflate; server_max_window_bits=10; client_max_window_bits=10"]
BODIES = [b"weather", b"", b"the same again and again " * 40, b"the same again and again " * 41, b"x" * 70_000, b"end"]
READY = b"\x02\x05READY" + prop(b"Socket-Type", b"PAIR")


class Writer:
    """One side's messages, compressed."""

    def __init__(self, side: int, answer: str) -> None:
        extension = PerMessageDeflate()
        extension.finalize(answer)
        if side:
            extension = PerMessageDeflate(
                client_no_context_takeover="client_no" in answer, server_no_context_takeover="server_no" in answer
            )
            extension.accept(answer)
        self.protocol = FrameProtocol(client=side == 0, extensions=[extension])

    def write(self, payload: bytes, *cuts: int) -> bytes:
        parts = list(pairwise([0, *cuts, len(payload)]))
        return b"".join(
            bytes(self.protocol.send_data(payload[begin:end], fin=number == len(parts)))
            for number, (begin, end) in enumerate(parts, 1)
        )


def upgrade(answer: str) -> Sent:
    head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    head += f"Sec-WebSocket-Protocol: ZWS2.0/NULL\r\nSec-WebSocket-Extensions: {answer}\r\n\r\n"
    return [(0, request()), (1, head.encode())]


def conversation(answer: str) -> Sent:
    writers = Writer(0, answer), Writer(1, answer)
    sent = upgrade(answer)
    sent += [(side, writers[side].write(READY)) for side in (0, 1)]
    for body in BODIES:
        sent += [(side, writers[side].write(b"\0" + body)) for side in (0, 1)]
    sent += [(side, writers[side].write(b"\0" + BODIES[3], 1, 50, 900)) for side in (0, 1)]
    return sent


def messages(events: list[AnyEvent], src: str) -> list[object]:
    return [event.frames for event in events if isinstance(event, Message) and event.src == src]


@pytest.mark.parametrize("answer", OFFERS)
def test_compressed_messages_are_read(answer: str) -> None:
    sent = conversation(answer)
    assert sum(len(octets) for _, octets in sent) < 3000  # they are compressed
    events = dissect(sent)
    assert problems(events) == []
    expected = [[body if len(body) < 65_536 else Cut(body[:65_536], len(body))] for body in [*BODIES, BODIES[3]]]
    assert messages(events, CLIENT) == messages(events, SERVER) == expected
    assert (summary(events).handshake, summary(events).client.socket_type) == ("complete", "PAIR")


@settings(max_examples=examples(20))
@given(st.integers(0, 1 << 32), st.sampled_from(OFFERS))
def test_any_cutting_gives_the_same_events(seed: int, answer: str) -> None:
    random = Random(seed)
    sent = conversation(answer)
    pieces: Sent = []
    for side, octets in sent:
        places = sorted({0, len(octets), *(random.randrange(len(octets)) for _ in range(5))})
        pieces += [(side, octets[begin:end]) for begin, end in pairwise(places)]
    assert plain(dissect(pieces)) == plain(dissect(sent))


@pytest.mark.parametrize("answer", OFFERS[:2])
def test_a_hole_costs_what_refers_to_it(answer: str) -> None:
    writer = Writer(1, answer)
    ready = [(0, Writer(0, answer).write(READY)), (1, writer.write(READY))]
    random = Random(5).randbytes(20_000)
    lost, after, uncompressed = writer.write(b"\0" + random), writer.write(b"\0" + random[:500]), message(1, b"plain")
    holed: list[Said] = [(1, lost[:1000]), (1, 5000), (1, lost[6000:] + after + uncompressed)]
    out = dissect([*upgrade(answer), *ready, *holed], "open")
    # The next frame may be the end of the message that is lost.
    read = [(random[:500], True), (b"plain", False)] if answer == NO_TAKEOVER else [(b"plain", True)]
    assert [(event.frames[-1], event.incomplete) for event in out if isinstance(event, Message)] == read
    assert problems(out) == ["capture-gap", "websocket-compression"]


def test_what_inflates_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deflate, "INFLATED_LIMIT", 1 << 20)
    writer = Writer(1, OFFERS[1])
    octets = writer.write(b"\0" * (1 << 22)) + writer.write(b"\0next")
    events = dissect([*upgrade(OFFERS[1]), (0, Writer(0, OFFERS[1]).write(READY)), (1, writer.write(READY) + octets)])
    assert problems(events) == ["websocket-compression"]
    assert messages(events, SERVER) in ([[b"next"]], [])


LATE = [b"first body", b"second", b"another one", b"the fourth", b"and the fifth"]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_capture_that_starts_after_the_upgrade(first: int, pieces: int) -> None:
    sent: Sent = [(first, message(first, body, number == 1)) for number, body in enumerate(LATE)]
    sent.append((1 - first, message(1 - first, b"answer")))
    if pieces == 1:  # all in one segment
        sent = [(first, b"".join(octets for _, octets in sent[:-1])), sent[-1]]
    events = dissect(sent, from_start=False)
    one, other = (CLIENT, SERVER) if first == 0 else (SERVER, CLIENT)
    assert messages(events, one) == [[LATE[0]], [LATE[1], LATE[2]], [LATE[3]], [LATE[4]]]
    assert messages(events, other) == [[b"answer"]]
    assert set(problems(events)) == {"no-greeting"}
    last = summary(events)
    assert (last.transport, last.handshake, last.version) == ("ws", "not-seen", None)


def test_a_capture_that_starts_with_the_handshake() -> None:
    events = dissect([(1, message(1, READY[1:], 2)), (0, message(0, READY[1:], 2))], from_start=False)
    assert (summary(events).transport, summary(events).server.socket_type) == ("ws", "PAIR")


@pytest.mark.parametrize("first", [6, 10])
def test_a_real_capture_that_starts_late(first: int) -> None:
    packets = load(FIXTURES / "ws_plain.pcap")
    all_, late = sniff(packets), sniff(packets[first:])
    assert frames_of(late) == frames_of(all_)
    assert [event.transport for event in late if isinstance(event, Connection)] == ["ws"]
    assert {code for code in problems(late) if code != "plain-credentials"} == {"no-greeting"}


OTHERS = {
    "numbers": [b"\0\0\0\x05abcde", b"\0\0\0\x03abc"] * 5,  # lengths in 4 octets
    "text": [b"{}", b"[1]"] * 10,
    "protobuf": [b"\x08\x01\x12\x03abc"] * 10,
    "few": [b"\0abc", b"\0def"],
}


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("name", OTHERS)
def test_other_websockets_are_not_told(name: str, side: int) -> None:
    protocol = FrameProtocol(client=side == 0, extensions=[])
    sent = [(side, bytes(protocol.send_data(payload, fin=True))) for payload in OTHERS[name]]
    assert dissect(sent, from_start=False) == []


def test_so_many_windows_are_held_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deflate, "_MOST_WINDOWS", 3)

    def compressed(*messages: bytes) -> list[bytes]:
        compressor = zlib.compressobj(wbits=-15)
        return [(compressor.compress(one) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4] for one in messages]

    body = Random(5).randbytes(2000)
    first, second = compressed(body, body)
    assert len(second) < 100, "it refers back to the first"
    inflaters = [deflate.Inflater(takeover=True) for _ in range(5)]
    assert [one.inflate(first, 9999) for one in inflaters] == [(body, 2000)] * 5
    assert [one.inflate(second, 9999) for one in inflaters] == [None] * 2 + [(body, 2000)] * 3
    # An inflater that needs no window, or is gone, does not count.
    assert deflate.Inflater(takeover=False).inflate(first, 9999) == (body, 2000)
    del inflaters[3:]
    more = [deflate.Inflater(takeover=True) for _ in range(2)]
    assert [one.inflate(first, 9999) for one in more] == [(body, 2000)] * 2
    assert inflaters[2].inflate(second, 9999) == (body, 2000)


@pytest.mark.parametrize("takeover", [True, False])
def test_a_message_that_is_lost_stays_lost_in_a_snapshot(takeover: bool) -> None:
    inflater = deflate.Inflater(takeover)
    inflater.lose()
    compressor = zlib.compressobj(wbits=-15)
    octets = compressor.compress(b"hello") + compressor.flush(zlib.Z_SYNC_FLUSH)
    restored = successor(inflater, deflate.Inflater())
    assert restored.inflate(octets[:-4], 100) == (None if takeover else (b"hello", 5))


@pytest.mark.parametrize("takeover", [True, False])
def test_what_refers_to_octets_before_a_final_block_is_lost(takeover: bool) -> None:
    """RFC 7692, 7.2.3.4 allows such blocks."""
    inflater = deflate.Inflater(takeover)
    compressor = zlib.compressobj(wbits=-15)
    octets = compressor.compress(b"hello") + compressor.flush()
    assert inflater.inflate(octets, 100) == (b"hello", 5)
    assert inflater.inflate(octets, 100) == (None if takeover else (b"hello", 5))
