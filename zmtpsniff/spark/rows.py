"""Turns events into Arrow record batches, a column at a time: of each event one value is picked for each column."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from dissectors.batches import MessageBatch, joined_parts
from dissectors.events import (
    AnyEvent,
    Beacon,
    Command,
    Connection,
    Greeting,
    Message,
    Octets,
    Problem,
    Subscription,
    Work,
)
from zmtpsniff.analysis.findings.finding import Evidence, Finding
from zmtpsniff.analysis.ways.way_records import Leg, Slowest, Terminus, Way
from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.spark.inputs import File
from zmtpsniff.spark.message_rows import BatchOrigin, Messages
from zmtpsniff.spark.packet_names import NOWHERE, PacketName
from zmtpsniff.spark.row_columns import (
    MOST,
    OCTETS_LISTS,
    SCHEMAS,
    TEXT,
    OctetsBuilder,
    RowOrigin,
    address_columns,
    date_column,
    number_column,
    packet_columns,
    plain_text,
    repeated_column,
    sums_of,
    text_column,
    time_column,
    time_columns,
)
from zmtpsniff.spark.tables import (
    OCTETS,
    OCTETS_LIST,
    PACKET_FIELDS,
    PROPERTIES,
    field_columns,
)
from zmtpsniff.spark.writer import DISORDER_NS

_PROPERTIES = SCHEMAS["commands"].field("properties").type
Batch = tuple[str, pa.RecordBatch, bool]
"""Rows of a table: its name, the rows, and whether they are provisional."""


def _runs(events: Iterable[Any]) -> Iterator[tuple[type, list[Any]]]:
    """The events, those of one type that follow each other together."""
    for kind, some in groupby(events, type):
        yield kind, list(some)


def _by_kind(events: Iterable[Any]) -> dict[type, list[Any]]:
    """The events by their types."""
    found: dict[type, list[Any]] = {}
    for event in events:
        found.setdefault(type(event), []).append(event)
    return found


class ReadFile(NamedTuple):
    """A file that has been read: its number in its series, it, and the problems with it as a whole."""

    number: int
    file: File
    problems: dict[tuple[str, str, str], None]  # severity, code, detail; a set in order


class Rows:
    """Makes rows of events, once these are enough."""

    def __init__(self, max_bytes: int, bodies: bool, provisional: bool = False) -> None:
        """Keep at most ``max_bytes`` octets of each body (0: all), and without ``bodies`` none of messages' frames."""
        self._most = max_bytes or MOST
        self._most_of_messages = self._most if bodies else 0
        self._provisional = provisional
        self._messages = Messages(self._most_of_messages)
        self._others: dict[type, list[Any]] = {}
        self._packets: dict[type, list[PacketName]] = {}  # of these
        self._makers = {"STRING": text_column, "BIGINT": number_column, OCTETS: self._octets, OCTETS_LIST: self._lists}
        self._makers[PROPERTIES] = self._properties

    def take(self, events: Iterable[AnyEvent], origin: RowOrigin, batch_origin: BatchOrigin | None = None) -> None:
        """Take events of one series; batches among them are of ``batch_origin``.

        Messages in columns come behind others, unless that puts rows out of order by so much that they are sorted.
        """
        in_order = batch_origin is not None and batch_origin.span_ns >= DISORDER_NS
        for kind, some in _runs(events) if in_order else _by_kind(events).items():
            if kind is Message:
                self._messages.take(some, origin)
            elif kind is MessageBatch:
                for batch in joined_parts(some):
                    self._messages.take_batch(batch, batch_origin, origin.conn_ids)  # type: ignore[arg-type]
            elif kind in _OWN:
                self._others.setdefault(kind, []).extend(some)
                names = self._packets.setdefault(kind, [])
                names += [origin.packets.name(getattr(event, "packet", None) or 0) for event in some]

    def made(self, origin: RowOrigin, least: int = 1) -> Iterator[Batch]:
        """The rows of the events; of other kinds than messages only if there are ``least``, or they wait on."""
        for kind in [kind for kind, some in self._others.items() if len(some) >= least]:
            yield self._batch(_OWN[kind][0], self._of_kind(kind, origin))
        if self._messages.times:
            columns = self._messages.columns(origin)
            self._messages = Messages(self._most_of_messages)
            yield self._batch("messages", columns)

    def _batch(self, table: str, columns: dict[str, Any]) -> Batch:
        return table, _batch(SCHEMAS[table], columns, self._provisional), self._provisional

    def _of_kind(self, kind: type, origin: RowOrigin) -> dict[str, Any]:
        """The columns of other events of a kind: those of their own, and all others that are fields."""
        events = self._others.pop(kind)
        columns = {"series": repeated_column(origin.series, len(events))}
        columns |= _OWN[kind][1](events, self._packets.pop(kind), origin)
        for name, sql, value_of in _FIELDS[kind]:
            if name.endswith(PACKET_FIELDS):
                packets = array("q", [value or 0 for value in map(value_of, events)])
                columns |= packet_columns(name, packets, origin)
            elif name not in columns:
                columns[name] = self._column(sql, [*map(value_of, events)])
        return columns

    def _column(self, sql: str, values: list[Any]) -> pa.Array | None:
        """A column of a type; None if all values are."""
        return None if values.count(None) == len(values) else self._makers.get(sql, pa.array)(values)

    def _octets(self, values: Iterable[Octets | None]) -> pa.Array:
        """A column of octets."""
        return OctetsBuilder(self._most, values).build()

    def _lists(self, values: Sequence[Sequence[Octets]]) -> pa.Array:
        """A column of lists of octets."""
        octets = self._octets(chain.from_iterable(values))
        return pa.ListArray.from_arrays(sums_of(array("i", [0, *map(len, values)])), octets, OCTETS_LISTS)

    def _properties(self, values: Sequence[dict[str, Octets] | None]) -> pa.Array:
        """A column of properties: lists of names with octets."""
        given = [value or {} for value in values]
        names = pa.array([plain_text(name) for some in given for name in some], pa.string())
        octets = self._octets(chain.from_iterable(some.values() for some in given))
        named = pa.StructArray.from_arrays([names, octets], fields=list(_PROPERTIES.value_type))
        ends = sums_of(array("i", [0, *map(len, given)]))
        return pa.ListArray.from_arrays(ends, named, _PROPERTIES, mask=pa.array([value is None for value in values]))


def capture_rows(read: ReadFile, listed: FileInfo, series: str, shards: int) -> Iterator[Batch]:
    """The row in ``captures`` of a file that was ``listed`` so, and its problems."""
    file, count = read.file, len(read.problems)
    columns: dict[str, Any] = {name: [getattr(file, name)] for name in ("dropped", "first_ns", "last_ns", "condition")}
    columns |= {"file": [file.path], "packets": [file.count], "date": date_column([file.first_ns])}
    columns |= {"series": [series], "size": [listed.size], "modified_ns": [listed.modified_ns], "shards": [shards]}
    columns |= {"comments": [list(map(plain_text, file.comments))], "error": [file.error and plain_text(file.error)]}
    yield "captures", _batch(SCHEMAS["captures"], columns), False
    if count:
        severities, codes, details = zip(*read.problems, strict=True)
        columns = {"severity": severities, "code": codes, "detail": list(map(plain_text, details))}
        columns |= {"series": [series] * count, "file": [file.path] * count}
        columns["date"] = date_column([file.first_ns] * count)
        yield "problems", _batch(SCHEMAS["problems"], columns), False


def _batch(schema: pa.Schema, columns: dict[str, Any], provisional: bool = False) -> pa.RecordBatch:
    """Rows of columns, each an Arrow array or a list; others are null, or false."""
    count = len(columns["series"])
    columns.setdefault("provisional", pa.repeat(provisional, count))
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None:
            values = pa.nulls(count, field.type) if field.nullable else pa.repeat(False, count)
        elif not isinstance(values, pa.Array):
            values = text_column(values) if field.type == TEXT else pa.array(values, field.type)
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _wire(events: list[Any], packets: Sequence[PacketName], origin: RowOrigin, **same: str) -> dict[str, Any]:
    """The columns of every event from the wire, null for some problems; all rows share the values ``same``."""
    return {
        "conn_id": [None if event.flow is None else origin.conn_ids[event.flow].name for event in events],
        "file": text_column([None if one is NOWHERE else origin.files.get(one.file, "") for one in packets]),
        "packet": pa.array([one.number or None for one in packets], pa.int64()),
        "offset": pa.array([one.offset or None for one in packets], pa.int64()),
        **time_columns([event.time_ns for event in events]),
        **address_columns("src", [event.src for event in events]),
        **address_columns("dst", [event.dst for event in events]),
        **{name: repeated_column(value, len(events)) for name, value in same.items()},
    }


def _of_connections(events: list[Connection], _: Sequence[PacketName], origin: RowOrigin) -> dict[str, Any]:
    starts = number_column([event.start_ns for event in events])
    ids = [origin.conn_ids[event.flow] for event in events]
    return {
        "date": date_column(starts),
        "conn_id": [one.name for one in ids],
        "shared_id": [one.is_shared for one in ids],
        **address_columns("client", [event.client.address for event in events]),
        **address_columns("server", [event.server.address for event in events]),
        "start": time_column(starts),
        "stop": time_column([event.end_ns for event in events]),
    }


def _of_work(events: list[Work], _: Sequence[PacketName], __: RowOrigin) -> dict[str, Any]:
    shares = [list(map(msgspec.structs.asdict, event.workers)) for event in events]
    return {"workers": pa.array(shares, SCHEMAS["work"].field("workers").type)}


def _of_findings(events: list[Finding], _: Sequence[PacketName], origin: RowOrigin) -> dict[str, Any]:
    return {
        "date": date_column([event.first_ns for event in events]),
        "first": time_column([event.first_ns for event in events]),
        "last": time_column([event.last_ns for event in events]),
        "evidence": [[_evidence(one, origin) for one in event.evidence] for event in events],
        "endpoints": [event.endpoints for event in events],
        "peers": [list(map(msgspec.structs.asdict, event.peers)) for event in events],
    }


def _of_ways(events: list[Way], _: Sequence[PacketName], origin: RowOrigin) -> dict[str, Any]:
    def part(one: Slowest | Terminus | None) -> dict[str, Any] | None:
        return None if one is None else msgspec.structs.asdict(one)

    legs = [[_leg(one, origin) for one in event.legs] for event in events]
    return {
        **time_columns([event.time_ns for event in events]),
        **{name: [some[0][name] for some in legs] for name in ("src", "dst", "file", "packet", "part")},
        "legs": legs,
        "slowest": [part(event.slowest) for event in events],
        "ended": [part(event.ended) for event in events],
        "again": [None if event.again is None else _leg(event.again, origin) for event in events],
    }


def _leg(one: Leg, origin: RowOrigin) -> dict[str, Any]:
    """A leg of a way, as a table has it."""
    return msgspec.structs.asdict(one) | _evidence(one, origin)


def _evidence(one: Evidence | Leg, origin: RowOrigin) -> dict[str, Any]:
    """The place of evidence, or of a leg, as a table has it."""
    file, number = origin.packets.find(one.packet)
    conn_id = origin.conn_ids.get(one.flow)
    return {"conn_id": conn_id and conn_id.name, "file": origin.files.get(file), "packet": number or None}


_OWN: dict[type, tuple[str, Callable[..., dict[str, Any]]]] = {
    Subscription: ("subscriptions", _wire),
    Greeting: ("commands", partial(_wire, kind="greeting", name="greeting")),
    Command: ("commands", partial(_wire, kind="command")),
    Beacon: ("commands", partial(_wire, kind="beacon", name="beacon")),
    Problem: ("problems", _wire),
    Connection: ("connections", _of_connections),
    Work: ("work", _of_work),
    Finding: ("findings", _of_findings),
    Way: ("ways", _of_ways),
}
"""For each other type of event its table, and what makes its columns that are no fields, or not as they are there."""
_FIELDS = {
    kind: [(each.column.name, each.column.sql, attrgetter(each.path)) for each in field_columns(kind)] for kind in _OWN
}
