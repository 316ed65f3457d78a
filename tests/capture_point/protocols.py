"""Protocols that are not ZMTP: what their two sides send, made up octet by octet as real programs would.

Each is a function that yields ``(side, octets)`` in the order in which programs speak; what a side says, it says after
it has read all before. No two conversations are alike: numbers, lengths and texts come of the ``Random``.
"""

import struct
from collections.abc import Callable, Iterator
from random import Random

from .conversations import CLIENT, MS, SERVER, US, Conversation, Write, text

Turns = Iterator[tuple[int, bytes]]


def _u16(value: int) -> bytes:
    return struct.pack("!H", value)


def _u32(value: int) -> bytes:
    return struct.pack("!I", value)


def _len16(body: bytes) -> bytes:
    return _u16(len(body)) + body


def _len32(body: bytes) -> bytes:
    return _u32(len(body)) + body


def _word(random: Random, least: int = 3, most: int = 12) -> bytes:
    return bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz", k=random.randint(least, most)))


def _host(random: Random) -> bytes:
    return _word(random) + b".example." + random.choice([b"com", b"org", b"net"])


def _some(random: Random, most: int = 400) -> bytes:
    """A text of any length."""
    return text(random, random.randrange(1, most))


def _base64(random: Random, length: int) -> bytes:
    return bytes(random.choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=length))


# ---------------------------------------------------------------------- routing, names, terminals


def bgp(random: Random, count: int) -> Turns:
    """RFC 4271: a marker of sixteen FF, length, type."""

    def message(kind: int, body: bytes = b"") -> bytes:
        return b"\xff" * 16 + struct.pack("!HB", 19 + len(body), kind) + body

    def opened() -> bytes:
        capabilities = b"\x02\x06\x01\x04\0\x01\0\x01\x02\x02\x02\0\x02\x06\x41\x04" + _u32(random.randrange(1 << 32))
        body = struct.pack("!BHH4sB", 4, random.randrange(1, 65_535), 180, random.randbytes(4), len(capabilities))
        return message(1, body + capabilities)

    def update() -> bytes:
        hops = [random.randrange(1, 65_535) for _ in range(random.randint(1, 6))]
        path = struct.pack(f"!BB{len(hops)}H", 2, len(hops), *hops)
        attributes = b"\x40\x01\x01\0\x40\x02" + bytes([len(path)]) + path + b"\x40\x03\x04" + random.randbytes(4)
        routes = b"".join(b"\x18" + random.randbytes(3) for _ in range(random.randint(1, 20)))
        return message(2, _u16(0) + _len16(attributes) + routes)

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
    yield SERVER, b"\r\n%s login: " % _word(random)
    for _ in range(count):
        line = _some(random, 30)
        for key in line[:5]:  # typed, and echoed
            yield CLIENT, bytes([key])
            yield SERVER, bytes([key])
        yield CLIENT, line[5:] + b"\r\0"
        yield SERVER, line[5:] + b"\r\n" + _some(random) + b"\r\n$ "


def dns(random: Random, count: int) -> Turns:
    """RFC 7766: messages of DNS with their length in front."""
    for _ in range(count):
        name = b"".join(bytes([len(label)]) + label for label in (_word(random), b"example", b"com")) + b"\0"
        number = random.randbytes(2)
        yield CLIENT, _len16(number + b"\1\0\0\1\0\0\0\0\0\0" + name + b"\0\1\0\1")
        # Few programs ask over TCP for what fits into a datagram.
        records = [
            b"\xc0\x0c\0\1\0\1" + _u32(random.randrange(86_400)) + b"\0\4" + random.randbytes(4)
            for _ in range(random.randrange(30, 150))
        ]
        head = number + struct.pack("!HHHHH", 0x8180, 1, len(records), 0, 0)
        yield SERVER, _len16(head + name + b"\0\1\0\1" + b"".join(records))


def ssh(random: Random, count: int) -> Turns:
    """RFC 4253: a line, then packets with their length in front, soon encrypted."""

    def packet() -> bytes:
        return _len32(bytes([random.randrange(4, 12), random.choice((20, 21, 30, 31, 94))]) + random.randbytes(60))

    for side in (SERVER, CLIENT):
        yield side, b"SSH-2.0-OpenSSH_%d.%dp1\r\n" % (random.randrange(6, 10), random.randrange(10))
    names = b",".join((b"curve25519-sha256", b"ecdh-sha2-nistp256", b"diffie-hellman-group14-sha256"))
    for side in (CLIENT, SERVER):
        yield side, _len32(b"\x06\x14" + random.randbytes(16) + _len32(names) + _len32(b"ssh-ed25519") + bytes(30))
    yield CLIENT, packet()
    yield SERVER, packet()
    for _ in range(count):
        for side in (CLIENT, SERVER):
            yield side, random.randbytes(random.randrange(4, 40) * 8)


# ---------------------------------------------------------------------- the web


def tls(random: Random, count: int) -> Turns:
    """RFC 8446: records; the second flight on is encrypted."""

    def record(kind: int, body: bytes) -> bytes:
        return struct.pack("!BHH", kind, 0x303, len(body)) + body

    name = _host(random)
    server_name = _len16(_len16(b"\0" + _len16(name)))
    hello = b"\3\3" + random.randbytes(32) + b"\x20" + random.randbytes(32) + b"\0\x06\x13\1\x13\2\x13\3\1\0"
    share = _len16(_len16(b"\0\x1d" + _len16(random.randbytes(32))))
    hello += _len16(b"\0\0" + server_name + b"\0\x2b\0\3\2\3\4\0\x33" + share)
    yield CLIENT, record(22, b"\1\0" + _len16(hello))
    answer = b"\3\3" + random.randbytes(32) + b"\x20" + random.randbytes(32)
    answer += b"\x13\1\0\0\x2e\0\x2b\0\2\3\4\0\x33\0\x24\0\x1d\0\x20"
    yield (
        SERVER,
        record(22, b"\2\0" + _len16(answer + random.randbytes(32)))
        + record(20, b"\1")
        + record(23, random.randbytes(random.randrange(1000, 4000))),
    )
    yield CLIENT, record(20, b"\1") + record(23, random.randbytes(53))
    for _ in range(count):
        for side, most in ((CLIENT, 900), (SERVER, 4000)):
            yield side, record(23, random.randbytes(random.randrange(20, most)))


def http(random: Random, count: int) -> Turns:
    """RFC 9112: requests with and without a body, replies of text or octets."""
    host = _host(random)
    for number in range(count):
        if random.random() < 0.7:
            yield CLIENT, b"GET /%s/%d HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\n\r\n" % (_word(random), number, host)
        else:
            body = b'{"value":"%s"}' % _word(random)
            head = b"POST /api HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n" % (host, len(body))
            yield CLIENT, head
            yield CLIENT, body
        body = _some(random, 3000) if random.random() < 0.6 else random.randbytes(random.randrange(3000))
        yield SERVER, b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def _h2(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return _u32(len(body))[1:] + bytes([kind, flags]) + _u32(stream) + body


def http2(random: Random, count: int) -> Turns:
    """RFC 9113: a preface, then frames of a length of 24 bits, type, flags, stream."""
    yield CLIENT, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _h2(4, 0, 0, b"\0\3\0\0\0\x64\0\4\0\xa0\0\0")
    yield SERVER, _h2(4, 0, 0, b"\0\3\0\0\0\x80") + _h2(4, 1, 0, b"") + _h2(8, 0, 0, _u32(983_041))
    for number in range(count):
        stream = 2 * number + 1
        yield CLIENT, _h2(1, 5, stream, b"\x82\x86\x41" + random.randbytes(random.randrange(20, 80)))
        body = b"".join(_h2(0, 0, stream, _some(random, 900)) for _ in range(random.randrange(3)))
        yield SERVER, _h2(1, 4, stream, b"\x88" + random.randbytes(20)) + body + _h2(0, 1, stream, b"")
        if random.random() < 0.2:
            ping = random.randbytes(8)
            yield CLIENT, _h2(6, 0, 0, ping)
            yield SERVER, _h2(6, 1, 0, ping)


def grpc(random: Random, count: int) -> Turns:
    """Calls over HTTP/2: messages with a flag of compression and a length of 32 bits."""
    yield CLIENT, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _h2(4, 0, 0, b"") + _h2(8, 0, 0, _u32(983_041))
    yield SERVER, _h2(4, 0, 0, b"\0\5\0\0\x40\0") + _h2(4, 1, 0, b"")
    for number in range(count):
        stream = 2 * number + 1
        message = b"\x0a" + bytes([20]) + _base64(random, 20) + b"\x10" + bytes([random.randrange(128)])
        head = _h2(1, 4, stream, b"\x83\x86\x45" + random.randbytes(60))
        yield CLIENT, head + _h2(0, 1, stream, b"\0" + _len32(message))
        head = _h2(1, 4, stream, b"\x88\x5f\x8b" + random.randbytes(12))
        answer = _h2(0, 0, stream, b"\0" + _len32(message * random.randint(1, 5)))
        yield SERVER, head + answer + _h2(1, 5, stream, b"\x40\x88" + random.randbytes(10))


def rtsp(random: Random, count: int) -> Turns:
    """RFC 2326, with RTP between the replies: a dollar, a channel, a length."""
    url = b"rtsp://%s/live" % _host(random)
    for number, method in enumerate((b"OPTIONS", b"DESCRIBE", b"SETUP", b"PLAY"), 1):
        yield CLIENT, b"%s %s RTSP/1.0\r\nCSeq: %d\r\n\r\n" % (method, url, number)
        body = b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=%s\r\n" % _word(random) if method == b"DESCRIBE" else b""
        yield SERVER, b"RTSP/1.0 200 OK\r\nCSeq: %d\r\nContent-Length: %d\r\n\r\n" % (number, len(body)) + body
    for number in range(3 * count):
        head = struct.pack("!BBHII", 0x80, 96, number, number * 3000, 0x1234567)
        yield SERVER, b"$\0" + _len16(head + random.randbytes(random.randrange(1400)))
        if random.random() < 0.1:
            yield CLIENT, b"$\1" + _len16(b"\x81\xc9\0\x07" + random.randbytes(28))


def sip(random: Random, count: int) -> Turns:
    """RFC 3261 over TCP."""
    host = _host(random)
    for number in range(1, count + 1):
        head = b"Via: SIP/2.0/TCP %s;branch=z9hG4bK%d\r\nCSeq: %d INVITE\r\nCall-ID: %s\r\n" % (
            host, random.randrange(10**9), number, _base64(random, 20),
        )  # fmt: skip
        body = b"v=0\r\no=alice 1 1 IN IP4 10.0.0.1\r\ns=-\r\nm=audio %d RTP/AVP 0\r\n" % random.randrange(1024, 65_535)
        yield CLIENT, b"INVITE sip:bob@%s SIP/2.0\r\n%sContent-Length: %d\r\n\r\n%s" % (host, head, len(body), body)
        yield SERVER, b"SIP/2.0 100 Trying\r\n%sContent-Length: 0\r\n\r\n" % head
        yield SERVER, b"SIP/2.0 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)
        yield CLIENT, b"\r\n\r\n"  # keep-alive


def rtmp(random: Random, count: int) -> Turns:
    """Version, a handshake of 1536 octets each way, then chunks."""
    first, second = (_u32(random.randrange(1 << 31)) + bytes(4) + random.randbytes(1528) for _ in range(2))
    yield CLIENT, b"\3" + first
    yield SERVER, b"\3" + second + first
    connect = b"\2\0\7connect\0\x3f\xf0\0\0\0\0\0\0\3\0\3app\2\0\4live\0\0\x09"
    yield CLIENT, second + b"\3\0\0\0" + _u32(len(connect))[1:] + b"\x14\0\0\0\0" + connect
    yield SERVER, b"\2\0\0\0\0\0\4\5\0\0\0\0" + _u32(2_500_000) + b"\2\0\0\0\0\0\5\6\0\0\0\0" + _u32(2_500_000) + b"\2"
    for number in range(2 * count):
        body = random.randbytes(random.randrange(20, 128))
        yield SERVER, b"\x44" + _u32(number * 40)[1:] + _u32(len(body))[1:] + b"\x09" + body


def xmpp(random: Random, count: int) -> Turns:
    """RFC 6120: streams of XML."""
    host = _host(random)
    yield CLIENT, b"<?xml version='1.0'?><stream:stream to='%s' xmlns='jabber:client' version='1.0'>" % host
    yield SERVER, b"<?xml version='1.0'?><stream:stream from='%s' id='%s' version='1.0'>" % (host, _base64(random, 12))
    for number in range(count):
        yield CLIENT, b"<message id='%d' type='chat'><body>%s</body></message>" % (number, _word(random))
        yield SERVER, b"<iq type='result' id='%d'/>" % number
        if random.random() < 0.3:
            yield CLIENT, b" "  # white space keeps the connection alive


# ---------------------------------------------------------------------- mail and files


def smtp(random: Random, count: int) -> Turns:
    """RFC 5321."""
    host = _host(random)
    yield SERVER, b"220 %s ESMTP Postfix\r\n" % host
    yield CLIENT, b"EHLO %s\r\n" % _host(random)
    yield SERVER, b"250-%s\r\n250-PIPELINING\r\n250-SIZE 10240000\r\n250 8BITMIME\r\n" % host
    for _ in range(count):
        yield CLIENT, b"MAIL FROM:<%s@%s>\r\n" % (_word(random), host)
        yield SERVER, b"250 2.1.0 Ok\r\n"
        yield CLIENT, b"RCPT TO:<%s@%s>\r\nDATA\r\n" % (_word(random), host)
        yield SERVER, b"250 2.1.5 Ok\r\n354 End data with <CR><LF>.<CR><LF>\r\n"
        yield CLIENT, b"Subject: %s\r\n\r\n%s\r\n.\r\n" % (_word(random), _some(random, 3000))
        yield SERVER, b"250 2.0.0 Ok: queued as %s\r\n" % _base64(random, 10)


def imap(random: Random, count: int) -> Turns:
    """RFC 9051: tagged lines, and literals with their length in braces."""
    yield SERVER, b"* OK [CAPABILITY IMAP4rev1] %s ready\r\n" % _word(random)
    for number in range(count):
        yield CLIENT, b"a%03d FETCH %d (BODY[])\r\n" % (number, number + 1)
        body = _some(random, 2000)
        yield SERVER, b"* %d FETCH (BODY[] {%d}\r\n%s)\r\na%03d OK done\r\n" % (number + 1, len(body), body, number)


def ftp(random: Random, count: int) -> Turns:
    """RFC 959, the connection of commands."""
    yield SERVER, b"220 (vsFTPd 3.0.%d)\r\n" % random.randrange(9)
    for command, reply in ((b"USER %s" % _word(random), b"331 Password?"), (b"PASS secret", b"230 Logged in.")):
        yield CLIENT, command + b"\r\n"
        yield SERVER, reply + b"\r\n"
    for _ in range(count):
        yield CLIENT, random.choice([b"PASV", b"PWD", b"NOOP", b"RETR %s" % _word(random)]) + b"\r\n"
        yield SERVER, b"227 Entering Passive Mode (10,0,0,1,%d,%d).\r\n" % tuple(random.randbytes(2))


def bittorrent(random: Random, count: int) -> Turns:
    """BEP 3: a handshake, then messages with a length of 32 bits, most of them tiny."""
    name = random.randbytes(20)
    for side in (CLIENT, SERVER):
        yield side, b"\x13BitTorrent protocol" + bytes(5) + b"\x10\0\5" + name + b"-TR3000-" + _base64(random, 12)
    yield SERVER, _len32(b"\5" + random.randbytes(random.randrange(10, 200)))
    yield CLIENT, _len32(b"\2")
    yield SERVER, _len32(b"\1")
    for number in range(count):
        blocks = (struct.pack("!III", number, at << 14, 1 << 14) for at in range(random.randint(1, 4)))
        yield CLIENT, b"".join(_len32(b"\6" + block) for block in blocks)
        piece = b"\7" + struct.pack("!II", number, 0) + random.randbytes(random.randrange(3000))
        yield SERVER, _len32(piece) + (_len32(b"\4" + _u32(number)) if random.random() < 0.5 else b"")
        if random.random() < 0.2:
            yield CLIENT, bytes(4)  # keep-alive


def smb(random: Random, count: int) -> Turns:
    """SMB 2 in NetBIOS messages: a zero and a length of 24 bits in front."""

    def message(command: int, number: int, flags: int, body: bytes) -> bytes:
        head = struct.pack("<HHIHHIIQIIQ16x", 64, 1, 0, command, 31, flags, 0, number, 65_279, 1, 1 << 42)
        return _len32(b"\xfeSMB" + head + body)

    dialects = b"\2\2\x10\2\0\3"
    yield CLIENT, message(0, 0, 0, b"\x24\0\3\0\1\0\0\0\x7f\0\0\0" + random.randbytes(16) + bytes(8) + dialects)
    yield SERVER, message(0, 0, 1, b"\x41\0\1\0\0\3\0\0" + random.randbytes(16) + b"\x2f\0\0\0" + bytes(60))
    for number in range(1, count + 1):
        command = random.choice((5, 6, 8, 9, 14, 16))
        yield CLIENT, message(command, number, 0, struct.pack("<H", 49) + random.randbytes(random.randrange(20, 100)))
        yield SERVER, message(command, number, 1, struct.pack("<H", 17) + random.randbytes(random.randrange(20, 3000)))


# ---------------------------------------------------------------------- databases


def redis(random: Random, count: int) -> Turns:
    """RESP: lines, and strings with their length in front; a subscriber gets what it did not ask for."""

    def array(*parts: bytes) -> bytes:
        return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)

    for _ in range(count):
        key = b"%s:%d" % (_word(random), random.randrange(1000))
        if random.random() < 0.5:
            yield CLIENT, array(b"SET", key, _some(random))
            yield SERVER, b"+OK\r\n"
        else:
            yield CLIENT, array(b"GET", key) * random.randint(1, 4)
            value = random.randbytes(random.randrange(200))
            string = b"$%d\r\n%s\r\n" % (len(value), value)
            yield SERVER, random.choice([b"$-1\r\n", b":%d\r\n" % random.randrange(99), string])


def memcached(random: Random, count: int) -> Turns:
    """The binary protocol: a magic octet, an opcode, lengths."""
    for number in range(count):
        key, value = b"%s%d" % (_word(random), number), _some(random, 300)
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
    greeting += (
        _base64(random, 8) + b"\0\xff\xff\xff\2\0\xff\xdf\x15" + bytes(10) + _base64(random, 12) + b"\0" + method
    )
    yield SERVER, packet(0, greeting)
    login = b"\x85\xa6\xff\x19\0\0\0\1\xff" + bytes(23) + b"root\0\x20" + random.randbytes(32)
    yield CLIENT, packet(1, login + method)
    yield SERVER, packet(2, b"\1\3") + packet(3, b"\0\0\0\2\0\0\0")
    for _ in range(count):
        yield CLIENT, packet(0, b"\3SELECT %s FROM %s" % (_word(random), _word(random)))
        columns = packet(1, b"\1") + packet(2, b"\3def\4shop\1t\1t\2id\2id\x0c\x3f\0\x0b\0\0\0\3\3\x50\0\0\0")
        rows = [b"".join(bytes([len(v)]) + v for v in (_word(random), b"%d" % n)) for n in range(random.randrange(20))]
        out = columns + b"".join(packet(n, row) for n, row in enumerate(rows, 3))
        yield SERVER, out + packet(len(rows) + 3, b"\xfe\0\0\2\0\0\0")


def postgresql(random: Random, count: int) -> Turns:
    """Messages of a type, a letter, and a length of 32 bits that counts itself."""

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + _u32(len(body) + 4) + body

    yield CLIENT, b"\0\0\0\x08\x04\xd2\x16\x2f"  # SSLRequest
    yield SERVER, b"N"
    yield CLIENT, message(b"", b"\0\3\0\0user\0%s\0database\0shop\0\0" % _word(random))
    settings = message(b"S", b"TimeZone\0UTC\0") + message(b"K", random.randbytes(8))
    yield SERVER, message(b"R", bytes(4)) + settings + message(b"Z", b"I")
    for _ in range(count):
        yield CLIENT, message(b"Q", b"SELECT * FROM %s;\0" % _word(random))
        rows = b"".join(
            message(b"D", _u16(2) + _len32(_some(random, 40)) + _len32(b"%d" % random.randrange(10**6)))
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
        yield CLIENT, message(number, 0, string(b"find", _word(random)) + string(b"$db", b"shop"))
        found = b"".join(
            string(b"name", _word(random)) + b"\x10n\0" + struct.pack("<I", random.randrange(1000))
            for _ in range(random.randrange(10))
        )
        yield SERVER, message(number + 7000, number, found + b"\1ok\0" + struct.pack("<d", 1.0))


def cassandra(random: Random, count: int) -> Turns:
    """CQL 4: version, flags, stream, opcode, a length of 32 bits."""

    def message(version: int, stream: int, opcode: int, body: bytes) -> bytes:
        return struct.pack("!BBHB", version, 0, stream, opcode) + _len32(body)

    yield CLIENT, message(4, 0, 5, b"")
    options = ((b"COMPRESSION", b"lz4"), (b"CQL_VERSION", b"3.4.5"))
    supported = b"".join(_len16(name) + b"\0\1" + _len16(value) for name, value in options)
    yield SERVER, message(0x84, 0, 6, b"\0\2" + supported)
    yield CLIENT, message(4, 0, 1, b"\0\1" + _len16(b"CQL_VERSION") + _len16(b"3.0.0"))
    yield SERVER, message(0x84, 0, 2, b"")
    for number in range(count):
        query = b"SELECT * FROM %s WHERE id = %d" % (_word(random), number)
        yield CLIENT, message(4, number, 7, _len32(query) + b"\0\1\0")
        rows = b"".join(_len32(_some(random, 60)) for _ in range(random.randrange(10)))
        yield SERVER, message(0x84, number, 8, _u32(2) + _u32(1) + _u32(1) + _len16(b"shop") + _len16(b"t") + rows)


# ---------------------------------------------------------------------- messages


def kafka(random: Random, count: int) -> Turns:
    """Requests and replies with a length of 32 bits and a number that joins them."""
    topic, who = _len16(_word(random)), _len16(b"producer-%d" % random.randrange(10))
    for number in range(count):
        if random.random() < 0.5:
            records = b"".join(struct.pack("!QI", n, 40) + _some(random, 41) for n in range(random.randrange(10)))
            head = struct.pack("!HHI", 0, 3, number) + who + b"\xff\xff\0\1\0\0\x75\x30\0\0\0\1"
            yield CLIENT, _len32(head + topic + b"\0\0\0\1\0\0\0\0" + _len32(records))
            yield SERVER, _len32(_u32(number) + b"\0\0\0\1" + topic + b"\0\0\0\1" + bytes(22))
        else:
            yield CLIENT, _len32(struct.pack("!HHI", 3, 1, number) + who + b"\0\0\0\1" + topic)
            broker = _u32(random.randrange(9)) + _len16(_host(random)) + _u32(9092)
            yield SERVER, _len32(_u32(number) + b"\0\0\0\1" + broker)


def amqp_0_9(random: Random, count: int) -> Turns:
    """AMQP 0-9-1: frames of a type, a channel, a length of 32 bits, and CE at their end."""

    def part(kind: int, body: bytes, channel: int = 1) -> bytes:
        return struct.pack("!BH", kind, channel) + _len32(body) + b"\xce"

    yield CLIENT, b"AMQP\0\0\x09\1"
    start = b"\0\x0a\0\x0a\0\x09" + _len32(b"\7productS" + _len32(b"RabbitMQ"))
    yield SERVER, part(1, start + _len32(b"PLAIN") + _len32(b"en_US"), 0)
    yield CLIENT, part(1, b"\0\x0a\0\x0b" + _len32(b"") + b"\5PLAIN" + _len32(b"\0guest\0guest") + b"\5en_US", 0)
    yield SERVER, part(1, b"\0\x0a\0\x1e\x07\xff\0\2\0\0\0\x3c", 0)
    for number in range(count):
        body = _some(random, 500)
        header = b"\0\x3c\0\0" + struct.pack("!Q", len(body)) + b"\x10\0\2"
        yield CLIENT, part(1, b"\0\x3c\0\x28\0\0\0\5queue\0") + part(2, header) + part(3, body)
        yield SERVER, part(1, b"\0\x3c\0\x50" + struct.pack("!QB", number + 1, 0))
        if random.random() < 0.2:
            yield SERVER, part(8, b"", 0)


def amqp_1(random: Random, count: int) -> Turns:
    """AMQP 1.0: frames of a length of 32 bits, and typed values."""

    def performative(code: int, *values: bytes) -> bytes:
        body = b"".join(values)
        listed = b"\0\x53" + bytes([code]) + b"\xc0" + bytes([len(body) + 1, len(values)]) + body
        return _len32_whole(b"\2\0\0\0" + listed)

    def string(value: bytes) -> bytes:
        return b"\xa1" + bytes([len(value)]) + value

    for side in (CLIENT, SERVER):
        yield side, b"AMQP\0\1\0\0"
    for side in (CLIENT, SERVER):
        yield side, performative(0x10, string(_word(random)), string(_host(random)), b"\x70" + _u32(65_536))
    yield CLIENT, performative(0x11, b"\x40", b"\x43", b"\x52\xff", b"\x52\xff")
    yield SERVER, performative(0x11, b"\x60\0\0", b"\x43", b"\x52\xff", b"\x52\xff")
    for number in range(count):
        delivery = bytes([number % 256])
        frame = b"\2\0\0\0\0\x53\x14\xc0\x0b\5\x43\x52" + delivery + b"\xa0\1" + delivery + b"\x43\x42"
        yield CLIENT, _len32_whole(frame + b"\0\x53\x75\xa0\x28" + _base64(random, 40))
        yield SERVER, performative(0x15, b"\x41", b"\x52" + delivery, b"\x40", b"\x41", b"\0\x53\x24\x45")


def _len32_whole(body: bytes) -> bytes:
    return _u32(len(body) + 4) + body


def mqtt(random: Random, count: int) -> Turns:
    """MQTT 3.1.1: a type with flags, a length of seven bits an octet."""

    def packet(head: int, body: bytes) -> bytes:
        length, out = len(body), bytearray([head])
        while True:
            out.append(length & 127 | (length > 127) << 7)
            length >>= 7
            if not length:
                return bytes(out) + body

    yield CLIENT, packet(0x10, _len16(b"MQTT") + b"\4\2\0\x3c" + _len16(_word(random)))
    yield SERVER, b"\x20\2\0\0"
    yield CLIENT, packet(0x82, b"\0\1" + _len16(b"sensors/#") + b"\0")
    yield SERVER, b"\x90\3\0\1\0"
    for number in range(2, count + 2):
        topic = _len16(b"sensors/%s/%d" % (_word(random), random.randrange(100)))
        if random.random() < 0.5:
            yield CLIENT, packet(0x32, topic + _u16(number) + _some(random, 300))
            yield SERVER, packet(0x40, _u16(number))
        else:
            yield SERVER, packet(0x30, topic + b"%.2f" % (random.random() * 50))
        if random.random() < 0.1:
            yield CLIENT, b"\xc0\0"
            yield SERVER, b"\xd0\0"


def stomp(random: Random, count: int) -> Turns:
    """STOMP 1.2: a command, headers, a body, a zero."""
    yield CLIENT, b"CONNECT\naccept-version:1.2\nhost:%s\n\n\0" % _host(random)
    yield SERVER, b"CONNECTED\nversion:1.2\nheart-beat:0,0\n\n\0\n"
    for number in range(count):
        body = _some(random)
        head = b"SEND\ndestination:/queue/%s\nreceipt:%d\ncontent-length:%d\n\n" % (_word(random), number, len(body))
        yield CLIENT, head + body + b"\0"
        yield SERVER, b"RECEIPT\nreceipt-id:%d\n\n\0\n" % number


def nats(random: Random, count: int) -> Turns:
    """Lines, and payloads with their length in the line."""
    server = _base64(random, 20), random.randrange(30)
    yield SERVER, b'INFO {"server_id":"%s","version":"2.10.%d","max_payload":1048576}\r\n' % server
    yield CLIENT, b'CONNECT {"verbose":false,"lang":"go"}\r\nSUB %s.> 1\r\nPING\r\n' % _word(random)
    yield SERVER, b"PONG\r\n"
    for _ in range(count):
        body = _some(random)
        yield CLIENT, b"PUB %s.x %d\r\n%s\r\n" % (_word(random), len(body), body)
        yield SERVER, b"MSG %s.y 1 %d\r\n%s\r\n" % (_word(random), len(body), body)


def thrift(random: Random, count: int) -> Turns:
    """Calls of the binary protocol in frames with a length of 32 bits."""
    for number in range(count):
        name = _len32(_word(random))
        fields = b"\x0b\0\1" + _len32(_some(random)) + b"\x08\0\2" + _u32(random.randrange(1000)) + b"\0"
        yield CLIENT, _len32(b"\x80\1\0\1" + name + _u32(number) + fields)
        yield SERVER, _len32(b"\x80\1\0\2" + name + _u32(number) + b"\x0c\0\0" + fields + b"\0")


# ---------------------------------------------------------------------- directories, desktops


def ldap(random: Random, count: int) -> Turns:
    """RFC 4511 in BER: a tag, a length, what is in it."""

    def ber(tag: int, body: bytes) -> bytes:
        length = len(body)
        if length < 128:
            return bytes([tag, length]) + body
        return bytes([tag, 0x82]) + _u16(length) + body

    def message(number: int, body: bytes) -> bytes:
        return ber(0x30, ber(2, _u16(number) if number > 127 else bytes([number])) + body)

    yield CLIENT, message(1, ber(0x60, b"\2\1\3" + ber(4, b"cn=admin,dc=example") + ber(0x80, b"secret")))
    yield SERVER, message(1, ber(0x61, b"\x0a\1\0\4\0\4\0"))
    for number in range(2, count + 2):
        base = ber(4, b"ou=%s,dc=example" % _word(random))
        wanted = ber(0xA3, ber(4, b"uid") + ber(4, _word(random)))
        yield CLIENT, message(number, ber(0x63, base + b"\x0a\1\2\x0a\1\0\2\1\0\2\1\0\1\1\0" + wanted + ber(0x30, b"")))
        entries = b""
        for _ in range(random.randrange(4)):
            attribute = ber(0x30, ber(4, b"mail") + ber(0x31, ber(4, _some(random, 100))))
            entries += message(number, ber(0x64, base + ber(0x30, attribute)))
        yield SERVER, entries + message(number, ber(0x65, b"\x0a\1\0\4\0\4\0"))


def rdp(random: Random, count: int) -> Turns:
    """TPKT (RFC 1006) with X.224 in it, and what is quicker than that."""

    def tpkt(body: bytes) -> bytes:
        return b"\3\0" + _u16(len(body) + 4) + body

    yield CLIENT, tpkt(b"\x27\xe0\0\0\0\0\0Cookie: mstshash=%s\r\n\1\0\x08\0\3\0\0\0" % _word(random))
    yield SERVER, tpkt(b"\x0e\xd0\0\0\x12\x34\0\2\x1f\x08\0\2\0\0\0")
    for _ in range(count):
        yield CLIENT, tpkt(b"\2\xf0\x80\x64\0\1\x03\xeb\x70" + random.randbytes(random.randrange(10, 100)))
        if random.random() < 0.5:
            yield SERVER, tpkt(b"\2\xf0\x80\x68\0\1\x03\xeb\x70" + random.randbytes(random.randrange(10, 1000)))
        else:
            body = random.randbytes(random.randrange(130, 1000))
            yield SERVER, b"\0" + _u16(0x8000 | len(body) + 3) + body


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
    name = _word(random)
    yield SERVER, struct.pack("!HH", 1024, 768) + b"\x20\x18\0\1\0\xff\0\xff\0\xff\x10\x08\0\0\0\0" + _len32(name)
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


# ---------------------------------------------------------------------- nothing in particular


def _kind_and_text(random: Random, most: int) -> bytes:
    """What frames of home-made protocols hold: a kind, a number, a text. Kinds are no flags of ZMTP."""
    return bytes([random.randrange(2, 40)]) + _u16(random.randrange(1000)) + _some(random, most)


def len8(random: Random, count: int) -> Turns:
    """Frames with a length of 8 bits that counts what is behind it."""
    for _ in range(count):
        for side in (CLIENT, SERVER):
            bodies = (_kind_and_text(random, 100) for _ in range(random.randint(1, 3)))
            yield side, b"".join(bytes([len(body)]) + body for body in bodies)


def len16(random: Random, count: int) -> Turns:
    """Frames with a length of 16 bits, in either order of octets.

    Lengths below 256 in network order are, octet for octet, frames of ZMTP 2.0: so there are others, too.
    """
    order = random.choice("<!")
    for _ in range(count):
        for side in (CLIENT, SERVER):
            bodies = (_kind_and_text(random, 1500) for _ in range(random.randint(1, 3)))
            yield side, b"".join(struct.pack(order + "H", len(body)) + body for body in bodies)


def len32(random: Random, count: int) -> Turns:
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


PROTOCOLS: dict[str, Callable[[Random, int], Turns]] = {
    "bgp": bgp,
    "telnet": telnet,
    "dns": dns,
    "ssh": ssh,
    "tls": tls,
    "http": http,
    "http2": http2,
    "grpc": grpc,
    "rtsp": rtsp,
    "sip": sip,
    "rtmp": rtmp,
    "xmpp": xmpp,
    "smtp": smtp,
    "imap": imap,
    "ftp": ftp,
    "bittorrent": bittorrent,
    "smb": smb,
    "redis": redis,
    "memcached": memcached,
    "mysql": mysql,
    "postgresql": postgresql,
    "mongodb": mongodb,
    "cassandra": cassandra,
    "kafka": kafka,
    "amqp 0-9-1": amqp_0_9,
    "amqp 1.0": amqp_1,
    "mqtt": mqtt,
    "stomp": stomp,
    "nats": nats,
    "thrift": thrift,
    "ldap": ldap,
    "rdp": rdp,
    "x11": x11,
    "vnc": vnc,
    "modbus": modbus,
    "dnp3": dnp3,
    "len8": len8,
    "len16": len16,
    "len32": len32,
    "random": random_octets,
    "random after FF": random_after_ff,
}


def speak(name: str, random: Random) -> Conversation:
    """A conversation of one of these protocols."""
    talk = Conversation(name, ("", ""), ("", ""), None, end=random.choice(("fin", "fin", "rst", "open")))
    talk.closer = random.randrange(2)
    pace_ns = random.choice([20 * US, 200 * US, 5 * MS])
    count = [0, 0]
    for side, octets in PROTOCOLS[name](random, random.choice([1, 5, 20, 40])):
        if octets:
            talk.writes.append(Write(side, octets, count[1 - side], int(pace_ns * random.random()) + 1))
            count[side] += 1
    return talk
