"""The format ``zmtp`` of ``spark.read`` and ``spark.readStream``, once ``zmtpsniff.spark.register`` was called.

A task dissects a shard of a series as it does for the command ``ingest`` (see :mod:`zmtpsniff.spark.shard`), and gives
rows of one table to Spark.

A stream keeps in a folder of its own what is open and which files it has seen.
"""

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from msgspec import Meta
from pyarrow.fs import FileSelector
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from dissectors.batches import MessageBatch
from dissectors.events import Beacon, Command, Connection, Greeting, Message, Problem, Subscription
from zmtpsniff.capture.file_list import FileInfo, list_files
from zmtpsniff.capture.locations import file_system, is_there, make_parent
from zmtpsniff.decode_as import parse
from zmtpsniff.engine.key_file import read_keys
from zmtpsniff.spark.groups import ShardSpec
from zmtpsniff.spark.options import MOST_FILES, Options, check_series, parse_ports
from zmtpsniff.spark.series import by_series, oldest, shard_counts, shard_task
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.stages import Stages
from zmtpsniff.spark.state_log import STATES
from zmtpsniff.spark.tables import ddl, tables_of
from zmtpsniff.spark.task import Job, ShardTask, rows_of
from zmtpsniff.spark.writer import DataFile, TableWriter

if TYPE_CHECKING:
    from zmtpsniff.spark.ingestion import Base
    from zmtpsniff.spark.store import Store

TABLES: dict[str, tuple[type, ...]] = {
    "messages": (Message, MessageBatch),
    "commands": (Greeting, Command, Beacon),
    "subscriptions": (Subscription,),
    "problems": (Problem,),
    "connections": (Connection,),
}
"""The tables that can be read so, and the events that they have rows of."""

_Offset = dict[str, Any]


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    """The options of a read with their defaults; their names are in lower case, as Spark has them."""

    table: str = "messages"
    series: str = "folder"
    shards: Annotated[int, Meta(ge=1)] | None = None
    ports: str = ""
    maxbytes: Annotated[int, Meta(ge=0)] = Options().max_bytes
    bodies: bool = True
    decodeas: str = ""  # rules, separated by ;
    showsecrets: bool = False
    curvekeys: str = ""  # a file of keys on the driver's machine
    idle: Annotated[float, Meta(gt=0)] = Options().idle_seconds
    state: str = ""  # of a stream: its folder
    maxfiles: Annotated[int, Meta(ge=1)] = MOST_FILES  # of a micro-batch
    path: str = ""
    paths: str = ""

    @property
    def inputs(self) -> list[str]:
        """The folders and files to read."""
        return json.loads(self.paths) if self.paths else [self.path]

    @property
    def options(self) -> Options:
        """The options for tasks."""
        ports = parse_ports(self.ports) if self.ports else ()
        rules = tuple(parse(rule) for rule in self.decodeas.split(";") if rule)
        keys = read_keys(self.curvekeys) if self.curvekeys else ()
        return Options(ports, self.maxbytes, rules, self.showsecrets, self.idle, self.bodies, curve_keys=keys)


def _request(options: Mapping[str, str]) -> _Request:
    """The request that options make; raises ValueError for an unknown option or value."""
    try:
        request = msgspec.convert({name.lower(): options[name] for name in options}, _Request, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{error}; options are {', '.join(_Request.__struct_fields__[:-2])}") from None
    if request.table not in TABLES:
        raise ValueError(f"table {request.table!r}: it can be {', '.join(TABLES)}")
    check_series(request.series)
    if not any(request.inputs):
        raise ValueError("name a folder or files: load(PATH)")
    Stages(request.options.settings)  # raises here for wrong values
    return request


class ZmtpSource(DataSource):
    """The format ``zmtp``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "zmtp"

    def schema(self) -> str:
        """The columns of the table that is asked for; raises LocationError for an input that is not there."""
        request = _request(self.options)
        list_files(request.inputs, empty=True)
        return ddl(request.table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read the files that are there."""
        return _Reader(_request(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # as Spark calls it
        """Read files as they come."""
        return _StreamReader(_request(self.options), schema)


class _Reader(DataSourceReader):
    def __init__(self, request: _Request, schema: StructType) -> None:
        self._request = request
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """One for each shard of each series."""
        found = by_series(list_files(self._request.inputs, empty=True), self._request.series)
        octets = {name: sum(file.size for file in files) for name, files in found.items()}
        counts = shard_counts(octets, os.cpu_count() or 1)
        job = Job(".", [], "", self._request.options)  # which begins with no states
        return [
            InputPartition((job, task, None))
            for name, files in found.items()
            for task in ShardTask(name, ShardSpec(), files).parts(self._request.shards or counts[name])
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Dissect a shard."""
        if partition.value is not None:  # as where there are no files at all
            yield from _rows(self._request, self._schema, partition)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is the number of a micro-batch, and the files that it reads.

    The folder ``state`` is one of tables. Of these, the states have what is open, and ``captures`` the files that were
    read. Tasks say in ``_batches/NUMBER`` what they wrote there, which is committed before the next micro-batch begins.
    """

    def __init__(self, request: _Request, schema: StructType) -> None:
        if not request.state:
            raise ValueError('a stream keeps what is open in a folder: say .option("state", DIR)')
        self._request = request
        self._schema = schema
        self._number = -1  # of the last micro-batch of which this is
        self._base: Base | None = None
        self._listed: list[FileInfo] | None = None  # all that it takes, if it ends with what is there

    def initialOffset(self) -> _Offset:  # noqa: N802
        """Before all files."""
        return {"batch": 0, "files": []}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take the files that are there now, in as many micro-batches as they need, and no others."""
        self._listed = self._list()

    def _list(self) -> list[FileInfo]:
        return list_files(self._request.inputs, tables_of(self._request.state), empty=True)

    def latestOffset(self, start: _Offset, limit: Any = None) -> _Offset:  # noqa: N802
        """The offset of the files that are there now, without those that are too many for a micro-batch."""
        base = self._after(start)
        known = {file.listed.path for files in base.known.values() for file in files}
        listed = self._list() if self._listed is None else self._listed
        new = oldest([file for file in listed if file.path not in known], self._request.maxfiles)
        return {"batch": start["batch"] + 1, "files": [*map(list, new)]} if new else start

    def partitions(self, start: _Offset, end: _Offset) -> list[InputPartition]:
        """One for each shard of each series that has files between two offsets."""
        if start == end:
            return []
        base = self._after(start)
        outcomes = f"{base.store.location}/_batches/{end['batch']}"
        if is_there(outcomes):  # of tasks of a run that was killed, perhaps of other shards
            system, folder = file_system(outcomes)
            system.delete_dir(folder)
        job = base.job(self._request.options._replace(tells_open=False))  # what is open has rows when it is over
        files = by_series([FileInfo(*one) for one in end["files"]], self._request.series)
        tasks = [shard_task(name, some, base.known.get(name, []), False) for name, some in files.items()]
        parts = [part for task in tasks for part in task.parts(self._request.shards or 1)]
        return [InputPartition((job, part, f"{end['batch']}/{at}")) for at, part in enumerate(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Dissect the files of a shard from its states on, and say which states they leave."""
        job, _, outcome = partition.value
        writer = TableWriter(job.folder, job.prefix)
        yield from _rows(self._request, self._schema, partition, writer=writer)
        system, path = file_system(f"{job.folder}/_batches/{outcome}")
        make_parent(system, path)
        partial = f"{path}.{uuid4().hex}"  # of a task that is run twice, one is there, and whole
        with system.open_output_stream(partial) as file:
            file.write(msgspec.json.encode(writer.close()))
        system.move(partial, path)

    def commit(self, end: _Offset) -> None:
        """Learn that nothing before ``end`` will be asked for again."""
        self._after(end)

    def _after(self, offset: _Offset) -> "Base":
        """The folder once the results of all micro-batches up to an offset are committed; raises SparkError."""
        from zmtpsniff.spark.ingestion import Base  # of which executors need nothing
        from zmtpsniff.spark.store import Store

        number = offset["batch"]
        if self._base is None or self._number != number:
            store = Store(self._request.state)
            store.open()
            behind = number - store.last_commit().number
            if behind not in (0, 1) or (behind and not self._complete(store, number)):
                raise SparkError(f"{self._request.state}: it is not what this checkpoint left; begin with new folders")
            self._number, self._base = number, Base(store)
        return self._base

    def _complete(self, store: "Store", number: int) -> bool:
        """Commit the files that the tasks of a micro-batch wrote; False if there are none."""
        system, folder = file_system(f"{store.location}/_batches/{number}")
        files: list[DataFile] = []
        for info in system.get_file_info(FileSelector(folder, allow_not_found=True)):
            if "." not in info.base_name:
                with system.open_input_stream(info.path) as file:
                    files += msgspec.json.decode(file.read(), type=list[DataFile])
        if files:
            store.commit(number - 1, files, set(), set(), lambda: True)
            system.delete_dir(folder)
        return bool(files)


def _rows(
    request: _Request,
    schema: StructType,
    partition: InputPartition,
    writer: TableWriter | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a shard, with the columns of a schema. ``writer`` writes the states of its series.

    A partition has the job, the shard, and in a stream the name of its outcome.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    job, task, _ = partition.value
    wanted: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    unreadable: list[str] = []
    for table, rows, provisional in rows_of(job, task, unreadable, TABLES[request.table]):
        if table == request.table and (job.options.tells_open or not provisional):
            if rows.num_rows:
                columns = [rows.column(field.name).cast(field.type) for field in wanted]
                yield pa.RecordBatch.from_arrays(columns, schema=wanted)
        elif writer is not None and table in (STATES, "captures"):
            writer.take(table, rows)
    if unreadable:
        raise SparkError(f"{job.folder}: another version left this; begin with new folders")
