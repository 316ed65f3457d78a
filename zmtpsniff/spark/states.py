"""A flow with all that is known of it, as octets: what is open where a file ends goes on in the next one.

It is a pickle of nothing but the classes named here; reading one with any other class in it raises StateError.
"""

import io
import pickle
import zlib
from collections import deque
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import msgspec

import zmtpsniff.reassembly as reassembly
from dissectors import events
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.following import LongFrames, Trail
from dissectors.zmtp.half import Half
from dissectors.zmtp.midstream import MidStream
from dissectors.zmtp.security import Security
from dissectors.zmtp.stream import Limits
from dissectors.zmtp.upgrade import Upgrade
from zmtpsniff.flows import Flow, FlowTable
from zmtpsniff.reassembly import Direction, Waiting, distance

_TABLE = "table"
# Octets of delivered segments kept to compare retransmissions with: enough for as many as a direction keeps, unless
# they are longer than a network carries.
_MOST_RECENT_OCTETS = 32 << 10
LOST = b"\2"  # the state of what cannot be kept: more of its tuple is dissected anew
_BARE, _WHOLE = b"\0", b"\1"  # what a state begins with
_FLOW_FIELDS = ("start_ns", "last_ns", "from_start", "unwanted", "closing", "ended")
_DIRECTION_FIELDS = (
    *("key", "isn", "next", "offset", "fin", "notable", "seen", "acked"),
    *("doubts", "doubts_at", "doubts_since", "reset", "reset_before", "reset_ns"),
)
_FLAT = 1  # level of compression: states are small and many


class CarriedDirection(Direction):
    """A direction that may have been kept without all of its latest segments."""

    __slots__ = ("forgot",)

    forgot: bool

    def __init__(self, flow: Flow, key: bytes) -> None:
        """Begin before the first segment."""
        super().__init__(flow, key)
        self.forgot = False

    def covers(self, seq: int, payload: bytes) -> bool:
        """Whether all octets of a segment that were delivered are at hand, or none that would be are missing."""
        if len(self.recent) == self.recent.maxlen:
            return True
        assert self.next is not None
        reached = distance(seq, self.next)
        end = min(reached + len(payload), 0)
        for first, octets in self.recent:
            begin = distance(first, self.next)
            if begin <= reached:
                reached = max(reached, begin + len(octets))
        return reached >= end

    def _compare(self, seq: int, payload: bytes, time_ns: int, packet: int) -> None:
        if self.forgot and not self.covers(seq, payload):
            self.flow.table.unsure = True  # type: ignore[attr-defined]  # of a TupleTable
        super()._compare(seq, payload, time_ns, packet)


_CLASSES: dict[str, Any] = {
    one.__name__: one
    for one in (
        *(
            Flow,
            CarriedDirection,
            Waiting,
            ZmtpConnection,
            Half,
            Security,
            Limits,
            LongFrames,
            MidStream,
            Trail,
            Upgrade,
            deque,
            frozenset,
        ),
        *(value for value in vars(events).values() if isinstance(value, type) and issubclass(value, msgspec.Struct)),
    )
}
# What is kept of those that watch, and of what they watch.
_PLAIN: dict[type, type] = {Flow: Flow, Direction: CarriedDirection, ZmtpConnection: ZmtpConnection, Half: Half}
_KNOWN = frozenset(_CLASSES.values())
_SLOTS: dict[type, tuple[str, ...]] = {}


class StateError(ValueError):
    """Octets that are no state, or not one of this version; or a state that cannot be kept."""


def _bound(owner: object, name: str) -> Any:
    """The method ``name`` of a direction's or a half's class, bound to it."""
    method = getattr(type(owner), name, None)
    if not isinstance(owner, Half | Direction) or not isinstance(method, FunctionType):
        raise StateError(f"no state of a dissector is called {name!r}")
    return MethodType(method, owner)


def _nobody() -> Any:
    """Who takes octets that nobody wants."""
    return reassembly._nobody


def _struct(name: str, values: tuple[Any, ...]) -> Any:
    return _CLASSES[name](*values)


def _empty(name: str) -> Any:
    one = _CLASSES[name]
    return one.__new__(one)


_FUNCTIONS = {"_bound": _bound, "_empty": _empty, "_nobody": _nobody, "_struct": _struct}


def _slots(owner: type) -> tuple[str, ...]:
    found = _SLOTS.get(owner)
    if found is None:
        names = [name for base in owner.__mro__ for name in getattr(base, "__slots__", ())]
        found = _SLOTS[owner] = tuple(dict.fromkeys(names))
    return found


class _Pickler(pickle.Pickler):
    """Writes our own classes by name alone, those that watch as those that they stand for."""

    def __init__(self, file: io.BytesIO, most_recent: int | None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._most = most_recent

    def persistent_id(self, value: Any) -> str | None:
        return _TABLE if isinstance(value, FlowTable) else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, MethodType):
            owner, name = value.__self__, value.__name__
            plain = next((kept for one, kept in _PLAIN.items() if isinstance(owner, one)), None)
            kept = getattr(plain, name, None)
            if kept is None or value.__func__ not in (kept, getattr(type(owner), name)):
                raise StateError(f"the state {value.__qualname__} cannot be kept")
            return _bound, (owner, name)
        if value is reassembly._nobody:
            return _nobody, ()
        if isinstance(value, msgspec.Struct):
            return _struct, (type(value).__name__, tuple(getattr(value, name) for name in value.__struct_fields__))
        for known, plain in _PLAIN.items():
            if isinstance(value, known):
                kept = {name: getattr(value, name) for name in _slots(plain) if hasattr(value, name)}
                if isinstance(value, Half):
                    del kept["out"]
                elif isinstance(value, ZmtpConnection):
                    # Events that are held back belong to the state, those that have been told do not.
                    kept["out"] = [] if value.accepted else value.out
                    kept["_final"] = []
                elif isinstance(value, Direction):
                    recent = kept["recent"] = _thinned(value.recent, self._most)
                    forgot = isinstance(value, CarriedDirection) and value.forgot and len(recent) != recent.maxlen
                    kept["forgot"] = forgot or len(recent) != len(value.recent)
                    if value.receiver is not None:
                        kept["deliver"] = MethodType(Half.feed, value.receiver)
                return _empty, (plain.__name__,), (None, kept)
        if not isinstance(value, type | FunctionType | BuiltinFunctionType) and type(value) not in _KNOWN:
            raise StateError(f"{type(value).__name__} cannot be kept")
        return NotImplemented


def is_long(direction: Direction) -> bool:
    """Whether a state has not all of the latest segments of a direction, unless it is asked for all."""
    return sum(len(octets) for _, octets in direction.recent) > _MOST_RECENT_OCTETS


def _thinned(recent: deque[tuple[int, bytes]], most: int | None) -> deque[tuple[int, bytes]]:
    """The latest segments of ``recent``, ``most`` octets of them."""
    if most is None:
        return recent
    octets = 0
    kept: deque[tuple[int, bytes]] = deque(maxlen=recent.maxlen)
    for segment in reversed(recent):
        octets += len(segment[1])
        if octets > most:
            break
        kept.appendleft(segment)
    return kept


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, table: FlowTable) -> None:
        super().__init__(file)
        self._table = table

    def persistent_load(self, name: Any) -> FlowTable:
        if name != _TABLE:
            raise StateError(f"a state refers to {name!r}")
        return self._table

    def find_class(self, module: str, name: str) -> Any:
        found = _FUNCTIONS.get(name) or _CLASSES.get(name)
        if found is not None and found.__module__ == module:
            return found
        raise StateError(f"{module}.{name} does not belong in a state")


def encode(flow: Flow, most_recent: int | None = _MOST_RECENT_OCTETS) -> bytes:
    """A flow as octets, with at most so many of those delivered last (None: all); raises StateError if it cannot be."""
    ends = (flow.client, flow.server)
    if flow.dissection is None and not any(end.waiting or end.pending for end in ends):
        return _BARE + msgspec.msgpack.encode(
            [[getattr(one, name) for name in names] for one, names in _bare_parts(flow)]
        )
    file = io.BytesIO()
    _Pickler(file, most_recent).dump(flow)
    return _WHOLE + _compress(file.getvalue())


def decode(octets: bytes, table: FlowTable) -> Flow:
    """The flow of :func:`encode`, as one of ``table``, which does not know it yet; raises StateError."""
    try:
        flow = (
            _decode_bare(octets[1:], table)
            if octets[:1] == _BARE
            else _Unpickler(io.BytesIO(_decompress(octets[1:])), table).load()
        )
    except StateError:
        raise
    except Exception as error:  # whatever is wrong with the octets
        raise StateError(f"not a state: {error}") from error
    if not isinstance(flow, Flow):
        raise StateError("not the state of a flow")
    return flow


@cache
def _familiar() -> bytes:
    """What is in every state: the names of what a flow is made of, as a pickle has them."""
    table = FlowTable(lambda *_: None)
    flow = Flow(table, 1, bytes(12), bytes(12), 0)
    connection = ZmtpConnection([], 1, "", "")
    flow.dissection = connection
    flow.client.begin(connection.client)
    flow.server.begin(connection.server)
    file = io.BytesIO()
    _Pickler(file, _MOST_RECENT_OCTETS).dump(flow)
    return file.getvalue()


def _compress(octets: bytes) -> bytes:
    one = zlib.compressobj(_FLAT, zdict=_familiar())
    return one.compress(octets) + one.flush()


def _decompress(octets: bytes) -> bytes:
    one = zlib.decompressobj(zdict=_familiar())
    return one.decompress(octets) + one.flush()


def _bare_parts(flow: Flow) -> tuple[tuple[Any, tuple[str, ...]], ...]:
    return (flow, _FLOW_FIELDS), (flow.client, _DIRECTION_FIELDS), (flow.server, _DIRECTION_FIELDS)


def _decode_bare(octets: bytes, table: FlowTable) -> Flow:
    """A flow of which nothing is read."""
    values = msgspec.msgpack.decode(octets)
    flow = Flow(table, 0, b"", b"", 0)
    flow.client = CarriedDirection(flow, b"")
    flow.server = CarriedDirection(flow, b"")
    flow.client.other, flow.server.other = flow.server, flow.client
    for (one, names), mine in zip(_bare_parts(flow), values, strict=True):
        for name, value in zip(names, mine, strict=True):
            setattr(one, name, value)
    return flow
