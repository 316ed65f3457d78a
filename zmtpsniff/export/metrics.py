"""Metrics for Prometheus, counted in plain numbers and made into samples only when somebody asks for them."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Event
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dissectors.address import port_of
from dissectors.events import AnyEvent, Connection, Message, Problem, Subscription
from dissectors.zmtp.sockets import PEERS
from zmtpsniff.errors import Error

MOST_SERVICES = 100  # that have labels of their own
OTHER = "other"  # the label of all others
# Upper ends of the buckets for times to reply, in seconds.
BOUNDS = (1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_KINDS = {*PEERS, "unknown"}
_BOUNDS_NS = [round(bound * 1e9) for bound in BOUNDS]
_PATH = "/metrics"
_PATIENCE = 0.5  # seconds; packets come in batches every 50 ms, empty or not
_SOCKET = ("service", "sender", "socket_type")


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
    """What Metrics asks a dissection."""

    @property
    def packets(self) -> int:
        """The number of packets so far."""

    @property
    def dropped(self) -> int:
        """The number of packets lost so far."""

    def open_connections(self) -> Iterable[Connection]:
        """Summaries of the connections that go on."""

    def server(self, flow: int) -> str | None:
        """The address and port of the server of a connection that goes on."""


class CodedFinding(Protocol):
    """What Metrics tells of a finding; its words and endpoints are for people."""

    @property
    def code(self) -> str:
        """Which finding this is."""

    @property
    def severity(self) -> str:
        """How bad it is."""


class FindingsSource(Protocol):
    """What Metrics asks a Diagnosis."""

    def take(self, events: Sequence[AnyEvent], /) -> Iterable[AnyEvent]:
        """Look at some events; returns those that are no messages, and replies whose requests are known."""

    def findings(self) -> Sequence[CodedFinding]:
        """What is wrong, by the events so far."""


class _Counts:
    """What summaries of connections add up to."""

    def __init__(self) -> None:
        self.sent: dict[tuple[str, str, str], list[int]] = {}  # messages and octets
        self.services: dict[str, list[int]] = {}  # connections opened, open, and topics subscribed to in these

    def copy(self) -> "_Counts":
        made = _Counts()
        made.sent = {key: [*counts] for key, counts in self.sent.items()}
        made.services = {key: [*counts] for key, counts in self.services.items()}
        return made

    def add(self, connection: Connection, service: str, is_open: bool) -> None:
        for side, peer in (("client", connection.client), ("server", connection.server)):
            kind = peer.socket_type or "unknown"
            sent = self.sent.setdefault((service, side, kind if kind in _KINDS else OTHER), [0, 0])
            sent[0] += getattr(connection.messages, side)
            sent[1] += getattr(connection.octets, side)
        counts = self.services.setdefault(service, [0, 0, 0])
        counts[0] += 1
        if is_open:
            counts[1] += 1
            counts[2] += len(connection.subscriptions)


class Metrics:
    """Counts events by service: the address that peers connect to.

    The dissectors count messages and octets anyway, for the summaries of connections. So Metrics looks at few events.
    When somebody asks for samples, it asks for the summaries of connections that go on.
    """

    def __init__(self, capture: MetricsSource, diagnosis: FindingsSource) -> None:
        """``capture`` knows the connections that go on, ``diagnosis`` knows what is wrong."""
        self._capture = capture
        self._diagnosis = diagnosis
        self._findings: dict[tuple[str, str], int] = {}
        self._services: set[str] = set()
        self._flows: dict[int, list[int]] = {}  # flows with replies: the latencies of their service
        self._over = _Counts()
        self._open: dict[int, Connection] = {}  # by flow: those whose last summary has not come
        self._now = self._over  # with the connections that go on
        self._latencies: dict[str, list[int]] = {}  # by service: a count for each bucket, and the sum in nanoseconds
        self._subscriptions: dict[tuple[str], int] = {}
        self._problems: dict[tuple[str, str], int] = {}
        self._is_wanted = Event()  # somebody waits for samples
        self._is_new = Event()  # they are there
        self._close: Callable[[], None] = _nothing

    def serve(self, address: str, port: int) -> int:
        """Answer only at this address. Returns the port, which is another one if it was 0. Raises Error."""
        registry = CollectorRegistry()
        registry.register(self)
        try:
            server, thread = start_http_server(port, address, registry)
        except OSError as error:
            raise Error(f"--metrics {address}:{port}: {error.strerror or error}") from None

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
        """Count some events."""
        for event in self._diagnosis.take(events):
            if type(event) is Message:
                latencies = self._flows.get(event.flow)
                if latencies is None:
                    latencies = self._flows[event.flow] = self._latencies_of(event)
                latency_ns = event.latency_ns or 0
                latencies[bisect_left(_BOUNDS_NS, latency_ns)] += 1
                latencies[-1] += latency_ns
            elif isinstance(event, Problem):
                key = event.code, event.severity
                self._problems[key] = self._problems.get(key, 0) + 1
            elif isinstance(event, Connection):
                self._flows.pop(event.flow, None)
                self._open.pop(event.flow, None)
                self._over.add(event, self._label(event.server.address), is_open=False)
            elif isinstance(event, Subscription):
                self._subscriptions[event.action,] = self._subscriptions.get((event.action,), 0) + 1
        if self._is_wanted.is_set():
            self._is_wanted.clear()
            self._look()
            self._is_new.set()

    def _look(self) -> None:
        """Add up what is over and what goes on, and see what is wrong."""
        findings: dict[tuple[str, str], int] = {}
        for each in self._diagnosis.findings():
            findings[each.code, each.severity] = findings.get((each.code, each.severity), 0) + 1
        self._findings = findings
        now = self._over.copy()
        self._open.update((connection.flow, connection) for connection in self._capture.open_connections())
        for connection in self._open.values():
            now.add(connection, self._label(connection.server.address), is_open=True)
        self._now = now

    def _latencies_of(self, reply: Message) -> list[int]:
        service = self._label(self._capture.server(reply.flow) or min(reply.src, reply.dst, key=port_of))
        return self._latencies.setdefault(service, [0] * (len(BOUNDS) + 2))

    def _label(self, server: str) -> str:
        if server not in self._services:
            if len(self._services) >= MOST_SERVICES:
                return OTHER
            self._services.add(server)
        return server

    def collect(self) -> Iterator[Metric]:
        """All samples, as prometheus_client asks for them, in a thread of its own."""
        self._is_new.clear()
        self._is_wanted.set()
        self._is_new.wait(_PATIENCE)  # then what was known before
        now = self._now
        messages = CounterMetricFamily("zmtp_messages", "Messages.", labels=_SOCKET)
        yield _family(messages, [(key, counts[0]) for key, counts in now.sent.items()])
        octets = CounterMetricFamily("zmtp_octets", "Octets of the streams.", labels=_SOCKET)
        yield _family(octets, [(key, counts[1]) for key, counts in now.sent.items()])
        latencies = HistogramMetricFamily("zmtp_reply_seconds", "How long replies took.", labels=["service"])
        for service, counts in list(self._latencies.items()):
            *buckets, total = list(counts)
            latencies.add_metric([service], _cumulated(buckets), total / 1e9)
        yield latencies
        opened = CounterMetricFamily("zmtp_connections_opened", "Connections seen.", labels=["service"])
        yield _family(opened, [((service,), counts[0]) for service, counts in now.services.items()])
        still = GaugeMetricFamily("zmtp_connections_open", "Connections that are open.", labels=["service"])
        yield _family(still, [((service,), counts[1]) for service, counts in now.services.items()])
        active = GaugeMetricFamily("zmtp_subscriptions_active", "Topics subscribed to now.", labels=["service"])
        yield _family(active, [((service,), counts[2]) for service, counts in now.services.items()])
        actions = CounterMetricFamily("zmtp_subscriptions", "Topics subscribed to or cancelled.", labels=["action"])
        yield _family(actions, list(self._subscriptions.items()))
        problems = CounterMetricFamily("zmtp_problems", "Problems: docs/problems.md.", labels=["code", "severity"])
        yield _family(problems, list(self._problems.items()))
        found = GaugeMetricFamily("zmtp_findings", "Findings so far: docs/diagnose.md.", labels=["code", "severity"])
        yield _family(found, list(self._findings.items()))
        yield CounterMetricFamily("zmtpsniff_packets", "Packets captured.", value=self._capture.packets)
        yield CounterMetricFamily(
            "zmtpsniff_packets_dropped", "Packets that the capture lost.", value=self._capture.dropped
        )


def _nothing() -> None:
    """Nobody answers yet."""


def _family(family: Any, samples: Sequence[tuple[Sequence[str], int]]) -> Metric:
    for labels, value in samples:
        family.add_metric(labels, value)
    return family  # type: ignore[no-any-return]


def _cumulated(buckets: Sequence[int]) -> list[tuple[str, float]]:
    """Counts as Prometheus has them: each bucket holds those below it, too."""
    total = 0
    made = []
    for bound, count in zip([*map(str, BOUNDS), "+Inf"], buckets, strict=True):
        total += count
        made.append((bound, float(total)))
    return made
