"""More conversations of protocols that are not ZMTP, for captures that begin in the middle of them.

Those of ``foreign.py`` begin at their start, too; what is here is made up to be cut anywhere. Many of these say how
long what follows is, as frames of ZMTP do.
"""

import struct
from collections.abc import Callable
from random import Random

from tests.support.foreign_conversations import PROTOCOLS as FOREIGN
from tests.support.foreign_conversations import Turns
from tests.world.conversation import binary_body, json_body, numbers_body, text_body

Body = Callable[[Random, int], bytes]


def _zeros(_: Random, length: int) -> bytes:
    return bytes(length)


BODIES: tuple[Body, ...] = (binary_body, text_body, json_body, numbers_body, _zeros)


def _lengths(form: str, most: tuple[int, ...]) -> Callable[[Random, int], Turns]:
    """Requests and answers of any bodies, each behind its length."""

    def turns(random: Random, count: int) -> Turns:
        body = random.choice(BODIES)
        longest = random.choice(most)
        pipelined = random.choice([1, 1, 3])

        def message() -> bytes:
            octets = body(random, random.randrange(1, longest))
            return struct.pack(form, len(octets)) + octets

        return [
            (
                b"".join(message() for _ in range(random.randint(1, pipelined))),
                b"".join(message() for _ in range(random.randint(1, pipelined))),
            )
            for _ in range(count)
        ]

    return turns


def _typed_len8(random: Random, count: int) -> Turns:
    """A length of one octet, a type that is 0 or 1, a body: each is a frame of ZMTP 1.0."""
    body = random.choice(BODIES)
    kinds = random.choice([b"\0", b"\0\1"])

    def message() -> bytes:
        octets = bytes([random.choice(kinds)]) + body(random, random.randrange(1, 200))
        return bytes([len(octets)]) + octets

    return [(message(), message()) for _ in range(count)]


def _typed_len16(random: Random, count: int) -> Turns:
    """A length of two octets, a type that is 0 or 1, a body: as subscriptions begin."""
    body = random.choice(BODIES)

    def message() -> bytes:
        octets = bytes([random.randrange(2)]) + body(random, random.randrange(1, 250))
        return struct.pack("!H", len(octets)) + octets

    return [(message(), message()) for _ in range(count)]


def _dns(random: Random, count: int) -> Turns:
    """Over TCP: as a resolver asks its forwarder, with EDNS or without."""
    hosts = ["www", "mail", "api", "cdn-7", "ns1", "a", "img-static", "db.internal"]
    zones = ["example.com", "example.org", "corp.local", "k8s.svc.cluster.local"]
    edns = random.random() < 0.5
    turns = []
    for _ in range(count):
        name = f"{random.choice(hosts)}{random.randrange(300)}.{random.choice(zones)}"
        labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
        kind = random.choice([1, 28, 15, 16, 33])
        question = labels + struct.pack("!HH", kind, 1)
        option = b"\0\0\x29\4\xd0\0\0\0\0\0\0" if edns else b""
        number = random.randbytes(2)
        query = number + struct.pack("!HHHHH", 0x100, 1, 0, 0, int(edns)) + question + option
        answers = b""
        found = random.choice([0, 1, 1, 2, 4])
        for _ in range(found):
            data = random.randbytes(random.choice([4, 16, 40]))
            answers += b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, random.randrange(86400), len(data)) + data
        flags = 0x8180 if found else 0x8183
        answer = number + struct.pack("!HHHHH", flags, 1, found, 0, int(edns)) + question + answers + option
        turns.append((struct.pack("!H", len(query)) + query, struct.pack("!H", len(answer)) + answer))
    return turns


def _bgp(random: Random, count: int) -> Turns:
    def message(kind: int, body: bytes = b"") -> bytes:
        return b"\xff" * 16 + struct.pack("!HB", 19 + len(body), kind) + body

    def update() -> bytes:
        attributes = b"\x40\1\1\0\x40\2\x06\2\1" + random.randbytes(4)[:4] + b"\x40\3\4" + random.randbytes(4)
        routes = b"".join(b"\x18" + random.randbytes(3) for _ in range(random.randrange(1, 40)))
        return message(2, b"\0\0" + struct.pack("!H", len(attributes)) + attributes + routes)

    turns = [(message(1, b"\4\xfd\xe8\0\xb4\x0a\0\0\1\0"), message(1, b"\4\xfd\xe9\0\xb4\x0a\0\0\2\0"))]
    for _ in range(count):
        busy = random.random() < 0.5
        turns.append((message(4) if not busy else update(), message(4)))
    return turns


def _telnet(random: Random, count: int) -> Turns:
    turns = [(b"\xff\xfb\x18\xff\xfb\x1f", b"\xff\xfd\x18\xff\xfd\x1f\xff\xfb\1\xff\xfb\3")]
    for _ in range(count):
        line = text_body(random, random.randrange(1, 30))
        turns += [(line[at : at + 1], line[at : at + 1]) for at in range(len(line))]
        turns.append((b"\r\0", b"\r\n" + text_body(random, random.randrange(1, 400)) + b"\r\n$ "))
    return turns


def _smtp(random: Random, count: int) -> Turns:
    turns = [
        (b"", b"220 mail.example.com ESMTP\r\n"),
        (b"EHLO client\r\n", b"250-mail\r\n250-SIZE\r\n250 8BITMIME\r\n"),
    ]
    for number in range(count):
        mail = b"Subject: %d\r\n\r\n%s\r\n.\r\n" % (number, text_body(random, random.randrange(1, 3000)))
        turns += [
            (b"MAIL FROM:<a@example.com>\r\n", b"250 ok\r\n"),
            (b"DATA\r\n", b"354 go\r\n"),
            (mail, b"250 ok\r\n"),
        ]
    return turns


def _amqp_1_0(random: Random, count: int) -> Turns:
    def performative(code: int, fields: bytes, payload: bytes = b"") -> bytes:
        body = b"\0\x53" + bytes([code]) + b"\xc0" + bytes([len(fields) + 1, 4]) + fields + payload
        return struct.pack("!IBBH", len(body) + 8, 2, 0, 0) + body

    turns = [(b"AMQP\0\1\0\0" + performative(0x10, b"\xa1\5hello"), b"AMQP\0\1\0\0" + performative(0x10, b"\xa1\2ok"))]
    for number in range(count):
        content = text_body(random, random.randrange(1, random.choice([60, 200])))
        payload = b"\0\x53\x75\xa0" + bytes([len(content)]) + content
        transfer = performative(0x14, b"\x43\x52" + bytes([number % 256]) + b"\xa0\1" + bytes([number % 256]), payload)
        turns.append((transfer, performative(0x15, b"\x41\x52" + bytes([number % 256]) + b"\x40\x41\0\x53\x24\x45")))
        if random.random() < 0.2:
            turns.append((b"\0\0\0\x08\2\0\0\0", b"\0\0\0\x08\2\0\0\0"))
    return turns


def _stomp(random: Random, count: int) -> Turns:
    return [
        (
            b"SEND\ndestination:/queue/a\n\n%s\0" % text_body(random, random.randrange(1, 300)),
            b"MESSAGE\nsubscription:0\nmessage-id:%d\n\n%s\0\n" % (n, json_body(random, random.randrange(1, 300))),
        )
        for n in range(count)
    ]


def _nats(random: Random, count: int) -> Turns:
    turns = []
    for _ in range(count):
        body = random.choice([json_body, binary_body])(random, random.randrange(1, 300))
        turns.append((b"PUB a.b %d\r\n%s\r\n" % (len(body), body), b"MSG a.c 1 %d\r\n%s\r\n" % (len(body), body)))
        if random.random() < 0.1:
            turns.append((b"PING\r\n", b"PONG\r\n"))
    return turns


def _cassandra(random: Random, count: int) -> Turns:
    def part(version: int, stream: int, opcode: int, body: bytes) -> bytes:
        return struct.pack("!BBhBI", version, 0, stream, opcode, len(body)) + body

    turns = []
    for _ in range(count):
        stream = random.randrange(0, random.choice([4, 300]))
        query = b"SELECT * FROM t WHERE id = ?"
        ask = struct.pack("!I", len(query)) + query + b"\0\1\0"
        rows = b"".join(
            struct.pack("!I", 8) + struct.pack("!Q", random.randrange(10**6)) for _ in range(random.randrange(40))
        )
        answer = struct.pack("!III", 2, 1, 1) + b"\0\2ks\0\1t\0\2id\0\2" + struct.pack("!I", 3) + rows
        turns.append((part(4, stream, 7, ask), part(0x84, stream, 8, answer)))
    return turns


def _tpkt(random: Random, count: int) -> Turns:
    def part(body: bytes) -> bytes:
        return struct.pack("!BBH", 3, 0, len(body) + 7) + b"\2\xf0\x80" + body

    def s7(number: int, body: bytes) -> bytes:
        return b"\x32\1\0\0" + struct.pack("!HHH", number, 14, len(body)) + body

    return [
        (
            part(s7(n, b"\4\1\x12\x0a\x10\2\0\4\0\1\x84\0\0\0")),
            part(s7(n, b"\4\1\xff\4\0\x20" + numbers_body(random, random.randrange(4, 200)))),
        )
        for n in range(count)
    ]


def _smb(random: Random, count: int) -> Turns:
    def part(command: int, number: int, body: bytes) -> bytes:
        head = b"\xfeSMB\x40\0\1\0" + struct.pack("<IHHIIQIIQ", 0, command, 1, 0, 0, number, 0xFEFF, 1, 77) + bytes(16)
        return struct.pack("!I", len(head) + len(body)) + head + body

    return [
        (
            part(8, n, b"\x31\0\x50\0" + struct.pack("<IQ", 4096, n * 4096) + bytes(33)),
            part(
                8,
                n,
                b"\x11\0\x50\0"
                + struct.pack("<II", 4096, 0)
                + bytes(8)
                + random.choice(BODIES)(random, random.randrange(3000)),
            ),
        )
        for n in range(count)
    ]


def _sip(random: Random, count: int) -> Turns:
    return [
        (
            b"OPTIONS sip:a@example.com SIP/2.0\r\nVia: SIP/2.0/TCP h;branch=%d\r\nCSeq: %d OPTIONS\r\n\r\n" % (n, n),
            b"SIP/2.0 200 OK\r\nCSeq: %d OPTIONS\r\nContent-Length: 0\r\n\r\n" % n,
        )
        for n in range(count)
    ]


def _rtmp(random: Random, count: int) -> Turns:
    def chunk(channel: int, kind: int, time: int, body: bytes) -> bytes:
        out = (
            bytes([channel])
            + struct.pack("!I", time)[1:]
            + struct.pack("!I", len(body))[1:]
            + bytes([kind])
            + b"\1\0\0\0"
        )
        for at in range(0, len(body), 128):
            out += (bytes([0xC0 | channel]) if at else b"") + body[at : at + 128]
        return out

    turns = [(random.randbytes(1537), random.randbytes(3073)), (random.randbytes(1536), b"")]
    for n in range(count):
        control = bytes([2]) + bytes(5) + b"\4\x05" + bytes(4) + b"\0\x26\x25\xa0" if n % 8 == 0 else b""
        media = chunk(6, 9, n * 40, b"\x17\1\0\0\0" + random.randbytes(random.randrange(50, 2000)))
        media += chunk(4, 8, n * 40, b"\xaf\1" + random.randbytes(random.randrange(50, 300)))
        turns.append(
            (media, chunk(3, 20, 0, b"\2\0\7onStatus\0" + bytes(8) + b"\5") + control if n % 5 == 0 else control)
        )
    return turns


def _xmpp(random: Random, count: int) -> Turns:
    return [
        (
            b"<message to='a@b' id='%d'><body>%s</body></message>" % (n, text_body(random, random.randrange(1, 200))),
            b"<iq type='result' id='%d'/>" % n,
        )
        for n in range(count)
    ]


def _bittorrent(random: Random, count: int) -> Turns:
    def part(body: bytes) -> bytes:
        return struct.pack("!I", len(body)) + body

    def have() -> bytes:
        return part(b"\4" + struct.pack("!I", random.randrange(2000)))

    def request() -> bytes:
        return part(b"\6" + struct.pack("!III", random.randrange(2000), random.randrange(16) << 14, 1 << 14))

    shake = b"\x13BitTorrent protocol" + bytes(8) + random.randbytes(40)
    turns = [(shake, shake + part(b"\5" + random.randbytes(250)))]
    for _ in range(count):
        kind = random.random()
        if kind < 0.4:
            turns.append((have(), have() + have()))
        elif kind < 0.6:
            turns.append((request() + request(), b""))
        elif kind < 0.7:
            turns.append((part(b""), part(b"\1")))
        else:
            piece = (
                b"\7" + struct.pack("!II", random.randrange(2000), 0) + random.randbytes(random.choice([100, 16384]))
            )
            turns.append((request(), part(piece)))
    return turns


def _thrift(random: Random, count: int) -> Turns:
    strict = random.random() < 0.5

    def call(kind: int, number: int, body: bytes) -> bytes:
        head = struct.pack("!I", 0x80010000 | kind) if strict else b""
        out = (
            head + struct.pack("!I", 3) + b"get" + (b"" if strict else bytes([kind])) + struct.pack("!I", number) + body
        )
        return struct.pack("!I", len(out)) + out

    turns = []
    for n in range(count):
        key = b"\x0b\0\1" + struct.pack("!I", 5) + b"key%02d" % (n % 100)
        value = text_body(random, random.randrange(1, 150))
        turns.append((call(1, n, key + b"\0"), call(2, n, b"\x0b\0\0" + struct.pack("!I", len(value)) + value + b"\0")))
    return turns


def _grpc(random: Random, count: int) -> Turns:
    def part(kind: int, flags: int, stream: int, body: bytes) -> bytes:
        return struct.pack("!I", len(body))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + body

    turns = []
    for n in range(count):
        stream = 2 * n + 1
        ask = b"\x0a" + bytes([9]) + b"customer1" + b"\x10" + bytes([n % 128])
        answer = b"".join(b"\x0a\x07name%03d" % random.randrange(999) for _ in range(random.randrange(12)))
        if len(answer) < 250:
            turns.append(
                (
                    part(1, 4, stream, random.randbytes(30))
                    + part(0, 1, stream, b"\0" + struct.pack("!I", len(ask)) + ask),
                    part(1, 4, stream, b"\x88" + random.randbytes(9))
                    + part(0, 0, stream, b"\0" + struct.pack("!I", len(answer)) + answer)
                    + part(1, 5, stream, b"\xbf\xbe"),
                )
            )
        if n % 6 == 0:
            turns.append((part(6, 0, 0, bytes(8)), part(6, 1, 0, bytes(8))))
            turns.append((part(8, 0, 0, struct.pack("!I", 100)), b""))
    return turns


def _x11(random: Random, count: int) -> Turns:
    def ask(opcode: int, detail: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return struct.pack("<BBH", opcode, detail, 1 + len(body) // 4) + body

    turns = []
    for n in range(count):
        window = 0x2000000 + random.randrange(100)
        requests = b"".join(
            random.choice(
                [
                    ask(
                        72,
                        2,
                        struct.pack("<IIHHhhBBH", window, window + 1, 20, 5, 3, 4, 0, 24, 0) + random.randbytes(400),
                    ),
                    ask(70, 0, struct.pack("<IIhhHH", window, window + 1, 1, 2, 300, 200)),
                    ask(61, 0, struct.pack("<IhhHH", window, 0, 0, 10, 10)),
                    ask(12, 0, struct.pack("<IHHI", window, 4, 0, 200)),
                ]
            )
            for _ in range(random.randrange(1, 5))
        )
        event = struct.pack(
            "<BBHIIIIhhhhHBB", random.randrange(2, 7), 38, n & 0xFFFF, n * 16, 0x1D6, window, 0, 5, 6, 7, 8, 16, 1, 0
        )
        reply = struct.pack("<BBHI", 1, 24, n & 0xFFFF, 0) + bytes(24)
        turns.append((requests, random.choice([event, reply, event + event])))
    return turns


def _vnc(random: Random, count: int) -> Turns:
    turns = [
        (b"RFB 003.008\n", b"RFB 003.008\n\1\1"),
        (b"\1", bytes(4)),
        (b"\1", struct.pack("!HH", 1024, 768) + bytes(16)),
    ]
    plain = random.random() < 0.5
    for _ in range(count):
        ask = struct.pack("!BBHHHH", 3, 1, 0, 0, 1024, 768)
        pointer = b"".join(
            struct.pack("!BBHH", 5, random.randrange(2), random.randrange(1024), random.randrange(768))
            for _ in range(random.randrange(4))
        )
        key = (
            struct.pack("!BBHI", 4, random.randrange(2), 0, random.randrange(0x20, 0x7F))
            if random.random() < 0.3
            else b""
        )
        update = b"\0\0\0\1" + struct.pack("!HHHHI", random.randrange(900), random.randrange(700), 16, 16, 0)
        pixels = bytes([random.randrange(4), 0, random.randrange(256), 0]) * 256 if plain else random.randbytes(1024)
        turns.append((ask + pointer + key, update + pixels))
    return turns


def _postgresql_results(random: Random, count: int) -> Turns:
    """Rows of many short columns, some of them NULL."""

    def tagged(tag: bytes, body: bytes) -> bytes:
        return tag + struct.pack("!I", len(body) + 4) + body

    turns = []
    for _ in range(count):
        rows = b"".join(
            tagged(
                b"D", struct.pack("!H", 3) + b"\0\0\0\1" + b"%d" % random.randrange(10) + b"\xff\xff\xff\xff\0\0\0\2ab"
            )
            for _ in range(random.randrange(30))
        )
        turns.append((tagged(b"B", bytes(8)) + tagged(b"E", bytes(5)) + tagged(b"S", b""), rows + tagged(b"Z", b"I")))
    return turns


def _kafka_small(random: Random, count: int) -> Turns:
    """Fetches that find nothing, heartbeats: all shorter than 256 octets."""

    def framed(body: bytes) -> bytes:
        return struct.pack("!I", len(body)) + body

    turns = []
    for n in range(count):
        kind = random.choice([1, 12])
        ask = struct.pack("!HHI", kind, 4, n) + b"\0\6client" + b"\0\5group" + struct.pack("!I", 7) + b"\0\6member"
        turns.append((framed(ask), framed(struct.pack("!I", n) + bytes(random.choice([2, 6, 40])))))
    return turns


def _modbus_many(random: Random, count: int) -> Turns:
    turns = []
    number = random.randrange(300)
    for _ in range(count):
        number = (number + 1) & 0xFFFF
        words = random.randrange(1, 60)
        ask = struct.pack("!HHHBBHH", number, 0, 6, 1, 3, random.randrange(1000), words)
        values = struct.pack(f"!{words}H", *(random.randrange(random.choice([3, 400, 65536])) for _ in range(words)))
        turns.append((ask, struct.pack("!HHHBBB", number, 0, 3 + len(values), 1, 3, len(values)) + values))
    return turns


def _redis_pipelined(random: Random, count: int) -> Turns:
    return [
        (
            b"".join(
                b"*2\r\n$3\r\nGET\r\n$5\r\nkey%02d\r\n" % random.randrange(100) for _ in range(random.randrange(1, 9))
            ),
            b"".join(b"$3\r\nabc\r\n" for _ in range(random.randrange(1, 9))),
        )
        for _ in range(count)
    ]


LOOKALIKES: dict[str, Callable[[Random, int], Turns]] = {
    "bgp": _bgp,
    "telnet": _telnet,
    "smtp": _smtp,
    "dns over tcp": _dns,
    "amqp 1.0": _amqp_1_0,
    "stomp": _stomp,
    "nats": _nats,
    "cassandra": _cassandra,
    "tpkt": _tpkt,
    "smb": _smb,
    "sip": _sip,
    "rtmp": _rtmp,
    "xmpp": _xmpp,
    "bittorrent": _bittorrent,
    "thrift": _thrift,
    "grpc": _grpc,
    "x11": _x11,
    "vnc": _vnc,
    "kafka, small": _kafka_small,
    "modbus, many": _modbus_many,
    "postgresql results": _postgresql_results,
    "redis, pipelined": _redis_pipelined,
    "len8": _lengths("B", (30, 255)),
    "len8 with a type": _typed_len8,
    "len16": _lengths("!H", (40, 255, 600, 3000)),
    "len16 little-endian": _lengths("<H", (40, 255, 600, 3000)),
    "len16 with a type": _typed_len16,
    "len32": _lengths("!I", (40, 255, 600, 3000)),
    "len32 little-endian": _lengths("<I", (40, 255, 600, 3000)),
}
PROTOCOLS: dict[str, Callable[[Random, int], Turns]] = {**FOREIGN, **LOOKALIKES}
