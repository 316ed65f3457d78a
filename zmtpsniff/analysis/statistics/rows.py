"""What is counted of each bound address, topic and service."""

from dataclasses import dataclass, field

from dissectors.events import Connection
from zmtpsniff.analysis.statistics.sketch import Sketch

_KINDS = 16  # of one thing at one address, which peers may name as they like
LONGEST_NAME = 32
OTHER = "other"


@dataclass(slots=True)
class Socket:
    """One bound address."""

    missing: int = 0
    connections: int = 0
    open: int = 0
    messages_in: int = 0
    messages_out: int = 0
    octets_in: int = 0
    octets_out: int = 0
    start_ns: int | None = None
    end_ns: int = 0
    socket_types: dict[str, int] = field(default_factory=dict)
    peer_socket_types: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    mechanisms: dict[str, int] = field(default_factory=dict)

    def weight(self) -> int:
        """How many messages and connections: an address with many of either is worth keeping."""
        return self.messages_in + self.messages_out + self.connections

    def connection(self, event: Connection, messages_in: int, messages_out: int) -> None:
        """Count a connection that is over."""
        self.connections += 1
        self.open += event.end == "open"
        self.messages_in += messages_in
        self.messages_out += messages_out
        self.octets_in += event.octets.client
        self.octets_out += event.octets.server
        self._span(event.start_ns, event.end_ns)
        for counts, name in (
            (self.socket_types, event.server.type_name),
            (self.peer_socket_types, event.client.type_name),
            (self.versions, event.version),
            (self.mechanisms, event.mechanism),
        ):
            if name is not None:
                _count(counts, name[:LONGEST_NAME], 1)

    def join(self, other: "Socket") -> None:
        """Add what another row counted."""
        self.connections += other.connections
        self.open += other.open
        self.messages_in += other.messages_in
        self.messages_out += other.messages_out
        self.octets_in += other.octets_in
        self.octets_out += other.octets_out
        if other.start_ns is not None:
            self._span(other.start_ns, other.end_ns)
        for counts, more in (
            (self.socket_types, other.socket_types),
            (self.peer_socket_types, other.peer_socket_types),
            (self.versions, other.versions),
            (self.mechanisms, other.mechanisms),
        ):
            for name, count in more.items():
                _count(counts, name, count)

    def _span(self, start_ns: int, end_ns: int) -> None:
        self.start_ns = start_ns if self.start_ns is None else min(self.start_ns, start_ns)
        self.end_ns = max(self.end_ns, end_ns)


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


@dataclass(slots=True)
class Publication:
    """What was published under one topic, or with one beginning."""

    missing: int = 0
    messages: int = 0
    octets: int = 0
    common: bytes | None = None  # of messages of one frame: what all begin with

    def weight(self) -> int:
        """Messages."""
        return self.messages

    def begin_with(self, octets: bytes) -> None:
        """Keep what the first octets of one more message have in common with the others."""
        if self.common is None:
            self.common = octets
        elif not octets.startswith(self.common):
            same = 0
            for one, other in zip(self.common, octets, strict=False):
                if one != other:
                    break
                same += 1
            self.common = self.common[:same]

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
