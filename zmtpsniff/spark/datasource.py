"""The format ``zmtp`` of ``spark.read``, once ``zmtpsniff.spark.register`` was called.

A task dissects a shard of a series as it does for the command ``ingest`` (see :mod:`zmtpsniff.spark.shard`), and gives
rows of one table to Spark. There is no stream of this format: it could not take rows back, as tables do.
"""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
import pyarrow as pa
from msgspec import Meta
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dissectors.batches import MessageBatch
from dissectors.events import Beacon, Command, Connection, Greeting, Message, Problem, Subscription
from zmtpsniff.capture.file_list import list_files
from zmtpsniff.decode_as import parse
from zmtpsniff.engine.key_file import read_keys
from zmtpsniff.spark.options import Options, ShardSpec, check_series, parse_ports
from zmtpsniff.spark.series import by_series, shard_counts
from zmtpsniff.spark.stages import Stages
from zmtpsniff.spark.tables import ddl
from zmtpsniff.spark.task import Job, ShardTask, rows_of

TABLES: dict[str, tuple[type, ...]] = {
    "messages": (Message, MessageBatch),
    "commands": (Greeting, Command, Beacon),
    "subscriptions": (Subscription,),
    "problems": (Problem,),
    "connections": (Connection,),
}
"""The tables that can be read so, and the events that they have rows of."""


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


def register(session: SparkSession) -> None:
    """Let ``session.read.format("zmtp")`` read captures."""
    session.dataSource.register(ZmtpSource)


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


class _Reader(DataSourceReader):
    def __init__(self, request: _Request, schema: StructType) -> None:
        self._request = request
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """One for each shard of each series."""
        found = by_series(list_files(self._request.inputs, empty=True), self._request.series)
        octets = {name: sum(file.size for file in files) for name, files in found.items()}
        counts = shard_counts(octets, os.cpu_count() or 1)
        job = Job(".", [], self._request.options)  # which begins with no states
        return [
            InputPartition((job, task))
            for name, files in found.items()
            for task in ShardTask(name, ShardSpec(), files).parts(self._request.shards or counts[name])
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Dissect a shard; yields the rows of the table, with the columns that are asked for."""
        from pyspark.sql.pandas.types import to_arrow_schema

        if partition.value is None:  # as where there are no files at all
            return
        job, task = partition.value
        name = self._request.table
        wanted: pa.Schema = to_arrow_schema(self._schema, timezone="UTC")
        for table, rows, _ in rows_of(job, task, [], TABLES[name]):
            if table == name and rows.num_rows:
                columns = [rows.column(field.name).cast(field.type) for field in wanted]
                yield pa.RecordBatch.from_arrays(columns, schema=wanted)
