"""Captures of several hosts, as if all their programs ran on one: every socket has the same address."""

import struct
from collections.abc import Iterable
from pathlib import Path

from tests.world.tap import save
from zmtpsniff.capture.block import Packet

_ETHERNET, _TCP = 14, 6  # octets of a header; a protocol


def save_on_one_host(packets: Iterable[Packet], path: Path, address: str = "127.0.0.1") -> dict[str, str]:
    """Write packets of IPv4 and TCP in Ethernet so; returns each socket by the one that it has now."""
    here = bytes(map(int, address.split(".")))
    ports: dict[tuple[bytes, int], int] = {}
    used: set[int] = set()

    def port(host: bytes, number: int) -> int:
        if (host, number) not in ports:
            free = number
            while free in used:
                free += 1
            used.add(free)
            ports[host, number] = free
        return ports[host, number]

    moved: list[Packet] = []
    for time_ns, link, frame, length, comment in packets:
        octets = bytearray(frame[_ETHERNET:])
        if len(octets) < 40 or octets[0] >> 4 != 4 or octets[9] != _TCP:
            continue
        begin = (octets[0] & 15) * 4
        source, target = struct.unpack_from(">HH", octets, begin)
        struct.pack_into(">HH", octets, begin, port(bytes(octets[12:16]), source), port(bytes(octets[16:20]), target))
        octets[12:20] = here * 2
        moved.append((time_ns, link, frame[:_ETHERNET] + octets, length, comment))
    save(path, moved)
    return {f"{address}:{free}": f"{'.'.join(map(str, host))}:{number}" for (host, number), free in ports.items()}
