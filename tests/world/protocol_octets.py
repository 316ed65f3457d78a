"""Parts of many protocols: lengths, names, texts."""

import struct
from collections.abc import Callable, Iterator
from random import Random

from .conversation import text_body

Turns = Iterator[tuple[int, bytes]]
"""The side and its octets, in the order in which they are said."""
Speak = Callable[[Random, int], Turns]
"""Makes a conversation of so many exchanges."""


def u16(value: int) -> bytes:
    return struct.pack("!H", value)


def u32(value: int) -> bytes:
    return struct.pack("!I", value)


def len16(body: bytes) -> bytes:
    return u16(len(body)) + body


def len32(body: bytes) -> bytes:
    return u32(len(body)) + body


def word(random: Random, least: int = 3, most: int = 12) -> bytes:
    return bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz", k=random.randint(least, most)))


def host_name(random: Random) -> bytes:
    return word(random) + b".example." + random.choice([b"com", b"org", b"net"])


def some(random: Random, most: int = 400) -> bytes:
    """A text of any length."""
    return text_body(random, random.randrange(1, most))


def base64(random: Random, length: int) -> bytes:
    return bytes(random.choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=length))
