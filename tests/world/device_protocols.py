"""Directories, desktops, machines."""

import struct
from random import Random

from .conversation import CLIENT, SERVER
from .protocol_octets import Turns, len32, some, u16, word

# ---------------------------------------------------------------------- directories, desktops


def ldap(random: Random, count: int) -> Turns:
    """RFC 4511 in BER: a tag, a length, what is in it."""

    def ber(tag: int, body: bytes) -> bytes:
        length = len(body)
        if length < 128:
            return bytes([tag, length]) + body
        return bytes([tag, 0x82]) + u16(length) + body

    def message(number: int, body: bytes) -> bytes:
        return ber(0x30, ber(2, u16(number) if number > 127 else bytes([number])) + body)

    yield CLIENT, message(1, ber(0x60, b"\2\1\3" + ber(4, b"cn=admin,dc=example") + ber(0x80, b"secret")))
    yield SERVER, message(1, ber(0x61, b"\x0a\1\0\4\0\4\0"))
    for number in range(2, count + 2):
        base = ber(4, b"ou=%s,dc=example" % word(random))
        wanted = ber(0xA3, ber(4, b"uid") + ber(4, word(random)))
        yield CLIENT, message(number, ber(0x63, base + b"\x0a\1\2\x0a\1\0\2\1\0\2\1\0\1\1\0" + wanted + ber(0x30, b"")))
        entries = b""
        for _ in range(random.randrange(4)):
            attribute = ber(0x30, ber(4, b"mail") + ber(0x31, ber(4, some(random, 100))))
            entries += message(number, ber(0x64, base + ber(0x30, attribute)))
        yield SERVER, entries + message(number, ber(0x65, b"\x0a\1\0\4\0\4\0"))


def rdp(random: Random, count: int) -> Turns:
    """TPKT (RFC 1006) with X.224 in it, and what is quicker than that."""

    def tpkt(body: bytes) -> bytes:
        return b"\3\0" + u16(len(body) + 4) + body

    yield CLIENT, tpkt(b"\x27\xe0\0\0\0\0\0Cookie: mstshash=%s\r\n\1\0\x08\0\3\0\0\0" % word(random))
    yield SERVER, tpkt(b"\x0e\xd0\0\0\x12\x34\0\2\x1f\x08\0\2\0\0\0")
    for _ in range(count):
        yield CLIENT, tpkt(b"\2\xf0\x80\x64\0\1\x03\xeb\x70" + random.randbytes(random.randrange(10, 100)))
        if random.random() < 0.5:
            yield SERVER, tpkt(b"\2\xf0\x80\x68\0\1\x03\xeb\x70" + random.randbytes(random.randrange(10, 1000)))
        else:
            body = random.randbytes(random.randrange(130, 1000))
            yield SERVER, b"\0" + u16(0x8000 | len(body) + 3) + body


def x11(random: Random, count: int) -> Turns:
    """Requests with their length in units of four octets; events of 32 octets."""
    yield CLIENT, b"l\0\x0b\0\0\0\x12\0\x10\0\0\0MIT-MAGIC-COOKIE-1\0\0" + random.randbytes(16)
    vendor = b"The X.Org Foundation"
    body = struct.pack("<IIIIHH", 12_101_004, 0x4000000, 0x1FFFFF, 256, len(vendor), 65_535)
    body += b"\1\7\0\0\x20\x20\x08\xff\0\0\0\0" + vendor
    body += bytes(random.randrange(20, 200) * 4)
    yield SERVER, b"\1\0\x0b\0\0\0" + struct.pack("<H", len(body) // 4) + body
    for number in range(1, count + 1):
        requests = b""
        for _ in range(random.randint(1, 6)):
            units = random.randint(1, 12)
            body = struct.pack(f"<{2 * units - 2}H", *(random.randrange(2000) for _ in range(2 * units - 2)))
            requests += struct.pack("<BBH", random.choice((8, 12, 53, 55, 62, 70, 72)), 0, units) + body
        yield CLIENT, requests
        kind = random.choice((2, 3, 6, 12))
        yield SERVER, struct.pack("<BBH", kind, random.randrange(100), number) + random.randbytes(28)


def vnc(random: Random, count: int) -> Turns:
    """RFC 6143: a line, small messages of the client, rectangles of the server."""
    for side in (SERVER, CLIENT):
        yield side, b"RFB 003.008\n"
    yield SERVER, b"\2\1\2"
    yield CLIENT, b"\1"
    yield SERVER, bytes(4)
    yield CLIENT, b"\1"
    name = word(random)
    yield SERVER, struct.pack("!HH", 1024, 768) + b"\x20\x18\0\1\0\xff\0\xff\0\xff\x10\x08\0\0\0\0" + len32(name)
    yield CLIENT, b"\2\0\0\2\0\0\0\0\0\0\0\1"
    for _ in range(count):
        yield CLIENT, b"\3\1" + struct.pack("!HHHH", 0, 0, 1024, 768)
        if random.random() < 0.5:
            yield CLIENT, b"\5\0" + struct.pack("!HH", random.randrange(1024), random.randrange(768))
        width, height = random.randint(1, 20), random.randint(1, 20)
        colours = b"\0\0\0\0", b"\xff\xff\xff\0", random.randbytes(4)
        pixels = b"".join(random.choices(colours, k=width * height))
        yield SERVER, b"\0\0\0\1" + struct.pack("!HHHHI", 3, 4, width, height, 0) + pixels


# ---------------------------------------------------------------------- machines


def modbus(random: Random, count: int) -> Turns:
    """Modbus/TCP: a number, zeros, a length of 16 bits, a unit, a function."""
    unit = random.randrange(1, 30)
    for number in range(count):
        registers = random.randint(1, 60)
        yield CLIENT, struct.pack("!HHHBBHH", number, 0, 6, unit, 3, random.randrange(1000), registers)
        values = struct.pack(f"!{registers}H", *(random.randrange(500) for _ in range(registers)))
        yield SERVER, struct.pack("!HHHBBB", number, 0, 3 + len(values), unit, 3, len(values)) + values


def dnp3(random: Random, count: int) -> Turns:
    """IEEE 1815: 05 64, a length, addresses, blocks of sixteen octets with a CRC each."""

    def frame(control: int, body: bytes) -> bytes:
        blocks = b"".join(body[at : at + 16] + random.randbytes(2) for at in range(0, len(body), 16))
        return b"\x05\x64" + bytes([5 + len(body), control]) + struct.pack("<HH", 10, 1) + random.randbytes(2) + blocks

    for number in range(count):
        sequence = number % 16
        classes = b"\x3c\2\6\x3c\3\6\x3c\4\6\x3c\1\6"
        yield CLIENT, frame(0xC4, bytes([0xC0 | sequence, 0xC0 | sequence, 1]) + classes)
        points = b"".join(b"\1" + struct.pack("<H", random.randrange(500)) for _ in range(random.randrange(30)))
        head = bytes([0xC0 | sequence, 0xE0 | sequence, 0x81, 0, 0])
        yield SERVER, frame(0x44, head + b"\x1e\2\1\0\0\x1d\0" + points)
