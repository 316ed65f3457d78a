"""The records of ``zmtpsniff stats -T json`` and those that reports share with it. Tables are drawn from them.

Times are Unix times. Times and durations are in nanoseconds. Octets of connections are those of their TCP streams.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from dissectors.events import End, Handshake, Octets, Peer, Process, Severity, Sides, Transport

Pattern = Literal["request-reply", "heartbeat"]
PeerRole = Literal["client", "worker", "consumer", "producer"]
"""Whether a peer asks, answers, only takes messages, or only gives some."""


class Record(msgspec.Struct, tag_field="type", omit_defaults=True, gc=False):
    """Base of all records of statistics and of reports."""


_LACKS = object()

AnyKind = TypeVar("AnyKind", bound=msgspec.Struct)
AnyPeer = TypeVar("AnyPeer", bound="PeerRecord")


def record_of(kind: type[AnyKind], *sources: object, **values: Any) -> AnyKind:
    """A record whose fields are ``values`` and, by their names, those of the first source that has them.

    Raises TypeError if that leaves out a field without a default.
    """
    for name in kind.__struct_fields__:
        if name in values:
            continue
        for source in sources:
            if (value := getattr(source, name, _LACKS)) is not _LACKS:
                values[name] = value
                break
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


class PeerRecord(Record):
    """One peer of a bound address: by its identity, else by its address."""

    service: str  # the bound address
    peer: str  # the address of its last connection; a host: all of its peers that left first, if there are thousands
    connections: int
    role: PeerRole | None = None
    socket_type: str | None = None
    process: Process | None = None
    taken: int = 0  # messages to it
    given: int = 0  # messages from it
    share: float | None = None  # of the messages to all peers of the service
    replies: int = 0  # of it, or to it if it asks
    p50_ns: int = 0  # how long these took; percentiles are 1 % off at most
    p95_ns: int = 0
    max_ns: int = 0
    in_hand: int = 0  # requests to it without a reply, at the end
    waiting: int = 0  # its own requests without a reply, at the end
    window_closed_ns: int = 0  # it had no room, and the service had more for it
    waited_ns: int = 0  # the service had no room, and it had more
    recv_q: int = 0  # live, of its sockets on this machine: octets that its program has not taken
    send_q: int = 0  # likewise: octets that the service has not acknowledged
    service_recv_q: int = 0  # the same of the sockets of the service to it
    service_send_q: int = 0


class PeerFigure(NamedTuple):
    """A field of a peer as tables and metrics have it."""

    field: str
    title: str
    kind: Literal["count", "share", "time"]
    metric: Literal["counter", "gauge"] | None  # None: peers of one host do not add up
    meaning: str


PEER_FIGURES = (
    PeerFigure("taken", "Taken", "count", "counter", "Messages to peers."),
    PeerFigure("share", "Share", "share", None, "The part of the messages of the service that came to the peer."),
    PeerFigure("given", "Given", "count", "counter", "Messages from peers."),
    PeerFigure("p50_ns", "Reply p50", "time", None, "The median time of its replies."),
    PeerFigure("p95_ns", "p95", "time", None, "95 % of its replies took no longer."),
    PeerFigure("in_hand", "In hand", "count", "gauge", "Requests to peers that have no reply."),
    PeerFigure("waiting", "Waiting", "count", "gauge", "Requests of peers that have no reply."),
    PeerFigure("window_closed_ns", "No room", "time", "counter", "How long peers had no room for more."),
    PeerFigure("waited_ns", "Waited", "time", "counter", "How long peers waited for room at the service."),
    PeerFigure("recv_q", "Recv-Q", "count", "gauge", "Octets in the kernel that peers have not taken."),
    PeerFigure("send_q", "Send-Q", "count", "gauge", "Octets in the kernel of peers that are not acknowledged."),
    PeerFigure("service_recv_q", "Its Recv-Q", "count", "gauge", "Octets of peers that the service has not taken."),
    PeerFigure("service_send_q", "Its Send-Q", "count", "gauge", "Octets to peers that are not acknowledged."),
)
"""The figures of peers, in the order of tables."""


def worth_telling(rows: Iterable[AnyPeer]) -> list[AnyPeer]:
    """The peers of services that have several, and those that wait or let others wait."""
    every = list(rows)
    peers = Counter(row.service for row in every)
    waits = ("in_hand", "waiting", "window_closed_ns", "waited_ns")
    return [row for row in every if peers[row.service] > 1 or any(getattr(row, name) for name in waits)]


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
    encrypted: Sides | None = None  # frames that are encrypted; the messages do not include them


class SocketRow(SocketRecord, tag="stats-socket"):
    """One bound address with all connections to it."""

    missing: int = 0  # messages that may be missing above, at most


class PeerRow(PeerRecord, tag="stats-peer"):
    """One peer of a bound address."""


class QueueRecord(Record):
    """One program that passes messages on: what it took and has not passed on is its queue."""

    program: str  # the address of its socket that took the first message
    taken: int  # messages; a copy for each next one
    passed: int
    most: int  # in the queue
    most_ns: int  # when that was, to a tenth of a second or less exactly
    left: int  # in the end
    ended: int = 0  # messages that it did not pass on, though it passed on one that came later


class QueueRow(QueueRecord, tag="stats-queue"):
    """The queue of one program that passes messages on."""


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
    interrupted_ns: int = 0  # of that, nothing was captured: between captures that do not meet
    encrypted: int = 0  # frames, not among the messages
    beacons: int = 0  # of ZRE
    beacon_peers: int = 0  # that sent them
    subscriptions_not_followed: int = 0  # too many at a time: their topics have more subscribers than the record says


AnyRecord = (
    ConnectionRow
    | SocketRow
    | PeerRow
    | QueueRow
    | TopicRow
    | PublicationRow
    | LatencyRow
    | TimelineRow
    | ProblemRow
    | CutRow
    | TotalRow
)
