"""Turns events into Arrow record batches, a column at a time.

Messages in columns stay columns, with no step for each row outside the native core. Of other events one value is picked
for each column. Columns of strings are dictionaries: they have few different strings, and Parquet takes dictionaries as
they are.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from itertools import chain, count, groupby
from operator import add, attrgetter
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dissectors.batches import MessageBatch
from dissectors.columns import (
    COUNT,
    ENVELOPE,
    FIRST,
    LARGE,
    LATENCY,
    PAIRED,
    PAIRED_BY,
    REQUEST,
    REQUEST_PART,
    SMALL,
    VIA,
    VIA_FLOW,
    VIA_PART,
)
from dissectors.events import (
    AnyEvent,
    Beacon,
    Command,
    Connection,
    Cut,
    Greeting,
    Hidden,
    Message,
    Octets,
    Place,
    Problem,
    Subscription,
    Work,
    text,
)
from dissectors.zmtp.sockets import WITH_TOPICS
from zmtpsniff.analysis.findings.finding import Evidence, Finding
from zmtpsniff.analysis.ways.records import Leg, Slowest, Terminus, Way
from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.native import core, reference
from zmtpsniff.spark.connections import ConnectionId
from zmtpsniff.spark.packet_names import NOWHERE, PacketName, PacketNames
from zmtpsniff.spark.tables import (
    OCTETS,
    OCTETS_LIST,
    PACKET_FIELDS,
    PEER_COLUMNS,
    PROPERTIES,
    TABLES,
    arrow_schema,
    field_columns,
)

_TEXT = pa.dictionary(pa.int32(), pa.string())


def _with_dictionaries(schema: pa.Schema) -> pa.Schema:
    """A schema whose columns of strings are dictionaries."""
    return pa.schema([field.with_type(_TEXT) if pa.types.is_string(field.type) else field for field in schema])


SCHEMAS = {table: _with_dictionaries(arrow_schema(table)) for table in TABLES}
_OCTETS_LIST = SCHEMAS["messages"].field("frames").type
_OCTETS_TYPE = _OCTETS_LIST.value_type
_ENVELOPE, _PLACE = (SCHEMAS["messages"].field(name).type for name in ("envelope", "forwards"))

_NO_PLACE = Place(0, 0, 0)
_NO_LATENCY = array("q", [-1])
_PACKET_ENDINGS = tuple(f"_{name}" for name in PACKET_FIELDS)
_PROPERTIES = SCHEMAS["commands"].field("properties").type
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MOST = (1 << 63) - 1
_MOST_KEPT = (1 << 31) - 1  # octets of all values in a column together
_HASH_OCTETS = 16
_DAY_NS = 86_400_000_000_000
_PORTLESS = ("pid-", "peer-of-pid-")

functions = core or reference
"""The functions that make columns of batches."""

Batch = tuple[str, pa.RecordBatch, bool]
"""Rows of a table: its name, the rows, and whether they are provisional."""


class RowOrigin(NamedTuple):
    """The origin of events: the name of their series, its files by number, its packets, and connections by flow."""

    series: str
    files: Mapping[int, str]
    packets: PacketNames
    conn_ids: Mapping[int, ConnectionId]


# File, connection, src, dst, type, inferred, lookalike, incomplete, encrypted.
_Kind = tuple[int, ConnectionId, str, str, str | None, bool, str | None, bool, bool]


class OctetsBuilder:
    """A column of octets that grows."""

    def __init__(self, most: int, values: Iterable[Octets | None] = ()) -> None:
        """Begin with values; at most ``most`` octets of each are kept."""
        self._most = most
        self.parts: list[bytes] = []  # what is kept: of one value each, or of several
        self.lengths = array("i", [0])  # of each value; the first is none, so that sums are where values begin
        self.others: dict[int, Cut | Hidden | None] = {}  # values that are not all at hand, by their numbers
        self.extend(values)

    def extend(self, values: Iterable[Octets | None]) -> None:
        """Take values."""
        parts, lengths, most = self.parts, self.lengths, self._most
        for value in values:
            if type(value) is bytes:
                length = len(value)
                parts.append(value if length <= most else value[:most])
                lengths.append(length)
            else:
                self.others[len(lengths) - 1] = value  # type: ignore[assignment]  # it is not bytes
                lengths.append(0)

    def build(self) -> pa.Array:
        """The column."""
        all_lengths = _integers(self.lengths)
        lengths = all_lengths[1:].cast(pa.int64())
        kept = pc.min_element_wise(all_lengths, pa.scalar(min(self._most, _MOST_KEPT), pa.int32()))
        ends, octets = pc.cumulative_sum_checked(kept).buffers()[1], pa.py_buffer(b"".join(self.parts))
        data = pa.Array.from_buffers(pa.binary(), len(lengths), [None, ends, octets])
        if self.others:
            others = self.others.values()
            mask = pa.array([at in self.others for at in range(len(data))])
            known = [one.data[: self._most] if isinstance(one, Cut) else None for one in others]
            data = pc.replace_with_mask(data, mask, pa.array(known, pa.binary()))
            sent = [None if one is None else min(one.length, _MOST) for one in others]
            lengths = pc.replace_with_mask(lengths, mask, pa.array(sent, pa.int64()))
        mask = lengths.is_null() if lengths.null_count else None
        return pa.StructArray.from_arrays([lengths, data], fields=list(_OCTETS_TYPE), mask=mask)


class Messages:
    """Messages that wait to become rows, a column at a time."""

    def __init__(self, most: int) -> None:
        """Begin without messages; at most ``most`` octets of each frame are kept."""
        self.most = most
        self.times = array("q")
        self.packets = array("q")
        self.offsets = array("q")
        self.parts = array("i")
        self.codes = array("i")  # of what a message shares with many others: its number in `kinds`
        self.kinds: defaultdict[_Kind, int] = defaultdict(count().__next__)
        self.counts = array("i", [0])  # of frames; the first is none, so that sums are where lists begin
        self.frames = OctetsBuilder(most)
        self.hashes: dict[int, bytes] = {}  # of bodies that are cut, by the numbers of messages
        self.relations = Relations()

    def take(self, messages: Iterable[Message], origin: RowOrigin) -> None:
        """Take messages as they are."""
        times, packets, offsets, codes = self.times, self.packets, self.offsets, self.codes
        parts, counts, frames = self.parts, self.counts, self.frames
        packet = src = socket_type = inferred = lookalike = incomplete = encrypted = None
        time_ns = number = offset = code = 0
        for message in messages:
            # All messages of one packet share these objects, so identity is enough.
            if (
                message.packet is not packet
                or message.src is not src
                or message.socket_type is not socket_type
                or message.inferred is not inferred
                or message.lookalike is not lookalike
                or message.incomplete is not incomplete
                or message.encrypted is not encrypted
            ):
                packet, src, socket_type = message.packet, message.src, message.socket_type
                inferred, lookalike = message.inferred, message.lookalike
                incomplete, encrypted = message.incomplete, message.encrypted
                file, number, offset = origin.packets.name(packet)
                time_ns = max(min(message.time_ns, _MOST), -_MOST)
                conn_id = origin.conn_ids[message.flow]
                code = self.kinds[
                    file, conn_id, src, message.dst, socket_type, inferred, lookalike, incomplete, encrypted
                ]
            times.append(time_ns)
            packets.append(number)
            offsets.append(offset)
            codes.append(code)
            parts.append(message.part)
            counts.append(len(message.frames))
            frames.extend(message.frames)
            if (found := _hash_of_cut(message, self.most)) is not None:
                self.hashes[len(times) - 1] = found
            self.relations.take(message)

    def take_batch(self, batch: MessageBatch, origin: "BatchOrigin", conn_ids: Mapping[int, ConnectionId]) -> None:
        """Take messages in columns."""
        codes = [
            self.kinds[origin.file, conn_ids[one.flow], one.src, one.dst, one.socket_type, False, None, False, False]
            if one.flow
            else 0
            for one in batch.senders
        ]
        self.relations.take_batch(batch)
        found = functions.cells(
            batch.octets, batch.carried, batch.rows, origin.numbers, origin.base or 0, batch.columns, batch.frames,
            array("i", codes).tobytes(), self.most,
        )  # fmt: skip
        times, packets, offsets, parts, all_codes, counts, lengths, octets = found
        if self.most and lengths and pc.max(_integers(array("i", lengths))).as_py() > self.most:
            self._hash_cut(batch)
        self.times.frombytes(times)
        self.packets.frombytes(packets)
        self.offsets.frombytes(bytes(len(offsets)) if origin.base is None else offsets)
        self.parts.frombytes(parts)
        self.codes.frombytes(all_codes)
        self.counts.frombytes(counts)
        self.frames.lengths.frombytes(lengths)
        self.frames.parts.append(octets)

    def _hash_cut(self, batch: MessageBatch) -> None:
        """Hash the bodies of a batch, whose messages come next, that are too long for a row."""
        base, bodies = batch.bodies()
        numbers = array("I", batch.columns)
        ends = map(add, numbers[FIRST::SMALL], numbers[COUNT::SMALL])
        for number, end in enumerate(ends, len(self.times)):
            if len(body := bodies[end - base - 1]) > self.most:
                self.hashes[number] = _shortened(sha256(body).digest())

    def columns(self, origin: RowOrigin) -> dict[str, Any]:
        """The columns of all messages."""
        files, conn_ids, senders, receivers, types, inferred, lookalikes, incomplete, encrypted = zip(
            *self.kinds, strict=True
        )
        few = {"conn_id": _texts([one.name for one in conn_ids]), "socket_type": _texts(types)}
        few |= {"inferred": pa.array(inferred), "lookalike": _texts(lookalikes)}
        few["server"] = _texts([one.server for one in conn_ids])
        few["from_client"] = pa.array([one.server != src for one, src in zip(conn_ids, senders, strict=True)])
        few |= {"incomplete": pa.array(incomplete), "encrypted": pa.array(encrypted)}
        few |= {"file": _texts([origin.files.get(file, "") for file in files])}
        few |= _ends("src", senders) | _ends("dst", receivers)
        codes, offsets, times = _integers(self.codes), _longs(self.offsets), _longs(self.times)
        frames = pa.ListArray.from_arrays(_sums(self.counts), self.frames.build(), _OCTETS_LIST)
        return {
            **{name: column.take(codes) for name, column in few.items()},
            **_when(times, origin),
            "packet": _longs(self.packets),
            "offset": pc.if_else(pc.equal(offsets, 0), None, offsets),
            "part": _integers(self.parts).cast(pa.int64()),
            "size": _sizes(frames),
            "frames": frames,
            "body_hash": pa.array(map(self.hashes.get, range(len(times))), pa.binary()) if self.hashes else None,
            "topic": self._topics(frames, pa.array([kind in WITH_TOPICS for kind in types]).take(codes)),
            **self.relations.columns(origin, self.most),
        }

    def _topics(self, frames: pa.Array, have: pa.Array) -> pa.Array | None:
        """The first frames of those messages that ``have`` topics, as text; None if there are none, or no bodies."""
        if not self.most or not pc.any(have).as_py():
            return None
        firsts = pc.if_else(have, frames.values.field(1).take(frames.offsets[:-1]), None)
        try:
            return firsts.cast(pa.string()).dictionary_encode()
        except pa.ArrowInvalid:
            return _texts([one if one is None else text(one) for one in firsts.to_pylist()])


def _hash_of_cut(message: Message, most: int) -> bytes | None:
    """The hash of the body of a message, its last frame, if that is whole, but a row keeps only its first octets."""
    body = message.frames[-1]
    if not most or message.incomplete:
        return None
    if type(body) is bytes:
        return _shortened(sha256(body).digest()) if len(body) > most else None
    return message.digest and _shortened(message.digest)


def _shortened(digest: bytes) -> bytes:
    return digest[:_HASH_OCTETS]


class Relations:
    """The relations of messages to others, a column at a time."""

    def __init__(self) -> None:
        """Begin without messages."""
        self._requests = array("q")  # packets, 0 for none
        self._request_parts = array("i")
        self._latencies = array("q")  # -1 for none
        self._paired = array("i")  # codes
        self._envelopes = array("i")  # 1 more than the identities; 0 for none, below 0 without a delimiter
        self._forwards = array("i"), array("q"), array("i")  # flows, packets and parts, 0 for none
        self._matched: dict[int, Octets] = {}  # by the numbers of messages

    def take(self, message: Message) -> None:
        """Take a message."""
        if message.matched is not None:
            self._matched[len(self._requests)] = message.matched
        self._requests.append(message.request or 0)
        self._request_parts.append(message.request_part)
        self._latencies.append(-1 if message.latency_ns is None else message.latency_ns)
        self._paired.append(PAIRED.index(message.paired))
        envelope, via = message.envelope, message.forwards or _NO_PLACE
        self._envelopes.append(0 if envelope is None else (envelope.identities + 1) * (1 if envelope.delimiter else -1))
        for column, value in zip(self._forwards, (via.flow, via.packet, via.part), strict=True):
            column.append(value)

    def take_batch(self, batch: MessageBatch) -> None:
        """Take messages in columns."""
        small, large = array("i", batch.columns), array("q", batch.columns)
        requests = large[REQUEST::LARGE]
        if any(requests):
            asked = zip(requests, large[LATENCY::LARGE], strict=True)
            self._latencies.extend(latency if request else -1 for request, latency in asked)
        else:
            self._latencies.extend(_NO_LATENCY * len(batch))
        self._requests += requests
        self._forwards[1].extend(large[VIA::LARGE])
        for column, place in (
            (self._request_parts, REQUEST_PART), (self._envelopes, ENVELOPE), (self._paired, PAIRED_BY),
            (self._forwards[2], VIA_PART), (self._forwards[0], VIA_FLOW),
        ):  # fmt: skip
            column.extend(small[place::SMALL])

    def columns(self, origin: RowOrigin, most: int) -> dict[str, Any]:
        """The columns, of all messages."""
        count = len(self._requests)
        found = _packet_columns("request", self._requests, origin)
        if found:
            parts = _integers(self._request_parts).cast(pa.int64())
            found["request_part"] = pc.if_else(pc.is_valid(found["request"]), parts, None)
            found["latency_ns"] = _without(_longs(self._latencies), -1)
        if any(self._paired):
            found["paired"] = _texts(PAIRED).take(_integers(self._paired))
        if any(self._envelopes):
            envelopes = _integers(self._envelopes).cast(pa.int64())
            identities = pc.subtract(pc.abs(envelopes), 1)
            found["envelope"] = pa.StructArray.from_arrays(
                [identities, pc.greater(envelopes, 0)], fields=list(_ENVELOPE), mask=pc.equal(envelopes, 0)
            )
        flows, packets, parts = self._forwards
        if any(packets):
            paths, numbers = origin.packets.columns(packets, origin.files)
            known = {flow: origin.conn_ids[flow].name for flow in set(flows) if flow in origin.conn_ids}
            names = pa.array([known.get(flow) for flow in flows], pa.string())
            columns = [names, paths.cast(pa.string()), numbers, _integers(parts).cast(pa.int64())]
            mask = pc.equal(_longs(packets), 0)
            found["forwards"] = pa.StructArray.from_arrays(columns, fields=list(_PLACE), mask=mask)
        if self._matched:
            found["matched"] = OctetsBuilder(most or _MOST, [self._matched.get(at) for at in range(count)]).build()
        return found


class BatchOrigin(NamedTuple):
    """Where the packets of batches of messages are."""

    file: int  # its number in the series
    numbers: bytes  # of the packets in the file: 8 octets for each row
    base: int | None  # so much more than in its row, each record begins in the file; None: there are no records


class Backlog:
    """Events that wait until they are enough to become rows."""

    def __init__(self, most: int) -> None:
        """Begin without events; at most ``most`` octets of each frame of a message are kept."""
        self.messages = Messages(most)
        self.others: dict[type, list[Any]] = {}
        self.packets: dict[type, list[PacketName]] = {}  # of these

    def take(self, events: Iterable[AnyEvent], origin: RowOrigin, batch_origin: BatchOrigin | None = None) -> None:
        """Take events; batches among them are of ``batch_origin``."""
        for kind, some in groupby(events, type):
            if kind is Message:
                self.messages.take(some, origin)  # type: ignore[arg-type]
            elif kind is MessageBatch:
                for batch in some:
                    self.messages.take_batch(batch, batch_origin, origin.conn_ids)  # type: ignore[arg-type]
            elif kind in _OWN:
                found = list(some)
                self.others.setdefault(kind, []).extend(found)
                names = self.packets.setdefault(kind, [])
                names += [origin.packets.name(getattr(event, "packet", None) or 0) for event in found]


class CaptureRow(NamedTuple):
    """The facts about a file that has been read. Times are in nanoseconds since the Unix epoch, None without packets.

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
        self._most = max_bytes or _MOST
        self._most_of_messages = self._most if bodies else 0
        self._bodies = bodies
        self._makers = {"STRING": _texts, "BIGINT": _numbers, OCTETS: self._octets, OCTETS_LIST: self._lists}
        self._makers[PROPERTIES] = self._properties

    def backlog(self) -> Backlog:
        """One without events."""
        return Backlog(self._most_of_messages)

    def of_events(self, backlog: Backlog, origin: RowOrigin, provisional: bool = False, least: int = 1) -> list[Batch]:
        """Rows of events of one series; of other kinds than messages only if there are ``least``, or they wait on."""
        kinds = [kind for kind, some in backlog.others.items() if len(some) >= least]
        found = [(_OWN[kind][0], self._of_kind(kind, backlog, origin)) for kind in kinds]
        if backlog.messages.times:
            found.append(("messages", self._of_messages(backlog, origin)))
        return [(table, _batch(SCHEMAS[table], columns, provisional), provisional) for table, columns in found]

    def of_capture(self, capture: CaptureRow, listed: FileInfo, series: str, shards: int) -> list[Batch]:
        """The row in ``captures`` of a file that was ``listed`` so, and its problems."""
        columns: dict[str, Any] = {name: [getattr(capture, name)] for name in _CAPTURE_COLUMNS}
        columns |= {"date": _dates([capture.first_ns]), "series": [series], "size": [listed.size]}
        columns |= {"modified_ns": [listed.modified_ns], "shards": [shards]}
        columns |= {"comments": [list(map(_text, capture.comments))], "error": [capture.error and _text(capture.error)]}
        out: list[Batch] = [("captures", _batch(SCHEMAS["captures"], columns), False)]
        if capture.problems:
            count = len(capture.problems)
            severities, codes, details = zip(*capture.problems, strict=True)
            problems: dict[str, Any] = {"severity": severities, "code": codes, "detail": list(map(_text, details))}
            problems |= {"series": [series] * count, "file": [capture.file] * count}
            problems["date"] = _dates([capture.first_ns] * count)
            out.append(("problems", _batch(SCHEMAS["problems"], problems), False))
        return out

    def _of_messages(self, backlog: Backlog, origin: RowOrigin) -> dict[str, Any]:
        messages, backlog.messages = backlog.messages, Messages(self._most_of_messages)
        columns = messages.columns(origin)
        return columns if self._bodies else columns | {"frames": _without_data(columns["frames"])}

    def _of_kind(self, kind: type, backlog: Backlog, origin: RowOrigin) -> dict[str, Any]:
        """The columns of other events of a kind: those of their own, and all others that are fields."""
        events = backlog.others.pop(kind)
        columns = _OWN[kind][1](events, backlog.packets.pop(kind), origin)
        for name, sql, value_of in _FIELDS[kind]:
            if name in PACKET_FIELDS or name.endswith(_PACKET_ENDINGS):
                packets = array("q", [value_of(event) or 0 for event in events])
                columns |= _packet_columns(name, packets, origin)
            elif name not in columns:
                columns[name] = self._column(sql, [value_of(event) for event in events])
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
        return pa.ListArray.from_arrays(_sums(array("i", [0, *map(len, values)])), octets, _OCTETS_LIST)

    def _properties(self, values: Sequence[dict[str, Octets] | None]) -> pa.Array:
        """A column of properties: lists of names with octets."""
        given = [value or {} for value in values]
        names = pa.array([_text(name) for some in given for name in some], pa.string())
        octets = self._octets(chain.from_iterable(some.values() for some in given))
        named = pa.StructArray.from_arrays([names, octets], fields=list(_PROPERTIES.value_type))
        ends = _sums(array("i", [0, *map(len, given)]))
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
    """The number of octets on the wire, for each value in a column of lists of octets; at most what 63 bits hold."""
    lengths = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int64()), lists.values.field(0)]))
    sums = lengths.take(lists.offsets)
    sizes = pc.subtract(sums[1:], sums[:-1])
    # A frame may claim so many octets that those before it in its message are too many: the sum wraps to below 0.
    return pc.if_else(pc.less(sizes, 0), _MOST, sizes) if (pc.min(sizes).as_py() or 0) < 0 else sizes


def _without_data(lists: pa.Array) -> pa.Array:
    """A column of lists of octets of which the lengths alone are kept."""
    lengths = lists.values.field(0)
    bare = pa.StructArray.from_arrays([lengths, pa.nulls(len(lengths), pa.binary())], fields=list(_OCTETS_TYPE))
    return pa.ListArray.from_arrays(lists.offsets, bare, _OCTETS_LIST)


def _packet_columns(name: str, packets: "array[int]", origin: RowOrigin) -> dict[str, Any]:
    """The columns of packets that events name, 0 for none."""
    if not any(packets):
        return {}
    paths, numbers = origin.packets.columns(packets, origin.files)
    return {name: numbers, f"{name}_file": paths}


def _without(values: pa.Array, none: int) -> pa.Array:
    """A column in which a value stands for none."""
    return pc.if_else(pc.equal(values, none), None, values)


def _when_and_where(times_ns: Sequence[int | None], packets: Sequence[PacketName], origin: RowOrigin) -> dict[str, Any]:
    """The columns of events' times and packets, if they are of a packet."""
    return {
        "file": _texts([None if one is NOWHERE else origin.files.get(one.file, "") for one in packets]),
        "packet": pa.array([one.number or None for one in packets], pa.int64()),
        "offset": pa.array([one.offset or None for one in packets], pa.int64()),
        **_when(_numbers(times_ns), origin),
    }


def _when(times: pa.Array, origin: RowOrigin) -> dict[str, Any]:
    """The columns that follow from the times of events, and the series."""
    dates, series = _dates(times), _repeated(origin.series, len(times))
    return {"date": dates, "series": series, "time": _times(times), "time_ns": times}


def _wire(events: list[Any], packets: Sequence[PacketName], origin: RowOrigin, **same: str) -> dict[str, Any]:
    """The columns of every event from the wire, null for some problems; all rows share the values ``same``."""
    names = [None if event.flow is None else origin.conn_ids[event.flow].name for event in events]
    found = _when_and_where([event.time_ns for event in events], packets, origin)
    found |= _ends("src", [event.src for event in events]) | _ends("dst", [event.dst for event in events])
    return found | {"conn_id": names} | {name: _repeated(value, len(events)) for name, value in same.items()}


def _of_connections(events: list[Connection], _: Sequence[PacketName], origin: RowOrigin) -> dict[str, Any]:
    starts = _numbers([event.start_ns for event in events])
    ids = [origin.conn_ids[event.flow] for event in events]
    return {
        "date": _dates(starts),
        "series": _repeated(origin.series, len(events)),
        "conn_id": [one.name for one in ids],
        "shared_id": [one.is_shared for one in ids],
        **_ends("client", [event.client.address for event in events]),
        **_ends("server", [event.server.address for event in events]),
        "start": _times(starts),
        "stop": _times([event.end_ns for event in events]),
    }


def _of_work(events: list[Work], _: Sequence[PacketName], origin: RowOrigin) -> dict[str, Any]:
    shares = [list(map(msgspec.structs.asdict, event.workers)) for event in events]
    workers = pa.array(shares, SCHEMAS["work"].field("workers").type)
    return {"series": _repeated(origin.series, len(events)), "workers": workers}


def _of_findings(events: list[Finding], _: Sequence[PacketName], origin: RowOrigin) -> dict[str, Any]:
    return {
        "date": _dates([event.first_ns for event in events]),
        "series": _repeated(origin.series, len(events)),
        "first": _times([event.first_ns for event in events]),
        "last": _times([event.last_ns for event in events]),
        "evidence": [[_evidence(one, origin) for one in event.evidence] for event in events],
        "endpoints": [event.endpoints for event in events],
        "peers": [[{name: getattr(peer, name) for name in PEER_COLUMNS} for peer in event.peers] for event in events],
    }


def _of_ways(events: list[Way], _: Sequence[PacketName], origin: RowOrigin) -> dict[str, Any]:
    def part(one: Slowest | Terminus | None) -> dict[str, Any] | None:
        return None if one is None else msgspec.structs.asdict(one)

    return {
        **_when(_numbers([event.time_ns for event in events]), origin),
        "src": [event.legs[0].src for event in events],
        "dst": [event.legs[0].dst for event in events],
        "legs": [[_leg(one, origin) for one in event.legs] for event in events],
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


def _integers(values: "array[int]") -> pa.Array:
    """A column of integers that are one already, but for its name."""
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def _longs(values: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _sums(values: "array[int]") -> pa.Array:
    """The sum of integers up to each: of lengths, the first of them 0, where values begin, and the last one ends."""
    return pc.cumulative_sum_checked(_integers(values))


def _numbers(values: Any) -> pa.Array:
    """A column of integers. Numbers beyond 64 bits, which only broken captures have, become the largest one."""
    if isinstance(values, pa.Array):
        return values
    try:
        return pa.array(values, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([value if value is None else max(min(value, _MOST), -_MOST) for value in values], pa.int64())


def _times(times_ns: Any) -> pa.Array:
    return pc.divide(_numbers(times_ns), 1000).cast(_TIMESTAMP)


def _dates(times_ns: Any) -> pa.Array:
    return pc.divide(_numbers(times_ns), _DAY_NS).cast(pa.int32()).cast(pa.date32())


def _texts(values: Sequence[str | None]) -> pa.DictionaryArray:
    """A column of strings. Characters that are no Unicode become escapes."""
    try:
        return pa.array(values, pa.string()).dictionary_encode()
    except UnicodeEncodeError:
        return _texts([value if value is None else _text(value) for value in values])


def _repeated(value: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), _texts([value]).dictionary)


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()


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
