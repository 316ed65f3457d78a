"""The kernel's TCP sockets: their processes, by processes' descriptors, and their queues (proc(5), sock_diag(7))."""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zmtpsniff.host.processes import pids

_LOCAL, _REMOTE, _STATE, _QUEUES, _INODE = 1, 2, 3, 4, 9  # columns of /proc/net/tcp
_TIME_WAIT = "06"
_MAPPED = "0000000000000000FFFF0000"  # in front of an IPv4 address as an IPv6 one
_LEAST_SECONDS = 0.1  # between two looks at all descriptors
_SHARE = 10  # these looks take at most a tenth of the time
_FRESH_SECONDS = 0.5
_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST = 4, 20, 1  # linux/netlink.h, linux/sock_diag.h
_ANY_STATE, _LISTENS = 0xFFFFFFFF, 10
_ANY_COOKIE = b"\xff" * 8
_ASKED = struct.Struct("=IHHII BBBxI")  # nlmsghdr, inet_diag_req_v2 up to the ends
_ANSWERED = struct.Struct("=IHHII BB66xI")  # nlmsghdr, inet_diag_msg: its family, its state, its inode


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
        self._diag = _SocketDiag()

    def owners(self, connections: Iterable[SocketEnds]) -> dict[SocketEnds, int]:
        """The processes (as numbers) of those ends that belong to a process of this machine.

        An end that several network namespaces have counts only in ours. The process of a loopback address is looked
        for only in ours. Raises ValueError if an end is no address and port.
        """
        inodes = self._inodes(set(connections))
        now = time.monotonic()
        if now >= self._next_look and any(self._holder(inode) is None for inode in inodes.values()):
            self._look()
            self._next_look = now + max(_LEAST_SECONDS, (time.monotonic() - now) * _SHARE)
        return {connection: pid for connection, inode in inodes.items() if (pid := self._holder(inode)) is not None}

    def _inodes(self, wanted: set[SocketEnds]) -> dict[SocketEnds, int]:
        """The sockets of those connections that there are now."""
        found: dict[SocketEnds, int] = {}
        doubtful = set()
        left = wanted
        for pid in _one_of_each_network():
            sockets = self._diag.find(left) if pid == "self" else None
            for connection, inode in (_sockets(pid, left) if sockets is None else sockets).items():
                if found.setdefault(connection, inode) != inode:
                    doubtful.add(connection)
            if pid == "self":
                left = {each for each in wanted - found.keys() if not each.local.startswith(("127.", "[::1]"))}
            if not left:
                break
        return {connection: inode for connection, inode in found.items() if connection not in doubtful}

    def _holder(self, inode: int) -> int | None:
        """The process that has a socket, if what is remembered is still so."""
        pid, name = self._holders.get(inode, (0, ""))
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{name}") == f"socket:[{inode}]":
                return pid
        self._holders.pop(inode, None)
        return None

    def _look(self) -> None:
        """Look at all descriptors of all processes."""
        self._holders.clear()
        for pid in pids():
            for inode, name in open_sockets(pid):
                # Of several that share it the first is who made it, as a rule.
                self._holders.setdefault(inode, (pid, name))


class _SocketDiag:
    """Asks the kernel for single sockets of our network namespace: its table takes milliseconds, even an empty one."""

    def __init__(self) -> None:
        """A kernel that does not know a socket which listens is never asked: it lacks a module, and says the same."""
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError, AttributeError):
            kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)
            with socket.create_server(("127.0.0.1", 0)) as known:
                state, _ = self._ask(kernel, SocketEnds(f"127.0.0.1:{known.getsockname()[1]}", "0.0.0.0:0"))
            if state == _LISTENS:
                self._socket = kernel
            else:
                kernel.close()

    def find(self, wanted: Iterable[SocketEnds]) -> dict[SocketEnds, int] | None:
        """The inodes of those connections that there are, without those that nobody accepted; None: it cannot say.

        Raises ValueError if an end is no address and port.
        """
        try:
            if self._socket is not None:
                asked = {ends: self._ask(self._socket, ends) for ends in wanted}
                return {ends: inode for ends, (state, inode) in asked.items() if inode and state != _LISTENS}
        except OSError:
            self._socket = None
        return None

    @staticmethod
    def _ask(kernel: socket.socket, ends: SocketEnds) -> tuple[int, int]:
        """The state and the inode of a connection, or of who listens at its local end; zeros if there is neither."""
        (family, local, port), (other, remote, remote_port) = map(_end, ends)
        if family != other:
            return 0, 0
        request = _ASKED.pack(72, _SOCK_DIAG_BY_FAMILY, _REQUEST, 0, 0, family, socket.IPPROTO_TCP, 0, _ANY_STATE)
        request += struct.pack(">HH16s16s4x", port, remote_port, local, remote) + _ANY_COOKIE
        kernel.send(request)
        answer = kernel.recv(4096)
        if len(answer) < _ANSWERED.size:
            return 0, 0
        _, kind, _, _, _, _, state, inode = _ANSWERED.unpack_from(answer)
        return (state, inode) if kind == _SOCK_DIAG_BY_FAMILY else (0, 0)


class KernelQueues:
    """The queues of the TCP sockets in our network namespace. It needs no privileges."""

    def __init__(self) -> None:
        """Look when somebody asks."""
        self._found: dict[tuple[str, str], str] = {}
        self._next_look = 0.0

    def of(self, local: str, remote: str) -> tuple[int, int] | None:
        """Recv-Q and Send-Q of an end of a connection, at most half a second old; None if there is no such socket here.

        These are the octets that the program has not taken, and those that the other side has not acknowledged.
        """
        if time.monotonic() >= self._next_look:
            self._found = {ends: queues for ends, queues, _ in _table("self")}
            self._next_look = time.monotonic() + _FRESH_SECONDS
        try:
            sent, _, taken = self._found[_digits(local), _digits(remote)].partition(":")
        except (KeyError, ValueError):  # or an end that is no address
            return None
        return int(taken, 16), int(sent, 16)


def open_sockets(pid: int) -> Iterator[tuple[int, str]]:
    """The inodes of the sockets of a process, and the names of its descriptors of them."""
    with contextlib.suppress(OSError):  # ended, or another user's
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    yield int(target[8:-1]), name


def _one_of_each_network() -> Iterator[int | str]:
    """A process of each network namespace, ours first."""
    yield "self"
    seen: set[str] = set()
    for pid in (os.getpid(), *pids()):
        with contextlib.suppress(OSError):
            network = os.readlink(f"/proc/{pid}/ns/net")
            if network not in seen and seen:
                yield pid
            seen.add(network)


def _sockets(pid: int | str, wanted: set[SocketEnds]) -> dict[SocketEnds, int]:
    """The inodes of those connections that are in the network namespace of a process."""
    keys = {(_digits(each.local), _digits(each.remote)): each for each in wanted}
    return {
        connection: inode
        for ends, _, inode in _table(pid)
        if inode and (connection := keys.get(ends))  # none: not accepted yet
    }


def _table(pid: int | str) -> Iterator[tuple[tuple[str, str], str, int]]:
    """The sockets in the network namespace of a process: their ends as digits, their queues, their inodes."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{name}", encoding="utf-8") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[_STATE] != _TIME_WAIT:
                    ends = fields[_LOCAL].removeprefix(_MAPPED), fields[_REMOTE].removeprefix(_MAPPED)
                    yield ends, fields[_QUEUES], int(fields[_INODE])


def _digits(text: str) -> str:
    """An end as /proc/net/tcp has it, an IPv4 address in its own form; raises ValueError."""
    _, address, port = _end(text)
    # The words of an address are in the machine's order.
    words = "".join(address[at : at + 4][::-1].hex() for at in range(0, len(address), 4))
    return f"{words}:{port:04x}".upper().removeprefix(_MAPPED)


def _end(text: str) -> tuple[int, bytes, int]:
    """The family, the address and the port of an end; raises ValueError."""
    host, _, port = text.rpartition(":")
    try:
        if host.startswith("[") and host.endswith("]"):
            return socket.AF_INET6, socket.inet_pton(socket.AF_INET6, host[1:-1].partition("%")[0]), int(port)
        return socket.AF_INET, socket.inet_pton(socket.AF_INET, host), int(port)
    except OSError as error:
        raise ValueError(f"{text}: no address and port") from error
