"""What keeps tables quick to ask: few large files, and nothing that nobody needs; tables of an earlier version."""

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType

from zmtpsniff.spark.locations import canonical, file_system
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.shard import NEVER
from zmtpsniff.spark.state_log import SCHEMA, STATES, StateLog
from zmtpsniff.spark.store import Store
from zmtpsniff.spark.tables import PARTITION, TABLES
from zmtpsniff.spark.writer import DataFile, TableWriter, statistics

_TIMES = {"connections": "start_ns", "captures": "first_ns"}  # what rows are in the order of; else time_ns
_LARGE = 64 << 20  # octets of a file that stays as it is
_TARGET = 256 << 20


class Optimization(NamedTuple):
    """Files that were made into others, and how many these are; days that were deleted; files that were deleted."""

    compacted: int
    made: int
    deleted: int
    vacuumed: int


def optimize(
    folder: str, keep_days: int | None = None, vacuum_hours: int = 168, today: date | None = None
) -> Optimization:
    """Make few files of many in each day, in the order of series and time; delete files that no table has any more.

    Days of more than ``keep_days`` ago are deleted. Files of earlier versions of the tables, and those that killed runs
    left, stay for ``vacuum_hours``. Raises SparkError, also if another run was first; it can be repeated.
    """
    from deltalake.exceptions import DeltaError

    store = Store(folder)
    if store.table(STATES) is None:
        raise SparkError(f"{folder}: there are no tables")
    store.open()
    compacted = made = deleted = vacuumed = 0
    try:
        for name in (*TABLES, STATES):
            table = store.opened(name)
            if name in TABLES:
                if keep_days is not None:
                    before = (today or datetime.now(UTC).date()) - timedelta(days=keep_days)
                    old = [day for day in store.days(name) if day < before]
                    if old:
                        table.delete(f"{PARTITION} < DATE '{before}'")
                    deleted += len(old)
                for day in store.days(name, _LARGE):
                    filters = [(PARTITION, "=", day.isoformat())]
                    done = table.optimize.z_order(
                        ["series", _TIMES.get(name, "time_ns")], partition_filters=filters, target_size=_TARGET
                    )
                    compacted += done["numFilesRemoved"]
                    made += done["numFilesAdded"]
            vacuumed += len(table.vacuum(vacuum_hours, dry_run=False, enforce_retention_duration=False, full=True))
            table.create_checkpoint()
            table.cleanup_metadata()
    except DeltaError as error:
        raise SparkError(f"{folder}: {' '.join(str(error).split())}: run this again") from error
    return Optimization(compacted, made, deleted, vacuumed)


class Conversion(NamedTuple):
    """Files that are part of tables now, their rows, and series with open connections whose states are lost."""

    files: int
    rows: int
    lost: int


def convert(folder: str) -> Conversion:
    """Make tables of Delta Lake of the Parquet files of version 0.9.0 in a folder.

    What is open cannot be read: with its next file such a series is dissected anew. Raises SparkError.
    """
    system, root = file_system(folder)
    store = Store(folder)
    if store.table(STATES) is not None:
        raise SparkError(f"{folder}: has tables of Delta Lake already")
    files: list[DataFile] = []
    for name in TABLES:
        for info in system.get_file_info(_files_in(f"{root}/{name}")):
            if info.type != FileType.File or not info.path.endswith(".parquet"):
                continue
            path = info.path[len(f"{root}/{name}/") :]
            day = path.partition("/")[0].removeprefix(f"{PARTITION}=")
            with system.open_input_file(info.path) as file:
                content = pq.ParquetFile(file).metadata
            filed = None if day.startswith("__") else day
            files.append(DataFile(name, path, info.size, filed, content.num_rows, statistics(content)))
    if not files:
        raise SparkError(f"{canonical(folder)}: there are no tables")
    store.open(has_files=True)
    lost = _open_series(store, [info.path for info in system.get_file_info(_files_in(f"{root}/_open"))])
    store.commit(0, [*files, *_lost_states(store, lost)], set(), set(), lambda: False)
    for old in ("_open", "_staging", "_journal", "_checkpoint", "_checkpoint_of_jobs"):
        if system.get_file_info(f"{root}/{old}").type == FileType.Directory:
            system.delete_dir(f"{root}/{old}")
    return Conversion(len(files), sum(file.rows for file in files), len(lost))


def _files_in(folder: str) -> FileSelector:
    return FileSelector(folder, recursive=True, allow_not_found=True)


def _open_series(store: Store, paths: list[str]) -> set[str]:
    """The series that version 0.9.0 left open connections of."""
    system, _ = file_system(store.location)
    series: set[str] = set()
    for path in paths:
        with system.open_input_file(path) as file:
            series |= set(pq.read_table(file, columns=["series"]).column("series").to_pylist())
    return series


def _lost_states(store: Store, series: set[str]) -> list[DataFile]:
    """A row for each series, which says that its states are lost."""
    row = {"name": b"", "number": 0, "over_ns": NEVER, "state": b""}
    writer = TableWriter(store.location, StateLog(store.location, []).next_prefix())
    writer.take(STATES, pa.RecordBatch.from_pylist([row | {"series": one} for one in sorted(series)], schema=SCHEMA))
    return writer.close()
