"""Names of connections, which are the same in all files and runs."""

from hashlib import sha256
from typing import NamedTuple


class ConnectionId(NamedTuple):
    """The name of a connection, 16 hexadecimal digits.

    If it ``is_shared`` it is the same wherever the connection was captured. ``server`` is the address of its server.
    """

    name: str
    is_shared: bool
    server: str = ""


def shared_id(client: int, server: int) -> ConnectionId:
    """The id of a connection whose initial sequence numbers are known: the two of them.

    Both ends draw them at random (RFC 6528). Everybody on the way sees the same numbers. Clocks differ, and NAT
    changes addresses and ports, but rarely these.
    """
    return ConnectionId(f"{client:08x}{server:08x}", True)


def local_id(transport: str, client: str, server: str, start_ns: int) -> ConnectionId:
    """The id of any other connection, made of its addresses and the time of its first packet in this capture.

    ``transport`` is tcp (also of ws), ipc, udp, pgm or epgm; for udp and PGM the client is the sender.
    """
    return ConnectionId(sha256(f"{transport}|{client}|{server}|{start_ns}".encode()).hexdigest()[:16], False)
