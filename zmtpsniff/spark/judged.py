"""What the join made of the pieces of a run, on Spark or in this process; verdicts applied to the rows that wait.

Spark takes seconds to plan and run a stage, however few its rows are.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from zmtpsniff.spark.joining import JOIN_SCHEMA
from zmtpsniff.spark.verdicts import applied
from zmtpsniff.spark.writing import MANIFEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_PIECES = 1 << 20  # octets of pieces that are joined here
_MOST_WAITING = 4 << 20  # octets of files with rows that are judged here
_TOLD = ("task", "path", "rows", "octets")
_OTHERS = ("task", "key", "judged")


class Written(NamedTuple):
    """A file that a task has written."""

    task: int
    path: str
    rows: int
    octets: int


def few_pieces(folder: str, files: Sequence[Written], states: pa.Table) -> pa.Table | None:
    """The pieces in some files of a folder and those of ``states``, rows of PIECE_SCHEMA; None if they are many."""
    left = _MOST_PIECES - states.nbytes
    if sum(file.octets for file in files) > left:
        return None
    system, root = FileSystem.from_uri(folder)
    tables = [states]
    for file in files:
        with system.open_input_file(f"{root}/{file.path}") as opened:
            parquet = pq.ParquetFile(opened)
            metadata = parquet.metadata
            left -= sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
            if left < 0:  # what was compressed well
                return None
            tables.append(parquet.read().cast(states.schema))
    return pa.concat_tables(tables)


class Joined(Protocol):
    """What the join told, rows of JOIN_SCHEMA."""

    def told(self) -> list[Written]:
        """The files that it wrote."""

    def judged(self) -> Iterator[tuple[int, int, bytes]]:
        """Of each piece whose rows do not simply hold: the task that wrote them, its key, what becomes of them."""

    def apply(self, waiting: Sequence[Written]) -> list[Written]:
        """Write again what waits for verdicts; the files that this makes."""

    def close(self) -> None:
        """Let go of it."""


def on_spark(session: "SparkSession", frame: "DataFrame", folder: str, tasks: int) -> Joined:
    """What is told by ``frame``, kept on the executors' disks; ``tasks`` have scanned, and write into ``folder``."""
    return _OnSpark(session, frame, folder, tasks)


def here(session: "SparkSession", batches: Iterable[pa.RecordBatch], folder: str, tasks: int) -> Joined:
    """What is told by ``batches``, kept in memory."""
    return _Here(session, batches, folder, tasks)


class _OnSpark:
    def __init__(self, session: "SparkSession", frame: "DataFrame", folder: str, tasks: int) -> None:
        from pyspark import StorageLevel

        self._session = session
        self._frame = frame.persist(StorageLevel.DISK_ONLY)
        self._folder = folder
        self._tasks = tasks

    def told(self) -> list[Written]:
        return written(self._frame.where("path <> ''").select(*_TOLD))

    def judged(self) -> Iterator[tuple[int, int, bytes]]:
        for row in self._frame.where("path = ''").select(*_OTHERS).toLocalIterator():
            yield row.task, row.key, bytes(row.judged)

    def apply(self, waiting: Sequence[Written]) -> list[Written]:
        folder = self._folder

        def apply(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return applied(batches, folder)

        frame = self._session.createDataFrame(_rows_of(waiting)).unionAll(self._frame.where("path = ''"))
        return written(frame.repartitionById(self._tasks, "task").mapInArrow(apply, MANIFEST))

    def close(self) -> None:
        self._frame.unpersist()


class _Here:
    def __init__(self, session: "SparkSession", batches: Iterable[pa.RecordBatch], folder: str, tasks: int) -> None:
        self._session = session
        self._table = pa.Table.from_batches(list(batches), schema=JOIN_SCHEMA)
        self._folder = folder
        self._tasks = tasks

    def told(self) -> list[Written]:
        return [Written(*row) for row in self._values(_TOLD) if row[1]]

    def judged(self) -> Iterator[tuple[int, int, bytes]]:
        for path, *row in self._values(("path", *_OTHERS)):
            if not path:
                yield tuple(row)

    def apply(self, waiting: Sequence[Written]) -> list[Written]:
        if sum(row.octets for row in waiting) > _MOST_WAITING:
            frame = self._session.createDataFrame(self._table)
            return on_spark(self._session, frame, self._folder, self._tasks).apply(waiting)
        others = self._table.filter(pc.equal(self._table.column("path"), ""))
        rows = pa.concat_tables([_rows_of(waiting), others])
        return [Written(**row) for told in applied(rows.to_batches(), self._folder) for row in told.to_pylist()]

    def close(self) -> None:
        pass

    def _values(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        return zip(*(self._table.column(name).to_pylist() for name in names), strict=True)


def written(manifest: "DataFrame") -> list[Written]:
    """The files that tasks have written, of what they tell."""
    return [Written(*row) for row in manifest.collect()]


def _rows_of(waiting: Sequence[Written]) -> pa.Table:
    rows = [{"task": row.task, "path": row.path, "rows": 0, "octets": 0, "key": 0, "judged": b""} for row in waiting]
    return pa.Table.from_pylist(rows, schema=JOIN_SCHEMA)
