"""The orders of rows."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from dissectors.events import at_hand
from zmtpsniff.analysis.defaults import SORT
from zmtpsniff.analysis.statistics.stats_records import (
    ConnectionRow,
    LatencyRow,
    PeerRow,
    PublicationRow,
    QueueRow,
    Record,
    SocketRow,
    TopicRow,
)

_Keys = dict[type[Record], Callable[[Any], Any]]
_Row = TypeVar("_Row", bound=Record)


# name: (whether the largest comes first, what is compared of each kind of row); kinds without it keep the default.
SORTS: dict[str, tuple[bool, _Keys]] = {
    "messages": (
        True,
        {
            ConnectionRow: lambda row: row.messages.client + row.messages.server,
            SocketRow: lambda row: row.messages_in + row.messages_out,
            PeerRow: lambda row: row.taken + row.given,
            QueueRow: lambda row: row.taken,
            TopicRow: lambda row: row.messages,
            PublicationRow: lambda row: row.messages,
            LatencyRow: lambda row: row.count,
        },
    ),
    "octets": (
        True,
        {
            ConnectionRow: lambda row: row.octets.client + row.octets.server,
            SocketRow: lambda row: row.octets_in + row.octets_out,
            TopicRow: lambda row: row.octets,
            PublicationRow: lambda row: row.octets,
        },
    ),
    "rate": (True, {ConnectionRow: lambda row: row.messages_per_s or 0.0}),
    "duration": (True, {ConnectionRow: lambda row: row.duration_ns, SocketRow: lambda row: row.duration_ns}),
    "start": (False, {ConnectionRow: lambda row: row.start_ns, SocketRow: lambda row: row.start_ns}),
    "peers": (True, {SocketRow: lambda row: row.connections, TopicRow: lambda row: row.subscribers_most}),
    "address": (
        False,
        {
            ConnectionRow: lambda row: (row.server.address, row.client.address),
            SocketRow: lambda row: row.address,
            PeerRow: lambda row: (row.service, row.peer),
            QueueRow: lambda row: row.program,
            TopicRow: lambda row: at_hand(row.topic),
            PublicationRow: lambda row: at_hand(row.topic),
            LatencyRow: lambda row: row.service or "",
        },
    ),
    "p50": (True, {LatencyRow: lambda row: row.p50_ns, PeerRow: lambda row: row.p50_ns}),
    "p95": (True, {LatencyRow: lambda row: row.p95_ns, PeerRow: lambda row: row.p95_ns}),
    "p99": (True, {LatencyRow: lambda row: row.p99_ns}),
    "max": (True, {LatencyRow: lambda row: row.max_ns, PeerRow: lambda row: row.max_ns}),
}


def first_rows(kind: type[_Row], rows: Iterable[_Row], name: str, most: int) -> list[_Row]:
    """The first ``most`` rows of that kind in the order of that name."""
    largest_first, keys = SORTS[name]
    if kind not in keys:
        largest_first, keys = SORTS[SORT]
    return sorted(rows, key=keys[kind], reverse=largest_first)[:most]
