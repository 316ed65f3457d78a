"""The folder of the tables, which are tables of Delta Lake, and how a run becomes part of all of them.

    DIR/TABLE/date=DAY/*.parquet    rows; DIR/TABLE/_delta_log says which of these files are in the table
    DIR/_states/*.parquet           the states of what is open (see state_log), and the last commit: "commit-N…"

Tasks write files that nobody sees yet. A *commit* puts them into the tables, one after the other, ``captures`` last.
Its first step decides: into ``_states`` go the states, and in place of the commit before it a file that says all that
this one does. Of two runs only one can replace that file. Every further step has the commit's number as Delta Lake's
transaction id, so that it is done once, whoever does it: of a run that was killed the next one does the rest. A table
shows all of a commit, or nothing; what ``captures`` shows is in all tables.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyarrow.fs import FileSelector

from zmtpsniff.spark.locations import canonical, delta_options, file_system, make_parent
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.state_log import SCHEMA, STATES, StateLog
from zmtpsniff.spark.tables import PARTITION, TABLES, arrow_schema
from zmtpsniff.spark.writer import DataFile, TableWriter, now_ms, statistics

_APP = "zmtpsniff"  # whose transactions those in the logs are
_COMMIT = "commit-"
_TRIES = 20  # at a step, against others who write
SETTINGS = {"delta.checkpointInterval": "20"}  # commits
"""What the tables are told."""

_STEPS = (*(table for table in TABLES if table != "captures"), "captures")


class ConflictError(Exception):
    """Another run has changed the same series meanwhile."""


class Commit(msgspec.Struct):
    """What a run changes: its files, and the series whose rows it replaces: provisional ones, or all."""

    number: int = 0
    files: list[DataFile] = []
    touched: list[str] = []
    anew: list[str] = []


class Store:
    """The folder of the tables."""

    def __init__(self, location: str) -> None:
        """Name the folder ``location``, a path or URL; raises SparkError if nothing opens that."""
        self.location = canonical(location)
        self._system, self._root = file_system(location)

    def open(self) -> None:
        """Make what tables are missing, give them the columns that they lack, and finish what an earlier run began.

        Raises SparkError, also for files of version 0.9.0 without a table.
        """
        try:
            make_parent(self._system, f"{self._root}/_")
            for name in (*TABLES, STATES):
                known = self.table(name)
                if known is not None:
                    _add_columns(known, _schema(name))
                    continue
                if self._has_files(name):
                    raise SparkError(
                        f"--output {self.location}: has tables of version 0.9.0: "
                        f"zmtpsniff spark convert {self.location} makes them tables of Delta Lake"
                    )
                self._create(name)
        except (DeltaError, OSError) as error:
            raise SparkError(f"--output {self.location}: {' '.join(str(error).split())}") from error
        self._complete(self.last_commit())

    def _has_files(self, name: str) -> bool:
        found = self._system.get_file_info(FileSelector(f"{self._root}/{name}", allow_not_found=True))
        return any(info.base_name.startswith(f"{PARTITION}=") for info in found)

    def _create(self, name: str) -> None:
        with suppress(DeltaError):  # another run has made it at the same time: whether it is there, others ask
            DeltaTable.create(
                f"{self.location}/{name}",
                _schema(name),
                partition_by=_partition(name),
                name=name,
                configuration=SETTINGS,
                storage_options=delta_options(),
            )
        self.opened(name)

    # ------------------------------------------------------------------ what there is

    def table(self, name: str) -> DeltaTable | None:
        """A table as it is now; None if there is none. Raises SparkError."""
        location = f"{self.location}/{name}"
        try:
            return DeltaTable(location, storage_options=delta_options())
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise SparkError(f"{location}: {' '.join(str(error).split())}") from error

    def opened(self, name: str) -> DeltaTable:
        """A table as it is now; raises SparkError if there is none."""
        found = self.table(name)
        if found is None:
            raise SparkError(f"{self.location}: there is no table {name}")
        return found

    def captures(self, series: Sequence[str] | None = None) -> pa.Table:
        """The rows of ``captures`` on all files, or those of some series."""
        wanted = None if series is None else pc.field("series").isin(pa.array(sorted(series), pa.string()))
        columns = ["series", "file", "size", "modified_ns", "first_ns", "last_ns"]
        return self.opened("captures").to_pyarrow_dataset().to_table(columns, filter=wanted)

    def unreadable(self, paths: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
        """Those of some files that could not be read, or not to their ends: path, condition and why."""
        wanted = (pc.field("condition") != "whole") & pc.field("file").isin(pa.array(paths, pa.string()))
        found = self.opened("captures").to_pyarrow_dataset().to_table(["file", "condition", "error"], filter=wanted)
        return tuple(sorted(zip(*(column.to_pylist() for column in found.columns), strict=True)))

    def provisional_series(self) -> set[str]:
        """The series with connections that have provisional rows."""
        found = self.opened("connections").to_pyarrow_dataset().to_table(["series"], filter=pc.field("provisional"))
        return set(found.column("series").unique().to_pylist())

    def paths(self, name: str, first: str | None = None, last: str | None = None) -> list[str]:
        """The files of a table, below its folder; of those with a date, those from one day to another."""
        return [
            path
            for path, one in _actions(self.opened(name)).items()
            if one["date"] is None or (first or "") <= one["date"].isoformat() <= (last or "9999")
        ]

    def days(self, name: str, small: int | None = None) -> list[date]:
        """The days that a table has rows of, or those of which it has several files of less than ``small`` octets."""
        counts: Counter[date] = Counter()
        for one in _actions(self.opened(name)).values():
            if one["date"] is not None:
                counts[one["date"]] += small is None or one["size"] < small
        return sorted(day for day, count in counts.items() if small is None or count > 1)

    def state_files(self) -> list[str]:
        """The files of states."""
        return [path for path in _actions(self.opened(STATES)) if not path.startswith(_COMMIT)]

    # ------------------------------------------------------------------ commits

    def last_commit(self) -> Commit:
        """The last commit that was decided on."""
        return self._commit_in(_actions(self.opened(STATES)))[0]

    def _commit_in(self, states: Iterable[str]) -> tuple[Commit, str | None]:
        """The last commit in a snapshot of the states, and its file."""
        path = next((path for path in states if path.startswith(_COMMIT)), None)
        if path is None:
            return Commit(), None
        with self._system.open_input_file(f"{self._root}/{STATES}/{path}") as file:
            octets = pq.read_table(file).column("state")[0].as_py()
        return msgspec.json.decode(octets, type=Commit), path

    def commit(
        self, base: int, files: Sequence[DataFile], touched: set[str], anew: set[str], same: Callable[[], bool]
    ) -> None:
        """Make files part of the tables, in place of provisional rows of series ``touched`` and all of those ``anew``.

        ``base`` is the number of the commit that the run began with; if there have been others since, ``same`` says
        whether they have left its series as they were. Raises ConflictError if not, SparkError if it does not come to
        an end.
        """
        rows = [file for file in files if file.table != STATES]
        for _ in range(_TRIES):
            table = self.opened(STATES)
            states = _actions(table)
            last, replaced = self._commit_in(states)
            self._complete(last)
            if last.number != base and not same():
                raise ConflictError
            sizes = {path: one["size"] for path, one in states.items() if path != replaced}
            removed, merged = StateLog(self.location, [*sizes]).merge(sizes)
            made = Commit(last.number + 1, rows, sorted(touched), sorted(anew))
            added = [*(file for file in files if file.table == STATES), *merged, self._write(made)]
            with suppress(CommitFailedError):  # another run was first
                _change(table, STATES, added, [*removed, *([replaced] if replaced else [])], made.number)
                self._complete(made)
                return
        raise SparkError(f"--output {self.location}: too many others write to it: run this again")

    def _write(self, commit: Commit) -> DataFile:
        """The file that says what a commit does."""
        path = f"{_COMMIT}{commit.number}-{uuid4().hex}.parquet"
        row = {"series": "", "name": b"", "number": commit.number, "over_ns": 0}
        rows = pa.Table.from_pylist([row | {"state": msgspec.json.encode(commit)}], schema=SCHEMA)
        target = f"{self._root}/{STATES}/{path}"
        with self._system.open_output_stream(target) as sink, pq.ParquetWriter(sink, SCHEMA) as writer:
            writer.write_table(rows)
        size = self._system.get_file_info(target).size
        return DataFile(STATES, path, size, None, 1, statistics(writer.writer.metadata))

    def _complete(self, commit: Commit) -> None:
        """Do what is left of a commit that was decided on."""
        if (self.opened(_STEPS[-1]).transaction_version(_APP) or 0) < commit.number:
            for name in _STEPS:
                self._apply(name, commit)

    def _apply(self, name: str, commit: Commit) -> None:
        """Do a commit's step in one table."""
        for _ in range(_TRIES):
            table = self.opened(name)
            if (table.transaction_version(_APP) or 0) >= commit.number:
                return
            removed, left = self._replaced(table, name, commit)
            added = [*(file for file in commit.files if file.table == name), *left]
            if not added and not removed and name != _STEPS[-1]:
                return
            with suppress(CommitFailedError):  # another one has changed it: perhaps did just this
                _change(table, name, added, removed, commit.number)
                return
        raise SparkError(f"--output {self.location}: too many others write to it: run this again")

    def _replaced(self, table: DeltaTable, name: str, commit: Commit) -> tuple[list[str], list[DataFile]]:
        """The files of a table with rows that a commit replaces, and new files with their other rows."""
        has_provisional = name != "captures"
        removed: list[str] = []
        left: list[DataFile] = []
        for path, one in _actions(table).items():
            may_be_open = has_provisional and one["max"].get("provisional") is not False
            if not _may_have(one, commit.anew) and not (may_be_open and _may_have(one, commit.touched)):
                continue
            with self._system.open_input_file(f"{self._root}/{name}/{path}") as file:
                parquet = pq.ParquetFile(file)
                gone = _gone(parquet.read(["series", *(["provisional"] if has_provisional else [])]), commit)
                if pc.any(gone).as_py():
                    removed.append(path)
                    if not pc.all(gone).as_py():
                        left += self._rest(name, parquet, gone, one)
        return removed, left

    def _rest(self, name: str, parquet: pq.ParquetFile, gone: pa.Array, one: dict[str, Any]) -> list[DataFile]:
        """New files with the rows of one that are not ``gone``."""
        writer = TableWriter(self.location)
        at = 0
        for batch in parquet.iter_batches():
            rest = batch.filter(pc.invert(gone.slice(at, batch.num_rows)))
            at += batch.num_rows
            rest = rest.append_column(PARTITION, pa.repeat(pa.scalar(one["date"], pa.date32()), rest.num_rows))
            writer.take(name, rest, one["min"].get("provisional") is True)
        return writer.close()


def _gone(rows: pa.Table, commit: Commit) -> pa.Array:
    """Which rows a commit replaces."""
    series = rows.column("series")
    gone = pc.is_in(series, value_set=pa.array(commit.anew, pa.string()))
    if "provisional" in rows.schema.names:
        touched = pc.is_in(series, value_set=pa.array(commit.touched, pa.string()))
        gone = pc.or_(gone, pc.and_(touched, rows.column("provisional")))
    return gone.combine_chunks()


def _schema(name: str) -> pa.Schema:
    return SCHEMA if name == STATES else arrow_schema(name)


def _partition(name: str) -> list[str]:
    return [] if name == STATES else [PARTITION]


def _add_columns(table: DeltaTable, schema: pa.Schema) -> None:
    """Give a table the columns of a later version, which are null in what it has."""
    known = {field.name for field in table.schema().fields}
    new = [field for field in Schema.from_arrow(schema).fields if field.name not in known]
    if new:
        table.alter.add_columns([Field(field.name, field.type, nullable=True) for field in new])


def _change(table: DeltaTable, name: str, added: Sequence[DataFile], removed: Sequence[str], number: int) -> None:
    """Add and remove files of a table in one transaction; raises CommitFailedError if another one was first."""
    now = now_ms()
    partition = _partition(name)
    known = _actions(table)
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, dict.fromkeys(partition, file.date), now, True, file.statistics)
        for file in added
    ]
    for path in removed:
        day = known[path]["date"]
        values = dict.fromkeys(partition, day and day.isoformat())
        actions.append(RemoveAction(path, True, now, known[path]["size"], values))
    properties = CommitProperties(max_commit_retries=0, app_transactions=[Transaction(_APP, number)])
    table.create_write_transaction(actions, "append", table.schema(), partition, commit_properties=properties)


def _actions(table: DeltaTable) -> dict[str, dict[str, Any]]:
    """The files of a table: of each its size, date, and least and greatest values."""
    return {
        row["path"]: {
            "size": row["size_bytes"],
            "date": (row.get("partition") or {}).get(PARTITION),
            "min": row.get("min") or {},
            "max": row.get("max") or {},
        }
        for row in pa.table(table.get_add_actions()).to_pylist()
    }


def _may_have(one: dict[str, Any], series: Sequence[str]) -> bool:
    """Whether a file may have rows of some series, which are sorted."""
    least, greatest = one["min"].get("series"), one["max"].get("series")
    if least is None or greatest is None:
        return bool(series)
    at = bisect_left(series, least)
    return at < len(series) and series[at] <= greatest
