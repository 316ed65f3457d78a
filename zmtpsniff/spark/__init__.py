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
    from zmtpsniff.spark.datasource import register
    from zmtpsniff.spark.ingestion import IngestOutcome, IngestRun, ingest
    from zmtpsniff.spark.report.views import open_tables

__all__ = ["IngestOutcome", "IngestRun", "Options", "SparkError", "get_session", "ingest", "open_tables", "register"]


# The modules of names that need packages which executors need not have.
_LATE = {
    "IngestOutcome": "ingestion",
    "IngestRun": "ingestion",
    "ingest": "ingestion",
    "open_tables": "report.views",
    "register": "datasource",
}


def __getattr__(name: str) -> Any:
    """Import a name once it is asked for."""
    if name not in _LATE:
        raise AttributeError(name)
    return getattr(import_module(f"zmtpsniff.spark.{_LATE[name]}"), name)
