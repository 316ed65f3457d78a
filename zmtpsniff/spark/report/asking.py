"""Asks the questions, and makes records of the answers: of each no more than the rows that are told are collected."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dissectors.events import Cut, Octets
from zmtpsniff.analysis.defaults import TOP_ROWS
from zmtpsniff.spark.report import queries
from zmtpsniff.spark.report.records import (
    AnyRecord,
    CutRow,
    LatencyRow,
    PairRow,
    ProblemRow,
    SocketRow,
    StormRow,
    TimelineRow,
    TopicRow,
    TotalRow,
    VersionRow,
)
from zmtpsniff.spark.report.views import make_views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_NS = 1_000_000_000
_SHOWN = 120  # intervals where nobody says how long they are
_INTERVALS = 10_000  # that are told
_AGREEMENTS = 10  # versions with their mechanisms that are told by time
_MOST = (1 << 63) - 1
_UNITS = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # milliseconds
_SECONDS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400)
_BY_MESSAGES = "messages_in + messages_out DESC; octets_in + octets_out DESC"


def report(
    session: "SparkSession",
    folder: str,
    top: int = TOP_ROWS,
    since_ns: int | None = None,
    until_ns: int | None = None,
    interval_ns: int | None = None,
) -> list[AnyRecord]:
    """What the tables below ``folder``, a path or URL, say: ``top`` rows of each kind that has an order, and how many
    more there are.

    Only of the time from ``since_ns`` up to ``until_ns`` (see make_views); ``interval_ns`` is the length of the
    intervals of what is told by time, None for one that suits. Raises SparkError.
    """
    make_views(session, folder, since_ns, until_ns)
    return list(_Questions(session, top, since_ns, interval_ns).all())


class _Questions:
    """One run."""

    def __init__(self, session: "SparkSession", top: int, since_ns: int | None, interval_ns: int | None) -> None:
        self._session = session
        self._top = top
        self._since_ns = since_ns
        self._interval_ns = interval_ns

    def all(self) -> Iterator[AnyRecord]:
        """All records, section by section."""
        row = self._ask(queries.TOTAL, since=self._since_ns or 0).collect()[0]
        total = _total(row)
        yield total
        if total.start_ns is None or total.end_ns is None:
            yield from self._problems()
            return
        interval_ns = self._interval_ns or suiting(total.end_ns - total.start_ns)
        yield from self._pairs()
        yield from self._sockets()
        yield from self._versions(interval_ns)
        if total.messages or total.connections:
            yield from self._topics()
        if total.messages:
            yield from self._latencies()
            yield from self._timeline(interval_ns)
        yield from self._storms()
        yield from self._problems()

    def _ask(self, query: str, **arguments: Any) -> "DataFrame":
        return self._session.sql(query, args=arguments)

    def _first(self, frame: "DataFrame", kind: type[Any], order: str, top: int = 0) -> "tuple[list[Row], list[CutRow]]":
        """The first rows in an order, and how many more there are."""
        top = top or self._top
        rows = _in_order(frame, order).limit(top + 1).collect()
        if len(rows) <= top:
            return rows, []
        return rows[:top], [CutRow(str(kind.__struct_config__.tag), frame.count() - top)]

    # ------------------------------------------------------------------ a section each

    def _pairs(self) -> Iterator[AnyRecord]:
        order = f"{_BY_MESSAGES}; client; server; client_socket_type; server_socket_type"
        rows, cut = self._first(self._ask(queries.PAIRS), PairRow, order)
        for row in rows:
            yield PairRow(**row.asDict())
        yield from cut

    def _sockets(self) -> Iterator[AnyRecord]:
        rows, cut = self._first(self._ask(queries.SOCKETS), SocketRow, f"{_BY_MESSAGES}; address")
        names: dict[str, dict[str, dict[str, int]]] = {row.address: {} for row in rows}
        found = self._ask(queries.NAMES_OF_SOCKETS, addresses=json.dumps(list(names)))
        for row in _in_order(found, "connections DESC; name").collect():
            names[row.server].setdefault(row.kind, {})[row.name] = row.connections
        for row in rows:
            values = row.asDict()
            values["duration_ns"] = values.pop("end_ns") - row.start_ns
            yield SocketRow(**{**values, **names[row.address]})
        yield from cut

    def _versions(self, interval_ns: int) -> Iterator[AnyRecord]:
        order = "connections DESC; version; mechanism"
        kinds, cut = self._first(self._ask(queries.AGREEMENTS), VersionRow, order, _AGREEMENTS)
        frame = self._ask(queries.AGREEMENTS_BY_TIME, interval=interval_ns)
        wanted = None
        for kind in kinds:
            same = frame.version.eqNullSafe(kind.version) & frame.mechanism.eqNullSafe(kind.mechanism)
            wanted = same if wanted is None else wanted | same
        if wanted is not None:
            found = _in_order(frame.where(wanted), "start_ns; version; mechanism")
            for row in found.limit(_INTERVALS * _AGREEMENTS).collect():
                yield VersionRow(**row.asDict(), interval_ns=interval_ns)
        yield from cut

    def _topics(self) -> Iterator[AnyRecord]:
        order = "messages DESC; octets DESC; subscribers_most DESC; topic"
        rows, cut = self._first(self._ask(queries.TOPICS), TopicRow, order)
        for row in rows:
            yield TopicRow(**{**row.asDict(), "topic": _octets(row.topic)})
        yield from cut

    def _latencies(self) -> Iterator[AnyRecord]:
        frame = self._ask(queries.LATENCIES).persist()
        try:
            everything = frame.where("all_services").collect()
            services, cut = self._first(
                frame.where("all_hours AND NOT all_services"), LatencyRow, "count DESC; service"
            )
            yield from map(_latency, everything + services)
            yield from cut
            names = [row.service for row in services]
            hours = frame.where(~frame.all_hours & frame.service.isin(names))
            # Of more hours than can be told the last ones.
            latest = _in_order(hours, "hour_ns DESC; service").limit(_INTERVALS).collect()
            yield from map(_latency, sorted(latest, key=lambda row: (names.index(row.service), row.hour_ns)))
        finally:
            frame.unpersist()

    def _timeline(self, interval_ns: int) -> Iterator[AnyRecord]:
        frame = self._ask(queries.TIMELINE, interval=interval_ns)
        for row in _in_order(frame, "start_ns").limit(_INTERVALS).collect():
            yield TimelineRow(**row.asDict(), interval_ns=interval_ns)

    def _storms(self) -> Iterator[AnyRecord]:
        frame = self._ask(queries.STORMS)
        rows, cut = self._first(frame, StormRow, "connections DESC; start_ns; client; server")
        for row in rows:
            yield StormRow(**row.asDict())
        yield from cut

    def _problems(self) -> Iterator[AnyRecord]:
        order = "array_position(array('error', 'warning', 'note'), severity); count DESC; code; host"
        rows, cut = self._first(self._ask(queries.PROBLEMS), ProblemRow, order)
        for row in rows:
            values = row.asDict()
            first = values.pop("first").asDict()
            if first["time_ns"] == _MOST:
                first["time_ns"] = None
            yield ProblemRow(**values, **first)
        yield from cut


def suiting(span_ns: int) -> int:
    """A round length for intervals, of which a span of time has 120 at most."""
    lengths = [unit * _NS // 1000 for unit in _UNITS] + [seconds * _NS for seconds in _SECONDS]
    for length_ns in lengths:
        if span_ns / length_ns <= _SHOWN - 1:
            return length_ns
    length_ns = lengths[-1]
    while span_ns / length_ns > _SHOWN - 1:
        length_ns *= 2
    return length_ns


def _in_order(frame: "DataFrame", order: str) -> "DataFrame":
    """Rows in an order as SQL has it, its parts separated by semicolons."""
    from pyspark.sql import functions as sql

    keys = []
    for part in order.split("; "):
        key = sql.expr(part.removesuffix(" DESC"))
        keys.append(key.desc() if part.endswith(" DESC") else key.asc())
    return frame.orderBy(*keys)


def _total(row: "Row") -> TotalRow:
    values = row.asDict()
    # Tables may have messages without connections: those that are provisional, where time is limited.
    firsts = [time for time in (values.pop("first_ns"), values["start_ns"]) if time is not None]
    lasts = [time for time in (values.pop("last_ns"), values["end_ns"]) if time is not None]
    return TotalRow(**{**values, "start_ns": min(firsts, default=None), "end_ns": max(lasts, default=None)})


def _latency(row: "Row") -> LatencyRow:
    values = row.asDict()
    return LatencyRow(**{name: value for name, value in values.items() if name not in ("all_services", "all_hours")})


def _octets(topic: "Row") -> Octets:
    data = bytes(topic.data or b"")
    return data if topic.length == len(data) else Cut(data, topic.length)
