"""A run's tasks one after the other in this process: the data frames of Spark are tables of Arrow."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.spark.ingestion import IngestOutcome, IngestRun, ingest
from zmtpsniff.spark.options import Options, ShardSpec
from zmtpsniff.spark.rows import Batch
from zmtpsniff.spark.task import Job, ShardTask, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Frame:
    """So much of a data frame as a run needs."""

    def __init__(self, parts: Sequence[pa.Table]) -> None:
        self.parts = parts

    def mapInArrow(self, function: Callable[..., Any], schema: str) -> "Frame":  # noqa: N802  # as Spark calls it
        return Frame([pa.Table.from_batches(function(iter(part.to_batches()))) for part in self.parts])

    def collect(self) -> list[Any]:
        return [tuple(row.values()) for part in self.parts for row in part.to_pylist()]


class _Session:
    """So much of a session as a run needs, on two cores."""

    _jsc = None
    sparkContext = SimpleNamespace(defaultParallelism=2)  # noqa: N815

    def range(self, start: int, end: int, step: int, parts: int) -> Frame:
        assert (end - start) // step == parts
        return Frame([pa.table({"id": [number]}) for number in range(start, end, step)])


def local_session() -> "SparkSession":
    return cast("SparkSession", _Session())


def asked(output: Path | str, series: str = "folder", shards: int | None = None, **options: Any) -> IngestRun:
    """The options of a run whose bodies are as long as those of ``read``."""
    return IngestRun(str(output), Options(**{"max_bytes": 65_536, **options}), series, shards)


def take(
    inputs: Iterable[Path | str], output: Path | str, session: "SparkSession | None" = None, **how: Any
) -> IngestOutcome:
    """Ingest files or folders."""
    return ingest(session or local_session(), [str(one) for one in inputs], asked(output, **how))


def task_rows(files: Sequence[Path], shards: int = 1, **options: Any) -> Iterator[Batch]:
    """The rows that tasks make of files, which are one series."""
    listed = [FileInfo(str(file), file.stat().st_size, 0) for file in files]
    for task in ShardTask("series", ShardSpec(), listed).parts(shards):
        yield from rows_of(Job(".", [], Options(**options)), task, [])
