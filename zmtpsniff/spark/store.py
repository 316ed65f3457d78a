"""The folder of the tables, which are tables of Delta Lake, and how a run becomes part of all of them.

    DIR/TABLE/date=DAY/*.parquet    rows; DIR/TABLE/_delta_log says which of these files are in the table
    DIR/_states/*.parquet           the states of what is open (see open_states)

Tasks write files that nobody sees yet. A *commit* puts them into the tables, one after the other, ``captures`` last.
Its first step decides: it replaces states in ``_states``, and says in that table's log all that it does elsewhere. Of
two runs only one can write the log's next entry. Every further step has the commit's number as Delta Lake's transaction
id, so that it is done once, whoever does it: of a run that was killed the next one does the rest. A table shows all of
a commit, or nothing; what ``captures`` shows is in all tables.

The metadata of our tables carry ``MARK``. Nothing is done to a table without it, nor to files of others.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyarrow.dataset import FileSystemDataset, ParquetFileFormat
from pyarrow.fs import FileSelector, SubTreeFileSystem

from zmtpsniff.capture.locations import canonical, delta_options, file_system, make_parent
from zmtpsniff.errors import one_line
from zmtpsniff.spark.open_states import SCHEMA, STATES
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.tables import PARTITION, TABLES, arrow_schema
from zmtpsniff.spark.writer import DataFile, TableWriter

_APP = "zmtpsniff"  # names our transactions in the logs, and their metadata
_LATEST = 8  # entries of a log: maintenance, which writes some, first completes the last commit
_TRIES = 20  # at a step, against others who write
SETTINGS = {"delta.checkpointInterval": "20"}  # commits
"""The configuration of the tables."""

MARK = "written by zmtpsniff spark, format "
"""The beginning of the description of our tables; the format follows."""

FORMAT = "3"

_STEPS = (*(table for table in TABLES if table != "captures"), "captures")


class ConflictError(Exception):
    """Another run has changed the same series meanwhile."""


class Commit(msgspec.Struct):
    """The changes of a run: its files, and the series whose rows it replaces, all or only provisional ones."""

    number: int = 0
    files: list[DataFile] = []
    touched: list[str] = []
    anew: list[str] = []


class Store:
    """The folder of the tables."""

    def __init__(self, location: str) -> None:
        """Name the folder ``location``, a path or URL. Raises LocationError if nothing can open it."""
        self.location = canonical(location)
        self._system, self._root = file_system(location)
        self._tables: dict[str, DeltaTable] = {}

    def open(self) -> None:
        """Make missing tables, add missing columns, and finish the commit that an earlier run began.

        Raises SparkError; if there is a table or a file of others, before anything is written.
        """
        self._tables.clear()  # others may have put a table in place of ours
        with self.at_work():
            names = (*TABLES, STATES)
            known = {name: self._known(name) for name in names}
            new = {name: self._new_columns(name, table) for name, table in known.items() if table is not None}
            make_parent(self._system, f"{self._root}/_")
            for name, table in known.items():
                if table is None:
                    self._create(name)
                elif new[name]:
                    table.alter.add_columns(new[name])
            self._complete(self.last_commit())

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Raise SparkError where the store refuses, or the disk is full. The next run completes what was decided on."""
        try:
            yield
        except (DeltaError, OSError) as error:
            raise SparkError(f"--output {self.location}: {one_line(error)}") from error

    def _known(self, name: str) -> DeltaTable | None:
        """A table of ours, or None where nothing is. Raises SparkError where something else is."""
        files = self._names(name)
        table = self.table(name)  # behind the files: another run makes the table before it writes any
        if table is None and set(files) - {"_delta_log"}:
            raise SparkError(f"{self.location}/{name}: has files that zmtpsniff did not write; choose another folder")
        return table

    def _new_columns(self, name: str, table: DeltaTable) -> list[Field]:
        """The columns that a table of an earlier version lacks, and that are null in its rows.

        Raises SparkError if it has a column of another type.
        """
        known = {field.name: field.type for field in table.schema().fields}
        fields = Schema.from_arrow(_schema(name)).fields
        other = [field.name for field in fields if known.get(field.name, field.type) != field.type]
        if other:
            raise SparkError(
                f"{self.location}/{name}: another version of zmtpsniff wrote this table, where {', '.join(other)} has "
                "another type; choose another folder"
            )
        new = [field for field in fields if field.name not in known]
        return [Field(field.name, field.type, nullable=True, metadata=field.metadata) for field in new]

    def _names(self, name: str) -> list[str]:
        """The files and folders in the folder of a table."""
        try:
            found = self._system.get_file_info(FileSelector(f"{self._root}/{name}", allow_not_found=True))
        except FileNotFoundError:  # Arrow looks twice; another run has made the folder in between
            return []
        return [file.base_name for file in found]

    def _create(self, name: str) -> None:
        with suppress(DeltaError):  # another run has made it at the same time; other callers ask whether it is there
            DeltaTable.create(
                f"{self.location}/{name}",
                _schema(name),
                partition_by=_partition(name),
                name=name,
                description=f"{MARK}{FORMAT}",
                configuration=SETTINGS,
                storage_options=delta_options(),
            )
        self.opened(name)

    # ------------------------------------------------------------------ reading

    def table(self, name: str) -> DeltaTable | None:
        """A table as it is now; None if there is none. Raises SparkError, also if it is not ours.

        Of a table that was read before, only the newer entries of its log are read.
        """
        location = f"{self.location}/{name}"
        try:
            found = self._tables.get(name)
            if found is None:
                found = DeltaTable(location, storage_options=delta_options())
            else:
                found.update_incremental()
            mark = found.metadata().description or ""
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise SparkError(f"{location}: {one_line(error)}") from error
        if not mark.startswith(MARK):
            raise SparkError(f"{location}: is a table that zmtpsniff did not write; choose another folder")
        if mark != f"{MARK}{FORMAT}":
            raise SparkError(f"{location}: another version of zmtpsniff wrote this table; choose another folder")
        self._tables[name] = found
        return found

    def opened(self, name: str) -> DeltaTable:
        """A table as it is now; raises SparkError if there is none."""
        found = self.table(name)
        if found is None:
            raise SparkError(f"{self.location}: there is no table {name}")
        return found

    def captures(self, series: Sequence[str] | None = None) -> pa.Table:
        """The rows of ``captures`` on all files, or those of some series."""
        wanted = None if series is None else pc.field("series").isin(pa.array(sorted(series), pa.string()))
        columns = ["series", "file", "size", "modified_ns", "first_ns", "last_ns", "condition"]
        return self.dataset("captures").to_table(columns, filter=wanted)

    def unreadable(self, paths: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
        """Those of some files that could not be read, or not to their ends: path, condition and reason."""
        wanted = (pc.field("condition") != "whole") & pc.field("file").isin(pa.array(paths, pa.string()))
        files = self.dataset("captures").to_table(["file", "condition", "error"], wanted)
        return tuple(sorted(zip(*(column.to_pylist() for column in files.columns), strict=True)))

    def provisional_series(self) -> set[str]:
        """The series with connections that have provisional rows."""
        files = self.dataset("connections", chosen=_may_be_provisional)
        found = files.to_table(["series"], filter=pc.field("provisional"))
        return set(found.column("series").unique().to_pylist())

    def dataset(
        self, name: str, table: DeltaTable | None = None, chosen: Callable[[dict[str, Any]], bool] = bool
    ) -> FileSystemDataset:
        """The rows of a table, as it is now or was when it was opened, or those in files whose statistics are so.

        Delta Lake's own makes an expression of all statistics of each file, which takes 2 ms.
        """
        table = table or self.opened(name)
        files = {path: one["date"] for path, one in _actions(table).items() if chosen(one)}
        day = pc.field(PARTITION)
        return FileSystemDataset.from_paths(
            [*files],
            schema=pa.schema(table.schema().to_arrow()),
            format=ParquetFileFormat(),
            filesystem=SubTreeFileSystem(f"{self._root}/{name}", self._system),
            partitions=[day.is_null() if date is None else day == pa.scalar(date) for date in files.values()]
            if _partition(name)
            else None,
        )

    def paths(self, name: str) -> list[str]:
        """The files of a table, below its folder."""
        return list(_actions(self.opened(name)))

    def days(self, name: str, small: int) -> list[date]:
        """The days for which a table has several files of less than ``small`` octets."""
        counts = Counter(one["date"] for one in _actions(self.opened(name)).values() if one["size"] < small)
        return sorted(day for day, count in counts.items() if day is not None and count > 1)

    # ------------------------------------------------------------------ commits

    def last_commit(self) -> Commit:
        """The last commit that was decided on."""
        table = self.opened(STATES)
        entries = (entry[_APP] for entry in table.history(_LATEST) if _APP in entry)
        number = table.transaction_version(_APP) or 0
        return msgspec.convert(next(entries, {"number": number}), Commit)

    def commit(
        self, base: int, files: Sequence[DataFile], touched: set[str], anew: set[str], same: Callable[[], bool]
    ) -> None:
        """Make files part of the tables, in place of provisional rows of series ``touched`` and all of those ``anew``.

        ``base`` is the number of the commit that the run began with; if there have been others since, ``same`` says
        whether they have left its series as they were. Raises ConflictError if not, SparkError if it never ends.
        """
        rows = [file for file in files if file.table != STATES]
        for _ in self._tries():
            table = self.opened(STATES)
            last = self.last_commit()
            self._complete(last)
            if last.number != base and not same():
                raise ConflictError
            made = Commit(last.number + 1, rows, sorted(touched), sorted(anew))
            removed, left = self._replaced(table, STATES, made)
            added = [*(file for file in files if file.table == STATES), *left]
            with suppress(CommitFailedError):  # another run was first
                _change(table, STATES, added, removed, made.number, msgspec.to_builtins(made))
                self._complete(made)
                return

    def _complete(self, commit: Commit) -> None:
        """Do the rest of a commit that was decided on."""
        if (self.opened(_STEPS[-1]).transaction_version(_APP) or 0) < commit.number:
            for name in _STEPS:
                self._apply(name, commit)

    def _apply(self, name: str, commit: Commit) -> None:
        """Do a commit's step in one table."""
        for _ in self._tries():
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

    def _tries(self) -> Iterator[int]:
        """The tries at a step; raises SparkError after the last one."""
        yield from range(_TRIES)
        raise SparkError(f"--output {self.location}: too many others write to it: run this again")

    def _replaced(self, table: DeltaTable, name: str, commit: Commit) -> tuple[list[str], list[DataFile]]:
        """The files of a table with rows that a commit replaces, and new files for their other rows."""
        has_provisional = name not in ("captures", STATES)
        anew = commit.touched if name == STATES else commit.anew
        gone = pc.field("series").isin(pa.array(anew, pa.string()))
        if has_provisional:
            gone |= pc.field("series").isin(pa.array(commit.touched, pa.string())) & pc.field("provisional")

        def may_have(one: dict[str, Any]) -> bool:
            return _is_between(one, anew) or (
                has_provisional and _may_be_provisional(one) and _is_between(one, commit.touched)
            )

        removed: list[str] = []
        left = TableWriter(self.location)
        dataset = self.dataset(name, table, may_have)
        for file in dataset.get_fragments():
            if file.count_rows(filter=gone):
                removed.append(file.path)
                for rows in file.to_batches(dataset.schema, filter=~gone):
                    left.take(name, rows)
        return removed, left.close()


def _may_be_provisional(one: dict[str, Any]) -> bool:
    """Whether a file may have provisional rows."""
    return one["max"].get("provisional") is not False


def _is_between(one: dict[str, Any], series: Sequence[str]) -> bool:
    """Whether a file may have rows of some series, which are sorted."""
    least, greatest = one["min"].get("series") or "", one["max"].get("series")
    at = bisect_left(series, least)
    return at < len(series) and (greatest is None or series[at] <= greatest)


def _schema(name: str) -> pa.Schema:
    return SCHEMA if name == STATES else arrow_schema(name)


def _partition(name: str) -> list[str]:
    return [] if name == STATES else [PARTITION]


def _change(
    table: DeltaTable, name: str, added: Sequence[DataFile], removed: Sequence[str], number: int, metadata: Any = None
) -> None:
    """Add and remove files of a table in one transaction; raises CommitFailedError if another one was first."""
    now = time.time_ns() // 1_000_000
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
    properties = CommitProperties(
        custom_metadata=metadata and {_APP: metadata},
        max_commit_retries=0,
        app_transactions=[Transaction(_APP, number)],
    )
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
