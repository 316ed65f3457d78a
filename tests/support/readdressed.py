"""Captures whose sockets have other addresses: those of IPv4 and TCP in Ethernet, without the packets of others."""

import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.world.tap import save
from zmtpsniff.capture.block import Packet

Socket = tuple[bytes, int]
"""An address and a port."""
_ETHERNET, _TCP = 14, 6  # octets of a header; a protocol
_SOURCE, _TARGET, _END = 12, 16, 20  # the addresses in IPv4


def save_readdressed(packets: Iterable[Packet], path: Path, moved: Callable[[Socket], Socket]) -> None:
    """Write the packets with the sockets that ``moved`` gives for theirs."""
    written: list[Packet] = []
    for time_ns, link, frame, length, comment in packets:
        octets = bytearray(frame[_ETHERNET:])
        if len(octets) < 40 or octets[0] >> 4 != 4 or octets[9] != _TCP:
            continue
        begin = (octets[0] & 15) * 4
        source_port, target_port = struct.unpack_from(">HH", octets, begin)
        source, source_port = moved((bytes(octets[_SOURCE:_TARGET]), source_port))
        target, target_port = moved((bytes(octets[_TARGET:_END]), target_port))
        octets[_SOURCE:_END] = source + target
        struct.pack_into(">HH", octets, begin, source_port, target_port)
        written.append((time_ns, link, frame[:_ETHERNET] + octets, length, comment))
    save(path, written)
