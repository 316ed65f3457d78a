"""Captures of hosts in several networks: their programs connect from other addresses than those at which they bind.

Behind NAT, all of them connect from one address.
"""

from collections.abc import Iterable
from pathlib import Path

from tests.support.readdressed import Socket, save_readdressed
from zmtpsniff.capture.block import Packet

_CONNECTING = 32768  # the first port of clients on Linux
_GATEWAY = bytes([10, 99, 0, 1])
_SECOND = 100  # added to the second octet of an address


def save_with_two_addresses(packets: Iterable[Packet], path: Path, *, each: bool = False) -> None:
    """Write packets of IPv4 and TCP in Ethernet so.

    A program that connects has the address in another network, such as 10.109.0.7 for 10.9.0.7. With ``each``, every
    bound socket of a host but the first has a network of its own, too.
    """
    bound: dict[bytes, list[int]] = {}  # by host, its bound ports

    def moved(socket: Socket) -> Socket:
        host, port = socket
        if port >= _CONNECTING:
            return host[:1] + bytes([host[1] + _SECOND]) + host[2:], port
        ports = bound.setdefault(host, [])
        if port not in ports:
            ports.append(port)
        return host[:1] + bytes([host[1] + each * ports.index(port)]) + host[2:], port

    save_readdressed(packets, path, moved)


def save_behind_nat(packets: Iterable[Packet], path: Path) -> None:
    """Write packets of IPv4 and TCP in Ethernet, with one address for all programs that connect; their ports differ."""
    ports: dict[Socket, int] = {}

    def moved(socket: Socket) -> Socket:
        if socket[1] < _CONNECTING:
            return socket
        return _GATEWAY, ports.setdefault(socket, _CONNECTING + len(ports))

    save_readdressed(packets, path, moved)


def without_network(socket: str) -> str:
    """A socket without the half of its address that tells the network."""
    return socket.split(".", 2)[2]
