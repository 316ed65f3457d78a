"""Sums a capture up: who talks to whom, how, about what and how much."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from dissectors.events import AnyEvent, Capture, Command, Connection, Message, Problem, Subscription
from zmtpsniff.check.latencies import Latencies
from zmtpsniff.check.span import Span

_MOST = 10_000  # different services, topics or shapes of messages that are told apart
_Key = TypeVar("_Key")


class ConnectionKind(NamedTuple):
    """Connections of one kind: which sockets talk to which, and where."""

    client: str | None  # socket type
    server: str | None
    address: str  # of the server


class Profile:
    """Takes all events of a capture and counts them by kind."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.versions: Counter[tuple[ConnectionKind, str]] = Counter()
        self.mechanisms: Counter[tuple[ConnectionKind, str]] = Counter()
        self.handshakes: Counter[tuple[ConnectionKind, str]] = Counter()
        self.services: Counter[ConnectionKind] = Counter()
        self.sent: Counter[tuple[ConnectionKind, str]] = Counter()  # messages of "client" and "server"
        self.topics: Counter[bytes] = Counter()
        self.messages: Counter[str | None] = Counter()  # by the socket type of the sender
        self.shapes: Counter[tuple[str | None, int]] = Counter()  # socket type and number of frames
        self.encrypted = 0  # messages that cannot be read
        self.problems: Counter[str] = Counter()  # codes, notes left out
        self.latencies = Latencies()
        self.totals: Capture | None = None  # the last record
        self.span = Span()
        self.is_cut = False  # there was more than is told apart, or a topic longer than what is kept

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Count a batch."""
        self.span.take(events)
        for event in events:
            if type(event) is Message:
                self.messages[event.socket_type] += 1
                self._count(self.shapes, (event.socket_type, len(event.frames)))
                if event.latency_ns is not None:
                    self.latencies.add(event.latency_ns)
            elif isinstance(event, Subscription):
                if isinstance(event.topic, bytes):
                    if not event.incomplete:
                        self._count(self.topics, event.topic)
                else:
                    self.is_cut = True
            elif isinstance(event, Command):
                self.encrypted += event.name == "MESSAGE"
            elif isinstance(event, Problem):
                if event.severity != "note":
                    self.problems[event.code] += 1
            elif isinstance(event, Connection):
                self._connection(event)
            elif isinstance(event, Capture):
                self.totals = event

    def _connection(self, event: Connection) -> None:
        service = ConnectionKind(event.client.socket_type, event.server.socket_type, event.server.address)
        if not self._count(self.services, service):
            return
        if event.version is not None:
            self.versions[service, event.version] += 1
        if event.mechanism is not None:
            self.mechanisms[service, event.mechanism] += 1
        if event.handshake is not None:
            self.handshakes[service, event.handshake] += 1
        self.sent[service, "client"] += event.messages.client
        self.sent[service, "server"] += event.messages.server

    def _count(self, counter: Counter[_Key], key: _Key) -> bool:
        if key not in counter and len(counter) >= _MOST:
            self.is_cut = True
            return False
        counter[key] += 1
        return True
