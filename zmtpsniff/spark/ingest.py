"""The job: capture files to tables."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zmtpsniff.spark.listing import Listed, list_files, series_of
from zmtpsniff.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_PART_OCTETS = 64 << 20  # of capture files whose segments a task gets
_LEAST_PARTS = 4
_TASK_OCTETS = 128 << 20  # of capture files that a task reads, unless one is larger


class Ingested(NamedTuple):
    """What a run did: files that are new, files that were known, rows of all tables."""

    files: int
    known: int
    rows: int


def ingest(
    session: "SparkSession",
    inputs: Sequence[str],
    output: str,
    options: Options | None = None,
    series: str = "folder",
    exact: bool = True,
) -> Ingested:
    """Read the files that ``inputs`` name and that are not in the tables of ``output`` yet, and add them there.

    ``series`` says which files are read as one capture (see series_of). With ``exact`` every segment is shuffled to
    the task of its connection. Raises SparkError.
    """
    from zmtpsniff.spark.store import Store

    options = options or Options()
    listed = list_files(list(inputs), session)
    store = Store(output)
    try:
        table = store.read("captures", ["file"])
        known = set() if table is None else set(table.column("file").to_pylist())
        new = [file for file in listed if file.path not in known]
        if not new:
            return Ingested(0, len(listed), 0)
        written = run_exact(session, new, options, series, _to_files(store.staging)).collect()
        store.commit([row.path for row in written])
        return Ingested(len(new), len(listed) - len(new), sum(row.rows for row in written))
    finally:
        store.close()


Sink = tuple["Callable[[Iterable[tuple[str, pa.RecordBatch, str]]], Iterator[pa.RecordBatch]]", str]
"""What becomes of rows in the task that makes them, and the schema of what it yields, in Spark's SQL."""


def _to_files(folder: str) -> Sink:
    from zmtpsniff.spark.writing import MANIFEST

    def write(batches: "Iterable[tuple[str, pa.RecordBatch, str]]") -> "Iterator[pa.RecordBatch]":
        from zmtpsniff.spark.writing import write_rows

        return write_rows(batches, folder)

    return write, MANIFEST


def to_rows() -> Sink:
    """Rows of all tables as one data frame, a struct for each table."""

    def wrapped(batches: "Iterable[tuple[str, pa.RecordBatch, str]]") -> "Iterator[pa.RecordBatch]":
        from zmtpsniff.spark.rows import wrap

        return (wrap(table, batch) for table, batch, _ in batches if not table.startswith("_"))

    from zmtpsniff.spark.tables import TABLES, ddl

    return wrapped, ", ".join(f"{table} STRUCT<{ddl(table)}>" for table in TABLES)


def files_frame(session: "SparkSession", files: Sequence[Listed], series: str) -> "DataFrame":
    """A data frame of files, numbered in their order, spread over tasks of about equal size."""
    import pyarrow as pa

    from zmtpsniff.spark.exact import FILE_SCHEMA

    names = [series_of(file.path, series) for file in files]
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    tasks, octets = [], _TASK_OCTETS
    task = -1
    for file in files:
        if octets + file.size > _TASK_OCTETS:
            task += 1
            octets = 0
        octets += file.size
        tasks.append(task)
    paths, sizes, times = zip(*files, strict=True)
    columns = [paths, sizes, times, names, [numbers[name] for name in names], range(len(files)), tasks]
    schema = FILE_SCHEMA.append(pa.field("task", pa.int32(), False))
    table = pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )
    return session.createDataFrame(table).repartitionById(task + 1, "task").drop("task")


def run_exact(
    session: "SparkSession", files: Sequence[Listed], options: Options, series: str, sink: Sink
) -> "DataFrame":
    """Every segment shuffled to the task of its connection, sorted, dissected; what ``sink`` makes of the rows."""
    from zmtpsniff.spark.exact import ORDER, SEGMENT_SCHEMA, dissected, segments

    parts = max(_LEAST_PARTS, sum(file.size for file in files) // _PART_OCTETS)
    into, schema = sink

    def read(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return segments(batches, options, parts)

    def dissect(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return into(dissected(batches, options, parts))

    types = {"int32": "INT", "int64": "BIGINT", "binary": "BINARY"}
    layout = ", ".join(f"`{field.name}` {types[str(field.type)]} NOT NULL" for field in SEGMENT_SCHEMA)
    shuffled = files_frame(session, files, series).mapInArrow(read, layout).repartitionById(parts, "part")
    return shuffled.sortWithinPartitions(*ORDER).mapInArrow(dissect, schema)
