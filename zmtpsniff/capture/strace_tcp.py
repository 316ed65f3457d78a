"""TCP connections that a log of strace names, as segments like those of a capture."""

import socket
import struct
from collections.abc import Container

from zmtpsniff.capture.block import Packet
from zmtpsniff.words.link_types import RAW

_MOST = 65_000  # octets of a segment, which an IP packet has room for
_FIN, _SYN, _ACK = 1, 2, 16
_TCP_PROTOCOL = 6
_IPV4 = struct.Struct(">BBHHHBBH")
_IPV6 = struct.Struct(">IHBB")
_TCP = struct.Struct(">HHIIBBHHH")
_WINDOW = 65_535
_NUMBERS = 1 << 32


def pack_end(text: bytes) -> bytes | None:
    """Address and port of an end as strace writes it: ``127.0.0.1:5555``, ``[::1]:5555``; None if it is none."""
    host, _, port = text.rpartition(b":")
    family = socket.AF_INET6 if host.startswith(b"[") else socket.AF_INET
    try:
        return socket.inet_pton(family, host.strip(b"[]").decode()) + int(port).to_bytes(2, "big")
    except (OSError, ValueError, OverflowError):
        return None


def make_tcp_ends(own: bytes, other: bytes, servers: Container[bytes]) -> "TcpEnds | None":
    """The connection between two ends as strace writes them, None if they are none; ``servers`` are known ones."""
    ends = pack_end(own), pack_end(other)
    if ends[0] is None or ends[1] is None or len(ends[0]) != len(ends[1]):
        return None
    # Without a hint the side with the higher port is the client.
    is_server = ends[0] in servers or (ends[1] not in servers and ends[0][-2:] < ends[1][-2:])
    return TcpEnds(ends[0], ends[1], is_server)


class TcpEnds:
    """A connection as the traced program sees it: its own end and the other one."""

    def __init__(self, own: bytes, other: bytes, is_server: bool) -> None:
        """Ends are address and port. ``is_server``: the other end connected to the own one."""
        self._ends = own, other
        self._is_server = is_server
        self._next = [0, 0]  # sequence numbers of the two
        self._begun = False
        self._ended: set[int] = set()  # sides that have

    def segments(self, time_ns: int, sends: bool, octets: bytes, length: int) -> list[Packet]:
        """Octets that one side sent. ``length`` octets passed, and the first of them are known.

        A greeting is the beginning of a connection: its SYNs come before it.
        """
        side = 0 if sends else 1
        found = []
        if not self._begun:
            self._begun = True
            if octets[:1] == b"\xff" or octets.startswith(b"GET "):
                client = 1 if self._is_server else 0
                found = [self._packet(time_ns, client, _SYN), self._packet(time_ns, 1 - client, _SYN | _ACK)]
        if not length:  # the other side has ended
            return [*found, *self._fin(time_ns, side)]
        for at in range(0, length, _MOST):
            found.append(self._packet(time_ns, side, _ACK, octets[at : at + _MOST], min(_MOST, length - at)))
        return found

    def fins(self, time_ns: int) -> list[Packet]:
        """The end of both directions."""
        return [*self._fin(time_ns, 0), *self._fin(time_ns, 1)]

    def _fin(self, time_ns: int, side: int) -> list[Packet]:
        if side in self._ended:
            return []
        self._ended.add(side)
        return [self._packet(time_ns, side, _FIN | _ACK)]

    def _packet(self, time_ns: int, side: int, flags: int, octets: bytes = b"", length: int = 0) -> Packet:
        sender, receiver = self._ends[side], self._ends[1 - side]
        size = _TCP.size + length
        head = _TCP.pack(
            int.from_bytes(sender[-2:], "big"),
            int.from_bytes(receiver[-2:], "big"),
            self._next[side],
            self._next[1 - side] if flags & _ACK else 0,
            _TCP.size // 4 << 4,
            flags,
            _WINDOW,
            0,
            0,
        )
        if len(sender) == 6:
            ip = _IPV4.pack(0x45, 0, 20 + size, 0, 0, 64, _TCP_PROTOCOL, 0)
        else:
            ip = _IPV6.pack(6 << 28, size, _TCP_PROTOCOL, 64)
        self._next[side] = (self._next[side] + length + bool(flags & (_SYN | _FIN))) % _NUMBERS
        ip += sender[:-2] + receiver[:-2]
        return time_ns, RAW, ip + head + octets, len(ip) + size, None
