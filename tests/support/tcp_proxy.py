"""Captures as if a TCP proxy stood between programs: each connection becomes two with the same octets."""

import struct
from collections.abc import Container, Iterable

from zmtpsniff.capture.block import Packet

PROXY = "10.9.250.1"
_ETHERNET, _TCP, _SYN, _SYN_ACK = 14, 6, 2, 18  # octets of a header; a protocol; flags
_TAKES_NS = 1_000  # to pass octets on: less than any program takes to answer
_OTHER_NUMBERS = 0x5A5A5A5A  # sequence numbers of the far connection are so much higher

_Socket = tuple[bytes, int]


def behind_proxy(packets: Iterable[Packet], servers: Container[str] | None = None) -> list[Packet]:
    """Packets of IPv4 in Ethernet, in the order of time; ``servers`` are the bound sockets behind the proxy, or all.

    The proxy has a port for each of them, and a port for each connection. It passes octets on in the same segments.
    """
    bound: set[_Socket] = set()
    fronts: dict[_Socket, int] = {}
    backs: dict[tuple[_Socket, _Socket], int] = {}
    proxy = bytes(map(int, PROXY.split(".")))
    made: list[Packet] = []
    for time_ns, link, frame, length, comment in packets:
        begin = _ETHERNET + (frame[_ETHERNET] & 15) * 4
        if frame[_ETHERNET] >> 4 != 4 or frame[_ETHERNET + 9] != _TCP:
            continue
        ports = struct.unpack_from(">HH", frame, begin)
        source, target = (frame[26:30], ports[0]), (frame[30:34], ports[1])
        if frame[begin + 13] & _SYN_ACK == _SYN:
            bound.add(target)
        server = target if target in bound else source
        name = f"{'.'.join(map(str, server[0]))}:{server[1]}"
        if server not in bound or not (servers is None or name in servers):
            made.append((time_ns, link, frame, length, comment))
            continue
        client = source if server is target else target
        front = fronts.setdefault(server, 5000 + len(fronts))
        back = backs.setdefault((client, server), 40000 + len(backs))
        near, far = (client, (proxy, front)), ((proxy, back), server)
        is_up = server is target
        for ends, later_ns, added in ((near, -_TAKES_NS if is_up else _TAKES_NS, 0), (far, 0, _OTHER_NUMBERS)):
            (src, sport), (dst, dport) = ends if is_up else ends[::-1]
            octets = bytearray(frame)
            octets[26:34] = src + dst
            numbers = struct.unpack_from(">II", frame, begin + 4)
            struct.pack_into(">HHII", octets, begin, sport, dport, *((one + added) & 0xFFFFFFFF for one in numbers))
            made.append((time_ns + later_ns, link, bytes(octets), length, comment))
    return sorted(made, key=lambda packet: packet[0])
