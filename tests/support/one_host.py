"""Captures of several hosts, as if all their programs ran on one: every socket has the same address."""

from collections.abc import Iterable
from pathlib import Path

from tests.support.readdressed import Socket, save_readdressed
from zmtpsniff.capture.block import Packet


def save_on_one_host(packets: Iterable[Packet], path: Path, address: str = "127.0.0.1") -> dict[str, str]:
    """Write packets of IPv4 and TCP in Ethernet so; returns each socket by the one that it has now."""
    here = bytes(map(int, address.split(".")))
    ports: dict[Socket, int] = {}
    used: set[int] = set()

    def moved(socket: Socket) -> Socket:
        if socket not in ports:
            _, free = socket
            while free in used:
                free += 1
            used.add(free)
            ports[socket] = free
        return here, ports[socket]

    save_readdressed(packets, path, moved)
    return {f"{address}:{free}": f"{'.'.join(map(str, host))}:{number}" for (host, number), free in ports.items()}
