"""Captures of many machines, dissected on Spark into tables.

The unit of work is a *shard* of a *series*. A series is the files that are read as one capture, as ``read`` reads them:
merged by time. Its shard k of n makes the rows of every n-th connection. One task does the work of one shard: it
dissects the series from the states that were left open before, and writes rows and states to Parquet from there:
nothing is shuffled. A run, a run that follows folders and the format ``zmtp`` all do this.

The way of a capture through the modules: `series` says which files belong together and what is to be done with them,
`job` makes tasks of it, and `task` is what one task does. It has a `shard`, which reads `inputs`, gives their packets
to an engine, and all events to the `stages` of ``read``, makes `rows` of them (with `message_rows` and `row_columns`)
and gives these to the `writer`. `store` makes the files part of the `tables`, with the `open_states` of what is open.
`ingestion` does all that for a folder, `datasource` for the format `zmtp`. `session` and `masters` start Spark and its
workers; `maintenance` and `report` work on tables.

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
    """Import names that need deltalake, which executors do not have."""
    if name not in ("IngestOutcome", "IngestRun", "ingest"):
        raise AttributeError(name)
    return getattr(import_module("zmtpsniff.spark.ingestion"), name)


def open_tables(session: "SparkSession", folder: str) -> "dict[str, DataFrame]":
    """The tables in a folder, a path or URL, by name, as they are now, with each connection from one vantage point.

    There are views of these names, and more (:func:`zmtpsniff.spark.report.vantage.views`). Raises SparkError.
    """
    from zmtpsniff.spark.report.views import make_views

    return make_views(session, folder)


def register(session: "SparkSession") -> None:
    """Let ``session.read.format("zmtp")`` read captures."""
    from zmtpsniff.spark.datasource import ZmtpSource

    session.dataSource.register(ZmtpSource)
