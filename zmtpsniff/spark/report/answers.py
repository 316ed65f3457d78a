"""Asks the questions, and makes results of the answers. Of each answer it collects only the rows that it shows."""

from collections.abc import Sequence
from typing import Any

from dissectors.events import SEVERITIES, Cut, Octets
from zmtpsniff.analysis.defaults import TOP_ROWS
from zmtpsniff.analysis.statistics.activity import step_limits
from zmtpsniff.analysis.statistics.intervals import suiting
from zmtpsniff.analysis.statistics.overview import silence_of
from zmtpsniff.analysis.statistics.severities import Severities
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.analysis.statistics.stats_records import Record
from zmtpsniff.report.results import (
    TIME_LINES,
    ReportClock,
    ReportDelay,
    ReportFile,
    ReportLatency,
    ReportPair,
    ReportProblem,
    ReportReplies,
    ReportSeries,
    ReportSilence,
    ReportSocket,
    ReportStorm,
    ReportSubscription,
    ReportTimeline,
    ReportTopic,
    ReportTotal,
    ReportVersion,
    Results,
)
from zmtpsniff.spark.report import queries
from zmtpsniff.spark.report.snapshot import Row, Snapshot, open_snapshot

_AGREEMENTS = 10  # versions with their mechanisms
_SILENT = 1000  # hosts that are looked at
_BY_MESSAGES = "messages_in + messages_out DESC, octets_in + octets_out DESC"
_BY_SEVERITY = f"list_position({[*SEVERITIES]}, severity)"
_FILES_BEHIND = 3  # files of its usual length after which a series has ended before others
_SHARE_BEHIND = 20  # and this part of all the time


def report(
    folder: str,
    top: int = TOP_ROWS,
    since_ns: int | None = None,
    until_ns: int | None = None,
    interval_ns: int | None = None,
) -> Results:
    """A report from the tables below ``folder``, a path or URL.

    It has ``top`` rows of each kind that has an order, and says how many more there are.

    Only of the time from ``since_ns`` up to ``until_ns``; ``interval_ns`` is the length of the intervals of what is
    told by time, None for one that suits. Raises SparkError.
    """
    with open_snapshot(folder, since_ns, until_ns) as snapshot:
        return _Questions(snapshot, top, since_ns, interval_ns).results()


class _Questions:
    """One run."""

    def __init__(self, snapshot: Snapshot, top: int, since_ns: int | None, interval_ns: int | None) -> None:
        self._tables = snapshot
        self._top = top
        (row,) = snapshot.rows(queries.TOTAL, since=since_ns or 0)
        self._results = Results(_total(row))
        total = self._results.total
        span_ns = (total.end_ns or 0) - (total.start_ns or 0)
        self._interval_ns = interval_ns or suiting(span_ns)

    def results(self) -> Results:
        """All of them."""
        total = self._results.total
        if total.start_ns is not None:
            self._pairs()
            self._sockets()
            self._versions()
            self._topics()
            if total.messages:
                self._latencies()
                self._delays()
                self._timeline()
                self._silences()
            self._storms()
        self._problems()
        self._health()
        return self._results

    def _first(self, kind: type[Record], query: str, order: str, **arguments: Any) -> list[Row]:
        """The first rows of a kind; how many more there are is noted."""
        rows, more = self._tables.first(query, order, self._top, **arguments)
        self._results.cut(kind, more)
        return rows

    def _by_time(self, query: str, services: Sequence[str]) -> list[Row]:
        """The rows by interval of all services together, then of each of those named, in their order."""
        order = [None, *services]
        rows = self._tables.rows(query, services=services, interval=self._interval_ns)
        return sorted(rows, key=lambda row: (order.index(row["service"]), row["start_ns"], row.get("step", 0)))

    # ------------------------------------------------------------------ a section each

    def _pairs(self) -> None:
        order = f"{_BY_MESSAGES}, client, server, client_socket_type, server_socket_type"
        for row in self._first(ReportPair, queries.PAIRS, order):
            problems: Severities = {severity: count for severity in SEVERITIES if (count := row.pop(severity))}
            self._results.pairs.append(ReportPair(**row, problems=problems))

    def _sockets(self) -> None:
        rows = self._first(ReportSocket, queries.SOCKETS, f"{_BY_MESSAGES}, address")
        names: dict[str, dict[str, dict[str, int]]] = {row["address"]: {} for row in rows}
        order = " ORDER BY connections DESC, name"
        for found in self._tables.rows(queries.NAMES_OF_SOCKETS + order, addresses=list(names)):
            names[found["server"]].setdefault(found["kind"], {})[found["name"]] = found["connections"]
        for row in rows:
            row["duration_ns"] = row.pop("end_ns") - row["start_ns"]
            self._results.sockets.append(ReportSocket(**(row | names[row["address"]])))

    def _versions(self) -> None:
        query = f"{queries.VERSIONS} ORDER BY start_ns, version, mechanism"
        rows = self._tables.rows(query, interval=self._interval_ns, kinds=_AGREEMENTS)
        self._results.versions = [ReportVersion(**row, interval_ns=self._interval_ns) for row in rows]

    def _topics(self) -> None:
        for row in self._first(ReportTopic, queries.TOPICS, "messages DESC, octets DESC, topic"):
            self._results.topics.append(ReportTopic(**{**row, "topic": _octets(row["topic"])}))
        order = "messages DESC, octets DESC, subscribers_most DESC, topic"
        for row in self._first(ReportSubscription, queries.SUBSCRIPTIONS, order):
            self._results.subscriptions.append(ReportSubscription(**{**row, "topic": _octets(row["topic"])}))

    def _latencies(self) -> None:
        self._tables.keep("replies", queries.REPLIES)
        ranked = [row["service"] for row in self._first(ReportLatency, queries.ANSWERING, "count DESC, service")]
        if not ranked:
            return
        sketches: dict[str | None, Sketch] = {}
        for row in self._tables.rows(queries.LATENCIES, services=ranked):
            bucket, count = row["bucket"], row["count"]
            zeros, buckets = (count, []) if bucket is None else (0, [(bucket, count)])
            sketch = sketches.setdefault(row["service"], Sketch())
            sketch.add_all(count, zeros, row["min_ns"], row["max_ns"], buckets)
        self._results.latencies = [ReportLatency(service=name, **sketches[name].times()) for name in (None, *ranked)]
        for row in self._by_time(queries.REPLIES_BY_TIME, ranked[:TIME_LINES]):
            least_ns, below_ns = step_limits(row["step"])
            self._results.replies.append(
                ReportReplies(row["start_ns"], self._interval_ns, least_ns, below_ns, row["count"], row["service"])
            )

    def _delays(self) -> None:
        """Add the results that only two captures of the same connections can tell."""
        if self._tables.has_doubles:
            rows = self._first(ReportDelay, queries.DELAYS, "count DESC, service")
            self._results.delays = [ReportDelay(**row) for row in rows]
            rows = self._first(ReportClock, queries.CLOCKS, "abs(difference_ns) DESC, one, other")
            self._results.clocks = [ReportClock(**row) for row in rows]

    def _timeline(self) -> None:
        rows = self._by_time(queries.TIMELINE, [row.address for row in self._results.sockets[:TIME_LINES]])
        self._results.timeline = [ReportTimeline(**row, interval_ns=self._interval_ns) for row in rows]

    def _silences(self) -> None:
        end_ns = self._results.total.end_ns or 0
        last = end_ns // self._interval_ns
        rows, _ = self._tables.first(
            queries.PRESENCES, "messages DESC, host", _SILENT, interval=self._interval_ns, last=last
        )
        found = [(row, silence_of(row["places"], last)) for row in rows]
        silent = [(row, silence) for row, silence in found if silence is not None]
        for row, silence in sorted(silent, key=lambda each: -each[1].length)[: self._top]:
            times = (each * self._interval_ns for each in silence)
            self._results.silences.append(ReportSilence(row["host"], row["messages"], row["open"], *times))

    def _storms(self) -> None:
        order = "connections DESC, start_ns, client, server"
        self._results.storms = [ReportStorm(**row) for row in self._first(ReportStorm, queries.STORMS, order)]

    def _problems(self) -> None:
        for row in self._first(ReportProblem, queries.PROBLEMS, f"{_BY_SEVERITY}, count DESC, code, host"):
            first = row.pop("first")
            self._results.problems.append(ReportProblem(**row, **first))

    def _health(self) -> None:
        rows = self._first(ReportSeries, queries.SERIES, "end_ns NULLS FIRST, series")
        last_ns = self._results.total.end_ns
        for row in rows:
            mean_ns = row.pop("mean_ns") or 0
            behind = 0 if last_ns is None or row["end_ns"] is None else last_ns - row["end_ns"]
            span_ns = (last_ns or 0) - (self._results.total.start_ns or 0)
            is_silent = row["files"] > 1 and behind > _FILES_BEHIND * mean_ns and behind * _SHARE_BEHIND > span_ns
            self._results.series.append(ReportSeries(**row, silent_ns=behind if is_silent else None))
        self._results.files = [ReportFile(**row) for row in self._first(ReportFile, queries.FILES, "file")]


def _total(row: Row) -> ReportTotal:
    # Tables may have messages without connections: those that are provisional, where time is limited.
    firsts = [time for time in (row.pop("first_ns"), row["start_ns"]) if time is not None]
    lasts = [time for time in (row.pop("last_ns"), row["end_ns"]) if time is not None]
    return ReportTotal(**{**row, "start_ns": min(firsts, default=None), "end_ns": max(lasts, default=None)})


def _octets(topic: Row) -> Octets:
    data = bytes(topic["data"] or b"")
    return data if topic["length"] == len(data) else Cut(data, topic["length"])
