"""Protocols behind servers: databases and brokers of messages."""

import struct
from random import Random

from .conversation import CLIENT, SERVER
from .protocol_octets import Turns, base64, host_name, len16, len32, some, u16, u32, word

# ---------------------------------------------------------------------- databases


def redis(random: Random, count: int) -> Turns:
    """RESP: lines, and strings with their length in front; a subscriber gets what it did not ask for."""

    def array(*parts: bytes) -> bytes:
        return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)

    for _ in range(count):
        key = b"%s:%d" % (word(random), random.randrange(1000))
        if random.random() < 0.5:
            yield CLIENT, array(b"SET", key, some(random))
            yield SERVER, b"+OK\r\n"
        else:
            yield CLIENT, array(b"GET", key) * random.randint(1, 4)
            value = random.randbytes(random.randrange(200))
            string = b"$%d\r\n%s\r\n" % (len(value), value)
            yield SERVER, random.choice([b"$-1\r\n", b":%d\r\n" % random.randrange(99), string])


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


def mysql(random: Random, count: int) -> Turns:
    """Packets of a length of 24 bits, little-endian, and a number."""

    def packet(number: int, body: bytes) -> bytes:
        return struct.pack("<I", len(body))[:3] + bytes([number % 256]) + body

    method = b"caching_sha2_password\0"
    greeting = b"\x0a8.0.%d\0" % random.randrange(40) + struct.pack("<I", random.randrange(1 << 20))
    greeting += base64(random, 8) + b"\0\xff\xff\xff\2\0\xff\xdf\x15" + bytes(10) + base64(random, 12) + b"\0" + method
    yield SERVER, packet(0, greeting)
    login = b"\x85\xa6\xff\x19\0\0\0\1\xff" + bytes(23) + b"root\0\x20" + random.randbytes(32)
    yield CLIENT, packet(1, login + method)
    yield SERVER, packet(2, b"\1\3") + packet(3, b"\0\0\0\2\0\0\0")
    for _ in range(count):
        yield CLIENT, packet(0, b"\3SELECT %s FROM %s" % (word(random), word(random)))
        columns = packet(1, b"\1") + packet(2, b"\3def\4shop\1t\1t\2id\2id\x0c\x3f\0\x0b\0\0\0\3\3\x50\0\0\0")
        rows = [b"".join(bytes([len(v)]) + v for v in (word(random), b"%d" % n)) for n in range(random.randrange(20))]
        out = columns + b"".join(packet(n, row) for n, row in enumerate(rows, 3))
        yield SERVER, out + packet(len(rows) + 3, b"\xfe\0\0\2\0\0\0")


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


def mongodb(random: Random, count: int) -> Turns:
    """OP_MSG: a header of four little-endian numbers, flags, a BSON document."""

    def message(number: int, answers: int, body: bytes) -> bytes:
        document = struct.pack("<I", len(body) + 5) + body + b"\0"
        return struct.pack("<IIIIIB", 21 + len(document), number, answers, 2013, 0, 0) + document

    def string(name: bytes, value: bytes) -> bytes:
        return b"\2" + name + b"\0" + struct.pack("<I", len(value) + 1) + value + b"\0"

    for number in range(1, count + 1):
        yield CLIENT, message(number, 0, string(b"find", word(random)) + string(b"$db", b"shop"))
        found = b"".join(
            string(b"name", word(random)) + b"\x10n\0" + struct.pack("<I", random.randrange(1000))
            for _ in range(random.randrange(10))
        )
        yield SERVER, message(number + 7000, number, found + b"\1ok\0" + struct.pack("<d", 1.0))


def cassandra(random: Random, count: int) -> Turns:
    """CQL 4: version, flags, stream, opcode, a length of 32 bits."""

    def message(version: int, stream: int, opcode: int, body: bytes) -> bytes:
        return struct.pack("!BBHB", version, 0, stream, opcode) + len32(body)

    yield CLIENT, message(4, 0, 5, b"")
    options = ((b"COMPRESSION", b"lz4"), (b"CQL_VERSION", b"3.4.5"))
    supported = b"".join(len16(name) + b"\0\1" + len16(value) for name, value in options)
    yield SERVER, message(0x84, 0, 6, b"\0\2" + supported)
    yield CLIENT, message(4, 0, 1, b"\0\1" + len16(b"CQL_VERSION") + len16(b"3.0.0"))
    yield SERVER, message(0x84, 0, 2, b"")
    for number in range(count):
        query = b"SELECT * FROM %s WHERE id = %d" % (word(random), number)
        yield CLIENT, message(4, number, 7, len32(query) + b"\0\1\0")
        rows = b"".join(len32(some(random, 60)) for _ in range(random.randrange(10)))
        yield SERVER, message(0x84, number, 8, u32(2) + u32(1) + u32(1) + len16(b"shop") + len16(b"t") + rows)


# ---------------------------------------------------------------------- messages


def kafka(random: Random, count: int) -> Turns:
    """Requests and replies with a length of 32 bits and a number that joins them."""
    topic, who = len16(word(random)), len16(b"producer-%d" % random.randrange(10))
    for number in range(count):
        if random.random() < 0.5:
            records = b"".join(struct.pack("!QI", n, 40) + some(random, 41) for n in range(random.randrange(10)))
            head = struct.pack("!HHI", 0, 3, number) + who + b"\xff\xff\0\1\0\0\x75\x30\0\0\0\1"
            yield CLIENT, len32(head + topic + b"\0\0\0\1\0\0\0\0" + len32(records))
            yield SERVER, len32(u32(number) + b"\0\0\0\1" + topic + b"\0\0\0\1" + bytes(22))
        else:
            yield CLIENT, len32(struct.pack("!HHI", 3, 1, number) + who + b"\0\0\0\1" + topic)
            broker = u32(random.randrange(9)) + len16(host_name(random)) + u32(9092)
            yield SERVER, len32(u32(number) + b"\0\0\0\1" + broker)


def amqp_0_9(random: Random, count: int) -> Turns:
    """AMQP 0-9-1: frames of a type, a channel, a length of 32 bits, and CE at their end."""

    def part(kind: int, body: bytes, channel: int = 1) -> bytes:
        return struct.pack("!BH", kind, channel) + len32(body) + b"\xce"

    yield CLIENT, b"AMQP\0\0\x09\1"
    start = b"\0\x0a\0\x0a\0\x09" + len32(b"\7productS" + len32(b"RabbitMQ"))
    yield SERVER, part(1, start + len32(b"PLAIN") + len32(b"en_US"), 0)
    yield CLIENT, part(1, b"\0\x0a\0\x0b" + len32(b"") + b"\5PLAIN" + len32(b"\0guest\0guest") + b"\5en_US", 0)
    yield SERVER, part(1, b"\0\x0a\0\x1e\x07\xff\0\2\0\0\0\x3c", 0)
    for number in range(count):
        body = some(random, 500)
        header = b"\0\x3c\0\0" + struct.pack("!Q", len(body)) + b"\x10\0\2"
        yield CLIENT, part(1, b"\0\x3c\0\x28\0\0\0\5queue\0") + part(2, header) + part(3, body)
        yield SERVER, part(1, b"\0\x3c\0\x50" + struct.pack("!QB", number + 1, 0))
        if random.random() < 0.2:
            yield SERVER, part(8, b"", 0)


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
