"""Events become rows: batches of them become Arrow record batches, a column at a time.

Nothing here is done row by row but to pick one value out of each event for each column. Columns of strings are
dictionaries: the strings in them are few, and Parquet takes these as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, compress, islice
from operator import attrgetter, is_not, or_
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dissectors.events import (
    AnyEvent,
    Beacon,
    Command,
    Connection,
    Greeting,
    Hidden,
    Message,
    Octets,
    Problem,
    Subscription,
    at_hand,
)
from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.spark.connections import ConnectionId
from zmtpsniff.spark.places import Where
from zmtpsniff.spark.tables import OCTETS, OCTETS_LIST, PROPERTIES, TABLES, arrow_schema, field_columns

_TEXT = pa.dictionary(pa.int32(), pa.string())


def _with_dictionaries(schema: pa.Schema) -> pa.Schema:
    """A schema whose columns of strings are dictionaries."""
    return pa.schema([field.with_type(_TEXT) if pa.types.is_string(field.type) else field for field in schema])


SCHEMAS = {table: _with_dictionaries(arrow_schema(table)) for table in TABLES}
_OCTETS_LIST = SCHEMAS["messages"].field("frames").type
_OCTETS_TYPE = _OCTETS_LIST.value_type
_PROPERTIES = SCHEMAS["commands"].field("properties").type
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MOST = (1 << 63) - 1
_DAY_NS = 86_400_000_000_000
_PORTLESS = ("pid-", "peer-of-pid-")

Batch = tuple[str, pa.RecordBatch, bool]
"""Rows of a table: its name, they, and whether they are provisional."""


class RowOrigin(NamedTuple):
    """Where events come from: the name of their series, and what says for packets of events where each is."""

    series: str
    where: Callable[[Sequence[int]], Where]


class Backlog:
    """Events that wait until they are enough to become rows.

    Of messages, which are many, the values that rows have of them wait: so they leave memory while they are in the
    processor's cache.
    """

    def __init__(self) -> None:
        """Begin without events."""
        self.count = 0
        self.conn_ids: dict[int, ConnectionId] = {}  # by the numbers of flows
        self.others: dict[type, list[Any]] = {}
        # Of runs of messages that one packet completed (see _begins): the first messages, and which these are.
        self.firsts: list[Message] = []
        self.begins = bytearray()
        self.frames: list[Octets] = []  # of all messages
        self.frame_counts: list[int] = []
        self.values: dict[str, list[Any]] = {name: [] for name, _, _ in _MESSAGE_FIELDS}

    def take(self, events: Sequence[AnyEvent], conn_ids: Mapping[int, ConnectionId]) -> None:
        """Take events of flows with these ids."""
        kinds = set(map(type, events))
        for kind in kinds:
            chosen: Any = events if len(kinds) == 1 else [event for event in events if type(event) is kind]
            if kind is Message:
                self._take_messages(chosen)
            else:
                self.others.setdefault(kind, []).extend(chosen)
        self.count += len(events)
        self.conn_ids |= conn_ids

    def _take_messages(self, messages: Sequence[Message]) -> None:
        begins = _begins(messages)
        self.begins += begins
        self.firsts.extend(compress(messages, begins))
        frames = list(map(_frames_of, messages))
        self.frame_counts.extend(map(len, frames))
        self.frames.extend(chain.from_iterable(frames))
        for name, _, value_of in _MESSAGE_FIELDS:
            self.values[name].extend(map(value_of, messages))


Columns = Callable[[list[Any], Mapping[int, ConnectionId], RowOrigin], dict[str, Any]]
"""What makes columns of events, of the ids of their flows, and of where they come from."""


class CaptureRow(NamedTuple):
    """What is known of a file once it has been read; times in nanoseconds since the Unix epoch, None without packets.

    ``number`` is that of the file in its series, ``problems`` are codes and sentences on the file as a whole.
    """

    file: str
    number: int
    packets: int = 0
    dropped: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    comments: tuple[str, ...] = ()
    problems: tuple[tuple[str, str, str], ...] = ()  # severity, code, detail
    condition: str = "whole"
    error: str | None = None


class Rows:
    """Makes rows of events."""

    def __init__(self, max_bytes: int, bodies: bool = True) -> None:
        """Keep at most ``max_bytes`` octets of each body (0: all), and without ``bodies`` none of messages' frames."""
        self._max_bytes = max_bytes
        self._bodies = bodies

    def of_events(self, backlog: Backlog, origin: RowOrigin, provisional: bool = False) -> list[Batch]:
        """Rows of events of one series."""
        found = [(_OWN[kind][0], self._of_kind(kind, some, backlog, origin)) for kind, some in backlog.others.items()]
        if backlog.firsts:
            found.append(("messages", self._of_messages(backlog, origin)))
        return [(table, _batch(SCHEMAS[table], columns, provisional), provisional) for table, columns in found]

    def of_capture(self, capture: CaptureRow, listed: FileInfo, series: str, shards: int) -> list[Batch]:
        """The row in ``captures`` of a file that was ``listed`` so, and its problems."""
        day = None if capture.first_ns is None else [capture.first_ns]
        columns: dict[str, Any] = {name: [getattr(capture, name)] for name in _CAPTURE_COLUMNS}
        columns |= {"date": _dates(day, 1), "series": [series], "comments": [list(map(_text, capture.comments))]}
        columns |= {"size": [listed.size], "modified_ns": [listed.modified_ns], "shards": [shards]}
        columns["error"] = [None if capture.error is None else _text(capture.error)]
        out: list[Batch] = [("captures", _batch(SCHEMAS["captures"], columns), False)]
        if capture.problems:
            count = len(capture.problems)
            severities, codes, details = zip(*capture.problems, strict=True)
            problems: dict[str, Any] = {"severity": severities, "code": codes, "detail": list(map(_text, details))}
            problems |= {"series": [series] * count, "file": [capture.file] * count}
            problems["date"] = _dates(day and day * count, count)
            out.append(("problems", _batch(SCHEMAS["problems"], problems), False))
        return out

    # ------------------------------------------------------------------ columns

    def _of_messages(self, backlog: Backlog, origin: RowOrigin) -> dict[str, Any]:
        columns = _wire(backlog.firsts, backlog.begins, backlog.conn_ids, origin)
        columns |= {name: self._column(sql, backlog.values[name]) for name, sql, _ in _MESSAGE_FIELDS}
        frames = self._lists(backlog.frame_counts, backlog.frames)
        return columns | {"size": _sizes(frames), "frames": frames if self._bodies else _without_data(frames)}

    def _of_kind(self, kind: type, events: list[Any], backlog: Backlog, origin: RowOrigin) -> dict[str, Any]:
        """The columns of other events of a kind: those of their own, and all others that are fields."""
        columns = _OWN[kind][1](events, backlog.conn_ids, origin)
        for name, sql, value_of in _FIELDS[kind]:
            if name not in columns:
                columns[name] = self._column(sql, list(map(value_of, events)))
        return columns

    def _column(self, sql: str, values: list[Any]) -> Any:
        """A column of a type, as an array or as what can become one."""
        if sql == "STRING":
            return _texts(values)
        if sql == "BIGINT":
            return _numbers(values)
        if sql == OCTETS:
            return self._octets(values)
        if sql == OCTETS_LIST:
            return self._lists(list(map(len, values)), list(chain.from_iterable(values)))
        return self._properties(values) if sql == PROPERTIES else values

    def _octets(self, values: Sequence[Octets | None]) -> pa.Array:
        """A column of octets."""
        try:
            data = pa.array(values, pa.binary())  # fails unless all of them are bytes
            lengths = pc.binary_length(data).cast(pa.int64())
        except (TypeError, pa.ArrowInvalid, pa.ArrowTypeError):
            bare = [value if type(value) is bytes or value is None else _at_hand(value) for value in values]
            data = pa.array(bare, pa.binary())
            cut = [some is not value for some, value in zip(bare, values, strict=True)]
            more = pa.array([min(value.length, _MOST) for value in compress(values, cut)], pa.int64())  # type: ignore[union-attr]  # neither is it bytes
            lengths = pc.replace_with_mask(pc.binary_length(data).cast(pa.int64()), pa.array(cut), more)
        if self._max_bytes and (pc.max(lengths).as_py() or 0) > self._max_bytes:
            data = pc.binary_slice(data, 0, self._max_bytes)
        mask = lengths.is_null() if lengths.null_count else None
        return pa.StructArray.from_arrays([lengths, data], fields=list(_OCTETS_TYPE), mask=mask)

    def _lists(self, counts: Sequence[int], values: Sequence[Octets]) -> pa.Array:
        """A column of lists of octets: how many are in each, and all of them."""
        ends = pc.cumulative_sum(pa.array([0, *counts], pa.int32()))
        return pa.ListArray.from_arrays(ends, self._octets(values), _OCTETS_LIST)

    def _properties(self, values: Sequence[dict[str, Octets] | None]) -> pa.Array:
        """A column of properties: lists of names with octets."""
        given = [value or {} for value in values]
        ends = pc.cumulative_sum(pa.array([0, *map(len, given)], pa.int32()))
        names = pa.array([_text(name) for some in given for name in some], pa.string())
        octets = self._octets(list(chain.from_iterable(some.values() for some in given)))
        named = pa.StructArray.from_arrays([names, octets], fields=list(_PROPERTIES.value_type))
        return pa.ListArray.from_arrays(ends, named, _PROPERTIES, mask=pa.array([value is None for value in values]))


_packet_of, _sender_of, _frames_of = attrgetter("packet"), attrgetter("src"), attrgetter("frames")
_PLACE = ("file", "packet", "offset")
_CAPTURE_COLUMNS = ("file", "packets", "dropped", "first_ns", "last_ns", "condition")


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
            values = _texts(values) if field.type == _TEXT else pa.array(values, field.type)
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _sizes(lists: pa.Array) -> pa.Array:
    """How many octets there are in each of a column of lists of octets, on the wire."""
    lengths = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int64()), lists.values.field(0)]))
    sums = lengths.take(lists.offsets)
    return pc.subtract(sums[1:], sums[:-1])


def _without_data(lists: pa.Array) -> pa.Array:
    """A column of lists of octets of which the lengths alone are kept."""
    lengths = lists.values.field(0)
    bare = pa.StructArray.from_arrays([lengths, pa.nulls(len(lengths), pa.binary())], fields=list(_OCTETS_TYPE))
    return pa.ListArray.from_arrays(lists.offsets, bare, _OCTETS_LIST)


def _wire(
    firsts: Sequence[Any], begins: bytes | bytearray, conn_ids: Mapping[int, ConnectionId], origin: RowOrigin
) -> dict[str, Any]:
    """The columns that every event from the wire has, which are the same for all of a run."""
    times = _numbers([event.time_ns for event in firsts])
    files, numbers, offsets = origin.where([event.packet for event in firsts])
    columns = {
        "date": _dates(times, len(firsts)),
        "conn_id": _texts([conn_ids[event.flow].name for event in firsts]),
        "time": _times(times),
        "time_ns": times,
        "file": _texts(files),
        "packet": pa.array(numbers, pa.int64()),
        "offset": pa.array(offsets, pa.int64()),
        **_ends("src", [event.src for event in firsts]),
        **_ends("dst", [event.dst for event in firsts]),
    }
    if len(firsts) < len(begins):
        counts = pa.Array.from_buffers(pa.uint8(), len(begins), [None, pa.py_buffer(begins)]).cast(pa.int32())
        runs = pc.subtract(pc.cumulative_sum(counts), 1)
        columns = {name: column.take(runs) for name, column in columns.items()}
    return {"series": _repeated(origin.series, len(begins)), **columns}


def _begins(events: Sequence[Any]) -> bytes:
    """Whether each event begins a run of events of one packet and sender.

    Whoever makes events gives all of a run the same objects, so that nothing needs to be compared.
    """
    packets, senders = list(map(_packet_of, events)), list(map(_sender_of, events))
    others = map(or_, map(is_not, packets, islice(packets, 1, None)), map(is_not, senders, islice(senders, 1, None)))
    return bytes(chain((True,), others))


def _of_wire(kind: str | None = None, name: str | None = None) -> Columns:
    """What rows of events from the wire have beside the fields; ``name`` of those of a kind that have none."""

    def columns(events: list[Any], conn_ids: Mapping[int, ConnectionId], origin: RowOrigin) -> dict[str, Any]:
        begins = _begins(events)
        found = _wire(list(compress(events, begins)), begins, conn_ids, origin)
        given = (("kind", kind), ("name", name))
        return found | {column: _repeated(value, len(events)) for column, value in given if value is not None}

    return columns


def _of_problems(events: list[Problem], conn_ids: Mapping[int, ConnectionId], origin: RowOrigin) -> dict[str, Any]:
    count = len(events)
    times = _numbers([event.time_ns for event in events])
    numbered = [event.packet for event in events if event.packet is not None]
    found = zip(*origin.where(numbered), strict=True)
    places = [(None, None, None) if event.packet is None else next(found) for event in events]
    return {
        "date": _dates(times, count),
        "series": _repeated(origin.series, count),
        "conn_id": [None if event.flow is None else conn_ids[event.flow].name for event in events],
        "time": _times(times),
        "time_ns": times,
        **{name: [place[at] for place in places] for at, name in enumerate(_PLACE)},
        **_ends("src", [event.src for event in events]),
        **_ends("dst", [event.dst for event in events]),
    }


def _of_connections(
    events: list[Connection], conn_ids: Mapping[int, ConnectionId], origin: RowOrigin
) -> dict[str, Any]:
    starts = _numbers([event.start_ns for event in events])
    stops = _numbers([event.end_ns for event in events])
    ids = [conn_ids[event.flow] for event in events]
    return {
        "date": _dates(starts, len(events)),
        "series": _repeated(origin.series, len(events)),
        "conn_id": [one.name for one in ids],
        "shared_id": [one.is_shared for one in ids],
        **_ends("client", [event.client.address for event in events]),
        **_ends("server", [event.server.address for event in events]),
        "start": _times(starts),
        "start_ns": starts,
        "stop": _times(stops),
        "end_ns": stops,
    }


def _ends(name: str, addresses: Sequence[str | None]) -> dict[str, Any]:
    """The columns of an address: it, and its port."""
    texts = _texts(addresses)
    ports = pa.array(map(_port, texts.dictionary.to_pylist()), pa.int32())
    return {name: texts, f"{name}_port": ports.take(texts.indices)}


@lru_cache(4096)
def _port(address: str | None) -> int | None:
    if address is None or address.startswith(_PORTLESS):
        return None
    return int(address.rpartition(":")[2])


def _numbers(values: Any) -> pa.Array:
    """A column of integers; those beyond 64 bits, which only nonsense has, become the largest."""
    if isinstance(values, pa.Array):
        return values
    try:
        return pa.array(values, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([value if value is None else max(min(value, _MOST), -_MOST) for value in values], pa.int64())


def _times(times_ns: Any) -> pa.Array:
    return pc.divide(_numbers(times_ns), 1000).cast(_TIMESTAMP)


def _dates(times_ns: Any, count: int) -> pa.Array:
    if times_ns is None:
        return pa.nulls(count, pa.date32())
    return pc.divide(_numbers(times_ns), _DAY_NS).cast(pa.int32()).cast(pa.date32())


def _at_hand(octets: Octets) -> bytes | None:
    """What may be shown of octets, None for nothing."""
    return None if isinstance(octets, Hidden) else at_hand(octets)


def _texts(values: Sequence[str | None]) -> pa.DictionaryArray:
    """A column of strings; what is no Unicode in them is replaced by an escape."""
    try:
        return pa.array(values, pa.string()).dictionary_encode()
    except UnicodeEncodeError:
        return _texts([value if value is None else _text(value) for value in values])


def _repeated(value: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), _texts([value]).dictionary)


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()


_OWN: dict[type, tuple[str, Columns]] = {
    Subscription: ("subscriptions", _of_wire()),
    Greeting: ("commands", _of_wire("greeting", "greeting")),
    Command: ("commands", _of_wire("command")),
    Beacon: ("commands", _of_wire("beacon", "beacon")),
    Problem: ("problems", _of_problems),
    Connection: ("connections", _of_connections),
}
"""For each other type of event its table, and what makes its columns that are no fields, or not as they are there."""

_FIELDS = {
    kind: [(each.column.name, each.column.sql, attrgetter(each.path)) for each in field_columns(kind)]
    for kind in (Message, *_OWN)
}
_MESSAGE_FIELDS = [field for field in _FIELDS[Message] if field[0] not in ("time_ns", "packet", "src", "dst", "frames")]
