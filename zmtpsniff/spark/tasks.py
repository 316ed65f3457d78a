"""Tasks of this machine that each get rows of their own: without a data frame, whose planning costs seconds.

Through Spark Connect there is no other way than data frames, and clusters may allow none.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def is_local(session: "SparkSession") -> bool:
    """Whether tasks run on this machine alone."""
    return hasattr(session, "_jsc") and (session.sparkContext.master or "").startswith("local")


def run_here(session: "SparkSession", rows: pa.Table, function: Function) -> list[tuple[Any, ...]]:
    """Have a task of a local session for each value of the column ``task`` call ``function`` with those rows.

    Returns the rows that all of them yield.
    """
    tasks = rows.column("task")
    shares = [_encode(rows.filter(pc.equal(tasks, task))) for task in pc.unique(tasks).to_pylist()]

    def work(share: bytes) -> list[tuple[Any, ...]]:
        batches = pa.ipc.open_stream(share)
        return [tuple(row.values()) for batch in function(batches) for row in batch.to_pylist()]

    return session.sparkContext.parallelize(shares, len(shares)).flatMap(work).collect() if shares else []


def _encode(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
