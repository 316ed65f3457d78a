"""Conversations made up: greetings of each version, and messages of several patterns and kinds of bodies."""

import struct
from collections.abc import Callable
from random import Random

from tests.support.streams import CLIENT, SERVER, Conversation, Piece


def frame(body: bytes, more: bool = False, command: bool = False) -> bytes:
    """A frame of ZMTP 2.0 and later."""
    flags = more | command << 2
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return struct.pack("!BQ", flags | 2, len(body)) + body


def frame_v1(body: bytes, more: bool = False) -> bytes:
    """A frame of ZMTP 1.0."""
    length = len(body) + 1
    return (bytes([length]) if length < 255 else struct.pack("!BQ", 255, length)) + bytes([more]) + body


def message(version: int, *bodies: bytes) -> bytes:
    make = frame_v1 if version == 1 else frame
    return b"".join(make(body, number < len(bodies)) for number, body in enumerate(bodies, 1))


def ready(socket_type: bytes, **properties: bytes) -> bytes:
    body = b"\5READY"
    for name, value in {"Socket-Type": socket_type, **properties}.items():
        body += bytes([len(name)]) + name.encode() + struct.pack("!I", len(value)) + value
    return frame(body, command=True)


_NUMBERS = {b"PUB": 1, b"SUB": 2, b"REQ": 3, b"REP": 4, b"DEALER": 5, b"ROUTER": 6, b"PULL": 7, b"PUSH": 8}


def greetings(version: int, client: bytes, server: bytes, minor: int = 1) -> list[Piece]:
    """The greetings and handshake of two libzmq peers, in the steps in which they send them."""
    signature = b"\xff" + bytes(7) + b"\x01\x7f"
    if version == 1:
        return [Piece(CLIENT, b"\1\0"), Piece(SERVER, b"\1\0")]
    if version == 2:
        ours, theirs = (bytes([1, _NUMBERS[kind]]) + frame(b"") for kind in (client, server))
        return [Piece(CLIENT, signature), Piece(SERVER, signature), Piece(CLIENT, ours), Piece(SERVER, theirs)]
    rest = bytes([minor]) + b"NULL".ljust(20, b"\0") + bytes(32)
    return [
        Piece(CLIENT, signature), Piece(SERVER, signature), Piece(CLIENT, b"\3"), Piece(SERVER, b"\3" + rest),
        Piece(CLIENT, rest), Piece(CLIENT, ready(client)), Piece(SERVER, ready(server)),
    ]  # fmt: skip


def text_body(random: Random, length: int) -> bytes:
    words = b"temperature pressure humidity station value unit reading 20.5 17.25 ok error ,.;:{}[]\"'".split()
    out = b" ".join(random.choices(words, k=length // 4 + 1))
    return out[:length]


def binary_body(random: Random, length: int) -> bytes:
    return random.randbytes(length)


def numbers_body(random: Random, length: int) -> bytes:
    """Small integers of four octets: mostly zeros and ones."""
    return b"".join(struct.pack("<I", random.randrange(300)) for _ in range(length // 4 + 1))[:length]


def json_body(random: Random, length: int) -> bytes:
    return b'{"id":%d,"name":"%s"}' % (random.randrange(10**6), text_body(random, max(length - 24, 0)))


def request_reply(version: int, random: Random, count: int = 40, body: Callable[[Random, int], bytes] = json_body,
                  most: int = 120) -> Conversation:  # fmt: skip
    """REQ and REP in turns."""
    pieces = greetings(version, b"REQ", b"REP")
    for _ in range(count):
        for side in (CLIENT, SERVER):
            pieces.append(Piece(side, message(version, b"", body(random, random.randrange(1, most)))))
    return Conversation(f"request-reply {version}", tuple(pieces))


def pushes(version: int, random: Random, count: int = 400, body: Callable[[Random, int], bytes] = json_body,
           most: int = 200, batch: int = 8192, parts: int = 1) -> Conversation:  # fmt: skip
    """PUSH to PULL, many messages a segment, in batches as libzmq makes them."""
    pieces = greetings(version, b"PUSH", b"PULL")
    stream = b"".join(
        message(version, *(body(random, random.randrange(1, most)) for _ in range(random.randint(1, parts))))
        for _ in range(count)
    )
    pieces += [Piece(CLIENT, stream[at : at + batch]) for at in range(0, len(stream), batch)]
    return Conversation(f"pushes {version}", tuple(pieces))


def publications(version: int, random: Random, count: int = 200, body: Callable[[Random, int], bytes] = text_body,
                 most: int = 100) -> Conversation:  # fmt: skip
    """SUB and PUB, topic and body in two frames."""
    pieces = greetings(version, b"SUB", b"PUB")
    if version > 1:
        topics = [b"weather.", b"stock."]
        pieces += [
            Piece(CLIENT, frame(b"\x09SUBSCRIBE" + t, command=True) if version == 3 else frame(b"\1" + t))
            for t in topics
        ]
    for _ in range(count):
        topic = random.choice([b"weather.oslo", b"weather.rome", b"stock.ACME"])
        pieces.append(Piece(SERVER, message(version, topic, body(random, random.randrange(1, most)))))
    return Conversation(f"publications {version}", tuple(pieces))
