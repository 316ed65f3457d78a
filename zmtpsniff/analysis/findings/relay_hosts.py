"""Hosts that may pass messages on: those with a socket that takes them and another one that sends them, to a third."""

from collections import defaultdict
from typing import NamedTuple

_SOCKETS = 4096  # of one host that are remembered

_TAKES = {"ROUTER": "request", "REP": "request", "PULL": "job", "SUB": "publication", "XSUB": "publication"}
_SENDS = {"DEALER": "request", "REQ": "request", "ROUTER": "request", "PUSH": "job", "PUB": "publication"}
_SENDS |= {"XPUB": "publication"}


class SocketEnd(NamedTuple):
    """An end of a connection."""

    address: str
    kind: str
    other: str


class _SocketEnds:
    """Ends of connections that take, or send, messages of one kind."""

    def __init__(self) -> None:
        self._count = 0
        self._addresses: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self._pairs: dict[tuple[str, str], int] = {}

    def add(self, end: SocketEnd) -> None:
        """One more."""
        self._count += 1
        address, _, other = end
        self._addresses[address] = self._addresses.get(address, 0) + 1
        self._others[other] = self._others.get(other, 0) + 1
        self._pairs[address, other] = self._pairs.get((address, other), 0) + 1

    def has_third(self, end: SocketEnd) -> bool:
        """Whether one of them is of another socket than both of this connection, and leads to another socket, too.

        It counts those that do not qualify instead of looking at each: a host may have thousands.
        """
        address, _, other = end
        same = self._addresses.get(address, 0) + self._addresses.get(other, 0)
        back = self._others.get(address, 0) - self._pairs.get((other, address), 0)
        return self._count > same + back


class RelayHost:
    """The sockets of a host, and whether it may pass something on."""

    def __init__(self) -> None:
        """Start without any."""
        self.flows: list[int] = []
        self.passes = False
        self._takers: defaultdict[str, _SocketEnds] = defaultdict(_SocketEnds)  # by kind of message
        self._senders: defaultdict[str, _SocketEnds] = defaultdict(_SocketEnds)

    def add(self, socket: SocketEnd, flow: int) -> bool:
        """One more end of a connection; returns whether the host may pass something on from now on."""
        if self.passes or len(self.flows) >= _SOCKETS:
            return False
        self.flows.append(flow)
        takes, sends = _TAKES.get(socket.kind), _SENDS.get(socket.kind)
        if takes is not None:
            self._takers[takes].add(socket)
            self.passes = self._senders[takes].has_third(socket)
        if sends is not None:
            self._senders[sends].add(socket)
            self.passes = self.passes or self._takers[sends].has_third(socket)
        return self.passes
