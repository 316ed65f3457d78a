"""The plan of a stream that follows folders: its operator keeps the states of series in Spark's state store, RocksDB.

Files, a row each, get to the task of their series, which dissects them (:mod:`zmtpsniff.spark.taking`). What comes out
is what there is to commit: rows of the tables do not pass through the JVM.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.functions import udf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from zmtpsniff.spark.listing import Listed, series_of
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.session import silent_python
from zmtpsniff.spark.shards import Entries
from zmtpsniff.spark.taking import Position, Task
from zmtpsniff.spark.tasks import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POSITION = "zmtpsniff.position"
_LINES = "series STRING, what STRING, path STRING, rows BIGINT"
_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A micro-batch writes what it changes, and not its part of the database.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_LOCAL = re.compile(r"file:(?://)?(?=/)")


def taken(files: "DataFrame", options: Options, series: str) -> "DataFrame":
    """What there is to commit of a stream of files, rows of path, length and time in nanoseconds since the Unix epoch.

    ``series`` is the rule that says which files are of one series.
    """
    name = udf(lambda path: series_of(plain(path), series), "STRING")
    with _silently(files.sparkSession):
        keyed = files.withColumn("series", name("path"))
        return keyed.groupBy("series").transformWithState(Processor(options), _LINES, "Update", "None")


@contextmanager
def _silently(session: "SparkSession") -> Iterator[None]:
    """Have the functions of a plan run by a Python that does not print what it does for pyspark's developers.

    All of them, since those of one Python share a daemon. A cluster's machines do not have the script that this takes.
    """
    context = session.sparkContext
    before = context.pythonExec
    try:
        if is_local(session):
            context.pythonExec = silent_python(before)
        yield
    finally:
        context.pythonExec = before


def query_id(session: "SparkSession") -> str:
    """The query of whose micro-batch the calling thread is; its checkpoint keeps that name."""
    return str(session.sparkContext.getLocalProperty("sql.streaming.queryId"))


def tell_position(session: "SparkSession", position: Position) -> None:
    """Tell the tasks of the micro-batch that the calling thread begins where it stands."""
    session.sparkContext.setLocalProperty(_POSITION, msgspec.json.encode(position).decode())


@contextmanager
def settings(session: "SparkSession") -> Iterator[None]:
    """What a query has to be started with. It keeps that, and the number of its tasks, as long as its checkpoint."""
    wanted = {**_SETTINGS, "spark.sql.shuffle.partitions": str(session.sparkContext.defaultParallelism)}
    before = {name: session.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, known in before.items():
            if known is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, known)


def plain(path: str) -> str:
    """A local file, named as Hadoop does, by its path."""
    local = _LOCAL.match(path)
    return path if local is None else path[local.end() :]


def named(file: Listed) -> Listed:
    """A local file by its path, and with its time in nanoseconds, as a run that lists it itself has it."""
    path = plain(file.path)
    if path == file.path:
        return file
    try:
        stat = os.stat(path)
    except OSError:
        return file._replace(path=path)
    return Listed(path, stat.st_size, stat.st_mtime_ns)


class Processor(StatefulProcessor):
    """What a task does with each series."""

    def __init__(self, options: Options) -> None:
        """Dissect with ``options``."""
        self._options = options
        self._task: Task | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name what is kept of a series."""
        self._memory = _Memory(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Take the files of a series."""
        if self._task is None:
            context = TaskContext.get()
            assert context is not None
            position = msgspec.json.decode(str(context.getLocalProperty(_POSITION)), type=Position)
            self._task = Task(self._options, position)
        files = [named(Listed(row.path, row.length, row.modified_ns)) for row in rows]
        for line in self._task.take(key[0], files, self._memory):
            yield Row(**line._asdict())

    def close(self) -> None:
        """There are no more series."""
        if self._task is not None:
            self._task.close()


class _Memory:
    """What the state store keeps of the series at hand."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._note = handle.getValueState("note", "note BINARY")
        self._files = handle.getMapState("files", "path STRING", "known BOOLEAN")
        self._shards = handle.getMapState("shards", "number INT", "groups BINARY")
        self.shards: Entries = _Entries(self._shards)

    def read_note(self) -> bytes | None:
        found = self._note.get()
        return None if found is None else bytes(found[0])

    def write_note(self, octets: bytes) -> None:
        self._note.update((octets,))

    def knows(self, path: str) -> bool:
        return self._files.containsKey((path,))

    def know(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._files.updateValue((path,), (True,))

    def forget(self) -> None:
        self._files.clear()
        self._shards.clear()


class _Entries:
    """A map of numbers to octets."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, number: int) -> bytes | None:
        found = self._state.getValue((number,))
        return None if found is None else bytes(found[0])

    def put(self, number: int, octets: bytes | None) -> None:
        if octets is not None:
            self._state.updateValue((number,), (octets,))
        elif self._state.containsKey((number,)):
            self._state.removeKey((number,))
