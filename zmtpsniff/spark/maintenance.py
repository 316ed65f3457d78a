"""Maintenance of tables: few large files, none that are needless, and tables of earlier versions."""

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import deltalake
import pyarrow as pa
from deltalake import convert_to_deltalake
from pyarrow.dataset import dataset
from pyarrow.fs import FileSelector

from zmtpsniff.capture.locations import canonical, delta_options, file_system
from zmtpsniff.errors import one_line
from zmtpsniff.spark.session import NoTablesError, SparkError
from zmtpsniff.spark.state_log import NEVER, SCHEMA, STATES, StateLog
from zmtpsniff.spark.store import SETTINGS, Store
from zmtpsniff.spark.tables import PARTITION, TABLES
from zmtpsniff.spark.writer import TableWriter

_TIMES = {"connections": "start_ns", "captures": "first_ns"}  # by which rows are in order; else time_ns
_LARGE = 64 << 20  # octets of a file that stays as it is
_TARGET = 256 << 20


class Optimization(NamedTuple):
    """Files that were made into others, and how many these are; files of old days; files that no table has any more."""

    compacted: int
    made: int
    deleted: int
    vacuumed: int


def optimize(
    folder: str, keep_days: int | None = None, vacuum_hours: int = 168, today: date | None = None
) -> Optimization:
    """Make few files of many in each day, in the order of series and time; delete files that no table has any more.

    Days of more than ``keep_days`` ago are deleted. ``captures`` keeps all days, so that no run reads an old file
    again. Files of earlier versions of the tables, and those that killed runs left, stay for ``vacuum_hours``. Raises
    SparkError, also if another run was first; then it can be repeated.
    """
    from deltalake.exceptions import DeltaError

    store = Store(folder)
    if store.table(STATES) is None:
        raise NoTablesError(folder)
    store.open()
    compacted = made = deleted = vacuumed = 0
    try:
        for name in (*TABLES, STATES):
            table = store.opened(name)
            if name in TABLES:
                if keep_days is not None and name != "captures":
                    before = (today or datetime.now(UTC).date()) - timedelta(days=keep_days)
                    deleted += table.delete(f"{PARTITION} < DATE '{before}'")["num_removed_files"]
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
        raise SparkError(f"{folder}: {one_line(error)}: run this again") from error
    return Optimization(compacted, made, deleted, vacuumed)


def convert(folder: str) -> int:
    """Make tables of Delta Lake of the Parquet files of version 0.9.0 in a folder.

    States of open connections cannot be read: the next file of such a series has the series dissected anew. Returns the
    number of these series.
    """
    system, root = file_system(folder)
    store = Store(folder)
    found = {info.base_name for info in system.get_file_info(FileSelector(root, allow_not_found=True))}
    old = found & {"_open", "_staging", "_journal", "_checkpoint", "_checkpoint_of_jobs"}
    if STATES in found and not old:
        raise SparkError(f"{folder}: has tables of Delta Lake already")
    if not found & TABLES.keys():
        raise SparkError(f"{canonical(folder)}: there are no tables")
    for name in found & TABLES.keys():
        convert_to_deltalake(
            f"{store.location}/{name}",
            mode="ignore",  # what was made before this was killed
            partition_by=deltalake.Schema.from_arrow(pa.schema([(PARTITION, pa.date32())])),
            partition_strategy="hive",
            name=name,
            configuration=SETTINGS,
            storage_options=delta_options(),
        )
    series: set[str] = set()
    if "_open" in found:
        states = dataset(f"{root}/_open", format="parquet", filesystem=system).to_table(["series"])
        series = set(states.column("series").to_pylist())
    lost = [{"series": one, "name": b"", "number": 0, "over_ns": NEVER, "state": b""} for one in sorted(series)]
    writer = TableWriter(store.location, StateLog(store.location, []).next_prefix())
    writer.take(STATES, pa.RecordBatch.from_pylist(lost, schema=SCHEMA))
    store.open()
    store.commit(store.last_commit().number, writer.close(), set(), set(), lambda: False)
    for name in old:
        system.delete_dir(f"{root}/{name}")
    for name in found & {"_lock", "_followed"}:
        system.delete_file(f"{root}/{name}")
    return len(lost)
