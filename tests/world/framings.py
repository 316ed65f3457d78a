"""Nothing in particular: frames as home-made protocols have them, and octets without any order."""

import struct
from random import Random

from .conversation import CLIENT, SERVER
from .protocol_octets import Turns, some, u16


def _kind_and_text(random: Random, most: int) -> bytes:
    """The body of a home-made protocol's frame: a kind, a number, a text. Kinds are no flags of ZMTP."""
    return bytes([random.randrange(2, 40)]) + u16(random.randrange(1000)) + some(random, most)


def frames8(random: Random, count: int) -> Turns:
    """Frames with a length of 8 bits that counts what is behind it."""
    for _ in range(count):
        for side in (CLIENT, SERVER):
            bodies = (_kind_and_text(random, 100) for _ in range(random.randint(1, 3)))
            yield side, b"".join(bytes([len(body)]) + body for body in bodies)


def frames16(random: Random, count: int) -> Turns:
    """Frames with a length of 16 bits, in either order of octets.

    Lengths below 256 in network order are, octet for octet, frames of ZMTP 2.0: so there are others, too.
    """
    order = random.choice("<!")
    for _ in range(count):
        for side in (CLIENT, SERVER):
            bodies = (_kind_and_text(random, 1500) for _ in range(random.randint(1, 3)))
            yield side, b"".join(struct.pack(order + "H", len(body)) + body for body in bodies)


def frames32(random: Random, count: int) -> Turns:
    """Frames with a length of 32 bits, in either order of octets."""
    order = random.choice("<!")
    for _ in range(count):
        for side in (CLIENT, SERVER):
            bodies = (_kind_and_text(random, 1500) for _ in range(random.randint(1, 3)))
            yield side, b"".join(struct.pack(order + "I", len(body)) + body for body in bodies)


def random_octets(random: Random, count: int) -> Turns:
    """Octets without any order, as encryption makes them."""
    for number in range(count):
        for side in (CLIENT, SERVER):
            octets = random.randbytes(random.randrange(1, 600))
            yield side, octets.lstrip(b"\xff\1") or b"\2" if number == 0 else octets


def random_after_ff(random: Random, count: int) -> Turns:
    """The same, but both sides begin with FF; none of them with a signature of ZMTP."""
    for side in (CLIENT, SERVER):
        head = b"\xff" + random.randbytes(8) + bytes([random.choice((*range(0x7F), *range(0x80, 0x100)))])
        yield side, head + random.randbytes(random.randrange(300))
    yield from random_octets(random, count)
