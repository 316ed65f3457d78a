"""The states of open connections, as the tables' folder keeps them: a log in which the latest row of a group holds.

It is a table of Delta Lake, ``_states``. A run adds rows only for groups that it changed. A row without a state says
that the group is gone. A shard reads which groups a series has, and the states of those that get new packets. Files
are merged before they are many.
"""

from collections.abc import Iterator, Sequence
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zmtpsniff.capture.locations import file_system
from zmtpsniff.engine.flow_engine import StateError
from zmtpsniff.spark.groups import ShardSpec
from zmtpsniff.spark.writer import DataFile, TableWriter

STATES = "_states"
SCHEMA = pa.schema(
    [
        pa.field("series", pa.string(), False),
        pa.field("name", pa.binary(), False),  # of the group
        pa.field("number", pa.int64(), False),  # of the group in its series
        pa.field("over_ns", pa.int64(), False),  # when the group is over; GONE if it is, NEVER if its state is lost
        pa.field("state", pa.binary(), False),  # a State, or nothing
    ]
)
NEVER = (1 << 63) - 1
"""The end of a group whose state could not be kept."""

GONE = -1
"""The end of a group that has no open connections any more."""

_OVER = SCHEMA.get_field_index("over_ns")

_MANY = 8  # files of about the same size, or smaller, that are merged
_BATCH_ROWS = 512  # that are read for one state


class State(msgspec.Struct, array_like=True):
    """The state of a group: its number in the series, its connections as octets, and the files they refer to.

    The state ``is_silent`` if these connections have no more events unless more segments come.
    """

    number: int
    connections: bytes
    files: dict[int, str] = {}
    is_silent: bool = False


class _Place(NamedTuple):
    """The place of a state: a file of the log, its row group and row, or octets of the spill (file -1)."""

    over_ns: int
    file: int
    begin: int
    at: int


class StateLog:
    """Some files of the log, the earliest first."""

    def __init__(self, folder: str, files: Sequence[str]) -> None:
        """Read ``files`` of the table in the folder of the tables ``folder``."""
        self._folder = folder
        self._system, path = file_system(folder)
        self.files = sorted(files, key=_key)
        self._paths = [f"{path}/{STATES}/{name}" for name in self.files]
        self._open: dict[int, pq.ParquetFile] = {}
        self._latest: tuple[tuple[int, int], pa.ChunkedArray] | None = None

    def _parquet(self, file: int) -> pq.ParquetFile:
        if file not in self._open:
            self._open[file] = pq.ParquetFile(self._system.open_input_file(self._paths[file]))
        return self._open[file]

    def next_prefix(self) -> str:
        """The beginning of the names of files that a run adds."""
        return _prefix(_key(self.files[-1])[0] + 1 if self.files else 1)

    def groups(self, series: str) -> dict[bytes, tuple[_Place, int]]:
        """The groups of a series: where the state of each is, and its number."""
        found: dict[bytes, tuple[_Place, int]] = {}
        for file in range(len(self._paths)):
            parquet = self._parquet(file)
            for begin in range(parquet.metadata.num_row_groups):
                known = parquet.metadata.row_group(begin).column(0).statistics
                if known is not None and known.has_min_max and not known.min <= series <= known.max:
                    continue
                columns = parquet.read_row_group(begin, [name for name in SCHEMA.names if name != "state"])
                rows = zip(*(column.to_pylist() for column in columns.columns), strict=True)
                for at, (one, name, number, over_ns) in enumerate(rows):
                    if one == series:
                        found[name] = _Place(over_ns, file, begin, at), number
        return {name: one for name, one in found.items() if one[0].over_ns != GONE}

    def lost(self) -> set[str]:
        """The series some of whose states could not be kept."""
        suspects: set[str] = set()
        for file in range(len(self._paths)):
            parquet = self._parquet(file)
            for begin in range(parquet.metadata.num_row_groups):
                if parquet.metadata.row_group(begin).column(_OVER).statistics.max == NEVER:
                    suspects |= set(parquet.read_row_group(begin, ["series"]).column("series").unique().to_pylist())
        return {one for one in suspects if any(place.over_ns == NEVER for place, _ in self.groups(one).values())}

    def state(self, place: _Place) -> bytes:
        """A state."""
        key = place.file, place.begin
        if self._latest is None or self._latest[0] != key:
            self._latest = key, self._parquet(place.file).read_row_group(place.begin, ["state"]).column("state")
        octets: bytes = self._latest[1][place.at].as_py()
        return octets

    def merge(self, sizes: dict[str, int]) -> tuple[list[str], list[DataFile]]:
        """Files to remove, and new ones with the rows that are left, if there are many; ``sizes`` are those of all."""
        octets = [sizes[name] for name in self.files]
        first = next((at for at, size in enumerate(octets) if size <= 2 * sum(octets[at + 1 :])), len(octets))
        if len(self.files) - first < _MANY:
            return [], []
        number, merges, _ = _key(self.files[first])
        writer = TableWriter(self._folder, _prefix(number, merges + 1))
        latest: dict[tuple[Any, ...], int] = {}
        for file in range(first, len(self.files)):
            columns = self._parquet(file).read(["series", "name"]).columns
            latest.update(dict.fromkeys(zip(*(column.to_pylist() for column in columns), strict=True), file))
        for file in range(first, len(self.files)):
            for rows in self._parquet(file).iter_batches(_BATCH_ROWS, columns=SCHEMA.names):
                keys = zip(rows.column("series").to_pylist(), rows.column("name").to_pylist(), strict=True)
                holds = pa.array([latest[key] == file for key in keys], pa.bool_())
                if not first:  # nothing before that a row could take back
                    holds = pc.and_(holds, pc.not_equal(rows.column("over_ns"), GONE))
                writer.take(STATES, rows.filter(holds).cast(SCHEMA))
        return self.files[first:], writer.close()


def _prefix(number: int, merges: int = 0) -> str:
    """The beginning of the names of files.

    A run writes files with a number that is greater than those that were there when it began. What others merge
    meanwhile gets the least number of what they merge: so its rows on a series stay before those that the run adds.
    """
    return f"{number:010}-{merges:06}-"


def _key(name: str) -> tuple[int, int, str]:
    number, merges, _ = name.split("-", 2)
    return int(number), int(merges), name


class ShardStates:
    """The states of the groups of one shard, and those of them that were changed."""

    def __init__(self, log: StateLog, series: str, spec: ShardSpec, anew: bool = False) -> None:
        """Begin with the states of a log, or, for a series that is dissected ``anew``, with none.

        Groups that are new are numbered from ``first_group`` on.
        """
        self._log = log
        self._series = series
        groups = log.groups(series)
        self.first_group = 1 + max((number for _, number in groups.values()), default=-1)
        groups = {name: one for name, one in groups.items() if spec.has(name)}
        self._logged = groups.keys()  # groups that come and go within one run need no rows
        self._places = {} if anew else {name: place for name, (place, _) in groups.items()}
        self._numbers = {name: number for name, (_, number) in groups.items()}
        self._changed: dict[bytes, None] = dict.fromkeys(groups) if anew else {}
        self._spill = TemporaryFile(prefix="zmtpsniff-")  # noqa: SIM115  # closed with this

    def get(self, name: bytes) -> State | None:
        """That of a group; raises StateError."""
        place = self._places.get(name)
        return None if place is None else decode_state(self._octets(place))

    def _octets(self, place: _Place) -> bytes:
        if place.file >= 0:
            return self._log.state(place)
        self._spill.seek(place.begin)
        return self._spill.read(place.at)

    def put(self, name: bytes, state: State | None, over_ns: int = 0) -> None:
        """Keep this state of a group, None for no state. From ``over_ns`` on nothing belongs to its connections."""
        if self._places.pop(name, None) is None and state is None:
            return
        self._changed[name] = None
        if state is not None:
            octets = msgspec.msgpack.encode(state)
            self._places[name] = _Place(over_ns, -1, self._spill.seek(0, 2), self._spill.write(octets))
            self._numbers[name] = state.number

    def over(self, now_ns: int) -> list[bytes]:
        """The groups that are over at a time."""
        return [name for name, place in self._places.items() if place.over_ns <= now_ns]

    def changes(self) -> Iterator[pa.RecordBatch]:
        """The rows to add to the log."""
        names = sorted(self._changed.keys() & (self._places.keys() | self._logged))
        for begin in range(0, len(names), _BATCH_ROWS):
            rows = [self._row(name) for name in names[begin : begin + _BATCH_ROWS]]
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    def _row(self, name: bytes) -> dict[str, Any]:
        place = self._places.get(name)
        row = {"series": self._series, "name": name, "number": self._numbers.get(name, 0)}
        if place is None:
            return row | {"over_ns": GONE, "state": b""}
        return row | {"over_ns": place.over_ns, "state": self._octets(place)}

    def close(self) -> None:
        """Forget the states that were put aside."""
        self._spill.close()


def decode_state(octets: bytes) -> State:
    """The state of a row; raises StateError."""
    try:
        return msgspec.msgpack.decode(octets, type=State)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StateError(f"not a state of this version: {error}") from error
