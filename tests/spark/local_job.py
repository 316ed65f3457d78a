"""A run's tasks one after the other in this process: the data frames of Spark are tables of Arrow."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_BATCH = 3  # rows: few, so that series go over several batches


class Frame:
    """So much of a data frame as a run needs."""

    def __init__(self, table: pa.Table, parts: Sequence[pa.Table] | None = None) -> None:
        self.table = table
        self.parts = [table] if parts is None else parts

    def repartitionById(self, number: int, column: str) -> "Frame":  # noqa: N802  # as Spark calls it
        ids = self.table.column(column)
        return Frame(self.table, [self.table.filter(pc.equal(ids, part)) for part in range(number)])

    def coalesce(self, number: int) -> "Frame":
        assert number == 1
        return Frame(self.table)

    def mapInArrow(self, function: Callable[..., Any], schema: str) -> "Frame":  # noqa: N802
        batches = [batch for part in self.parts for batch in function(iter(part.to_batches(max_chunksize=_BATCH)))]
        return Frame(pa.Table.from_batches(batches))

    def collect(self) -> list[Any]:
        return [tuple(row.values()) for row in self.table.to_pylist()]


class Session:
    """So much of a session as a run needs."""

    def createDataFrame(self, table: pa.Table) -> Frame:  # noqa: N802
        return Frame(table)


class Entries:
    """A map of Spark's state store, and how many of its entries were read and written."""

    def __init__(self) -> None:
        self.entries: dict[int, bytes] = {}
        self.read = self.written = 0

    def get(self, number: int) -> bytes | None:
        self.read += 1
        return self.entries.get(number)

    def put(self, number: int, octets: bytes | None) -> None:
        self.written += 1
        if octets is None:
            self.entries.pop(number, None)
        else:
            self.entries[number] = octets


class Memory:
    """What Spark's state store keeps of one series, in this process."""

    def __init__(self) -> None:
        self.note: bytes | None = None
        self.files: set[str] = set()
        self.shards = Entries()

    def read_note(self) -> bytes | None:
        return self.note

    def write_note(self, octets: bytes) -> None:
        self.note = octets

    def knows(self, path: str) -> bool:
        return path in self.files

    def know(self, paths: Iterable[str]) -> None:
        self.files |= set(paths)

    def forget(self) -> None:
        self.files.clear()
        self.shards.entries.clear()
