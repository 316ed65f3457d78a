"""Metrics for Prometheus, counted in plain numbers and made into samples only when somebody asks for them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import sysconf
from threading import Event
from time import process_time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dissectors.address import FIRST_CLIENT_PORT, host_of, port_of
from dissectors.batches import BatchSide, MessageBatch
from dissectors.events import AnyEvent, Connection, Message, Problem, Subscription
from dissectors.zmtp.sockets import PEERS
from zmtpsniff.analysis.statistics.stats_records import PEER_FIGURES, PeerFigure
from zmtpsniff.errors import naming

if TYPE_CHECKING:
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.analysis.findings.finding import Finding
    from zmtpsniff.analysis.findings.finding_watch import FindingWatch

MOST_SERVICES = 100  # that have labels of their own
MOST_PEERS = 500  # hosts of peers of services, likewise
MOST_PROGRAMS = 100  # that pass messages on, likewise
OTHER = "other"  # the label of all others
# Upper ends of the buckets for times to reply, in seconds.
BOUNDS = (1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_KINDS = {*PEERS, "unknown"}
_BOUNDS_NS = [round(bound * 1e9) for bound in BOUNDS]
_PATH = "/metrics"
_PATIENCE = 1.5  # seconds; a live capture gives a batch once a second at least, empty or not
_SOCKET = ("service", "sender", "socket_type")
_PEER = ("service", "host")
_FINDING = ("code", "severity", "service")
_PROGRAM = ("program",)
_PAGE = sysconf("SC_PAGE_SIZE")
_METRICS: dict[str, Any] = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


def _peer_family(one: PeerFigure) -> str:
    """The name of the family of a figure, with its unit."""
    return f"zmtp_peers_{one.field.removesuffix('_ns')}{'_seconds' if one.kind == 'time' else ''}"


_FAMILIES: tuple[tuple[Any, str, str, Sequence[str]], ...] = (  # kind, name, meaning, labels
    (CounterMetricFamily, "zmtp_messages", "Messages.", _SOCKET),
    (CounterMetricFamily, "zmtp_octets", "Octets of the streams.", _SOCKET),
    (CounterMetricFamily, "zmtp_connections_opened", "Connections seen.", ["service"]),
    (GaugeMetricFamily, "zmtp_connections_open", "Connections that are open.", ["service"]),
    (GaugeMetricFamily, "zmtp_subscriptions_active", "Topics subscribed to now.", ["service"]),
    (CounterMetricFamily, "zmtp_subscriptions", "Topics subscribed to or cancelled.", ["action"]),
    (CounterMetricFamily, "zmtp_problems", "Problems; zmtpsniff explain CODE says more.", ["code", "severity"]),
    (GaugeMetricFamily, "zmtp_findings", "Findings so far; zmtpsniff explain CODE says more.", _FINDING),
    (GaugeMetricFamily, "zmtp_findings_active", "Findings that happened in the last minute.", _FINDING),
    *((_METRICS[one.metric], _peer_family(one), one.meaning, _PEER) for one in PEER_FIGURES if one.metric),
    (CounterMetricFamily, "zmtp_programs_passed", "Messages that programs passed on.", _PROGRAM),
    (GaugeMetricFamily, "zmtp_programs_queue", "Messages that programs took and have not passed on.", _PROGRAM),
)

_Counts = dict[str, Counter[tuple[str, ...]]]  # by the name of a family: numbers by the values of its labels

_Label = TypeVar("_Label")
_Application = Callable[..., Iterable[bytes]]  # of WSGI


def _only_at(path: str, application: _Application) -> _Application:
    """An application that answers at ``path`` alone; prometheus_client's answers at every path."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == path:
            return application(environ, start_response)
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"the metrics are at {path}\n".encode()]

    return answer


class MetricsSource(Protocol):
    """The part of a dissection that Metrics asks."""

    @property
    def packets(self) -> int:
        """The number of packets so far."""

    @property
    def dropped(self) -> int:
        """The number of packets lost so far."""

    def open_connections(self) -> Iterable[Connection]:
        """Summaries of the open connections."""

    def server(self, flow: int) -> str | None:
        """The address and port of the server of an open connection."""


class Metrics:
    """Counts events by service: the address that peers connect to.

    The dissectors count messages and octets anyway, for the summaries of connections. So Metrics looks at few events.
    When somebody asks for samples, it asks for the summaries of open connections.
    """

    def __init__(self, capture: MetricsSource, diagnosis: "Diagnosis", watch: "FindingWatch") -> None:
        """``capture`` knows the open connections, ``watch`` the findings of ``diagnosis``, which gets the events."""
        self._watch = watch
        self._capture = capture
        self._diagnosis = diagnosis
        self._services: set[str] = set()
        self._hosts: set[tuple[str, str]] = set()  # services with hosts of their peers
        self._programs: set[str] = set()  # that pass messages on
        self._flows: dict[int, list[int]] = {}  # flows with replies: the latencies of their service
        self._over: _Counts = {name: Counter() for _, name, _, _ in _FAMILIES}
        self._open: dict[int, Connection] = {}  # by flow: those whose last summary has not come
        self._now = self._over  # with the open connections
        self._latencies: dict[str, list[int]] = {}  # by service: a count for each bucket, and the sum in nanoseconds
        self._is_wanted = Event()  # somebody waits for samples
        self._is_new = Event()  # they are there
        self._close: Callable[[], None] = lambda: None

    def serve(self, address: str, port: int) -> int:
        """Answer only at this address. Returns the port, which is another one if it was 0. Raises Error."""
        registry = CollectorRegistry()
        registry.register(self)
        with naming(f"--metrics {address}:{port}"):
            server, thread = start_http_server(port, address, registry)

        server.set_app(_only_at(_PATH, make_wsgi_app(registry)))

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._close = close
        return int(server.server_port)

    def close(self) -> None:
        """Answer no more."""
        self._close()

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Count some events; messages may be in columns."""
        for batch in events:
            if isinstance(batch, MessageBatch):
                for side, latency_ns in batch.latencies():
                    self._count_reply(side, latency_ns)
        for event in self._diagnosis.take(events):
            if type(event) is Message:
                self._count_reply(event, event.latency_ns or 0)
            elif isinstance(event, Problem):
                self._over["zmtp_problems"][event.code, event.severity] += 1
            elif isinstance(event, Connection):
                self._flows.pop(event.flow, None)
                self._open.pop(event.flow, None)
                self._count(self._over, event, is_open=False)
            elif isinstance(event, Subscription):
                self._over["zmtp_subscriptions"][event.action,] += 1
        if self._is_wanted.is_set():
            self._is_wanted.clear()
            self._look()
            self._is_new.set()

    def _count_reply(self, reply: Message | BatchSide, latency_ns: int) -> None:
        latencies = self._flows.get(reply.flow)
        if latencies is None:
            latencies = self._flows[reply.flow] = self._latencies_of(reply)
        latencies[bisect_left(_BOUNDS_NS, latency_ns)] += 1
        latencies[-1] += latency_ns

    def _look(self) -> None:
        """Add up the connections that are over and those that are open, and count the findings."""
        now = {name: counts.copy() for name, counts in self._over.items()}
        for name, findings in (("zmtp_findings", self._watch.found), ("zmtp_findings_active", self._watch.active())):
            now[name].update((each.code, each.severity, self._place(each)) for each in findings)
        self._open.update((connection.flow, connection) for connection in self._capture.open_connections())
        for connection in self._open.values():
            self._count(now, connection, is_open=True)
        self._count_peers(now)
        self._count_queues(now)
        self._now = now

    def _count(self, counts: _Counts, connection: Connection, is_open: bool) -> None:
        service = self._label(connection.server.address)
        for side, peer in (("client", connection.client), ("server", connection.server)):
            kind = peer.socket_type or "unknown"
            labels = service, side, kind if kind in _KINDS else OTHER
            counts["zmtp_messages"][labels] += getattr(connection.messages, side)
            counts["zmtp_octets"][labels] += getattr(connection.octets, side)
        counts["zmtp_connections_opened"][service,] += 1
        counts["zmtp_connections_open"][service,] += is_open
        counts["zmtp_subscriptions_active"][service,] += len(connection.subscriptions) if is_open else 0

    def _count_peers(self, counts: _Counts) -> None:
        """Add up the work of the peers of each host."""
        for row in self._diagnosis.peers(self._open.values()):
            labels = self._label(row.service), host_of(row.peer)
            if not _is_kept(labels, self._hosts, MOST_PEERS):
                labels = labels[0], OTHER
            for one in PEER_FIGURES:
                if one.metric:
                    value = getattr(row, one.field)
                    counts[_peer_family(one)][labels] += value / 1e9 if one.kind == "time" else value

    def _count_queues(self, counts: _Counts) -> None:
        """Add up the queues of the programs that pass messages on."""
        for row in self._diagnosis.queues():
            program = row.program if row.program in self._services else host_of(row.program)
            if not _is_kept(program, self._programs, MOST_PROGRAMS):
                program = OTHER
            counts["zmtp_programs_passed"][program,] += row.passed
            counts["zmtp_programs_queue"][program,] += row.left

    def _latencies_of(self, reply: Message | BatchSide) -> list[int]:
        service = self._label(self._capture.server(reply.flow) or min(reply.src, reply.dst, key=port_of))
        return self._latencies.setdefault(service, [0] * (len(BOUNDS) + 2))

    def _place(self, finding: "Finding") -> str:
        """The service that a finding is about."""
        known = next((one for one in finding.endpoints if one in self._services), None)
        bound = next((one for one in finding.endpoints if port_of(one) < FIRST_CLIENT_PORT), None)
        return known or (OTHER if bound is None else self._label(bound))

    def _label(self, server: str) -> str:
        return server if _is_kept(server, self._services, MOST_SERVICES) else OTHER

    def collect(self) -> Iterator[Metric]:
        """All samples, as prometheus_client asks for them, in a thread of its own."""
        self._is_new.clear()
        self._is_wanted.set()
        self._is_new.wait(_PATIENCE)  # then what was known before
        now = self._now
        for kind, name, meaning, labels in _FAMILIES:
            family = kind(name, meaning, labels=labels)
            for values, number in list(now[name].items()):
                family.add_metric(values, number)
            yield family
        latencies = HistogramMetricFamily("zmtp_reply_seconds", "How long replies took.", labels=["service"])
        for service, counts in list(self._latencies.items()):
            *buckets, total = list(counts)
            latencies.add_metric([service], _cumulated(buckets), total / 1e9)
        yield latencies
        yield CounterMetricFamily("zmtpsniff_packets", "Packets captured.", value=self._capture.packets)
        yield CounterMetricFamily(
            "zmtpsniff_packets_dropped", "Packets that the capture lost.", value=self._capture.dropped
        )
        yield CounterMetricFamily("zmtpsniff_cpu_seconds", "Processor time of zmtpsniff itself.", value=process_time())
        yield GaugeMetricFamily("zmtpsniff_memory_octets", "Memory of zmtpsniff itself.", value=_memory_octets())


def _is_kept(label: _Label, known: set[_Label], most: int) -> bool:
    """Whether a label is one of its own, and not one of the others. The first ``most`` are."""
    if label not in known and len(known) < most:
        known.add(label)
    return label in known


def _memory_octets() -> int:
    """The memory that this process has now; 0 where the system does not say it as Linux does."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0


def _cumulated(buckets: Sequence[int]) -> list[tuple[str, float]]:
    """Counts as Prometheus has them: each bucket holds those below it, too."""
    total = 0
    made = []
    for bound, count in zip([*map(str, BOUNDS), "+Inf"], buckets, strict=True):
        total += count
        made.append((bound, float(total)))
    return made
