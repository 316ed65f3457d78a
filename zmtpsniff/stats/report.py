"""From what was counted to records."""

from collections.abc import Iterable
from typing import Literal, TypeVar

from zmtpsniff.stats.records import (
    AnyRecord,
    Bar,
    CutRow,
    LatencyRow,
    ProblemRow,
    Record,
    SocketRow,
    TimelineRow,
    TopicRow,
    TotalRow,
)
from zmtpsniff.stats.rows import Socket, Topic
from zmtpsniff.stats.sketch import Sketch
from zmtpsniff.stats.sorting import DEFAULT_SORT, order
from zmtpsniff.stats.statistics import Statistics

DEFAULT_TOP = 20
_NS = 1_000_000_000
_SEVERITIES = ("error", "warning", "note")
_Some = TypeVar("_Some", bound=Record)


def report(statistics: Statistics, top: int = DEFAULT_TOP, sort: str = DEFAULT_SORT) -> list[AnyRecord]:
    """All records, section by section: ``top`` at most of each kind that has an order, and how many more there are."""
    records: list[AnyRecord] = []

    connections = statistics.connection_rows(top)
    records += connections
    _tell_cut(records, "stats-connection", statistics.connections - len(connections))

    sockets = _first((_socket(name, row) for name, row in statistics.sockets.rows.items()), SocketRow, top, sort)
    records += sockets
    _tell_cut(records, "stats-socket", statistics.sockets.at_least() - len(sockets))

    topics = _first((_topic(topic, row) for topic, row in statistics.topics.rows.items()), TopicRow, top, sort)
    records += topics
    _tell_cut(records, "stats-topic", statistics.topics.at_least() - len(topics))

    everything = statistics.all_answers()
    records += _latencies("request-reply", {None: everything.requests}, 1, sort)
    services = {name: row.requests for name, row in statistics.services.rows.items()}
    records += _latencies("request-reply", services, top, sort)
    records += _latencies("heartbeat", {None: everything.heartbeats}, 1, sort)
    services = {name: row.heartbeats for name, row in statistics.services.rows.items()}
    records += _latencies("heartbeat", services, top, sort)
    _tell_cut(records, "stats-latency", _services(statistics) - _told_services(records))

    width_ns, intervals = statistics.timeline.rows()
    for start_ns, count in intervals:
        records.append(TimelineRow(start_ns, width_ns, count, round(count * _NS / width_ns, 3)))

    problems = sorted(statistics.problems.values(), key=_how_bad)
    records += problems
    records.append(_total(statistics))
    return records


def _first(rows: Iterable[_Some], kind: type[_Some], top: int, sort: str) -> list[_Some]:
    largest_first, key = order(kind, sort)
    return sorted(rows, key=key, reverse=largest_first)[:top]


def _tell_cut(records: list[AnyRecord], kind: str, more: int) -> None:
    if more > 0:
        records.append(CutRow(kind, more))


def _services(statistics: Statistics) -> int:
    """How many latency rows there would be of services, if none was cut."""
    rows = statistics.services.rows.values()
    kept = sum((row.requests.count > 0) + (row.heartbeats.count > 0) for row in rows)
    return max(kept, statistics.services.at_least())


def _told_services(records: list[AnyRecord]) -> int:
    return sum(isinstance(record, LatencyRow) and record.service is not None for record in records)


def _socket(address: str, row: Socket) -> SocketRow:
    start_ns = row.start_ns or 0
    return SocketRow(
        address=address,
        connections=row.connections,
        open=row.open,
        messages_in=row.messages_in,
        messages_out=row.messages_out,
        octets_in=row.octets_in,
        octets_out=row.octets_out,
        start_ns=start_ns,
        duration_ns=row.end_ns - start_ns,
        socket_types=row.socket_types,
        peer_socket_types=row.peer_socket_types,
        versions=row.versions,
        mechanisms=row.mechanisms,
        missing=row.missing,
    )


def _topic(topic: "bytes | object", row: Topic) -> TopicRow:
    return TopicRow(topic, row.messages, row.octets, row.subscribers, row.subscribers_most, row.missing)  # type: ignore[arg-type]


def _latencies(
    pattern: Literal["request-reply", "heartbeat"],
    services: "dict[None, Sketch] | dict[str, Sketch]",
    top: int,
    sort: str,
) -> list[LatencyRow]:
    rows = [
        LatencyRow(
            pattern=pattern,
            count=sketch.count,
            min_ns=sketch.minimum,
            p50_ns=sketch.percentile(0.5),
            p95_ns=sketch.percentile(0.95),
            p99_ns=sketch.percentile(0.99),
            max_ns=sketch.maximum,
            histogram=[Bar(*bar) for bar in sketch.histogram()],
            service=service,
        )
        for service, sketch in services.items()
        if sketch.count
    ]
    return _first(rows, LatencyRow, top, sort)


def _how_bad(row: ProblemRow) -> tuple[int, int, str]:
    return _SEVERITIES.index(row.severity), -row.count, row.code


def _total(statistics: Statistics) -> TotalRow:
    capture = statistics.capture
    return TotalRow(
        packets=capture.packets,
        dropped=capture.dropped,
        flows=capture.flows,
        zmtp_flows=capture.zmtp_flows,
        messages=statistics.messages,
        octets=statistics.octets,
        problems=sum(row.count for row in statistics.problems.values()),
        duration_ns=capture.duration_ns,
    )
