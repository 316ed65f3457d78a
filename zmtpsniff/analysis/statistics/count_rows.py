"""The counts of each bound address, topic and service."""

from dataclasses import dataclass, field

from dissectors.events import Connection, Octets
from zmtpsniff.analysis.statistics.lengths import shortened
from zmtpsniff.analysis.statistics.severities import Severities, add_severities
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.analysis.statistics.table import Table
from zmtpsniff.words.text import common_start

_KINDS = 16  # of one thing at one address, which peers may name as they like
LONGEST_NAME = 32
OTHER = "other"


NUMBERS = ("connections", "open", "messages_in", "messages_out", "octets_in", "octets_out")
"""The fields of a sum that add up as numbers."""
NAMES = ("socket_types", "peer_socket_types", "versions", "mechanisms")
"""The fields of a sum that count connections by a name."""


@dataclass(slots=True)
class ServiceSum:
    """The connections to one bound address: all of them, or those of one host. Octets are those of their streams."""

    missing: int = 0
    connections: int = 0
    open: int = 0
    messages_in: int = 0  # to the bound address
    messages_out: int = 0
    octets_in: int = 0
    octets_out: int = 0
    start_ns: int | None = None  # of the first connection
    end_ns: int = 0  # of the last one
    socket_types: dict[str, int] = field(default_factory=dict)
    peer_socket_types: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    mechanisms: dict[str, int] = field(default_factory=dict)
    problems: Severities = field(default_factory=dict)

    def weight(self) -> int:
        """How many messages, connections and problems: an address with many of any is worth keeping."""
        return self.messages_in + self.messages_out + self.connections + sum(self.problems.values())

    def add(self, event: Connection, messages_in: int, messages_out: int) -> None:
        """Count a connection that is over."""
        self.connections += 1
        self.open += event.end == "open"
        self.messages_in += messages_in
        self.messages_out += messages_out
        self.octets_in += event.octets.client
        self.octets_out += event.octets.server
        self._span(event.start_ns, event.end_ns)
        names = (event.server.type_name, event.client.type_name, event.version, event.mechanism)
        for kind, name in zip(NAMES, map(short_name, names), strict=True):
            if name is not None:
                _count(getattr(self, kind), name, 1)

    def join(self, other: "ServiceSum") -> None:
        """Add what another sum counted."""
        for number in NUMBERS:
            setattr(self, number, getattr(self, number) + getattr(other, number))
        if other.start_ns is not None:
            self._span(other.start_ns, other.end_ns)
        for kind in NAMES:
            for name, count in getattr(other, kind).items():
                _count(getattr(self, kind), name, count)
        add_severities(self.problems, other.problems)

    def _span(self, start_ns: int, end_ns: int) -> None:
        self.start_ns = start_ns if self.start_ns is None else min(self.start_ns, start_ns)
        self.end_ns = max(self.end_ns, end_ns)


def short_name(name: str | None) -> str | None:
    """The name of a type, version or mechanism, cut to the length that statistics keep."""
    return None if name is None else name[:LONGEST_NAME]


def _count(counts: dict[str, int], name: str, count: int) -> None:
    if name not in counts and len(counts) >= _KINDS:
        name = OTHER
    counts[name] = counts.get(name, 0) + count


@dataclass(slots=True)
class Topic:
    """One topic."""

    missing: int = 0
    messages: int = 0
    octets: int = 0
    subscribers: int = 0  # now
    subscribers_most: int = 0

    def weight(self) -> int:
        """Messages and subscribers."""
        return self.messages + self.subscribers_most

    def subscribe(self) -> None:
        """There is one more subscriber."""
        self.subscribers += 1
        self.subscribers_most = max(self.subscribers_most, self.subscribers)

    def cancel(self) -> None:
        """There is one less, of which the row may not have known."""
        self.subscribers = max(0, self.subscribers - 1)

    def join(self, other: "Topic") -> None:
        """Add what another row counted later."""
        self.messages += other.messages
        self.octets += other.octets
        self.subscribers_most = max(self.subscribers_most, self.subscribers + other.subscribers_most)
        self.subscribers += other.subscribers


def count_topic(topics: Table[Octets, Topic], topic: Octets, octets: int) -> None:
    """Count a message of so many octets under a topic."""
    row = topics.rows.get(topic)
    if row is None:
        row = topics.row(shortened(topic))
    row.messages += 1
    row.octets += octets


@dataclass(slots=True)
class Publication:
    """The messages that were published under one topic, or with one beginning."""

    missing: int = 0
    messages: int = 0
    octets: int = 0
    common: bytes | None = None  # of messages of one frame: what all begin with

    def weight(self) -> int:
        """Messages."""
        return self.messages

    def begin_with(self, octets: bytes) -> None:
        """Keep what the first octets of one more message have in common with the others."""
        self.common = octets if self.common is None else common_start(self.common, octets)

    def join(self, other: "Publication") -> None:
        """Add what another row counted."""
        self.messages += other.messages
        self.octets += other.octets
        if other.common is not None:
            self.begin_with(other.common)


@dataclass(slots=True)
class Service:
    """How quickly one bound address, or all that was connected to it, answered."""

    missing: int = 0
    requests: Sketch = field(default_factory=Sketch)
    heartbeats: Sketch = field(default_factory=Sketch)

    def weight(self) -> int:
        """Answers of any kind."""
        return self.requests.count + self.heartbeats.count

    def join(self, other: "Service") -> None:
        """Add what another row counted."""
        self.requests.join(other.requests)
        self.heartbeats.join(other.heartbeats)
