"""ZWS inside WebSocket: any cutting, holes, what is against the rules. The frames are made by wsproto, not by us."""

from itertools import accumulate, pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.frame_protocol import CloseReason, FrameProtocol, Opcode

from dissectors.events import AnyEvent, Command, Connection, Cut, Greeting, Message, Problem, Subscription
from dissectors.zmtp.websocket_frames import unmask
from tests.world.events import Said, dissect, frames_of, problems, summary
from tests.world.octets import prop

Sent = list[tuple[int, bytes]]
BINARY = Opcode.BINARY


def request(protocols: str = "ZWS2.0/NULL,ZWS2.0") -> bytes:
    head = "GET /zmq HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n"
    head += f"sec-websocket-protocol: {protocols}"
    return f"{head}\r\nSec-WebSocket-Key: aZg85FHcsPRKlOgqKR+Oow==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()


def response(protocol: str = "ZWS2.0/NULL", status: str = "101 Switching Protocols") -> bytes:
    head = f"HTTP/1.1 {status}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: {protocol}"
    return f"{head}\r\n\r\n".encode()


def message(side: int, body: bytes, flags: int = 0, cuts: tuple[int, ...] = ()) -> bytes:
    """One frame of ZWS from this side, as a WebSocket message cut at these places of its payload."""
    writer = FrameProtocol(client=side == 0, extensions=[])
    payload = bytes([flags]) + body
    places = [0, *cuts, len(payload)]
    parts = [payload[begin:end] for begin, end in pairwise(places)]
    return b"".join(bytes(writer.send_data(part, fin=number == len(parts) - 1)) for number, part in enumerate(parts))


def ready(side: int, kind: bytes) -> bytes:
    return message(side, b"\x05READY" + prop(b"Socket-Type", kind), 2)


def handshake(client: bytes = b"DEALER", server: bytes = b"ROUTER") -> Sent:
    return [(0, request()), (1, response()), (0, ready(0, client)), (1, ready(1, server))]


def plain(events: list[AnyEvent]) -> list[object]:
    """Events by side, without the number of the packet that completed them."""
    found = []
    for event in events:
        if isinstance(event, (Greeting, Command, Message, Subscription, Problem)):
            event.time_ns = event.packet = 0
        if isinstance(event, Connection):
            event.end_ns = 0
        found.append(event)
    return sorted(found, key=lambda event: getattr(event, "src", None) or "")


CONVERSATION: Sent = [
    *handshake(b"SUB", b"PUB"),
    (0, message(0, b"\x01weather")),
    (1, message(1, b"weather", 1) + message(1, b"x" * 300, 1, (0, 100)) + message(1, b"")),
    (1, bytes(FrameProtocol(client=False, extensions=[]).ping(b"beat"))),
    (0, bytes(FrameProtocol(client=True, extensions=[]).pong(b"beat"))),
    (1, message(1, b"y" * 70_000, 0, (1, 2, 30_000))),
    (0, message(0, b"\x00weather")),
    (0, bytes(FrameProtocol(client=True, extensions=[]).close(CloseReason.NORMAL_CLOSURE, "bye"))),
    (1, bytes(FrameProtocol(client=False, extensions=[]).close(CloseReason.NORMAL_CLOSURE))),
]


def test_all_of_a_conversation_is_told() -> None:
    events = dissect(CONVERSATION)
    assert problems(events) == []
    assert frames_of(events) == [
        [b"weather", b"x" * 300, b""],
        [Cut(b"y" * 65_536, 70_000)],
    ]
    assert [(e.action, e.topic, e.encoding) for e in events if isinstance(e, Subscription)] == [
        ("subscribe", b"weather", "message"),
        ("cancel", b"weather", "message"),
    ]
    commands = [(e.name, e.context, e.status, e.reason) for e in events if isinstance(e, Command)][2:]
    assert commands == [
        ("PING", b"beat", None, None),
        ("PONG", b"beat", None, None),
        ("CLOSE", None, 1000, b"bye"),
        ("CLOSE", None, 1000, None),
    ]
    greetings = [(e.version, e.mechanism) for e in events if isinstance(e, Greeting)]
    assert greetings == [("ZWS2.0", "NULL")] * 2
    last = summary(events)
    assert (last.transport, last.version, last.mechanism, last.handshake) == (
        "ws", "ZWS2.0", "NULL", "complete",
    )  # fmt: skip
    assert (last.client.socket_type, last.server.socket_type) == ("SUB", "PUB")


@settings(deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([1, 3, 50, 5000]))
def test_any_cutting_gives_the_same_events(seed: int, size: int) -> None:
    random = Random(seed)
    pieces: Sent = []
    for side, octets in CONVERSATION:
        position = 0
        while position < len(octets):
            step = random.randint(1, size) if len(octets) < 1000 else random.randint(1, 9000)
            pieces.append((side, octets[position : position + step]))
            position += step
    assert plain(dissect(pieces)) == plain(dissect(CONVERSATION))


def test_without_a_mechanism_identities_come_first() -> None:
    sent: Sent = [
        (0, request("ZWS2.0")),
        (0, message(0, b"me")),
        (1, response("ZWS2.0") + message(1, b"")),
        (0, message(0, b"hello")),
    ]
    events = dissect(sent)
    assert problems(events) == []
    assert frames_of(events) == [[b"hello"]]
    last = summary(events)
    assert (last.handshake, last.client.identity, last.server.identity) == ("complete", b"me", b"")
    assert last.mechanism is None


@pytest.mark.parametrize(
    "refusal", [response(status="400 Bad Request"), response("chat"), b"HTTP/1.1 200 OK\r\n\r\nhi"]
)
def test_a_server_that_refuses(refusal: bytes) -> None:
    events = dissect([(0, request()), (1, refusal), (1, b"more")])
    assert problems(events) == ["upgrade-refused"]
    assert summary(events).handshake == "failed"


def test_a_server_that_chooses_what_was_not_offered() -> None:
    events = dissect([(0, request("ZWS2.0/PLAIN")), (1, response("ZWS2.0/NULL"))])
    assert problems(events) == ["mechanism-mismatch"]
    assert summary(events).handshake == "failed"


OTHER = [
    [(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), (1, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")],
    [(0, request("chat")), (1, response("chat")), (0, message(0, b"hello")), (1, message(1, b"hello"))],
    [(0, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000)],
    [(0, b"G")],
    [(1, b"HTTP/")],
]


@pytest.mark.parametrize("sent", OTHER)
@pytest.mark.parametrize("from_start", [True, False])
def test_other_http_is_not_told(sent: Sent, from_start: bool) -> None:
    assert dissect(sent, from_start=from_start) == []
    assert dissect([(side, octets[i : i + 1]) for side, octets in sent for i in range(len(octets))]) == []


@pytest.mark.parametrize("side", [0, 1])
def test_one_side_alone(side: int) -> None:
    begin = [request(), response()][side]
    out = dissect([(side, begin), (1 - side, None), (side, ready(side, b"PAIR") + message(side, b"hello"))], "open")
    assert frames_of(out) == [[b"hello"]]
    assert problems(out) == ["one-direction"]
    assert summary(out).handshake == "not-seen"


def test_a_hole_in_a_body_costs_that_message_only() -> None:
    octets = message(0, b"a" * 20_000) + message(0, b"next")
    out = dissect([*handshake(), (0, octets[:5000]), (0, 5000), (0, octets[10_000:])], "open")
    messages = [event for event in out if isinstance(event, Message)]
    assert [(event.frames, event.incomplete) for event in messages] == [
        ([Cut(b"a" * 4991, 20_000)], True),
        ([b"next"], False),
    ]
    assert problems(out) == ["capture-gap"]


@settings(deadline=None)
@given(st.integers(0, 4000), st.integers(1, 3000), st.sampled_from([0, 1]))
def test_after_a_hole_nothing_is_invented(begin: int, length: int, side: int) -> None:
    bodies = [b"message number %d" % number * (number % 7 + 1) for number in range(60)]
    sent = [message(side, body) for body in bodies]
    octets = b"".join(sent)
    parts: list[Said] = [(side, octets[:begin]), (side, length), (side, octets[begin + length :])]
    out = dissect([*handshake(), *(part for part in parts if part[1])], "open")
    whole = [e.frames[0] for e in out if isinstance(e, Message) and not e.incomplete]
    rest = iter(bodies)
    assert all(any(body == one for one in rest) for body in whole)
    ends = list(accumulate(map(len, sent)))
    after = sum(end - len(one) >= begin + length for one, end in zip(sent, ends, strict=True))
    before = sum(end <= begin for end in ends)
    # Those after the hole are found again if there are enough of them; the first may lack its beginning.
    assert len(whole) >= before + (after - 1 if after > 3 else 0)


RULES = {
    "compressed": (1, b"\xc2\x03\x00ab", "bad-websocket-frame"),
    "opcode": (1, b"\x83\x03\x00ab", "bad-websocket-frame"),
    "empty": (1, b"\x82\x00", "bad-websocket-frame"),
    "text": (1, b"\x81\x03\x00ab", "bad-websocket-frame"),
    "continuation": (1, b"\x80\x03\x00ab", "bad-websocket-frame"),
    "length": (1, b"\x82\x7f" + b"\xff" * 8, "bad-websocket-frame"),
    "long ping": (1, b"\x89\x7e\x00\x80" + bytes(128), "bad-websocket-frame"),
    "masked server": (1, message(0, b"a"), "websocket-mask"),
    "unmasked client": (0, message(1, b"a"), "websocket-mask"),
    "flags": (1, b"\x82\x02\x08a", "reserved-flags"),
}


@pytest.mark.parametrize("name", RULES)
def test_what_is_against_the_rules(name: str) -> None:
    side, octets, code = RULES[name]
    assert problems(dissect([*handshake(), (side, octets)])) == [code]


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_a_mask_is_taken_off_as_octet_by_octet(octets: bytes, mask: bytes) -> None:
    """RFC 6455, section 5.3: octet i is combined with octet i modulo 4 of the mask."""
    assert unmask(octets, mask) == bytes(octet ^ mask[place % 4] for place, octet in enumerate(octets))
    assert unmask(octets, b"") == octets
