"""Captures made to mislead whoever starts reading in the middle, each from a seed."""

import struct
from collections.abc import Callable
from random import Random

from tests.world.conversation import (
    CLIENT,
    SERVER,
    Conversation,
    Piece,
    binary_body,
    greetings,
    numbers_body,
    text_body,
    zeros_body,
)
from tests.world.network import START_NS, disturbed, packets
from tests.world.octets import COMMAND, frame, frame_v1, greeting, message, ready
from zmtpsniff.capture.block import Packet

Body = Callable[[Random, int], bytes]

_COMMANDS = (
    b"\x04PING\0\0", b"\x04PONG", b"\x09SUBSCRIBEa", b"\x06CANCELa", b"\x04JOINg", b"\x05LEAVEg",
    b"\x07MESSAGE" + bytes(40),
    b"\x07MESSAGE", b"\x05HELLO", b"\x05ERROR\0", b"\x05WEIRD",
)  # fmt: skip


def nested_body(random: Random, length: int) -> bytes:
    """Frames, so that whoever starts inside finds a chain."""
    out = b""
    while len(out) < length:
        out += random.choice(
            [
                frame(text_body(random, random.randrange(30)), flags=random.random() < 0.3),
                frame(random.choice([b"\0", b"\1"]) + b"topic"),
                frame(random.choice(_COMMANDS), COMMAND),
                frame(bytes(random.randrange(300))),
                frame_v1(text_body(random, random.randrange(20))),
                ready(b"DEALER"),
                greeting(),
            ]
        )
    return out if random.random() < 0.5 else out[:length]


def alike_body(random: Random, length: int) -> bytes:
    """Frames of one kind, which end where the body does."""
    one = frame(text_body(random, random.randrange(1, 12)))
    return one * (length // len(one) + 1)


def ones_body(random: Random, length: int) -> bytes:
    return b"\1" * length


def topic_body(random: Random, length: int) -> bytes:
    """Octets that are a subscription if the sender is a subscriber."""
    return random.choice([b"\0", b"\1"]) + text_body(random, length)


def box_body(random: Random, length: int) -> bytes:
    """Octets that are an encrypted message if the connection is encrypted."""
    return b"\x07MESSAGE" + random.randbytes(random.choice([3, 24, 25, 26, max(length, 26)]))


BODIES: tuple[Body, ...] = (
    nested_body, alike_body, zeros_body, ones_body, topic_body, box_body, text_body, binary_body, numbers_body,
)  # fmt: skip


def conversation(random: Random) -> Conversation:
    """Two programs that send each other what misleads."""
    version = random.choice([1, 2, 3, 3, 3, 3])
    kinds = random.choice(
        [(b"REQ", b"REP"), (b"PUSH", b"PULL"), (b"SUB", b"PUB"), (b"DEALER", b"ROUTER"), (b"PUB", b"SUB")]
    )
    pieces = greetings(version, *kinds, minor=random.choice([0, 1, 1]))
    if version == 3 and random.random() < 0.25:
        pieces = _curve(random)
    bodies = random.sample(BODIES, random.choice([1, 1, 2, 3]))
    most = random.choice([5, 40, 300, 3000, 20_000])
    back = random.choice([0.0, 0.02, 0.3, 0.5])
    left = random.choice([1500, 6000, 40_000])
    while left > 0:
        side = SERVER if random.random() < back else CLIENT
        data = _sent(random, version, bodies, most)
        left -= len(data) + 40
        pieces.append(Piece(side, data))
    return Conversation("adverse", tuple(pieces), random.choice(["fin", "rst", "open"]), random.randrange(2))


def _sent(random: Random, version: int, bodies: list[Body], most: int) -> bytes:
    if version > 1 and random.random() < 0.05:
        return frame(random.choice(_COMMANDS[:6]), COMMAND)
    if version > 1 and random.random() < 0.004:
        return frame(random.choice(_COMMANDS), COMMAND) if random.random() < 0.7 else random.randbytes(9)
    parts = [random.choice(bodies)(random, random.randrange(most)) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    if random.random() < 0.1:
        parts.insert(0, b"")
    data = message(version, *parts)
    if version > 1 and random.random() < 0.03:  # a long frame that need not be one
        data += struct.pack("!BQ", 2, 7) + b"7 bytes"
    return data


def _curve(random: Random) -> list[Piece]:
    names = (b"\x05HELLO" + b"\1\0" + random.randbytes(192), b"\x07WELCOME" + random.randbytes(160),
             b"\x08INITIATE" + random.randbytes(200), b"\x05READY" + random.randbytes(40))  # fmt: skip
    return [Piece(side, greeting(b"CURVE")) for side in (CLIENT, SERVER)] + [
        Piece(number % 2, frame(body, COMMAND)) for number, body in enumerate(names)
    ]


_PAUSES = (1, 20_000, 20_000, 20_000, 2_000_000, 11_000_000, 150_000_000)
_LONG_PAUSES = (4_000_000_000, 6_000_000_000, 400_000_000_000, 700_000_000_000, 90_000_000_000_000)


def capture(seed: int) -> list[Packet]:
    """Packets of one or several connections, on the same ports or on others, one after the other or mixed."""
    random = Random(seed)
    ports = [(40_000 + random.randrange(2), 5555) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    mixed = random.random() < 0.5
    flows: list[list[Packet]] = []
    start_ns = START_NS
    for pair in ports:
        isn = random.choice(
            [(1000, 500_000), (random.randrange(2**32), random.randrange(2**32)), (2**32 - 500, 2**32 - 90)]
        )
        made = packets(disturbed(conversation(random), random, 0.3), isn, pair, start_ns, random.choice(_PAUSES))
        if random.random() < 0.15:
            made = _with_pauses(made, random)
        flows.append(made)
        if not mixed and made:
            start_ns = made[-1][0] + random.choice((*_PAUSES, *_LONG_PAUSES))
    out = [packet for made in flows for packet in made]
    if mixed:
        out.sort(key=lambda packet: packet[0])
    if random.random() < 0.05:  # a little out of order in time
        out = [(time_ns - random.randrange(50_000), *rest) for time_ns, *rest in out]  # type: ignore[misc]
    return out


def _with_pauses(made: list[Packet], random: Random) -> list[Packet]:
    """Long pauses at a few places."""
    places = {random.randrange(len(made)) for _ in range(random.randrange(1, 4))} if made else set()
    shift = 0
    out: list[Packet] = []
    for number, (time_ns, *rest) in enumerate(made):
        if number in places:
            shift += random.choice(_LONG_PAUSES)
        out.append((time_ns + shift, *rest))  # type: ignore[arg-type]
    return out


def places(seed: int, count: int) -> list[int]:
    """Where to cut a capture of so many packets."""
    random = Random(-seed - 1)
    return [random.randrange(1, count) for _ in range(random.choice([1, 1, 2, 3, 5, 12]))] if count > 1 else []
