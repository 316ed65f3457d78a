"""The connections between two ends, dissected in order, whatever files they are in.

A task of Spark decodes the headers of packets once, and gives each segment to one of thousands of groups. Each group
has an engine (:mod:`zmtpsniff.engine.flow_engine`), as each Sniffer has. Unlike a capture, a group goes on in the next
run from a state. It must tell connections that are over from those that only lack more files. Flows have the numbers
that ``read`` gives them: all groups count them together.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

import msgspec

from dissectors.events import AnyEvent
from dissectors.zmtp.curve import Curve
from zmtpsniff.analysis.insertions import inserted
from zmtpsniff.engine.flow_engine import FlowEngine, StateError, Told
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.addresses import Address
from zmtpsniff.net.flow import FlowDirection
from zmtpsniff.net.notices import Notice
from zmtpsniff.net.segment import Datagram, Segment
from zmtpsniff.net.witness import Acknowledgment, Witness
from zmtpsniff.spark.groups import is_unix


class ConnectionId(NamedTuple):
    """The name of a connection, 16 hexadecimal digits, the same in all files and runs.

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


class _State(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    format: Literal[2]  # of flows and dissectors the snapshots have their own
    flows: bytes
    sent: dict[bytes, int]
    conn_ids: dict[int, ConnectionId]


NO_STATE = b""
"""In place of a state that cannot be kept: if more files come, the series is dissected anew."""

Last = AnyEvent | Notice


class FlowCount:
    """The number of flows in a series so far."""

    def __init__(self, value: int = 0) -> None:
        """Begin behind so many."""
        self.value = value


class Connections:
    """The connections of one group (see :mod:`zmtpsniff.spark.groups`): over TCP, or datagrams between two hosts."""

    def __init__(
        self,
        settings: Settings,
        state: bytes | None = None,
        count: FlowCount | None = None,
        curve: Curve | None = None,
        witness: Witness | None = None,
        told: Told | None = None,
    ) -> None:
        """Begin from a :meth:`state`, or from nothing. ``count`` numbers new flows.

        ``curve`` opens boxes of CURVE, ``witness`` hears of attempts and stalls. Events go to ``told``, where groups
        have that together. Raises StateError.
        """
        self._count = count or FlowCount()
        self._engine = FlowEngine(settings, curve, witness=witness, begin=self._name, told=told)
        self.give = self._engine.give
        self._sent: dict[bytes, int] = {}  # of Unix domain sockets: the sequence number that comes next
        self._datagram_ns: int | None = None  # time of the last datagram
        self.conn_ids: dict[int, ConnectionId] = {}  # of all flows so far, by their numbers
        self.octets = 0  # that the group may hold, as whoever has it counts
        if state is not None:
            self._restore(state)

    def take(self, segments: list[Segment], datagrams: Sequence[Datagram] = ()) -> None:
        """Take segments in order, or datagrams of UDP or PGM."""
        if segments and is_unix(segments[0][2]):
            segments = [self._counted(segment) for segment in segments]
        for datagram in datagrams:
            self._datagram_ns = datagram[0]
        register = self._engine.flows.register
        register.count = self._count.value
        self._engine.take(segments, datagrams, is_last=False)
        self._count.value = register.count

    def _counted(self, segment: Segment) -> Segment:
        """A segment of a Unix domain socket, numbered from the first one of its series, not of this run."""
        time_ns, packet, key, _, ack, flags, payload, missing = segment
        seq = self._sent.get(key, 1)
        self._sent[key] = (seq + len(payload) + missing) & 0xFFFF_FFFF
        return time_ns, packet, key, seq, ack, flags, payload, missing

    @property
    def first_flow(self) -> int:
        """The number of the first of the known flows; 0 if there are none."""
        return next(iter(self._engine.flows.register.flows), 0)

    @property
    def pause_ns(self) -> int:
        """A flow needs a closer look after a longer pause."""
        return self._engine.flows.pause_ns

    def settled(self, key: bytes) -> FlowDirection | None:
        """The direction with this key, if its flow is settled."""
        return self._engine.flows.settled(key)

    def acknowledgments(self, segments: Sequence[Segment]) -> Iterator[Acknowledgment]:
        """The acknowledgments in these segments, which have been taken."""
        return self._engine.flows.register.acknowledgments(segments)

    def end_batch(self) -> None:
        """All segments of a batch have been taken, perhaps by others: take what follows from the time."""
        flows = self._engine.flows
        # Their kept octets are not counted: a group has one or two flows, which keep little.
        if known := flows.register.flows.values():
            flows.pass_time(max(flow.last_ns for flow in known), 0, is_last=True)

    @property
    def horizons(self) -> dict[int, int]:
        """The flows that lack octets, by number: the time up to which all octets are here."""
        return self._engine.flows.waiting.horizons

    @property
    def over_ns(self) -> int:
        """The first time from which on nothing belongs to a known TCP connection."""
        return self._engine.flows.over_ns

    def is_over(self, now_ns: int) -> bool:
        """Whether nothing that comes at ``now_ns`` belongs to a known connection."""
        return self._datagram_ns is None and self.over_ns <= now_ns

    @property
    def is_silent(self) -> bool:
        """Whether the known connections have no more events unless more segments come."""
        flows = self._engine.flows.register.flows.values()
        return self._datagram_ns is None and all(flow.ended and flow.begun for flow in flows)

    def state(self) -> bytes | None:
        """The state of these connections for the next run; None for datagrams, which have none."""
        if self._datagram_ns is not None:
            return None
        flows = self._engine.flows.register.flows
        known = {number: name for number, name in self.conn_ids.items() if number in flows}
        return msgspec.msgpack.encode(_State(2, self._engine.snapshot(), self._sent, known))

    def _restore(self, octets: bytes) -> None:
        try:
            state = msgspec.msgpack.decode(octets, type=_State)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StateError(f"not a state of this format: {error}") from error
        self._engine.restore(state.flows)
        self._sent = state.sent
        self.conn_ids = state.conn_ids

    def finish(self, now_ns: int) -> tuple[bytes | None, list[Last], list[Last]]:
        """The series ends at ``now_ns``. Returns the state for more of its files, and the last events and notices.

        They come in two lists. The first has those of connections that are over. The second has those that exist only
        because the files end; later files may replace them.
        """
        going_on = set(self._engine.flows.open_flows(now_ns))
        state = None if self.over_ns <= now_ns else self.state() or NO_STATE
        self._engine.finish(now_ns)
        last = inserted(*self.give())
        if self._datagram_ns is not None:
            return state, [], last
        final = [event for event in last if getattr(event, "flow", None) not in going_on]
        provisional = [event for event in last if getattr(event, "flow", None) in going_on]
        return state, final, provisional

    def close(self) -> None:
        """Break the cycles between the engine and these connections, so that their memory is free at once."""
        self._engine.close()
        del self._engine, self.give

    def _name(self, number: int, transport: str, client: Address, server: Address) -> None:
        """Give a new flow its id."""
        start_ns = self._datagram_ns
        if start_ns is None:
            flow = self._engine.flows.register.flows[number]
            numbers, start_ns = flow.initial_numbers, flow.start_ns
        else:
            numbers = None
        found = shared_id(*numbers) if numbers else local_id(transport, client.text, server.text, start_ns)
        self.conn_ids[number] = found._replace(server=server.text)
