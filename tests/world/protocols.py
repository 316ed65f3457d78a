"""Protocols that are not ZMTP: what their two sides send, made up octet by octet as real programs would.

Each is a function that yields ``(side, octets)`` in the order in which programs speak; what a side says, it says after
it has read all before. No two conversations are alike: numbers, lengths and texts come of the ``Random``. Those are
here that would be taken for ZMTP if less were enough for that: they begin with FF as signatures do, or with what may
be an identity of ZMTP 1.0, or have lengths and flags where frames have them.
"""

import struct
from collections.abc import Callable, Iterator
from random import Random

from .conversation import CLIENT, SERVER, text_body

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


def some(random: Random, most: int = 400) -> bytes:
    """A text of any length."""
    return text_body(random, random.randrange(1, most))


def bgp(random: Random, count: int) -> Turns:
    """RFC 4271: a marker of sixteen FF, length, type."""

    def message(kind: int, body: bytes = b"") -> bytes:
        return b"\xff" * 16 + struct.pack("!HB", 19 + len(body), kind) + body

    def opened() -> bytes:
        capabilities = b"\x02\x06\x01\x04\0\x01\0\x01\x02\x02\x02\0\x02\x06\x41\x04" + u32(random.randrange(1 << 32))
        body = struct.pack("!BHH4sB", 4, random.randrange(1, 65_535), 180, random.randbytes(4), len(capabilities))
        return message(1, body + capabilities)

    def update() -> bytes:
        hops = [random.randrange(1, 65_535) for _ in range(random.randint(1, 6))]
        path = struct.pack(f"!BB{len(hops)}H", 2, len(hops), *hops)
        attributes = b"\x40\x01\x01\0\x40\x02" + bytes([len(path)]) + path + b"\x40\x03\x04" + random.randbytes(4)
        routes = b"".join(b"\x18" + random.randbytes(3) for _ in range(random.randint(1, 20)))
        return message(2, u16(0) + len16(attributes) + routes)

    yield CLIENT, opened()
    yield SERVER, opened() + message(4)
    yield CLIENT, message(4)
    for _ in range(count):
        side = random.choice([CLIENT, SERVER])
        yield side, b"".join(update() for _ in range(random.randint(1, 3))) if random.random() < 0.7 else message(4)


def telnet(random: Random, count: int) -> Turns:
    """RFC 854: options are negotiated with IAC, which is FF."""

    def options(verbs: bytes) -> bytes:
        return b"".join(
            bytes([255, random.choice(verbs), random.choice((1, 3, 5, 24, 31, 32, 33, 34, 39))])
            for _ in range(random.randint(1, 8))
        )

    yield SERVER, options(b"\xfd\xfb")
    yield CLIENT, options(b"\xfb\xfd\xfc\xfe")
    yield SERVER, b"\xff\xfa\x18\x01\xff\xf0" + options(b"\xfd\xfb")
    yield CLIENT, b"\xff\xfa\x18\0xterm\xff\xf0\xff\xfa\x1f\0\x50\0\x18\xff\xf0" + options(b"\xfb\xfd")
    yield SERVER, b"\r\n%s login: " % word(random)
    for _ in range(count):
        line = some(random, 30)
        for key in line[:5]:  # typed, and echoed
            yield CLIENT, bytes([key])
            yield SERVER, bytes([key])
        yield CLIENT, line[5:] + b"\r\0"
        yield SERVER, line[5:] + b"\r\n" + some(random) + b"\r\n$ "


def dns(random: Random, count: int) -> Turns:
    """RFC 7766: messages of DNS with their length in front."""
    for _ in range(count):
        name = b"".join(bytes([len(label)]) + label for label in (word(random), b"example", b"com")) + b"\0"
        number = random.randbytes(2)
        yield CLIENT, len16(number + b"\1\0\0\1\0\0\0\0\0\0" + name + b"\0\1\0\1")
        # Few programs ask over TCP for what fits into a datagram.
        records = [
            b"\xc0\x0c\0\1\0\1" + u32(random.randrange(86_400)) + b"\0\4" + random.randbytes(4)
            for _ in range(random.randrange(30, 150))
        ]
        head = number + struct.pack("!HHHHH", 0x8180, 1, len(records), 0, 0)
        yield SERVER, len16(head + name + b"\0\1\0\1" + b"".join(records))


def http(random: Random, count: int) -> Turns:
    """RFC 9112: requests with and without a body, replies of text or octets."""
    host = word(random) + b".example.com"
    for number in range(count):
        if random.random() < 0.7:
            yield CLIENT, b"GET /%s/%d HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\n\r\n" % (word(random), number, host)
        else:
            body = b'{"value":"%s"}' % word(random)
            head = b"POST /api HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n" % (host, len(body))
            yield CLIENT, head
            yield CLIENT, body
        body = some(random, 3000) if random.random() < 0.6 else random.randbytes(random.randrange(3000))
        yield SERVER, b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def rtmp(random: Random, count: int) -> Turns:
    """Version, a handshake of 1536 octets each way, then chunks."""
    first, second = (u32(random.randrange(1 << 31)) + bytes(4) + random.randbytes(1528) for _ in range(2))
    yield CLIENT, b"\3" + first
    yield SERVER, b"\3" + second + first
    connect = b"\2\0\7connect\0\x3f\xf0\0\0\0\0\0\0\3\0\3app\2\0\4live\0\0\x09"
    yield CLIENT, second + b"\3\0\0\0" + u32(len(connect))[1:] + b"\x14\0\0\0\0" + connect
    yield SERVER, b"\2\0\0\0\0\0\4\5\0\0\0\0" + u32(2_500_000) + b"\2\0\0\0\0\0\5\6\0\0\0\0" + u32(2_500_000) + b"\2"
    for number in range(2 * count):
        body = random.randbytes(random.randrange(20, 128))
        yield SERVER, b"\x44" + u32(number * 40)[1:] + u32(len(body))[1:] + b"\x09" + body


def memcached(random: Random, count: int) -> Turns:
    """The binary protocol: a magic octet, an opcode, lengths."""
    for number in range(count):
        key, value = b"%s%d" % (word(random), number), some(random, 300)
        if random.random() < 0.5:
            yield CLIENT, struct.pack("!BBHBBHIIQ", 0x80, 0, len(key), 0, 0, 0, len(key), number, 0) + key
            head = struct.pack("!BBHBBHIIQ", 0x81, 0, 0, 4, 0, 0, len(value) + 4, number, random.randrange(1 << 40))
            yield SERVER, head + bytes(4) + value
        else:
            head = struct.pack("!BBHBBHIIQ", 0x80, 1, len(key), 8, 0, 0, 8 + len(key) + len(value), number, 0)
            yield CLIENT, head + bytes(8) + key + value
            yield SERVER, struct.pack("!BBHBBHIIQ", 0x81, 1, 0, 0, 0, 0, 0, number, random.randrange(1 << 40))


def postgresql(random: Random, count: int) -> Turns:
    """Messages of a type, a letter, and a length of 32 bits that counts itself."""

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + u32(len(body) + 4) + body

    yield CLIENT, b"\0\0\0\x08\x04\xd2\x16\x2f"  # SSLRequest
    yield SERVER, b"N"
    yield CLIENT, message(b"", b"\0\3\0\0user\0%s\0database\0shop\0\0" % word(random))
    settings = message(b"S", b"TimeZone\0UTC\0") + message(b"K", random.randbytes(8))
    yield SERVER, message(b"R", bytes(4)) + settings + message(b"Z", b"I")
    for _ in range(count):
        yield CLIENT, message(b"Q", b"SELECT * FROM %s;\0" % word(random))
        rows = b"".join(
            message(b"D", u16(2) + len32(some(random, 40)) + len32(b"%d" % random.randrange(10**6)))
            for _ in range(random.randrange(20))
        )
        columns = message(b"T", b"\0\1id\0" + random.randbytes(4) + b"\0\1\0\0\0\x17\0\4\xff\xff\xff\xff\0\0")
        yield SERVER, columns + rows + message(b"C", b"SELECT 3\0") + message(b"Z", b"I")


def mqtt(random: Random, count: int) -> Turns:
    """MQTT 3.1.1: a type with flags, a length of seven bits an octet."""

    def packet(head: int, body: bytes) -> bytes:
        length, out = len(body), bytearray([head])
        while True:
            out.append(length & 127 | (length > 127) << 7)
            length >>= 7
            if not length:
                return bytes(out) + body

    yield CLIENT, packet(0x10, len16(b"MQTT") + b"\4\2\0\x3c" + len16(word(random)))
    yield SERVER, b"\x20\2\0\0"
    yield CLIENT, packet(0x82, b"\0\1" + len16(b"sensors/#") + b"\0")
    yield SERVER, b"\x90\3\0\1\0"
    for number in range(2, count + 2):
        topic = len16(b"sensors/%s/%d" % (word(random), random.randrange(100)))
        if random.random() < 0.5:
            yield CLIENT, packet(0x32, topic + u16(number) + some(random, 300))
            yield SERVER, packet(0x40, u16(number))
        else:
            yield SERVER, packet(0x30, topic + b"%.2f" % (random.random() * 50))
        if random.random() < 0.1:
            yield CLIENT, b"\xc0\0"
            yield SERVER, b"\xd0\0"


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


PROTOCOLS: dict[str, Speak] = {
    "bgp": bgp,
    "telnet": telnet,
    "dns": dns,
    "http": http,
    "rtmp": rtmp,
    "memcached": memcached,
    "postgresql": postgresql,
    "mqtt": mqtt,
    "x11": x11,
    "vnc": vnc,
    "modbus": modbus,
    "dnp3": dnp3,
    "random": random_octets,
    "random after FF": random_after_ff,
}
