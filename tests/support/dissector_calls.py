"""Calls of a connection's dissector: octets cut anywhere, holes, sides that are late, in any order."""

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from dissectors.events import AnyEvent
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.limits import Limits
from tests.fuzz.connections import upgrade
from tests.support.paths import FIXTURES
from tests.world.conversation import publications, pushes, request_reply
from tests.world.events import CLIENT, SERVER
from tests.world.octets import SIGNATURE, frame_v1
from tests.world.recordings import from_capture

Sent = list[tuple[int, bytes]]
Call = tuple[int, str, tuple[Any, ...]]  # side, method of a half, arguments
Successor = Callable[[ZmtpConnection, list[AnyEvent]], ZmtpConnection]  # what goes on for a connection


@cache
def talks() -> tuple[list[Sent], ...]:
    """Octets that two sides send each other: of captures, conversations of each version; WebSocket."""
    captured = [talk for path in sorted(FIXTURES.glob("*.pcap")) for talk in from_capture(path)]
    small = [talk for talk in captured if 0 < sum(len(piece.data) for piece in talk.pieces) < 50_000]
    # Two that announce a version and frame as 1.0 does
    begin = SIGNATURE + bytes([0, 5]) + frame_v1(b"me") + frame_v1(b"hello", 1) + frame_v1(b"world")
    # And two of 1.0 whose identities have the header of a long frame
    long = [(side, b"\xff" + bytes(6) + b"\1\0\0" + bytes(255) + frame_v1(b"hello") * 9) for side in (0, 1)]
    made = [[(side, begin) for side in (0, 1)], long]
    for version in (1, 2, 3):
        for make in (request_reply, pushes, publications):
            for most in (20, 3000, 20_000):
                pieces = make(version, Random(version), 12, most=most).pieces
                made.append([(piece.side, piece.data) for piece in pieces])
    web = []
    for protocol in (b"ZWS2.0", b"ZWS2.0/NULL"):
        for extension in (b"", b"Sec-WebSocket-Extensions: permessage-deflate\r\n"):
            frames = [(side, _web_frame(side, length)) for length in (1, 7, 50, 20_000, 9, 9) for side in (1, 0)]
            web.append([*upgrade(protocol, extension), *frames])
    return [[(piece.side, piece.data) for piece in talk.pieces] for talk in small], made, web


def _web_frame(side: int, length: int) -> bytes:
    """A message of ZWS, which a client masks with zeros."""
    masked = 0 if side else 0x80
    size = bytes([masked | length]) if length < 126 else bytes([masked | 126]) + length.to_bytes(2, "big")
    return b"\x82" + size + bytes(0 if side else 4) + b"\0" + b"a" * (length - 1)


def calls(random: Random) -> list[Call]:
    """Calls for a conversation that chance chooses and disturbs."""
    talk = list(random.choice(random.choice(talks())))
    if random.random() < 0.3:
        talk = talk[random.randrange(len(talk)) :]
    if random.random() < 0.15:
        talk += random.choice(random.choice(talks()))[random.randrange(3) :]
    share = random.choice([0, 0, 0.03, 0.2])
    sizes = random.choice([(1, 2, 10, 54), (64, 1448), (1448, 70_000)])
    made: list[Call] = []
    offsets, seen = [0, 0], [0, 0]
    for side, data in talk:
        begin = 0
        while begin < len(data) and len(made) < 120:
            piece = data[begin : begin + random.choice(sizes)]
            begin += len(piece)
            seen[side] = random.choice([seen[side], offsets[1 - side]])
            if random.random() < share:
                made.append(_disturbance(random, side, len(piece)))
            else:
                made.append((side, "feed", (piece, len(made), len(made), offsets[side], seen[side])))
            offsets[side] += len(piece)
    return made


def _disturbance(random: Random, side: int, size: int) -> Call:
    what = random.random()
    if what < 0.6:
        return side, "gap", (size, False, 1, 1)
    if what < 0.8:
        return side, "gap", (size, True, 1, 1)
    if what < 0.9:
        return side, "lose", ("tls-gap", "octets are missing", 1, 1)
    return random.randrange(2), "absent", (1, 1)


def events(
    made: list[Call],
    starts: tuple[bool, bool] = (True, True),
    forced: int | None = None,
    limits: Limits | None = None,
    between: Successor | None = None,
) -> list[AnyEvent]:
    """The events of a dissector that is called so; ``between`` two calls another may take its place."""
    out: list[AnyEvent] = []
    connection = ZmtpConnection(out, 1, CLIENT, SERVER, starts, limits, forced)
    for side, method, arguments in made:
        if connection.rejected:
            return out
        if between is not None:
            connection = between(connection, out)
        getattr(connection.halves[side], method)(*arguments)
    if between is not None:
        connection = between(connection, out)
    connection.finish("fin", 0, 1)
    return out
