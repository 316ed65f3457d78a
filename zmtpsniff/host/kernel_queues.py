"""The queues of the kernel at the ends of TCP connections, as ``ss`` shows them: Recv-Q and Send-Q (sock_diag(7))."""

import socket
import struct
import time

from zmtpsniff.capture.netlink import dump
from zmtpsniff.host.sockets import pack

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_STATES = sum(1 << state for state in (1, 4, 5, 8, 9, 11))  # those in which octets wait: established, closing
_REQUEST = struct.Struct("=BBxxI48x")
_ANSWER = struct.Struct("=BBxx2s2s16s16s12x4xII")
_FRESH_SECONDS = 0.5

Queues = tuple[int, int]
"""Octets that the program has not taken, and octets that the other side has not acknowledged."""


class KernelQueues:
    """The queues of the TCP sockets in our network namespace. It needs no privileges."""

    def __init__(self) -> None:
        """Look when somebody asks."""
        self._found: dict[tuple[bytes, bytes], Queues] = {}
        self._next_look = 0.0

    def of(self, local: str, remote: str) -> Queues | None:
        """The queues of an end of a connection, at most half a second old; None if there is no such socket here."""
        now = time.monotonic()
        if now >= self._next_look:
            self._look()
            self._next_look = time.monotonic() + _FRESH_SECONDS
        try:
            return self._found.get((pack(local), pack(remote)))
        except ValueError:  # an end that is no address
            return None

    def _look(self) -> None:
        self._found.clear()
        try:
            for family in (socket.AF_INET, socket.AF_INET6):
                for body in dump(_SOCK_DIAG, _BY_FAMILY, _REQUEST.pack(family, socket.IPPROTO_TCP, _STATES)):
                    kind, _, local_port, remote_port, local, remote, taken, sent = _ANSWER.unpack_from(body)
                    ends = _end(kind, local) + local_port, _end(kind, remote) + remote_port
                    self._found[ends] = taken, sent
        except OSError:  # a kernel without it
            self._found.clear()


def _end(family: int, address: bytes) -> bytes:
    """An address as 16 octets."""
    return bytes(10) + b"\xff\xff" + address[:4] if family == socket.AF_INET else address
