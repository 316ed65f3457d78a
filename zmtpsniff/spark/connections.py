"""Dissects the connections between two ends in order, whatever files they are in.

Connections does here what a :class:`~zmtpsniff.engine.sniffer.Sniffer` does elsewhere, with the same settings, flow
table and factory of dissectors. A Dissection, as zmtpsniff.open() returns it, would not do, for two reasons:

- It reads packets. A task decodes their headers once, and gives each segment to one of thousands of groups.
- It begins without a state, and ends with the capture. A group goes on in the next run from a state. It must tell
  connections that are over from those that only lack more files.
"""

from hashlib import sha256
from typing import Literal, NamedTuple

import msgspec

from dissectors.beacon import Beacons, is_beacon
from dissectors.events import AnyEvent
from dissectors.snapshots import SnapshotError
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.curve import Curve
from dissectors.zmtp.datagrams import Multicast, Radio
from zmtpsniff.engine.factory import DissectorFactory
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.addresses import Address
from zmtpsniff.net.datagrams import DatagramTable, Kind
from zmtpsniff.net.flows import FlowSnapshotError, FlowTable
from zmtpsniff.net.segment import Datagram, Segment
from zmtpsniff.spark.groups import is_unix


class ConnectionId(NamedTuple):
    """The name of a connection, 16 hexadecimal digits, the same in all files and runs.

    If it ``is_shared`` it is the same wherever the connection was captured.
    """

    name: str
    is_shared: bool


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


class StateError(ValueError):
    """Octets that are no state of connections, or not one of this format."""


class _State(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    format: Literal[2]  # of flows and dissectors the snapshots have their own
    flows: bytes
    sent: dict[bytes, int]
    conn_ids: dict[int, ConnectionId]


NO_STATE = b""
"""In place of a state that cannot be kept: if more files come, the series is dissected anew."""


class Connections:
    """The connections of one group (see :mod:`zmtpsniff.spark.groups`)."""

    def __init__(
        self, settings: Settings, state: bytes | None = None, numbers: int = 0, curve: Curve | None = None
    ) -> None:
        """Begin from a :meth:`state`, or from nothing, with flows numbered from ``numbers`` + 1 on.

        ``curve`` opens boxes of CURVE. Raises StateError.
        """
        self._flow_limits = settings.flow_limits
        self._events: list[AnyEvent] = []
        self._factory = DissectorFactory(self._events, settings.limits, settings.decode_as, curve=curve)
        self._table = FlowTable(self._connect, self._flow_limits)
        self._datagrams: DatagramTable | None = None
        self._sent: dict[bytes, int] = {}  # of Unix domain sockets: the sequence number that comes next
        self._now_ns = 0
        self.conn_ids: dict[int, ConnectionId] = {}  # of all flows so far, by their numbers
        if state is None:
            self._table.count = numbers
        else:
            self._restore(state)

    def take(self, segments: list[Segment]) -> list[AnyEvent]:
        """Take segments in order; what they tell."""
        if segments and is_unix(segments[0][2]):
            segments = [self._counted(segment) for segment in segments]
        self._table.take(segments)
        return self._told()

    def _counted(self, segment: Segment) -> Segment:
        """A segment of a Unix domain socket, numbered from the first one of its series, not of this run."""
        time_ns, packet, key, _, ack, flags, payload, missing = segment
        seq = self._sent.get(key, 1)
        self._sent[key] = (seq + len(payload) + missing) & 0xFFFF_FFFF
        return time_ns, packet, key, seq, ack, flags, payload, missing

    def take_datagram(self, datagram: Datagram) -> list[AnyEvent]:
        """Take a datagram of UDP or PGM, in order; what it tells."""
        if self._datagrams is None:
            number = self._table.number
            self._datagrams = DatagramTable(
                self._listen, number, self._factory.carries_datagrams, is_beacon, self._flow_limits
            )
        self._now_ns = datagram[0]
        self._datagrams.take(datagram)
        return self._told()

    @property
    def over_ns(self) -> int:
        """The first time from which on nothing belongs to a known TCP connection."""
        return self._table.over_ns

    def is_over(self, now_ns: int) -> bool:
        """Whether nothing that comes at ``now_ns`` belongs to a known connection."""
        return self._datagrams is None and self.over_ns <= now_ns

    @property
    def is_silent(self) -> bool:
        """Whether nothing is to be told of what is known unless more comes."""
        return self._datagrams is None and self._table.is_silent

    def state(self) -> bytes | None:
        """All that is known, to go on with; None if that cannot be kept."""
        if self._datagrams is not None:
            return None
        known = {number: name for number, name in self.conn_ids.items() if self._table.knows(number)}
        flows = self._table.snapshot(self._factory.save)
        return msgspec.msgpack.encode(_State(2, flows, self._sent, known))

    def _restore(self, octets: bytes) -> None:
        try:
            state = msgspec.msgpack.decode(octets, type=_State)
            self._table.restore(state.flows, self._factory.restored)
        except (msgspec.MsgspecError, UnicodeDecodeError, FlowSnapshotError, SnapshotError) as error:
            raise StateError(f"not a state of this format: {error}") from error
        self._sent = state.sent
        self.conn_ids = state.conn_ids

    def finish(self, now_ns: int) -> tuple[bytes | None, list[AnyEvent], list[AnyEvent]]:
        """The series ends at ``now_ns``. Returns the state for more of its files, and the last events.

        The events come in two lists. The first has those of connections that are over. The second has those that exist
        only because the files end; later files may replace them.
        """
        going_on = set(self._table.open_flows(now_ns))
        state = None if self.over_ns <= now_ns else self.state() or NO_STATE
        self._table.finish(now_ns)
        last = self._told()
        final = [event for event in last if getattr(event, "flow", None) not in going_on]
        provisional = [event for event in last if getattr(event, "flow", None) in going_on]
        if self._datagrams is not None:
            self._datagrams.finish()
            provisional += self._told()
        return state, final, provisional

    def close(self) -> None:
        """Break the cycles between the tables and these connections, so that their memory is free at once."""
        self._table.forget()
        del self._table, self._datagrams

    def _told(self) -> list[AnyEvent]:
        events, self._events[:] = self._events[:], []
        return events

    def _connect(self, number: int, client: Address, server: Address, starts: tuple[bool, bool]) -> ZmtpConnection:
        numbers = self._table.initial_numbers(number)
        if numbers is not None:
            self.conn_ids[number] = shared_id(*numbers)
        else:
            start_ns = self._table.started_ns(number)
            self.conn_ids[number] = local_id(client.transport, client.text, server.text, start_ns)
        return self._factory.connection(number, client, server, starts)

    def _listen(self, number: int, kind: Kind, src: Address, dst: Address) -> Radio | Multicast | Beacons:
        self.conn_ids[number] = local_id(kind, src.text, dst.text, self._now_ns)
        return self._factory.datagrams(number, kind, src, dst)
