"""The content of a report: `Results`, and its records.

The records are the lines of ``zmtpsniff spark report -T json``; the page and its tables are made from them. Fields with
the same meaning as in ``zmtpsniff stats -T json`` have the same name. Times are Unix times; times and durations are in
nanoseconds. Octets of connections are octets of their streams. A host is an address without its port, a service a bound
address with its port.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from dissectors.events import Handshake, Octets, Severity
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.statistics.severities import Severities
from zmtpsniff.analysis.statistics.stats_records import (
    PeerRecord,
    ProblemRecord,
    QueueRecord,
    Record,
    SocketRecord,
    SubscriptionRecord,
)
from zmtpsniff.analysis.ways.way_records import Way

TIME_LINES = 40  # services that have a line of their own over time


class ReportTotal(Record, tag="report-total"):
    """All together, the first row."""

    files: int
    packets: int
    dropped: int
    connections: int
    messages: int
    octets: int
    encrypted: int  # frames, not among the messages
    problems: int
    start_ns: int | None = None
    end_ns: int | None = None
    damaged: int = 0  # files that could not be read, or not to their ends


class ReportPair(Record, tag="report-pair"):
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
    problems: Severities = msgspec.field(default_factory=dict)
    client_program: str | None = None  # the addresses that it is bound to, if it also takes messages
    server_program: str | None = None  # the same, if there are several or it also connects
    server_asks: bool | None = None  # it sends requests, jobs or publications; None if that is not known


class ReportSocket(SocketRecord, tag="report-socket"):
    """One bound address with all connections to it; of each kind of names ten at most."""


class ReportPeer(PeerRecord, tag="report-peer"):
    """One peer of a bound address."""


class ReportQueue(QueueRecord, tag="report-queue"):
    """The queue of one program that passes messages on."""


class ReportVersion(Record, tag="report-version"):
    """The connections that began in one interval of time and agreed on a version and a mechanism."""

    start_ns: int
    interval_ns: int
    connections: int
    version: str | None = None
    mechanism: str | None = None


class ReportTopic(Record, tag="report-topic"):
    """One topic as it was published: the first frame of a publisher's message, or the group of a radio's.

    A message to three subscribers is three messages.
    """

    topic: Octets
    messages: int
    octets: int  # of the messages' frames


class ReportSubscription(SubscriptionRecord, tag="report-subscription"):
    """One topic as it was subscribed to, or group as it was joined, with the messages that it matched."""


class ReportTimeline(Record, tag="report-timeline"):
    """The messages of one interval of time, of all services or of one; an interval without messages has no row."""

    start_ns: int
    interval_ns: int
    messages: int
    octets: int  # of the messages' frames
    service: str | None = None  # left out for all together


class ReportLatency(Record, tag="report-latency"):
    """How long replies to requests took, of all services or of one."""

    count: int
    min_ns: int
    p50_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int
    service: str | None = None  # the bound address; left out for all together


class ReportDelay(Record, tag="report-delay"):
    """Where the requests to a service spent their time, if both ends captured them: the median, and 95 %."""

    service: str
    count: int
    there_p50_ns: int  # of the request on the network
    there_p95_ns: int
    service_p50_ns: int  # from the request to its reply, where the service is
    service_p95_ns: int
    back_p50_ns: int  # of the reply on the network
    back_p95_ns: int


class ReportReplies(Record, tag="report-replies"):
    """How many replies of one interval of time took about as long: ``least_ns`` or more, less than ``below_ns``."""

    start_ns: int
    interval_ns: int
    least_ns: int
    below_ns: int
    count: int
    service: str | None = None  # left out for all together


class ReportStorm(Record, tag="report-storm"):
    """Connections of a host in a row that ended soon and without a message: five or more, two seconds apart at most."""

    client: str  # host
    server: str
    connections: int
    start_ns: int
    end_ns: int
    handshake: Handshake | None = None  # of the last one


class ReportProblem(ProblemRecord, tag="report-problem"):
    """The problems of one code that one host sent. Those of files and of whole connections have no host."""

    host: str | None = None
    time_ns: int | None = None
    file: str | None = None
    packet: int | None = None


class ReportSeries(Record, tag="report-series"):
    """The files that are read as one capture, mostly those of one host: whether they are all there."""

    series: str
    files: int
    packets: int
    dropped: int
    damaged: int  # files
    start_ns: int | None = None
    end_ns: int | None = None
    silent_ns: int | None = None  # how long before the end of all it ended, where that is unlike it


class ReportClock(Record, tag="report-clock"):
    """By how much the clock of one series was ahead of that of another."""

    one: str
    other: str
    at_ns: int  # by the clock of ``one``
    difference_ns: int  # that ``other`` was ahead then
    drift_ppm: float  # that it gained, in microseconds a second
    uncertainty_ns: int  # of the difference, at most


class ReportFile(Record, tag="report-file"):
    """A file that could not be read, or not to its end."""

    file: str
    condition: str
    error: str | None = None


class ReportSilence(Record, tag="report-silence"):
    """A host that sent messages, and then none until the end, though its connections were open."""

    host: str
    messages: int
    open: int  # connections
    last_ns: int  # when the interval began in which its last message came
    silent_ns: int
    longest_ns: int  # pause before


class ReportStep(msgspec.Struct, omit_defaults=True, gc=False):
    """One line of a conversation: what one side sent, or what is wrong."""

    time_ns: int
    kind: Literal["message", "command", "greeting", "subscription", "problem"]
    text: str  # safe to show
    packet: int | None = None
    is_from_client: bool | None = None  # None for what no side sent
    left_out: int = 0  # steps before this one that are not told
    severity: Severity | None = None


class ReportConversation(Record, tag="report-conversation"):
    """The events of one connection, in parts."""

    flow: int
    client: str  # address:port
    server: str
    messages: int
    start_ns: int
    end_ns: int
    end: str
    client_socket_type: str | None = None
    server_socket_type: str | None = None
    problems: Severities = msgspec.field(default_factory=dict)
    steps: list[ReportStep] = msgspec.field(default_factory=list)


class ReportCut(Record, tag="report-cut"):
    """There are more rows of one kind than are told."""

    of: str  # their type
    more: int  # at least


AnyReportRecord = (
    ReportTotal
    | Finding
    | Way
    | ReportPair
    | ReportSocket
    | ReportPeer
    | ReportQueue
    | ReportVersion
    | ReportTopic
    | ReportSubscription
    | ReportLatency
    | ReportDelay
    | ReportReplies
    | ReportTimeline
    | ReportStorm
    | ReportProblem
    | ReportSeries
    | ReportClock
    | ReportFile
    | ReportSilence
    | ReportConversation
    | ReportCut
)


class Results(msgspec.Struct):
    """All that a report tells."""

    total: ReportTotal
    findings: list[Finding] = []
    ways: list[Way] = []
    pairs: list[ReportPair] = []
    sockets: list[ReportSocket] = []
    peers: list[ReportPeer] = []
    queues: list[ReportQueue] = []
    versions: list[ReportVersion] = []
    timeline: list[ReportTimeline] = []
    latencies: list[ReportLatency] = []
    delays: list[ReportDelay] = []
    replies: list[ReportReplies] = []
    topics: list[ReportTopic] = []
    subscriptions: list[ReportSubscription] = []
    storms: list[ReportStorm] = []
    problems: list[ReportProblem] = []
    series: list[ReportSeries] = []
    clocks: list[ReportClock] = []
    files: list[ReportFile] = []
    silences: list[ReportSilence] = []
    conversations: list[ReportConversation] = []
    cuts: list[ReportCut] = []

    def records(self) -> Iterator[AnyReportRecord]:
        """All records, section by section. How many more rows there are follows the rows of the same kind."""
        more = {cut.of: cut for cut in self.cuts}
        yield self.total
        for name in self.__struct_fields__[1:-1]:
            rows: list[AnyReportRecord] = getattr(self, name)
            yield from rows
            for tag in dict.fromkeys(str(row.__struct_config__.tag) for row in rows):
                if tag in more:
                    yield more[tag]

    def cut(self, kind: type[Record], more: int) -> None:
        """There are so many more rows of a kind than are told, at least."""
        if more > 0:
            self.cuts.append(ReportCut(str(kind.__struct_config__.tag), more))

    def more(self, row: object) -> int:
        """How many more rows of the kind of ``row`` there are than are told, at least."""
        tag = row.__struct_config__.tag if isinstance(row, msgspec.Struct) else None
        return sum(cut.more for cut in self.cuts if cut.of == tag)
