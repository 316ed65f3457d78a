"""The stages of a job one after the other in this process: the data frames of Spark are tables of Arrow."""

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_BATCH = 200  # rows: few, so that groups go over several batches


class Frame:
    """So much of a data frame as a job needs."""

    def __init__(self, table: pa.Table, parts: Sequence[pa.Table] | None = None) -> None:
        self.table = table
        self.parts = [table] if parts is None else parts

    def repartitionById(self, number: int, column: str) -> "Frame":  # noqa: N802  # as Spark calls it
        ids = self.table.column(column)
        return Frame(self.table, [self.table.filter(pc.equal(ids, part)) for part in range(number)])

    def coalesce(self, number: int) -> "Frame":
        assert number == 1
        return Frame(self.table)

    def sortWithinPartitions(self, *columns: str) -> "Frame":  # noqa: N802
        keys = [(column, "ascending") for column in columns]
        return Frame(self.table, [part.sort_by(keys) for part in self.parts])

    def mapInArrow(self, function: Callable[..., Any], schema: str) -> "Frame":  # noqa: N802
        batches = []
        for part in self.parts:
            batches += list(function(iter(part.to_batches(max_chunksize=_BATCH))))
        table = pa.Table.from_batches(batches) if batches else _empty(schema)
        return Frame(table)

    def unionAll(self, other: "Frame") -> "Frame":  # noqa: N802
        tables = [self.table, other.table.cast(self.table.schema)] if self.table.num_columns else [other.table]
        return Frame(pa.concat_tables(tables))

    def where(self, condition: str) -> "Frame":
        has_path = pc.not_equal(self.table.column("path"), "")
        return Frame(self.table.filter(has_path if "<>" in condition else pc.invert(has_path)))

    def select(self, *columns: str) -> "Frame":
        return Frame(self.table.select(columns))

    def collect(self) -> list[Any]:
        return [tuple(row.values()) for row in self.table.to_pylist()]

    def toLocalIterator(self) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(**row) for row in self.table.to_pylist()]

    def persist(self, level: Any) -> "Frame":
        return self

    def unpersist(self) -> None:
        pass


def _empty(schema: str) -> pa.Table:
    types = {"INT": pa.int32(), "BIGINT": pa.int64(), "BINARY": pa.binary(), "STRING": pa.string()}
    fields = [column.split(" ")[:2] for column in schema.split(", ")]
    return pa.schema([(name.strip("`"), types[kind]) for name, kind in fields]).empty_table()


class Session:
    """So much of a session as a job needs."""

    @property
    def read(self) -> "Session":
        return self

    def schema(self, text: str) -> "Session":
        return self

    def createDataFrame(self, table: Any, schema: str = "") -> Frame:  # noqa: N802
        return Frame(_empty(schema) if schema else table)

    def parquet(self, *names: str) -> Frame:
        return Frame(pa.concat_tables([pq.read_table(name) for name in names]))  # type: ignore[no-untyped-call]


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
