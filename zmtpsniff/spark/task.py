"""What one task does: it dissects shards of series, and writes their rows and the states that they change."""

from collections.abc import Sequence

import msgspec

from zmtpsniff.collector import spare_collector
from zmtpsniff.spark.file_list import FileInfo
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.shard import MemoryStates, Shard, ShardRows, ShardSpec
from zmtpsniff.spark.state_log import STATES, ShardStates, StateLog
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


class TaskOutcome(msgspec.Struct, frozen=True):
    """What a task did: the files that it wrote, and the series with states that it could not read."""

    files: list[DataFile]
    unreadable: list[str]


class Job(msgspec.Struct, frozen=True):
    """What all tasks of a run are told: the tables' folder, its files of states, how the names of new files begin."""

    folder: str
    states: list[str]
    prefix: str
    options: Options


def dissect(job: Job, tasks: Sequence[ShardTask]) -> TaskOutcome:
    """Dissect shards."""
    spare_collector()
    writer = TableWriter(job.folder, job.prefix)
    unreadable = [task.series for task in tasks if not _dissect(job, task, writer)]
    return TaskOutcome(writer.close(), unreadable)


def _dissect(job: Job, task: ShardTask, writer: TableWriter) -> bool:
    """Dissect a shard; whether all of its states could be read."""
    log = StateLog(job.folder, job.states)
    states = ShardStates(log, task.series, task.spec, task.anew)
    spec = msgspec.structs.replace(task.spec, first_group=states.first_group)
    shard = Shard([file.path for file in task.files], job.options, states, spec)
    _write(task, shard, job.options, writer)
    for rows in states.changes():
        writer.take(STATES, rows)
    states.close()
    if task.alone:
        after = spec.first_file + len(task.files)
        spec = msgspec.structs.replace(spec, first_file=after, first_group=0, end_ns=0)
        options = job.options._replace(tells_open=True)
        alone = Shard([file.path for file in task.alone], options, MemoryStates(), spec)
        _write(task, alone, options, writer, stays=True)
    return not shard.has_unreadable_states


def _write(task: ShardTask, shard: Shard, options: Options, writer: TableWriter, stays: bool = False) -> None:
    listed = {file.path: file for file in (*task.files, *task.alone)}
    for table, rows, provisional in ShardRows(task.series, shard, options, stays=stays).all(listed):
        writer.take(table, rows, provisional)
