"""The tables of a folder as DuckDB has them, in this process: it reads no more of their files than a question needs.

Spark is not needed for it: the questions are about a few columns, of which DuckDB reads some million rows a second and
puts aside on disk what does not fit into memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
from pyarrow.dataset import FileSystemDataset, Scanner

from zmtpsniff.errors import one_line
from zmtpsniff.spark.report.vantage import ELSEWHERE, views
from zmtpsniff.spark.session import NoTablesError, SparkError
from zmtpsniff.spark.store import Store
from zmtpsniff.spark.tables import PARTITION, TABLES, arrow_schema
from zmtpsniff.words.durations import NS

Row = dict[str, Any]
_BATCH_ROWS = 1 << 14
_MEMORY = "128MB"  # of DuckDB, which puts aside on disk what is more
_ASKED_TWICE = ("points", "numbered", "facing", "clocks")  # views that take longest, each needed by several questions


class Snapshot:
    """The tables as they were when this was made, and views that count once what several hosts captured."""

    def __init__(self, folder: str, database: duckdb.DuckDBPyConnection, since_ns: int | None, until_ns: int | None):
        """Make views of the tables below ``folder``; raises SparkError if there are none."""
        self._database = database
        store = Store(folder)
        for table in TABLES:
            known = store.table(table)
            if known is None:
                raise NoTablesError(folder)
            database.register(f"files_{table}", _with_all_columns(table, store.dataset(table, known)))
            wanted = " AND ".join(_conditions(table, since_ns, until_ns)) or "true"
            database.execute(f"CREATE VIEW all_{table} AS SELECT * FROM files_{table} WHERE {wanted}")
        queries = views(since_ns or 0)
        self.keep(ELSEWHERE, queries.pop(ELSEWHERE))
        self.has_doubles = bool(self.rows(f"FROM {ELSEWHERE} LIMIT 1"))
        for name, query in queries.items():
            if name in TABLES and not self.has_doubles:
                query = f"SELECT * FROM all_{name}"  # nothing has to be looked for in what is empty
            if self.has_doubles and name in _ASKED_TWICE:
                self.keep(name, query)
            else:
                database.execute(f"CREATE VIEW {name} AS {query}")

    def keep(self, name: str, query: str, **arguments: Any) -> None:
        """Compute the answer to a question once, as a table for others."""
        self.rows(f"CREATE TEMP TABLE {name} AS {query}", **arguments)

    def rows(self, query: str, **arguments: Any) -> list[Row]:
        """The rows that answer a question."""
        try:
            return self._answered(query, arguments)
        except duckdb.OutOfMemoryException:  # not all can be put aside, such as what a percentile is made of
            self._database.execute("RESET memory_limit")
            return self._answered(query, arguments)

    def _answered(self, query: str, arguments: dict[str, Any]) -> list[Row]:
        found = self._database.execute(query, arguments or None)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def first(self, query: str, order: str, most: int, **arguments: Any) -> tuple[list[Row], int]:
        """The first rows in an order, as SQL has it, and how many more there are."""
        rows = self.rows(f"SELECT * FROM ({query}) ORDER BY {order} LIMIT {most + 1}", **arguments)
        if len(rows) <= most:
            return rows, 0
        (count,) = self.rows(f"SELECT count(*) AS count FROM ({query})", **arguments)
        return rows[:most], count["count"] - most


def _conditions(table: str, since_ns: int | None, until_ns: int | None) -> list[str]:
    """The conditions on the rows of a table that are of the time from ``since_ns`` up to ``until_ns``, as SQL.

    Of connections and captures those are of it that last into it, of subscriptions and commands also those before,
    since they say what holds then.
    """
    begin, end = {
        "connections": ("start_ns", "end_ns"),
        "captures": ("first_ns", "last_ns"),
        "findings": ("first_ns", "last_ns"),
    }.get(table, ("time_ns", "time_ns"))
    conditions: list[str] = []
    if table == "work":  # which has no time
        return conditions
    if since_ns is not None and table not in ("subscriptions", "commands"):
        conditions.append(f"{end} >= {since_ns}")
        if begin == end:  # rows of things that last are filed under the day on which they begin
            conditions.append(f"{PARTITION} >= DATE '{_day(since_ns)}'")
    if until_ns is not None:
        conditions.append(f"{begin} < {until_ns}")
        conditions.append(f"{PARTITION} <= DATE '{_day(until_ns)}'")
    return conditions


def _day(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // NS, UTC).date().isoformat()


class _Files(FileSystemDataset):  # type: ignore[misc]  # Arrow has no types
    """The files of a table, of which little is in memory at a time. By itself Arrow reads 64 batches ahead."""

    def scanner(self, **asked: Any) -> Scanner:
        """A scanner, as DuckDB asks for it."""
        return super().scanner(batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1, **asked)


def _with_all_columns(table: str, files: FileSystemDataset) -> FileSystemDataset:
    """A dataset with the columns that an earlier version did not write, which are null."""
    schema = files.schema
    for field in arrow_schema(table):
        if field.name not in schema.names:
            schema = schema.append(field.with_nullable(True))
    return _Files([*files.get_fragments()], schema, files.format, files.filesystem)


@contextmanager
def open_snapshot(folder: str, since_ns: int | None = None, until_ns: int | None = None) -> Iterator[Snapshot]:
    """The tables below ``folder``, a path or URL, of the time from ``since_ns`` up to ``until_ns``.

    Raises SparkError.
    """
    with TemporaryDirectory(prefix="zmtpsniff-") as aside, duckdb.connect() as database:
        database.execute(f"SET temp_directory = '{aside}'")
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"SET memory_limit = '{_MEMORY}'")
        # DuckDB takes what Arrow reads for small, and would keep that in memory to look up there what is small.
        database.execute("SET disabled_optimizers = 'build_side_probe_side'")
        try:
            yield Snapshot(folder, database, since_ns, until_ns)
            return
        except (duckdb.Error, OSError) as error:
            said = one_line(error)
    # Not from there: what an error refers to would outlive DuckDB, which complains of that at the end.
    raise SparkError(f"{folder}: {said}")
