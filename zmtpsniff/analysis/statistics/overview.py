"""The parts of a report beyond statistics: pairs of hosts, services over time, published topics, silent hosts.

Only the end of a connection shows which side is the client. Until then its counts wait. If too many counts wait, the
intervals become longer, and at last counts go to no service.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from dissectors.address import host_of
from dissectors.events import AnyEvent, Connection, Message, Octets, Problem, Severity
from dissectors.zmtp.sockets import WITH_TOPICS
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.statistics.activity import Activity
from zmtpsniff.analysis.statistics.count_rows import ServiceSum, Topic, count_topic, short_name
from zmtpsniff.analysis.statistics.intervals import Intervals
from zmtpsniff.analysis.statistics.lengths import octets_of
from zmtpsniff.analysis.statistics.severities import Severities, add_severities
from zmtpsniff.analysis.statistics.table import Table

_INTERVALS = 480  # a report shows a quarter of them
_LEAST_INTERVALS = 60
_WAITING = 400_000  # cells of connections that are not over
_ROWS = 5000  # pairs of hosts, and topics: at least so many; twice as many at most
_SERVICES = 60  # with a time line
_HOSTS = 300  # with the intervals in which they sent
_AGREEMENTS = 10
_PROBLEMS = 2000  # of different codes and hosts
_ENDED = 10_000  # closed connections whose problems may still come
_BEHIND = 5  # intervals without a message that are silence
_SENDING = 5  # intervals with messages before the silence, at least
_FACTOR = 3  # silence is so many times longer than the longest pause before it


class HostPairKey(NamedTuple):
    """A host and a bound address that it connects to, with the types of their sockets."""

    client: str  # host
    server: str
    client_socket_type: str | None
    server_socket_type: str | None
    client_program: str | None = None  # the address of one of its sockets, if it is known to have several


@dataclass(slots=True)
class HostPresence:
    """When a host sent messages."""

    missing: int = 0
    messages: int = 0
    open: int = 0  # connections at the end
    length_ns: int = 0  # of the intervals
    places: set[int] = field(default_factory=set)

    def weight(self) -> int:
        """Messages."""
        return self.messages

    def join(self, other: "HostPresence") -> None:
        """Add what another one counted."""
        self.messages += other.messages
        self.open += other.open


@dataclass(slots=True)
class HostProblems:
    """The problems of one code of one host."""

    first: Problem
    count: int = 1


class Silence(NamedTuple):
    """A host has sent nothing for long; all in intervals."""

    last: int  # with a message
    length: int
    longest: int  # pause before


@dataclass(slots=True)
class _Flow:
    """The counts of a connection that is not over."""

    activity: Activity | None = None
    sent: dict[str, int] = field(default_factory=dict)  # messages, by the address that sent them
    problems: Severities = field(default_factory=dict)


class Overview:
    """Takes all events of captures in batches, beside :class:`Statistics`, in bounded memory."""

    def __init__(self, joins: Callable[[str], bool] | None = None) -> None:
        """Start with nothing. ``joins`` tells whether the program of a socket is known to have others, too."""
        self._joins = joins
        self.start_ns: int | None = None
        self.end_ns: int | None = None
        self.intervals = Intervals(_INTERVALS)
        self.pairs: Table[HostPairKey, ServiceSum] = Table(_ROWS, ServiceSum)
        self.services: Table[str, Activity] = Table(_SERVICES, Activity)
        self.topics: Table[Octets, Topic] = Table(_ROWS, Topic)  # as published
        self.matched: Table[Octets, Topic] = Table(_ROWS, Topic)  # as subscribed to
        self.agreements: Table[tuple[str | None, str | None], Activity] = Table(_AGREEMENTS, Activity)
        self.hosts: Table[str, HostPresence] = Table(_HOSTS, HostPresence)
        self.problems: dict[tuple[Severity, str, str | None], HostProblems] = {}
        self._flows: defaultdict[int, _Flow] = defaultdict(_Flow)
        self._ended: Ledger[int, HostPairKey] = Ledger(limit=_ENDED)

    def take(self, events: Sequence[AnyEvent], keep: Callable[[AnyEvent], bool] | None = None) -> None:
        """Count a batch of events of a Sniffer; with ``keep`` only those for which it is true.

        With ``keep`` a connection counts if one of its events passes, or its own record.
        """
        for event in events:
            if type(event) is Message:
                if keep is None or keep(event):
                    self._message(event)
            elif type(event) is Connection:
                if keep is None or event.flow in self._flows or keep(event):
                    self._end(event)
            elif type(event) is Problem and (keep is None or keep(event)):
                self._problem(event)
        self._limit()

    # ------------------------------------------------------------------ counting

    def _message(self, event: Message) -> None:
        octets = octets_of(event)
        flow = self._flows[event.flow]
        if flow.activity is None:
            flow.activity = Activity()
        flow.activity.add(self.intervals, event.time_ns, octets, event.latency_ns)
        flow.sent[event.src] = flow.sent.get(event.src, 0) + 1
        if event.socket_type in WITH_TOPICS and event.frames:
            count_topic(self.topics, event.frames[0], octets)
        matched = event.frames[0] if event.socket_type == "RADIO" else event.matched
        if matched is not None:
            count_topic(self.matched, matched, octets)
        host = self.hosts.row(host_of(event.src))
        host.messages += 1
        place = self.intervals.place(event.time_ns)
        if host.length_ns != self.intervals.length_ns:
            self._fold(host)
        host.places.add(place)

    def _fold(self, host: HostPresence) -> None:
        length_ns = self.intervals.length_ns
        host.places = {place * host.length_ns // length_ns for place in host.places}
        host.length_ns = length_ns

    def _problem(self, event: Problem) -> None:
        host = None if event.src is None else host_of(event.src)
        if event.flow is not None:
            key = self._ended.get(event.flow)
            pair = None if key is None else self.pairs.rows.get(key)
            if key is None:
                add_severities(self._flows[event.flow].problems, {event.severity: 1})
            elif pair is not None:
                add_severities(pair.problems, {event.severity: 1})
        known = self.problems.get((event.severity, event.code, host))
        if known is not None:
            known.count += 1
        elif len(self.problems) < _PROBLEMS:
            self.problems[event.severity, event.code, host] = HostProblems(event)
        else:
            rest = self.problems.setdefault((event.severity, event.code, None), HostProblems(event, 0))
            rest.count += 1

    def _end(self, event: Connection) -> None:
        flow = self._flows.pop(event.flow, None) or _Flow()
        client, server = event.client.address, event.server.address
        self._span(event.start_ns, event.end_ns)
        kinds = short_name(event.client.type_name), short_name(event.server.type_name)
        program = client if self._joins is not None and self._joins(client) else None
        key = HostPairKey(host_of(client), server, *kinds, program)
        pair = self.pairs.row(key)
        pair.add(event, flow.sent.get(client, 0), flow.sent.get(server, 0))
        add_severities(pair.problems, flow.problems)
        self._ended[event.flow] = key
        if flow.activity is not None:
            self.services.row(server).join(flow.activity)
        agreement = self.agreements.row((short_name(event.version), short_name(event.mechanism)))
        agreement.add(self.intervals, event.start_ns, 0)
        if event.end == "open":
            for host in {host_of(client), host_of(server)} & self.hosts.rows.keys():
                self.hosts.rows[host].open += 1

    def _span(self, start_ns: int, end_ns: int) -> None:
        self.start_ns = start_ns if self.start_ns is None else min(self.start_ns, start_ns)
        self.end_ns = end_ns if self.end_ns is None else max(self.end_ns, end_ns)

    def _limit(self) -> None:
        """Bound the counts that wait for the ends of their connections."""
        waiting = [flow.activity for flow in self._flows.values() if flow.activity is not None]
        if sum(len(activity.cells) for activity in waiting) <= _WAITING:
            return
        while self.intervals.count >= 2 * _LEAST_INTERVALS:
            self.intervals.widen()
        for activity in waiting:
            activity.fold(self.intervals.length_ns)
        if sum(len(activity.cells) for activity in waiting) > _WAITING // 2:
            for flow in self._flows.values():
                if flow.activity is not None:
                    self.services.rest.join(flow.activity)
                    flow.activity = None

    # ------------------------------------------------------------------ results

    def total_activity(self) -> Activity:
        """The activity of all services together."""
        everything = Activity()
        for row in (self.services.rest, *self.services.rows.values()):
            everything.join(row)
        return everything

    def silences(self) -> list[tuple[str, HostPresence, Silence]]:
        """The hosts that fell silent with connections still open, the longest silence first."""
        if self.end_ns is None:
            return []
        end = self.intervals.place(self.end_ns)
        found = []
        for name, host in self.hosts.rows.items():
            self._fold(host)
            silence = silence_of(sorted(host.places), end)
            if silence is not None and host.open:
                found.append((name, host, silence))
        return sorted(found, key=lambda each: -each[2].length)


def silence_of(places: Sequence[int], end: int) -> Silence | None:
    """The silence of a host that sent in the intervals ``places``, in order, until the interval ``end``.

    None unless the silence is much longer than every pause before it.
    """
    if len(places) < _SENDING:
        return None
    longest = max(after - before for before, after in pairwise(places)) - 1
    length = end - places[-1]
    if length <= max(_BEHIND, _FACTOR * longest):
        return None
    return Silence(places[-1], length, longest)
