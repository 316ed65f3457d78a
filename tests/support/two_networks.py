"""Captures of hosts in several networks: their programs connect from other addresses than those at which they bind.

Behind NAT, all of them connect from one address.
"""

import struct
from collections.abc import Iterable
from pathlib import Path

from tests.world.tap import save
from zmtpsniff.capture.block import Packet

_ETHERNET, _TCP = 14, 6  # octets of a header; a protocol
_ADDRESSES = 12  # where both stand in IPv4
_CONNECTING = 32768  # the first port of clients on Linux
_GATEWAY = bytes([10, 99, 0, 1])
_SECOND = 100  # added to the second octet of an address


def save_with_two_addresses(packets: Iterable[Packet], path: Path, *, each: bool = False) -> None:
    """Write packets of IPv4 and TCP in Ethernet so.

    A program that connects has the address in another network, such as 10.109.0.7 for 10.9.0.7. With ``each``, every
    bound socket of a host but the first has a network of its own, too.
    """
    bound: dict[bytes, list[int]] = {}  # by host, its bound ports

    def moved(host: bytes, port: int) -> bytes:
        if port >= _CONNECTING:
            return host[:1] + bytes([host[1] + _SECOND]) + host[2:]
        ports = bound.setdefault(host, [])
        if port not in ports:
            ports.append(port)
        return host[:1] + bytes([host[1] + each * ports.index(port)]) + host[2:]

    written: list[Packet] = []
    for time_ns, link, frame, length, comment in packets:
        octets = bytearray(frame[_ETHERNET:])
        if len(octets) < 40 or octets[0] >> 4 != 4 or octets[9] != _TCP:
            continue
        for place, port in enumerate(struct.unpack_from(">HH", octets, (octets[0] & 15) * 4)):
            at = slice(_ADDRESSES + 4 * place, _ADDRESSES + 4 * place + 4)
            octets[at] = moved(bytes(octets[at]), port)
        written.append((time_ns, link, frame[:_ETHERNET] + octets, length, comment))
    save(path, written)


def save_behind_nat(packets: Iterable[Packet], path: Path) -> None:
    """Write packets of IPv4 and TCP in Ethernet, with one address for all programs that connect; their ports differ."""
    ports: dict[tuple[bytes, int], int] = {}
    written: list[Packet] = []
    for time_ns, link, frame, length, comment in packets:
        octets = bytearray(frame[_ETHERNET:])
        if len(octets) < 40 or octets[0] >> 4 != 4 or octets[9] != _TCP:
            continue
        begin = (octets[0] & 15) * 4
        for place, port in enumerate(struct.unpack_from(">HH", octets, begin)):
            at = slice(_ADDRESSES + 4 * place, _ADDRESSES + 4 * place + 4)
            if port >= _CONNECTING:
                free = ports.setdefault((bytes(octets[at]), port), _CONNECTING + len(ports))
                struct.pack_into(">H", octets, begin + 2 * place, free)
                octets[at] = _GATEWAY
        written.append((time_ns, link, frame[:_ETHERNET] + octets, length, comment))
    save(path, written)


def without_network(socket: str) -> str:
    """A socket without the half of its address that tells the network."""
    return socket.split(".", 2)[2]
