"""Connections of one series dissected in order, as :class:`zmtpsniff.sniffer.Sniffer` does those of a whole capture."""

from hashlib import sha256
from operator import attrgetter

from dissectors.events import AnyEvent
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.datagrams import Multicast, Radio
from dissectors.zmtp.stream import Limits as DissectorLimits
from zmtpsniff.datagrams import DatagramTable, Transport
from zmtpsniff.flows import Address, FlowTable, Limits
from zmtpsniff.segment import Datagram, Segment
from zmtpsniff.spark.options import Options

_FLOW = attrgetter("flow")


def connection_id(transport: str, client: str, server: str, start_ns: int) -> str:
    """The name of a connection, the same in whatever files and runs it is seen.

    ``transport`` is tcp (also of ws), ipc, udp, pgm or epgm; for udp and PGM the client is the sender.
    """
    return sha256(f"{transport}|{client}|{server}|{start_ns}".encode()).hexdigest()[:16]


class Connections:
    """What is sent between two ends; ``conn_ids`` names each flow of it by its number."""

    def __init__(self, events: list[AnyEvent], conn_ids: dict[int, str], options: Options, numbers: int = 0) -> None:
        """Append to ``events`` and ``conn_ids``; number flows from ``numbers`` + 1 on."""
        limits = Limits(idle_seconds=options.idle_seconds)
        self._events = events
        self._conn_ids = conn_ids
        self._options = options
        self._limits = DissectorLimits(options.max_bytes, options.show_secrets)
        self._flows = FlowTable(self._connect, limits)
        self._flows.count = numbers
        self._datagrams: DatagramTable | None = None
        self._flow_limits = limits
        self._now_ns = 0
        self._senders: list[int] = []

    @property
    def numbers(self) -> int:
        """The number of the flow that began last."""
        return self._flows.count

    def take(self, segments: list[Segment]) -> None:
        """Take segments in order."""
        self._flows.take(segments)

    def take_datagram(self, datagram: Datagram) -> None:
        """Take a datagram of UDP or PGM, in order."""
        if self._datagrams is None:
            self._datagrams = DatagramTable(self._listen, self._flows.number, self._is_named, self._flow_limits)
        self._now_ns = datagram[0]
        self._datagrams.take(datagram)

    def finish(self, now_ns: int) -> list[AnyEvent]:
        """End what is open when the series ends, at ``now_ns``: the events of that, taken out of all events.

        They are provisional: with more files of the series they may be others.
        """
        going_on = {*self._flows.open_flows(now_ns), *self._senders}
        done = len(self._events)
        self._flows.finish(now_ns)
        if self._datagrams is not None:
            self._datagrams.finish()
        last = self._events[done:]
        if not going_on or not last:
            return []
        self._events[done:] = [event for event in last if _FLOW(event) not in going_on]
        return [event for event in last if _FLOW(event) in going_on]

    def _connect(self, number: int, client: Address, server: Address, from_start: bool) -> ZmtpConnection:
        rules = (rule.version for rule in self._options.rules if rule.matches("tcp", server.port, client.port))
        forced = next(rules, None)
        self._conn_ids[number] = connection_id(
            client.transport, client.text, server.text, self._flows.started_ns(number)
        )
        starts = (from_start, from_start)
        return ZmtpConnection(
            self._events, number, client.text, server.text, starts, self._limits, forced, client.transport
        )

    def _listen(self, number: int, transport: Transport, src: Address, dst: Address) -> Radio | Multicast:
        self._conn_ids[number] = connection_id(transport, src.text, dst.text, self._now_ns)
        self._senders.append(number)
        if transport == "udp":
            return Radio(self._events, number, src.text, dst.text, self._limits)
        forced = transport == "epgm" and self._is_named(dst.port)
        return Multicast(self._events, number, transport, src.text, dst.text, self._limits, forced)

    def _is_named(self, *ports: int) -> bool:
        return any(rule.matches("udp", *ports) for rule in self._options.rules)
