"""The states of open connections, as the tables' folder keeps them: a log in which the latest row of a group holds.

It is a table of Delta Lake, ``_states``. A run adds rows only for groups that it changed. A row without a state says
that the group is gone. A shard reads which groups a series has, and the states of those that get new packets. Files
are merged before they are many.
"""

from collections.abc import Iterator, Sequence
from tempfile import TemporaryFile
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zmtpsniff.capture.locations import file_system
from zmtpsniff.engine.flow_engine import StateError
from zmtpsniff.spark.connections import ConnectionId
from zmtpsniff.spark.packet_names import Run
from zmtpsniff.spark.writer import DataFile, TableWriter

STATES = "_states"
SCHEMA = pa.schema(
    [
        pa.field("series", pa.string(), False),
        pa.field("name", pa.binary(), False),  # of the group; none for what all groups share
        pa.field("over_ns", pa.int64(), False),  # when the group is over; GONE if it is, NEVER if its state is lost
        pa.field("state", pa.binary(), False),  # a State or SeriesState, or nothing
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
    """The state of a group: its connections as octets.

    The state ``is_silent`` if these connections have no more events unless more segments come.
    """

    connections: bytes
    is_silent: bool = False


class SeriesState(msgspec.Struct, array_like=True):
    """The state that all groups of a series share.

    It has the numbers of packets, of those that were dropped, and of flows so far, the last runs of packets and their
    files (see PacketNames), the ids of the last connections, times up to which flows have all octets, by their groups,
    and the state of the stages.
    """

    packets: int = 0
    dropped: int = 0
    flows: int = 0
    runs: list[Run] = []
    files: dict[int, str] = {}
    conn_ids: dict[int, ConnectionId] = {}
    horizons: dict[bytes, dict[int, int]] = {}
    stages: bytes = b""


_State = TypeVar("_State", State, SeriesState)
_SERIES = b""  # the name of that


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

    def places(self, series: str) -> dict[bytes, _Place]:
        """The places of the states of a series: that of each of its groups, and that of what these share."""
        found: dict[bytes, _Place] = {}
        for file in range(len(self._paths)):
            parquet = self._parquet(file)
            for begin in range(parquet.metadata.num_row_groups):
                known = parquet.metadata.row_group(begin).column(0).statistics
                if known is not None and known.has_min_max and not known.min <= series <= known.max:
                    continue
                columns = parquet.read_row_group(begin, [name for name in SCHEMA.names if name != "state"])
                rows = zip(*(column.to_pylist() for column in columns.columns), strict=True)
                for at, (one, name, over_ns) in enumerate(rows):
                    if one == series:
                        found[name] = _Place(over_ns, file, begin, at)
        return {name: place for name, place in found.items() if place.over_ns != GONE}

    def groups(self, series: str) -> list[bytes]:
        """The groups of a series."""
        return [name for name in self.places(series) if name != _SERIES]

    def lost(self) -> set[str]:
        """The series some of whose states could not be kept."""
        suspects: set[str] = set()
        for file in range(len(self._paths)):
            parquet = self._parquet(file)
            for begin in range(parquet.metadata.num_row_groups):
                if parquet.metadata.row_group(begin).column(_OVER).statistics.max == NEVER:
                    suspects |= set(parquet.read_row_group(begin, ["series"]).column("series").unique().to_pylist())
        return {one for one in suspects if any(place.over_ns == NEVER for place in self.places(one).values())}

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
    """The states of a series, and those of them that were changed."""

    def __init__(self, log: StateLog, series: str, anew: bool = False) -> None:
        """Begin with the states of a log, or, for a series that is dissected ``anew``, with none."""
        self._log = log
        self._series = series
        places = log.places(series)
        self._logged = places.keys()  # groups that come and go within one run need no rows
        self._places = {} if anew else dict(places)
        self._changed: dict[bytes, None] = dict.fromkeys(places) if anew else {}
        self._spill = TemporaryFile(prefix="zmtpsniff-")  # noqa: SIM115  # closed with this

    def get(self, name: bytes) -> State | None:
        """That of a group; raises StateError."""
        place = self._places.get(name)
        return None if place is None else _decoded(self._octets(place), State)

    def series(self) -> SeriesState:
        """The state that all groups share, at first an empty one; raises StateError."""
        place = self._places.get(_SERIES)
        return SeriesState() if place is None else _decoded(self._octets(place), SeriesState)

    def put_series(self, state: SeriesState) -> None:
        """Keep the state that all groups share."""
        self._put(_SERIES, msgspec.msgpack.encode(state), NEVER - 1)

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
            self._put(name, msgspec.msgpack.encode(state), over_ns)

    def _put(self, name: bytes, octets: bytes, over_ns: int) -> None:
        self._changed[name] = None
        self._places[name] = _Place(over_ns, -1, self._spill.seek(0, 2), self._spill.write(octets))

    def over(self, now_ns: int) -> list[bytes]:
        """The groups that are over at a time."""
        return [name for name, place in self._places.items() if place.over_ns <= now_ns and name != _SERIES]

    def changes(self) -> Iterator[pa.RecordBatch]:
        """The rows to add to the log."""
        names = sorted(self._changed.keys() & (self._places.keys() | self._logged))
        for begin in range(0, len(names), _BATCH_ROWS):
            rows = [self._row(name) for name in names[begin : begin + _BATCH_ROWS]]
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    def _row(self, name: bytes) -> dict[str, Any]:
        place = self._places.get(name)
        row: dict[str, Any] = {"series": self._series, "name": name}
        if place is None:
            return row | {"over_ns": GONE, "state": b""}
        return row | {"over_ns": place.over_ns, "state": self._octets(place)}

    def close(self) -> None:
        """Forget the states that were put aside."""
        self._spill.close()


def _decoded(octets: bytes, kind: type[_State]) -> _State:
    """The state of a row; raises StateError."""
    try:
        return msgspec.msgpack.decode(octets, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StateError(f"not a state of this version: {error}") from error
