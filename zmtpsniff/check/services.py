"""Sums a capture up by service: who connects to an address, how, about which topics, how much and how fast.

A service is the socket that is bound at an address, with all connections to it. Only the record at the end of a
connection names the server. Until then the counts of the connection are kept by its flow.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from dissectors.address import has_bound_port, host_of
from dissectors.events import (
    AnyEvent,
    Capture,
    Command,
    Connection,
    Greeting,
    Message,
    Problem,
    Side,
    Sides,
    Subscription,
)
from dissectors.problems import BLINDING
from dissectors.zmtp.sockets import WITH_TOPICS
from zmtpsniff.analysis.statistics.lengths import octets_of
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.check.globs import literal
from zmtpsniff.check.sight import certain_type, has_handshake
from zmtpsniff.check.span import Span
from zmtpsniff.words.durations import NS
from zmtpsniff.words.text import quote

TopicKind = Literal["subscriptions", "topics"]
VERBS: dict[TopicKind, str] = {"subscriptions": "subscribed to", "topics": "published"}
"""The deed that makes a topic one of a kind."""
NO_MECHANISM = "none"
_MOST_SERVICES = 10_000
_MOST_TOPICS = 10_000  # of one kind at one service
_MOST_LIFETIMES = 20_000
_MOST_EXAMPLES = 5
_MOST_VALUES = 100
_MOST_HOSTS = 10_000


class Values(msgspec.Struct, eq=False):
    """The values of one property of connections, such as their mechanisms, each with some connections."""

    examples: dict[str, list[Connection]] = {}
    unknown: int = 0  # connections that do not show it

    def add(self, value: str | None, connection: Connection) -> None:
        """A connection has that value; None if it is not known."""
        if value is None:
            self.unknown += 1
        elif value in self.examples or len(self.examples) < _MOST_VALUES:
            examples = self.examples.setdefault(value, [])
            if len(examples) < _MOST_EXAMPLES:
                examples.append(connection)

    @property
    def known(self) -> list[str]:
        """The values, sorted."""
        return sorted(self.examples)

    @property
    def is_full(self) -> bool:
        """Whether there may be more values than are told apart."""
        return len(self.examples) == _MOST_VALUES


class TopicCounter(msgspec.Struct, eq=False):
    """How often each topic was seen, up to a limit of different ones."""

    counts: Counter[bytes] = msgspec.field(default_factory=Counter)
    is_cut: bool = False  # there were more topics, or some of which not all octets are at hand

    def add(self, topic: object, count: int = 1) -> None:
        """A topic was seen."""
        if type(topic) is bytes and (topic in self.counts or len(self.counts) < _MOST_TOPICS):
            self.counts[topic] += count
        else:
            self.is_cut = True

    def merge(self, other: "TopicCounter") -> None:
        """Take in what another one has."""
        for topic, count in other.counts.items():
            self.add(topic, count)
        self.is_cut = self.is_cut or other.is_cut


class _Flow(msgspec.Struct, eq=False):
    """The counts of a connection before it is over."""

    latencies: Sketch
    mechanisms: dict[str, str] = {}  # by the address that announces it
    subscriptions: TopicCounter = msgspec.field(default_factory=TopicCounter)
    topics: TopicCounter = msgspec.field(default_factory=TopicCounter)
    sizes: dict[str, Sketch] = {}  # of messages in octets, by the address of the sender
    slowest: dict[int, int] = {}  # the longest latency of each second
    encrypted: int = 0  # frames that cannot be read
    blind: bool = False
    problems: Counter[str] = msgspec.field(default_factory=Counter)  # codes, notes left out

    def measure(self, message: Message) -> None:
        """Note how long a message is, and how late."""
        if not message.incomplete:
            self.sizes.setdefault(message.src, Sketch()).add(octets_of(message))
        if message.latency_ns is not None:
            second = message.time_ns // NS
            self.slowest[second] = max(message.latency_ns, self.slowest.get(second, 0))


class ServiceProfile:
    """The socket bound at an address, as its connections show it."""

    def __init__(self, address: str, limits: Sequence[int] = ()) -> None:
        """``limits`` are latencies (nanoseconds) up to which replies are to be counted exactly."""
        self.address = address
        self.connections = 0
        self.unseen = 0  # connections without a handshake in the capture
        self.failed: list[Connection] = []  # examples of connections whose handshake failed
        self.failures = 0
        self.mechanisms = Values()
        self.versions = Values()
        self.socket_types = Values()  # of the service
        self.client_types = Values()
        self.pairs = Values()  # "REQ > REP"
        self.announced = Values()  # mechanisms of the service, where it did not agree on one with its client
        self.wanted = Values()  # mechanisms of such clients
        self.subscriptions = TopicCounter()
        self.topics = TopicCounter()  # that are published
        self.messages = Sides(0, 0)
        self.encrypted = 0  # frames that cannot be read: nobody knows where their messages end
        self.latencies = Sketch(limits)
        self.sizes: dict[Side, Sketch] = {"client": Sketch(), "server": Sketch()}  # of messages in octets
        self.slowest: dict[int, int] = {}  # the longest latency of each second that has one, if it is measured
        self.names = Values()  # identities of clients that are text
        self.clients: dict[str, Connection] = {}  # by host, with an example
        self.clients_cut = False
        self.lifetimes: list[Connection] = []
        self.lifetimes_cut = False
        self.blind = False  # octets are missing
        self.problems: Counter[str] = Counter()  # codes, notes left out

    @property
    def has_fixed_port(self) -> bool:
        """Whether its port is one that somebody chose, and not any that was free."""
        return has_bound_port(self.address)

    @property
    def working(self) -> int:
        """How many of its connections did not fail to agree."""
        return self.connections - self.failures

    def counter(self, kind: TopicKind) -> TopicCounter:
        """The topics that are subscribed to, or published."""
        return self.subscriptions if kind == "subscriptions" else self.topics

    def most_clients(self) -> int:
        """How many connections it had at the same time."""
        return max((count for count, _ in self._open_at_once()), default=0)

    def beyond(self, most: int) -> Connection | None:
        """The first of its connections that was one more than ``most`` at the same time; None if there is none."""
        return next((connection for count, connection in self._open_at_once() if count > most), None)

    def _open_at_once(self) -> Iterator[tuple[int, Connection]]:
        """Each connection in order of time, and how many were open once it was made."""
        begins = [(one.start_ns, 1, place) for place, one in enumerate(self.lifetimes)]
        # At the same time an end comes first: a client that connects anew does not count twice.
        ends = [(one.end_ns, 0, place) for place, one in enumerate(self.lifetimes)]
        count = 0
        for _, is_begin, place in sorted(begins + ends):
            count += 1 if is_begin else -1
            if is_begin:
                yield count, self.lifetimes[place]

    def add(self, connection: Connection, flow: _Flow) -> None:
        """One of its connections is over."""
        self.connections += 1
        self.blind = self.blind or flow.blind
        self.problems.update(flow.problems)
        client, server = connection.client, connection.server
        if connection.handshake in ("failed", "incomplete"):
            self.failures += 1
            if len(self.failed) < _MOST_EXAMPLES:
                self.failed.append(connection)
            self.announced.add(flow.mechanisms.get(server.address), connection)
            self.wanted.add(flow.mechanisms.get(client.address), connection)
            return
        self.unseen += not has_handshake(connection)
        self.mechanisms.add(_mechanism(connection), connection)
        self.versions.add(connection.version, connection)
        own, peer = certain_type(server), certain_type(client)
        self.socket_types.add(own, connection)
        self.client_types.add(peer, connection)
        self.pairs.add(None if own is None or peer is None else f"{peer} > {own}", connection)
        self.subscriptions.merge(flow.subscriptions)
        self.topics.merge(flow.topics)
        self.messages.client += connection.messages.client
        self.messages.server += connection.messages.server
        self.encrypted += flow.encrypted
        for side, sender in _sides(connection):
            if sizes := flow.sizes.get(sender):
                self.sizes[side].join(sizes)
        for second, latency_ns in flow.slowest.items():
            self.slowest[second] = max(latency_ns, self.slowest.get(second, 0))
        self.latencies.join(flow.latencies)
        name = client.identity
        if type(name) is bytes and name and literal(name) is not None:
            self.names.add(quote(name), connection)
        self._live(connection)

    def _live(self, connection: Connection) -> None:
        host = host_of(connection.client.address)
        if host in self.clients or len(self.clients) < _MOST_HOSTS:
            self.clients.setdefault(host, connection)
        else:
            self.clients_cut = True
        if len(self.lifetimes) == _MOST_LIFETIMES:
            self.lifetimes_cut = True
        else:
            self.lifetimes.append(connection)


def _sides(connection: Connection) -> tuple[tuple[Side, str], tuple[Side, str]]:
    """Both sides, each with its address."""
    return ("client", connection.client.address), ("server", connection.server.address)


def _mechanism(connection: Connection) -> str | None:
    """The mechanism that both sides agreed on. For versions that have no mechanism, the version."""
    if connection.mechanism is None and connection.version in ("1.0", "2.0"):
        return f"{NO_MECHANISM} (ZMTP {connection.version})"
    return connection.mechanism


class Services:
    """Takes all events of a capture and tells its services."""

    def __init__(self, limits: Iterable[int] = (), *, measures: bool = False) -> None:
        """``limits`` are latencies (nanoseconds) up to which replies are to be counted exactly.

        ``measures`` says whether to note how long messages are, and when replies are slow.
        """
        self.services: dict[str, ServiceProfile] = {}
        self.span = Span()
        self.unseen = 0  # connections without a handshake in the capture
        self.is_lossy = False  # something is missing from the capture
        self.totals: Capture | None = None  # the last record
        self.is_cut = False  # there were more services than are told apart
        self._measures = measures
        self._limits = tuple(sorted(set(limits)))
        self._flows: defaultdict[int, _Flow] = defaultdict(self._begin)

    def _begin(self) -> _Flow:
        return _Flow(Sketch(self._limits))

    @property
    def is_whole(self) -> bool:
        """Whether the capture has everything that its services said."""
        return not self.is_lossy and not self.unseen

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Look at a batch of events."""
        self.span.take(events)
        ended = []
        for event in events:
            if type(event) is Message:
                if event.latency_ns is not None:
                    self._flows[event.flow].latencies.add(event.latency_ns)
                if event.socket_type in WITH_TOPICS and event.frames and not event.inferred:
                    self._flows[event.flow].topics.add(event.frames[0])
                if self._measures:
                    self._flows[event.flow].measure(event)
            elif isinstance(event, Command):
                if event.name == "MESSAGE":
                    self._flows[event.flow].encrypted += 1
            elif isinstance(event, Subscription):
                if event.action == "subscribe" and not event.incomplete:
                    self._flows[event.flow].subscriptions.add(event.topic)
            elif isinstance(event, Greeting):
                if event.mechanism is not None:
                    self._flows[event.flow].mechanisms[event.src] = event.mechanism
            elif isinstance(event, Connection):
                ended.append(event)
            else:
                self._lose(event)
        # Problems found at the end of a connection follow its record, in the same batch.
        for connection in ended:
            self._end(connection)

    def _lose(self, event: AnyEvent) -> None:
        if isinstance(event, Problem):
            if event.severity != "note" and event.flow is not None:
                self._flows[event.flow].problems[event.code] += 1
            if BLINDING.get(event.code) == "rest":  # `unseen` counts the connections whose beginning is missing
                self.is_lossy = True
                if event.flow is not None:
                    self._flows[event.flow].blind = True
        elif isinstance(event, Capture):
            self.totals = event
            self.is_lossy = self.is_lossy or event.dropped > 0

    def _end(self, connection: Connection) -> None:
        flow = self._flows.pop(connection.flow, None) or self._begin()
        self.unseen += not has_handshake(connection)
        address = connection.server.address
        service = self.services.get(address)
        if service is None:
            if len(self.services) >= _MOST_SERVICES:
                self.is_cut = True
                return
            service = self.services[address] = ServiceProfile(address, self._limits)
        service.add(connection, flow)
