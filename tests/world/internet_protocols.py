"""Protocols between networks: routing, names, terminals, the web, mail, files."""

import struct
from random import Random

from .conversation import CLIENT, SERVER
from .protocol_octets import Turns, base64, host_name, len16, len32, some, u16, u32, word

# ---------------------------------------------------------------------- routing, names, terminals


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


def ssh(random: Random, count: int) -> Turns:
    """RFC 4253: a line, then packets with their length in front, soon encrypted."""

    def packet() -> bytes:
        return len32(bytes([random.randrange(4, 12), random.choice((20, 21, 30, 31, 94))]) + random.randbytes(60))

    for side in (SERVER, CLIENT):
        yield side, b"SSH-2.0-OpenSSH_%d.%dp1\r\n" % (random.randrange(6, 10), random.randrange(10))
    names = b",".join((b"curve25519-sha256", b"ecdh-sha2-nistp256", b"diffie-hellman-group14-sha256"))
    for side in (CLIENT, SERVER):
        yield side, len32(b"\x06\x14" + random.randbytes(16) + len32(names) + len32(b"ssh-ed25519") + bytes(30))
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

    name = host_name(random)
    server_name = len16(len16(b"\0" + len16(name)))
    hello = b"\3\3" + random.randbytes(32) + b"\x20" + random.randbytes(32) + b"\0\x06\x13\1\x13\2\x13\3\1\0"
    share = len16(len16(b"\0\x1d" + len16(random.randbytes(32))))
    hello += len16(b"\0\0" + server_name + b"\0\x2b\0\3\2\3\4\0\x33" + share)
    yield CLIENT, record(22, b"\1\0" + len16(hello))
    answer = b"\3\3" + random.randbytes(32) + b"\x20" + random.randbytes(32)
    answer += b"\x13\1\0\0\x2e\0\x2b\0\2\3\4\0\x33\0\x24\0\x1d\0\x20"
    yield (
        SERVER,
        record(22, b"\2\0" + len16(answer + random.randbytes(32)))
        + record(20, b"\1")
        + record(23, random.randbytes(random.randrange(1000, 4000))),
    )
    yield CLIENT, record(20, b"\1") + record(23, random.randbytes(53))
    for _ in range(count):
        for side, most in ((CLIENT, 900), (SERVER, 4000)):
            yield side, record(23, random.randbytes(random.randrange(20, most)))


def http(random: Random, count: int) -> Turns:
    """RFC 9112: requests with and without a body, replies of text or octets."""
    host = host_name(random)
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


def _h2(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return u32(len(body))[1:] + bytes([kind, flags]) + u32(stream) + body


def http2(random: Random, count: int) -> Turns:
    """RFC 9113: a preface, then frames of a length of 24 bits, type, flags, stream."""
    yield CLIENT, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _h2(4, 0, 0, b"\0\3\0\0\0\x64\0\4\0\xa0\0\0")
    yield SERVER, _h2(4, 0, 0, b"\0\3\0\0\0\x80") + _h2(4, 1, 0, b"") + _h2(8, 0, 0, u32(983_041))
    for number in range(count):
        stream = 2 * number + 1
        yield CLIENT, _h2(1, 5, stream, b"\x82\x86\x41" + random.randbytes(random.randrange(20, 80)))
        body = b"".join(_h2(0, 0, stream, some(random, 900)) for _ in range(random.randrange(3)))
        yield SERVER, _h2(1, 4, stream, b"\x88" + random.randbytes(20)) + body + _h2(0, 1, stream, b"")
        if random.random() < 0.2:
            ping = random.randbytes(8)
            yield CLIENT, _h2(6, 0, 0, ping)
            yield SERVER, _h2(6, 1, 0, ping)


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


# ---------------------------------------------------------------------- mail and files


def smtp(random: Random, count: int) -> Turns:
    """RFC 5321."""
    host = host_name(random)
    yield SERVER, b"220 %s ESMTP Postfix\r\n" % host
    yield CLIENT, b"EHLO %s\r\n" % host_name(random)
    yield SERVER, b"250-%s\r\n250-PIPELINING\r\n250-SIZE 10240000\r\n250 8BITMIME\r\n" % host
    for _ in range(count):
        yield CLIENT, b"MAIL FROM:<%s@%s>\r\n" % (word(random), host)
        yield SERVER, b"250 2.1.0 Ok\r\n"
        yield CLIENT, b"RCPT TO:<%s@%s>\r\nDATA\r\n" % (word(random), host)
        yield SERVER, b"250 2.1.5 Ok\r\n354 End data with <CR><LF>.<CR><LF>\r\n"
        yield CLIENT, b"Subject: %s\r\n\r\n%s\r\n.\r\n" % (word(random), some(random, 3000))
        yield SERVER, b"250 2.0.0 Ok: queued as %s\r\n" % base64(random, 10)


def bittorrent(random: Random, count: int) -> Turns:
    """BEP 3: a handshake, then messages with a length of 32 bits, most of them tiny."""
    name = random.randbytes(20)
    for side in (CLIENT, SERVER):
        yield side, b"\x13BitTorrent protocol" + bytes(5) + b"\x10\0\5" + name + b"-TR3000-" + base64(random, 12)
    yield SERVER, len32(b"\5" + random.randbytes(random.randrange(10, 200)))
    yield CLIENT, len32(b"\2")
    yield SERVER, len32(b"\1")
    for number in range(count):
        blocks = (struct.pack("!III", number, at << 14, 1 << 14) for at in range(random.randint(1, 4)))
        yield CLIENT, b"".join(len32(b"\6" + block) for block in blocks)
        piece = b"\7" + struct.pack("!II", number, 0) + random.randbytes(random.randrange(3000))
        yield SERVER, len32(piece) + (len32(b"\4" + u32(number)) if random.random() < 0.5 else b"")
        if random.random() < 0.2:
            yield CLIENT, bytes(4)  # keep-alive


def smb(random: Random, count: int) -> Turns:
    """SMB 2 in NetBIOS messages: a zero and a length of 24 bits in front."""

    def message(command: int, number: int, flags: int, body: bytes) -> bytes:
        head = struct.pack("<HHIHHIIQIIQ16x", 64, 1, 0, command, 31, flags, 0, number, 65_279, 1, 1 << 42)
        return len32(b"\xfeSMB" + head + body)

    dialects = b"\2\2\x10\2\0\3"
    yield CLIENT, message(0, 0, 0, b"\x24\0\3\0\1\0\0\0\x7f\0\0\0" + random.randbytes(16) + bytes(8) + dialects)
    yield SERVER, message(0, 0, 1, b"\x41\0\1\0\0\3\0\0" + random.randbytes(16) + b"\x2f\0\0\0" + bytes(60))
    for number in range(1, count + 1):
        command = random.choice((5, 6, 8, 9, 14, 16))
        yield CLIENT, message(command, number, 0, struct.pack("<H", 49) + random.randbytes(random.randrange(20, 100)))
        yield SERVER, message(command, number, 1, struct.pack("<H", 17) + random.randbytes(random.randrange(20, 3000)))
