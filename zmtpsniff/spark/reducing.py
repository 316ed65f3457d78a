"""What tasks that get whole groups have in common: groups one by one, their events as rows, states that are kept."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from dissectors.events import AnyEvent
from zmtpsniff.spark.connections import NO_STATE, Connections
from zmtpsniff.spark.groups import DATAGRAMS
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.rows import PROVISIONAL, Batch, Origin, Places, Rows, places_of

OPEN = "_open"
OPEN_SCHEMA = pa.schema(
    [
        pa.field("series", pa.string(), False),
        pa.field("name", pa.binary(), False),  # of the group, without its series
        pa.field("state", pa.binary(), False),  # a State
    ]
)
"""What is open at the end of a run: where the next one goes on."""

ANEW = "_anew"
"""Series of which a state of an earlier run has not kept enough, so that all of it is to be dissected."""

_MOST_EVENTS = 8192
_MOST_OCTETS = 4 << 20
_MOST_NAMES = 4  # of files that a state refers to


class State(msgspec.Struct, array_like=True):
    """What a group begins with: the state of a join, and the names of the files that it refers to, by number."""

    join: bytes
    files: dict[int, str]


def encode_state(state: State) -> bytes:
    """A state as octets."""
    return msgspec.msgpack.encode(state)


def decode_state(octets: bytes) -> State:
    """The state of :func:`encode_state`; raises msgspec.DecodeError."""
    return msgspec.msgpack.decode(octets, type=State)


class Groups:
    """The groups that a task gets, one after the other, and the rows that they lead to."""

    def __init__(self, options: Options) -> None:
        """Begin without a group."""
        self._options = options
        self._rows = Rows(options.max_bytes)
        self._out: list[Batch] = []
        self.files: dict[int, str] = {}
        self.series: dict[int, str] = {}
        self.ends_ns: dict[int, int] = {}
        self.group = b""
        self.connections: Connections | None = None
        self.leaves_open = True  # false: somebody else says what is left open
        self._seen_files: dict[int, None] = {}
        self._events: list[AnyEvent] = []
        self._provisional: list[AnyEvent] = []
        self._conn_ids: dict[int, str] = {}
        self._octets = 0
        self._numbers = 0
        self._states: list[tuple[str, bytes, bytes]] = []
        self._anew: set[str] = set()

    def begin(self, group: bytes, state: bytes | None = None) -> Connections:
        """Begin a group, with the state that an earlier run left; the one before has been finished."""
        if group[:4] != self.group[:4]:
            self.flush()
        self.group = group
        self.leaves_open = True
        self._seen_files = {}
        known = None if state is None else decode_state(state)
        if known is not None:
            self.files |= known.files
            self._seen_files |= dict.fromkeys(known.files)
            if known.join == NO_STATE:
                self._anew.add(self.series[int.from_bytes(group[:4], "big")])
                known = None
        self.connections = Connections(self._options, None if known is None else known.join, self._numbers)
        return self.connections

    def take(self, events: list[AnyEvent], files: Sequence[int], octets: int = 0) -> None:
        """Take events of the group, told by what these files, which come in order, have of it."""
        self._events += events
        self._octets += octets
        for file_no in dict.fromkeys(files):
            self._seen_files.pop(file_no, None)
            self._seen_files[file_no] = None
        if len(self._events) >= _MOST_EVENTS or self._octets >= _MOST_OCTETS:
            self.flush()

    def finish(self) -> None:
        """The group has no more."""
        connections = self.connections
        if connections is None:
            return
        series_no = int.from_bytes(self.group[:4], "big")
        if connections.join.unsure and self.leaves_open:
            self._anew.add(self.series[series_no])
        if self.leaves_open:
            state, final, provisional = connections.finish(self.ends_ns.get(series_no, 0))
            self._events += final
            at_end = self._options.at_end
            if at_end == "final":
                self._events += provisional
                state = None
            elif self.group.startswith(DATAGRAMS, 4):  # which have no end
                self._provisional += provisional
                state = NO_STATE
            elif at_end == "provisional":
                self._provisional += provisional
            if state is not None:
                kept = encode_state(self.state_of(state))
                self._states.append((self.series[series_no], self.group[4:], kept))
        self._conn_ids |= connections.conn_ids()
        self._numbers = connections.numbers
        self.connections = None
        if len(self._events) + len(self._provisional) >= _MOST_EVENTS:
            self.flush()

    def state_of(self, join: bytes, *more: int) -> State:
        """A state of the group, with the names of the files that it refers to; ``more`` are numbers of others."""
        numbers = [*self._seen_files][-_MOST_NAMES:]
        return State(join, {number: self.files[number] for number in (*numbers, *more)})

    def flush(self) -> None:
        """Make rows of all events so far."""
        self._octets = 0
        if self._events or self._provisional:
            if self.connections is not None:
                self._conn_ids |= self.connections.conn_ids()
            origin = Origin(self.series[int.from_bytes(self.group[:4], "big")], self._conn_ids, self._place)
            self._out += self._rows.of_events(self._events, origin)
            self._out += self._rows.of_events(self._provisional, origin, PROVISIONAL)
            self._events, self._provisional = [], []
        if self.connections is None:
            self._conn_ids = {}

    def add(self, batches: list[Batch]) -> None:
        """Add rows of others."""
        self._out += batches

    def rows(self, at_end: bool = False) -> list[Batch]:
        """The rows since the last call."""
        if at_end:
            self.flush()
            if self._states:
                columns = zip(*self._states, strict=True)
                arrays = [pa.array(column, field.type) for column, field in zip(columns, OPEN_SCHEMA, strict=True)]
                self._out.append((OPEN, pa.RecordBatch.from_arrays(arrays, schema=OPEN_SCHEMA), ""))
            if self._anew:
                self._out.append((ANEW, pa.RecordBatch.from_pydict({"series": sorted(self._anew)}), ""))
        out, self._out = self._out, []
        return out

    def _place(self, packets: Sequence[int]) -> Places:
        return places_of(packets, self.files)
