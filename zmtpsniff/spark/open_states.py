"""The states of what is open, as the tables' folder keeps them: a log in which the latest row of a group holds.

A run or a micro-batch adds files, with a number, of the groups that it changed alone; a row without a state says that
there is nothing any more. Files are merged before they are many.
"""

from collections.abc import Set
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from zmtpsniff.spark.connections import NO_STATE
from zmtpsniff.spark.store import Folder, Store
from zmtpsniff.spark.whole import State

OPEN = "_open"
OPEN_SCHEMA = pa.schema(
    [
        pa.field("series", pa.string(), False),
        pa.field("name", pa.binary(), False),  # of the group
        pa.field("state", pa.binary(), False),  # a State
    ]
)

GONE = b""
"""The state of a group of which nothing is open."""

_MANY = 8  # files of about the same size, or smaller, that are merged


def encode_state(state: State) -> bytes:
    """A state as octets."""
    return msgspec.msgpack.encode(state)


def decode_state(octets: bytes) -> State:
    """The state of :func:`encode_state`; one that is not good of what an earlier version wrote."""
    try:
        return msgspec.msgpack.decode(octets, type=State)
    except msgspec.ValidationError:
        return State(0, NO_STATE)


def prefix_of(number: int) -> str:
    """How the name of a file with a number begins."""
    return f"{number:010}-"


def _number_of(name: str) -> int:
    begin, dash, _ = name.rpartition("/")[2].partition("-")
    return int(begin) if dash else 0


class OpenStates:
    """The log as it is now."""

    def __init__(self, folder: Folder) -> None:
        """Read the log of a folder."""
        self._folder = folder
        self.files = sorted(folder.files(OPEN), key=lambda name: (_number_of(name), name))
        self._groups: dict[str, list[Set[str]]] = {}  # of each file: the series in each of its row groups
        self._latest: dict[str, tuple[int, list[tuple[str, bytes, bytes]]]] = {}

    @property
    def next_number(self) -> int:
        """That of the file to add."""
        return 1 + max(map(_number_of, self.files), default=0)

    def of(self, series: str) -> dict[bytes, bytes]:
        """The states of a series, by their groups' names in it."""
        states: dict[bytes, bytes] = {}
        for file in self.files:
            for number, names in enumerate(self._series_in(file)):
                if series in names:
                    states |= {name: state for one, name, state in self._rows(file, number) if one == series}
        return {name: state for name, state in states.items() if state != GONE}

    def _series_in(self, file: str) -> list[Set[str]]:
        found = self._groups.get(file)
        if found is None:
            with self._folder.parquet(file) as parquet:
                groups = range(parquet.metadata.num_row_groups)
                columns = (parquet.read_row_group(number, ["series"]).column("series") for number in groups)
                found = self._groups[file] = [frozenset(column.unique().to_pylist()) for column in columns]
        return found

    def _rows(self, file: str, number: int) -> list[tuple[str, bytes, bytes]]:
        """The rows of a row group; the last one read of a file is kept, since series lie next to each other."""
        known = self._latest.get(file)
        if known is None or known[0] != number:
            with self._folder.parquet(file) as parquet:
                columns = [column.to_pylist() for column in parquet.read_row_group(number).select(OPEN_SCHEMA.names)]
            known = self._latest[file] = number, list(zip(*columns, strict=True))
        return known[1]

    def merge(self, store: Store) -> tuple[list[str], list[str]]:
        """Files to remove, and those staged in ``store`` that have what is left of them; none if there are few."""
        sizes = [store.size(name) for name in self.files]
        first = next((at for at, size in enumerate(sizes) if size <= 2 * sum(sizes[at + 1 :])), len(sizes))
        chosen = self.files[first:]
        if len(chosen) < _MANY:
            return [], []
        latest: dict[tuple[Any, ...], str] = {}
        for file in chosen:
            with store.parquet(file) as parquet:
                for rows in parquet.iter_batches(columns=["series", "name"]):
                    latest.update(
                        dict.fromkeys(zip(*(column.to_pylist() for column in rows.columns), strict=True), file)
                    )
        with store.write(f"{OPEN}/{prefix_of(_number_of(chosen[-1]))}", OPEN_SCHEMA) as (target, writer):
            for file in chosen:
                with store.parquet(file) as parquet:
                    for rows in parquet.iter_batches(columns=OPEN_SCHEMA.names):
                        keys = zip(rows.column("series").to_pylist(), rows.column("name").to_pylist(), strict=True)
                        holds = pa.array([latest[key] == file for key in keys], pa.bool_())
                        if not first:  # nothing before that a row could take back
                            holds = pc.and_(holds, pc.not_equal(rows.column("state"), GONE))
                        writer.write_batch(rows.filter(holds).cast(OPEN_SCHEMA))
        return chosen, [target]
