"""The captures of several hosts with NAT between them: each host has the addresses and the clock of its side."""

import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.world.tap import load, save
from zmtpsniff.capture.block import Packet

_ETHERNET, _TCP = 14, 6  # octets of a header; a protocol
_WAY_NS = 5_000  # from a host to the capture point, or back
GATEWAY = "10.99.0.1"
End = tuple[bytes, int]


def service_of(host: str) -> str:
    """The address at which clients reach a host."""
    return host.replace("10.9.", "10.96.", 1)


def hosts_of(capture: Path) -> list[str]:
    """The hosts of a capture."""
    return sorted({socket.inet_ntoa(packet[2][at : at + 4]) for packet in _tcp(capture) for at in (26, 30)})


def _tcp(capture: Path) -> Iterator[Packet]:
    return (packet for packet in load(capture) if packet[2][12:14] == b"\x08\0" and packet[2][23] == _TCP)


def translated_files(capture: Path, clocks: Mapping[str, Callable[[int], int]], folder: Path) -> list[Path]:
    """The packets of a capture that each host saw, of IPv4 and TCP in Ethernet.

    Clients connect to the address of a service and to its port plus 1000. Servers see a gateway with other ports.
    ``clocks`` says what time each host has; the others recorded nothing.
    """
    ports: dict[tuple[End, End], int] = {}
    seen: dict[str, list[Packet]] = {host: [] for host in clocks}
    for time_ns, link, octets, length, comment in _tcp(capture):
        source, target = octets[26:30], octets[30:34]
        begin = _ETHERNET + (octets[14] & 15) * 4
        source_port, target_port = struct.unpack_from("!HH", octets, begin)
        ends = (source, source_port), (target, target_port)
        is_client = source_port > target_port
        client, server = ends if is_client else ends[::-1]
        gateway = socket.inet_aton(GATEWAY), ports.setdefault((client, server), 20_000 + 7 * len(ports))
        service = socket.inet_aton(service_of(socket.inet_ntoa(server[0]))), server[1] + 1000
        for host, way_ns in ((source, -_WAY_NS), (target, _WAY_NS)):
            name = socket.inet_ntoa(host)
            if name not in seen:
                continue
            view = (client, service) if host == client[0] else (gateway, server)
            (one, one_port), (other, other_port) = view if is_client else view[::-1]
            packet = bytearray(octets)
            packet[26:34] = one + other
            struct.pack_into("!HH", packet, begin, one_port, other_port)
            seen[name].append((clocks[name](time_ns + way_ns), link, bytes(packet), length, comment))
    files = []
    for name, packets in seen.items():
        files.append(folder / f"{name}.pcap")
        save(files[-1], packets)
    return files
