"""The format ``zmtp`` of ``spark.read`` and ``spark.readStream``, once ``zmtpsniff.spark.register`` was called.

A task dissects a whole series, its files merged by time, as it does for the command ``ingest``; see
:mod:`zmtpsniff.spark.whole`.

Options, their names in any case: ``table`` (messages, commands, subscriptions, problems, connections), ``series``,
``ports``, ``maxBytes``, ``decodeAs`` (rules, separated by ``;``), ``showSecrets``, ``idle``. A stream also has
``state``, a folder of its own for what is open and which files it has seen, and ``maxFiles``, of a micro-batch.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from dissectors.events import Beacon, Command, Connection, Greeting, Message, Problem, Subscription
from zmtpsniff.decode_as import parse
from zmtpsniff.spark.listing import check_series, series_of
from zmtpsniff.spark.options import MOST_FILES, Options, parse_ports
from zmtpsniff.spark.progress import Progress, list_all
from zmtpsniff.spark.rows import PROVISIONAL, Batch
from zmtpsniff.spark.tables import ddl
from zmtpsniff.spark.whole import Series, Told, ToldRows, first_time

TABLES: dict[str, tuple[type, ...]] = {
    "messages": (Message,),
    "commands": (Greeting, Command, Beacon),
    "subscriptions": (Subscription,),
    "problems": (Problem,),
    "connections": (Connection,),
}
"""The tables that can be read so, and the events that they have rows of."""

_COMPARED = {
    datasource.EqualTo: pc.equal,
    datasource.GreaterThan: pc.greater,
    datasource.GreaterThanOrEqual: pc.greater_equal,
    datasource.LessThan: pc.less,
    datasource.LessThanOrEqual: pc.less_equal,
}
_TIMES = {"date", "time", "time_ns", "start", "start_ns", "stop", "end_ns"}
_PORTS = {"src_port", "dst_port", "client_port", "server_port"}
_VERSIONS = {"version", "client_version", "server_version"}
_PUSHED = _TIMES | _PORTS | _VERSIONS

Condition = tuple[str, type[Filter], Any]
"""A column, how it is compared, and with what."""


class _Asked:
    """What the options of a read say."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises ValueError for an option that cannot be so."""
        self.table = options.get("table", "messages")
        if self.table not in TABLES:
            raise ValueError(f"table {self.table!r}: it can be {', '.join(TABLES)}")
        self.series = check_series(options.get("series", "folder"))
        paths = options.get("paths")
        self.inputs: list[str] = json.loads(paths) if paths else [options["path"]] if "path" in options else []
        if not self.inputs:
            raise ValueError("no path: say load(PATH), a file, a folder or a glob")
        rules = tuple(parse(rule) for rule in options.get("decodeAs", "").split(";") if rule)
        ports = options.get("ports", "")
        self.options = Options(
            parse_ports(ports) if ports else (),
            int(options.get("maxBytes", Options().max_bytes)),
            rules,
            options.get("showSecrets", "false").lower() == "true",
            float(options.get("idle", Options().idle_seconds)),
        )
        self.state = options.get("state", "")
        self.most_files = int(options.get("maxFiles", MOST_FILES))


@dataclass
class Part(InputPartition):
    """The files of a series, by numbers, and of a stream where what was left before and is left after them is kept."""

    series: str
    files: dict[int, str]
    before: int = 0
    after: int = 0
    goes_on: bool = False

    def __post_init__(self) -> None:
        """Say what InputPartition wants to know."""
        super().__init__(self.series)


class ZmtpSource(DataSource):
    """The format ``zmtp``."""

    @classmethod
    def name(cls) -> str:
        """What it is called in ``format``."""
        return "zmtp"

    def schema(self) -> str:
        """The columns of the table that is asked for."""
        return ddl(_Asked(self.options).table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read what there is."""
        return _Reader(_Asked(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # as Spark calls it
        """Read what comes."""
        return _StreamReader(_Asked(self.options), schema)


class _Reader(DataSourceReader):
    def __init__(self, asked: _Asked, schema: StructType) -> None:
        self._asked = asked
        self._schema = schema
        self._conditions: list[Condition] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Note what rows must be like. Spark looks at them again: here it is about how many pass to it."""
        for one in filters:
            column = ".".join(getattr(one, "attribute", ()))
            if column in _PUSHED and (type(one) in _COMPARED or isinstance(one, datasource.In)):
                self._conditions.append((column, type(one), one.value))  # type: ignore[attr-defined]
        return filters

    def partitions(self) -> list[InputPartition]:
        """One for each series."""
        found: dict[str, dict[int, str]] = {}
        for number, file in enumerate(list_all(self._asked.inputs), 1):
            found.setdefault(series_of(file.path, self._asked.series), {})[number] = file.path
        return [Part(name, files) for name, files in found.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Dissect a series."""
        if not isinstance(partition, Part):  # of no files at all
            return
        series = Series(partition.files, _narrowed(self._asked.options, self._conditions))
        table = _Table(self._asked, partition.series, series, self._schema, self._conditions)
        yield from table.rows()
        yield from table.last(series.finish()[1])


class _StreamReader(DataSourceStreamReader):
    """Offsets are numbers of lists of files, which the folder ``state`` keeps, with what each series is left with."""

    def __init__(self, asked: _Asked, schema: StructType) -> None:
        if not asked.state:
            raise ValueError('a stream keeps what is open in a folder: say .option("state", DIR)')
        self._asked = asked
        self._schema = schema

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before all files."""
        return {"list": 0}

    def latestOffset(self, start: dict[str, int], limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Up to the files that are there now, but for those that are too many for a micro-batch."""
        progress = Progress(self._asked.state)
        if progress.lists() > start["list"]:  # listed before a crash, and not taken
            return {"list": start["list"] + 1}
        known = {path for number in range(1, start["list"] + 1) for path in progress.files(number).values()}
        # The oldest first, as whoever rotates captures closes them.
        listed = list_all(self._asked.inputs, self._asked.state)
        new = sorted((file.modified_ns, file.path) for file in listed if file.path not in known)
        if not new:
            return start
        paths = sorted(path for _, path in new[: self._asked.most_files])
        progress.note(start["list"] + 1, dict(enumerate(paths, len(known) + 1)))
        return {"list": start["list"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One for each series that has files between two offsets."""
        progress = Progress(self._asked.state)
        first, last = start["list"], end["list"]
        found: dict[str, dict[int, str]] = {}
        for number in range(first + 1, last + 1):
            for file_no, path in progress.files(number).items():
                found.setdefault(series_of(path, self._asked.series), {})[file_no] = path
        before = (path for number in range(1, first + 1) for path in progress.files(number).values())
        known = {series_of(path, self._asked.series) for path in before}
        return [Part(name, files, first, last, name in known) for name, files in found.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Dissect the files of a series from where it was left, and leave it where they end."""
        assert isinstance(partition, Part)
        progress = Progress(self._asked.state)
        left = progress.left(partition.series, partition.before) if partition.goes_on else None
        late: dict[int, str] = {}
        files: dict[int, str] = {}
        for number, path in partition.files.items():
            begins_ns = first_time(path) if left is not None else None
            is_late = left is not None and begins_ns is not None and begins_ns < left.end_ns
            (late if is_late else files)[number] = path
        # What came after a late one has been given out: it is read as a capture of its own.
        for some, begin, goes_on in ((late, None, False), (files, left, True)):
            series = Series(some, self._asked.options, begin)
            table = _Table(self._asked, partition.series, series, self._schema)
            yield from table.rows()
            left, told = series.finish()
            # What is open has rows when it is over.
            yield from table.last([one for one in told if not (goes_on and one.provisional)])
        assert left is not None
        progress.leave(partition.series, partition.after, left)

    def commit(self, end: dict[str, int]) -> None:
        """What was left before ``end`` is not asked for again."""
        Progress(self._asked.state).forget(end["list"])


class _Table:
    """The events of a series as rows of one table, with the columns that are asked for."""

    def __init__(
        self, asked: _Asked, name: str, series: Series, schema: StructType, conditions: Sequence[Condition] = ()
    ) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._kinds = TABLES[asked.table]
        self._table = asked.table
        self._series = series
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._conditions = conditions
        self._told = ToldRows(name, series, asked.options, self._kinds)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows that its files lead to, up to their end."""
        for told in self._series.events():
            yield from self._mine(self._told.take(told))
        yield from self._mine(self._told.flush())
        if self._table == "problems":
            yield from self._mine(self._told.of_captures())

    def last(self, told: Iterable[Told]) -> Iterator[pa.RecordBatch]:
        """The rows of what is told at the end."""
        for provisional in (False, True):
            kept_in = PROVISIONAL if provisional else ""
            for one in told:
                if one.provisional == provisional:
                    yield from self._mine(self._told.take(one, kept_in))
            yield from self._mine(self._told.flush(kept_in))

    def _mine(self, batches: Iterable[Batch]) -> Iterator[pa.RecordBatch]:
        for table, rows, _ in batches:
            if table == self._table:
                yield from self._fitted(rows)

    def _fitted(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows that are wanted, with the columns that are wanted, in their order."""
        for name, kind, value in self._conditions:
            if name in rows.schema.names:
                column = rows.column(name)
                rows = rows.filter(_mask(column, kind, value))
        if rows.num_rows:
            columns = [rows.column(field.name).cast(field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _mask(column: pa.Array, kind: type[Filter], value: Any) -> pa.Array:
    """Which values of a column are as they must be."""
    if kind is datasource.In:
        return pc.is_in(column, value_set=pa.array([_plain(one) for one in value], column.type))
    return _COMPARED[kind](column, pa.scalar(_plain(value), column.type))


def _plain(value: Any) -> Any:
    """A value as Arrow takes it; a time without a zone is one of the session, which is in UTC."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _narrowed(options: Options, conditions: Sequence[Condition]) -> Options:
    """Options that leave out connections of which no row can be wanted: those of other ports."""
    for name, kind, value in conditions:
        if name in _PORTS and kind in (datasource.EqualTo, datasource.In) and not options.ports:
            values = value if kind is datasource.In else (value,)
            return options._replace(ports=tuple((port, port) for port in values if port is not None))
    return options
