"""Metrics for Prometheus, counted in plain numbers and made into samples only when somebody asks for them."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from dissectors.events import AnyEvent, Beacon, Connection, Cut, Hidden, Message, Octets, Problem, Subscription
from dissectors.zmtp.sockets import PEERS
from zmtpsniff.errors import Error

MOST_SERVICES = 100  # that have labels of their own
OTHER = "other"  # the label of all others
# Upper ends of the buckets for times to reply, in seconds.
BOUNDS = (1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BOUNDS_NS = [round(bound * 1e9) for bound in BOUNDS]
_SOCKET = ("service", "sender", "socket_type")


class _Track:
    """A connection that is open."""

    __slots__ = ("counts", "latencies", "server", "service", "subscriptions")

    def __init__(self, server: str, service: str, latencies: list[int]) -> None:
        self.server = server  # address and port
        self.service = service  # the label: the same, or OTHER
        self.latencies = latencies  # of its service
        self.counts: dict[str, list[int]] = {}  # by the address of a sender: its messages and octets
        self.subscriptions = 0


class Metrics:
    """Counts events by service: the address that peers connect to."""

    def __init__(self, server: Callable[[int], str | None], counts: Callable[[], tuple[int, int]]) -> None:
        """``server`` tells the server's address of a flow, None if it is not known any more.

        ``counts`` tells how many packets there were, and how many were dropped.
        """
        self._server = server
        self._packets = counts
        self._services: set[str] = set()
        self._tracks: dict[int, _Track] = {}
        self._messages: dict[tuple[str, str, str], list[int]] = {}
        self._latencies: dict[str, list[int]] = {}  # by service: a count for each bucket, and the sum in nanoseconds
        self._opened: dict[str, int] = {}
        self._open: dict[str, int] = {}
        self._subscriptions: dict[tuple[str, str], int] = {}
        self._active: dict[str, int] = {}
        self._problems: dict[tuple[str, str], int] = {}
        self._close: Callable[[], None] = _nothing

    def serve(self, address: str, port: int) -> int:
        """Answer at this address and no other; returns the port, another one if it was 0. Raises Error."""
        registry = CollectorRegistry()
        registry.register(self)
        try:
            server, thread = start_http_server(port, address, registry)
        except OSError as error:
            raise Error(f"--metrics {address}:{port}: {error.strerror or error}") from None

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
        """Count some events; for each message it takes some 0.3 µs."""
        tracks = self._tracks
        for event in events:
            if type(event) is Message:
                try:
                    track = tracks[event.flow]
                    counts = track.counts[event.src]
                except KeyError:
                    track, counts = self._sender(event)
                counts[0] += 1
                try:
                    for frame in event.frames:
                        counts[1] += len(frame)  # type: ignore[arg-type]  # a Cut is the exception
                except TypeError:
                    counts[1] += _lengths_of_cuts(event.frames)
                if event.latency_ns is not None:
                    track.latencies[bisect_left(_BOUNDS_NS, event.latency_ns)] += 1
                    track.latencies[-1] += event.latency_ns
            else:
                self._take_other(event)

    def _take_other(self, event: AnyEvent) -> None:
        if isinstance(event, Problem):
            key = event.code, event.severity
            self._problems[key] = self._problems.get(key, 0) + 1
        elif isinstance(event, Connection):
            track = self._tracks.pop(event.flow, None)
            if track is not None:
                self._open[track.service] -= 1
                self._active[track.service] -= track.subscriptions
        elif isinstance(event, Subscription):
            track = self._track(event.flow, event.src, event.dst)
            action = track.service, event.action
            self._subscriptions[action] = self._subscriptions.get(action, 0) + 1
            step = 1 if event.action == "subscribe" else -min(1, track.subscriptions)
            track.subscriptions += step
            self._active[track.service] += step
        elif not isinstance(event, Beacon) and (flow := getattr(event, "flow", None)) is not None:
            self._track(flow, getattr(event, "src", ""), getattr(event, "dst", ""))

    def _sender(self, message: Message) -> tuple[_Track, list[int]]:
        track = self._track(message.flow, message.src, message.dst)
        kind = message.socket_type or "unknown"
        side = "server" if message.src == track.server else "client"
        counts = self._messages.setdefault((track.service, side, kind if kind in PEERS else OTHER), [0, 0])
        track.counts[message.src] = counts
        return track, counts

    def _track(self, flow: int, src: str, dst: str) -> _Track:
        track = self._tracks.get(flow)
        if track is None:
            server = self._server(flow) or min(src, dst, key=_port)
            service = server
            if service not in self._services:
                if len(self._services) < MOST_SERVICES:
                    self._services.add(service)
                else:
                    service = OTHER
            latencies = self._latencies.setdefault(service, [0] * (len(BOUNDS) + 2))
            track = self._tracks[flow] = _Track(server, service, latencies)
            self._opened[service] = self._opened.get(service, 0) + 1
            self._open[service] = self._open.get(service, 0) + 1
            self._active.setdefault(service, 0)
        return track

    def collect(self) -> Iterator[Metric]:
        """All samples, as prometheus_client asks for them, in a thread of its own."""
        sent = [(key, list(counts)) for key, counts in list(self._messages.items())]
        yield _family(CounterMetricFamily("zmtp_messages", "Messages.", labels=_SOCKET), [(k, c[0]) for k, c in sent])
        octets = CounterMetricFamily("zmtp_message_octets", "Octets of the frames of messages.", labels=_SOCKET)
        yield _family(octets, [(key, counts[1]) for key, counts in sent])
        latencies = HistogramMetricFamily("zmtp_reply_seconds", "How long replies took.", labels=["service"])
        for service, counts in list(self._latencies.items()):
            *buckets, total = list(counts)
            if any(buckets):
                latencies.add_metric([service], _cumulated(buckets), total / 1e9)
        yield latencies
        for name, text, values in (
            ("zmtp_connections_opened", "Connections seen.", self._opened),
            ("zmtp_connections_open", "Connections that are open.", self._open),
            ("zmtp_subscriptions_active", "Topics subscribed to, for each connection.", self._active),
        ):
            family = CounterMetricFamily if name.endswith("opened") else GaugeMetricFamily
            yield _family(family(name, text, labels=["service"]), [((k,), v) for k, v in list(values.items())])
        actions = CounterMetricFamily(
            "zmtp_subscriptions", "Topics subscribed to or cancelled.", labels=["service", "action"]
        )
        yield _family(actions, list(self._subscriptions.items()))
        problems = CounterMetricFamily("zmtp_problems", "Problems: docs/problems.md.", labels=["code", "severity"])
        yield _family(problems, list(self._problems.items()))
        packets, dropped = self._packets()
        yield CounterMetricFamily("zmtpsniff_packets", "Packets captured.", value=packets)
        yield CounterMetricFamily("zmtpsniff_packets_dropped", "Packets that the capture lost.", value=dropped)


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


def _lengths_of_cuts(frames: Sequence[Octets]) -> int:
    """The octets of a message that has a Cut, without those of the frames before it, which have been counted."""
    lengths = [frame.length if isinstance(frame, (Cut, Hidden)) else len(frame) for frame in frames]
    first = next(place for place, frame in enumerate(frames) if isinstance(frame, (Cut, Hidden)))
    return sum(lengths[first:])


def _port(address: str) -> int:
    digits = address.rpartition(":")[2]
    return int(digits) if digits.isdecimal() else 0
