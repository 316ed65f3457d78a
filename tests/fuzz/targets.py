"""What is fuzzed: functions that take any octets and fail only if something is wrong with the program.

Each has a folder of its name in ``corpus/``. What is checked beside that nothing raises: cutting input differently
changes nothing, octets are delivered once and in order, memory stays within its bounds, output can be read again.
"""

import io
from collections.abc import Callable
from functools import cache
from typing import Any

from dissectors.beacon import Beacons, is_beacon
from dissectors.events import AnyEvent, Connection, Message, Problem
from dissectors.payloads.registry import built_in
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.datagrams import Multicast, Radio
from dissectors.zmtp.stream import Limits
from zmtpsniff.bodies import decode
from zmtpsniff.capture.source import Packet
from zmtpsniff.check.policy import PolicyError, parse_policy
from zmtpsniff.datagrams import DatagramTable
from zmtpsniff.filters import FilterError, compile_filter
from zmtpsniff.flows import Limits as FlowLimits
from zmtpsniff.patterns import Patterns
from zmtpsniff.payloads import Payloads
from zmtpsniff.pgm import parse_pgm
from zmtpsniff.segment import PGM, SYN, UDP
from zmtpsniff.sniffer import Sniffer
from zmtpsniff.stats import Statistics
from zmtpsniff.stats.draw import draw
from zmtpsniff.stats.report import report

from .below import LINKS, Source, compressed, flows, fragments, headers, headers_general, pcap, pcapng, strace
from .octets import packed, pieces, told, turns
from .shown import checked, is_safe, shown

Target = Callable[[bytes], None]
CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.2:5555"
SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
MECHANISMS = (b"NULL", b"PLAIN", b"CURVE", b"GSSAPI")


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


def _same_however_cut(opening: list[tuple[int, bytes]], data: bytes, problems: bool = True) -> None:
    """Any cutting of the octets of both sides gives the same events.

    Without ``problems`` that does not go for what is wrong, nor for anything if one side does not speak ZMTP: whether
    that is found before or after the other one has said more depends on how much of it is there.
    """
    sent = opening + [(mark & 1, octets) for mark, octets in turns(data)]
    events = _connection(sent, 0)
    if problems or not any(isinstance(event, Problem) and event.code == "not-zmtp" for event in events):
        assert told(_connection(sent, 1 + len(data)), problems) == told(events, problems)
    shown(_connection(sent, 0))


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
    opening = [
        (side, SIGNATURE + bytes([3, choice >> 2 & 1]) + mechanism + bytes([side]) + bytes(31)) for side in (0, 1)
    ]
    _same_however_cut(opening, data[1:])


def greetings(data: bytes) -> None:
    """How a connection begins, from the first octet on, a version of 3.x being named or not."""
    _same_however_cut([(0, SIGNATURE + b"\3")], data, problems=False)


def halves(data: bytes) -> None:
    """Both sides in turns, with holes, from any state: forced to a version, from the start or the middle."""
    choice = data[0] if data else 0
    forced = (None, 0, 1, 2, 3)[choice % 5]
    sent = list(turns(data[1:]))
    events = _connection(sent, choice >> 4, forced, bool(choice & 8), holes=True)
    shown(events)


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
    _same_however_cut([(0, b"GET ")], data, problems=False)


def radio(data: bytes) -> None:
    out: list[AnyEvent] = []
    dissection = Radio(out, 1, CLIENT, SERVER)
    for number, (mark, octets) in enumerate(turns(data), 1):
        dissection.datagram(octets, mark & 3, number, number)
    dissection.finish("open", 0, 1)
    shown(out)


def pgm(data: bytes) -> None:
    """PGM packets of one sender: each turn is one, whose checksum is made right."""
    out: list[AnyEvent] = []
    numbers = iter(range(1, 1 << 30))

    def listen(number: int, transport: Any, src: Any, dst: Any) -> Any:
        if transport not in ("pgm", "epgm"):
            return Beacons(out, number, src.text, dst.text)
        return Multicast(out, number, transport, src.text, dst.text, Limits(), forced=True)

    table = DatagramTable(listen, lambda: next(numbers), lambda *_: False, is_beacon, FlowLimits(4000, 8000, 4))
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
    shown(out)


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
    shown(found, ("summary", "tree"))


def bodies(data: bytes) -> None:
    """JSON, MessagePack and CBOR, compressed or not, and how what is in them is shown."""
    found = decode(data, 1 << 16)
    if found is None:
        return
    from dissectors.events import Body

    event = Message(1, 1, 1, CLIENT, SERVER, [data])
    event.bodies = [Body(0, *found)]
    shown([event], ("summary", "tree"))


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
        is_safe(str(error), lines=1)
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
        is_safe(str(error), lines=1)
        return
    checked(_samples(), rules)


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
    shown(events, ("summary", "tree", "dump"))
    statistics = Statistics()
    statistics.take(events)
    table = io.StringIO()
    draw(report(statistics), table, utc=True, color="never")
    is_safe(table.getvalue())
    checked(events, _RULES)


_RULES = parse_policy('include = ["protocol", "secure", "complete"]', "policy.toml")


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        pcap, pcapng, compressed, strace, headers, headers_general, fragments, flows, greetings, zmtp1, zmtp2, zmtp3,
        halves, websocket, upgrades, radio, pgm, payloads, bodies, filters, policy, everything,
    )
}  # fmt: skip
"""Every target by its name."""

__all__ = ["CLIENT", "LINKS", "MECHANISMS", "SERVER", "SIGNATURE", "TARGETS", "packed"]
