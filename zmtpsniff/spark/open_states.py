"""The states of open connections, as the tables' folder keeps them.

They are a table of Delta Lake, ``_states``, with a row for each group of packets that has open connections. A run
replaces all rows of the series that it dissects.

With 100,000 open connections, of which a run goes on with 1,000, a run takes 5.4 s of processors, 3.3 s of them for the
stages. It reads and writes 13 MB of states, and has 144 MB of them in memory. With a log, to which each run adds what
it changed and which must be merged, it took 5.5 s. Delta's MERGE alone takes 2.3 s.
"""

from collections.abc import Iterator, Sequence
from tempfile import TemporaryFile
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import FileSystemDataset, ParquetFileFormat

from zmtpsniff.capture.locations import file_system
from zmtpsniff.engine.flow_engine import StateError
from zmtpsniff.spark.connections import ConnectionId
from zmtpsniff.spark.packet_names import Run

STATES = "_states"
SCHEMA = pa.schema(
    [
        pa.field("series", pa.string(), False),
        pa.field("name", pa.binary(), False),  # of the group; none for what all groups share
        pa.field("over_ns", pa.int64(), False),  # when the group is over; NEVER if its state is lost
        pa.field("state", pa.binary(), False),  # a State or SeriesState
    ]
)
NEVER = (1 << 63) - 1
"""The end of a group whose state could not be kept."""

_SERIES = b""  # the name of what all groups share
LOST = pc.field("over_ns") == NEVER
"""Rows of series some of whose states could not be kept."""
OPEN = pc.field("name") != pa.scalar(_SERIES)
"""Rows of groups, and so of series with open connections."""

_BATCH_ROWS = 512


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


def _read(folder: str, files: Sequence[str], wanted: pc.Expression, columns: Sequence[str]) -> pa.Table:
    system, path = file_system(folder)
    paths = [f"{path}/{STATES}/{name}" for name in files]
    dataset = FileSystemDataset.from_paths(paths, schema=SCHEMA, format=ParquetFileFormat(), filesystem=system)
    return dataset.to_table([*columns], filter=wanted)


def series_with(folder: str, files: Sequence[str], wanted: pc.Expression) -> set[str]:
    """The series with such rows in files of the tables' folder: LOST or OPEN ones."""
    return set(_read(folder, files, wanted, ["series"]).column("series").unique().to_pylist())


class ShardStates:
    """The states of a series."""

    def __init__(self, folder: str, files: Sequence[str], series: str) -> None:
        """Begin with those in ``files`` of the tables' folder."""
        self._series = series
        self._kept = _read(folder, files, pc.field("series") == series, SCHEMA.names)
        names = self._kept.column("name").to_pylist()
        self._places = {name: at for at, name in enumerate(names)}  # in these rows
        self._over_ns = dict(zip(names, self._kept.column("over_ns").to_pylist(), strict=True))
        self._spill = TemporaryFile(prefix="zmtpsniff-")  # noqa: SIM115  # closed with this
        self._spilled: dict[bytes, tuple[int, int]] = {}  # octets in this file

    def get(self, name: bytes) -> State | None:
        """That of a group; raises StateError."""
        return _decoded(self.octets(name), State) if name in self._over_ns else None

    def series(self) -> SeriesState:
        """The state that all groups share, at first an empty one; raises StateError."""
        return _decoded(self.octets(_SERIES), SeriesState) if _SERIES in self._over_ns else SeriesState()

    def octets(self, name: bytes) -> bytes:
        """A state as octets."""
        if name in self._places:
            octets: bytes = self._kept.column("state")[self._places[name]].as_py()
            return octets
        begin, size = self._spilled[name]
        self._spill.seek(begin)
        return self._spill.read(size)

    def put(self, name: bytes, state: State | None, over_ns: int = 0) -> None:
        """Keep this state of a group, None for no state. From ``over_ns`` on nothing belongs to its connections."""
        for known in (self._over_ns, self._places, self._spilled):
            known.pop(name, None)
        if state is not None:
            self._put(name, msgspec.msgpack.encode(state), over_ns)

    def put_series(self, state: SeriesState) -> None:
        """Keep the state that all groups share."""
        self._places.pop(_SERIES, None)
        self._put(_SERIES, msgspec.msgpack.encode(state), NEVER - 1)

    def _put(self, name: bytes, octets: bytes, over_ns: int) -> None:
        self._over_ns[name] = over_ns
        self._spilled[name] = self._spill.seek(0, 2), self._spill.write(octets)

    def over(self, now_ns: int) -> list[bytes]:
        """The groups that are over at a time."""
        return [name for name, over_ns in self._over_ns.items() if over_ns <= now_ns and name != _SERIES]

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All rows of the series, as they are now."""
        for batch in self._kept.to_batches():
            yield batch.filter(
                pa.array([name in self._places for name in batch.column("name").to_pylist()], pa.bool_())
            )
        names = [*self._spilled]
        for begin in range(0, len(names), _BATCH_ROWS):
            some = names[begin : begin + _BATCH_ROWS]
            columns = [self._series] * len(some), some, [self._over_ns[name] for name in some], map(self.octets, some)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
            )

    def close(self) -> None:
        """Forget the states that were put aside."""
        self._spill.close()


def _decoded(octets: bytes, kind: type[_State]) -> _State:
    """The state of a row; raises StateError."""
    try:
        return msgspec.msgpack.decode(octets, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StateError(f"not a state of this version: {error}") from error
