"""Rows written to Parquet by the task that makes them, so that they need not pass through the JVM."""

import json
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import date, datetime
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from zmtpsniff.capture.locations import file_system, make_parent
from zmtpsniff.spark.tables import PARTITION

# Numbers that grow from row to row, or nearly: their differences take a third of a dictionary's room, and less time.
_STEPS = ("time", "time_ns", "packet", "offset", "start", "start_ns", "stop", "end_ns")
_ORDER = ("time_ns", "start_ns", "first_ns")  # rows of a series are sorted by the first that a table has
DISORDER_NS = 1_000_000_000
"""Rows that are less out of order are not sorted: that would cost more than it brings."""
_GROUP_ROWS = 128 << 10
_BATCH_ROWS = 16 << 10  # that are encoded at once: a sixteenth of them costs a tenth more
_GROUP_OCTETS = 16 << 20
_STATE_OCTETS = 4 << 20  # of a group of states: a run reads them all, one after the other, and needs no larger ones
_NO_DATE = "__HIVE_DEFAULT_PARTITION__"


class DataFile(msgspec.Struct, frozen=True):
    """A file of a table that has been written, as a commit names it."""

    table: str
    path: str  # below the table's folder
    size: int  # octets
    date: str | None  # that it is filed under
    rows: int
    statistics: str  # as Delta Lake has them, JSON


class _File:
    """A file that is being written, and the rows that come into it next, all at once.

    They are encoded and compressed by another thread while the next ones are made, which Arrow lets Python do.
    """

    def __init__(self, pool: Executor, system: FileSystem, path: str, schema: pa.Schema) -> None:
        self._pool = pool
        self._written: Future[None] | None = None
        make_parent(system, path)
        self._sink = system.open_output_stream(path)
        steps = [column for column in _STEPS if column in schema.names]
        # Values in lists and structs have paths, not these names. But for lengths they differ from row to row: without
        # a dictionary they take less time and less room. No query asks for the least of them.
        plain = [column for column in schema.names if column != "state"]
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            use_dictionary=["frames.list.element.length", *(column for column in plain if column not in steps)],
            write_statistics=plain,
            column_encoding=dict.fromkeys(steps, "DELTA_BINARY_PACKED") or None,
            write_batch_size=_BATCH_ROWS,
            store_schema=False,  # which says of strings that they are dictionaries
        )
        self._order = next((name for name in _ORDER if name in schema.names), None)
        self._most_octets = _STATE_OCTETS if "state" in schema.names else _GROUP_OCTETS
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_octets = 0

    def take(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_octets += batch.nbytes
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_octets >= self._most_octets:
            self._write()

    def _write(self) -> None:
        self._wait()
        self._written = self._pool.submit(self._put, pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_rows, self._waiting_octets = [], 0, 0

    def _put(self, rows: pa.Table) -> None:
        rows = rows.unify_dictionaries()  # so that Parquet need not look at each value
        if self._order is not None:
            rows = _sorted(rows, self._order)
        self._writer.write_table(rows)

    def _wait(self) -> None:
        """Wait until the rows before are written; raises the error of writing them."""
        if self._written is not None:
            self._written.result()

    def close(self) -> tuple[int, pq.FileMetaData]:
        """Finish the file. Returns its size in octets, and its metadata."""
        if self._waiting:
            self._write()
        self._wait()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        return size, self._writer.writer.metadata


def _sorted(rows: pa.Table, order: str) -> pa.Table:
    """Rows in the order of series and a time, roughly: most of them are in order already."""
    if len(pc.unique(rows.column("series"))) > 1:
        keys = pa.table({"series": rows.column("series").cast(pa.string()), order: rows.column(order)})
        return rows.take(pc.sort_indices(keys, [("series", "ascending"), (order, "ascending")]))
    steps = pc.pairwise_diff(rows.column(order).combine_chunks())
    return rows.sort_by(order) if (pc.min(steps).as_py() or 0) < -DISORDER_NS else rows


class TableWriter:
    """The files of a task, in the folders of their tables. No reader sees them before a commit names them."""

    def __init__(self, folder: str) -> None:
        """Write below ``folder``, a path or URL."""
        self._system, self._folder = file_system(folder)
        self._pool = ThreadPoolExecutor(1)
        self._name = f"{uuid4().hex}.parquet"
        self._files: dict[tuple[str, int | None, bool], _File] = {}
        self._paths: list[str] = []  # also of a file whose first octets had no room

    def take(self, table: str, batch: pa.RecordBatch, provisional: bool = False) -> None:
        """Write rows; provisional ones into files of their own, which the next run replaces as a whole."""
        if not batch.num_rows:
            return
        if PARTITION not in batch.schema.names:
            self._file(table, None, provisional, batch.schema).take(batch)
            return
        days = batch.column(PARTITION).cast(pa.int32())
        rest = batch.drop_columns([PARTITION])
        first, last = (value.as_py() for value in pc.min_max(days).values())
        if first == last and (first is None or not days.null_count):
            self._file(table, first, provisional, rest.schema).take(rest)
            return
        for day in pc.unique(days).to_pylist():
            chosen = days.is_null() if day is None else pc.fill_null(pc.equal(days, day), False)
            self._file(table, day, provisional, rest.schema).take(rest.filter(chosen))

    def _file(self, table: str, day: int | None, provisional: bool, schema: pa.Schema) -> _File:
        key = table, day, provisional
        if key not in self._files:
            self._paths.append(f"{self._folder}/{table}/{self._path(*key)}")
            self._files[key] = _File(self._pool, self._system, self._paths[-1], schema)
        return self._files[key]

    def _path(self, table: str, day: int | None, provisional: bool) -> str:
        name = f"{'open-' if provisional else ''}{self._name}"
        return name if table.startswith("_") else f"{PARTITION}={_date(day) or _NO_DATE}/{name}"

    def discard(self) -> None:
        """Stop, and delete what is there of the files: the disk may be full."""
        self._pool.shutdown(cancel_futures=True)
        for path in self._paths:
            with suppress(OSError):
                self._system.delete_file(path)

    def close(self) -> list[DataFile]:
        """Finish all files."""
        found = []
        for (table, day, provisional), file in self._files.items():
            size, content = file.close()
            path = self._path(table, day, provisional)
            found.append(DataFile(table, path, size, _date(day), content.num_rows, statistics(content)))
        self._pool.shutdown()
        return found


def _date(day: int | None) -> str | None:
    return None if day is None else date.fromordinal(date(1970, 1, 1).toordinal() + day).isoformat()


def statistics(content: pq.FileMetaData) -> str:
    """The statistics of a Parquet file for Delta Lake: least and greatest values, by which questions skip it."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(content.num_columns):
        name = content.schema.column(column).path
        found = [content.row_group(group).column(column).statistics for group in range(content.num_row_groups)]
        if "." in name or not all(one is not None and one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        valued = [one for one in found if one.num_values]
        if valued and all(one.has_min_max for one in valued) and not isinstance(valued[0].min, bytes):
            least[name] = _plain(min(one.min for one in valued))
            greatest[name] = _plain(max(one.max for one in valued))
    return json.dumps({"numRecords": content.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls})


def _plain(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
