"""The states of open connections, as the tables' folder keeps them.

They are a table of Delta Lake, ``_states``, with a row for the connections between two ends of TCP that may go on. A
run replaces all rows of the series that it dissects. It restores a connection once a packet comes for it. The last
events of a connection, as they would be if the files ended now, stand beside its state, so that no run restores
connections only to tell them.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import FileSystemDataset, ParquetFileFormat

from zmtpsniff.capture.locations import file_system
from zmtpsniff.engine.flow_engine import StateError
from zmtpsniff.net.networks import NetworkFacts
from zmtpsniff.spark.connection_ids import ConnectionId
from zmtpsniff.spark.packet_names import Run

STATES = "_states"
SCHEMA = pa.schema(
    [
        pa.field("series", pa.string(), False),
        pa.field("name", pa.binary(), False),  # the lesser key of the two directions; none for what all share
        pa.field("over_ns", pa.int64(), False),  # when the connections are over; NEVER if their state is lost
        pa.field("flow", pa.int64(), False),  # the number of the first of them
        pa.field("last", pa.binary()),  # their last events; null if only an engine can tell them
        pa.field("state", pa.binary(), False),  # a State or SeriesState
    ]
)
NEVER = (1 << 63) - 1
"""The end of what has no state."""

_SERIES = b""  # the name of what all connections share
_DATAGRAMS = b"datagrams"
LOST = pc.field("over_ns") == NEVER
"""Rows of series some of whose states could not be kept."""
OPEN = pc.field("name") != pa.scalar(_SERIES)
"""Rows of connections, and so of series with open ones."""

_BATCH_ROWS = 512
_CACHE_KIB = 16 << 10  # of the database in memory: the names of some 100,000 connections


class State(msgspec.Struct, array_like=True):
    """The states of connections between two ends, the latest one last; ids and facts of stages by numbers of flows."""

    flows: list[bytes]
    conn_ids: dict[int, ConnectionId]
    facts: dict[int, bytes] = {}


class SeriesState(msgspec.Struct, array_like=True):
    """The state that all connections of a series share.

    It has the numbers of packets, and of those that were dropped, so far, the last runs of packets and their files (see
    PacketNames), the ids of the last connections, the sequence numbers that come next in Unix domain sockets, the names
    of rows whose connections lack octets, the facts of networks, and the states of the engine and the stages.
    """

    packets: int = 0
    dropped: int = 0
    runs: list[Run] = []
    files: dict[int, str] = {}
    conn_ids: dict[int, ConnectionId] = {}
    sent: dict[bytes, int] = {}
    waiting: list[bytes] = []
    networks: NetworkFacts = msgspec.field(default_factory=NetworkFacts)
    engine: bytes = b""
    stages: bytes = b""


class StateRow(NamedTuple):
    """The row of connections, but for their series."""

    name: bytes
    over_ns: int
    flow: int
    last: bytes | None
    state: bytes

    @property
    def content(self) -> State:
        """Their states; raises StateError."""
        return decoded(self.state, State)


_State = TypeVar("_State", State, SeriesState)


class ShardStates:
    """The states of a series, in a database on disk that goes with this."""

    def __init__(self, folder: str, files: Sequence[str], series: str) -> None:
        """Begin with those in ``files`` of the tables' folder."""
        self._series = series
        self._rows = sqlite3.connect("")
        self._rows.executescript(f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -{_CACHE_KIB}")
        self._rows.execute("CREATE TABLE states (name BLOB PRIMARY KEY, over_ns, flow, last, state)")
        wanted = pc.field("series") == series
        system, path = file_system(folder)
        paths = [f"{path}/{STATES}/{name}" for name in files]
        states = FileSystemDataset.from_paths(paths, schema=SCHEMA, format=ParquetFileFormat(), filesystem=system)
        for batch in states.to_batches(
            columns=SCHEMA.names[1:], filter=wanted, batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1
        ):
            self._insert(list(zip(*(column.to_pylist() for column in batch.columns), strict=True)))

    def _insert(self, rows: Sequence[tuple[bytes, int, int, bytes | None, bytes]]) -> None:
        self._rows.executemany("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?)", rows)

    def series(self) -> SeriesState:
        """The state that all connections share, at first an empty one; raises StateError."""
        row = self._get(_SERIES)
        return SeriesState() if row is None else decoded(row.state, SeriesState)

    def put_series(self, state: SeriesState) -> None:
        """Keep the state that all connections share."""
        self._insert([StateRow(_SERIES, NEVER - 1, 0, b"", msgspec.msgpack.encode(state))])

    def lose_datagrams(self) -> None:
        """Remember that there were flows of datagrams, which have no state: more files need all of the series anew."""
        self._insert([StateRow(_DATAGRAMS, NEVER, 0, b"", msgspec.msgpack.encode(State([], {})))])

    def put(self, row: StateRow) -> None:
        """Keep the state of connections."""
        self._insert([row])

    def pop(self, name: bytes) -> State | None:
        """Take a state out; None if there is none; raises StateError."""
        row = self._get(name)
        if row is None:
            return None
        self._rows.execute("DELETE FROM states WHERE name = ?", [name])
        return decoded(row.state, State)

    def _get(self, name: bytes) -> StateRow | None:
        row = self._rows.execute("SELECT * FROM states WHERE name = ?", [name]).fetchone()
        return row and StateRow(*row)

    def unfinished(self, now_ns: int, tells_open: bool) -> list[bytes]:
        """The connections that an engine must tell: what is over, and open ones whose last events are not known."""
        query = "SELECT name FROM states WHERE name != ? AND (over_ns <= ?"
        query += " OR (last IS NULL AND ?)) ORDER BY flow"
        return [name for (name,) in self._rows.execute(query, [_SERIES, now_ns, tells_open])]

    def told(self) -> Iterator[StateRow]:
        """The connections that have last events, in the order of their flows."""
        query = "SELECT * FROM states WHERE length(last) ORDER BY flow"
        yield from (StateRow(*row) for row in self._rows.execute(query))

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All rows of the series, as they are now."""
        found = self._rows.execute("SELECT ?, * FROM states", [self._series])
        while some := found.fetchmany(_BATCH_ROWS):
            columns = zip(zip(*some, strict=True), SCHEMA, strict=True)
            yield pa.RecordBatch.from_arrays([pa.array(values, field.type) for values, field in columns], schema=SCHEMA)

    def close(self) -> None:
        """Forget the states."""
        self._rows.close()


def decoded(octets: bytes, kind: type[_State]) -> _State:
    """The state of a row; raises StateError."""
    try:
        return msgspec.msgpack.decode(octets, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StateError(f"not a state of this version: {error}") from error
