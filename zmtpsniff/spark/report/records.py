"""The records of ``zmtpsniff spark report -T json``, which its tables and its page are drawn from, too.

Fields are those of ``zmtpsniff stats -T json`` where they say the same. Times are Unix times; times and durations are
in nanoseconds, octets of connections those of their streams. A host is an address without its port.
"""

import msgspec

from dissectors.events import Octets, Severity


class Record(msgspec.Struct, tag_field="type", omit_defaults=True, gc=False):
    """Base of all records of a report."""


class TotalRow(Record, tag="report-total"):
    """All together, the first row."""

    files: int
    packets: int
    dropped: int
    connections: int
    messages: int
    octets: int
    encrypted: int  # messages, not among the others
    problems: int
    start_ns: int | None = None
    end_ns: int | None = None


class PairRow(Record, tag="report-pair"):
    """The connections from one host to one bound address, with the same types of sockets."""

    client: str  # host
    server: str  # address:port
    connections: int
    open: int  # of these, still open at the end
    messages_in: int  # to the server
    messages_out: int
    octets_in: int
    octets_out: int
    start_ns: int  # of the first connection
    end_ns: int  # of the last one
    client_socket_type: str | None = None
    server_socket_type: str | None = None


class SocketRow(Record, tag="report-socket"):
    """One bound address with all connections to it."""

    address: str
    connections: int
    open: int
    messages_in: int
    messages_out: int
    octets_in: int
    octets_out: int
    start_ns: int
    duration_ns: int
    socket_types: dict[str, int] = {}  # its own, by the number of connections that say so; ten names at most
    peer_socket_types: dict[str, int] = {}
    versions: dict[str, int] = {}  # negotiated
    mechanisms: dict[str, int] = {}


class VersionRow(Record, tag="report-version"):
    """The connections that began in one interval of time and agreed on a version and a mechanism."""

    start_ns: int
    interval_ns: int
    connections: int
    version: str | None = None
    mechanism: str | None = None


class TopicRow(Record, tag="report-topic"):
    """One topic of publishers, or group of radios; a message to three subscribers is three messages."""

    topic: Octets
    messages: int
    octets: int  # of the messages' frames
    subscribers: int  # at the end
    subscribers_most: int  # at a time


class LatencyRow(Record, tag="report-latency"):
    """How long replies to requests took: of all services, of one, or of one in an hour."""

    count: int
    min_ns: int
    p50_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int
    service: str | None = None  # the bound address; left out for all together
    hour_ns: int | None = None  # when the hour began in which the replies came; left out for all hours


class TimelineRow(Record, tag="report-timeline"):
    """The messages of one interval of time; one without messages has no row."""

    start_ns: int
    interval_ns: int
    messages: int
    octets: int  # of the messages' frames


class StormRow(Record, tag="report-storm"):
    """Connections of a host in a row that ended soon and without a message: five or more, two seconds apart at most."""

    client: str  # host
    server: str
    connections: int
    start_ns: int
    end_ns: int
    handshake: str | None = None  # of the last one


class ProblemRow(Record, tag="report-problem"):
    """The problems of one code that one host sent; of no host those of files and of whole connections."""

    severity: Severity
    code: str
    count: int
    detail: str  # of the first one, as the rest
    host: str | None = None
    time_ns: int | None = None
    file: str | None = None
    packet: int | None = None


class CutRow(Record, tag="report-cut"):
    """There are more rows of one kind than are told."""

    of: str  # their type
    more: int


AnyRecord = (
    TotalRow | PairRow | SocketRow | VersionRow | TopicRow | LatencyRow | TimelineRow | StormRow | ProblemRow | CutRow
)
