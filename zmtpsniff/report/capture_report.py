"""A report of captures, computed while they are read, in memory that has a limit."""

from collections.abc import Callable, Iterable, Sequence

from dissectors.events import SEVERITIES, AnyEvent
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.statistics.activity import Activity, step_limits
from zmtpsniff.analysis.statistics.count_rows import ServiceSum, Topic
from zmtpsniff.analysis.statistics.intervals import suiting
from zmtpsniff.analysis.statistics.overview import HostPairKey, Overview
from zmtpsniff.analysis.statistics.record_maker import report as rows_of
from zmtpsniff.analysis.statistics.statistics import ROWS, Statistics
from zmtpsniff.analysis.statistics.stats_records import (
    CutRow,
    LatencyRow,
    PeerRow,
    QueueRow,
    Record,
    SocketRow,
    record_of,
)
from zmtpsniff.net.witness import Acknowledgment, Witnesses
from zmtpsniff.report.chosen_conversations import ChosenConversations
from zmtpsniff.report.chosen_ways import ChosenWays
from zmtpsniff.report.results import (
    TIME_LINES,
    ReportLatency,
    ReportPair,
    ReportPeer,
    ReportProblem,
    ReportQueue,
    ReportReplies,
    ReportSeries,
    ReportSilence,
    ReportSocket,
    ReportSubscription,
    ReportTimeline,
    ReportTopic,
    ReportTotal,
    ReportVersion,
    Results,
)


class CaptureReport:
    """Takes all events of captures in batches, and makes a report of them.

    Findings are those of all events, since a part of the events does not show what is missing.
    """

    def __init__(
        self,
        top: int,
        diagnosis: Diagnosis | None = None,
        show_secrets: bool = False,
        keep: Callable[[AnyEvent], bool] | None = None,
    ) -> None:
        """Tell ``top`` rows of each kind that has an order, and what the diagnosis found, which may be a witness.

        With ``keep`` only the events for which it is true count.
        """
        self._top = top
        self._keep = keep
        self._diagnosis = diagnosis or Diagnosis()
        self._statistics = Statistics(rows=max(ROWS, top))
        self._ways = ChosenWays(keep)
        self.witness = Witnesses(self._diagnosis, self._ways.witness)
        self._overview = Overview(self._ways.joins)
        self._conversations = ChosenConversations(show_secrets)

    def acknowledge(self, acknowledgments: Iterable[Acknowledgment]) -> None:
        """Receivers have acknowledged octets; the events of the same packets come with the next call of take()."""
        self._ways.acknowledge(acknowledgments)

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Count a batch of all events of a Sniffer."""
        self._diagnosis.take(events)
        self._statistics.take(events, self._keep)
        self._ways.take(events)
        self._overview.take(events, self._keep)
        self._conversations.take(events, self._keep)

    def results(self, name: str, files: int) -> Results:
        """The results of the captures; ``name`` is their common name, ``files`` their number."""
        overview, counted = self._overview, self._statistics
        capture = counted.capture
        problems = sum(row.count for row in counted.problems.values())
        total = record_of(ReportTotal, overview, counted, capture, files=files, problems=problems)
        results = Results(total, self._diagnosis.findings(), self._ways.finish())
        self._add_rows(results)
        self._add_pairs(results)
        self._add_topics(results)
        self._add_by_time(results)
        self._add_problems(results)
        results.conversations = self._conversations.told()
        results.series = [
            ReportSeries(name, files, capture.packets, capture.dropped, 0, overview.start_ns, overview.end_ns)
        ]
        return results

    # ------------------------------------------------------------------ a section each

    def _add_rows(self, results: Results) -> None:
        """Sockets, their peers, queues and replies are those of ``zmtpsniff stats``."""
        counted = (self._diagnosis.peers(), self._diagnosis.queues()) if self._keep is None else ()
        for row in rows_of(self._statistics, self._top, *counted):
            match row:
                case SocketRow():
                    results.sockets.append(record_of(ReportSocket, row))
                case PeerRow():
                    results.peers.append(record_of(ReportPeer, row))
                case QueueRow():
                    results.queues.append(record_of(ReportQueue, row))
                case LatencyRow(pattern="request-reply"):
                    results.latencies.append(record_of(ReportLatency, row))
                case CutRow() if row.of in _CUTS and row.pattern != "heartbeat":
                    results.cut(_CUTS[row.of], row.at_least)

    def _add_pairs(self, results: Results) -> None:
        pairs = self._overview.pairs
        rows: dict[HostPairKey, ServiceSum] = {}
        for key, pair in pairs.rows.items():
            if key.client_program is not None:
                key = key._replace(client_program=self._ways.program(key.client_program))
            known = rows.setdefault(key, pair)
            if known is not pair:
                known.join(pair)
        ranked = sorted(rows.items(), key=lambda item: -item[1].weight())
        for key, pair in ranked[: self._top]:
            server = {"server_program": self._ways.program(key.server), "server_asks": self._ways.asks(key.server)}
            results.pairs.append(record_of(ReportPair, key, pair, start_ns=pair.start_ns or 0, **server))
        joined = len(pairs.rows) - len(rows)  # those of one program are one row
        results.cut(ReportPair, pairs.at_least() - joined - len(results.pairs))

    def _add_topics(self, results: Results) -> None:
        topics = self._overview.topics
        ranked = sorted(topics.rows.items(), key=lambda item: -item[1].messages)
        results.topics = [record_of(ReportTopic, row, topic=topic) for topic, row in ranked[: self._top]]
        results.cut(ReportTopic, topics.at_least() - len(results.topics))
        matched = self._overview.matched.rows
        found = []
        for topic, followed in self._statistics.topics.rows.items():
            if followed.subscribers_most:
                row = matched.get(topic) or Topic()
                volume = {"messages": row.messages, "octets": row.octets}
                found.append(record_of(ReportSubscription, followed, topic=topic, **volume))
        found.sort(key=lambda row: (-row.messages, -row.octets, -row.subscribers_most))
        results.subscriptions = found[: self._top]
        results.cut(ReportSubscription, len(found) - len(results.subscriptions))

    def _add_by_time(self, results: Results) -> None:
        overview = self._overview
        if overview.start_ns is None or overview.end_ns is None:
            return
        length_ns = max(suiting(overview.end_ns - overview.start_ns), overview.intervals.length_ns)
        services = overview.services.rows
        ranked = sorted(services, key=lambda name: -services[name].weight())[: min(self._top, TIME_LINES)]
        rows: list[tuple[str | None, Activity]] = [(None, overview.total_activity())]
        for service, activity in [*rows, *((name, services[name]) for name in ranked)]:
            activity.fold(length_ns)
            for place, amount in activity.amounts():
                results.timeline.append(
                    ReportTimeline(place * length_ns, length_ns, amount.messages, amount.octets, service)
                )
            for place, step, count in activity.replies():
                limits = step_limits(step)
                results.replies.append(ReportReplies(place * length_ns, length_ns, *limits, count, service))
        for (version, mechanism), activity in overview.agreements.rows.items():
            activity.fold(length_ns)
            results.versions += [
                ReportVersion(place * length_ns, length_ns, amount.messages, version, mechanism)
                for place, amount in activity.amounts()
            ]
        results.versions.sort(key=lambda row: (row.start_ns, row.version or "", row.mechanism or ""))
        step_ns = overview.intervals.length_ns
        results.silences = [
            ReportSilence(host, row.messages, row.open, *(each * step_ns for each in silence))
            for host, row, silence in overview.silences()[: self._top]
        ]

    def _add_problems(self, results: Results) -> None:
        found = [
            record_of(ReportProblem, row, row.first, host=host) for (_, _, host), row in self._overview.problems.items()
        ]
        found.sort(key=lambda row: (SEVERITIES.index(row.severity), -row.count, row.code, row.host or ""))
        results.problems = found[: self._top]
        results.cut(ReportProblem, len(found) - len(results.problems))


_CUTS: dict[str, type[Record]] = {
    "stats-socket": ReportSocket,
    "stats-peer": ReportPeer,
    "stats-queue": ReportQueue,
    "stats-latency": ReportLatency,
}
