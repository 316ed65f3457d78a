"""The format ``zmtp`` of ``spark.read`` and ``spark.readStream``, once ``zmtpsniff.spark.register`` was called.

A task dissects a shard of a series as it does for the command ``ingest`` (see :mod:`zmtpsniff.spark.shard`), and gives
rows of one table to Spark.

Options, their names in any case: ``table`` (messages, commands, subscriptions, problems, connections), ``series``,
``shards``, ``ports``, ``maxBytes``, ``bodies``, ``decodeAs`` (rules, separated by ``;``), ``showSecrets``,
``curveKeys`` (a file of keys on the driver's machine), ``idle``, ``pushdown`` (of predicates, right for a data frame
that is asked once). A stream also has ``state``, a folder of its own for what is open and which files it has seen, and
``maxFiles``, of a micro-batch.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from dissectors.events import Beacon, Command, Connection, Greeting, Message, Problem, Run, Subscription
from zmtpsniff.decode_as import parse
from zmtpsniff.key_file import read_keys
from zmtpsniff.spark.file_list import list_files
from zmtpsniff.spark.inputs import File
from zmtpsniff.spark.options import MOST_FILES, Options, parse_ports
from zmtpsniff.spark.progress import Progress
from zmtpsniff.spark.series import by_series, check_series, series_of, shard_counts
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.shard import MemoryStates, Shard, ShardRows, ShardSpec
from zmtpsniff.spark.tables import ddl

TABLES: dict[str, tuple[type, ...]] = {
    "messages": (Message, Run),
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
_PUSHED = _TIMES | _PORTS | _VERSIONS | {"series"}
_OPTIONS = (
    "table", "series", "shards", "ports", "maxBytes", "bodies", "decodeAs", "showSecrets", "curveKeys", "idle",
    "pushdown", "state", "maxFiles", "path", "paths",
)  # fmt: skip

Condition = tuple[str, type[Filter], Any]
"""A column, how it is compared, and with what."""


class _Request:
    """What the options of a read say."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises ValueError for an option that there is not, or that cannot be so."""
        known = {name.lower() for name in _OPTIONS}
        unknown = sorted(name for name in dict(options) if name.lower() not in known)
        if unknown:
            raise ValueError(f"option {unknown[0]!r}: there are {', '.join(_OPTIONS[:-2])}")
        self.table = options.get("table", "messages")
        if self.table not in TABLES:
            raise ValueError(f"table {self.table!r}: it can be {', '.join(TABLES)}")
        self.series = check_series(options.get("series", "folder"))
        self.shards = int(options["shards"]) if "shards" in options else None
        paths = options.get("paths")
        self.inputs: list[str] = json.loads(paths) if paths else [options["path"]] if "path" in options else []
        if not self.inputs:
            raise ValueError("name a folder or files: load(PATH)")
        rules = tuple(parse(rule) for rule in options.get("decodeAs", "").split(";") if rule)
        ports = options.get("ports", "")
        self.options = Options(
            parse_ports(ports) if ports else (),
            int(options.get("maxBytes", Options().max_bytes)),
            rules,
            options.get("showSecrets", "false").lower() == "true",
            float(options.get("idle", Options().idle_seconds)),
            options.get("bodies", "true").lower() == "true",
            curve_keys=read_keys(options["curveKeys"]) if options.get("curveKeys") else (),
        )
        self.pushdown = options.get("pushdown", "false").lower() == "true"
        self.state = options.get("state", "")
        self.most_files = int(options.get("maxFiles", MOST_FILES))


@dataclass
class Partition(InputPartition):
    """A shard of a series, its files, and the numbers of the lists of a stream before and after them.

    ``known`` says of a stream that the series has been left somewhere.
    """

    series: str
    files: list[str]
    spec: ShardSpec
    before: int = 0
    after: int = 0
    known: bool = False

    def __post_init__(self) -> None:
        """Say what InputPartition wants to know."""
        super().__init__((self.series, self.spec.number))


class ZmtpSource(DataSource):
    """The format ``zmtp``."""

    @classmethod
    def name(cls) -> str:
        """What it is called in ``format``."""
        return "zmtp"

    def schema(self) -> str:
        """The columns of the table that is asked for."""
        return ddl(_Request(self.options).table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read what there is."""
        request = _Request(self.options)
        return _FilteringReader(request, schema) if request.pushdown else _Reader(request, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # as Spark calls it
        """Read what comes."""
        return _StreamReader(_Request(self.options), schema)


class _Reader(DataSourceReader):
    def __init__(self, request: _Request, schema: StructType) -> None:
        self._request = request
        self._schema = schema
        self._conditions: list[Condition] = []

    def partitions(self) -> list[InputPartition]:
        """One for each shard of each series that can have rows."""
        found = by_series(list_files(self._request.inputs, empty=True), self._request.series)
        wanted = [
            name
            for name in found
            if all(_holds(name, kind, value) for column, kind, value in self._conditions if column == "series")
        ]
        octets = {name: sum(file.size for file in found[name]) for name in wanted}
        counts = shard_counts(octets, os.cpu_count() or 1)
        partitions: list[InputPartition] = []
        for name in wanted:
            count = self._request.shards or counts[name]
            paths = [file.path for file in found[name]]
            partitions += [Partition(name, paths, ShardSpec(number, count)) for number in range(count)]
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Dissect a shard."""
        if not isinstance(partition, Partition):  # of no files at all
            return
        options = _narrowed(self._request.options, self._conditions)
        shard = Shard(partition.files, options, MemoryStates(), partition.spec)
        yield from _Table(self._request, partition.series, self._schema, self._conditions).rows(shard, options)


class _FilteringReader(_Reader):
    """One of a data frame that is asked once: Spark keeps it, with its filters, for the next query on the frame."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Note what rows must be like. Spark looks at them again: here it is about how many pass to it."""
        for one in filters:
            column = ".".join(getattr(one, "attribute", ()))
            if column in _PUSHED and (type(one) in _COMPARED or isinstance(one, datasource.In)):
                self._conditions.append((column, type(one), one.value))  # type: ignore[attr-defined]
        return filters


class _StreamReader(DataSourceStreamReader):
    """Offsets are numbers of lists of files, which the folder ``state`` keeps, with what each series is left with."""

    def __init__(self, request: _Request, schema: StructType) -> None:
        if not request.state:
            raise ValueError('a stream keeps what is open in a folder: say .option("state", DIR)')
        self._request = request
        self._schema = schema

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before all files."""
        return {"list": 0}

    def latestOffset(self, start: dict[str, int], limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Up to the files that are there now, but for those that are too many for a micro-batch."""
        progress = Progress(self._request.state)
        if progress.lists() > start["list"]:  # listed before a crash, and not taken
            return {"list": start["list"] + 1}
        known = {path for number in range(1, start["list"] + 1) for path in progress.files(number)}
        # The oldest first, as whoever rotates captures closes them.
        listed = list_files(self._request.inputs, progress.own, empty=True)
        new = sorted((file.modified_ns, file.path) for file in listed if file.path not in known)
        if not new:
            return start
        progress.note(start["list"] + 1, sorted(path for _, path in new[: self._request.most_files]))
        return {"list": start["list"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One for each shard of each series that has files between two offsets."""
        progress = Progress(self._request.state)
        first, last = start["list"], end["list"]
        before: dict[str, int] = {}
        found: dict[str, list[str]] = {}
        for number in range(1, last + 1):
            for path in progress.files(number):
                name = series_of(path, self._request.series)
                if number <= first:
                    before[name] = before.get(name, 0) + 1
                else:
                    found.setdefault(name, []).append(path)
        count = self._request.shards or 1
        return [
            Partition(name, files, ShardSpec(number, count, 1 + before.get(name, 0)), first, last, name in before)
            for name, files in found.items()
            for number in range(count)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Dissect the files of a shard from where it was left, and leave it where they end."""
        assert isinstance(partition, Partition)
        progress = Progress(self._request.state)
        spec, series = partition.spec, partition.series
        states, end_ns, first_group = progress.snapshot(series, partition.before) if partition.known else ({}, 0, 0)
        spec = ShardSpec(spec.number, spec.count, spec.first_file, first_group, end_ns)
        begins = {path: File(path).first_packets() for path in partition.files} if end_ns else {}
        late = [path for path, packets in begins.items() if packets and packets[0][0] < end_ns]
        files = [path for path in partition.files if path not in late]
        table = _Table(self._request, series, self._schema)
        if late:  # what came after it has been given out: it is read as a capture of its own
            numbered = ShardSpec(spec.number, spec.count, spec.first_file + len(files))
            yield from table.rows(Shard(late, self._request.options, MemoryStates(), numbered), self._request.options)
        kept = MemoryStates({name: state for name, state in states.items() if spec.has(name)})
        options = self._request.options._replace(tells_open=False)  # what is open has rows when it is over
        shard = Shard(files, options, kept, spec)
        yield from table.rows(shard, options)
        if shard.has_unreadable_states:
            raise SparkError(f"{self._request.state}: another version left this; begin with new folders")
        progress.keep(series, partition.after, spec, kept.states, max(end_ns, shard.end_ns))

    def commit(self, end: dict[str, int]) -> None:
        """What was left before ``end`` is not asked for again."""
        Progress(self._request.state).forget(end["list"])


class _Table:
    """The rows of one table, with the columns that are asked for."""

    def __init__(
        self, request: _Request, series: str, schema: StructType, conditions: Sequence[Condition] = ()
    ) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._table = request.table
        self._series = series
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._conditions = conditions

    def rows(self, shard: Shard, options: Options) -> Iterator[pa.RecordBatch]:
        """Those of a shard; provisional ones only if what is open has rows."""
        for table, rows, provisional in ShardRows(self._series, shard, options, TABLES[self._table]).all():
            if table == self._table and (options.tells_open or not provisional):
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
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kind is datasource.In:
        return pc.is_in(column, value_set=pa.array([_plain(one) for one in value], column.type))
    return _COMPARED[kind](column, pa.scalar(_plain(value), column.type))


def _holds(text: str, kind: type[Filter], value: Any) -> bool:
    """Whether a text is as it must be."""
    return bool(_mask(pa.array([text]), kind, value)[0].as_py())


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
