"""Conversations of protocols that are not ZMTP, made up to look like the real ones."""

import struct
from collections.abc import Callable
from random import Random

from tests.world.conversation import (
    CLIENT,
    SERVER,
    Conversation,
    Piece,
    binary_body,
    json_body,
    numbers_body,
    text_body,
)

Turns = list[tuple[bytes, bytes]]  # what the client sends, what the server answers


def _http(random: Random, count: int) -> Turns:
    turns = []
    for number in range(count):
        body = json_body(random, random.randrange(30, 2000))
        request = b"GET /api/items/%d HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n" % number
        turns.append((request, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body))
    return turns


def _http_binary(random: Random, count: int) -> Turns:
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n"
    return [(b"GET /a.png HTTP/1.1\r\n\r\n", answer + random.randbytes(random.randrange(9000))) for _ in range(count)]


def _tls(random: Random, count: int) -> Turns:
    def record(kind: int, length: int) -> bytes:
        return struct.pack("!BHH", kind, 0x303, length) + random.randbytes(length)

    turns = [
        (record(22, 512), record(22, 122) + record(20, 1) + record(23, 2800)),
        (record(20, 1) + record(23, 53), b""),
    ]
    return turns + [
        (record(23, random.randrange(20, 900)), record(23, random.randrange(20, 4000))) for _ in range(count)
    ]


def _ssh(random: Random, count: int) -> Turns:
    def packet() -> bytes:
        length = random.randrange(2, 60) * 8
        return struct.pack("!I", length) + random.randbytes(length + 16)

    return [(b"SSH-2.0-OpenSSH_9.6\r\n", b"SSH-2.0-OpenSSH_9.6\r\n"), *((packet(), packet()) for _ in range(count))]


def _redis(random: Random, count: int) -> Turns:
    turns = []
    for number in range(count):
        key, value = b"key:%d" % number, text_body(random, random.randrange(1, 80))
        request = b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(value), value)
        turns.append((request, random.choice([b"+OK\r\n", b"$-1\r\n", b":1\r\n"])))
    return turns


def _postgresql(random: Random, count: int) -> Turns:
    def tagged(tag: bytes, body: bytes) -> bytes:
        return tag + struct.pack("!I", len(body) + 4) + body

    def row() -> bytes:
        values = [text_body(random, random.randrange(1, 30)) for _ in range(4)]
        return tagged(b"D", struct.pack("!H", 4) + b"".join(struct.pack("!I", len(v)) + v for v in values))

    start = b"\0\3\0\0user\0me\0database\0db\0\0"
    turns = [(struct.pack("!I", len(start) + 4) + start, tagged(b"R", bytes(4)) + tagged(b"Z", b"I"))]
    for _ in range(count):
        answer = b"".join(row() for _ in range(random.randrange(20))) + tagged(b"C", b"SELECT 3\0") + tagged(b"Z", b"I")
        turns.append((tagged(b"Q", b"SELECT * FROM items;\0"), answer))
    return turns


def _mysql(random: Random, count: int) -> Turns:
    def packet(number: int, body: bytes) -> bytes:
        return struct.pack("<I", len(body))[:3] + bytes([number]) + body

    greeting = (
        b"\x0a8.0.36\0" + struct.pack("<I", 99) + random.randbytes(8) + b"\0\xff\xf7\xff\2\0\xff\xdf\x15" + bytes(10)
    )
    turns = [(b"", packet(0, greeting)), (packet(1, random.randbytes(120)), packet(2, b"\0\0\0\2\0\0\0"))]
    for _ in range(count):
        rows = b"".join(
            packet(
                n % 256, b"".join(bytes([len(v)]) + v for v in (text_body(random, random.randrange(1, 60)), b"%d" % n))
            )
            for n in range(3, random.randrange(4, 40))
        )
        turns.append((packet(0, b"\3SELECT * FROM t"), packet(1, b"\2") + rows + packet(9, b"\xfe\0\0\2\0")))
    return turns


def _mongodb(random: Random, count: int) -> Turns:
    def text(name: bytes, value: bytes) -> bytes:
        return b"\2" + name + b"\0" + struct.pack("<I", len(value) + 1) + value + b"\0"

    def document() -> bytes:
        body = b"\x10n\0" + struct.pack("<I", random.randrange(1000)) + text(b"name", text_body(random, 20))
        body += (
            b"\x12at\0" + struct.pack("<Q", random.randrange(1 << 40)) + b"\1x\0" + struct.pack("<d", random.random())
        )
        return struct.pack("<I", len(body) + 5) + body + b"\0"

    def packet(number: int) -> bytes:
        body = bytes(5) + b"".join(document() for _ in range(random.randrange(1, 20)))
        return struct.pack("<IIII", len(body) + 16, number, 0, 2013) + body

    return [(packet(number), packet(number)) for number in range(count)]


def _kafka(random: Random, count: int) -> Turns:
    def sized(body: bytes) -> bytes:
        return struct.pack("!I", len(body)) + body

    turns = []
    for number in range(count):
        records = b"".join(
            b"\0" + struct.pack("!Q", n) + struct.pack("!I", 40) + text_body(random, 40)
            for n in range(random.randrange(30))
        )
        request = (
            struct.pack("!HHIH", 0, 3, number, 8) + b"producer\xff\xff\0\1\0\0\x75\x30\0\0\0\1\0\5topic\0\0\0\1\0\0\0\0"
        )
        turns.append(
            (sized(request + records), sized(struct.pack("!I", number) + b"\0\0\0\1\0\5topic\0\0\0\1" + bytes(22)))
        )
    return turns


def _amqp(random: Random, count: int) -> Turns:
    def part(kind: int, body: bytes) -> bytes:
        return struct.pack("!BHI", kind, 1, len(body)) + body + b"\xce"

    def publish() -> bytes:
        body = text_body(random, random.randrange(1, 300))
        method = b"\0\x3c\0\x28\0\0\0\5queue\0"
        return part(1, method) + part(2, b"\0\x3c\0\0" + struct.pack("!Q", len(body)) + b"\x10\0\2") + part(3, body)

    turns = [(b"AMQP\0\0\x09\1", part(1, b"\0\x0a\0\x0a\0\x09" + text_body(random, 300)))]
    return turns + [(publish(), part(1, b"\0\x3c\0\x50" + struct.pack("!Q", n) + b"\0")) for n in range(count)]


def _mqtt(random: Random, count: int) -> Turns:
    def publish(quality: int) -> bytes:
        body = b"\0\x0dsensors/%05d" % random.randrange(99999) + text_body(random, random.randrange(1, 100))
        return bytes([0x30 | quality, len(body)]) + body

    turns = [(b"\x10\x10\0\4MQTT\4\2\0\x3c\0\4abcd", b"\x20\2\0\0")]
    return turns + [(publish(2), b"\x40\2\0\1") for _ in range(count)]


def _dns(random: Random, count: int) -> Turns:
    turns = []
    for _ in range(count):
        name = b"\7example\3com\0"
        query = random.randbytes(2) + b"\1\0\0\1\0\0\0\0\0\0" + name + b"\0\1\0\1"
        answer = query + b"\xc0\x0c\0\1\0\1\0\0\1\x2c\0\4" + random.randbytes(4)
        turns.append((struct.pack("!H", len(query)) + query, struct.pack("!H", len(answer)) + answer))
    return turns


def _memcached(random: Random, count: int) -> Turns:
    turns = []
    for number in range(count):
        value = text_body(random, random.randrange(1, 200))
        turns.append((b"get k%d\r\n" % number, b"VALUE k%d 0 %d\r\n%s\r\nEND\r\n" % (number, len(value), value)))
    return turns


def _memcached_binary(random: Random, count: int) -> Turns:
    turns = []
    for number in range(count):
        key, value = b"key%d" % number, text_body(random, random.randrange(1, 200))
        request = struct.pack("!BBHBBHIIQ", 0x80, 0, len(key), 0, 0, 0, len(key), number, 0) + key
        answer = struct.pack("!BBHBBHIIQ", 0x81, 0, 0, 4, 0, 0, len(value) + 4, number, 1) + bytes(4) + value
        turns.append((request, answer))
    return turns


def _http2(random: Random, count: int) -> Turns:
    def part(kind: int, flags: int, stream: int, body: bytes) -> bytes:
        return struct.pack("!I", len(body))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + body

    turns = [
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + part(4, 0, 0, b"\0\3\0\0\0\x64"),
            part(4, 0, 0, b"") + part(4, 1, 0, b""),
        )
    ]
    for stream in range(1, 2 * count, 2):
        message = b"\0" + struct.pack("!I", 40) + random.randbytes(40)
        answer = (
            part(1, 4, stream, random.randbytes(20))
            + part(0, 0, stream, message)
            + part(1, 5, stream, random.randbytes(12))
        )
        turns.append((part(1, 4, stream, random.randbytes(60)) + part(0, 1, stream, message), answer))
    return turns


def _websocket(random: Random, count: int) -> Turns:
    def part(body: bytes, mask: bool) -> bytes:
        head = bytes([0x81]) + (
            bytes([mask << 7 | len(body)]) if len(body) < 126 else struct.pack("!BH", mask << 7 | 126, len(body))
        )
        return head + (random.randbytes(4 + len(body)) if mask else body)

    upgrade = b"GET /chat HTTP/1.1\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    turns = [(upgrade, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")]
    return turns + [
        (part(json_body(random, random.randrange(300)), True), part(json_body(random, random.randrange(300)), False))
        for _ in range(count)
    ]


def _modbus(random: Random, count: int) -> Turns:
    turns = []
    for number in range(count):
        values = struct.pack("!10H", *(random.randrange(400) for _ in range(10)))
        request = struct.pack("!HHHBBHH", number, 0, 6, 1, 3, 100, 10)
        turns.append((request, struct.pack("!HHHBBB", number, 0, 23, 1, 3, 20) + values))
    return turns


def _ldap(random: Random, count: int) -> Turns:
    def tagged(tag: int, body: bytes) -> bytes:
        return bytes([tag, len(body)]) + body

    turns = [
        (
            tagged(0x30, b"\2\1\1" + tagged(0x60, b"\2\1\3\4\0\x80\0")),
            tagged(0x30, b"\2\1\1" + tagged(0x61, b"\x0a\1\0\4\0\4\0")),
        )
    ]
    for number in range(2, min(count, 120)):
        name = tagged(4, b"cn=%d,dc=example" % number)
        entry = tagged(0x30, b"\2\1" + bytes([number]) + tagged(0x64, name + tagged(0x30, tagged(4, b"mail"))))
        turns.append((tagged(0x30, b"\2\1" + bytes([number]) + tagged(0x63, name + b"\x0a\1\2\x0a\1\0\2\1\0")), entry))
    return turns


def _rows(make: Callable[[Random, int], bytes], least: int, most: int) -> Callable[[Random, int], Turns]:
    def turns(random: Random, count: int) -> Turns:
        return [
            (make(random, random.randrange(least, most)), make(random, random.randrange(least, most)))
            for _ in range(count)
        ]

    return turns


def _zeros(_: Random, length: int) -> bytes:
    return bytes(length)


def _integers(form: str, most: int) -> Callable[[Random, int], bytes]:
    def make(random: Random, length: int) -> bytes:
        size = struct.calcsize(form)
        return b"".join(struct.pack(form, random.randrange(most)) for _ in range(length // size + 1))

    return make


def _doubles(random: Random, length: int) -> bytes:
    return b"".join(struct.pack("<d", float(random.randrange(100))) for _ in range(length // 8 + 1))


def _lines(random: Random, length: int) -> bytes:
    return b"\r\n".join(text_body(random, random.randrange(1, 60)) for _ in range(length // 30 + 1)) + b"\r\n"


PROTOCOLS: dict[str, Callable[[Random, int], Turns]] = {
    "http": _http,
    "http with binary bodies": _http_binary,
    "http/2": _http2,
    "websocket": _websocket,
    "tls": _tls,
    "ssh": _ssh,
    "redis": _redis,
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mongodb": _mongodb,
    "kafka": _kafka,
    "amqp": _amqp,
    "mqtt": _mqtt,
    "dns": _dns,
    "memcached": _memcached,
    "memcached binary": _memcached_binary,
    "modbus": _modbus,
    "ldap": _ldap,
    "lines": _rows(_lines, 10, 3000),
    "random octets": _rows(binary_body, 1, 3000),
    "zeros": _rows(_zeros, 1, 3000),
    "little integers": _rows(numbers_body, 4, 3000),
    "16-bit integers": _rows(_integers("<H", 600), 2, 3000),
    "big-endian integers": _rows(_integers("!I", 600), 4, 3000),
    "64-bit integers": _rows(_integers("<Q", 100_000), 8, 3000),
    "octets below 8": _rows(_integers("B", 8), 1, 3000),
    "octets below 100": _rows(_integers("B", 100), 1, 3000),
    "doubles": _rows(_doubles, 8, 3000),
}


def converse(name: str, random: Random, count: int = 40) -> Conversation:
    """A conversation of one of the protocols, from its start."""
    pieces = []
    for question, answer in PROTOCOLS[name](random, count):
        pieces += [Piece(side, data) for side, data in ((CLIENT, question), (SERVER, answer)) if data]
    return Conversation(name, tuple(pieces))
