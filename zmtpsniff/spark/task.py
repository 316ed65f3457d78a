"""The work of one task: it dissects shards of series, and writes their rows and the states that they change."""

from collections.abc import Iterator, Sequence
from socket import gethostname
from sqlite3 import DatabaseError

import msgspec
from msgspec.structs import replace

from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.engine.memory import spare_collector
from zmtpsniff.errors import one_line
from zmtpsniff.spark.open_states import STATES, ShardStates
from zmtpsniff.spark.options import Options, ShardSpec
from zmtpsniff.spark.rows import Batch
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.shard import Shard, ShardRows
from zmtpsniff.spark.writer import DataFile, TableWriter


class ShardTask(msgspec.Struct, frozen=True):
    """A shard of a series, and the new files of the series.

    With ``anew`` the files are all that the series has. Of those ``alone``, which come before what is known but cannot
    be read with it, each run of connections is dissected as if nothing else were there.
    """

    series: str
    spec: ShardSpec
    files: list[FileInfo]
    anew: bool = False
    alone: list[FileInfo] = []

    @property
    def octets(self) -> int:
        """The size of the files."""
        return sum(file.size for file in (*self.files, *self.alone))

    def parts(self, count: int) -> "list[ShardTask]":
        """This task, for one shard of its series, as ``count`` tasks."""
        return [replace(self, spec=replace(self.spec, number=number, count=count)) for number in range(count)]


class TaskError(SparkError):
    """A task cannot run where it is. Spark tries it again, and reports the text of the last try."""


class TaskOutcome(msgspec.Struct, frozen=True):
    """The results of a task: the files that it wrote, and the series whose states it could not read."""

    files: list[DataFile]
    unreadable: list[str]


class Job(msgspec.Struct, frozen=True):
    """The orders for all tasks of a run: the tables' folder, its files of states, options."""

    folder: str
    states: list[str]
    options: Options


def dissect(job: Job, tasks: Sequence[ShardTask]) -> TaskOutcome:
    """Dissect shards; raises TaskError if nothing can be written."""
    spare_collector()
    writer = TableWriter(job.folder)
    unreadable: list[str] = []
    try:
        for task in tasks:
            for table, rows, provisional in rows_of(job, task, unreadable):
                writer.take(table, rows, provisional)
        return TaskOutcome(writer.close(), unreadable)
    except (OSError, DatabaseError) as error:  # states are on a disk of the worker
        writer.discard()
        raise TaskError(f"--output {job.folder}: {gethostname()} says: {one_line(error)}") from error


def rows_of(job: Job, task: ShardTask, unreadable: list[str], kinds: tuple[type, ...] | None = None) -> Iterator[Batch]:
    """Dissect a shard: its rows, or those of some ``kinds`` of events, and those of the states of its series.

    In the end ``unreadable`` has the series if some of its states could not be read.
    """
    states = ShardStates(job.folder, [] if task.anew else job.states, task.series)
    spec = task.spec
    shard = Shard([file.path for file in task.files], job.options, states, spec)
    listed = {file.path: file for file in (*task.files, *task.alone)}
    yield from ShardRows(task.series, shard, job.options, kinds).all(listed)
    for rows in states.rows() if spec.number == 0 else ():  # all shards have the same ones
        yield STATES, rows, False
    states.close()
    if task.alone:
        after = spec.first_file + len(task.files)
        spec = replace(spec, first_file=after, end_ns=0)
        options = job.options._replace(tells_open=True)
        states = ShardStates(job.folder, [], task.series)
        alone = Shard([file.path for file in task.alone], options, states, spec)
        yield from ShardRows(task.series, alone, options, kinds, stays=True).all(listed)
    if shard.has_unreadable_states:
        unreadable.append(task.series)
