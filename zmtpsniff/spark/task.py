"""What one task does: it dissects shards of series, and writes their rows and the states that they change."""

from collections.abc import Sequence
from typing import Any

import msgspec

from zmtpsniff.collector import spare_collector
from zmtpsniff.spark.listing import FileInfo
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.shard import MemoryStates, Part, Shard, ShardRows
from zmtpsniff.spark.state_log import STATES, ShardStates, StateLog
from zmtpsniff.spark.writing import DataFile, Writer


class Work(msgspec.Struct, frozen=True):
    """A shard of a series, and the new files of the series.

    With ``anew`` the files are all that the series has. Of those ``alone``, which come before what is known but cannot
    be read with it, each run of connections is dissected as if nothing else were there.
    """

    series: str
    part: Part
    files: list[FileInfo]
    anew: bool = False
    alone: list[FileInfo] = []


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


def dissect(job: Job, works: Sequence[Work]) -> TaskOutcome:
    """Dissect shards."""
    spare_collector()
    writer = Writer(job.folder, job.prefix)
    unreadable = [work.series for work in works if not _dissect(job, work, writer)]
    return TaskOutcome(writer.close(), unreadable)


def _dissect(job: Job, work: Work, writer: Writer) -> bool:
    """Dissect a shard; whether all of its states could be read."""
    log = StateLog(job.folder, job.states)
    states = ShardStates(log, work.series, work.part, work.anew)
    part = msgspec.structs.replace(work.part, first_group=states.first_group)
    main = Shard(_paths(work.files), job.options, states, part)
    _write(work.series, main, work.files, job.options, writer)
    for rows in states.changes():
        writer.take(STATES, rows)
    states.close()
    if work.alone:
        after = part.first_file + len(work.files)
        part = msgspec.structs.replace(part, first_file=after, first_group=0, end_ns=0)
        shard = Shard(_paths(work.alone), job.options._replace(tells_open=True), MemoryStates(), part)
        _write(work.series, shard, work.alone, job.options, writer, stays=True)
    return not main.has_unreadable_states


def _paths(files: Sequence[FileInfo]) -> list[str]:
    return [file.path for file in files]


def _write(series: str, shard: Shard, files: Sequence[FileInfo], options: Options, writer: Writer, **how: Any) -> None:
    for table, rows, provisional in ShardRows(series, shard, options, **how).all({file.path: file for file in files}):
        writer.take(table, rows, provisional)
