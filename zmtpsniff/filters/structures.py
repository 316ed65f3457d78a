"""Comparisons of values in payloads and bodies, whose types only the message shows.

Such a value is a text, a number, true, false, null, octets, or a list or a dict of these. Numbers compare with numbers,
texts and octets with texts and octets. A text in a filter (as octets) is also equal to a number, true or false that is
written the same: the user may not know whether an order has the number ``17`` or ``"17"``.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from dissectors.events import Hidden, Octets, Payload
from zmtpsniff.filters.values import (
    contains,
    differ,
    equal,
    is_cut,
    items,
    octets_slice,
    order,
    recased,
    text_of,
    text_slice,
)


class _Null:
    """The null of JSON, which is a value: None is where there is none."""


NULL: Final = _Null()

_MOST_BITS = 4096  # the most digits of a whole number: to write them takes time by the square of their number
_Step = tuple[str, str, int, int | None]  # as zmtpsniff.filters.paths.Step


def payload_fields(payload: Payload | None) -> Sequence[Any]:
    """The fields of a payload, as the one value that a path begins in."""
    return () if payload is None else (payload.fields,)


def inside(values: Sequence[Any], steps: Sequence[_Step]) -> Sequence[Any]:
    """The values at the end of a path. A name goes into each item of a list."""
    for step in steps:
        values = [found for value in values for found in _after(value, step)]
    return values


def _after(value: Any, step: _Step) -> Iterator[Any]:
    """The values one step further, which may be none."""
    kind, name, start, length = step
    found: Any
    if kind in ("name", "key"):
        if isinstance(value, dict):
            if name in value:
                yield value[name]
        elif isinstance(value, list | tuple):
            for each in value:
                yield from _after(each, step)
        elif (
            kind == "name"
            and name in _PARTS
            and isinstance(value, str | Octets)
            and (found := _PARTS[name](value)) is not None
        ):
            yield found
        return
    is_place = kind == "place"
    if isinstance(value, list | tuple):
        if not is_place:
            yield items(list(value), start, length)
        elif -len(value) <= start < len(value):
            yield value[start]  # which may be null
        return
    if isinstance(value, str):
        found = text_slice(value, start, 1 if is_place else length)
    elif isinstance(value, Octets):
        found = octets_slice(value, start, 1 if is_place else length)
    else:
        return
    if found is not None:
        yield found


_PARTS: dict[str, Callable[[Any], Any]] = {
    "text": lambda value: value if isinstance(value, str) else text_of(value),
    "hex": lambda value: value.hex() if type(value) is bytes and text_of(value) is None else None,
    "length": lambda value: len(_encoded(value)) if isinstance(value, str) else len(value),
    "truncated": lambda value: True if not isinstance(value, str) and is_cut(value) else None,
}


def leaves(values: Sequence[Any]) -> Iterator[Any]:
    """All values that can be compared: those in lists one by one, NULL for null, no dicts."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from leaves(value)
        elif value is None:
            yield NULL
        elif isinstance(value, str | int | float | Octets):
            yield value
        elif not isinstance(value, dict):
            yield str(value)  # whatever a plug-in gives


def size_of(value: Any) -> int | None:
    """The number of items, characters or octets of a value; None for a value without a size."""
    if isinstance(value, str | list | tuple | dict):
        return len(value)
    return len(value) if isinstance(value, Octets) else None


def recased_value(value: Any, upper: bool) -> Any:
    """A text or octets in upper or lower case; all else as it is."""
    if isinstance(value, str):
        return value.upper() if upper else value.lower()
    return recased(value, upper) if isinstance(value, Octets) else value


def is_equal(value: Any, other: Any) -> bool:
    """Whether two values are the same, and known to be."""
    if _is_number(value) and _is_number(other):
        return bool(value == other)
    if (octets := _both_as_octets(value, other)) is not None:
        return equal(*octets)
    return value is other and not isinstance(value, Hidden)


def is_different(value: Any, other: Any) -> bool:
    """Whether two values are there and certain to differ."""
    if value is None or other is None or isinstance(value, Hidden) or isinstance(other, Hidden):
        return False
    if _is_number(value) and _is_number(other):
        return bool(value != other)
    if (octets := _both_as_octets(value, other)) is not None:
        return differ(*octets)
    return value is not other


def is_less(value: Any, other: Any) -> bool:
    """Whether a value comes before another one of its kind, for certain."""
    if _is_number(value) and _is_number(other):
        return bool(value < other)
    if _has_octets(value) and _has_octets(other):
        compared = order(_as_octets(value), _as_octets(other))
        return compared is not None and compared < 0
    return False


def is_at_most(value: Any, other: Any) -> bool:
    """Whether a value comes before another one of its kind, or is the same."""
    return is_less(value, other) or (_have_order(value, other) and is_equal(value, other))


def is_between(value: Any, first: Any, last: Any) -> bool:
    """Whether a value is in a range with both its ends."""
    return is_at_most(first, value) and is_at_most(value, last)


def holds(value: Any, part: Any) -> bool:
    """Whether a value, as it is written, holds another one."""
    return contains(_as_octets(value), _as_octets(part))


def searched(value: Any) -> Octets | str | None:
    """The value that a regular expression searches: octets, a text, or a number as text."""
    if isinstance(value, Octets | str):
        return value
    octets = _as_octets(value)
    return octets.decode() if type(octets) is bytes else None


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _is_scalar(value: Any) -> bool:
    return isinstance(value, int | float)  # a bool is an int


def _has_octets(value: Any) -> bool:
    return isinstance(value, str | Octets)


def _have_order(value: Any, other: Any) -> bool:
    return (_is_number(value) and _is_number(other)) or (_has_octets(value) and _has_octets(other))


def _both_as_octets(value: Any, other: Any) -> tuple[Octets, Octets] | None:
    """Two values as octets, if one has octets and the other can be written as octets; else None."""
    if isinstance(value, str) if _is_scalar(other) else isinstance(other, str) and _is_scalar(value):
        return None
    if not (_has_octets(value) or _has_octets(other)):
        return None
    one, two = _as_octets(value), _as_octets(other)
    return None if one is None or two is None else (one, two)


def _as_octets(value: Any) -> Octets | None:
    """A value as octets: a text as UTF-8, a number by its digits; None for null."""
    if isinstance(value, str):
        return _encoded(value)
    if isinstance(value, Octets):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return str(value).encode() if value.bit_length() <= _MOST_BITS else None
    return str(value).encode() if isinstance(value, float) else None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": is_equal,
    "!=": is_different,
    "<": is_less,
    "<=": is_at_most,
    ">": lambda value, other: is_less(other, value),
    ">=": lambda value, other: is_at_most(other, value),
    "contains": holds,
}
