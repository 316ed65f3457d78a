"""The engine: segments and datagrams in, events and notices out.

A Sniffer drives one engine for a whole capture. A task of Spark drives one, too. It puts flows aside, and carries their
states over to the next run.
"""

from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from dissectors import snapshots
from dissectors.beacon import Beacons, is_beacon
from dissectors.events import AnyEvent
from dissectors.snapshots import SnapshotError
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.curve import Curve
from dissectors.zmtp.datagrams import Multicast, Radio
from dissectors.zmtp.evidence import Doubts
from dissectors.zmtp.usual import UsualConnection
from zmtpsniff.decode_as import first_match
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.addresses import Address, addresses
from zmtpsniff.net.datagram_table import DatagramTable, Kind
from zmtpsniff.net.flow import Flow
from zmtpsniff.net.flow_dissection import FlowDissection
from zmtpsniff.net.flows import FlowTable
from zmtpsniff.net.notices import CaptureProblem, Notice
from zmtpsniff.net.segment import ANSWERS, BEGINS, PASSES, PGM, SYN, UDP, Datagram, Segment, Step, packet_of
from zmtpsniff.net.witness import Acknowledge, Witness

if TYPE_CHECKING:  # few runs need it
    from zmtpsniff.net.tls import Tls, TlsConnection

Begin = Callable[[int, str, Address, Address], None]
"""Called with a flow's number, its transport or "beacon", its client or sender, its server or destination."""

Told = tuple[list[AnyEvent], list[tuple[int, Notice]]]
"""Events, and notices with their places among them."""

_FLOWS = "flows"  # a kind of snapshots
_TELLING = {BEGINS, ANSWERS, UDP, PGM}  # kinds of steps and datagrams: acknowledgments before them are told first


class StateError(ValueError):
    """Octets that are no snapshot of an engine, or one of another format."""


class FlowEngine:
    """The flows of a capture with their dissectors, which append to one list of events."""

    def __init__(
        self,
        settings: Settings,
        curve: Curve | None = None,
        *,
        tls: "Tls | None" = None,
        witness: Witness | None = None,
        begin: Begin | None = None,
        wake: Callable[[bytes], None] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        """``curve`` opens boxes of CURVE, ``tls`` stands in front of the dissectors, if there are any.

        ``witness`` hears of attempts to connect and of receivers that stall, ``acknowledge`` of acknowledgments. The
        engine calls ``begin`` for each flow that gets a dissector, and ``wake`` before a flow begins: with the key of
        its ends, so that those can :meth:`resume` that were put aside. It makes notices if the settings ask for
        ``patterns``.
        """
        self.events: list[AnyEvent] = []
        """The events that :meth:`give` gives next. Others may append their own."""
        self._notices: list[tuple[int, Notice]] = []
        self._limits = settings.limits
        self._rules = settings.decode_as
        self._sample = settings.sample
        self._curve = curve
        self._tls = tls
        self._begin = begin
        self._acknowledge = acknowledge
        self._untold: list[Segment] = []  # segments whose acknowledgments are still to be told
        self.listens = not (acknowledge is None and witness is None)
        """Whether somebody asks for attempts to connect, or for acknowledgments."""
        self._may_take_whole = tls is None and not settings.decode_as and settings.sample == 1
        self._doubts = Doubts()
        self.flows = FlowTable(
            self._connect,
            settings.flow_limits,
            self._notify if settings.patterns else None,
            witness,
        )
        self.flows.register.wake = wake
        if acknowledge is not None:
            self.flows.begun_behind = []
        self._datagrams = DatagramTable(
            self._listen, self.flows.register.number, self._carries_datagrams, is_beacon, settings.flow_limits
        )

    def take(
        self,
        segments: list[Segment],
        datagrams: Sequence[Datagram] = (),
        is_last: bool = True,
        steps: Sequence[Step] = (),
    ) -> list[tuple[int, bytes]]:
        """Take the segments and the datagrams of some packets, both in the order of the capture.

        ``is_last``: they end a batch, so that it is time to make room. ``steps`` are of connections that come whole, if
        this :attr:`takes_whole` ones.

        Returns the packet of each datagram that has a flow, and the key of the flow's ends.
        """
        if not datagrams and not steps:
            self._take_segments(segments, is_last)
            self._tell_acknowledgments()
            return []
        found = []
        begin, size = 0, len(segments)
        others: list[Any] = [*steps, *datagrams]
        if datagrams:
            others.sort(key=packet_of)
        for other in others:  # each in its place among the segments
            packet, kind = other[1], other[2]
            if begin < size and segments[begin][1] < packet:
                end = bisect(segments, packet, begin, key=packet_of)
                self._take_segments(segments[begin:end], is_last=kind > PASSES)
                begin = end
            if kind in _TELLING:
                self._tell_acknowledgments()
            if kind <= PASSES:
                self.take_step(other)
            elif (key := self._datagrams.take(other)) is not None:
                found.append((packet, key))
        self._take_segments(segments[begin:], is_last=is_last and not steps)
        self._tell_acknowledgments()
        if steps and is_last:
            self.flows.end_batch()
        return found

    def _take_segments(self, segments: list[Segment], is_last: bool) -> None:
        """Take segments, and tell before each SYN what those before it acknowledge.

        The connection that it begins may have the ends of the one before it.
        """
        if self._acknowledge is None:
            self.flows.take(segments, is_last)
            return
        begin = 0
        for end in [*(place for place, segment in enumerate(segments) if segment[5] & SYN), len(segments)]:
            if part := segments[begin:end]:
                self.flows.take(part, is_last)
                self._untold += part
            if end < len(segments):
                self._tell_acknowledgments()
            begin = end

    def _tell_acknowledgments(self) -> None:
        """Tell what the segments so far acknowledge, also those that came before their flow began, if it has begun."""
        if self._acknowledge is not None and self._untold:
            begun, self.flows.begun_behind = self.flows.begun_behind or [], []
            self._acknowledge(self.flows.register.acknowledgments([*begun, *self._untold]))
            self._untold = []

    @property
    def takes_whole(self) -> bool:
        """Whether connections may come whole: no part asks for more of them than their octets."""
        return self._may_take_whole and self._wanted is None

    def refuse_whole(self) -> None:
        """Take no connection whole: its packets do not have the addresses that it has here."""
        self._may_take_whole = False

    def take_step(self, step: Step) -> None:
        """Take a step of a connection that comes whole."""
        time_ns, packet, kind, sides, *more = step
        if kind < BEGINS:
            octets, offset, seen = more
            sides[kind].feed(octets, time_ns, packet, offset, seen)
        elif kind == BEGINS:
            key, facts = more
            whole = self.flows.add_whole(key, time_ns, facts)
            client, server = addresses(key)
            if self._begin is not None:
                self._begin(whole.number, client.transport, client, server)
            connection = UsualConnection(self.events, whole.number, client.text, server.text, self._open)
            sides += connection.client, connection.server, connection, whole
        elif kind == ANSWERS:
            self.flows.answer_whole(sides[-1], time_ns, packet)
        elif kind == PASSES:
            self.flows.pass_time(time_ns, 0, is_last=False)
        else:
            self._end_whole(sides, *more)

    def _end_whole(self, sides: list[Any], acks: Iterable[tuple[int, int, int]]) -> None:
        """End a connection that came whole, with all that was acknowledged: when, whose octets, up to where."""
        *ends, connection, whole = sides
        if self._acknowledge is not None:
            self._acknowledge((time_ns, whole.number, ends[side].address, offset) for time_ns, side, offset in acks)
        if not connection.rejected:
            connection.finish("fin", whole.start_ns, whole.last_ns, whole.closed_by)
        connection.release()
        sides.clear()

    def give(self) -> Told:
        """The events since the last call, and the notices with their places among them."""
        events, notices = self.events[:], self._notices[:]
        self.events.clear()  # the dissectors hold this list
        self._notices.clear()
        return events, notices

    def settle(self, now_ns: int) -> None:
        """Give up what has been waiting for too long at ``now_ns``, though no packet shows that time."""
        self.flows.settle(now_ns)
        self._datagrams.sweep(now_ns)

    def finish(self, now_ns: int | None = None) -> None:
        """End every flow, at ``now_ns`` if packets came after the last segment."""
        self.flows.finish(now_ns)
        self._datagrams.finish()

    def problems(self) -> list[CaptureProblem]:
        """Problems of the whole capture after its end."""
        tls = () if self._tls is None else self._tls.skipped()
        return [*self.flows.problems(), *(CaptureProblem(*one) for one in (*tls, *self._doubts.problems()))]

    def save(self, flow: Flow) -> bytes:
        """The state of a TCP connection between two calls of :meth:`take`, for :meth:`resume`."""
        return flow.snapshot(_save)

    def put_aside(self, flow: Flow) -> Told | None:
        """Forget a TCP connection that has been saved. Returns what it would tell if the capture ended now.

        That is None if the connection has not begun: a witness would hear of it, too.
        """
        begin, noticed, is_begun = len(self.events), len(self._notices), flow.begun
        self.flows.register.put_aside(flow)
        notices = [(place - begin, notice) for place, notice in self._notices[noticed:]]
        events = self.events[begin:]
        del self.events[begin:], self._notices[noticed:]
        return (events, notices) if is_begun else None

    def resume(self, states: Sequence[bytes]) -> None:
        """Follow connections between the same ends again, of which the last one is the latest; raises StateError."""
        try:
            for octets in states:
                flow = Flow.restore(self.flows.commons, octets, self._load)
                self.flows.register.enter(flow, is_retired=octets is not states[-1])
        except SnapshotError as error:
            raise StateError(f"not a state of this format: {error}") from error

    def snapshot(self) -> bytes:
        """The state that all TCP connections share, but for those that have one of their own. Datagrams have none."""
        return snapshots.save(_FLOWS, self.flows)

    def restore(self, snapshot: bytes) -> None:
        """Go on from the :meth:`snapshot` of another engine, with the settings of this one, which must be new.

        Raises StateError.
        """
        try:
            snapshots.load(_FLOWS, snapshot, self.flows)
        except SnapshotError as error:
            raise StateError(f"not a state of this format: {error}") from error

    # ------------------------------------------------------------------ dissectors

    def _connect(
        self, number: int, client: Address, server: Address, starts: tuple[bool, bool]
    ) -> "ZmtpConnection | UsualConnection | TlsConnection | None":
        """The dissector of a flow of TCP, by its addresses and the user's rules; None if it is not in the sample."""
        if self._sample > 1 and not in_sample(client.text, server.text, self._sample):
            return None
        if self._begin is not None:
            self._begin(number, client.transport, client, server)
        rule = first_match(self._rules, "tcp", server.port, client.port) if self._rules else None
        if rule is None and self._tls is None and self._wanted is None and client.transport == "tcp" and all(starts):
            return UsualConnection(self.events, number, client.text, server.text, self._open)
        connection = ZmtpConnection(
            self.events,
            number,
            client.text,
            server.text,
            starts,
            self._limits,
            None if rule is None else rule.version,
            client.transport,
            self._doubts if client.transport == "tcp" else None,  # what they advise is a rule, which names a port
            self._wanted,
        )
        return connection if self._tls is None else self._tls.connect(connection, client, server)

    def _open(self, events: list[AnyEvent], number: int, client: str, server: str) -> ZmtpConnection:
        """The dissector of a flow whose beginning is not the usual one."""
        return ZmtpConnection(events, number, client, server, limits=self._limits, doubts=self._doubts)

    def _load(self, snapshot: bytes) -> ZmtpConnection:
        return ZmtpConnection.restore(snapshot, self.events, self._limits, self._doubts, self._wanted)

    @property
    def _wanted(self) -> Curve | None:
        """The object that opens boxes; None as long as there are no keys, so that connections need not ask it."""
        return self._curve if self._curve is not None and self._curve.is_wanted else None

    def _listen(self, number: int, kind: Kind, src: Address, dst: Address) -> Radio | Multicast | Beacons:
        """The dissector of the datagrams of one sender to one destination."""
        if self._begin is not None:
            self._begin(number, kind, src, dst)
        if kind == "beacon":
            return Beacons(self.events, number, src.text, dst.text)
        if kind == "udp":
            return Radio(self.events, number, src.text, dst.text, self._limits)
        forced = kind == "epgm" and self._carries_datagrams(dst.port)
        return Multicast(self.events, number, kind, src.text, dst.text, self._limits, forced)

    def _carries_datagrams(self, *ports: int) -> bool:
        """Whether a rule says that one of these UDP ports carries ZMTP's datagrams."""
        return first_match(self._rules, "udp", *ports) is not None

    def _notify(self, notice: Notice) -> None:
        """Keep a notice with its place among the events."""
        self._notices.append((len(self.events), notice))


def in_sample(one: str, other: str, sample: int) -> bool:
    """Whether the connection of two addresses is one of ``sample`` that are looked at: the same on every host."""
    return crc32(" ".join(sorted((one, other))).encode()) % sample == 0


def _save(dissection: FlowDissection) -> bytes:
    whole = dissection.open() if isinstance(dissection, UsualConnection) else dissection
    assert isinstance(whole, ZmtpConnection)
    return whole.snapshot()
