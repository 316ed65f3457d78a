"""The map side: a task dissects whole files, writes the rows, and tells of what goes on in other files.

Rows that hold whatever comes before their file are written as the tables are to have them. Those that depend on that
are written apart, with the piece that they belong to, until the join has judged it (see :mod:`zmtpsniff.spark.scan`):
files whose names begin with "stretch-" and "alone-".
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from dissectors.events import AnyEvent, Problem
from dissectors.problems import PROBLEMS
from zmtpsniff.addresses import Address
from zmtpsniff.segment import Datagram
from zmtpsniff.spark.connections import dissector_limits, flow_limits, spare_collector
from zmtpsniff.spark.groups import Groups
from zmtpsniff.spark.inputs import File
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.pieces import Batch, numbers_and_offsets
from zmtpsniff.spark.rows import Capture, Origin, Places, Rows
from zmtpsniff.spark.runs import Run
from zmtpsniff.spark.scan import Scan
from zmtpsniff.spark.writing import Writer

PIECE_SCHEMA = pa.schema(
    [
        pa.field("part", pa.int32(), False),
        pa.field("group", pa.binary(), False),
        pa.field("first_ns", pa.int64(), False),  # -1: a state that the group begins with
        pa.field("file_no", pa.int32(), False),
        pa.field("path", pa.string(), False),
        pa.field("piece", pa.binary(), False),
    ]
)
PIECES = "_pieces"
_MOST_EVENTS = 8192
_MOST_BATCHES = 64  # of packets, of at most 64 KiB each
_PREFIXES = {"born": "", "alone": "alone-", "stretch": "stretch-"}


def scanned(
    batches: Iterable[pa.RecordBatch], options: Options, parts: int, folder: str, apart: bool = False
) -> Iterator[pa.RecordBatch]:
    """Dissect files, rows of FILE_SCHEMA, each by itself, into ``folder``; yield rows of MANIFEST_SCHEMA.

    Pieces are written for ``parts`` tasks to join; those of each ``apart`` from others if these read them as they are.
    """
    spare_collector()
    writer = Writer(folder, apart="part" if apart else "")
    task = -1
    for batch in batches:
        for row in batch.to_pylist():
            task = row["task"]
            _scan(row, options, parts, writer)
    yield from writer.close(task)


def key_of(file_no: int, piece: int) -> int:
    """What rows that wait for a verdict are marked with."""
    return file_no << 40 | piece


def _scan(row: dict[str, Any], options: Options, parts: int, writer: Writer) -> None:
    """Dissect one file."""
    file = File(row["path"], row.get("content"))
    file_no = row["file_no"]
    groups = Groups(row["series_no"], options, parts)
    scan = _Scan(file, row, options, groups)
    collected = _Collected(row, options, scan, writer)
    for count, batch in enumerate(scan.batches()):
        collected.take(batch)
        if count % _MOST_BATCHES == 0:
            collected.flush()
    collected.flush()
    columns: list[list[Any]] = [[] for _ in PIECE_SCHEMA]
    for piece in scan.pieces:
        part, group = groups.of_tuple(piece.key)
        if part >= 0:
            values = (part, group, piece.first_ns, file_no, row["path"], piece.encode())
            for column, value in zip(columns, values, strict=True):
                column.append(value)
    for group, (part, time_ns) in scan.datagrams.found.items():
        for column, value in zip(columns, (part, group, time_ns, file_no, row["path"], b""), strict=True):
            column.append(value)
    if columns[0]:
        arrays = [pa.array(values, field.type) for values, field in zip(columns, PIECE_SCHEMA, strict=True)]
        writer.take(PIECES, pa.RecordBatch.from_arrays(arrays, schema=PIECE_SCHEMA))
    summary = scan.summary
    problems = list(collected.problems)
    if file.unreadable:
        problems.append((PROBLEMS["capture-unreadable"].severity, "capture-unreadable", file.unreadable))
    capture = Capture(
        row["path"],
        row["size"],
        row["modified_ns"],
        summary.packets,
        summary.dropped,
        summary.first_ns,
        None if summary.first_ns is None else summary.last_ns,
        summary.end_ns,
        tuple(file.comments),
        tuple(problems),
        file.error,
    )
    for table, rows, _ in Rows().of_capture(capture, row["series"]):
        writer.take(table, rows)
    writer.note_end(row["series_no"], summary.end_ns)


class _Datagrams:
    """The groups of datagrams in a file: they are dissected together with those of other files, never here."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self.found: dict[bytes, tuple[int, int]] = {}  # part, time of the first

    def take(self, datagram: Datagram) -> None:
        time_ns, _, protocol, key, payload, missing = datagram
        if self._groups.wants(protocol, key, payload, missing):
            part, group = self._groups.of(key, is_datagram=True)
            if part >= 0:
                self.found.setdefault(group, (part, time_ns))

    def finish(self) -> None:
        """Do nothing, since nothing is dissected."""


class _Scan(Scan):
    """A scan of the ports that are wanted, which leaves datagrams to others."""

    def __init__(self, source: File, row: dict[str, Any], options: Options, groups: Groups) -> None:
        limits = dissector_limits(options), flow_limits(options)
        super().__init__(source, row["file_no"], *limits, options.rules)
        self._wanted = groups
        self.datagrams = _Datagrams(groups)
        self._datagrams = self.datagrams

    def _connect(self, number: int, client: Address, server: Address, from_start: bool) -> Any:
        if not self._wanted.has_port(client.port, server.port):
            return None
        return super()._connect(number, client, server, from_start)


class _Collected:
    """Events of a file that are not rows yet."""

    def __init__(self, row: dict[str, Any], options: Options, scan: Scan, writer: Writer) -> None:
        self._row = row
        self._ports = options.ports
        self._scan = scan
        self._writer = writer
        self._rows = Rows(options.max_bytes)
        self._events: dict[str, list[AnyEvent | Run]] = {part: [] for part in _PREFIXES}
        self._count = 0
        self._conn_ids: dict[int, str] = {}
        self._keys: dict[int, int] = {}
        self.problems: list[tuple[str, str, str]] = []  # of the file as a whole

    def take(self, batch: Batch) -> None:
        events = batch.events
        if batch.part == "born" and Problem in set(map(type, events)):
            for event in events:
                if type(event) is Problem and event.flow is None:
                    self.problems.append((event.severity, event.code, event.detail))
            events = [event for event in events if type(event) is not Problem or event.flow is not None]
        self._events[batch.part] += events
        self._count += len(events)
        if batch.part == "stretch":
            self._count += sum(len(event.counts) for event in events if type(event) is Run)
        if self._count >= _MOST_EVENTS:
            self.flush()

    def flush(self) -> None:
        self._count = 0
        if not any(self._events.values()):
            return
        for number, identity in islice(self._scan.identities.items(), len(self._conn_ids), None):
            self._conn_ids[number] = identity.conn_id
            self._keys[number] = key_of(self._row["file_no"], identity.piece)
        origin = Origin(self._row["series"], self._conn_ids, self._place)
        for part, events in self._events.items():
            if events:
                marked = origin if part == "born" else origin._replace(keys=self._keys)
                for table, rows, prefix in self._rows.of_events(events, marked, _PREFIXES[part]):
                    self._writer.take(table, rows, prefix)
                events.clear()

    def _place(self, packets: Sequence[int]) -> Places:
        return pa.repeat(self._row["path"], len(packets)), *numbers_and_offsets(packets)
