"""Targets of connections: what two sides say in each version of ZMTP, over TCP, WebSocket, UDP and PGM."""

from typing import Any

from dissectors.beacon import Beacons, is_beacon
from dissectors.events import AnyEvent, Connection, Message, Problem
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.datagrams import Multicast, Radio
from dissectors.zmtp.limits import Limits
from tests.support.footprint import reachable
from tests.world.events import CLIENT, SERVER
from tests.world.octets import SIGNATURE
from zmtpsniff.net.datagram_table import DatagramTable
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.pgm import Order, parse_pgm
from zmtpsniff.net.segment import PGM, UDP

from .octets import pieces, told, turns
from .output import shown

MECHANISMS = (b"NULL", b"PLAIN", b"CURVE", b"GSSAPI")


def converse(
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
            assert half.buffer.held <= 1 << 18
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


def said(data: bytes) -> list[tuple[int, bytes]]:
    """The turns of an input, of whose marks only the side counts."""
    return [(mark & 1, octets) for mark, octets in turns(data)]


def same_however_cut(sent: list[tuple[int, bytes]], seed: int, problems: bool = True) -> None:
    """Any cutting of the octets of both sides gives the same events.

    Without ``problems`` that does not go for what is wrong, nor for anything if one side does not speak ZMTP: whether
    that is found before or after the other one has said more depends on how much of it is there.
    """
    events = converse(sent, 0)
    if problems or not any(isinstance(event, Problem) and event.code == "not-zmtp" for event in events):
        assert told(converse(sent, 1 + seed), problems) == told(events, problems)
    shown(converse(sent, 0))


def zmtp1(data: bytes) -> None:
    # Both sides begin with an identity and enough frames to be certain.
    opening = [(side, b"\1\0" + b"\2\0a" * 6) for side in (0, 1)]
    same_however_cut(opening + said(data), len(data))


def zmtp2(data: bytes) -> None:
    kinds = data[:2].ljust(2, b"\0")
    opening = [(side, SIGNATURE + bytes([1, kinds[side] % 12, 0, 0])) for side in (0, 1)]
    same_however_cut(opening + said(data[2:]), len(data))


def zmtp3(data: bytes) -> None:
    """All mechanisms, from the handshake on; the first octet says which."""
    choice = data[0] if data else 0
    mechanism = MECHANISMS[choice % 4].ljust(20, b"\0")
    opening = [
        (side, SIGNATURE + bytes([3, choice >> 2 & 1]) + mechanism + bytes([side]) + bytes(31)) for side in (0, 1)
    ]
    same_however_cut(opening + said(data[1:]), len(data))


def greetings(data: bytes) -> None:
    """How a connection begins, from the first octet on, a version of 3.x being named or not."""
    same_however_cut([(0, SIGNATURE + b"\3"), *said(data)], len(data), problems=False)


def halves(data: bytes) -> None:
    """Both sides in turns, with holes, from any state: forced to a version, from the start or the middle."""
    choice = data[0] if data else 0
    forced = (None, 0, 1, 2, 3)[choice % 5]
    sent = list(turns(data[1:]))
    events = converse(sent, choice >> 4, forced, bool(choice & 8), holes=True)
    shown(events)


def upgrade(protocol: bytes, extensions: bytes = b"") -> list[tuple[int, bytes]]:
    """The heads of both sides of a WebSocket connection."""
    agreed = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: " + protocol + b"\r\n"
    if extensions:
        agreed += b"Sec-WebSocket-Extensions: " + extensions + b"\r\n"
    key = b"Sec-WebSocket-Key: aZg85FHcsPRKlOgqKR+Oow==\r\n"
    return [
        (0, b"GET / HTTP/1.1\r\nHost: a\r\n" + key + agreed + b"\r\n"),
        (1, b"HTTP/1.1 101 Switching Protocols\r\n" + agreed + b"\r\n"),
    ]


def websocket(data: bytes) -> None:
    """After the upgrade, whose protocol the first octet says."""
    protocol = b"ZWS2.0" if data[:1] == b"\0" else b"ZWS2.0/" + MECHANISMS[(data[0] if data else 0) % 4]
    same_however_cut(upgrade(protocol) + said(data[1:]), len(data))


def upgrades(data: bytes) -> None:
    """The head of HTTP itself."""
    same_however_cut([(0, b"GET "), *said(data)], len(data), problems=False)


def radio(data: bytes) -> None:
    out: list[AnyEvent] = []
    dissection = Radio(out, 1, CLIENT, SERVER, Limits())
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
        return Multicast(out, number, transport, src.text, dst.text, Limits(), accepted=True)

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
        assert all(one.waiting_octets <= 4000 for one in reachable(table) if isinstance(one, Order))
    table.finish()
    shown(out)
