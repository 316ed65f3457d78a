"""Rows written to Parquet by the task that makes them, so that they need not pass through the JVM."""

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from zmtpsniff.spark.rows import Batch
from zmtpsniff.spark.tables import PARTITION

MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), False),  # below the folder written to: TABLE/date=DAY/NAME.parquet
        pa.field("rows", pa.int64(), False),
        pa.field("octets", pa.int64(), False),
    ]
)
"""What a task tells of each file that it has written."""

OPEN_PREFIX = "open-"
"""How the names of files with provisional rows begin."""

_GROUP_ROWS = 128 << 10
_GROUP_OCTETS = 16 << 20
_NO_DATE = "__HIVE_DEFAULT_PARTITION__"


def write_rows(batches: Iterable[Batch], folder: str) -> Iterator[pa.RecordBatch]:
    """Write rows below ``folder``, a path or URL; yield rows of MANIFEST_SCHEMA, once all is written."""
    writer = _Writer(folder)
    for table, batch in batches:
        writer.take(table, batch)
    files = writer.close()
    if files:
        yield pa.RecordBatch.from_pylist(files, schema=MANIFEST_SCHEMA)


class _File:
    """A file that is being written, and the rows of its next row group."""

    def __init__(self, system: FileSystem, folder: str, name: str, schema: pa.Schema) -> None:
        self.name = name
        path = f"{folder}/{name}"
        system.create_dir(path.rpartition("/")[0])
        self._sink = system.open_output_stream(path)
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_octets = 0
        self.rows = 0

    def take(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_octets += batch.nbytes
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_octets >= _GROUP_OCTETS:
            self._write()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=_GROUP_ROWS)
        self.rows += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_octets = [], 0, 0

    def close(self) -> dict[str, Any]:
        if self._waiting:
            self._write()
        self._writer.close()
        octets = self._sink.tell()
        self._sink.close()
        return {"path": self.name, "rows": self.rows, "octets": octets}


class _Writer:
    """All files of a task."""

    def __init__(self, folder: str) -> None:
        self._system, self._folder = FileSystem.from_uri(folder)
        self._name = uuid4().hex
        self._files: dict[tuple[str, int | None, bool], _File] = {}

    def take(self, table: str, batch: pa.RecordBatch) -> None:
        days = batch.column(PARTITION).cast(pa.int32())
        provisional = "provisional" in batch.schema.names and bool(batch.num_rows) and batch["provisional"][0].as_py()
        rest = batch.drop_columns([PARTITION])
        first, last = (value.as_py() for value in pc.min_max(days).values())
        if first == last and (first is None or not days.null_count):
            self._file(table, first, provisional, rest.schema).take(rest)
            return
        for day in pc.unique(days).to_pylist():
            chosen = days.is_null() if day is None else pc.fill_null(pc.equal(days, day), False)
            self._file(table, day, provisional, rest.schema).take(rest.filter(chosen))

    def _file(self, table: str, day: int | None, provisional: bool, schema: pa.Schema) -> _File:
        file = self._files.get((table, day, provisional))
        if file is None:
            date = _NO_DATE if day is None else pa.scalar(day, pa.int32()).cast(pa.date32()).as_py().isoformat()
            name = f"{table}/{PARTITION}={date}/{OPEN_PREFIX if provisional else ''}{self._name}.parquet"
            file = self._files[table, day, provisional] = _File(self._system, self._folder, name, schema)
        return file

    def close(self) -> list[dict[str, Any]]:
        return [file.close() for file in self._files.values()]
