"""Captures of many machines, dissected on Spark into tables.

The unit of work is a *shard* of a *series*. A series is the files that are read as one capture, as ``read`` reads them:
merged by time. Its shard k of n is what goes between those ends whose hash is k. One task dissects one shard, from the
states that were left open before, and writes rows and states to Parquet from there: nothing is shuffled. A run, a run
that follows folders and the format ``zmtp`` all do this.

The modules, from the bottom up; those marked with * need pyarrow, those with ** pyspark when they are called:

| module | what is in it |
| :-- | :-- |
| `tables` | names, types and meanings of all columns; `ddl(table)` for Spark, `arrow_schema(table)` for Arrow |
| `options` | `Options`: what a run is asked for, as executors get it, and how it is written |
| `inputs` | `File`: a capture by path or URL as a source of packets, read by an executor |
| `places` | numbers of packets that say in which file and where they are |
| `groups` | what must be dissected together, and which part of it a shard is |
| `connections` | `shared_id`, `local_id`; `Connections`: what two ends say to each other, segments in, events out |
| `rows` * | `Rows`: events to Arrow record batches |
| `writer` * | rows to Parquet files by the task that made them |
| `state_log` * | the states of what is open, in the tables' folder |
| `shard` * | `Shard`: dissects a shard; `ShardRows`: its events as rows |
| `task` * | `dissect`: what one task does |
| `series` * | files to series, what the tables have of them, and what is to be done with new ones |
| `store` * | `Store`: the folder of the tables, committed as a whole |
| `maintenance` * | `optimize`, and `convert` for tables of version 0.9.0 |
| `masters` | what is named as a master: known, and somebody answers there |
| `session` ** | `get_session`: a session with our code, Java found or its lack explained (`SparkError`) |
| `daemon` ** | what the Python workers of this machine are forked from |
| `job` ** | shards to tasks on Spark |
| `ingestion` ** | `ingest`: inputs to tables in a folder; `follow`: again and again |
| `datasource` ** | `ZmtpSource`: the format `zmtp`, for `spark.read` and `spark.readStream` |
| `report` ** | the tables as views that count each connection once, and the questions of `stats` over them |

Importing this package imports nothing of pyspark, pyarrow, pandas or deltalake.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zmtpsniff.spark.options import Options
from zmtpsniff.spark.session import SparkError, get_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from zmtpsniff.spark.ingestion import IngestOutcome, IngestRun, ingest

__all__ = ["IngestOutcome", "IngestRun", "Options", "SparkError", "get_session", "ingest", "open_tables", "register"]


def __getattr__(name: str) -> Any:
    """What needs deltalake, which executors do not have."""
    if name not in ("IngestOutcome", "IngestRun", "ingest"):
        raise AttributeError(name)
    return getattr(import_module("zmtpsniff.spark.ingestion"), name)


def open_tables(session: "SparkSession", folder: str) -> "dict[str, DataFrame]":
    """The tables in a folder, a path or URL, by name, as they are now, with each connection from one vantage point.

    There are views of these names, too, and more (see :func:`zmtpsniff.spark.report.vantage.views`). Raises SparkError
    if there are no tables.
    """
    from zmtpsniff.spark.report.views import make_views

    return make_views(session, folder)


def register(session: "SparkSession") -> None:
    """Let ``session.read.format("zmtp")`` and ``session.readStream.format("zmtp")`` read captures.

    Predicates may be pushed down to Python data sources in this session from then on.
    """
    from zmtpsniff.spark.datasource import ZmtpSource

    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session.dataSource.register(ZmtpSource)
