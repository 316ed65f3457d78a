"""Events become rows: batches of them become Arrow record batches, a column at a time.

Nothing here is done row by row but to pick one value out of each event for each column. Columns of strings are
dictionaries: the strings in them are few, and Parquet takes these as they are.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, compress, count, repeat
from operator import attrgetter
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
    MessageRun,
    Octets,
    Problem,
    Subscription,
    at_hand,
)
from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.spark.connections import ConnectionId
from zmtpsniff.spark.places import where
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
    """Where events come from: the name of their series, and its files by their numbers."""

    series: str
    files: Mapping[int, str]


_MESSAGES = frozenset((Message, MessageRun))


class Messages:
    """What rows have of messages that wait to become some.

    These are many. So their frames wait, and the first one of each run of those that differ in nothing else, or what
    the dissector says of a run: the others leave memory while they are in the processor's cache.
    """

    def __init__(self) -> None:
        """Begin without messages."""
        self.firsts: list[Message | MessageRun] = []  # of all runs
        self.begins = bytearray()  # of all messages: whether each is the first of one
        self.frames: list[Octets] = []  # of all messages
        self.frame_counts: list[int] = []

    def take(self, messages: Sequence[Message | MessageRun]) -> None:
        """Take messages."""
        firsts, begins, counts, all_frames = self.firsts, self.begins, self.frame_counts, self.frames
        packet = src = socket_type = incomplete = encrypted = None
        for message in messages:
            if isinstance(message, MessageRun):
                bodies = message.bodies
                firsts.append(message)
                begins.append(True)
                begins += bytes(len(bodies) - 1)
                counts += repeat(1, len(bodies))
                all_frames += bodies
                packet = None
                continue
            # Who makes messages gives all of a run the same objects, so that nothing needs to be compared. A loop asks
            # for fields in less time than attrgetter().
            is_first = (
                message.packet is not packet
                or message.src is not src
                or message.socket_type is not socket_type
                or message.incomplete is not incomplete
                or message.encrypted is not encrypted
            )
            if is_first:
                packet, src, socket_type = message.packet, message.src, message.socket_type
                incomplete, encrypted = message.incomplete, message.encrypted
                firsts.append(message)
            begins.append(is_first)
            frames = message.frames
            counts.append(len(frames))
            all_frames += frames


class Backlog:
    """Events that wait until they are enough to become rows."""

    def __init__(self) -> None:
        """Begin without events."""
        self.conn_ids: dict[int, ConnectionId] = {}  # by the numbers of flows
        self.messages = Messages()
        self.others: dict[type, list[Any]] = {}

    def take(self, events: Sequence[AnyEvent], conn_ids: Mapping[int, ConnectionId]) -> None:
        """Take events of flows with these ids."""
        kinds = set(map(type, events))
        for kind in kinds - _MESSAGES:
            self.others.setdefault(kind, []).extend([event for event in events if type(event) is kind])
        if kinds & _MESSAGES:
            messages: Any = events if kinds <= _MESSAGES else [event for event in events if type(event) in _MESSAGES]
            self.messages.take(messages)
        self.conn_ids |= conn_ids


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

    def of_events(self, backlog: Backlog, origin: RowOrigin, provisional: bool = False, least: int = 1) -> list[Batch]:
        """Rows of events of one series; of other kinds than messages only if there are ``least``, or they wait on."""
        kinds = [kind for kind, some in backlog.others.items() if len(some) >= least]
        found = [(_OWN[kind][0], self._of_kind(kind, backlog, origin)) for kind in kinds]
        if backlog.messages.firsts:
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
        messages, backlog.messages = backlog.messages, Messages()
        columns = _wire(messages.firsts, backlog.conn_ids, origin)
        columns |= {
            name: self._column(sql, [value_of(message) for message in messages.firsts])
            for name, sql, value_of in _MESSAGE_FIELDS
        }
        begins = pa.Array.from_buffers(pa.uint8(), len(messages.begins), [None, pa.py_buffer(messages.begins)])
        runs = pc.subtract(pc.cumulative_sum(begins.cast(pa.int32())), 1)
        columns = {name: column.take(runs) for name, column in columns.items() if column is not None}
        frames = self._lists(messages.frame_counts, messages.frames)
        return columns | {"size": _sizes(frames), "frames": frames if self._bodies else _without_data(frames)}

    def _of_kind(self, kind: type, backlog: Backlog, origin: RowOrigin) -> dict[str, Any]:
        """The columns of other events of a kind: those of their own, and all others that are fields."""
        events = backlog.others.pop(kind)
        columns = _OWN[kind][1](events, backlog.conn_ids, origin)
        for name, sql, value_of in _FIELDS[kind]:
            if name not in columns:
                columns[name] = self._column(sql, [value_of(event) for event in events])
        return columns

    def _column(self, sql: str, values: list[Any]) -> pa.Array | None:
        """A column of a type; None if all values are."""
        if values.count(None) == len(values):
            return None
        if sql == "STRING":
            return _texts(values)
        if sql == "BIGINT":
            return _numbers(values)
        if sql == OCTETS:
            return self._octets(values)
        if sql == OCTETS_LIST:
            return self._lists(list(map(len, values)), list(chain.from_iterable(values)))
        return self._properties(values) if sql == PROPERTIES else pa.array(values)

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


def _wire(events: Sequence[Any], conn_ids: Mapping[int, ConnectionId], origin: RowOrigin) -> dict[str, Any]:
    """The columns that every event from the wire has."""
    times = _numbers([event.time_ns for event in events])
    return {
        "date": _dates(times, len(events)),
        "series": _repeated(origin.series, len(events)),
        "time": _times(times),
        "time_ns": times,
        **_places([event.packet for event in events], origin.files),
        **_ways([(event.flow, event.src, event.dst) for event in events], conn_ids),
    }


def _places(places: Sequence[int], files: Mapping[int, str]) -> dict[str, pa.Array]:
    """The columns of the places of packets."""
    numbers, packets, offsets = where(places)
    known = numbers.dictionary_encode()
    paths = _texts([files.get(number, "") for number in known.dictionary.to_pylist()])
    return {"file": paths.take(known.indices), "packet": packets, "offset": offsets}


def _ways(ways: Sequence[tuple[int, str, str]], conn_ids: Mapping[int, ConnectionId]) -> dict[str, Any]:
    """The columns of flows with their senders and receivers, of which there are few."""
    numbers: defaultdict[tuple[int, str, str], int] = defaultdict(count().__next__)
    which = pa.array(list(map(numbers.__getitem__, ways)), pa.int32())
    flows, senders, receivers = zip(*numbers, strict=True)
    few = {"conn_id": _texts([conn_ids[flow].name for flow in flows])}
    few |= {**_ends("src", senders), **_ends("dst", receivers)}
    return {name: column.take(which) for name, column in few.items()}


def _of_wire(kind: str | None = None, name: str | None = None) -> Columns:
    """What rows of events from the wire have beside the fields; ``name`` of those of a kind that have none."""

    def columns(events: list[Any], conn_ids: Mapping[int, ConnectionId], origin: RowOrigin) -> dict[str, Any]:
        found = _wire(events, conn_ids, origin)
        given = (("kind", kind), ("name", name))
        return found | {column: _repeated(value, len(events)) for column, value in given if value is not None}

    return columns


def _of_problems(events: list[Problem], conn_ids: Mapping[int, ConnectionId], origin: RowOrigin) -> dict[str, Any]:
    times = _numbers([event.time_ns for event in events])
    numbered = [event.packet for event in events if event.packet is not None]
    numbers = count()
    which = pa.array([None if event.packet is None else next(numbers) for event in events], pa.int32())
    return {
        "date": _dates(times, len(events)),
        "series": _repeated(origin.series, len(events)),
        "conn_id": [None if event.flow is None else conn_ids[event.flow].name for event in events],
        "time": _times(times),
        "time_ns": times,
        **{name: column.take(which) for name, column in _places(numbered, origin.files).items()},
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
