"""What the join made of the pieces of a run, on Spark or in this process; verdicts applied to the rows that wait.

Spark takes seconds to plan and run a stage, however few its rows are.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from zmtpsniff.spark.joining import JOIN_SCHEMA
from zmtpsniff.spark.tasks import Function, run_here
from zmtpsniff.spark.verdicts import applied
from zmtpsniff.spark.writing import MANIFEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_PIECES = 128 << 20  # octets that pieces take in the memory of a task
_FEW_PIECES = 32 << 20  # those that a task gets, where parts can be shared out so
_MOST_IN_ALL = 2 << 30  # what is told of them is in the memory of this process
# Octets of files with pieces that are joined, and with rows that are judged, in this process: with more of them, tasks
# of this machine are done sooner.
_MOST_JOINED = 1 << 20
_MOST_WAITING = 4 << 20
_JOINED_ROWS = 1024  # pieces that the driver makes Python objects of at once
_TOLD = ("task", "path", "rows", "octets")
_OTHERS = ("task", "key", "judged")

PIECES_ORDER = ("group", "first_ns", "file_no")
"""The columns that pieces are sorted by before they are joined."""


class Written(NamedTuple):
    """A file that a task has written."""

    task: int
    path: str
    rows: int
    octets: int


def shares_of(folder: str, files: Sequence[Written], states: pa.Table, parts: int, processors: int) -> list[list[int]]:
    """The parts of the pieces in some files of a folder, and of ``states``, that each task of this machine is to join.

    An empty list if they do not fit into the memory of such tasks.
    """
    sizes = [states.nbytes // parts] * parts
    for file in files:
        with _opened(folder, file.path) as parquet:
            for group in range(parquet.metadata.num_row_groups):
                # What was compressed well is much more in memory than in the file.
                octets = parquet.metadata.row_group(group).total_byte_size
                for part in _parts_in(parquet, group):
                    sizes[part] += octets
    if states.nbytes > _MOST_PIECES or sum(sizes) > _MOST_IN_ALL:
        return []
    few = sum(file.octets for file in files) + states.nbytes <= _MOST_JOINED
    wanted = 1 if few else max(processors, -(-sum(sizes) // _FEW_PIECES))
    for tasks in (min(wanted, parts), parts):
        shares = [[*range(task, parts, tasks)] for task in range(tasks)]
        if max(sum(sizes[part] for part in share) for share in shares) <= _MOST_PIECES:
            return shares
    return []


def _parts_in(parquet: pq.ParquetFile, group: int) -> range:
    """The parts that a row group has pieces of: one, as tasks of this machine write them."""
    found = parquet.metadata.row_group(group).column(0).statistics
    return range(found.min, found.max + 1)


@contextmanager
def _opened(folder: str, name: str) -> Iterator[pq.ParquetFile]:
    system, root = FileSystem.from_uri(folder)
    with system.open_input_file(f"{root}/{name}") as file:
        yield pq.ParquetFile(file)


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


def here(
    session: "SparkSession",
    folder: str,
    files: Sequence[Written],
    states: pa.Table,
    shares: Sequence[Sequence[int]],
    join: Function,
) -> Joined:
    """What ``join`` tells of the pieces in files and of ``states``, kept in memory; each task has a share of the parts.

    Tasks, which run on this machine, read and write in ``folder``; one alone is done in this process.
    """
    names = [file.path for file in files]

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.default_memory_pool().release_unused()  # what scanning has left
        for batch in batches:
            for task in batch.column("task").to_pylist():
                its = pa.array(shares[task], pa.int32())
                found = [states.filter(pc.is_in(states.column("part"), value_set=its))]
                for name in names:
                    with _opened(folder, name) as parquet:
                        groups = [
                            group
                            for group in range(parquet.metadata.num_row_groups)
                            if not set(shares[task]).isdisjoint(_parts_in(parquet, group))
                        ]
                        pieces = parquet.read_row_groups(groups).cast(states.schema)
                    found.append(pieces.filter(pc.is_in(pieces.column("part"), value_set=its)))
                ordered = pa.concat_tables(found).sort_by([(column, "ascending") for column in PIECES_ORDER])
                del found  # which has all of it, too
                yield from join(ordered.to_batches(_JOINED_ROWS))

    numbers = pa.table({"task": range(len(shares))})
    return _Here(session, run_here(session, numbers, work) if len(shares) > 1 else work(numbers.to_batches()), folder)


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
    def __init__(self, session: "SparkSession", batches: Iterable[pa.RecordBatch], folder: str) -> None:
        self._session = session
        self._table = pa.Table.from_batches(list(batches), schema=JOIN_SCHEMA)
        self._folder = folder

    def told(self) -> list[Written]:
        return [Written(*row) for row in self._values(_TOLD) if row[1]]

    def judged(self) -> Iterator[tuple[int, int, bytes]]:
        for path, *row in self._values(("path", *_OTHERS)):
            if not path:
                yield tuple(row)

    def apply(self, waiting: Sequence[Written]) -> list[Written]:
        folder = self._folder
        found = _rows_of(waiting)
        of_them = pc.is_in(self._table.column("task"), value_set=pc.unique(found.column("task")))
        verdicts = self._table.filter(pc.and_(pc.equal(self._table.column("path"), ""), of_them))
        rows = pa.concat_tables([found, verdicts])
        if sum(row.octets for row in waiting) > _MOST_WAITING:
            told = run_here(self._session, rows, lambda batches: applied(batches, folder))
        else:
            told = [*applied(rows.to_batches(), folder)]
        return written_in(told)

    def close(self) -> None:
        pass

    def _values(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        for batch in self._table.select(list(names)).to_batches(_JOINED_ROWS):  # not Python objects of all at once
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def written_in(told: Iterable[pa.RecordBatch]) -> list[Written]:
    """The files that tasks have written, rows of MANIFEST_SCHEMA."""
    return [Written(**row) for batch in told for row in batch.to_pylist()]


def written(manifest: "DataFrame") -> list[Written]:
    """The files that tasks have written, of what they tell."""
    return [Written(*row) for row in manifest.collect()]


def _rows_of(waiting: Sequence[Written]) -> pa.Table:
    rows = [{"task": row.task, "path": row.path, "rows": 0, "octets": 0, "key": 0, "judged": b""} for row in waiting]
    return pa.Table.from_pylist(rows, schema=JOIN_SCHEMA)
