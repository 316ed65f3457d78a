"""Counts events: connections, bound addresses, topics, latencies, messages by time, problems."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as replace_fields

from dissectors.batches import MessageBatch
from dissectors.events import (
    AnyEvent,
    Beacon,
    Capture,
    Command,
    Connection,
    Message,
    Octets,
    Peer,
    Problem,
    Sides,
    Subscription,
    at_hand,
)
from dissectors.zmtp.sockets import WITH_TOPICS
from zmtpsniff.analysis.defaults import SORT
from zmtpsniff.analysis.interruptions import Interruptions
from zmtpsniff.analysis.statistics.count_rows import Publication, Service, ServiceSum, Topic, count_topic, short_name
from zmtpsniff.analysis.statistics.lengths import LONGEST, octets_of, shortened
from zmtpsniff.analysis.statistics.sketch import PER_E, Sketch
from zmtpsniff.analysis.statistics.sorts import first_rows
from zmtpsniff.analysis.statistics.stats_records import ConnectionRow, ProblemRow, PublicationRow, record_of
from zmtpsniff.analysis.statistics.table import Table
from zmtpsniff.analysis.statistics.timeline import Timeline
from zmtpsniff.native import core
from zmtpsniff.words.durations import NS

ROWS = 5000  # that are kept of each kind, at least; twice as many at most
_SERVICES = 250  # each with its sketches
_SKETCHES = 1000  # of open connections
_FOLLOWED = 50_000  # subscriptions of open connections


@dataclass(slots=True)
class _Flow:
    """Counts of a connection whose places are unknown before it is over."""

    answers: Service | None = None
    topics: set[Octets] = field(default_factory=set)
    encrypted: dict[str, int] = field(default_factory=dict)  # frames by sender
    # With a filter only: messages that passed, by sender; None for a connection that has none.
    passed: dict[str | None, int] = field(default_factory=dict)

    def see(self, sender: str | None, is_message: bool) -> None:
        """Count an event that passed the filter."""
        self.passed[sender] = self.passed.get(sender, 0) + is_message


class Statistics:
    """Takes all events of captures in batches. Its memory has a bound and does not grow with messages."""

    def __init__(self, interval_ns: int | None = None, sort: str = SORT, rows: int = ROWS) -> None:
        """Begin without counts.

        ``interval_ns`` is the length of the intervals of the time line, None for one that suits the capture. If there
        are more than twice ``rows`` connections, those stay that come first by ``sort``; of all other kinds those with
        the most messages.
        """
        self.messages = 0
        self.encrypted = 0  # frames
        self.octets = 0
        self.connections = 0
        self.capture = Capture(0, 0, 0, 0, 0, 0, 0)
        self.timeline = Timeline(interval_ns)
        self.sockets: Table[str, ServiceSum] = Table(rows, ServiceSum)
        self.topics: Table[Octets, Topic] = Table(rows, Topic)
        self.published: Table[Octets, Publication] = Table(rows, Publication)  # by the first of several frames
        # Of messages of one frame, by who sent them and which subscription they match.
        self.prefixes: Table[tuple[str, Octets | None], Publication] = Table(rows, Publication)
        self.services: Table[str, Service] = Table(_SERVICES, Service)
        self.problems: dict[tuple[str, str], ProblemRow] = {}
        self.interruptions = Interruptions()
        self.subscriptions_not_followed = 0  # subscriptions
        self.beacons = 0
        self.peers: set[str] = set()  # UUIDs of those that sent them
        self._rows: list[ConnectionRow] = []
        self._open: list[tuple[ConnectionRow, ServiceSum]] = []  # of the last batch, connections that are not over
        self._limit = rows
        self.sort = sort
        self._flows: defaultdict[int, _Flow] = defaultdict(_Flow)
        self._requests: dict[int, Sketch] = {}  # of the flows that have one, the quickest way to it
        self._followed = 0

    # ------------------------------------------------------------------ counting

    def take(self, events: Sequence[AnyEvent], keep: Callable[[AnyEvent], bool] | None = None) -> None:
        """Count a batch of all events that a Sniffer gives, or, with ``keep``, those for which it is true.

        With ``keep`` a connection counts if one of its events passed, with the messages that passed. It counts, too,
        if its own record passed.
        """
        self._open.clear()
        if keep is None:
            self._take(events)
        else:
            self._take_some(events, keep)
        if events and isinstance(end := events[-1], Capture) and end.end_ns is not None:
            self._last_until(end.end_ns)

    def _take_some(self, events: Sequence[AnyEvent], keep: Callable[[AnyEvent], bool]) -> None:
        passed: list[AnyEvent] = []
        unseen: list[Connection] = []  # connections that are over, of which nothing passed yet
        for event in events:
            if isinstance(event, Connection):
                whole = keep(event)
                if whole or event.flow in self._flows:
                    self._take(passed)
                    passed.clear()
                    self._end(event, whole)
                else:  # what its end shows to be wrong comes behind it
                    unseen.append(event)
            elif isinstance(event, Capture):
                passed.append(event)
            elif keep(event):
                passed.append(event)
                flow = getattr(event, "flow", None)
                if flow is not None and type(event) is not Beacon:
                    self._flows[flow].see(getattr(event, "src", None), type(event) is Message)
            elif isinstance(event, Problem):
                self.interruptions.take(event)
        self._take(passed)
        for connection in unseen:
            self._end(connection, False)
        if passed and type(passed[-1]) is Capture:
            # A late event of a connection that was over has made the connection anew.
            self._flows.clear()
            self._requests.clear()
            self._followed = 0

    def _take(self, events: Sequence[AnyEvent]) -> None:
        timeline = self.timeline
        requests = self._requests
        begin_ns = end_ns = in_interval = messages = 0
        for event in events:
            if type(event) is Message:
                messages += 1
                time_ns = event.time_ns
                if begin_ns <= time_ns < end_ns:
                    in_interval += 1
                else:
                    if in_interval:
                        timeline.add(begin_ns, in_interval)
                    in_interval = 1
                    begin_ns = time_ns - time_ns % timeline.width_ns
                    end_ns = begin_ns + timeline.width_ns
                if event.latency_ns is not None:
                    sketch = requests.get(event.flow)
                    if sketch is None:
                        sketch = self._answers(event.flow).requests
                    sketch.add(event.latency_ns)
                if event.matched is not None or event.socket_type in WITH_TOPICS:
                    self._topic(event)
            else:
                self._take_other(event)
        if in_interval:
            timeline.add(begin_ns, in_interval)
        self.messages += messages

    def _take_batch(self, batch: MessageBatch) -> None:
        """Count messages in columns."""
        if core is None or any(side.socket_type in WITH_TOPICS for side in batch.senders):
            self._take(batch.messages())
            return
        intervals, latencies = core.tally(batch.columns, batch.rows, self.timeline.width_ns, PER_E)
        for begin_ns, count in intervals:
            self.timeline.add(begin_ns, count)
        for side, *sums in latencies:
            self._answers(batch.senders[side].flow).requests.add_all(*sums)
        self.messages += len(batch)

    def _topic(self, event: Message) -> None:
        octets = octets_of(event)
        count_topic(self.topics, event.matched if event.matched is not None else event.frames[0], octets)
        if not event.incomplete:
            self._publication(event, octets)

    def _publication(self, event: Message, octets: int) -> None:
        """Count a message under the topic that was published, whatever subscription it matches."""
        first = event.frames[0]
        if len(event.frames) > 1:
            row = self.published.rows.get(first) or self.published.row(shortened(first))
        else:
            matched = event.matched
            row = self.prefixes.rows.get((event.src, matched)) or self.prefixes.row(
                (event.src, None if matched is None else shortened(matched))
            )
            common = row.common
            if common is None or type(first) is not bytes or not first.startswith(common):
                row.begin_with(at_hand(first)[:LONGEST])
        row.messages += 1
        row.octets += octets

    def _take_other(self, event: AnyEvent | MessageBatch) -> None:
        if isinstance(event, Connection):
            self._end(event, True)
        elif isinstance(event, MessageBatch):
            self._take_batch(event)
        elif isinstance(event, Subscription):
            self._subscription(event.flow, event.topic, event.action == "subscribe")
        elif isinstance(event, Command):
            if event.latency_ns is not None:
                self._answers(event.flow).heartbeats.add(event.latency_ns)
            elif event.name in ("JOIN", "LEAVE") and event.group is not None:
                self._subscription(event.flow, event.group, event.name == "JOIN")
            elif event.name == "MESSAGE" and event.box is not None:  # of CURVE or GSSAPI
                self.encrypted += 1
                senders = self._flows[event.flow].encrypted
                senders[event.src] = senders.get(event.src, 0) + 1
        elif isinstance(event, Problem):
            self._problem(event)
        elif isinstance(event, Beacon):
            self.beacons += 1
            if len(self.peers) < 2 * self._limit:
                self.peers.add(event.uuid)
        elif isinstance(event, Capture):
            self._add_capture(event)

    def _answers(self, number: int) -> Service:
        """Where to count the answers on a connection: with itself, until its bound address is known."""
        flow = self._flows[number]
        if flow.answers is None:
            if len(self._requests) >= _SKETCHES:
                return self.services.rest
            flow.answers = Service()
            self._requests[number] = flow.answers.requests
        return flow.answers

    def _subscription(self, number: int, topic: Octets, begins: bool) -> None:
        topic = shortened(topic)
        topics = self._flows[number].topics
        if not begins:
            if topic in topics:
                topics.discard(topic)
                self._followed -= 1
                self.topics.row(topic).cancel()
        elif topic not in topics:
            if self._followed >= _FOLLOWED:
                self.subscriptions_not_followed += 1
                return
            topics.add(topic)
            self._followed += 1
            self.topics.row(topic).subscribe()

    def _problem(self, event: Problem) -> None:
        self.interruptions.take(event)
        key = (event.severity, event.code)
        row = self.problems.get(key)
        if row is None:
            self.problems[key] = record_of(ProblemRow, event, count=1)
        else:
            row.count += 1

    def _add_capture(self, event: Capture) -> None:
        names = ("packets", "dropped", "flows", "zmtp_flows", "messages", "problems", "duration_ns")
        self.capture = Capture(*(getattr(self.capture, name) + getattr(event, name) for name in names))

    def _last_until(self, end_ns: int) -> None:
        """The capture is over. Connections that are still open lasted until then, however long they were idle.

        If it was interrupted behind their last packets, they lasted until that, as far as is known.
        """
        for row, socket in self._open:
            shown_ns = self.interruptions.shown_until(row.start_ns + row.duration_ns, end_ns)
            row.duration_ns = max(row.duration_ns, shown_ns - row.start_ns)
            _set_rates(row)
            socket.end_ns = max(socket.end_ns, shown_ns)

    # ------------------------------------------------------------------ the end of a connection

    def _end(self, event: Connection, whole: bool) -> None:
        flow = self._flows.pop(event.flow, None)
        messages = event.messages
        if not whole:
            if flow is None or not flow.passed:
                return
            passed = flow.passed
            messages = Sides(passed.get(event.client.address, 0), passed.get(event.server.address, 0))
        self.connections += 1
        self.octets += event.octets.client + event.octets.server
        socket = self.sockets.row(event.server.address)
        socket.add(event, messages.client, messages.server)
        row = _connection_row(event, messages)
        if event.end == "open":
            self._open.append((row, socket))
        if flow is not None and flow.encrypted:
            senders = flow.encrypted
            row.encrypted = Sides(senders.get(event.client.address, 0), senders.get(event.server.address, 0))
        self._rows.append(row)
        if len(self._rows) >= 2 * self._limit:
            self._rows = self.connection_rows(self._limit)
        if flow is not None:
            self._release(flow, event)

    def _release(self, flow: _Flow, event: Connection) -> None:
        if flow.answers is not None:
            del self._requests[event.flow]
            self.services.row(event.server.address).join(flow.answers)
        if event.end != "open":
            for topic in flow.topics:
                self.topics.row(topic).cancel()
        self._followed -= len(flow.topics)

    # ------------------------------------------------------------------ results

    def connection_rows(self, number: int) -> list[ConnectionRow]:
        """The first connections that are over, in the order asked for."""
        return first_rows(ConnectionRow, self._rows, self.sort, number)

    def publications(self) -> list[PublicationRow]:
        """The topics that were published, with their sums. Messages of all senders that begin alike are one topic."""
        found = {(topic, False): replace(row) for topic, row in self.published.rows.items()}
        for row in self.prefixes.rows.values():
            assert row.common is not None
            mine = found.setdefault((row.common, True), replace(row, messages=0, octets=0, missing=0))
            mine.join(row)
            mine.missing += row.missing
        return [
            record_of(PublicationRow, row, topic=topic, prefix=is_prefix) for (topic, is_prefix), row in found.items()
        ]

    def count_publications(self) -> int:
        """How many different ones there were. If some were cut, the number is a lower bound."""
        cut = self.published.at_least() - len(self.published.rows)
        return len(self.publications()) + cut + self.prefixes.at_least() - len(self.prefixes.rows)

    def all_answers(self) -> Service:
        """The answers of all services together."""
        everything = replace(self.services.rest, requests=Sketch(), heartbeats=Sketch())
        for row in (self.services.rest, *self.services.rows.values()):
            everything.join(row)
        return everything


def _connection_row(event: Connection, messages: Sides) -> ConnectionRow:
    row = record_of(
        ConnectionRow,
        event,
        client=_short_peer(event.client),
        server=_short_peer(event.server),
        messages=messages,
        duration_ns=event.end_ns - event.start_ns,
        subscriptions=len(event.subscriptions),
    )
    _set_rates(row)
    return row


def _set_rates(row: ConnectionRow) -> None:
    """Set the rate per second; None if nobody knows how long the connection took."""
    # A connection with no more than its greeting, and no end in the capture, has no rate.
    if row.duration_ns <= (NS if row.end == "timeout" else 0):
        return
    seconds = row.duration_ns / NS
    row.messages_per_s = round((row.messages.client + row.messages.server) / seconds, 3)
    row.octets_per_s = round((row.octets.client + row.octets.server) / seconds, 3)


def _short_peer(peer: Peer) -> Peer:
    identity = None if peer.identity is None else shortened(peer.identity)
    return replace_fields(peer, socket_type=short_name(peer.socket_type), identity=identity, process=None)
