"""A run on Spark: series go to tasks, which dissect them from file to file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from zmtpsniff.spark.inputs import is_readable_in_python
from zmtpsniff.spark.listing import Listed
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.taking import Position, Taken
from zmtpsniff.spark.tasks import is_local, run_here

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_TASK_OCTETS = 16 << 20  # of capture files of small series that a task gets together
_LINES = "series STRING, what STRING, path STRING, rows BIGINT"


class Part(NamedTuple):
    """A series and new files of it, for one task; ``anew`` if they are all, and replace what is known of it.

    ``known`` is how many files of it the tables have, ``latest`` what latest_of() says of these.
    """

    series: str
    files: Sequence[Listed]
    anew: bool = False
    known: int = 0
    latest: tuple[int, int] | None = None


def run(session: "SparkSession", parts: Sequence[Part], options: Options, position: Position) -> list[Taken]:
    """Have tasks dissect series and write their rows; what there is to commit."""

    def take(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        from zmtpsniff.spark.taking import Task

        with _received(batches) as (mine, copies):
            task = Task(options, position, copies)
            lines = [line for part in mine for line in task.add(*part)]
            task.close()
        yield pa.RecordBatch.from_pylist([line._asdict() for line in lines])

    lines = [Taken(part.series, "anew", "", 0) for part in parts if not part.files]
    table = _table([part for part in parts if part.files])
    if is_local(session) and all(is_readable_in_python(file.path) for part in parts for file in part.files):
        return lines + [Taken(**line) for batch in run_here(session, table, take) for line in batch.to_pylist()]
    return lines + [Taken(*row) for row in _frame(session, table).mapInArrow(take, _LINES).collect()]


def rows_of(session: "SparkSession", parts: Sequence[Part], options: Options) -> "DataFrame":
    """What the files of series say, nothing being known of them: rows of all tables, a struct column for each."""
    from zmtpsniff.spark.tables import TABLES, ddl

    def tell(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from zmtpsniff.spark import whole
        from zmtpsniff.spark.rows import wrap

        with _received(batches) as (mine, copies):
            for part in mine:
                for table, batch, _ in whole.rows_of(part.series, part.files, options, copies):
                    yield wrap(table, batch)

    schema = ", ".join(f"{table} STRUCT<{ddl(table)}>" for table in TABLES)
    return _frame(session, _table(parts)).mapInArrow(tell, schema)


def _table(parts: Sequence[Part]) -> "pa.Table":
    """A row for each file."""
    import pyarrow as pa

    schema = pa.schema(
        [
            pa.field("path", pa.string(), False),
            pa.field("size", pa.int64(), False),
            pa.field("modified_ns", pa.int64(), False),
            pa.field("series", pa.string(), False),
            pa.field("anew", pa.bool_(), False),
            pa.field("known", pa.int64(), False),
            pa.field("latest", pa.list_(pa.int64(), 2), True),
            pa.field("task", pa.int32(), False),
        ]
    )
    found = [
        {**part._asdict(), **file._asdict(), "task": task}
        for task, some in enumerate(_shares(parts))
        for part in some
        for file in part.files
    ]
    return pa.Table.from_pylist(found, schema=schema)


def _shares(parts: Sequence[Part]) -> list[list[Part]]:
    """The series that each task gets: those that are large begin first, those that are small share a task."""
    shares: list[list[Part]] = []
    room = 0
    sizes = [(sum(file.size for file in part.files), part) for part in parts]
    for octets, part in sorted(sizes, key=lambda one: (-one[0], one[1].series)):
        if not shares or octets > room:
            shares.append([])
            room = _TASK_OCTETS
        shares[-1].append(part)
        room -= octets
    return shares


def _frame(session: "SparkSession", table: "pa.Table") -> "DataFrame":
    """The files as a data frame, each with its task; those that only Spark can open with their content."""
    frame = session.createDataFrame(table)
    foreign = [path for path in table.column("path").to_pylist() if not is_readable_in_python(path)]
    if foreign:
        content = session.read.format("binaryFile").load(foreign).select("path", "content")
        frame = frame.join(content, "path", "left")
    tasks = len(set(table.column("task").to_pylist()))
    return frame.repartitionById(tasks, "task") if tasks > 1 else frame.coalesce(1)


@contextmanager
def _received(batches: "Iterable[pa.RecordBatch]") -> Iterator[tuple[list[Part], Mapping[str, str]]]:
    """The series of a task, and where files are copied to whose content came with them, by their paths."""
    with TemporaryDirectory(prefix="zmtpsniff-") as folder:
        parts: dict[str, Part] = {}
        copies: dict[str, str] = {}
        for batch in batches:
            for row in batch.to_pylist():
                file = Listed(row["path"], row["size"], row["modified_ns"])
                latest = None if row["latest"] is None else tuple(row["latest"])
                part: Any = parts.setdefault(
                    row["series"],
                    Part(row["series"], [], row["anew"], row["known"], latest),
                )
                part.files.append(file)
                if row.get("content") is not None:
                    copy = Path(folder, str(len(copies)))
                    copy.write_bytes(row["content"])
                    copies[file.path] = str(copy)
        yield [part._replace(files=sorted(part.files)) for part in parts.values()], copies
