"""The fuzz targets: functions that take any octets and fail only if something is wrong with the program.

Each has a folder of its name in ``corpus/``. The targets check more than that nothing raises: cutting input differently
changes nothing, octets are delivered once and in order, memory stays within its bounds, output can be read again.
"""

import io
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from dissectors.events import AnyEvent, Message, Problem
from dissectors.payloads import PayloadConnection
from dissectors.payloads.registry import built_in
from tests.world.events import CLIENT, SERVER
from tests.world.network import tcp_packet
from tests.world.octets import SIGNATURE
from tests.world.tap import Packets
from zmtpsniff.analysis import protobuf as proto
from zmtpsniff.analysis.bodies import decode
from zmtpsniff.analysis.payloads import Payloads
from zmtpsniff.analysis.statistics.record_maker import report
from zmtpsniff.analysis.statistics.statistics import Statistics
from zmtpsniff.capture.block import Packet
from zmtpsniff.check.policy import PolicyError, parse_policy
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Sniffer
from zmtpsniff.filters import FilterError, compile_filter
from zmtpsniff.net.segment import SYN
from zmtpsniff.render.statistics_tables import draw

from .below import compressed, flows, fragments, headers, headers_general, pcap, pcapng, strace
from .connections import (
    converse,
    greetings,
    halves,
    pgm,
    radio,
    upgrades,
    websocket,
    zmtp1,
    zmtp2,
    zmtp3,
)
from .curve import curve_keys, curve_plaintexts
from .layers import deflate, tls
from .native import native
from .octets import turns
from .output import checked, is_safe, shown

Target = Callable[[bytes], None]

# ------------------------------------------------------------------ what is in messages


def messages(data: bytes) -> list[AnyEvent]:
    """Messages whose frames are the turns; a mark's highest bit ends one, the lowest is the sender."""
    frames: list[Any] = []
    events: list[AnyEvent] = []
    for number, (mark, octets) in enumerate(turns(data), 1):
        frames.append(octets)
        if mark & 0x80:
            src, dst = (CLIENT, SERVER) if mark & 1 else (SERVER, CLIENT)
            events.append(Message(number, number, 1, src, dst, frames))
            frames = []
    return events


def payloads(data: bytes) -> None:
    """Payload protocols in messages of applications."""
    events = messages(data)
    found = Payloads(built_in(), bodies=None).take(events)
    assert not [event for event in found if isinstance(event, Problem)], "a built-in dissector failed"
    # Each dissector also gets what others are more certain of.
    for dissector in built_in():
        connection = PayloadConnection(2, CLIENT, SERVER)
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


def protobuf(data: bytes) -> None:
    """A value taken for a message of Protocol Buffers is one, and has the fields that Google's library finds in it."""
    found = proto.decode(data)
    if found is None:
        return
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    expected: dict[str, list[Any]] = {}
    unknown = UnknownFieldSet(Empty.FromString(data))
    for place in range(len(unknown)):
        field = unknown[place]
        expected.setdefault(str(field.field_number), []).append(field)
    assert found.keys() == expected.keys()
    for name, fields in expected.items():
        values = found[name] if len(fields) > 1 else [found[name]]
        assert len(values) == len(fields)
        for value, field in zip(values, fields, strict=True):
            if field.wire_type == 0:
                assert value == field.data
            elif isinstance(value, str):
                assert value.encode() == field.data


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
        out += converse([*opening, (0, b"\0\5hello\1\0\0\1\xff" + identity), (1, b"\4\7\4PING\0\1\4\5\5ERROR")], 0)
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
    """Packets of Ethernet from first to last, through all that looks at events and all that shows them."""
    packets = conversation_packets(turns(data))
    sniffer = Sniffer(Packets(packets, 3), Settings(reply_seconds=0.005))
    events = [event for some in sniffer.events() for event in some]
    shown(events, ("summary", "tree", "dump"))
    statistics = Statistics()
    statistics.take(events)
    table = io.StringIO()
    draw(report(statistics), table, utc=True, color="never")
    is_safe(table.getvalue())
    checked(events, _RULES)


def conversation_packets(said: Iterable[tuple[int, bytes]]) -> list[Packet]:
    """Packets of Ethernet: a handshake of TCP, then a packet for each turn.

    Bit 0 of a mark is the side. A turn whose mark has bit 2 is a datagram of UDP, as beacons are; any other is a TCP
    segment of one connection, which the capture lacks unless bit 1 is set.
    """
    packets: list[Packet] = []
    sent = [0, 0]
    for number, (mark, octets) in enumerate([(0x12, b""), (0x13, b""), *said]):
        side = mark & 1
        hosts, ports = (b"\x0a\0\0\1", b"\x0a\0\0\2"), (40_000, 5555)
        if side:
            hosts, ports = hosts[::-1], ports[::-1]
        if mark & 4 and number > 1:
            packets.append((number * 1_000_000, 1, _datagram(hosts[0], octets), 42 + len(octets), None))
            continue
        opens = number < 2
        flags = SYN | side << 4 if opens else 0x18
        packet = tcp_packet(hosts, ports, (1000 + sent[side], 1000 + sent[1 - side]), flags, octets)
        sent[side] += len(octets) + opens
        if mark & 2 or opens:  # else it is lost
            packets.append((number * 1_000_000, 1, packet, len(packet), None))
    return packets


def _datagram(source: bytes, octets: bytes) -> bytes:
    """A packet of Ethernet, to everybody and on the port of beacons."""
    udp = b"\x16\x26\x16\x26" + (8 + len(octets)).to_bytes(2, "big") + b"\0\0"
    ip = b"\x45\0" + (28 + len(octets)).to_bytes(2, "big") + b"\0\0\x40\0\x40\x11\0\0" + source
    return bytes(12) + b"\x08\0" + ip + b"\x0a\0\0\xff" + udp + octets


_RULES = parse_policy('include = ["protocol", "secure", "complete"]', "policy.toml")


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        pcap, pcapng, compressed, strace, headers, headers_general, fragments, flows, tls, greetings, zmtp1, zmtp2,
        zmtp3, halves, websocket, deflate, upgrades, radio, pgm, curve_keys, curve_plaintexts, payloads, bodies,
        protobuf, filters, policy, everything, native,
    )
}  # fmt: skip
"""Every target by its name."""
