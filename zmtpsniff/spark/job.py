"""Shards of series to tasks on Spark."""

import pickle
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from zmtpsniff.spark.masters import PACKAGES
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.task import Job, ShardTask, TaskError, TaskOutcome

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_TOLD = re.compile(rf"{TaskError.__module__}\.{TaskError.__name__}: (.*)")
_LACKS = re.compile(r"ImportError: (the worker at \S+ lacks \w+)|No module named '(pyarrow)")
_TASK_OCTETS = 16 << 20  # of capture files of small series that a task gets together


def cores(session: "SparkSession") -> int:
    """The number of tasks that run at a time."""
    if hasattr(session, "_jsc"):
        return session.sparkContext.defaultParallelism
    from pyspark.sql.functions import spark_partition_id

    return session.range(1 << 16).select(spark_partition_id()).distinct().count()  # Spark Connect does not say it


def run(session: "SparkSession", job: Job, shards: Sequence[ShardTask]) -> list[TaskOutcome]:
    """Have tasks dissect shards. Returns the outcome of each task; raises SparkError if workers cannot do that."""
    shares = _shares(shards)
    work = pickle.dumps((job, shares))

    def dissect_shares(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Do the work of a task. It names nothing of ours before it can say where that is lacking."""
        try:
            import msgspec
            import pyarrow as pa

            from zmtpsniff.spark.task import dissect
        except ImportError as error:
            import socket

            raise ImportError(f"the worker at {socket.gethostname()} lacks {error.name}") from None
        import pickle

        job, shares = pickle.loads(work)
        for batch in batches:
            outcomes = [msgspec.msgpack.encode(dissect(job, shares[one])) for one in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(outcomes, pa.binary())], ["outcome"])

    numbers = session.range(0, len(shares), 1, len(shares))  # a partition each: so nothing is shuffled
    try:
        found = numbers.mapInArrow(dissect_shares, "outcome BINARY").collect()
    except Exception as error:  # each way to reach Spark has errors of its own
        if (said := fault(str(error))) is None:
            raise
        raise SparkError(said) from error
    return [msgspec.msgpack.decode(bytes(row[0]), type=TaskOutcome) for row in found]


def fault(text: str) -> str | None:
    """The fault of workers in one line, by the text of Spark's error; None if it is something else."""
    if told := _TOLD.search(text):
        return told[1]
    lacks = _LACKS.search(text)
    if lacks is None:
        return None
    return f"{lacks[1] or f'a worker lacks {lacks[2]}'}: its Python needs {PACKAGES}"


def _shares(shards: Sequence[ShardTask]) -> list[list[ShardTask]]:
    """The shards that each task gets. Large shards begin first; small ones share a task."""
    shares: list[list[ShardTask]] = []
    room = 0
    sizes = [(one.octets // one.spec.count, one) for one in shards]
    for octets, one in sorted(sizes, key=lambda pair: (-pair[0], pair[1].series, pair[1].spec.number)):
        if not shares or octets > room or one.spec.count > 1:
            shares.append([])
            room = _TASK_OCTETS
        shares[-1].append(one)
        room -= octets
    return shares
