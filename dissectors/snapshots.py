"""The state of a dissector as octets, to go on from later or elsewhere.

A snapshot is MessagePack: the kind of dissector, the number of this format, and the state of each part. Each part
defines its state as a class beside its code. So a snapshot that has a value of a wrong type is refused. A snapshot is
data and nothing else: to read it runs no code.

Snapshots of another format are refused. Raise `FORMAT` whenever the state of any part changes.
"""

from collections.abc import Iterable
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.msgpack import Ext

from dissectors.events import AnyEvent, Cut, Hidden, MessageRun, Octets
from dissectors.numbers import store_number

FORMAT = 6

_CUT, _HIDDEN, _NUMBER = 1, 2, 3  # types of what is not plain octets, nor a number of 63 bits
_EVENTS = {kind.__struct_config__.tag: kind for kind in (*get_args(AnyEvent), MessageRun)}

Stored = bytes | Ext
"""Octets in a snapshot."""


class SnapshotError(ValueError):
    """Octets that are no snapshot, or not one of this format."""


class Part(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The state of a part of a dissector: each field is an attribute of that part."""


P = TypeVar("P", bound=Part)


def fields_of(part: object, kind: type[P]) -> P:
    """The attributes of ``part`` that are the fields of ``kind``."""
    return kind(*(getattr(part, name) for name in kind.__struct_fields__))


def set_fields(part: object, state: Part) -> None:
    """Give ``part`` those attributes again."""
    for name in state.__struct_fields__:
        setattr(part, name, getattr(state, name))


def encode(kind: str, state: Part) -> bytes:
    """The snapshot of a dissector of this kind."""
    return msgspec.msgpack.encode((kind, FORMAT, state), order="deterministic")  # the same octets each time


def decode(octets: bytes, kind: str, state: type[P]) -> P:
    """The state in a snapshot of a dissector of this kind; raises SnapshotError."""
    try:
        found, number, rest = msgspec.msgpack.decode(octets, type=tuple[str, int, msgspec.Raw])
        if found == kind and number == FORMAT:
            return msgspec.msgpack.decode(rest, type=state)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SnapshotError(f"not a snapshot: {error}") from error
    if found != kind:
        raise SnapshotError(f"a snapshot of {found!r}, not of {kind!r}")
    raise SnapshotError(f"a snapshot of format {number}; this version reads format {FORMAT}")


def store(octets: Octets) -> Stored:
    """Octets as they are in a snapshot."""
    if isinstance(octets, Cut):
        return Ext(_CUT, msgspec.msgpack.encode((octets.data, octets.length)))
    if isinstance(octets, Hidden):
        return Ext(_HIDDEN, msgspec.msgpack.encode(octets.length))
    return octets


def fetch(stored: Stored) -> Octets:
    """The octets of :func:`store`; raises SnapshotError."""
    if isinstance(stored, Ext):
        octets: Octets = _fetch(stored.code, memoryview(stored.data))
        return octets
    return stored


def _fetch(code: int, data: memoryview) -> Any:
    if code == _NUMBER:
        return int.from_bytes(data, "big")
    try:
        if code == _CUT:
            return Cut(*msgspec.msgpack.decode(data, type=tuple[bytes, int]))
        if code == _HIDDEN:
            return Hidden(msgspec.msgpack.decode(data, type=int))
    except msgspec.MsgspecError as error:
        raise SnapshotError(f"not a snapshot: {error}") from error
    raise SnapshotError(f"not a snapshot: octets of kind {code}")


def store_events(events: Iterable[AnyEvent]) -> bytes:
    """Events that have not been given out yet, as a snapshot stores them."""
    told = [
        (event.__struct_config__.tag, [getattr(event, name) for name in event.__struct_fields__]) for event in events
    ]
    return msgspec.msgpack.encode(_stored(told)) if told else b""


def _stored(value: Any) -> Any:
    """A value of an event, with all octets in it as in a snapshot."""
    if isinstance(value, bytes | Cut | Hidden):
        return store(value)
    if isinstance(value, int) and value >= 1 << 63:
        return Ext(_NUMBER, store_number(value))  # type: ignore[arg-type]  # so many bits are octets
    if isinstance(value, list | tuple):
        return [_stored(one) for one in value]
    if isinstance(value, dict):
        return {name: _stored(one) for name, one in value.items()}
    return value


def fetch_events(stored: bytes) -> list[AnyEvent]:
    """The events of :func:`store_events`; raises SnapshotError."""
    if not stored:
        return []
    try:
        held = msgspec.msgpack.decode(stored, ext_hook=_fetch)
        return [_EVENTS[tag](*fields) for tag, fields in held]
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"not a snapshot: {error}") from error
