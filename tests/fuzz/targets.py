"""What is fuzzed: functions that take any octets and fail only if something is wrong with the program.

Each has a folder of its name in ``corpus/``. What is checked beside that nothing raises: cutting input differently
changes nothing, octets are delivered once and in order, memory stays within its bounds, output can be read again.
"""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from dissectors.events import AnyEvent, Connection, Message, Problem
from dissectors.payloads.registry import built_in
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.datagrams import Multicast, Radio
from dissectors.zmtp.stream import Limits
from zmtpsniff.bodies import decode
from zmtpsniff.capture.files import open_stream
from zmtpsniff.capture.source import CaptureError, Fault, Packet
from zmtpsniff.check.model import Rule
from zmtpsniff.check.policy import PolicyError, parse_policy
from zmtpsniff.check.report import FORMATS, Report, make_report
from zmtpsniff.check.rules import Check
from zmtpsniff.datagrams import DatagramTable
from zmtpsniff.filters import FilterError, compile_filter
from zmtpsniff.flows import FlowTable
from zmtpsniff.flows import Limits as FlowLimits
from zmtpsniff.fragments import Fragments
from zmtpsniff.packets import RAW, HeaderDecoder
from zmtpsniff.patterns import Patterns
from zmtpsniff.payloads import Payloads
from zmtpsniff.pgm import parse_pgm
from zmtpsniff.render import make_renderer
from zmtpsniff.render.text import CONTROL_OR_UNSEEN
from zmtpsniff.segment import FIN, PGM, SYN, UDP
from zmtpsniff.sniffer import Sniffer
from zmtpsniff.stats import Statistics
from zmtpsniff.stats.draw import draw
from zmtpsniff.stats.report import report

from .octets import packed, pieces, told, turns

Target = Callable[[bytes], None]
CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.2:5555"
SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
LINKS = (0, 1, 12, 101, 108, 113, 147, 276, 9999)
MECHANISMS = (b"NULL", b"PLAIN", b"CURVE", b"GSSAPI")
_MOST_PACKETS = 5_000  # of an input that decompresses to very many


class Source:
    """Packets that are at hand, or those of a file."""

    def __init__(self) -> None:
        self.dropped = 0
        self.faults: list[Fault] = []
        self.comments: list[str] = []
        self.given: Iterator[list[Packet]] = iter(())

    def batches(self) -> Iterator[list[Packet]]:
        yield from self.given


# ------------------------------------------------------------------ files


def _read(chunks: Iterator[bytes]) -> tuple[list[Packet], list[Fault], list[str], int] | str:
    """All that a file holds, or why it is no capture."""
    source = Source()
    packets: list[Packet] = []
    try:
        for batch in open_stream("input", chunks, source):
            packets += batch
            if len(packets) > _MOST_PACKETS:
                break
    except CaptureError as error:
        assert "\n" not in str(error)
        return str(error)
    return packets[:_MOST_PACKETS], source.faults, source.comments, source.dropped


def _file(data: bytes) -> None:
    """A capture file is the same in one piece and in many, and what is wrong with it is said at the same place."""
    whole = _read(iter([data] if data else []))
    again = _read(pieces(data, 1 + len(data)))
    if isinstance(whole, str):
        assert isinstance(again, str)  # what it looks like depends on how much of it is there
        return
    assert whole == again
    for time_ns, _, octets, _, _ in whole[0]:
        assert isinstance(time_ns, int)
        assert len(octets) <= len(data) * 1100


def pcap(data: bytes) -> None:
    _file(data)


def pcapng(data: bytes) -> None:
    _file(data)


def compressed(data: bytes) -> None:
    """gzip, xz and zstd: whatever is wrong, and however little of it gives how much."""
    whole = _read(iter([data] if data else []))
    again = _read(pieces(data, 3))
    # Where damage shows may depend on how much the library is given at once, what was good before it may not.
    if isinstance(whole, str) or isinstance(again, str):
        return
    least = min(len(whole[0]), len(again[0]))
    assert whole[0][:least] == again[0][:least]


def strace(data: bytes) -> None:
    _file(b"1 0.000000 read(" + data)


# ------------------------------------------------------------------ packets


def headers(data: bytes) -> None:
    """Packets of any link type, with fragments and tunnels; the mark says which."""
    decoder = HeaderDecoder()
    packets: list[Packet] = [
        (number * 1000, LINKS[mark % len(LINKS)], octets, len(octets) + (mark >> 5), None)
        for number, (mark, octets) in enumerate(turns(data))
    ]
    segments = decoder.segments(packets, 1)
    one_by_one = HeaderDecoder()
    singly = [
        segment for number, packet in enumerate(packets, 1) for segment in one_by_one.segments([packet], number)
    ]
    assert segments == singly
    for _, number, key, seq, ack, flags, payload, missing in segments:
        assert 1 <= number <= len(packets)
        assert len(key) in (12, 20, 36)
        assert 0 <= seq < 1 << 32
        assert 0 <= ack < 1 << 32
        assert 0 <= flags < 256
        assert missing >= 0
        assert len(payload) <= sum(len(packet[2]) for packet in packets)
    for _, _, protocol, key, _, missing in decoder.datagrams:
        assert protocol in (UDP, PGM)
        assert len(key) in (12, 36)
        assert missing >= 0
    decoder.skipped()


def headers_general(data: bytes) -> None:
    """What the quick way through the headers makes of a packet, the general way makes of it, too."""
    for number, (mark, octets) in enumerate(turns(data)):
        link = LINKS[mark % len(LINKS)]
        packet: Packet = (number, link, octets, len(octets), None)
        quick, general = HeaderDecoder(), HeaderDecoder()
        found = quick.segments([packet], 1)
        expected = general._general(number, 1, link, octets, len(octets))
        assert found == ([] if expected is None else [expected]) or link not in (1, 113, 276, *RAW)


def fragments(data: bytes) -> None:
    """Fragments in any order and overlap: what comes out is as long as it says, what is held stays bounded."""
    most = 4000
    held = Fragments(4, most)
    for number, (mark, octets) in enumerate(turns(data)):
        if not octets:
            continue
        start = (mark >> 3 & 0xF) * 8
        whole = held.add((mark & 3,), number * (1 + (mark >> 7) * 10**10), 6, start, octets, len(octets), bool(mark & 4))
        assert held._held <= most
        assert len(held._pending) <= 4
        if whole is not None:
            protocol, payload, length = whole
            assert len(payload) == length
            assert protocol in (6, -1)
    for key in list(held._pending):
        held._forget(key)
    assert held._held == 0


class _Ear:
    """Hears one direction, and holds what it is told against what was sent."""

    def __init__(self) -> None:
        self.octets = 0

    def feed(self, data: bytes, time_ns: int, packet: int) -> None:
        assert data
        for octet in data:  # each octet says at which place of the stream it is
            assert octet == self.octets % 251
            self.octets += 1

    def gap(self, length: int, cut: bool, time_ns: int, packet: int) -> None:
        assert length > 0
        self.octets += length

    def absent(self, time_ns: int, packet: int) -> None:
        """Nothing of this direction is captured."""

    def conflict(self, offset: int, length: int, time_ns: int, packet: int) -> None:
        raise AssertionError("no segment was sent with other octets")


class _Talk:
    """A dissection that only listens."""

    def __init__(self) -> None:
        self.client, self.server = _Ear(), _Ear()
        self.rejected = False

    def finish(self, end: str, start_ns: int, end_ns: int) -> None:
        """Nothing is left to do."""

    def release(self) -> None:
        """Nothing refers back to it."""


def flows(data: bytes) -> None:
    """Segments of two connections in any order: octets come once, in order, and holes are as long as they are.

    A turn's mark is flags, its first octets say which connection and side, and which part of the stream is sent.
    """
    keys = [b"\x0a\0\0\1\x0a\0\0\2" + ports for ports in (b"\x9c\x40\x15\xb3", b"\x9c\x41\x15\xb3")]
    keys += [key[4:8] + key[:4] + key[10:12] + key[8:10] for key in keys]
    talks: list[_Talk] = []

    def connect(*_: Any) -> _Talk:
        talks.append(_Talk())
        return talks[-1]

    limits = FlowLimits(3000, 5000, 10, 100.0, 50.0, 1.0)
    table = FlowTable(connect, limits)
    now = 1
    # Every stream begins at a SYN with a number of its own, so that what an octet must be is known.
    for number, key in enumerate(keys):
        table.take([(now, 1, key, _first(number), 0, SYN, b"", 0)])
    for packet, (mark, octets) in enumerate(turns(data), 2):
        if len(octets) < 4:
            continue
        which = octets[0] & 3
        begin = int.from_bytes(octets[1:3], "big") % 4000
        length = octets[3] * 4
        acked = int.from_bytes(octets[4:6], "big") % 5000
        missing = length // 2 if mark & 0x20 else 0
        now += (mark >> 6) * 40_000_000
        stream = bytes(place % 251 for place in range(begin, begin + length - missing))
        seq = (_first(which) + 1 + begin) % 2**32
        ack = (_first(which ^ 2) + 1 + acked) % 2**32
        table.take([(now, packet, keys[which], seq, ack, mark & (0x10 | FIN), stream, missing)])
        # A segment may be longer than what is left of the bound, but it is dealt with at once.
        assert table.waiting_octets <= 5000 + 1500
        for flow in table._flows.values():
            for direction in (flow.client, flow.server):
                held = direction.waiting
                assert all(one.end <= other.offset for one, other in pairwise(held)), "what waits overlaps"
                assert sum(len(one.payload) + 256 for one in held) == direction.waiting_octets
    table.finish()
    assert table.waiting_octets == 0


def _first(which: int) -> int:
    """The initial sequence number of a direction; that of the second connection wraps."""
    return 0xFFFF_FF00 if which & 1 else 1000


# ------------------------------------------------------------------ connections


def _connection(
    sent: list[tuple[int, bytes]], seed: int, forced: int | None = None, from_start: bool = True, holes: bool = False
) -> list[AnyEvent]:
    """The events of what two sides send; bit 0 of a mark is the side, bit 1 says that octets are missing instead."""
    out: list[AnyEvent] = []
    connection = ZmtpConnection(out, 1, CLIENT, SERVER, (from_start, from_start), Limits(), forced)
    given = [0, 0]
    for number, (mark, octets) in enumerate(sent, 1):
        side = mark & 1
        half = connection.halves[side]
        if not octets:
            continue
        for piece in [octets] if not seed else pieces(octets, seed):
            if connection.rejected:
                break
            given[side] += len(piece)
            if holes and mark & 2:
                half.gap(len(piece), bool(mark & 4), number, number)
            else:
                half.feed(piece, number, number)
            assert half._held <= 1 << 18
    connection.finish("fin", 0, len(sent) + 1)
    connection.release()
    if out:
        summary = [event for event in out if isinstance(event, Connection)]
        assert len(summary) == 1
        assert (summary[0].octets.client, summary[0].octets.server) == tuple(given)
        count = [0, 0]
        for event in out:
            if isinstance(event, Message):
                count[event.src == SERVER] += 1
        assert [summary[0].messages.client, summary[0].messages.server] == count
    return out


def _same_however_cut(opening: list[tuple[int, bytes]], data: bytes, marks: int = 1) -> None:
    """Any cutting of the octets of both sides gives the same events."""
    sent = opening + [(mark & marks, octets) for mark, octets in turns(data)]
    whole = told(_connection(sent, 0))
    assert told(_connection(sent, 1 + len(data))) == whole
    _shown(_connection(sent, 0))


def zmtp1(data: bytes) -> None:
    # Both sides begin with an identity and enough frames to be certain.
    opening = [(side, b"\1\0" + b"\2\0a" * 6) for side in (0, 1)]
    _same_however_cut(opening, data)


def zmtp2(data: bytes) -> None:
    kinds = data[:2].ljust(2, b"\0")
    opening = [(side, SIGNATURE + bytes([1, kinds[side] % 12, 0, 0])) for side in (0, 1)]
    _same_however_cut(opening, data[2:])


def zmtp3(data: bytes) -> None:
    """All mechanisms, from the handshake on; the first octet says which."""
    choice = data[0] if data else 0
    mechanism = MECHANISMS[choice % 4].ljust(20, b"\0")
    opening = [(side, SIGNATURE + bytes([3, choice >> 2 & 1]) + mechanism + bytes([side]) + bytes(31)) for side in (0, 1)]
    _same_however_cut(opening, data[1:])


def greetings(data: bytes) -> None:
    """How a connection begins, from the first octet on, a version of 3.x being named or not."""
    _same_however_cut([(0, SIGNATURE + b"\3")], data)


def halves(data: bytes) -> None:
    """Both sides in turns, with holes, from any state: forced to a version, from the start or the middle."""
    choice = data[0] if data else 0
    forced = (None, 0, 1, 2, 3)[choice % 5]
    sent = list(turns(data[1:]))
    events = _connection(sent, choice >> 4, forced, bool(choice & 8), holes=True)
    _shown(events)


def websocket(data: bytes) -> None:
    """After the upgrade, whose protocol the first octet says."""
    protocol = b"ZWS2.0" if data[:1] == b"\0" else b"ZWS2.0/" + MECHANISMS[(data[0] if data else 0) % 4]
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: " + protocol + b"\r\n\r\n"
    opening = [
        (0, b"GET / HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key: aZg85FHcsPRKlOgqKR+Oow==\r\n" + upgrade),
        (1, b"HTTP/1.1 101 Switching Protocols\r\n" + upgrade),
    ]
    _same_however_cut(opening, data[1:])


def upgrades(data: bytes) -> None:
    """The head of HTTP itself."""
    _same_however_cut([(0, b"GET ")], data)


def radio(data: bytes) -> None:
    out: list[AnyEvent] = []
    dissection = Radio(out, 1, CLIENT, SERVER)
    for number, (mark, octets) in enumerate(turns(data), 1):
        dissection.datagram(octets, mark & 3, number, number)
    dissection.finish("open", 0, 1)
    _shown(out)


def pgm(data: bytes) -> None:
    """PGM packets of one sender: each turn is one, whose checksum is made right."""
    out: list[AnyEvent] = []
    numbers = iter(range(1, 1 << 30))

    def listen(number: int, transport: Any, src: Any, dst: Any) -> Multicast:
        return Multicast(out, number, transport, src.text, dst.text, Limits(), forced=True)

    table = DatagramTable(listen, lambda: next(numbers), lambda *_: False, FlowLimits(4000, 8000, 4))
    now = 1
    for packet, (mark, octets) in enumerate(turns(data), 1):
        now += (mark >> 4) * 1_000_000_000
        bare = octets[:6] + b"\0\0" + octets[8:]
        total = int.from_bytes(bare + b"\0" * (len(bare) % 2), "big") % 0xFFFF
        summed = bare[:6] + (0xFFFF - total).to_bytes(2, "big") + bare[8:]
        protocol = PGM if mark & 1 else UDP
        parse_pgm(octets, False)
        table.take((now, packet, protocol, b"\x0a\0\0\1\xef\0\0\1" + summed[:4].ljust(4, b"\0"), summed, mark >> 2 & 1))
        assert all(sender.order.waiting_octets <= 4000 for sender in table._senders.values())
    table.finish()
    _shown(out)


# ------------------------------------------------------------------ what is in messages


def payloads(data: bytes) -> None:
    """Messages whose frames are the turns; a mark's highest bit ends one, the lowest is the sender."""
    frames: list[Any] = []
    events: list[AnyEvent] = []
    for number, (mark, octets) in enumerate(turns(data), 1):
        frames.append(octets)
        if mark & 0x80:
            src, dst = (CLIENT, SERVER) if mark & 1 else (SERVER, CLIENT)
            events.append(Message(number, number, 1, src, dst, frames))
            frames = []
    known = Payloads(built_in(), bodies=None)
    found = known.take(events)
    assert not [event for event in found if isinstance(event, Problem)], "a built-in dissector failed"
    # Each dissector also gets what others are more certain of.
    for dissector in built_in():
        connection = known._begin(Message(0, 0, 2, CLIENT, SERVER, [])).connection
        for event in events:
            if isinstance(event, Message) and dissector.match(event, connection):
                connection.state = {}
                dissector.dissect(event, connection)
    _shown(found, ("summary", "tree"))


def bodies(data: bytes) -> None:
    """JSON, MessagePack and CBOR, compressed or not, and how what is in them is shown."""
    found = decode(data, 1 << 16)
    if found is None:
        return
    from dissectors.events import Body

    event = Message(1, 1, 1, CLIENT, SERVER, [data])
    event.bodies = [Body(0, *found)]
    _shown([event], ("summary", "tree"))


# ------------------------------------------------------------------ what users write


@cache
def _samples() -> list[AnyEvent]:
    """Events of every kind, from a conversation of each version."""
    out: list[AnyEvent] = []
    identity = b"\1\5\0\0\0\1a"
    ready = b"\4\x26\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0"
    for opening in (
        [(side, SIGNATURE + b"\3\1NULL" + bytes(48) + ready) for side in (0, 1)],
        [(side, SIGNATURE + b"\1\5\0\0") for side in (0, 1)],
        [(side, b"\1\0" + b"\2\0a" * 6) for side in (0, 1)],
    ):
        out += _connection([*opening, (0, b"\0\5hello\1\0\0\1\xff" + identity), (1, b"\4\7\4PING\0\1\4\5\5ERROR")], 0)
    return out


def filters(data: bytes) -> None:
    """A display filter: one line says what is wrong with it, else it says of every event whether it passes."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        passes = compile_filter(text)
    except FilterError as error:
        assert str(error)
        return
    for event in _samples():
        assert passes(event) in (True, False)


def policy(data: bytes) -> None:
    """A policy: one line says what is wrong with it, else it is held against events and reported in all formats."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    try:
        rules = parse_policy(text, "policy.toml")
    except PolicyError as error:
        assert "\n" not in str(error)
        return
    _checked(_samples(), rules)


def _checked(events: list[AnyEvent], rules: list[Rule]) -> None:
    check = Check(rules)
    check.take(events)
    outcomes = check.finish()
    for output in FORMATS:
        text = make_report(output)(Report(outcomes, ["a.pcap"], "a.pcap", "0", check.totals))
        _is_safe(text)
        if output in ("json", "sarif"):
            json.loads(text)


# ------------------------------------------------------------------ everything


def everything(data: bytes) -> None:
    """Packets of Ethernet from first to last, through all that looks at events and all that shows them.

    Each turn is a TCP segment of one connection, so that what is varied is what two peers say.
    """
    packets: list[Packet] = []
    sent = [0, 0]
    for number, (mark, octets) in enumerate([(0x12, b""), (0x13, b""), *turns(data)]):
        side = mark & 1
        hosts = (b"\x0a\0\0\1", b"\x0a\0\0\2")[:: -1 if side else 1]
        ports = (b"\x9c\x40", b"\x15\xb3")[:: -1 if side else 1]
        opens = number < 2
        flags = SYN | side << 4 if opens else 0x18
        tcp = b"".join([*ports, (1000 + sent[side]).to_bytes(4, "big"), (1000 + sent[1 - side]).to_bytes(4, "big")])
        tcp += bytes([0x50, flags, 1, 0, 0, 0, 0, 0])
        ip = b"\x45\0" + (40 + len(octets)).to_bytes(2, "big") + b"\0\0\x40\0\x40\6\0\0" + hosts[0] + hosts[1]
        sent[side] += len(octets) + opens
        if mark & 2 or opens:  # else it is lost
            packets.append((number * 1_000_000, 1, bytes(12) + b"\x08\0" + ip + tcp + octets, 54 + len(octets), None))
    source = Source()
    source.given = iter([packets[:3], packets[3:]])
    sniffer = Sniffer(source, patterns=Patterns(0.005), payloads=Payloads(built_in()))
    events = [event for some in sniffer.events() for event in some]
    _shown(events, ("summary", "tree", "dump"))
    statistics = Statistics()
    statistics.take(events)
    table = io.StringIO()
    draw(report(statistics), table, utc=True, color="never")
    _is_safe(table.getvalue())
    _checked(events, _RULES)


_RULES = parse_policy('include = ["protocol", "secure", "complete"]', "policy.toml")


def _shown(events: list[AnyEvent], formats: Sequence[Any] = ("summary",)) -> None:
    """In JSON and these formats: JSON can be read again, and nothing that a terminal acts on is in what is for people."""
    lines = io.BytesIO()
    renderer = make_renderer("json", lines)
    renderer.write(events)
    for line in lines.getvalue().decode().splitlines():
        json.loads(line)
    for output in formats:
        text = io.StringIO()
        shown = make_renderer(output, text, verbosity=1, utc=True, color="never")
        shown.write(events)
        shown.close()
        _is_safe(text.getvalue())


def _is_safe(text: str) -> None:
    for line in text.split("\n"):
        assert CONTROL_OR_UNSEEN.search(line) is None, repr(line)
    text.encode()


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        pcap, pcapng, compressed, strace, headers, headers_general, fragments, flows, greetings, zmtp1, zmtp2, zmtp3,
        halves, websocket, upgrades, radio, pgm, payloads, bodies, filters, policy, everything,
    )
}  # fmt: skip
"""Every target by its name."""

__all__ = ["CLIENT", "LINKS", "MECHANISMS", "SERVER", "SIGNATURE", "TARGETS", "packed"]
