"""Conversations of two programs, piece by piece: greetings of each version, several patterns and kinds of bodies."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple

from tests.world.octets import COMMAND, NUMBERS, SIGNATURE, frame, message, ready

CLIENT, SERVER = 0, 1
_WORDS = b"temperature pressure humidity station value unit reading 20.5 17.25 ok error ,.;:{}[]\"'".split()


End = Literal["fin", "rst", "open"]


class Piece(NamedTuple):
    """Octets that one side sends in one go."""

    side: int
    data: bytes
    time_ns: int = 0
    needs: int = 0  # so many pieces of the other side must have arrived
    pause_ns: int = 0  # from then on, and from its own last piece on


@dataclass(eq=False)
class Conversation:
    """The pieces that two sides send each other, in the order in which they are seen."""

    name: str
    pieces: tuple[Piece, ...] | list[Piece]
    end: End = "fin"
    closer: int = CLIENT

    def stream(self, side: int) -> bytes:
        """All octets of a side."""
        return b"".join(piece.data for piece in self.pieces if piece.side == side)


def greetings(version: int, client: bytes, server: bytes, minor: int = 1) -> list[Piece]:
    """The greetings and handshake of two libzmq peers, in the steps in which they send them."""
    if version == 1:
        return [Piece(CLIENT, b"\1\0"), Piece(SERVER, b"\1\0")]
    if version == 2:
        ours, theirs = (bytes([1, NUMBERS[kind]]) + frame(b"") for kind in (client, server))
        return [Piece(CLIENT, SIGNATURE), Piece(SERVER, SIGNATURE), Piece(CLIENT, ours), Piece(SERVER, theirs)]
    rest = bytes([minor]) + b"NULL".ljust(20, b"\0") + bytes(32)
    return [
        Piece(CLIENT, SIGNATURE), Piece(SERVER, SIGNATURE), Piece(CLIENT, b"\3"), Piece(SERVER, b"\3" + rest),
        Piece(CLIENT, rest), Piece(CLIENT, ready(client)), Piece(SERVER, ready(server)),
    ]  # fmt: skip


def text_body(random: Random, length: int) -> bytes:
    """Words, so many octets of them."""
    out = b" ".join(random.choices(_WORDS, k=length // 4 + 1))
    return out[:length]


def binary_body(random: Random, length: int) -> bytes:
    return random.randbytes(length)


def numbers_body(random: Random, length: int) -> bytes:
    """Small integers of four octets: mostly zeros and ones."""
    return b"".join(struct.pack("<I", random.randrange(300)) for _ in range(length // 4 + 1))[:length]


def zeros_body(_: Random, length: int) -> bytes:
    return bytes(length)


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
            Piece(CLIENT, frame(b"\x09SUBSCRIBE" + t, COMMAND) if version == 3 else frame(b"\1" + t)) for t in topics
        ]
    for _ in range(count):
        topic = random.choice([b"weather.oslo", b"weather.rome", b"stock.ACME"])
        pieces.append(Piece(SERVER, message(version, topic, body(random, random.randrange(1, most)))))
    return Conversation(f"publications {version}", tuple(pieces))
