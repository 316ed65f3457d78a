"""Rows written to Parquet by the task that makes them, so that they need not pass through the JVM."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from zmtpsniff.spark.rows import KEY, Batch
from zmtpsniff.spark.tables import PARTITION

MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("task", pa.int32(), False),
        # Below the folder written to: TABLE/date=DAY/NAME.parquet; empty if this tells of a series.
        pa.field("path", pa.string(), False),
        pa.field("rows", pa.int64(), False),  # of a series: its number
        pa.field("octets", pa.int64(), False),  # of a series: when its last segment came, nanoseconds since the epoch
    ]
)
"""What a task tells of each file that it has written."""

MANIFEST = "task INT NOT NULL, path STRING NOT NULL, rows BIGINT NOT NULL, octets BIGINT NOT NULL"
"""The same as Spark's SQL writes it."""

WAITING = ".arrow"
"""How the names of files end whose rows wait for a verdict: to be read once and soon, and written as they are to stay.

Arrow's own format costs a fourth of Parquet's time to write, and a tenth to read."""

# Numbers that grow from row to row, or nearly: their differences are a third of what a dictionary makes of them, in
# less time.
_STEPS = ("time", "time_ns", "packet", "offset", "start", "start_ns", "stop", "end_ns")
_READ_ROWS = 32 << 10
_GROUP_ROWS = 128 << 10
_GROUP_OCTETS = 16 << 20
_NO_DATE = "__HIVE_DEFAULT_PARTITION__"


def write_rows(batches: Iterable[Batch], folder: str, task: int = 0) -> Iterator[pa.RecordBatch]:
    """Write rows below ``folder``, a path or URL; yield rows of MANIFEST_SCHEMA, once all is written."""
    writer = Writer(folder)
    for table, batch, prefix in batches:
        writer.take(table, batch, prefix)
    yield from writer.close(task)


def read_rows(system: FileSystem, path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file that a task has written, a batch after the other."""
    with system.open_input_file(path) as file:
        if path.endswith(WAITING):
            yield from pa.ipc.open_stream(file)
        else:
            yield from pq.ParquetFile(file).iter_batches(_READ_ROWS)


class _File:
    """A file that is being written, and the rows that come into it next, all at once.

    They are encoded and compressed by another thread while the next ones are made, which Arrow lets Python do.
    """

    def __init__(
        self, pool: Executor, system: FileSystem, folder: str, name: str, schema: pa.Schema, apart: str = ""
    ) -> None:
        self.name = name
        self._pool = pool
        self._apart = apart if apart in schema.names else ""
        self._written: Future[None] | None = None
        path = f"{folder}/{name}"
        system.create_dir(path.rpartition("/")[0])
        self._sink = system.open_output_stream(path)
        if name.endswith(WAITING):
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_stream(self._sink, schema, options=options)
        else:
            steps = [column for column in _STEPS if column in schema.names]
            others = [column for column in _leaves(schema) if column not in steps]
            encodings = dict.fromkeys(steps, "DELTA_BINARY_PACKED")
            self._writer = pq.ParquetWriter(
                self._sink, schema, compression="zstd", use_dictionary=others, column_encoding=encodings or None
            )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_octets = 0
        self.rows = 0

    def take(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_octets += batch.nbytes
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_octets >= _GROUP_OCTETS:
            self._write()

    @property
    def count(self) -> int:
        return self.rows + self._waiting_rows

    def _write(self) -> None:
        self._wait()
        self._written = self._pool.submit(self._put, pa.Table.from_batches(self._waiting))
        self.rows += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_octets = [], 0, 0

    def _put(self, rows: pa.Table) -> None:
        if not self._apart:
            self._writer.write_table(rows, _GROUP_ROWS)
            return
        values = rows.column(self._apart)
        for value in pc.unique(values).to_pylist():
            self._writer.write_table(rows.filter(pc.equal(values, value)), _GROUP_ROWS)

    def _wait(self) -> None:
        """Wait until the rows before are written; raises what writing them raised."""
        if self._written is not None:
            self._written.result()

    def close(self) -> dict[str, Any]:
        if self._waiting:
            self._write()
        self._wait()
        self._writer.close()
        octets = self._sink.tell()
        self._sink.close()
        return {"path": self.name, "rows": self.rows, "octets": octets}


def _leaves(schema: pa.Schema) -> list[str]:
    """The columns of a Parquet file of a schema, as it names them: those within lists and structs have paths."""
    names = pq.ParquetFile(_empty(schema)).schema
    return [names.column(place).path for place in range(len(names))]


def _empty(schema: pa.Schema) -> pa.BufferReader:
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    return pa.BufferReader(sink.getvalue())


class Writer:
    """All files of a task."""

    def __init__(self, folder: str, apart: str = "") -> None:
        """Write below ``folder``, a path or URL that exists.

        Rows are in row groups of their own for each value of the column ``apart``, in Parquet files that have one.
        """
        self._apart = apart
        self._system, self._folder = FileSystem.from_uri(folder)
        self._pool = ThreadPoolExecutor(1)
        self._name = uuid4().hex
        self._files: dict[tuple[str, int | None, str], _File] = {}
        self._ends_ns: dict[int, int] = {}

    def take(self, table: str, batch: pa.RecordBatch, prefix: str = "") -> None:
        """Write rows, into files whose names begin with ``prefix``; those of our own use (``_open``) as they are."""
        if table.startswith("_"):
            self._file(table, None, prefix, batch.schema).take(batch)
            return
        days = batch.column(PARTITION).cast(pa.int32())
        rest = batch.drop_columns([PARTITION])
        first, last = (value.as_py() for value in pc.min_max(days).values())
        if first == last and (first is None or not days.null_count):
            self._file(table, first, prefix, rest.schema).take(rest)
            return
        for day in pc.unique(days).to_pylist():
            chosen = days.is_null() if day is None else pc.fill_null(pc.equal(days, day), False)
            self._file(table, day, prefix, rest.schema).take(rest.filter(chosen))

    def put(self, folder: str, rows: pa.RecordBatch) -> None:
        """Write rows into a folder of a table as they are."""
        file = self._files.get((folder, None, ""))
        if file is None:
            name = f"{folder}/{self._name}.parquet"
            file = self._files[folder, None, ""] = _File(self._pool, self._system, self._folder, name, rows.schema)
        file.take(rows)

    def note_end(self, series_no: int, end_ns: int | None) -> None:
        """Tell when the last segment of a file of a series came."""
        if end_ns is not None:
            self._ends_ns[series_no] = max(self._ends_ns.get(series_no, 0), end_ns)

    def _file(self, table: str, day: int | None, prefix: str, schema: pa.Schema) -> _File:
        file = self._files.get((table, day, prefix))
        if file is None:
            date = _NO_DATE if day is None else pa.scalar(day, pa.int32()).cast(pa.date32()).as_py().isoformat()
            folder = table if table.startswith("_") else f"{table}/{PARTITION}={date}"
            name = f"{folder}/{prefix}{self._name}{WAITING if KEY in schema.names else '.parquet'}"
            file = _File(self._pool, self._system, self._folder, name, schema, self._apart)
            self._files[table, day, prefix] = file
        return file

    def counts(self) -> dict[str, int]:
        """The files so far, below the folder, and how many rows each has been given."""
        return {file.name: file.count for file in self._files.values()}

    def close(self, task: int) -> Iterator[pa.RecordBatch]:
        """Finish all files; what there is to tell of them, rows of MANIFEST_SCHEMA."""
        rows = [{"task": task, **file.close()} for file in self._files.values()]
        self._pool.shutdown()
        rows += [{"task": task, "path": "", "rows": no, "octets": end} for no, end in self._ends_ns.items()]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=MANIFEST_SCHEMA)
