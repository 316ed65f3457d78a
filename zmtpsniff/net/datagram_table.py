"""Datagrams of UDP and PGM: the sender of each, and when a sender is gone.

All datagrams of one sender to one destination are a flow. Only three kinds count: datagrams of ports that the user
names, PGM, and beacons.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from zmtpsniff.net.addresses import Address, addresses
from zmtpsniff.net.flow_dissection import End
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.pgm import Order, Pgm, Taker, parse_pgm
from zmtpsniff.net.segment import PGM, Datagram
from zmtpsniff.words.durations import nanoseconds
from zmtpsniff.words.set_clocks import is_due

_SWEEP_NS = 1_000_000_000

Transport = Literal["udp", "pgm", "epgm"]
Kind = Transport | Literal["beacon"]


class DatagramDissection(Taker, Protocol):
    """The dissector of a flow of datagrams."""

    rejected: bool

    def datagram(self, payload: bytes, missing: int, time_ns: int, packet: int, /) -> None:
        """Take a datagram of UDP; the capture lacks ``missing`` octets at its end."""

    def cut(self, time_ns: int, packet: int, /) -> None:
        """Learn that the capture has only a part of a packet of PGM, so the packet is lost."""

    def finish(self, end: End, start_ns: int, end_ns: int, repaired: int, parity: int, /) -> None:
        """The flow is over. ``repaired`` packets came only as repairs, ``parity`` packets were parity."""


Connect = Callable[[int, Kind, Address, Address], DatagramDissection]
"""Called with a flow's number, its transport or "beacon", its sender and its destination."""


class _Sender(msgspec.Struct, eq=False):
    """A flow."""

    dissection: DatagramDissection
    order: Order
    start_ns: int
    last_ns: int
    last_packet: int = 0

    def finish(self, end: End) -> None:
        if self.dissection.rejected:
            return
        self.order.finish(self.last_ns, self.last_packet)
        self.dissection.finish(end, self.start_ns, self.last_ns, self.order.repaired, self.order.parity)


class DatagramTable:
    """All senders of datagrams that matter."""

    def __init__(
        self,
        connect: Connect,
        number: Callable[[], int],
        is_named: Callable[[int, int], bool],
        is_beacon: Callable[[bytes], bool],
        limits: FlowLimits,
    ) -> None:
        """Begin without flows. The table asks ``connect`` who takes the datagrams of each flow.

        It asks ``number`` for the number of a new flow. ``is_named`` says whether one of two UDP ports carries RADIO's
        messages, ``is_beacon`` whether a datagram of UDP is a beacon.
        """
        self._connect = connect
        self._number = number
        self._is_named = is_named
        self._is_beacon = is_beacon
        self._limits = limits
        self._idle_ns = nanoseconds(limits.idle_seconds)
        self._senders: dict[bytes, _Sender] = {}
        self._next_sweep = 0

    def take(self, datagram: Datagram) -> bytes | None:
        """Take one datagram, in the order of the capture.

        Returns the key of its flow's ends, None if it has no flow.
        """
        time_ns, packet, protocol, key, payload, missing = datagram
        if is_due(time_ns, self._next_sweep):
            self.sweep(time_ns)
        if protocol == PGM:
            self._take_pgm("pgm", key, payload, missing, time_ns, packet)
            return key
        kind: Kind = "udp"
        if not missing and self._is_beacon(payload):
            kind = "beacon"
        elif self._take_pgm("epgm", ends := key[:-4] + payload[:4], payload, missing, time_ns, packet):
            return ends
        elif not self._is_named(int.from_bytes(key[-4:-2], "big"), int.from_bytes(key[-2:], "big")):
            return None
        sender = self._sender(kind.encode() + key, kind, key, time_ns, packet)
        sender.dissection.datagram(payload, missing, time_ns, packet)
        return key

    def _take_pgm(
        self, transport: Transport, key: bytes, payload: bytes, missing: int, time_ns: int, packet: int
    ) -> bool:
        """Take a packet of PGM; ``key`` names the ends of its sender's flow. Returns whether it is one."""
        if missing:
            known = self._senders.get(transport.encode() + key + payload[8:14]) if len(payload) >= 14 else None
            if known is not None:
                known.dissection.cut(time_ns, packet)
            return known is not None
        pgm = parse_pgm(payload, transport == "epgm")
        if pgm is not None and (pgm.data or pgm.is_spm or pgm.parity):
            self._put_in_order(pgm, transport, key, time_ns, packet)
        return pgm is not None

    def _put_in_order(self, pgm: Pgm, transport: Transport, key: bytes, time_ns: int, packet: int) -> None:
        sender = self._sender(transport.encode() + key + pgm.source, transport, key, time_ns, packet)
        if sender.dissection.rejected:
            return
        order = sender.order
        order.take(pgm, time_ns, packet)
        while order.waiting_octets > self._limits.waiting_octets_per_direction:
            order.lose(time_ns, packet)

    def _sender(self, name: bytes, kind: Kind, key: bytes, time_ns: int, packet: int) -> _Sender:
        sender = self._senders.get(name)
        if sender is not None and time_ns - sender.last_ns > self._idle_ns:
            self._senders.pop(name).finish("timeout")
            sender = None
        if sender is None:
            if len(self._senders) >= self._limits.flows:
                self._evict()
            dissection = self._connect(self._number(), kind, *addresses(key))
            sender = self._senders[name] = _Sender(dissection, Order(dissection), time_ns, time_ns)
        sender.last_ns = max(sender.last_ns, time_ns)
        sender.last_packet = packet
        return sender

    def _evict(self) -> None:
        """Make room: forget the senders that have been idle for longest."""
        idle = sorted(self._senders, key=lambda name: self._senders[name].last_ns)
        for name in idle[: max(len(idle) // 16, 1)]:
            self._senders.pop(name).finish("timeout")

    def sweep(self, now_ns: int) -> None:
        """End what is idle, give up what does not come."""
        self._next_sweep = now_ns + _SWEEP_NS
        for name, sender in list(self._senders.items()):
            if now_ns - sender.last_ns > self._idle_ns:
                self._senders.pop(name).finish("timeout")
            elif not sender.dissection.rejected:
                sender.order.settle(now_ns, sender.last_packet)

    def finish(self) -> None:
        """The capture is over, and with it every flow."""
        for sender in self._senders.values():
            sender.finish("open")
        self._senders.clear()
