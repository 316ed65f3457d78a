"""A folder that fills with captures, followed with Structured Streaming.

Spark's file source notices files and remembers, in the checkpoint, which of them it has given out; its state store has
the states of what is open (:mod:`zmtpsniff.spark.stateful`). The rows that a micro-batch makes, the states that it
changes and the names of its files go into the tables' folder as one commit (:mod:`zmtpsniff.spark.store`). A
micro-batch that Spark repeats after a crash finds its files there, if it was committed, and does nothing; if it was
not, there is nothing of it. So every row is there once, whenever who dies.

Where only Spark can open the files, each micro-batch is a run of its own instead, from what the folder has.
"""

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from functools import reduce
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from zmtpsniff.spark.committing import Ingested, commit_batch
from zmtpsniff.spark.ingest import add
from zmtpsniff.spark.inputs import is_readable_in_python, is_special, local_path
from zmtpsniff.spark.listing import Listed, check_series, tables_of
from zmtpsniff.spark.options import MOST_FILES, Options
from zmtpsniff.spark.quiet import tell_quiet
from zmtpsniff.spark.session import SparkError, first_line
from zmtpsniff.spark.taking import Position, Taken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT = "_checkpoint"
"""Where in the tables' folder Spark keeps which files it has given out and what is open, unless asked otherwise."""

_OF_JOBS = "_of_jobs"  # what the name of a checkpoint ends with that is of another plan, which Spark would mistake
_EVERY_SECONDS = 10
_QUIET_SECONDS = 60  # at least, between two looks at what is quiet
# What Spark says where Python takes more than ten seconds to start, which a machine that has much to do may need.
_SLOW = "Python worker failed to connect back"
_MOST_STARTS = 5
# A late file may be as old as it likes: Spark ignores what is older than this, compared with the latest file.
_ANY_AGE = "36500d"
_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"


def follow(
    session: "SparkSession",
    inputs: Sequence[str],
    output: str,
    options: Options | None = None,
    series: str = "folder",
    checkpoint: str | None = None,
    once: bool = False,
    most_files: int = MOST_FILES,
    told: Callable[[Ingested], None] | None = None,
) -> "Following":
    """Add the files that are in folders, and those that will be, to the tables of ``output``, from now on.

    ``inputs`` are folders, or globs of folders. A file is taken as soon as it is seen, so it must be renamed into its
    folder when it is whole; names that begin with "." or "_" are left alone. The row of a connection comes once it is
    over, or idle for ``options.idle_seconds``. ``told`` is called after each micro-batch, of at most ``most_files``
    files. With ``once`` the query ends when it has taken what is there. Raises SparkError, and ValueError for
    a ``series`` that is none.
    """
    check_series(series)
    if not output:
        raise SparkError("--output: it is empty; give a path or URL")
    if not hasattr(session, "_jsc"):
        raise SparkError("--follow: not through Spark Connect; give the master itself (spark://host:7077)")

    from pyspark.errors import PySparkException

    from zmtpsniff.spark.stateful import named, query_id, settings, taken, tell_position

    asked = (options or Options())._replace(tells_open=False)
    turn = Lock()  # one writes at a time
    stopping = Event()
    stateful = all(map(is_readable_in_python, inputs))
    where = _url(checkpoint or f"{output.rstrip('/')}/{CHECKPOINT}").rstrip("/") + ("" if stateful else _OF_JOBS)

    def take(frame: "DataFrame", number: int) -> None:
        try:
            take_batch(frame, number)
        except Exception:
            # What stopping does to a batch is not told at length: Spark searches all of it for whether it was stopped,
            # with an expression by which its stack overflows.
            if stopping.is_set():
                raise SparkError("stopped") from None
            raise

    def take_batch(frame: "DataFrame", number: int) -> None:
        def dissect(position: Position) -> list[Taken]:
            tell_position(session, position)
            return [Taken(*row) for row in frame.collect()]

        if stateful:
            with turn:
                done = commit_batch(output, query_id(session), number, dissect)
        else:
            files = sorted({named(Listed(*row)) for row in frame.collect()})
            files = [file for file in files if not is_special(file.path)]
            with turn:
                done = add(session, files, output, asked, series)
        if told is not None:
            told(done)

    try:
        some = (_files(session, one, most_files) for one in inputs)
        files = reduce(lambda one, other: one.unionAll(other), some)
        files = files.where(~files.path.rlike(tables_of(output)))
        writer = (taken(files, asked, series) if stateful else files).writeStream.foreachBatch(take)
        writer = writer.outputMode("update").option("checkpointLocation", where)
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{_EVERY_SECONDS} seconds"}
        writer = writer.trigger(**trigger)

        def start() -> "StreamingQuery":
            with settings(session) if stateful else nullcontext():
                return writer.start()

        return Following(start, turn, output, asked, stopping)
    except PySparkException as error:
        raise SparkError(f"--follow: {first_line(error)}") from error


class Following:
    """A query that takes files."""

    def __init__(
        self,
        start: Callable[[], "StreamingQuery"],
        turn: Lock,
        output: str,
        options: Options,
        stopping: Event | None = None,
    ) -> None:
        """Made by :func:`follow`."""
        self._stopping = stopping or Event()
        self.query = start()
        self._start = start
        self._starts = 1
        self._turn = turn
        self._output = output
        self._options = options

    def wait(self) -> None:
        """Wait until it has ended, and tell of series where no file comes any more. Raises SparkError if it fails.

        What interrupts the calling thread, as Ctrl-C does, finds it waiting for another one: in mid-call py4j would be
        left with an answer that nobody takes.
        """
        waiting = Future[None]()

        def wait() -> None:
            try:
                self._wait()
                waiting.set_result(None)
            except BaseException as error:
                waiting.set_exception(error)

        Thread(target=wait, daemon=True).start()
        waiting.result()

    def _wait(self) -> None:
        from pyspark.errors import PySparkException

        ended = False
        while not ended:
            try:
                ended = bool(self.query.awaitTermination(max(_QUIET_SECONDS, int(self._options.idle_seconds / 10))))
            except PySparkException as error:
                if _SLOW not in str(error) or self._starts == _MOST_STARTS:
                    raise SparkError(f"--follow: {_cause(error)}") from error
                self._starts += 1
                self.query = self._start()
            else:
                self._tell_quiet()

    def stop(self) -> None:
        """End it, in mid-batch if it is in one: that is taken again next time."""
        self._stopping.set()
        self.query.stop()

    def _tell_quiet(self) -> None:
        # Who else writes to the tables may do so; there is a next time.
        with self._turn, suppress(SparkError):
            tell_quiet(self._output, self._options)


def _cause(error: Exception) -> str:
    """Our own word on it, where a micro-batch failed with one."""
    found = re.search(r"SparkError: (.*)", str(error))
    return found[1] if found else first_line(error)


def _files(session: "SparkSession", name: str, most_files: int) -> "DataFrame":
    """The files of a folder, as they come; what is in them is not read."""
    source = session.readStream.format("binaryFile").schema(_FILES).option("recursiveFileLookup", "true")
    source = source.option("maxFilesPerTrigger", most_files).option("maxFileAge", _ANY_AGE)
    # One that is gone again by the time it is its turn is no reason to stop.
    source = source.option("ignoreMissingFiles", "true")
    return source.load(_url(name)).selectExpr("path", "length", "unix_micros(modificationTime) * 1000 AS modified_ns")


def _url(name: str) -> str:
    local = local_path(name)
    return name if local is None else os.path.abspath(local)
