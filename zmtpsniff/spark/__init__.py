"""Captures of many machines, dissected on Spark into tables.

As a library::

    from zmtpsniff.spark import Options, dissect, get_session

    spark = get_session("local[2]")
    paths = spark.createDataFrame([("/captures/web1/0001.pcap",), ("/captures/web1/0002.pcap",)], "path STRING")
    tables = dissect(paths)
    tables.messages.groupBy("conn_id").count().show()
    tables.close()

The modules, from the bottom up; those marked with * need pyarrow, those with ** pyspark when they are called:

| module | what is in it |
| :-- | :-- |
| `tables` | names, types and meanings of all columns; `ddl(table)` for Spark, `arrow_schema(table)` for Arrow |
| `options` | `Options`: what a run is asked for, as executors get it |
| `listing` | inputs to files (`list_files`), files to series (`series_of`) |
| `inputs` | `File`: a capture by path or URL as a source of packets, read by an executor |
| `known` | the files that the tables have; which new ones are late |
| `places` | numbers of packets that say in which file and where they are |
| `groups` | what must be dissected together |
| `states` | objects of flows and dissectors as octets |
| `connections` | `connection_id`; `Connections`: what two ends say to each other, segments in, events out |
| `rows` * | `Rows`: events to Arrow record batches; `wrap` for a stream |
| `writing` * | rows to Parquet files by the task that made them |
| `whole` * | `Series`: all files of a series dissected by one task, with states before and after |
| `store` * | `Store`: the folder of the tables, committed as a whole |
| `open_states` * | the states of what is open, in that folder |
| `shards` * | the states of a series, many to an entry of a map |
| `taking` * | `Task`: the new files of series, dissected by one task |
| `committing` * | what tasks made, committed |
| `export` ** | the tables in another format than Parquet |
| `masters` | what is named as a master: known, and somebody answers there |
| `session` ** | `get_session`: a session with our code, Java found or its lack explained (`SparkError`) |
| `daemon` ** | what the Python workers of this machine are forked from |
| `tasks` ** | rows to tasks of this machine without the planning of a data frame |
| `job` ** | series to tasks on Spark |
| `ingest` ** | `ingest`: inputs to tables in a folder |
| `stateful` ** | the plan of a stream that follows folders: the operator that keeps states |
| `follow`, `quiet` ** | `follow`: folders that fill, to tables, with Structured Streaming; series that come no more |
| `progress` * | `Progress`: the folder of a stream of the format `zmtp` |
| `datasource` ** | `ZmtpSource`: the format `zmtp`, for `spark.read` and `spark.readStream` |
| `report` ** | the questions of `stats` over the tables |

Nothing of pyspark, pyarrow or pandas is imported before it is used.

A run, a micro-batch of a stream and the data source go the same way. A task gets a series and its new files. It merges
them by time as ``read`` does, and gives what two ends say to each other to ``Connections``, which go on from what an
earlier run left of them. Rows go to Parquet from there, and so do the states of what is still open: nothing is
shuffled. A series is one task, so a run is as parallel as there are series.
"""

from typing import TYPE_CHECKING, NamedTuple

from zmtpsniff.spark.options import Options
from zmtpsniff.spark.session import SparkError, get_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Options", "SparkError", "Tables", "dissect", "get_session", "register"]


class Tables(NamedTuple):
    """The tables as data frames, with the columns that :data:`zmtpsniff.spark.tables.TABLES` names."""

    connections: "DataFrame"
    messages: "DataFrame"
    commands: "DataFrame"
    subscriptions: "DataFrame"
    problems: "DataFrame"
    captures: "DataFrame"
    rows: "DataFrame"  # of all tables, a struct column each, of which one is not null; what the others select from

    def close(self) -> None:
        """Let go of what was kept so that the captures are not read again for each table."""
        self.rows.unpersist()


def dissect(paths: "DataFrame", options: Options | None = None, series: str = "folder", keep: bool = True) -> Tables:
    """Dissect the capture files that the column ``path`` of ``paths`` names, each once: paths or URLs.

    ``series`` says which of them are read as one capture: those of a folder (``"folder"``), each alone (``"file"``), or
    those for whose paths group 1 of a regular expression is the same. Columns ``length`` and ``modificationTime``, as
    ``binaryFile`` has them, are used if they are there.

    Nothing is read before a table is used. With ``keep`` all rows stay on the executors' disks from then on, until
    ``close`` is called. A file that cannot be read becomes a row of ``problems`` and of ``captures``. Raises ValueError
    for a ``series`` that is none.
    """
    from zmtpsniff.spark.job import Part, rows_of
    from zmtpsniff.spark.listing import by_series, listed_in
    from zmtpsniff.spark.tables import TABLES

    found = by_series(listed_in(paths), series)
    rows = rows_of(paths.sparkSession, [Part(*one) for one in found.items()], options or Options())
    if keep:
        from pyspark import StorageLevel

        rows = rows.persist(StorageLevel.DISK_ONLY)
    return Tables(**{table: rows.where(rows[table].isNotNull()).select(f"{table}.*") for table in TABLES}, rows=rows)


def register(session: "SparkSession") -> None:
    """Let ``session.read.format("zmtp")`` and ``session.readStream.format("zmtp")`` read captures.

    Predicates are pushed down to Python data sources in this session from then on.
    """
    from zmtpsniff.spark.datasource import ZmtpSource

    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session.dataSource.register(ZmtpSource)
