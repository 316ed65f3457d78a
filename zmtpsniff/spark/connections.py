"""What two ends say to each other dissected in order, whatever files it is in."""

import gc

from dissectors.beacon import Beacons, is_beacon
from dissectors.events import AnyEvent
from dissectors.zmtp.datagrams import Multicast, Radio
from dissectors.zmtp.stream import Limits as DissectorLimits
from zmtpsniff.addresses import Address
from zmtpsniff.datagrams import DatagramTable, Kind
from zmtpsniff.flows import Limits
from zmtpsniff.segment import Datagram, Segment
from zmtpsniff.spark.join import Join
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.pieces import Outcome, Piece, connection_id
from zmtpsniff.spark.states import StateError


def spare_collector() -> None:
    """Have Python look for cycles less often: events and packets are many, short-lived and in no cycles."""
    gc.set_threshold(100_000, 20, 100)


def dissector_limits(options: Options) -> DissectorLimits:
    """What a dissector is to keep of bodies."""
    return DissectorLimits(options.max_bytes, options.show_secrets)


def flow_limits(options: Options) -> Limits:
    """Bounds of memory and time."""
    return Limits(idle_seconds=options.idle_seconds)


NO_STATE = b""
"""What stands for a state that cannot be kept: with more files of the series it is dissected anew."""


class Connections:
    """The connections of one group (see :mod:`zmtpsniff.spark.groups`)."""

    def __init__(self, options: Options, state: bytes | None = None, numbers: int = 0) -> None:
        """Begin with a state of an earlier run, or nothing; number flows from ``numbers`` + 1 on."""
        self._options = options
        self.join = Join(state, dissector_limits(options), flow_limits(options), options.rules, numbers)
        self._datagrams: DatagramTable | None = None
        self._events: list[AnyEvent] = []  # of datagrams
        self._senders: dict[int, str] = {}
        self._now_ns = 0

    @property
    def numbers(self) -> int:
        """The number of the flow that began last."""
        return self.join.numbers

    def conn_ids(self) -> dict[int, str]:
        """The ids of all flows so far, by their numbers."""
        return {number: identity.conn_id for number, identity in self.join.identities.items()} | self._senders

    def take(self, segments: list[Segment]) -> list[AnyEvent]:
        """Take segments in order; what they tell."""
        return self.join.dissect(segments)

    def take_pieces(self, pieces: list[Piece]) -> list[Outcome]:
        """Take pieces in order."""
        return list(self.join.take(pieces))

    def take_datagram(self, datagram: Datagram) -> list[AnyEvent]:
        """Take a datagram of UDP or PGM, in order; what it tells."""
        if self._datagrams is None:
            limits = flow_limits(self._options)
            self._datagrams = DatagramTable(self._listen, self.join.number, self._is_named, is_beacon, limits)
        self._now_ns = datagram[0]
        self._datagrams.take(datagram)
        events, self._events[:] = self._events[:], []
        return events

    def is_over(self, now_ns: int) -> bool:
        """Whether nothing that comes at ``now_ns`` is of a connection that is known."""
        return self._datagrams is None and not self.join.lasts(now_ns)

    def aside(self) -> bytes | None:
        """All that is known, to go on with in this run; None if that cannot be kept."""
        return None if self._datagrams is not None else self.join.whole_state()

    def finish(self, now_ns: int) -> tuple[bytes | None, list[AnyEvent], list[AnyEvent]]:
        """The series ends at ``now_ns``: what more files of it begin with, and the last events.

        The events come in two lists: those of connections that are over, and those that are told only because the files
        end, which others may replace.
        """
        going_on = self.join.going_on(now_ns)
        state = None
        if self.join.lasts(now_ns):
            try:
                state = self.join.state()
            except StateError:
                state = NO_STATE
        last = self.join.finish(now_ns)
        final = [event for event in last if getattr(event, "flow", None) not in going_on]
        provisional = [event for event in last if getattr(event, "flow", None) in going_on]
        if self._datagrams is not None:
            self._datagrams.finish()
            provisional += self._events
            self._events.clear()
        return state, final, provisional

    def _listen(self, number: int, transport: Kind, src: Address, dst: Address) -> Radio | Multicast | Beacons:
        self._senders[number] = connection_id(transport, src.text, dst.text, self._now_ns)
        limits = dissector_limits(self._options)
        if transport == "beacon":
            return Beacons(self._events, number, src.text, dst.text)
        if transport == "udp":
            return Radio(self._events, number, src.text, dst.text, limits)
        forced = transport == "epgm" and self._is_named(dst.port)
        return Multicast(self._events, number, transport, src.text, dst.text, limits, forced)

    def _is_named(self, *ports: int) -> bool:
        return any(rule.matches("udp", *ports) for rule in self._options.rules)
