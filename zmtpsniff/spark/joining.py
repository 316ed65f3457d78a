"""The reduce side of the map-side path: pieces become verdicts, rows that only the whole connection has, and states."""

from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from zmtpsniff.addresses import addresses
from zmtpsniff.spark import reducing
from zmtpsniff.spark.groups import DATAGRAMS
from zmtpsniff.spark.mapping import key_of
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.pieces import Piece
from zmtpsniff.spark.states import StateError
from zmtpsniff.spark.writing import MANIFEST, MANIFEST_SCHEMA, Writer

JOIN_SCHEMA = pa.schema([*MANIFEST_SCHEMA, pa.field("key", pa.int64(), False), pa.field("judged", pa.binary(), False)])
"""What a task tells: of a file (``judged`` is empty), or of a piece: its key, and what becomes of its rows."""

JOIN = f"{MANIFEST}, key BIGINT NOT NULL, judged BINARY NOT NULL"
"""The same as Spark's SQL writes it."""

_BATCH = 4096


class Judged(msgspec.Struct, array_like=True):
    """What becomes of the rows of a piece, if they do not simply hold."""

    fate: str
    conn_id: str | None = None
    socket_types: dict[str, str | None] = {}
    # Of one of which no row holds, though some do not wait for a verdict:
    file: str = ""
    series: str = ""
    ends: tuple[str, str] | None = None  # addresses, the lesser first
    times_ns: tuple[int, int] = (0, 0)  # of its first and last segment
    # Of one that is dissected anew:
    group: bytes = b""
    state: bytes | None = None  # a reducing.State that it begins with
    loose: bool = False  # fragments in files near by belong to it


_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Judged).decode

Series = Mapping[int, tuple[str, int]]
"""By number: the name of a series, and when its last segment came, nanoseconds since the Unix epoch."""


def joined(
    batches: Iterable[pa.RecordBatch], options: Options, series: Series, bounds: Sequence[int], folder: str
) -> Iterator[pa.RecordBatch]:
    """Join the sorted pieces of one part and write rows into ``folder``; yield rows of JOIN_SCHEMA.

    ``bounds`` are the numbers of the first file of each task that scanned.
    """
    writer = Writer(folder)
    part = _Part(options, series, bounds)
    group = b""
    waiting: list[dict[str, Any]] = []
    for batch in batches:
        for row in batch.to_pylist():
            if row["group"] != group:
                part.take(group, waiting)
                group, waiting = row["group"], []
            waiting.append(row)
        yield from part.told()
        part.write(writer)
    part.take(group, waiting)
    yield from part.told(at_end=True)
    part.write(writer, at_end=True)
    for files in writer.close(-1):
        count = files.num_rows
        rest = [pa.array([0] * count, pa.int64()), pa.array([b""] * count, pa.binary())]
        yield pa.RecordBatch.from_arrays([*files.columns, *rest], schema=JOIN_SCHEMA)


class _Part:
    def __init__(self, options: Options, series: Series, bounds: Sequence[int]) -> None:
        self._groups = reducing.Groups(options)
        for number, (name, end_ns) in series.items():
            self._groups.series[number] = name
            self._groups.ends_ns[number] = end_ns
        self._bounds = bounds
        self._told: list[tuple[int, int, bytes]] = []  # task, key, what becomes of the piece

    def take(self, group: bytes, rows: list[dict[str, Any]]) -> None:
        """Take all rows of a group."""
        if group.startswith(DATAGRAMS, 4):
            state = rows.pop(0)["piece"] if rows[0]["first_ns"] < 0 else None
            for row in rows:
                judged = Judged("redo", group=group, state=state)
                self._tell(row["file_no"], 0, judged)
            return
        state = None
        if rows and rows[0]["first_ns"] < 0:
            state = rows.pop(0)["piece"]
        pieces = [Piece.decode(row["piece"]) for row in rows]
        if state is None and (not pieces or (len(pieces) == 1 and pieces[0].plain)):
            return
        groups = self._groups
        groups.files.update((row["file_no"], row["path"]) for row in rows)
        connections = groups.begin(group, state)
        try:
            outcomes = connections.take_pieces(pieces)
        except StateError:
            outcomes = []
        if len(outcomes) < len(pieces) or any(outcome.verdict.fate == "redo" for outcome in outcomes):
            # All of the tuple is dissected anew, also what came before the doubt: what a state has kept of that is not
            # always enough.
            groups.leaves_open = False
            for piece in pieces:
                judged = self._fallen(group, piece, "redo")
                judged.group, judged.loose, judged.state = group, piece.loose, state
                self._tell(piece.file, piece.number, judged)
            groups.finish()
            return
        for piece, outcome in zip(pieces, outcomes, strict=True):
            verdict = outcome.verdict
            groups.take(outcome.events, (piece.file,))
            if verdict.fate == "told":
                self._tell(piece.file, piece.number, self._fallen(group, piece, "told"))
            elif verdict.fate != "alone":
                self._tell(piece.file, piece.number, Judged(verdict.fate, verdict.conn_id, verdict.socket_types or {}))
        groups.finish()

    def _fallen(self, group: bytes, piece: Piece, fate: str) -> Judged:
        """What to know of a piece of which no row holds; of its tuple's other connections only if there are any."""
        judged = Judged(fate)
        if piece.birth or piece.others:
            first, second = sorted(end.text for end in addresses(piece.key))
            judged.ends, judged.times_ns = (first, second), (piece.first_ns, piece.last_ns)
            judged.file = self._groups.files[piece.file]
            judged.series = self._groups.series[int.from_bytes(group[:4], "big")]
        return judged

    def _tell(self, file_no: int, piece: int, judged: Judged) -> None:
        task = bisect(self._bounds, file_no) - 1
        self._told.append((task, key_of(file_no, piece), _encode(judged)))

    def told(self, at_end: bool = False) -> Iterator[pa.RecordBatch]:
        if self._told and (at_end or len(self._told) >= _BATCH):
            tasks, keys, judged = zip(*self._told, strict=True)
            none = [0] * len(tasks)
            columns = (tasks, [""] * len(tasks), none, none, keys, judged)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, JOIN_SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=JOIN_SCHEMA)
            self._told = []

    def write(self, writer: Writer, at_end: bool = False) -> None:
        for table, rows, prefix in self._groups.rows(at_end):
            writer.take(table, rows, prefix)
