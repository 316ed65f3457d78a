"""Finds the process of a TCP connection by the kernel's tables of sockets and processes' descriptors (proc(5))."""

import contextlib
import os
import socket
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zmtpsniff.host.processes import pids

_INODE, _LOCAL, _REMOTE = 9, 1, 2  # columns of /proc/net/tcp
_MAPPED = bytes(10) + b"\xff\xff"  # an IPv4 address as an IPv6 one
_LEAST_SECONDS = 0.1  # between two looks at all descriptors
_SHARE = 10  # these looks take at most a tenth of the time


class SocketEnds(NamedTuple):
    """A TCP connection as one of its ends sees it, each end as "10.0.0.1:5555" or "[::1]:5555"."""

    local: str
    remote: str


class SocketTable:
    """Finds the processes of connections. It checks what it remembers before it reports it."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._holders: dict[int, tuple[int, str]] = {}  # process and name of the descriptor, by the socket's inode
        self._next_look = 0.0

    def owners(self, connections: Iterable[SocketEnds]) -> dict[SocketEnds, int]:
        """The processes (as numbers) of those ends that belong to a process of this machine.

        An end that several network namespaces have counts only in ours. The process of a loopback address is looked
        for only in ours.
        """
        wanted = set(connections)
        inodes = self._inodes(wanted)
        found = {}
        unknown = []
        for connection, inode in inodes.items():
            pid = self._holder(inode)
            if pid is None:
                unknown.append(connection)
            else:
                found[connection] = pid
        now = time.monotonic()
        if unknown and now >= self._next_look:
            self._look()
            self._next_look = now + max(_LEAST_SECONDS, (time.monotonic() - now) * _SHARE)
            for connection in unknown:
                if (pid := self._holder(inodes[connection])) is not None:
                    found[connection] = pid
        return found

    def _inodes(self, wanted: set[SocketEnds]) -> dict[SocketEnds, int]:
        """The sockets of those connections that there are now."""
        found = _sockets("self", wanted)
        left = {each for each in wanted - found.keys() if not each.local.startswith(("127.", "[::1]"))}
        if not left:
            return found
        others: dict[SocketEnds, int] = {}
        doubtful = set()
        for pid in _one_of_each_network():
            for connection, inode in _sockets(pid, left).items():
                if others.setdefault(connection, inode) != inode:
                    doubtful.add(connection)
        return found | {connection: inode for connection, inode in others.items() if connection not in doubtful}

    def _holder(self, inode: int) -> int | None:
        """The process that has a socket, if what is remembered is still so."""
        holder = self._holders.get(inode)
        if holder is None:
            return None
        try:
            if os.readlink(f"/proc/{holder[0]}/fd/{holder[1]}") == f"socket:[{inode}]":
                return holder[0]
        except OSError:
            pass
        del self._holders[inode]
        return None

    def _look(self) -> None:
        """Look at all descriptors of all processes."""
        self._holders.clear()
        for pid in pids():
            for inode, name in _open_sockets(pid):
                # Of several that share it the first is who made it, as a rule.
                self._holders.setdefault(inode, (pid, name))


def has_sockets(pid: int) -> bool:
    """Whether a process has any socket."""
    return any(True for _ in _open_sockets(pid))


def _open_sockets(pid: int) -> Iterator[tuple[int, str]]:
    """The inodes of the sockets of a process, and the names of its descriptors of them."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):  # ended, or another user's
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):  # closed meanwhile
                target = os.readlink(f"{folder}/{name}")
                if target.startswith("socket:["):
                    yield int(target[8:-1]), name


def _one_of_each_network() -> list[int]:
    """A process of each network namespace but ours."""
    seen = {_network("self")}
    found = []
    for pid in pids():
        network = _network(pid)
        if network is not None and network not in seen:
            seen.add(network)
            found.append(pid)
    return found


def _network(pid: int | str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def _sockets(pid: int | str, wanted: set[SocketEnds]) -> dict[SocketEnds, int]:
    """The inodes of those connections that are in the network namespace of a process."""
    found = {}
    keys = {(pack(each.local), pack(each.remote)): each for each in wanted}
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            ends = _end(fields[_LOCAL]), _end(fields[_REMOTE])
            inode = int(fields[_INODE])
            if inode and (connection := keys.get(ends)):  # none: TIME_WAIT, or not accepted yet
                found[connection] = inode
    return found


def pack(text: str) -> bytes:
    """An end as text as 18 octets; raises ValueError."""
    host, _, port = text.rpartition(":")
    try:
        if host.startswith("[") and host.endswith("]"):
            address = socket.inet_pton(socket.AF_INET6, host[1:-1].partition("%")[0])
        else:
            address = _MAPPED + socket.inet_pton(socket.AF_INET, host)
    except OSError as error:
        raise ValueError(f"{text}: no address and port") from error
    return address + int(port).to_bytes(2, "big")


def _end(text: str) -> bytes:
    """An end of /proc/net/tcp as 18 octets: its address is in words of the machine's order."""
    address, _, port = text.partition(":")
    octets = b"".join(bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8))
    return (octets if len(octets) == 16 else _MAPPED + octets) + bytes.fromhex(port)
