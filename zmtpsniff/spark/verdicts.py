"""What becomes of rows that were written before it was known which connection they are of."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem

from zmtpsniff.spark.joining import Judged, decode
from zmtpsniff.spark.rolled import unrolled
from zmtpsniff.spark.rows import KEY
from zmtpsniff.spark.writing import Writer, read_rows

ALONE, STRETCH = "alone-", "stretch-"
_BETWEEN = "\n"
_ENDS = {"connections": ("client", "server")}


def applied(batches: Iterable[pa.RecordBatch], folder: str) -> Iterator[pa.RecordBatch]:
    """Rows of JOIN_SCHEMA of one task: its files that wait in ``folder``, and verdicts. Yield rows of MANIFEST_SCHEMA.

    Rows that hold are written again, with what the verdict says of their connection; the others are not.
    """
    names: list[str] = []
    judged: dict[int, Judged] = {}
    task = 0
    for batch in batches:
        for row in batch.to_pylist():
            task = row["task"]
            if row["path"]:
                names.append(row["path"])
            else:
                judged[row["key"]] = decode(row["judged"])
    if not names:
        return
    system, root = FileSystem.from_uri(folder)
    writer = Writer(folder)
    gone = _Gone(judged)
    for name in sorted(names):
        place, _, file = name.rpartition("/")
        table = place.partition("/")[0]
        for rows in read_rows(system, f"{root}/{name}"):
            if file.startswith((ALONE, STRETCH)):
                rows = _judge(table, rows, judged, file.startswith(STRETCH))
                if table == "messages":
                    rows = unrolled(rows)
            else:
                rows = gone.left(table, rows)
            if rows.num_rows:
                writer.put(place, rows)
    yield from writer.close(task)


def _judge(table: str, rows: pa.RecordBatch, judged: dict[int, Judged], is_stretch: bool) -> pa.RecordBatch:
    """Rows of pieces: those that hold, of the connections that they are of."""
    keys = rows.column(KEY).dictionary_encode()
    verdicts = [judged.get(key) for key in keys.dictionary.to_pylist()]
    rows = rows.drop_columns([KEY])
    if not any(verdicts):
        return rows
    holds = [verdict is None or (is_stretch and verdict.fate == "joined") for verdict in verdicts]
    if is_stretch:
        rows = _set(rows, "conn_id", [verdict and verdict.conn_id for verdict in verdicts], keys.indices)
        if table == "messages":
            rows = _set_types(rows, verdicts, keys.indices)
    return rows if all(holds) else rows.filter(pa.array(holds).take(keys.indices))


def _set(rows: pa.RecordBatch, name: str, values: list[Any], indices: pa.Array) -> pa.RecordBatch:
    """Give a column the values of each row's piece, where they are not None."""
    place = rows.schema.get_field_index(name)
    field = rows.schema.field(place)
    return rows.set_column(place, field, pc.coalesce(pa.array(values, field.type).take(indices), rows.column(place)))


def _set_types(rows: pa.RecordBatch, verdicts: list[Judged | None], indices: pa.Array) -> pa.RecordBatch:
    """Give messages the type of the socket that sent them."""
    sources = rows.column("src").dictionary_encode()
    names = sources.dictionary.to_pylist()
    place = rows.schema.get_field_index("socket_type")
    types: list[str | None] = []
    for verdict in verdicts:
        types += [None if verdict is None else verdict.socket_types.get(name) for name in names]
    at = pc.add(pc.multiply(indices.cast(pa.int64()), len(names)), sources.indices.cast(pa.int64()))
    found = pa.array(types, pa.string()).take(at)
    known = pa.array([verdict is not None for verdict in verdicts]).take(indices)
    column = pc.if_else(known, found, rows.column(place))
    return rows.set_column(place, rows.schema.field(place), column)


class _Gone:
    """Rows that do not wait, and fall all the same, since their connections are dissected anew."""

    def __init__(self, judged: dict[int, Judged]) -> None:
        self._fallen = [verdict for verdict in judged.values() if verdict.ends]
        self._names = pa.array(sorted({_name(verdict.file, verdict.ends) for verdict in self._fallen}), pa.string())

    def left(self, table: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of the others."""
        if table == "captures" or not self._fallen:
            return rows
        one, other = (rows.column(name) for name in _ENDS.get(table, ("src", "dst")))
        swapped = pc.fill_null(pc.greater(one, other), False)
        first, second = pc.if_else(swapped, other, one), pc.if_else(swapped, one, other)
        if table != "connections":
            names = pc.binary_join_element_wise(rows.column("file"), first, second, _BETWEEN)
            return rows.filter(pc.invert(pc.is_in(names, value_set=self._names)))
        # A connection is of the file that it began in.
        names = pc.binary_join_element_wise(rows.column("series"), first, second, _BETWEEN)
        starts = rows.column("start_ns")
        for verdict in self._fallen:
            begin_ns, end_ns = verdict.times_ns
            its = pc.and_(pc.greater_equal(starts, begin_ns), pc.less_equal(starts, end_ns))
            gone = pc.and_(its, pc.equal(names, _name(verdict.series, verdict.ends)))
            kept = pc.invert(gone)
            rows, names, starts = rows.filter(kept), names.filter(kept), starts.filter(kept)
        return rows


def _name(of: str, ends: tuple[str, str] | None) -> str:
    return _BETWEEN.join((of, *(ends or ())))
