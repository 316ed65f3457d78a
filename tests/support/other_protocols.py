"""Conversations of protocols that are not ZMTP, from their first octet on: what could be taken for how ZMTP begins.

Those of :mod:`foreign` are about what is found in mid-stream; these begin with FF, as signatures do, or with a length
of one octet, as ZMTP 1.0 does, or are what else is met on networks.
"""

import struct
from collections.abc import Callable
from random import Random

from tests.support.foreign_conversations import PROTOCOLS, converse
from tests.world.conversation import CLIENT, SERVER, binary_body, text_body

Talk = list[tuple[int, bytes]]  # side and what it sends, in order
Make = Callable[[Random], Talk]


def _alternate(make: Callable[[Random], bytes], least: int = 1, most: int = 30) -> Make:
    """Both sides send such messages in turns, sometimes several at once."""

    def talk(random: Random) -> Talk:
        return [
            (side, b"".join(make(random) for _ in range(random.choice([1, 1, 1, 2, 5]))))
            for _ in range(random.randint(least, most))
            for side in (CLIENT, SERVER)
        ]

    return talk


# ---------------------------------------------------------------------- what begins with FF


def _telnet(random: Random) -> Talk:
    """Options are negotiated, then lines (RFC 854): IAC (FF), DO, DONT, WILL or WONT, the option."""

    def negotiation() -> bytes:
        options = [1, 3, 5, 24, 31, 32, 33, 34, 35, 36, 39, random.randrange(50)]
        commands = (bytes([255, random.randrange(251, 255), random.choice(options)]) for _ in range(12))
        subnegotiation = b"\xff\xfa\x18\x00xterm\xff\xf0" if random.random() < 0.3 else b""
        return b"".join([*commands][: random.randint(1, 12)]) + subnegotiation

    talk = [(side, negotiation()) for side in random.choice([(CLIENT, SERVER), (SERVER, CLIENT), (SERVER,)])]
    for _ in range(random.randrange(10)):
        talk += [(CLIENT, text_body(random, 8) + b"\r\0"), (SERVER, text_body(random, 60) + b"\r\n$ ")]
    return talk


def _bgp(random: Random) -> Talk:
    """A marker of 16 octets FF, length, type (RFC 4271, section 4.1)."""

    def message(kind: int, body: bytes = b"") -> bytes:
        return b"\xff" * 16 + struct.pack("!HB", 19 + len(body), kind) + body

    def opening() -> bytes:
        return message(1, struct.pack("!BHHIB", 4, random.randrange(64512, 65535), 180, random.getrandbits(32), 0))

    talk = [(CLIENT, opening()), (SERVER, opening() + message(4)), (CLIENT, message(4))]
    for _ in range(random.randrange(8)):
        update = bytes(2) + struct.pack("!H", 14) + b"@\1\1\0@\2\0@\3\4" + random.randbytes(4) + b"\x18" + b"\x0a\1\2"
        talk += [(random.choice([CLIENT, SERVER]), random.choice([message(4), message(2, update)]))]
    return talk


def _beginning_with(first: bytes, both: bool = True) -> Make:
    """Octets of no kind behind these first ones; of the client, and of the server if ``both``."""

    def talk(random: Random) -> Talk:
        turns = [(CLIENT, first + random.randbytes(random.randrange(600)))]
        turns.append((SERVER, (first if both else b"") + random.randbytes(random.randrange(1, 600))))
        return turns + [(random.choice([CLIENT, SERVER]), random.randbytes(random.randrange(1, 600))) for _ in range(9)]

    return talk


def _integers_from_255(form: str) -> Make:
    """Integers, mostly small ones, the first 255: octets FF and zeros."""

    def talk(random: Random) -> Talk:
        def some(count: int) -> bytes:
            return b"".join(struct.pack(form, random.randrange(random.choice([4, 20, 200]))) for _ in range(count))

        first = struct.pack(form, 255)
        turns = [(CLIENT, first + some(random.randrange(2, 40))), (SERVER, first + some(random.randrange(2, 40)))]
        return turns + [(random.choice([CLIENT, SERVER]), some(random.randrange(1, 50))) for _ in range(9)]

    return talk


def _jpeg(random: Random) -> Talk:
    """Pictures sent as they are: FF D8, segments with lengths."""

    def picture() -> bytes:
        return b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xdb\0\x43" + random.randbytes(400) + b"\xff\xd9"

    return [(CLIENT, picture()), (SERVER, b"ok\n"), (CLIENT, picture()), (SERVER, random.choice([b"ok\n", picture()]))]


def _audio(random: Random) -> Talk:
    """Frames of MPEG audio or ADTS, each with 12 bits that are set."""
    second = random.choice([b"\xfb", b"\xf1", b"\xf3", b"\xfa"])
    return [(CLIENT, b"\xff" + second + random.randbytes(411)) for _ in range(9)] + [(SERVER, b"\xff" + second)]


def _utf_16(random: Random) -> Talk:
    """Text in UTF-16 behind a byte order mark."""
    return [(side, b"\xff\xfe" + text_body(random, 80).decode().encode("utf-16-le")) for side in (CLIENT, SERVER) * 3]


# ---------------------------------------------------------------------- what begins with a length of one octet


def _short(body: Callable[[Random], bytes], itself: int = 0) -> Make:
    """A length of one octet, which counts ``itself`` or not, and so many octets."""

    def message(random: Random) -> bytes:
        octets = body(random)[: 254 - itself]
        return bytes([len(octets) + itself]) + octets

    return _alternate(message)


def _typed(kinds: int, least: int = 0, most: int = 60) -> Callable[[Random], bytes]:
    """A body that begins with one of so many types, which are numbered from 0."""
    return lambda random: bytes([random.randrange(kinds)]) + binary_body(random, random.randint(least, most))


def _numbered(form: str) -> Callable[[Random], bytes]:
    """A body that begins with a small number."""
    return lambda random: struct.pack(form, random.randrange(200)) + text_body(random, random.randrange(40))


def _sized(form: str, least: int = 1, most: int = 300, itself: int = 0) -> Make:
    """A length in this form, which counts ``itself`` or not, and so many octets."""

    def message(random: Random) -> bytes:
        body = random.choice([text_body, binary_body])(random, random.randint(least, most))
        return struct.pack(form, len(body) + itself) + body

    return _alternate(message)


def _with_heartbeats(random: Random) -> Talk:
    """Lengths of one octet and types; one side begins with a message that is a type alone."""
    talk = _short(_typed(6))(random)
    talk[random.randrange(2)] = (talk[0][0], b"\1\0")
    return [(CLIENT, talk[0][1]), (SERVER, talk[1][1]), *talk[2:]]


# ---------------------------------------------------------------------- protocols that are met on networks


def _lines(*turns: tuple[int, bytes]) -> Make:
    def talk(random: Random) -> Talk:
        more = [(side, text_body(random, random.randrange(1, 90)) + b"\r\n") for side in (CLIENT, SERVER) * 4]
        return [*turns, *more]

    return talk


def _x11(random: Random) -> Talk:
    """The setup of the X Window System, little-endian: ``l``; the reply begins with 01 00 0B 00."""
    cookie = b"MIT-MAGIC-COOKIE-1\0\0" + random.randbytes(16)
    setup = b"l\0\x0b\0\0\0\x12\0\x10\0\0\0" + cookie
    vendor = b"The X.Org Foundation"
    reply = struct.pack("<IIII", 12_011_000, 0x0220_0000, 0x1F_FFFF, 256) + struct.pack(
        "<HHBBBBBBBB", len(vendor), 65535, 1, 7, 0, 0, 32, 32, 8, 255
    )
    reply += bytes(4) + vendor + bytes(256)
    head = b"\1\0\x0b\0\0\0" + struct.pack("<H", len(reply) // 4)
    talk = [(CLIENT, setup), (SERVER, head + reply)]
    for number in range(1, 20):
        talk.append((CLIENT, struct.pack("<BBHI", random.randrange(1, 127), 0, 3, random.getrandbits(26)) + bytes(4)))
        talk.append((SERVER, struct.pack("<BBHI", 1, 0, number, 0) + bytes(24)))
    return talk


def _socks(random: Random) -> Talk:
    """SOCKS 5 (RFC 1928), then TLS through it."""
    return [(CLIENT, b"\5\1\0"), (SERVER, b"\5\0"), (CLIENT, b"\5\1\0\1" + random.randbytes(6)),
            (SERVER, b"\5\0\0\1" + bytes(6)), (CLIENT, b"\x16\3\1\2\0" + random.randbytes(512))]  # fmt: skip


def _smb(random: Random) -> Talk:
    """NetBIOS session messages with SMB 1 or 2 inside."""
    mark = random.choice([b"\xffSMB", b"\xfeSMB"])

    def message(random: Random) -> bytes:
        body = mark + b"\x40\0\1\0" + bytes(8) + random.randbytes(random.randrange(30, 200))
        return struct.pack("!I", len(body)) + body

    return _alternate(message)(random)


def _cassandra(random: Random) -> Talk:
    """CQL's binary protocol, version 4: version, flags, stream, opcode, length."""
    talk = []
    for stream in range(random.randrange(2, 20)):
        body = text_body(random, random.randrange(10, 90))
        talk.append((CLIENT, struct.pack("!BBHBI", 4, 0, stream, 7, len(body)) + body))
        talk.append((SERVER, struct.pack("!BBHBI", 0x84, 0, stream, 8, len(body)) + body))
    return talk


def _tpkt(random: Random) -> Talk:
    """RDP and others in TPKT (RFC 1006): version 3, zero, length."""

    def message(random: Random) -> bytes:
        body = b"\2\xf0\x80" + random.randbytes(random.randrange(10, 300))
        return struct.pack("!BBH", 3, 0, len(body) + 4) + body

    return _alternate(message)(random)


def _tds(random: Random) -> Talk:
    """Microsoft SQL Server: type, status, length, process, packet, window."""

    def message(random: Random) -> bytes:
        body = random.randbytes(random.randrange(10, 200))
        return struct.pack("!BBHHBB", random.choice([1, 4, 18]), 1, len(body) + 8, 0, 1, 0) + body

    return _alternate(message)(random)


def _bittorrent(random: Random) -> Talk:
    """A handshake that begins with a length of one octet, then lengths of four."""
    hello = b"\x13BitTorrent protocol" + bytes(8) + random.randbytes(40)
    more = _sized("!I", 1, 50)(random)
    return [(CLIENT, hello), (SERVER, hello), *more]


def _rtmp(random: Random) -> Talk:
    """Version 3 and 1536 octets of time, zero and chance."""
    hello = b"\3" + struct.pack("!I", random.getrandbits(24)) + bytes(4) + random.randbytes(1528)
    return [(CLIENT, hello), (SERVER, hello + random.randbytes(1536)), (CLIENT, random.randbytes(1536))]


def _opc_ua(random: Random) -> Talk:
    def message(random: Random) -> bytes:
        body = random.randbytes(random.randrange(20, 100))
        return random.choice([b"HELF", b"MSGF", b"OPNF"]) + struct.pack("<I", len(body) + 8) + body

    return _alternate(message)(random)


def _rpc(random: Random) -> Talk:
    """ONC RPC: the last fragment's bit and a length (RFC 5531, section 11)."""

    def message(random: Random) -> bytes:
        body = struct.pack("!IIIII", random.getrandbits(32), random.randrange(2), 2, 100_003, 3) + bytes(20)
        return struct.pack("!I", 0x8000_0000 | len(body)) + body

    return _alternate(message)(random)


def _git(random: Random) -> Talk:
    def message(random: Random) -> bytes:
        body = text_body(random, random.randrange(1, 60))
        return b"%04x%s" % (len(body) + 4, body)

    return _alternate(message)(random)


def _of_foreign(name: str) -> Make:
    return lambda random: [(piece.side, piece.data) for piece in converse(name, random, 12).pieces]


OTHERS: dict[str, Make] = {
    "telnet": _telnet,
    "bgp": _bgp,
    "random octets behind FF, both": _beginning_with(b"\xff"),
    "random octets behind FF, one side": _beginning_with(b"\xff", both=False),
    "random octets behind FF FF FF FF": _beginning_with(b"\xff" * 4),
    "random octets behind eight FF": _beginning_with(b"\xff" * 8),
    "random octets behind FF and zeros": _beginning_with(b"\xff" + bytes(3)),
    "16-bit integers from 255": _integers_from_255("<H"),
    "32-bit integers from 255": _integers_from_255("<I"),
    "64-bit integers from 255": _integers_from_255("<Q"),
    "jpeg": _jpeg,
    "mpeg audio": _audio,
    "utf-16": _utf_16,
    "one-octet lengths, text": _short(lambda random: text_body(random, random.randrange(1, 200))),
    "one-octet lengths, random octets": _short(lambda random: binary_body(random, random.randrange(1, 200))),
    "one-octet lengths, two types": _short(_typed(2)),
    "one-octet lengths, four types": _short(_typed(4)),
    "one-octet lengths, one type": _short(_typed(1, 1)),
    "one-octet lengths, 16-bit numbers": _short(_numbered("!H")),
    "one-octet lengths, 32-bit numbers": _short(_numbered("!I")),
    "one-octet lengths, little-endian numbers": _short(_numbered("<I")),
    "one-octet lengths that count themselves": _short(_typed(3), 1),
    "one-octet lengths with heartbeats": _with_heartbeats,
    "16-bit lengths": _sized("!H"),
    "16-bit lengths, little-endian": _sized("<H"),
    "16-bit lengths that count themselves": _sized("!H", itself=2),
    "16-bit lengths that count themselves, little-endian": _sized("<H", itself=2),
    "32-bit lengths": _sized("!I"),
    "32-bit lengths, little-endian": _sized("<I"),
    "32-bit lengths that count themselves, little-endian": _sized("<I", itself=4),
    "64-bit lengths": _sized("!Q"),
    "64-bit lengths, little-endian": _sized("<Q"),
    "smtp": _lines((SERVER, b"220 mx ESMTP\r\n"), (CLIENT, b"EHLO me\r\n"), (SERVER, b"250-mx\r\n250 SIZE\r\n")),
    "ftp": _lines((SERVER, b"220 ready\r\n"), (CLIENT, b"USER me\r\n"), (SERVER, b"331 password\r\n")),
    "imap": _lines((SERVER, b"* OK ready\r\n"), (CLIENT, b"a1 CAPABILITY\r\n")),
    "irc": _lines((CLIENT, b"NICK me\r\nUSER me 0 * :me\r\n"), (SERVER, b":irc NOTICE * :Looking up\r\n")),
    "sip": _lines((CLIENT, b"REGISTER sip:example.com SIP/2.0\r\n\r\n"), (SERVER, b"SIP/2.0 100 Trying\r\n\r\n")),
    "stomp": _lines((CLIENT, b"CONNECT\naccept-version:1.2\n\n\0"), (SERVER, b"CONNECTED\nversion:1.2\n\n\0")),
    "vnc": _lines((SERVER, b"RFB 003.008\n"), (CLIENT, b"RFB 003.008\n"), (SERVER, b"\1\1"), (CLIENT, b"\1")),
    "x11": _x11,
    "socks": _socks,
    "smb": _smb,
    "cassandra": _cassandra,
    "tpkt": _tpkt,
    "tds": _tds,
    "bittorrent": _bittorrent,
    "rtmp": _rtmp,
    "opc ua": _opc_ua,
    "onc rpc": _rpc,
    "git": _git,
    **{name: _of_foreign(name) for name in PROTOCOLS},
}
