"""Maintenance of tables: few large files, and none that are needless."""

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from zmtpsniff.errors import one_line
from zmtpsniff.spark.open_states import STATES
from zmtpsniff.spark.session import NoTablesError, SparkError
from zmtpsniff.spark.store import Store
from zmtpsniff.spark.tables import PARTITION, TABLES

# By which rows are in order; else time_ns.
_ORDER = {"connections": "start_ns", "captures": "first_ns", "work": "address", "findings": "code"}
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
                        ["series", _ORDER.get(name, "time_ns")], partition_filters=filters, target_size=_TARGET
                    )
                    compacted += done["numFilesRemoved"]
                    made += done["numFilesAdded"]
            vacuumed += len(table.vacuum(vacuum_hours, dry_run=False, enforce_retention_duration=False, full=True))
            table.create_checkpoint()
            table.cleanup_metadata()
    except DeltaError as error:
        raise SparkError(f"{folder}: {one_line(error)}: run this again") from error
    return Optimization(compacted, made, deleted, vacuumed)
