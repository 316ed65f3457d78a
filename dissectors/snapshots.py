"""Snapshots: the state of a dissector as octets, from which another one continues, later or elsewhere.

A dissector owns parts, and these own others. The fields of a :class:`Part` are its state: their names, types and
defaults stand once, in its class. Snapshots are made from these declarations:

- A field declared as :data:`Live` is in no snapshot: a neighbour, the user's limits and keys, a value that follows from
  the other fields.
- A field that holds a part, one of several kinds of parts, or none, is saved as its state.
- All other fields are data: numbers of any size, text, octets, and tuples, lists, sets and dictionaries of them.

A snapshot is MessagePack: the kind of dissector, the number of this format, and the state. It is data and nothing else:
to read it runs no code. A snapshot with a value of a wrong type is refused.

To restore, make the dissector as for a new stream, and :func:`load`. A part that is there takes its state. Its owner
makes a part that is not there, see :meth:`Part.make`. Where a live field follows from the others, or a snapshot needs
a field that nothing else does, :meth:`Part.before_save` and :meth:`Part.after_load` set it.

Snapshots of another format are refused. Raise `FORMAT` whenever a field is added, goes, or changes its type.
"""

from abc import ABC
from collections.abc import Callable, Iterable
from functools import cache, reduce
from operator import attrgetter, or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.msgpack import Ext

from dissectors.events import EVENT_TYPES, AnyEvent, Cut, Hidden, Octets

FORMAT = 13

_LIVE = "live"
T = TypeVar("T")
Live = Annotated[T, _LIVE]
"""The type of a field that is in no snapshot."""
LATER: Any = None
"""The default of a field that ``__post_init__`` sets."""

_CUT, _HIDDEN, _NUMBER = 1, 2, 3  # types of what is not plain octets, nor a number of 63 bits
_MOST_BITS = 63
_AS_THEY_ARE = frozenset({NoneType, bool, str, bytes, float})  # most values
_EVENTS = {kind.__struct_config__.tag: kind for kind in EVENT_TYPES}


class SnapshotError(ValueError):
    """Octets that are no snapshot, or not one of this format."""


class Part(msgspec.Struct, eq=False):
    """A part of a dissector. Its fields are its state.

    Give ``gc=False`` to a class of parts that own no other parts and know no neighbours: it is smaller.
    """

    def make(self, kind: type["Part"]) -> "Part":
        """A new part for a field of this one, of class ``kind``, which will take the state in a snapshot."""
        return kind()

    def before_save(self) -> None:
        """Set the fields that only a snapshot needs."""

    def after_load(self) -> None:
        """Set the live fields that follow from the state, which this part and those that it owns have now.

        May raise :class:`SnapshotError` if the values do not fit together.
        """


S = TypeVar("S", bound=type[msgspec.Struct])


def quick(kind: S) -> S:
    """Decorate a class whose fields are set for each packet: setting one takes no longer than with slots.

    A struct of msgspec takes four times as long, since it looks after the garbage collector: that tracks a struct from
    the first container on that the struct gets. So this is for classes with ``gc=False``, and for those whose parts get
    a container, or a neighbour, when they are made.
    """
    kind.__setattr__ = object.__setattr__  # type: ignore[method-assign]
    kind.__delattr__ = object.__delattr__  # type: ignore[method-assign]
    return kind


class _Field(NamedTuple):
    """A field in a snapshot."""

    name: str
    parts: tuple[type[Part], ...]  # the classes of the part that it holds; empty for data
    is_dict: bool
    is_plain: bool  # data that MessagePack has as it is


class _Form(NamedTuple):
    """The form of a part's state in a snapshot: a list with the values of the fields."""

    fields: tuple[_Field, ...]
    checked: type[msgspec.Struct]  # the same list with the type of each
    values: Callable[[Part], tuple[Any, ...]]  # gives the values of the fields
    others: tuple[tuple[int, _Field], ...]  # the fields that are not plain, and their places


class _AnyOctets(ABC):  # noqa: B024  # nothing is derived from it
    """Stands for :data:`Octets` where the types of a state are checked."""


for _kind in get_args(Octets):
    _AnyOctets.register(_kind)


@cache
def _form(kind: type[Part]) -> _Form:
    fields, types = [], []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated and _LIVE in hint.__metadata__:
            continue
        generic = get_origin(hint)
        if isinstance(generic, type) and issubclass(generic, Part):
            hint = generic  # whatever its neighbours are
        parts = tuple(one for one in (hint, *get_args(hint)) if isinstance(one, type) and issubclass(one, Part))
        fields.append(_Field(name, parts, get_origin(hint) is dict, not parts and _is_plain(hint)))
        types.append((name, _checked_part(hint, len(parts)) if parts else _checked(hint)))
    checked = msgspec.defstruct(kind.__name__, types, array_like=True, forbid_unknown_fields=True)
    names = [one.name for one in fields]
    values = attrgetter(*names) if len(names) > 1 else lambda part: tuple(getattr(part, name) for name in names)
    others = tuple((place, one) for place, one in enumerate(fields) if not one.is_plain)
    return _Form(tuple(fields), checked, values, others)


def _is_plain(hint: Any) -> bool:
    """Whether MessagePack has all values of a type as they are, but for very large numbers."""
    if isinstance(hint, type) and issubclass(hint, tuple) and (named := get_type_hints(hint)):
        return all(map(_is_plain, named.values()))
    if get_origin(hint) in (Union, UnionType, list, tuple):
        return all(one is ... or _is_plain(one) for one in get_args(hint))
    return hint is int or hint in _AS_THEY_ARE or get_origin(hint) is Literal


def _checked_part(hint: Any, kinds: int) -> Any:
    """The type of a part in a snapshot: which of the ``kinds`` of its field it is, and its state, checked later."""
    state = tuple[Annotated[int, msgspec.Meta(ge=0, lt=kinds)], list[Any]]
    return state | None if NoneType in get_args(hint) else state


def _checked(hint: Any) -> Any:
    """The type of data in a snapshot."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        kept = [_checked(one) for one in arguments if one not in get_args(Octets) or Cut not in arguments]
        return reduce(or_, kept + [_AnyOctets] * (Cut in arguments))
    if origin is dict:
        return list[tuple[_checked(arguments[0]), _checked(arguments[1])]]  # type: ignore[misc]
    if origin in (list, tuple):
        return origin[tuple(one if one is ... else _checked(one) for one in arguments)]
    return hint


def save(kind: str, part: Part) -> bytes:
    """The snapshot of a dissector of this kind."""
    snapshot = (kind, FORMAT, _saved(part))
    try:
        return msgspec.msgpack.encode(snapshot)
    except OverflowError:  # a number of more than 64 bits
        return msgspec.msgpack.encode(_stored(snapshot))


def _saved(part: Part) -> list[Any]:
    part.before_save()
    form = _form(type(part))
    state = list(form.values(part))
    for place, (_, parts, is_dict, _) in form.others:
        value = state[place]
        if value is None:
            pass
        elif not parts:
            state[place] = _stored(list(value.items()) if is_dict else value)
        else:
            state[place] = parts.index(type(value)), _saved(value)
    return state


def load(kind: str, octets: bytes, part: Part) -> None:
    """Give ``part``, a new dissector of this kind, the state in a snapshot; raises SnapshotError."""
    try:
        found, number, rest = msgspec.msgpack.decode(octets, type=tuple[str, int, msgspec.Raw])
        if found == kind and number == FORMAT:
            _load(part, msgspec.msgpack.decode(rest, ext_hook=_fetch))
            return
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SnapshotError(f"not a snapshot: {error}") from error
    if found != kind:
        raise SnapshotError(f"a snapshot of {found!r}, not of {kind!r}")
    raise SnapshotError(f"a snapshot of format {number}; this version reads format {FORMAT}")


def _load(part: Part, values: Any) -> None:
    form = _form(type(part))
    state = msgspec.convert(values, form.checked, dec_hook=lambda _, octets: octets)
    for (name, parts, is_dict, _), value in zip(form.fields, msgspec.structs.astuple(state), strict=True):
        if is_dict:
            value = dict(value)
        elif parts and value is not None:
            value = _loaded(part, getattr(part, name), parts, *value)
        setattr(part, name, value)
    part.after_load()


def _loaded(owner: Part, old: Part | None, parts: tuple[type[Part], ...], number: int, values: list[Any]) -> Part:
    """The part of a field with its state: the one that is there, ``old``, if it is of the class that was saved."""
    part = old if type(old) is parts[number] else owner.make(parts[number])
    _load(part, values)
    return part


def _fetch(code: int, data: memoryview) -> Any:
    """The value of an extension of MessagePack."""
    if code == _NUMBER:
        return int.from_bytes(data, "big", signed=True)
    try:
        if code == _CUT:
            return Cut(*msgspec.msgpack.decode(data, type=tuple[bytes, int]))
        if code == _HIDDEN:
            return Hidden(msgspec.msgpack.decode(data, type=int))
    except msgspec.MsgspecError as error:
        raise SnapshotError(f"not a snapshot: {error}") from error
    raise SnapshotError(f"not a snapshot: octets of kind {code}")


def _stored(value: Any) -> Any:
    """Data as MessagePack has it."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is int:
        size = value.bit_length()
        return value if size <= _MOST_BITS else Ext(_NUMBER, value.to_bytes(size // 8 + 1, "big", signed=True))
    if isinstance(value, list | tuple):
        return [_stored(one) for one in value]
    if kind is frozenset:
        return sorted(value)  # the same octets each time
    if kind is dict:
        return {name: _stored(one) for name, one in value.items()}
    if kind is Cut:
        return Ext(_CUT, msgspec.msgpack.encode((value.data, value.length)))
    if kind is Hidden:
        return Ext(_HIDDEN, msgspec.msgpack.encode(value.length))
    return value


def store_events(events: Iterable[AnyEvent]) -> bytes:
    """Events that have not been given out yet, as a snapshot stores them."""
    told = [
        (event.__struct_config__.tag, [getattr(event, name) for name in event.__struct_fields__]) for event in events
    ]
    return msgspec.msgpack.encode(_stored(told)) if told else b""


def fetch_events(stored: bytes) -> list[AnyEvent]:
    """The events of :func:`store_events`; raises SnapshotError."""
    if not stored:
        return []
    try:
        held = msgspec.msgpack.decode(stored, ext_hook=_fetch)
        return [_EVENTS[tag](*fields) for tag, fields in held]
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"not a snapshot: {error}") from error
