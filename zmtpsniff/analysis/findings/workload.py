"""The work of each peer of a bound socket: a worker, a consumer, a client; its share, what it has in hand, its waits.

A peer is told apart by the identity that it announced, else by its address: a program may have several workers. So a
worker with an identity that connects again stays one peer. Counts are those of TCP connections that are over, or as far
as they have come.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeGuard

import msgspec

from dissectors.address import host_of
from dissectors.events import Connection
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.exchanges import ExchangeCount
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.analysis.statistics.stats_records import PEER_FIGURES, PeerRole, PeerRow
from zmtpsniff.net.witness import Stall

QueuesOf = Callable[[str, str], tuple[int, int] | None]
"""Octets that a program has not taken, and octets that its peer has not acknowledged, at one end of a connection."""

_Key = tuple[str, str, str]  # the service, the host of the peer, and what tells it from others there
_SUMS = ("connections", *(one.field for one in PEER_FIGURES if one.metric))
_PEERS = 1000  # that are told apart; of more, those of one host that left first are one


class _Load(msgspec.Struct, eq=False):
    """The work of one peer, on all its connections."""

    row: PeerRow = msgspec.field(default_factory=lambda: PeerRow("", "", 0))
    latencies: Sketch = msgspec.field(default_factory=Sketch)


class Workload(Inquiry):
    """The work of each peer of a bound socket."""

    def __init__(self, exchange: Callable[[int], ExchangeCount | None]) -> None:
        """``exchange`` gives what is known of the requests and replies of a connection that is not over."""
        self._exchange = exchange
        self._queues_of: QueuesOf | None = None
        self._closed: Ledger[tuple[int, str], int] = Ledger(int)  # how long a receiver had no room, by flow
        self._loads: Ledger[_Key, _Load] = Ledger(_Load)

    def know_queues(self, queues_of: QueuesOf) -> None:
        """Live: ``queues_of`` gives the kernel's queues at an end of a connection, by its own address and the other."""
        self._queues_of = queues_of

    def stall(self, stall: Stall) -> None:
        """A receiver had no room."""
        if stall.cause == "window":
            key = stall.flow, stall.receiver
            self._closed[key] = self._closed.at(key) + stall.until_ns - stall.since_ns

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Count a connection that is over."""
        load = self._loads.at(_key(event))
        _add(load, event, *self._facts(event))
        self._look_at_queues(load.row, event)
        if len(self._loads) > _PEERS:
            (service, host, _), oldest = self._loads.popitem(last=False)
            rest = self._loads.at((service, host, ""))
            _join(rest, oldest)
            rest.row.peer, rest.row.process = host, None
        for peer in (event.client, event.server):
            self._closed.pop((event.flow, peer.address), None)

    def _facts(self, event: Connection) -> tuple[ExchangeCount | None, int, int]:
        """Requests and replies of a connection, and how long its client and its server had no room."""
        client, server = ((event.flow, peer.address) for peer in (event.client, event.server))
        return self._exchange(event.flow), self._closed.get(client, 0), self._closed.get(server, 0)

    def _look_at_queues(self, row: PeerRow, event: Connection) -> None:
        """Add what waits in the kernel at both ends of a connection that is open."""
        if self._queues_of is None or event.end != "open":
            return
        client, server = event.client.address, event.server.address
        own, service = self._queues_of(client, server) or (0, 0), self._queues_of(server, client) or (0, 0)
        row.recv_q, row.send_q = row.recv_q + own[0], row.send_q + own[1]
        row.service_recv_q, row.service_send_q = row.service_recv_q + service[0], row.service_send_q + service[1]

    def rows(self, going_on: Iterable[Connection] = ()) -> list[PeerRow]:
        """A row for each peer, with the connections that are not over."""
        loads = dict(self._loads)
        for event in going_on:
            key = _key(event)
            load = loads.get(key)
            if load is None or load is self._loads.get(key):
                loads[key] = made = _Load()
                if load is not None:
                    _join(made, load)
                load = made
            _add(load, event, *self._facts(event))
            self._look_at_queues(load.row, event)
        taken: Counter[str] = Counter()
        for (service, _, _), load in loads.items():
            taken[service] += load.row.taken
        peers = Counter(service for service, _, _ in loads)
        for load in loads.values():
            row, latencies = load.row, load.latencies
            is_alone = peers[row.service] == 1 or not row.taken
            row.share = None if is_alone else round(row.taken / taken[row.service], 4)
            if latencies.count:
                row.replies = latencies.count
                row.p50_ns, row.p95_ns, row.max_ns = map(latencies.percentile, (50, 95, 100))
        return [load.row for load in loads.values()]


def _key(event: Connection) -> _Key:
    peer = event.client
    name = peer.address
    if isinstance(peer.identity, bytes) and peer.identity:
        name = peer.identity.hex()
    return event.server.address, host_of(peer.address), name


def _add(load: _Load, event: Connection, exchange: ExchangeCount | None, closed_ns: int, waited_ns: int) -> None:
    """Count one more connection of a peer."""
    row, peer = load.row, event.client
    row.service, row.peer = event.server.address, peer.address
    row.connections += 1
    row.socket_type = peer.type_name or row.socket_type
    row.process = peer.process or row.process
    row.taken += event.messages.server
    row.given += event.messages.client
    row.window_closed_ns += closed_ns
    row.waited_ns += waited_ns
    row.role = _role(event, exchange) or row.role
    if _asks(exchange):
        load.latencies.join(exchange.latencies)
        left = 0 if exchange.blind else max(exchange.asked - exchange.answered, 0)
        if exchange.asker == peer.address:
            row.waiting += left
        else:
            row.in_hand += left


def _asks(exchange: ExchangeCount | None) -> TypeGuard[ExchangeCount]:
    """Whether requests pass on a connection: nobody knows that of a DEALER none of whose messages got its own reply.

    Nor if one of many did: perhaps it only registered, and its peer asks.
    """
    if exchange is None or exchange.asker is None:
        return False
    is_paired = exchange.latencies.count > (exchange.answered > 2)
    return exchange.strict or (exchange.answered > 0 and (exchange.is_worker or is_paired))


def _role(event: Connection, exchange: ExchangeCount | None) -> PeerRole | None:
    if _asks(exchange):
        return "client" if exchange.asker == event.client.address else "worker"
    if bool(event.messages.server) == bool(event.messages.client):
        return None
    return "consumer" if event.messages.server else "producer"


def _join(load: _Load, other: _Load) -> None:
    """Add the work of another peer."""
    row, more = load.row, other.row
    for name in _SUMS:
        setattr(row, name, getattr(row, name) + getattr(more, name))
    row.service, row.peer = more.service, more.peer
    row.role, row.socket_type = more.role or row.role, more.socket_type or row.socket_type
    row.process = more.process or row.process
    load.latencies.join(other.latencies)
