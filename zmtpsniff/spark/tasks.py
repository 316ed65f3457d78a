"""Tasks of this machine that each get rows of their own: without a data frame, whose planning costs seconds.

Through Spark Connect there is no other way than data frames, and clusters may allow none.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def is_local(session: "SparkSession") -> bool:
    """Whether tasks run on this machine alone."""
    return hasattr(session, "_jsc") and (session.sparkContext.master or "").startswith("local")


def run_here(session: "SparkSession", rows: pa.Table, function: Function) -> list[pa.RecordBatch]:
    """Have a task of a local session for each value of the column ``task`` call ``function`` with those rows.

    Returns what all of them yield.
    """
    values = rows.column("task")
    shares = [_encode(rows.filter(pc.equal(values, value)).to_batches()) for value in pc.unique(values).to_pylist()]

    def work(share: bytes) -> list[bytes]:
        found = [*function(pa.ipc.open_stream(share))]
        return [_encode(found)] if found else []

    told = session.sparkContext.parallelize(shares, len(shares)).flatMap(work).collect() if shares else []
    return [batch for share in told for batch in pa.ipc.open_stream(share)]


def _encode(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
