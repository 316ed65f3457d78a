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
| `connections` | `connection_id`; `Connections`: what two ends say to each other, segments in, events out |
| `rows` * | `Rows`: events to Arrow record batches; `wrap` for a stream with rows of all tables |
| `exact` * | the reference path: `segments` of files, `dissected` in order |
| `writing` * | rows to Parquet files by the task that made them |
| `store` * | `Store`: the folder of the tables, committed as a whole |
| `session` ** | `get_session`: a session with our code, Java found or its lack explained (`SparkError`) |
| `ingest` ** | `ingest`: inputs to tables in a folder; `run_exact` |

Nothing of pyspark, pyarrow or pandas is imported before it is used.
"""

from typing import TYPE_CHECKING, NamedTuple

from zmtpsniff.spark.options import Options
from zmtpsniff.spark.session import SparkError, get_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Options", "SparkError", "Tables", "dissect", "get_session"]


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


def dissect(
    paths: "DataFrame", options: Options | None = None, series: str = "folder", exact: bool = True, keep: bool = True
) -> Tables:
    """Dissect the capture files that the column ``path`` of ``paths`` names, each once: paths or URLs.

    ``series`` says which of them are read as one capture: those of a folder (``"folder"``), each alone (``"file"``), or
    those for whose paths group 1 of a regular expression is the same. Columns ``length`` and ``modificationTime``, as
    ``binaryFile`` has them, are used if they are there. With ``exact`` every segment is shuffled.

    Nothing is read before a table is used. With ``keep`` all rows stay on the executors' disks from then on, until
    ``close`` is called. A file that cannot be read becomes a row of ``problems`` and of ``captures``.
    """
    from zmtpsniff.spark.ingest import run_exact, to_rows
    from zmtpsniff.spark.listing import listed_in
    from zmtpsniff.spark.tables import TABLES

    rows = run_exact(paths.sparkSession, listed_in(paths), options or Options(), series, to_rows())
    if keep:
        from pyspark import StorageLevel

        rows = rows.persist(StorageLevel.DISK_ONLY)
    return Tables(**{table: rows.where(rows[table].isNotNull()).select(f"{table}.*") for table in TABLES}, rows=rows)
