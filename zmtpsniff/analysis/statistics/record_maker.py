"""From what was counted to records."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from dissectors.events import SEVERITIES
from zmtpsniff.analysis.defaults import TOP_ROWS
from zmtpsniff.analysis.statistics.count_rows import NAMES, ServiceSum
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.analysis.statistics.sorts import first_rows
from zmtpsniff.analysis.statistics.statistics import Statistics
from zmtpsniff.analysis.statistics.stats_records import (
    AnyRecord,
    Bar,
    ConnectionRow,
    CutRow,
    LatencyRow,
    Pattern,
    PeerRow,
    PublicationRow,
    QueueRow,
    SocketRow,
    TimelineRow,
    TopicRow,
    TotalRow,
    record_of,
    worth_telling,
)
from zmtpsniff.words.durations import NS

_Some = TypeVar("_Some", bound=AnyRecord)


def report(
    statistics: Statistics,
    top: int = TOP_ROWS,
    peers: Sequence[PeerRow] = (),
    queues: Sequence[QueueRow] = (),
) -> list[AnyRecord]:
    """All records, section by section; ``peers`` and ``queues`` are those that a diagnosis has counted.

    A section with an order has ``top`` records at most, and says how many more there are.
    """
    records: list[AnyRecord] = []

    def tell(kind: type[_Some], rows: Iterable[_Some], count: int) -> None:
        """Tell the first rows of a section, and how many more of ``count`` there are."""
        first = first_rows(kind, rows, statistics.sort, top)
        records.extend(first)
        if count > len(first):
            records.append(CutRow(str(kind.__struct_config__.tag), count - len(first)))

    sockets, topics, told = statistics.sockets, statistics.topics, worth_telling(peers)
    tell(ConnectionRow, statistics.connection_rows(top), statistics.connections)
    tell(SocketRow, (_socket(name, row) for name, row in sockets.rows.items()), sockets.at_least())
    tell(PeerRow, told, len(told))
    tell(QueueRow, queues, len(queues))
    tell(TopicRow, (record_of(TopicRow, row, topic=topic) for topic, row in topics.rows.items()), topics.at_least())
    tell(PublicationRow, statistics.publications(), statistics.count_publications())

    everything = statistics.all_answers()
    services = statistics.services.rows
    requests = {name: row.requests for name, row in services.items() if row.requests.count}
    heartbeats = {name: row.heartbeats for name, row in services.items() if row.heartbeats.count}
    _tell_latencies(records, "request-reply", everything.requests, requests, top, statistics.sort)
    _tell_latencies(records, "heartbeat", everything.heartbeats, heartbeats, top, statistics.sort)

    width_ns, intervals = statistics.timeline.rows()
    for start_ns, count in intervals:
        records.append(TimelineRow(start_ns, width_ns, count, round(count * NS / width_ns, 3)))

    problems = sorted(
        statistics.problems.values(), key=lambda row: (SEVERITIES.index(row.severity), -row.count, row.code)
    )
    records += problems
    records.append(_total(statistics))
    return records


def _socket(address: str, row: ServiceSum) -> SocketRow:
    start_ns = row.start_ns or 0
    names: Any = {name: _most_first(getattr(row, name)) for name in NAMES}
    duration_ns = row.end_ns - start_ns
    return record_of(SocketRow, row, address=address, start_ns=start_ns, duration_ns=duration_ns, **names)


def _most_first(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _tell_latencies(
    records: list[AnyRecord], pattern: Pattern, everything: Sketch, services: dict[str, Sketch], top: int, sort: str
) -> None:
    if not everything.count:
        return
    records.append(_latency(pattern, None, everything))
    rows = first_rows(LatencyRow, (_latency(pattern, *item) for item in services.items()), sort, top)
    records += rows
    counted = sum(sketch.count for sketch in services.values())
    more = len(services) - len(rows) + (counted < everything.count)  # all whose rows were cut are one here, at least
    if more:
        records.append(CutRow("stats-latency", more, pattern))


def _latency(pattern: Pattern, service: str | None, sketch: Sketch) -> LatencyRow:
    histogram = [Bar(*each) for each in sketch.histogram()]
    return LatencyRow(pattern=pattern, service=service, histogram=histogram, **sketch.times())


def _total(statistics: Statistics) -> TotalRow:
    problems = sum(row.count for row in statistics.problems.values())
    peers = len(statistics.peers)
    return record_of(
        TotalRow, statistics, statistics.capture, problems=problems, beacon_peers=peers,
        interrupted_ns=statistics.interruptions.lasted_ns,
    )  # fmt: skip
