"""The first inputs of every target, out of the fixtures: what peers really say, packed as the target takes it."""

import gzip
import lzma
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cbor2
import msgspec

import zmtpsniff
from dissectors.zmtp.curve_keys import format_key
from tests.support.curve_octets import Curve
from tests.support.paths import FIXTURES
from tests.world.conversation import Conversation
from tests.world.recordings import from_capture
from tests.world.tap import load
from zmtpsniff.words.zstd import zstd

from . import layer_seeds
from .below import LINKS
from .connections import MECHANISMS
from .native import COLUMNS, FILES, PACKETS, PAYLOADS
from .native import LINKS as PLAIN_LINKS
from .octets import packed
from .targets import TARGETS

_MOST = 3000  # octets of one seed
_GREETINGS = {1: 2, 2: 14, 3: 64}

STRACE = b"""1 0.1 socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0) = 9
[pid 7] 12:00:00.000001 sendto(9<UNIX-STREAM:[1->2]>, "\\xff\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01", 9, 0, 0, 0) = 9
7 1700000000.123456 recvfrom(9, "\\377\\0\\0\\0\\n\\t", 12, 0, NULL, NULL) = 6
7 1700000000.2 sendmsg(9, {msg_name=NULL, msg_iov=[{iov_base="ab", iov_len=2}, {iov_base="c"..., iov_len=9}]}) = 11
7 1700000000.3 read(9, <unfinished ...>
8 1700000000.4 close(9) = 0
7 1700000000.5 <... read resumed>"x", 1) = 1
7 1700000000.6 +++ exited with 0 +++
"""

FILTERS = """type == "message" && frames[0].text == "orders"
ip.addr == 10.0.0.0/8 and tcp.port in {5555, 6000..6010}
frames[*].text matches "^a(b|c)*$" || !topic
frames[0][0:4] == 01:02:ff:00 xor severity >= "warning"
latency_ns > 1000000 && any frames contains "x"
connection.client.socket_type == "REQ" or not (incomplete)
"""

POLICIES = [
    'include = ["protocol"]\n[[rule]]\nname = "a"\nforbid = \'type == "problem"\'\nmax = 3\n',
    '[[rule]]\nname = "b"\nlatency = { pattern = "request-reply", p99_ms = 50, where = "flow == 1" }\nmin = 1\n',
    '[[rule]]\nname = "c"\norder = [\'type == "greeting"\', \'type == "message"\']\nper = "connection"\n'
    'connections = \'type == "connection"\'\nlevel = "warning"\n',
    '[[rule]]\nname = "d"\nexpect = "frames"\nper = "second"\nmean = true\nmax = 1.5\n',
    '[[rule]]\nname = "e"\nsequence = "body.a[0].b"\nby = "topic"\nwhere = "frames"\nmax = 1\n',
    '[[rule]]\nname = "f"\nno_findings = ["error", "subscriber-slow"]\n',
    'only_endpoints = true\n[[endpoint]]\naddress = ["127.0.*:5550-5560", "[::1]:*"]\nmechanism = "NULL"\n'
    'version = ">=3.0"\nsocket_type = "REP"\nclient_socket_type = ["REQ"]\ntopics = ["a*", "\\\\*"]\n'
    'subscriptions_allowed = "?"\nclients = "10.*"\nmin_clients = 1\nmax_clients = 2\n'
    'server_rate = { min = 1, max = 2.5 }\nlatency = { p50_ms = 1, max_ms = 2 }\nlevel = "warning"\n',
]


def write(corpus: Path) -> None:
    """Write all first inputs below ``corpus``, each target's in its folder; what is there stays."""
    for name in TARGETS:
        folder = corpus / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, octets in enumerate(_SEEDS[name]()):
            (folder / f"seed-{number:02}").write_bytes(octets[:_MOST])


def _capture(name: str, octets: int = _MOST) -> bytes:
    return (FIXTURES / name).read_bytes()[:octets]


def _talks(*names: str) -> list[Conversation]:
    return [talk for name in names for talk in from_capture(FIXTURES / f"{name}.pcap")[:3]]


def _sent(talk: Conversation, skip: int = 0, mark: int = 0) -> bytes:
    """A conversation without the first octets of each side."""
    left = [skip, skip]
    sent = []
    for piece in talk.pieces:
        octets = piece.data[left[piece.side] :]
        left[piece.side] -= len(piece.data) - len(octets)
        if octets:
            sent.append((piece.side | mark, octets[:600]))
    return packed(sent)


def _files(*names: str) -> list[bytes]:
    return [_capture(name) for name in names]


def _compressed() -> list[bytes]:
    small = _capture("m31_req_rep.pcap", 900)
    return [
        gzip.compress(small, mtime=0),
        gzip.compress(small, mtime=0) + gzip.compress(b"", mtime=0)[:15],
        lzma.compress(small),
        zstd.compress(small),
        zstd.compress(small, options={zstd.CompressionParameter.checksum_flag: 1}) + b"\x50\x2a\x4d\x18\x02\0\0\0ab",
        gzip.compress(bytes(100_000), mtime=0),
    ]


def _headers() -> list[bytes]:
    found = []
    for name in (
        "m31_req_rep.pcap",
        "m31_ipv6.pcap",
        "m31_linux_sll2.pcap",
        "m31_vlan_tag.pcap",
        "mix_link_types.pcapng",
    ):
        chosen = load(FIXTURES / name)[:6]
        found.append(packed((LINKS.index(packet[1]), packet[2][:200]) for packet in chosen))
    inner = load(FIXTURES / "m31_req_rep.pcap")[4][2]
    ip = inner[14:]
    outer = b"\x45\0\0\0\0\1\0\0\x40%c\0\0\x0a\0\0\1\x0a\0\0\2"
    raw = LINKS.index(101)
    gre = outer % 47 + b"\x20\0\x08\0\0\0\0\1" + ip
    ethernet_in_gre = outer % 47 + b"\0\0\x65\x58" + inner
    vxlan = outer % 17 + b"\x10\0\x12\xb5\0\0\0\0\x08\0\0\0\0\0\1\0" + inner
    in_ip = outer % 4 + ip
    in_ipv6 = b"\x60\0\0\0\0\0\4\x40" + bytes(32) + ip
    found += [packed((raw, octets)) if isinstance(octets, tuple) else packed([(raw, octets)]) for octets in
              (gre, ethernet_in_gre, vxlan, in_ip, in_ipv6, outer % 4 * 5 + ip)]  # fmt: skip
    parts = [
        (raw, b"\x45\0\0\x24\0\7\x20\0\x40\6\0\0\x0a\0\0\1\x0a\0\0\2" + ip[20:36]),
        (raw, b"\x45\0\0\x20\0\7\0\2\x40\6\0\0\x0a\0\0\1\x0a\0\0\2" + ip[36:48]),
    ]
    parts6 = [
        (raw, b"\x60\0\0\0\0\x20\x2c\x40" + bytes(32) + b"\6\0\0\1\0\0\0\7" + bytes(12) + b"\x50\x10" + bytes(10)),
        (raw, b"\x60\0\0\0\0\x0b\x2c\x40" + bytes(32) + b"\6\0\0\x18\0\0\0\7abc"),
        (raw, b"\x60\0\0\0\0\x14\0\x40" + bytes(32) + b"\x3c\0" + bytes(6) + b"\6\0" + bytes(6) + ip[20:60]),
    ]
    unix = (LINKS.index(147), bytes([0x80, 0, 0, 0, 0, 0, 0, 9]) + bytes([0, 0, 0, 0, 0, 0, 0, 9]) + b"\xff\0\1")
    return [*found, packed(parts), packed(parts[::-1]), packed(parts6), packed([unix, unix]), *_wrapped(inner, outer)]


def _wrapped(inner: bytes, outer: bytes) -> list[bytes]:
    """An Ethernet frame, and the IP packet in it, in other headers; ``outer`` is an IP header without a protocol."""
    ip = inner[14:]
    label = b"\0\1\1\x40"
    udp = b"\x10\0%s\0\0\0\0"
    in_ethernet = [
        b"\x88\x47\0\1\0\x40" + label + ip,
        b"\x88\x47" + label + b"\0\0\0\1" + inner,
        b"\x88\x48" + label + inner,
        b"\x88\x64\x11\0\0\1\0\0\0\x21" + ip,
        b"\0\x40\xaa\xaa\3\0\0\0\x08\0" + ip,
        b"\0\x40\6\6\3" + ip,
    ]
    in_ip = [
        outer % 17 + udp % b"\x17\xc1" + b"\1\0\x65\x58\0\0\1\0\1\2\x80\0" + inner,
        outer % 17 + udp % b"\x08\x68" + b"\x34\xff\0\0\0\0\0\1\0\0\0\x85\1\0\0\0" + ip,
        outer % 47 + b"\0\0\x88\xbe" + inner,
        outer % 47 + b"\x10\0\x88\xbe\0\0\0\1\x10" + bytes(7) + inner,
        outer % 47 + b"\x10\0\x22\xeb\0\0\0\1\x20" + bytes(10) + b"\1" + bytes(8) + inner,
        outer % 51 + b"\4\4\0\0" + bytes(20) + ip,
        outer % 50 + ip,
    ]
    of_links = [
        (9, b"\xff\3\0\x21" + ip),
        (50, b"\x0f\0\x08\0" + ip),
        (51, b"\x11\0\0\1\0\0\x21" + ip),
        (104, b"\x8f\0\x08\0" + ip),
        (166, b"\0\3\0\x21" + ip),
        (204, b"\1\xff\3\x21" + ip),
        (239, b"\2\0\0\0\x08\0\1\0\0\0\1\0\x40\0\x09\0" + ip),
    ]
    of_links += [(1, inner[:12] + octets) for octets in in_ethernet] + [(101, octets) for octets in in_ip]
    return [packed([(LINKS.index(link), octets)]) for link, octets in of_links]


def _flows() -> list[bytes]:
    def turn(which: int, begin: int, length: int, acked: int = 0, flags: int = 0x10) -> tuple[int, bytes]:
        return flags, bytes([which, begin >> 8, begin & 255, length // 4, acked >> 8, acked & 255])

    ordered = [turn(0, at, 100) for at in range(0, 1000, 100)] + [
        turn(2, 0, 40, 1000, 0x11),
        turn(0, 1000, 0, 40, 0x11),
    ]
    holes = [turn(0, at, 100) for at in (0, 300, 200, 600, 250, 100, 400)] + [turn(2, 0, 40, 900)] * 3
    overlap = [turn(1, at, 200, 0, 0x30) for at in (0, 50, 900, 700, 100, 3000)] + [turn(3, 0, 4, 3900, 0xD0)] * 4
    return [packed(ordered), packed(holes), packed(overlap)]


def _frames() -> list[bytes]:
    found = []
    for name in (
        *("app_jupyter", "app_majordomo_mdp01", "app_malamute", "zap_over_tcp"),
        *("app_majordomo_mdp02", "app_salt", "app_zgossip", "app_zre"),
    ):
        messages = list(zmtpsniff.open(FIXTURES / f"{name}.pcap", patterns=False, payload=False).messages())
        for start in range(0, min(len(messages), 12), 4):
            sent = []
            for event in messages[start : start + 4]:
                side = int(event.src < event.dst)
                whole = [frame for frame in event.frames if isinstance(frame, bytes)]
                sent += [(side | 0x80 * (place == len(whole)), frame[:300]) for place, frame in enumerate(whole, 1)]
            found.append(packed(sent))
    return [*found, *_made_frames()]


def _made_frames() -> Iterable[bytes]:
    """Messages that the fixtures lack: FileMQ, Bitcoin Core, XRAP, Dafka, logs of ZRE, events of key-value caches."""
    version = b"\2"
    tracker, second = (7).to_bytes(4, "big"), (7).to_bytes(8, "big")
    stored = ["BlockStored", [b"\1\2", 3], None, [1, 2, 3, 4], 4, None, "GPU", None, [None]]
    batch = msgspec.msgpack.encode([1.5, [stored, ["BlockRemoved", [3]], ["AllBlocksCleared"]], 0])
    tagged = msgspec.msgpack.encode([1.5, [{"type": "BlockRemoved", "block_hashes": [3], "medium": "CPU"}], None])
    for frames in (
        [b"\xaa\xa1\1" + version + b"\0\1" + b"\x0dtcp://1.2.3.4" + bytes(4) + b"\1\4name" + bytes(4)],
        [b"\xaa\xa1\4" + version + b"\0\2\5group", b"content"],
        [b"\xaa\xa0\1" + b"\0\1k\0\0\0\1v" + bytes(4)],
        [b"\xaa\xa3\1\6FILEMQ\0\2"],
        [b"\xaa\xa3\5\1/\1\x08RESYNC=1\0"],
        [b"\xaa\xa3\x08" + second + b"\1\5a.txt" + second + b"\1\0\0\0\0\0\0\0\3abc"],
        [b"\xaa\xa3\x08" + second + b"\2\5a.txt" + second + b"\0", b"abc"],
        [b"\xaa\xa3\3\5PLAIN", b"\0alice\0secret"],
        [b"hashblock", bytes(range(32)), b"\1\0\0\0"],
        [b"sequence", bytes(32) + b"C", b"\2\0\0\0"],
        [b"\x82\xa3enc\xa5clear\xa4load\x82\xa3cmd\xa5_auth\xa2id\xa1m"],
        [b"kv-events", second, batch],
        [b"", b"kv-events", second, tagged],
        [b"\xaa\xa5\1" + tracker + b"\2/a\4text" + b"\0\0\0\4body"],
        [b"\xaa\xa5\3" + tracker + b"\4/a/b" + struct.pack("!I", 1) + b"\1k\0\0\0\1v" + second + b"\0\4text"],
        [b"\xaa\xa5\4" + tracker + b"\0\xc8\1e" + second + b"\4text\0\0\0\4body" + bytes(4)],
        [b"\xaa\xa5\5" + tracker + b"\1\x30"],
        [b"\xaa\xa5\x0a" + tracker + b"\1\x94\4gone"],
        [b"Mtopic", b"\xaa\xa5M\1\4node\5topic" + second, b"tea"],
        [b"Ftopic", b"\xaa\xa5F\1\4node\5topic" + second + tracker],
        [b"Wnode", b"\xaa\xa5W\1\4node" + struct.pack("!II", 1, 5) + b"topic"],
        [b"\xaa\xa2\1\3\5\0\7\0\x08" + second + b"\4text"],
    ):
        yield packed([(0x80 * (place == len(frames)), frame) for place, frame in enumerate(frames, 1)])


def _protobuf() -> list[bytes]:
    """Messages of the kinds that Google's library ships with."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.struct_pb2 import Struct, Value

    described = FileDescriptorProto(name="market/trade.proto", package="market", dependency=["common/time.proto"])
    message = described.message_type.add(name="Trade")
    for number, name in enumerate(("symbol", "price", "size"), 1):
        message.field.add(name=name, number=number, label=1, type=9, json_name=name)
    some = Struct(fields={"name": Value(string_value="weather"), "ten": Value(number_value=10.5)})
    made = [described.SerializeToString(), some.SerializeToString(deterministic=True)]
    # By hand: varints of all lengths, fixed numbers, octets, a field again and again, a key of two octets.
    made.append(
        b"\x08\x96\1\x12\x07weather\x1d\0\0\x80\x3f\x21" + bytes(7) + b"\x40\x2a\3\xff\0\1"
        b"\x2a\2\xff\xff\x30" + b"\xff" * 9 + b"\1\x82\1\x04more"
    )
    return made


def _bodies() -> list[bytes]:
    value: Any = {"name": "x", "list": [1, 2.5, None, True, "two words"], "inner": {"deep": [[["text"]]]}}
    plain = msgspec.json.encode(value)
    return [
        plain,
        msgspec.msgpack.encode(value),
        cbor2.dumps(value),
        b"\xd9\xd9\xf7" + cbor2.dumps(value),
        gzip.compress(plain, mtime=0),
        zstd.compress(plain),
        gzip.compress(bytes(200_000), mtime=0),
        cbor2.dumps({"when": 1, "tag": cbor2.CBORTag(4711, b"\1"), "big": 1 << 80, "f": float("inf")}),
        b"[" * 500,
        *_protobuf(),
        gzip.compress(_protobuf()[0], mtime=0),
    ]


def _multicast() -> list[bytes]:
    chosen = [packet[2][42:] for packet in load(FIXTURES / "epgm_pub_sub.pcap")]
    return [packed((0, octets) for octets in chosen[start : start + 12]) for start in (0, 12, 40)]


def _radio() -> list[bytes]:
    return [packed((0, packet[2][42:]) for packet in load(FIXTURES / "draft_radio_dish_udp.pcap")[:20])]


def _zmtp3() -> list[bytes]:
    named = {
        b"NULL": ("m31_req_rep", "m31_pub_sub", "m31_heartbeat", "draft_radio_dish_tcp", "raw_sub_commands",
                  "bad_ready_truncated", "bad_reserved_flags"),
        b"PLAIN": ("sec_plain_ok_435_435", "rec_plain_wrong_password"),
        b"CURVE": ("sec_curve_ps_435_435",),
    }  # fmt: skip
    return [
        bytes([4 | MECHANISMS.index(mechanism)]) + _sent(talk, _GREETINGS[3])
        for mechanism, names in named.items()
        for talk in _talks(*names)
    ]


def _websocket() -> list[bytes]:
    found = []
    for name, choice in (("ws_plain", 1), ("ws_pub_sub", 4)):
        for talk in _talks(name):
            sent = [(piece.side, piece.data.partition(b"\r\n\r\n")[2] if piece.data[:4] in (b"GET ", b"HTTP") else
                     piece.data) for piece in talk.pieces]  # fmt: skip
            found.append(bytes([choice]) + packed(sent))
    return found


def _beacons(name: str, port: int | None = None) -> list[tuple[int, bytes]]:
    """Beacons of a capture as turns of a datagram each; ``port`` is the one that they shall name."""
    told = [packet[2][42:64] for packet in load(FIXTURES / name) if packet[2][42:45] == b"ZRE"]
    named = [octets if port is None else octets[:20] + port.to_bytes(2, "big") for octets in told]
    return [(4 | place & 1, octets) for place, octets in enumerate(dict.fromkeys(named))]


def _tls() -> list[bytes]:
    return [
        octets for name in ("rec_tls_1_2", "rec_tls_1_3") for octets in layer_seeds.tls(FIXTURES / f"{name}.pcapng")
    ]


def _upgrades() -> list[bytes]:
    made = [layer_seeds.compressed_websocket(takeover) for takeover in (True, False)]
    return [
        *(_sent(talk, 4) for talk in _talks("ws_plain")),
        *(packed([(0, sent[0][1][4:]), *sent[1:]]) for sent in made),
    ]


def _everything() -> list[bytes]:
    talks = _talks("m31_req_rep", "m31_pub_sub", "sec_plain_ok_435_435", "zap_over_tcp", "x_2111_xreq_xrep", "ws_plain")
    found = [_sent(talk, 0, 2) for talk in talks]
    compressed = [(side | 2, octets) for side, octets in layer_seeds.compressed_websocket(True)]
    zre = [packed(_beacons("app_zre.pcap", 5555)) + _sent(talk, 0, 2) for talk in _talks("app_zre")[:2]]
    return [*found, packed(compressed), packed(_beacons("app_zbeacon.pcap")), *zre]


def _curve_keys() -> list[bytes]:
    keys = [key for way in Curve().ways().values() for key in way]
    return [format_key(key).encode() for key in keys] + [b"# a comment\n\nCURVE_SHARED_KEY - - 00 # short\n"]


_RING = ((88, 0, 1), (88, 14, 65534), (0, 0, 772))  # of the ring: where the next is, a link header, the hardware


def _native() -> list[bytes]:
    found = []
    for name in (
        "m31_req_rep.pcap",
        "m31_ipv6.pcap",
        "m31_linux_sll2.pcap",
        "m31_pub_sub.pcap",
        "mix_link_types.pcapng",
    ):
        talk = load(FIXTURES / name)[8:30]
        plain = [(PLAIN_LINKS.index(link), octets) for _, link, octets, *_ in talk if link in PLAIN_LINKS]
        found += [bytes([PACKETS, facts]) + packed(plain) for facts in (0, 0x48)]
    sent = [
        (0x12, b"\0\5hello\1\1a\0\1b"),
        (0x13, b"\1\0\0\3one"),
        (0x12, b"\2" + (300).to_bytes(8, "big") + bytes(250)),
    ]
    found += [bytes([PAYLOADS, facts]) + packed([*sent, (0x12, bytes(60)), *sent]) for facts in (0, 0x20, 0x41, 0x51)]
    found += [bytes([FILES, 0]) + _capture(name, 900)[24:] for name in ("m31_req_rep.pcap", "m31_linux_sll2.pcap")]
    found += [bytes([FILES, 0]) + _capture("m31_pcapng_file.pcapng", 1500)[start:] for start in (0, 28, 48, 64)]
    ring = [struct.pack("=6IHH28xH30x", step, 7, 8, 20, 30, 0, 60, 60 + more, kind) for step, more, kind in _RING]
    found += [bytes([FILES, 24]) + b"".join(ring)]
    frames = [b"text", b'\\"\n', b"\0\xff", "\u00e9".encode(), b"", b"x" * 70]
    found += [bytes([COLUMNS, facts]) + packed((0, octets) for octets in frames) for facts in (0, 0x41)]
    return found


_SEEDS = {
    "native": _native,
    "pcap": lambda: _files("m31_req_rep.pcap", "net_snaplen96.pcap", "m31_linux_sll2.pcap"),
    "pcapng": lambda: _files("m31_pcapng_file.pcapng", "mix_link_types.pcapng"),
    "compressed": _compressed,
    "strace": lambda: [STRACE, *(line + b"\n" for line in STRACE.splitlines())],
    "headers": _headers,
    "headers_general": _headers,
    "fragments": lambda: [
        packed([(4, b"a" * 8), (8, b"b" * 8)]),
        packed([(12, b"c" * 24), (4, b"d" * 16), (0x20, b"")]),
    ],
    "flows": _flows,
    "tls": _tls,
    "greetings": lambda: [_sent(talk, 11) for talk in _talks("m31_req_rep", "sec_mismatch_null_curve")],
    "zmtp1": lambda: [_sent(talk, _GREETINGS[1]) for talk in _talks("x_2111_xreq_xrep")],
    "zmtp2": lambda: [b"\5\6" + _sent(talk, _GREETINGS[2]) for talk in _talks("x_325_to_435")],
    "zmtp3": _zmtp3,
    "halves": lambda: [
        bytes([choice]) + _sent(talk)
        for talk in _talks("m31_req_rep", "x_435_to_220", "x_2111_xreq_xrep", "net_zmtp1_gap", "bad_http_on_zmq_port")
        for choice in (0, 8)
    ],
    "websocket": _websocket,
    "deflate": lambda: [*layer_seeds.deflate()],
    "upgrades": _upgrades,
    "radio": _radio,
    "pgm": _multicast,
    "curve_keys": _curve_keys,
    "curve_plaintexts": lambda: [
        packed([(0, b"one"), (0x80, b"two")]),
        packed([(1, b""), (1, b"a"), (0, b"b"), (2, b"\4PING\0\1x"), (0x82, b"\4PONGx")]),
        packed([(0, b"\1topic"), (2, b"\x09SUBSCRIBEtopic"), (4, b"lost"), (0, b"c"), (8, b"damaged"), (0, b"d")]),
        packed([(2, b"\5READY\x0bSocket-Type\0\0\0\3REQ"), (2, b"\7MESSAGE"), (3, b"\5ERROR\1x")]),
    ],
    "payloads": _frames,
    "bodies": _bodies,
    "protobuf": _protobuf,
    "filters": lambda: [line.encode() for line in FILTERS.splitlines()],
    "policy": lambda: [text.encode() for text in POLICIES],
    "everything": _everything,
}
