"""Rows written to Parquet by the task that makes them, so that they need not pass through the JVM."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from zmtpsniff.spark.tables import PARTITION

# Numbers that grow from row to row, or nearly: their differences are a third of what a dictionary makes of them, in
# less time.
_STEPS = ("time", "time_ns", "packet", "offset", "start", "start_ns", "stop", "end_ns")
_GROUP_ROWS = 128 << 10
_GROUP_OCTETS = 16 << 20
_NO_DATE = "__HIVE_DEFAULT_PARTITION__"


class _File:
    """A file that is being written, and the rows that come into it next, all at once.

    They are encoded and compressed by another thread while the next ones are made, which Arrow lets Python do.
    """

    def __init__(self, pool: Executor, system: FileSystem, folder: str, name: str, schema: pa.Schema) -> None:
        self.name = name
        self._pool = pool
        self._written: Future[None] | None = None
        path = f"{folder}/{name}"
        system.create_dir(path.rpartition("/")[0])
        self._sink = system.open_output_stream(path)
        steps = [column for column in _STEPS if column in schema.names]
        others = [column for column in _leaves(schema) if column not in steps]
        encodings = dict.fromkeys(steps, "DELTA_BINARY_PACKED")
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="zstd", use_dictionary=others, column_encoding=encodings or None
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_octets = 0
        self._rows = 0

    def take(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_octets += batch.nbytes
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_octets >= _GROUP_OCTETS:
            self._write()

    @property
    def count(self) -> int:
        return self._rows + self._waiting_rows

    def _write(self) -> None:
        self._wait()
        self._written = self._pool.submit(self._put, pa.Table.from_batches(self._waiting))
        self._rows += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_octets = [], 0, 0

    def _put(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, _GROUP_ROWS)

    def _wait(self) -> None:
        """Wait until the rows before are written; raises what writing them raised."""
        if self._written is not None:
            self._written.result()

    def close(self) -> None:
        if self._waiting:
            self._write()
        self._wait()
        self._writer.close()
        self._sink.close()


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

    def __init__(self, folder: str) -> None:
        """Write below ``folder``, a path or URL that exists."""
        self._system, self._folder = FileSystem.from_uri(folder)
        self._pool = ThreadPoolExecutor(1)
        self._name = uuid4().hex
        self._files: dict[tuple[str, int | None, str], _File] = {}

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

    def _file(self, table: str, day: int | None, prefix: str, schema: pa.Schema) -> _File:
        file = self._files.get((table, day, prefix))
        if file is None:
            date = _NO_DATE if day is None else pa.scalar(day, pa.int32()).cast(pa.date32()).as_py().isoformat()
            folder = table if table.startswith("_") else f"{table}/{PARTITION}={date}"
            name = f"{folder}/{prefix}{self._name}.parquet"
            file = _File(self._pool, self._system, self._folder, name, schema)
            self._files[table, day, prefix] = file
        return file

    def counts(self) -> dict[str, int]:
        """The files so far, below the folder, and how many rows each has been given."""
        return {file.name: file.count for file in self._files.values()}

    def close(self) -> None:
        """Finish all files."""
        for file in self._files.values():
            file.close()
        self._pool.shutdown()
