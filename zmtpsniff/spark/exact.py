"""The reference path: every segment is shuffled to the task of its connection, sorted, and dissected in order.

Slower than dissecting files where they are read, and as simple as can be: what :mod:`zmtpsniff.spark.scan` makes must
be equal to what this makes. No connection is ever held as a whole: a task streams through its segments.

A *group* is what must be dissected together: the segments between two endpoints of TCP, or the datagrams of UDP or
PGM between two hosts, of one series. A *part* is the number of the task that gets a group. Each file also sends a note
about itself to every part, which comes before all groups there: it names the file and tells when its series ends.
"""

from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import accumulate
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dissectors.events import AnyEvent
from dissectors.problems import PROBLEMS
from zmtpsniff.segment import Datagram, Segment
from zmtpsniff.spark import reducing
from zmtpsniff.spark.connections import spare_collector
from zmtpsniff.spark.groups import DATAGRAMS, Groups, part_of
from zmtpsniff.spark.inputs import File
from zmtpsniff.spark.loose import LooseDecoder, LooseFragment, joined, place_of
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.pieces import marked, placed
from zmtpsniff.spark.rows import Batch, Capture, Rows

FILE_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), False),
        pa.field("size", pa.int64(), False),
        pa.field("modified_ns", pa.int64(), False),
        pa.field("series", pa.string(), False),
        pa.field("series_no", pa.int32(), False),
        pa.field("file_no", pa.int32(), False),
        pa.field("task", pa.int32(), False),
    ]
)
"""What a task is told of each file that it reads; files of a series are numbered in their order."""

SEGMENT_SCHEMA = pa.schema(
    [
        pa.field("part", pa.int32(), False),
        pa.field("group", pa.binary(), False),  # empty: a note on a file
        pa.field("order_ns", pa.int64(), False),  # the latest time so far in its file
        pa.field("file_no", pa.int32(), False),
        pa.field("packet", pa.int64(), False),
        pa.field("offset", pa.int64(), False),  # of the packet's record; 0: it has none
        pa.field("time_ns", pa.int64(), False),
        pa.field("protocol", pa.int32(), False),  # 0: TCP
        pa.field("key", pa.binary(), False),
        pa.field("seq", pa.int64(), False),
        pa.field("ack", pa.int64(), False),
        pa.field("flags", pa.int32(), False),
        pa.field("payload", pa.binary(), False),
        pa.field("missing", pa.int64(), False),
    ]
)
ORDER = ("group", "order_ns", "file_no", "packet")
"""The order in which a part is read: as `read` merges files, by time, each file in its own order."""

_MOST_OCTETS = 4 << 20  # of a batch
_MOST_ROWS = 8192
_DATAGRAM_FIELDS = 6  # of a Datagram; a Segment has 8
UNIX_KEY = 20  # octets of a key of Unix domain sockets


class Note(msgspec.Struct):
    """What every part is told of a file."""

    series: str
    series_no: int
    capture: Capture
    fragments: list[LooseFragment]  # of datagrams that are not whole in it
    is_told: bool  # whether rows are to be made of what it says of the file


Wanted = Mapping[int, Set[bytes]]
"""By the numbers of files: the groups that are wanted of them."""


def segments(
    batches: Iterable[pa.RecordBatch], options: Options, parts: int, wanted: Wanted | None = None
) -> Iterator[pa.RecordBatch]:
    """Read files, rows of FILE_SCHEMA, and yield their segments, rows of SEGMENT_SCHEMA: all, or those wanted."""
    for batch in batches:
        for row in batch.to_pylist():
            yield from _file(row, options, parts, None if wanted is None else wanted[row["file_no"]])


def _file(row: dict[str, Any], options: Options, parts: int, wanted: Set[bytes] | None) -> Iterator[pa.RecordBatch]:
    file = File(row["path"], row.get("content"))
    decoder = LooseDecoder()
    groups = Groups(row["series_no"], options, parts, wanted)
    file_no = row["file_no"]
    packets = 0
    first_ns: int | None = None
    last_ns = 0
    end_ns: int | None = None
    for batch in file.batches():
        found = decoder.segments(batch, packets + 1)
        times = [packet[0] for packet in batch]
        if first_ns is None:
            first_ns = last_ns = times[0]
        first_ns = min(first_ns, min(times))
        latest = list(accumulate(times, max, initial=last_ns))[1:]
        last_ns = latest[-1]
        offsets = file.offsets
        decoder.place(latest, offsets, packets + 1, file_no)
        if found:
            end_ns = found[-1][0]
        rows = [(*groups.of(segment[2]), latest[segment[1] - packets - 1], 0, segment) for segment in found]
        for time_ns, number, protocol, key, payload, missing in decoder.datagrams:
            if groups.wants(protocol, key, payload, missing):
                segment = (time_ns, number, key, 0, 0, 0, payload, missing)
                rows.append((*groups.of(key, True), latest[number - packets - 1], protocol, segment))
        yield from _segment_batches([row for row in rows if row[0] >= 0], file_no, offsets, packets + 1)
        packets += len(batch)
    problems = [_problem(code, detail) for code, detail in (*file.faults, *decoder.skipped())]
    if file.unreadable:
        problems.append(_problem("capture-unreadable", file.unreadable))
    capture = Capture(
        file.path,
        row["size"],
        row["modified_ns"],
        packets,
        file.dropped,
        first_ns,
        None if first_ns is None else last_ns,
        end_ns,
        tuple(file.comments),
        tuple(problems),
        file.error,
    )
    yield _note(Note(row["series"], row["series_no"], capture, decoder.loose(), wanted is None), file_no, parts)


def _problem(code: str, detail: str) -> tuple[str, str, str]:
    return PROBLEMS[code].severity, code, detail


def _segment_batches(
    rows: list[tuple[int, bytes, int, int, Segment]], file_no: int, offsets: list[int], first: int
) -> Iterator[pa.RecordBatch]:
    """Rows in batches; ``offsets`` are those of the packets from number ``first`` on."""
    begin = octets = 0
    for index, row in enumerate(rows):
        octets += len(row[4][6])
        if octets >= _MOST_OCTETS or index - begin >= _MOST_ROWS:
            yield _segment_batch(rows[begin : index + 1], file_no, offsets, first)
            begin, octets = index + 1, 0
    if begin < len(rows):
        yield _segment_batch(rows[begin:], file_no, offsets, first)


def _segment_batch(
    rows: list[tuple[int, bytes, int, int, Segment]], file_no: int, offsets: list[int], first: int
) -> pa.RecordBatch:
    parts, groups, orders, protocols, found = zip(*rows, strict=True)
    times, packets, keys, seqs, acks, flags, payloads, missing = zip(*found, strict=True)
    records = [offsets[packet - first] for packet in packets]
    columns = (
        parts, groups, orders, [file_no] * len(rows), packets, records, times, protocols, keys, seqs, acks, flags,
        payloads, missing,
    )  # fmt: skip
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SEGMENT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SEGMENT_SCHEMA)


def _note(note: Note, file_no: int, parts: int) -> pa.RecordBatch:
    """A note for every part."""
    values: dict[str, Any] = {"part": range(parts), "file_no": [file_no] * parts}
    values["payload"] = [msgspec.json.encode(note)] * parts
    arrays = [
        pa.array(values.get(field.name, [b"" if field.type == pa.binary() else 0] * parts), field.type)
        for field in SEGMENT_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SEGMENT_SCHEMA)


def state_rows(states: Iterable[tuple[bytes, bytes]], parts: int) -> pa.Table:
    """Groups and the states that they begin with, as rows of SEGMENT_SCHEMA that come before their segments."""
    groups, payloads = [], []
    for group, state in states:
        groups.append(group)
        payloads.append(state)
    count = len(groups)
    values: dict[str, Any] = {"part": [part_of(group, parts) for group in groups], "group": groups}
    values |= {"order_ns": [-1] * count, "payload": payloads}
    arrays = [
        pa.array(values.get(field.name, [b"" if field.type == pa.binary() else 0] * count), field.type)
        for field in SEGMENT_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SEGMENT_SCHEMA)


def dissected(
    batches: Iterable[pa.RecordBatch],
    options: Options,
    parts: int,
    only: Set[bytes] | None = None,
    ends_ns: Mapping[int, int] | None = None,
) -> Iterator[Batch]:
    """Dissect the sorted segments of one of ``parts`` and yield rows; part 0 gives those on files, too.

    Of loose fragments those of the groups ``only`` are taken, if they are given. ``ends_ns`` says when the last segment
    of each series came, where that is not in the files themselves.
    """
    spare_collector()
    part = _Part(options, parts, only)
    part.groups.ends_ns.update(ends_ns or {})
    for batch in batches:
        part.take(batch)
        yield from part.groups.rows()
    part.finish()
    yield from part.groups.rows(at_end=True)


class _Part:
    """What a task has seen of its part."""

    def __init__(self, options: Options, parts: int, only: Set[bytes] | None) -> None:
        self._options = options
        self._parts = parts
        self._only = only
        self._part = -1
        self._rows = Rows(options.max_bytes)
        self.groups = reducing.Groups(options)
        self._state: bytes | None = None  # of the group that comes
        self._sent: dict[bytes, int] = {}  # of each direction of Unix domain sockets
        self._fragments: dict[int, list[LooseFragment]] = {}
        # What loose fragments make, by group: each with the last of its fragments, in order.
        self._joined: dict[bytes, list[tuple[LooseFragment, Segment | Datagram]]] = {}

    def take(self, batch: pa.RecordBatch) -> None:
        """Take the next segments."""
        groups = pc.run_end_encode(batch.column("group"))
        begin = 0
        for group, end in zip(groups.values.to_pylist(), groups.run_ends.to_pylist(), strict=True):
            rows = batch.slice(begin, end - begin)
            begin = end
            if not group:
                self._take_notes(rows)
                continue
            if group != self.groups.group or self.groups.connections is None:
                self.finish_group()
                self._join_fragments()
                state = None
                if rows.column("order_ns")[0].as_py() < 0:
                    state = rows.column("payload")[0].as_py()
                    rows = rows.slice(1)
                self._begin(group, state)
            self._take_segments(rows)

    def _begin(self, group: bytes, state: bytes | None) -> None:
        self._sent = {}
        self.groups.begin(group, state)

    def _take_notes(self, rows: pa.RecordBatch) -> None:
        groups = self.groups
        parts, numbers = rows.column("part").to_pylist(), rows.column("file_no").to_pylist()
        for part, file_no, payload in zip(parts, numbers, rows.column("payload").to_pylist(), strict=True):
            note = msgspec.json.decode(payload, type=Note)
            self._part = part
            groups.files[file_no] = note.capture.file
            groups.series[note.series_no] = note.series
            if note.fragments:
                self._fragments.setdefault(note.series_no, []).extend(note.fragments)
            if note.capture.end_ns is not None:
                groups.ends_ns[note.series_no] = max(groups.ends_ns.get(note.series_no, 0), note.capture.end_ns)
            if part == 0 and note.is_told:
                groups.add(self._rows.of_capture(note.capture, note.series))

    def _take_segments(self, rows: pa.RecordBatch) -> None:
        """Take segments of the group, and in their places those that loose fragments make."""
        if (waiting := self._joined.get(self.groups.group)) and rows.num_rows:
            places = list(zip(*(rows.column(name).to_pylist() for name in ORDER[1:]), strict=True))
            begin = 0
            while waiting and (at := place_of(waiting[0][0])) < places[-1]:
                end = bisect(places, at)
                self._take_rows(rows.slice(begin, end - begin))
                self._take_joined(*waiting.pop(0))
                begin = end
            rows = rows.slice(begin)
        self._take_rows(rows)

    def _take_joined(self, last: LooseFragment, found: Segment | Datagram) -> None:
        connections = self.groups.connections
        assert connections is not None
        packet = placed(last.order_ns, last.file_no, marked(last.packet, last.record))
        if len(found) == _DATAGRAM_FIELDS:
            events = connections.take_datagram((found[0], packet, *found[2:]))
        else:
            events = connections.take([(found[0], packet, *found[2:])])
        self.groups.take(events, (last.file_no,))

    def _join_fragments(self) -> None:
        """Put loose fragments together once all of them are here; those of other parts are left to these."""
        for series_no, fragments in self._fragments.items():
            groups = Groups(series_no, self._options, self._parts, self._only)
            for last, found in joined(fragments):
                is_datagram = len(found) == _DATAGRAM_FIELDS
                part, group = groups.of(found[3] if is_datagram else found[2], is_datagram)  # type: ignore[arg-type]
                if part == self._part:
                    self._joined.setdefault(group, []).append((last, found))
        self._fragments = {}

    def _take_rows(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        connections = self.groups.connections
        assert connections is not None
        names = ("order_ns", "file_no", "packet", "offset", "time_ns", "key", "seq", "ack", "flags", "payload")
        orders, file_nos, numbers, offsets, times, keys, seqs, acks, flags, payloads, missing = (
            rows.column(name).to_pylist() for name in (*names, "missing")
        )
        packets = list(map(placed, orders, file_nos, map(marked, numbers, offsets)))
        if self.groups.group.startswith(DATAGRAMS, 4):
            protocols = rows.column("protocol").to_pylist()
            events: list[AnyEvent] = []
            for datagram in zip(times, packets, protocols, keys, payloads, missing, strict=True):
                events += connections.take_datagram(datagram)
        else:
            segments: list[Segment] = list(zip(times, packets, keys, seqs, acks, flags, payloads, missing, strict=True))
            if len(keys[0]) == UNIX_KEY:
                seqs = [self._numbered(key, len(data) + lost) for _, _, key, _, _, _, data, lost in segments]
                segments = [(*segment[:3], seq, *segment[4:]) for segment, seq in zip(segments, seqs, strict=True)]
            events = connections.take(segments)
        self.groups.take(events, file_nos, sum(map(len, payloads)))

    def _numbered(self, key: bytes, length: int) -> int:
        """The sequence number of what was sent through a Unix domain socket, which only its order tells."""
        seq = self._sent.get(key, 1)
        self._sent[key] = (seq + length) & 0xFFFF_FFFF
        return seq

    def finish_group(self) -> None:
        """The group has no more segments."""
        if self.groups.connections is not None:
            for last, found in self._joined.pop(self.groups.group, ()):
                self._take_joined(last, found)
            self.groups.finish()

    def finish(self) -> None:
        """There are no more segments, but for those of groups that have none but what loose fragments make."""
        self.finish_group()
        self._join_fragments()
        for group in sorted(self._joined):
            self._begin(group, None)
            self.finish_group()
