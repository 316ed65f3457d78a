"""More conversations that are not ZMTP: they begin with FF, as signatures do, or their messages look like frames."""

import struct
from collections.abc import Callable
from random import Random

from .conversation import CLIENT, SERVER, binary_body, json_body, numbers_body, text_body, zeros_body
from .protocols import PROTOCOLS, Speak, Turns

Body = Callable[[Random, int], bytes]
Make = Callable[[Random], Callable[[], bytes]]
"""Chooses how the messages of a conversation are, and makes one after the other."""


BODIES: tuple[Body, ...] = (binary_body, text_body, json_body, numbers_body, zeros_body)


def _messages(make: Make) -> Speak:
    """Both sides send messages in turns, of some programs several at once."""

    def turns(random: Random, count: int) -> Turns:
        message = make(random)
        most = random.choice([1, 1, 3])
        for _ in range(count):
            for side in (CLIENT, SERVER):
                yield side, b"".join(message() for _ in range(random.randint(1, most)))

    return turns


# ---------------------------------------------------------------------- messages behind their length


def _lengths(
    form: str, most: tuple[int, ...] = (40, 255, 600, 3000), itself: int = 0, body: Body | None = None
) -> Speak:
    """Bodies behind a length in this form, which counts ``itself`` or not."""

    def make(random: Random) -> Callable[[], bytes]:
        kind, longest = body or random.choice(BODIES), random.choice(most) - itself

        def message() -> bytes:
            octets = kind(random, random.randrange(1, longest))
            return struct.pack(form, len(octets) + itself) + octets

        return message

    return _messages(make)


def _typed(form: str, kinds: int, most: int, itself: int = 0) -> Speak:
    """The same, and each body begins with one of so many types, which are numbered from 0.

    One type alone has something behind it: with nothing it would be an identity of ZMTP 1.0.
    """

    def body(random: Random, length: int) -> bytes:
        return bytes([random.randrange(kinds)]) + random.choice(BODIES)(random, max(length - 1, int(kinds == 1)))

    return _lengths(form, (most,), itself, body)


def _numbered(form: str) -> Speak:
    """Lengths of one octet, and bodies that begin with a small number."""
    return _lengths("B", (60,), body=lambda random, length: struct.pack(form, random.randrange(200)) + bytes(length))


def _with_heartbeats(random: Random, count: int) -> Turns:
    """Lengths of one octet and types; one side begins with a message that is a type alone."""
    heartbeat = random.randrange(2)
    for place, (side, octets) in enumerate(_typed("B", 6, 60)(random, count)):
        yield side, b"\1\0" if place == heartbeat else octets


def _framed(head: Callable[[Random, int], bytes], least: int, most: int) -> Speak:
    """Octets of no kind behind a head that tells how many they are."""

    def make(random: Random) -> Callable[[], bytes]:
        def message() -> bytes:
            length = random.randrange(least, most)
            return head(random, length) + random.randbytes(length)

        return message

    return _messages(make)


def _rows(body: Body, least: int) -> Speak:
    """Bodies without anything around them."""
    return _messages(lambda random: lambda: body(random, random.randrange(least, 3000)))


def _integers(form: str, most: int) -> Speak:
    def body(random: Random, length: int) -> bytes:
        size = struct.calcsize(form)
        return b"".join(struct.pack(form, random.randrange(most)) for _ in range(length // size + 1))

    return _rows(body, struct.calcsize(form))


# ---------------------------------------------------------------------- octets FF at the beginning


def _beginning_with(first: bytes, both: bool = True) -> Speak:
    """Octets of no kind behind these first ones; of the client, and of the server if ``both``."""

    def turns(random: Random, count: int) -> Turns:
        yield CLIENT, first + random.randbytes(random.randrange(600))
        yield SERVER, (first if both else b"") + random.randbytes(random.randrange(1, 600))
        for _ in range(count):
            yield random.choice([CLIENT, SERVER]), random.randbytes(random.randrange(1, 600))

    return turns


def _integers_from_255(form: str) -> Speak:
    """Integers, mostly small ones, the first 255: octets FF and zeros."""

    def turns(random: Random, count: int) -> Turns:
        def some(number: int) -> bytes:
            return b"".join(struct.pack(form, random.randrange(random.choice([4, 20, 200]))) for _ in range(number))

        for side in (CLIENT, SERVER):
            yield side, struct.pack(form, 255) + some(random.randrange(2, 40))
        for _ in range(count):
            yield random.choice([CLIENT, SERVER]), some(random.randrange(1, 50))

    return turns


LOOKALIKES: dict[str, Speak] = {
    **PROTOCOLS,
    "8-bit lengths": _lengths("B", (30, 255)),
    "8-bit lengths that count themselves": _typed("B", 3, 60, itself=1),
    "8-bit lengths, two types": _typed("B", 2, 200),
    "8-bit lengths, four types": _typed("B", 4, 60),
    "8-bit lengths, one type": _typed("B", 1, 60),
    "8-bit lengths, 16-bit numbers": _numbered("!H"),
    "8-bit lengths, 32-bit numbers": _numbered("!I"),
    "8-bit lengths, little-endian numbers": _numbered("<I"),
    "8-bit lengths with heartbeats": _with_heartbeats,
    "16-bit lengths": _lengths("!H"),
    "16-bit lengths, little-endian": _lengths("<H"),
    "16-bit lengths that count themselves": _lengths("!H", itself=2),
    "16-bit lengths that count themselves, little-endian": _lengths("<H", itself=2),
    "16-bit lengths, two types": _typed("!H", 2, 250),
    "32-bit lengths": _lengths("!I"),
    "32-bit lengths, little-endian": _lengths("<I"),
    "32-bit lengths that count themselves, little-endian": _lengths("<I", itself=4),
    "64-bit lengths": _lengths("!Q"),
    "64-bit lengths, little-endian": _lengths("<Q"),
    "octets of no kind": _rows(binary_body, 1),
    "zeros": _rows(zeros_body, 1),
    "little integers": _rows(numbers_body, 4),
    "16-bit integers": _integers("<H", 600),
    "big-endian integers": _integers("!I", 600),
    "64-bit integers": _integers("<Q", 100_000),
    "octets below 8": _integers("B", 8),
    "octets below 100": _integers("B", 100),
    "random octets behind FF, both": _beginning_with(b"\xff"),
    "random octets behind FF, one side": _beginning_with(b"\xff", both=False),
    "random octets behind FF FF FF FF": _beginning_with(b"\xff" * 4),
    "random octets behind eight FF": _beginning_with(b"\xff" * 8),
    "random octets behind FF and zeros": _beginning_with(b"\xff" + bytes(3)),
    "16-bit integers from 255": _integers_from_255("<H"),
    "32-bit integers from 255": _integers_from_255("<I"),
    "64-bit integers from 255": _integers_from_255("<Q"),
    # Its first bit says that a fragment is the last (RFC 5531, section 11).
    "onc rpc": _framed(
        lambda r, n: struct.pack("!III", 0x8000_0000 | n + 8, r.getrandbits(32), r.randrange(2)), 32, 90
    ),
    "git": _framed(lambda r, n: b"%04x" % (n + 4), 1, 60),
}
