"""Hosts that may pass messages on: those with a socket that takes them and another one that sends them, to a third.

One ROUTER may do both, as the broker of Majordomo does. It looks like a server whose clients are of two types, until
one of its peers says that it is ready to work. A socket whose handshake the capture lacks may do either. One of ZMTP
1.0, which has no types, may do whatever any socket does.

Theory
------

A host goes through these states:

- *quiet*: it may not pass anything on. Its connections are counted by the kinds of messages that their ends take and
  send, so that each new connection is compared with counts, and not with each other connection.
- *relay*: one socket takes messages of a kind, and another one sends messages of that kind, to a third. It stays so,
  and its connections are *followed*: those that are open, and all that begin later.
- *idle*: a quiet host without open connections. The oldest of many are forgotten.

A broker may take messages at one address of its host and send them on from another one: it has two networks. Then no
host has both sockets. An envelope shows that its sender passes on what it took elsewhere, and an XSUB is there to pass
on what it gets. Such a program is *split*. From then on, each host with a socket that may belong to one is a relay.

Live, where the processes at both ends of a connection are known, each is a host of its own. So the programs of one
machine, which have one address on the loopback interface, do not make each other look like brokers. A process is known
only some time after its connection began; until then its host counts, and a connection may be followed in vain.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from dissectors.address import host_of, is_loopback
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.ledger import Key, Ledger
from zmtpsniff.analysis.ways.way_connections import PROCESS_PATIENCE_NS, ProcessOf

_OPEN = 4096  # open connections of one host that are counted
_ENDED = 500  # connections that are over: a program may close the one before it opens the next
_PASSERS = 1000  # sockets that send what their programs took: at each, all open connections are looked through
_IDLE = 500  # idle hosts; live, each short-lived process is one

# By type, the kinds of messages that it takes or sends. "pushed" are requests that a PUSH answers, or these replies.
_UNKNOWN = ""
_ANY = "any"  # that of ZMTP 1.0: nothing is said of it later, so all that it may be counts
_TAKES = {"ROUTER": ("request", "pushed"), "DEALER": ("pushed",), "REP": ("request",), "PULL": ("job",)}
_TAKES |= {"SUB": ("publication",), "XSUB": ("publication",), "SERVER": ("request",), _UNKNOWN: ("request",)}
_TAKES[_ANY] = ("request", "job", "publication")
_SENDS = {"DEALER": ("request",), "REQ": ("request",), "ROUTER": ("request",), "PUSH": ("job", "pushed")}
_SENDS |= {"PUB": ("publication",), "XPUB": ("publication",), "CLIENT": ("request",), _UNKNOWN: ("request",)}
_SENDS[_ANY] = _TAKES[_ANY]
_SPLIT = {"request": {"ROUTER", "DEALER", _UNKNOWN}, "publication": {"XPUB", "XSUB"}}  # sockets of a split program


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

    def count(self, end: SocketEnd, by: int) -> None:
        """Count one end more or less: ``by`` is 1 or -1."""
        self._count += by
        address, _, other = end
        _count(self._addresses, address, by)
        _count(self._others, other, by)
        _count(self._pairs, (address, other), by)

    def has_third(self, end: SocketEnd) -> bool:
        """Whether one of the ends belongs to another socket than those of this connection, and leads to a third one.

        The ends that do not qualify are counted, instead of looking at each: a host may have thousands.
        """
        address, kind, other = end
        same = self._addresses.get(address, 0) + self._addresses.get(other, 0)
        back = self._others.get(address, 0) - self._pairs.get((other, address), 0)
        if kind in (_UNKNOWN, _ANY):  # several clients of one server on one host look like this
            same += self._others.get(other, 0) - self._pairs.get((address, other), 0)
        return self._count > same + back


def _count(table: dict[Key, int], key: Key, by: int) -> None:
    table[key] = table.get(key, 0) + by
    if not table[key]:
        del table[key]


class RelayHost:
    """A host, its connections, and whether it may pass something on."""

    def __init__(self) -> None:
        """Start without any."""
        self.flows: list[int] = []  # the connections that were open when it became a relay
        self.is_relay = False
        self._open: dict[int, list[SocketEnd]] = {}  # by flow
        self._ended: dict[int, list[SocketEnd]] = {}
        takers: defaultdict[str, _SocketEnds] = defaultdict(_SocketEnds)  # by kind of message
        senders: defaultdict[str, _SocketEnds] = defaultdict(_SocketEnds)
        self._sides = ((_TAKES, takers, senders), (_SENDS, senders, takers))

    def add(self, socket: SocketEnd, flow: int) -> bool:
        """Add an end of a connection. Return whether that makes the host a relay."""
        if self.is_relay:
            return False
        self._open.setdefault(flow, []).append(socket)
        for kinds, own, others in self._sides:
            for kind in kinds.get(socket.kind, ()):
                own[kind].count(socket, 1)
                self.is_relay = self.is_relay or others[kind].has_third(socket)
        if self.is_relay:
            self.become_relay()
        elif len(self._open) > _OPEN:
            self._forget_oldest(self._open)
        return self.is_relay

    def become_relay(self) -> None:
        """From now on its connections are followed: nothing needs to be counted any more."""
        self.is_relay = True
        self.flows = [*self._open]
        self._open, self._ended = {}, {}
        for _, ends, _ in self._sides:
            ends.clear()

    def end(self, flow: int) -> bool:
        """A connection is over. Return whether the host is quiet, and has become idle by that."""
        ends = self._open.pop(flow, None)
        if ends is None:
            return False
        self._ended[flow] = ends
        if len(self._ended) > _ENDED:
            self._forget_oldest(self._ended)
        return not self._open

    def _forget_oldest(self, table: dict[int, list[SocketEnd]]) -> None:
        for socket in table.pop(next(iter(table))):
            for kinds, ends, _ in self._sides:
                for kind in kinds.get(socket.kind, ()):
                    ends[kind].count(socket, -1)


class RelayHosts:
    """All hosts, and the connections of relays: those that are to be followed."""

    def __init__(self) -> None:
        """Start without any."""
        self.process_of: ProcessOf | None = None  # live, if this machine's processes are known
        self.followed: set[int] = set()
        """The open connections that are followed."""
        self._hosts: Ledger[str, RelayHost] = Ledger(RelayHost)
        self._brokers: Ledger[str, None] = Ledger()  # sockets that take requests and give them to workers
        self._passers: Ledger[str, None] = Ledger()  # sockets that send what their programs took
        self._split: set[str] = set()  # types of sockets that a split program may have
        self._idle: dict[str, None] = {}  # idle hosts; the one that became idle first is the first
        self._open: dict[int, Dossier] = {}  # all open connections
        self._earlier: list[int] = []  # connections of hosts that became relays since the last call of earlier()
        self._unknown: dict[int, int] = {}  # followed connections without known processes: until when to look for these
        self._known: dict[int, list[str]] = {}  # open connections with known processes: the names of both

    def may_pass_on(self, address: str) -> bool:
        """Whether the host of a socket may pass something on."""
        host = self._hosts.get(host_of(address))
        return host is not None and host.is_relay

    def begin(self, dossier: Dossier) -> bool:
        """Both sides of a connection have announced their types. Return whether it is to be followed."""
        if dossier.flow in self._open:  # begin_late() has had it
            return dossier.flow in self.followed
        self._open[dossier.flow] = dossier
        has_relay = self._add(dossier, [host_of(address) for address in dossier.types])
        if has_relay:
            self._follow(dossier)
        return has_relay

    def begin_late(
        self, flow: int, time_ns: int, packet: int, ends: tuple[str, str], *, is_untyped: bool = False
    ) -> None:
        """The capture lacks all or some of the handshake of two sockets, so their types may not be known.

        With ``is_untyped`` it lacks nothing, but the handshake has no types.

        Programs that share an address would all look like brokers then: their connections are left out.
        """
        is_shared = is_loopback(ends[0]) or host_of(ends[0]) == host_of(ends[1])
        if (
            (self.process_of is not None or not is_shared)
            and flow not in self._open
            and self.begin(Dossier(flow, time_ns, packet, dict.fromkeys(ends, _UNKNOWN), is_untyped=is_untyped))
        ):
            self.followed.discard(flow)
            self._earlier.append(flow)

    def _add(self, dossier: Dossier, names: Sequence[str]) -> bool:
        """Add the ends of a connection to the hosts with these names. Return whether one of these is a relay."""
        (one, kind), (other, other_kind) = dossier.types.items()
        if dossier.is_untyped:
            kind, other_kind = kind or _ANY, other_kind or _ANY
        hosts = [self._hosts.at(name) for name in names]
        for name in names:
            self._idle.pop(name, None)
        for host, end in zip(hosts, (SocketEnd(one, kind, other), SocketEnd(other, other_kind, one)), strict=True):
            if host.add(end, dossier.flow):
                self._earlier += host.flows
            if end.address in self._brokers or end.kind in self._split:
                self._make_relay(host)
            elif end.kind == "XSUB" and not host.is_relay:
                self._add_split("publication")
        return any(host.is_relay for host in hosts)

    def _make_relay(self, host: RelayHost) -> None:
        if not host.is_relay:
            host.become_relay()
            self._earlier += host.flows

    def add_broker(self, flow: int, address: str) -> None:
        """A socket has a worker, so it is a broker's: its host is a relay."""
        self._brokers.at(address)
        dossier = self._open.get(flow)
        if dossier is not None:
            self._make_relay(self._hosts.at(self._name_at(dossier, address)))

    def add_passer(self, flow: int, address: str) -> None:
        """A socket sends what its program took at another socket. If its host has none, the program is split."""
        dossier = self._open.get(flow)
        if dossier is None or address in self._passers:
            return
        self._passers.at(address)
        name = self._name_at(dossier, address)
        if dossier.types[address] != "ROUTER" and self._hosts.at(name).is_relay:
            return  # it has both
        has_taker = any(
            kind in ("ROUTER", _UNKNOWN) and one != address and its_name == name
            for other in self._open.values()
            for its_name, (one, kind) in zip(self._names(other), other.types.items(), strict=True)
        )
        if not has_taker:
            self._add_split("request")

    def may_be_split(self, flow: int) -> bool:
        """Whether a side of a connection may send what its program took at another address, and that is not known."""
        if _SPLIT["request"] <= self._split or len(self._passers) >= _PASSERS:
            return False
        types = self._open[flow].types if flow in self._open else {}
        return any(kind in ("ROUTER", "DEALER") and one not in self._passers for one, kind in types.items())

    def _name_at(self, dossier: Dossier, address: str) -> str:
        """The name of the host of one end of a connection."""
        return self._names(dossier)[[*dossier.types].index(address)]

    def _names(self, dossier: Dossier) -> list[str]:
        """The names of the hosts of a connection's ends."""
        return self._known.get(dossier.flow) or [host_of(address) for address in dossier.types]

    def _add_split(self, kind: str) -> None:
        """There is a split program for messages of a kind: all hosts with sockets that it may have are relays."""
        self._split |= _SPLIT[kind]
        for dossier in self._open.values():
            for name, its_type in zip(self._names(dossier), dossier.types.values(), strict=True):
                if its_type in self._split:
                    self._make_relay(self._hosts.at(name))

    def _follow(self, dossier: Dossier) -> None:
        self.followed.add(dossier.flow)
        if self.process_of is not None and dossier.flow not in self._known:
            self._unknown[dossier.flow] = dossier.start_ns + PROCESS_PATIENCE_NS

    def earlier(self) -> list[Dossier]:
        """The open connections of hosts that became relays since the last call. They are followed from now on."""
        found = [self._open[flow] for flow in sorted({*self._earlier} - self.followed) if flow in self._open]
        self._earlier.clear()
        for dossier in found:
            self._follow(dossier)
        return found

    def tell_apart(self, now_ns: int) -> list[int]:
        """Live: the connections that are followed no longer, since their processes, known now, pass nothing on."""
        left: list[int] = []
        process_of = self.process_of
        if process_of is None:
            return left
        for flow, until_ns in [*self._unknown.items()]:
            dossier = self._open[flow]
            processes = [process_of(flow, address) for address in dossier.types]
            names = [f"process {one.pid}" for one in processes if one is not None]
            if len(names) < len(processes) and now_ns < until_ns:
                continue
            del self._unknown[flow]
            if len(names) == len(processes):
                self._known[flow] = names
                if not self._add(dossier, names):
                    self.followed.remove(flow)
                    left.append(flow)
        return left

    def end(self, flow: int) -> bool:
        """A connection is over. Return whether it was followed."""
        dossier = self._open.pop(flow, None)
        self._unknown.pop(flow, None)
        names = self._known.pop(flow, [])
        for name in [*names, *map(host_of, dossier.types if dossier is not None else ())]:
            if name in self._hosts and self._hosts[name].end(flow):
                self._idle[name] = None
                if len(self._idle) > _IDLE:
                    oldest = next(iter(self._idle))
                    del self._idle[oldest]
                    self._hosts.pop(oldest, None)
        is_followed = flow in self.followed
        self.followed.discard(flow)
        return is_followed
