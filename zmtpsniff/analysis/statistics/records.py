"""The records of ``zmtpsniff stats -T json`` and those that reports share with it. Tables are drawn from them.

Times are Unix times. Times and durations are in nanoseconds. Octets of connections are those of their TCP streams.
"""

from typing import Any, Literal, TypeVar

import msgspec

from dissectors.events import End, Handshake, Octets, Peer, Severity, Sides, Transport

Pattern = Literal["request-reply", "heartbeat"]


class Record(msgspec.Struct, tag_field="type", omit_defaults=True, gc=False):
    """Base of all records of statistics and of reports."""


AnyKind = TypeVar("AnyKind", bound=Record)


def record_of(kind: type[AnyKind], *sources: object, **values: Any) -> AnyKind:
    """A record whose fields are ``values`` and, by their names, those of the first source that has them.

    Raises TypeError if that leaves out a field without a default.
    """
    for name in kind.__struct_fields__:
        for source in sources:
            if name not in values and hasattr(source, name):
                values[name] = getattr(source, name)
    return kind(**values)


class SocketRecord(Record):
    """One bound address with all connections to it."""

    address: str
    connections: int
    open: int  # of these, still open at the end
    messages_in: int
    messages_out: int
    octets_in: int
    octets_out: int
    start_ns: int
    duration_ns: int  # if a connection is still open: to the end of the capture
    socket_types: dict[str, int] = {}  # its own, by the number of connections that say so
    peer_socket_types: dict[str, int] = {}
    versions: dict[str, int] = {}  # negotiated
    mechanisms: dict[str, int] = {}


class SubscriptionRecord(Record):
    """One topic with its subscribers, or one group with its members."""

    topic: Octets
    messages: int
    octets: int  # of the messages' frames
    subscribers: int  # at the end
    subscribers_most: int  # at a time


class ProblemRecord(Record):
    """The problems of one code."""

    severity: Severity
    code: str
    count: int
    detail: str  # of the first one, as the rest


class ConnectionRow(Record, tag="stats-connection"):
    """One connection."""

    flow: int
    transport: Transport
    client: Peer
    server: Peer
    messages: Sides  # sent by each side; with a filter those that passed
    octets: Sides
    start_ns: int
    duration_ns: int  # of one that is still open: to the end of the capture
    end: End
    version: str | None = None
    mechanism: str | None = None
    handshake: Handshake | None = None
    subscriptions: int = 0  # still active at the end
    messages_per_s: float | None = None  # of both sides; left out if nobody knows how long the connection took
    octets_per_s: float | None = None
    encrypted: Sides | None = None  # messages whose contents are encrypted; the other messages do not include them


class SocketRow(SocketRecord, tag="stats-socket"):
    """One bound address with all connections to it."""

    missing: int = 0  # messages that may be missing above, at most


class TopicRow(SubscriptionRecord, tag="stats-topic"):
    """One topic of publishers, or group of radios; a message to three subscribers is three messages."""

    missing: int = 0  # messages that may be missing above, at most


class PublicationRow(Record, tag="stats-publication"):
    """The messages that were published under one topic, whatever their subscriptions."""

    topic: Octets  # the first frame of messages; the beginning of messages with a single frame
    messages: int  # each subscriber's copy counts
    octets: int  # of the messages' frames
    prefix: bool = False  # the topic is the common beginning of messages with a single frame
    missing: int = 0  # messages that may be missing above, at most


class Bar(msgspec.Struct, gc=False):
    """One bar of a histogram: values over ``over_ns`` up to ``up_to_ns``."""

    over_ns: int
    up_to_ns: int
    count: int


class LatencyRow(Record, tag="stats-latency"):
    """How long replies to requests, or PONGs to PINGs, took."""

    pattern: Pattern
    count: int
    min_ns: int
    p50_ns: int  # percentiles are 1 % off at most
    p95_ns: int
    p99_ns: int
    max_ns: int
    histogram: list[Bar]
    service: str | None = None  # the bound address; left out for all together


class TimelineRow(Record, tag="stats-timeline"):
    """The messages of one interval of time; one without messages has no row."""

    start_ns: int
    interval_ns: int
    messages: int
    messages_per_s: float


class ProblemRow(ProblemRecord, tag="stats-problem"):
    """The problems of one code."""

    packet: int | None = None
    flow: int | None = None
    time_ns: int | None = None


class CutRow(Record, tag="stats-cut"):
    """There are more rows of one kind than are told."""

    of: str  # their type
    at_least: int  # how many more
    pattern: Pattern | None = None  # of stats-latency


class TotalRow(Record, tag="stats-total"):
    """All together, the last row."""

    packets: int
    dropped: int
    flows: int
    zmtp_flows: int
    messages: int  # with a filter those that passed, as the problems
    octets: int  # of all ZMTP connections
    problems: int
    duration_ns: int
    encrypted: int = 0  # messages, not among the others
    beacons: int = 0  # of ZRE
    beacon_peers: int = 0  # that sent them
    subscriptions_not_followed: int = 0  # too many at a time: their topics have more subscribers than the record says


AnyRecord = (
    ConnectionRow | SocketRow | TopicRow | PublicationRow | LatencyRow | TimelineRow | ProblemRow | CutRow | TotalRow
)
