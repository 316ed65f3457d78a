"""Events that hypothesis makes up from the types of their fields, so that no field is left out, whoever adds it."""

import typing
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any

from hypothesis import strategies as st

from dissectors.events import EVENT_TYPES, AnyEvent, Cut, Hidden

_octets = st.one_of(
    st.binary(max_size=100),
    st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.text(alphabet='abc {}"\\\n\t\x7f\x80é…\u202e', max_size=20).map(str.encode),
    st.sampled_from(
        [b'{"a": [1, null, "\\u0007"]}', b'{"a":\r\n\t"\xe2\x80\xae"}', b"a\r\nb\tc\n", b'["\x1b', b"[[[["]
    ),
)
_names = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=()), max_size=10),
    st.sampled_from(["\x1b[31m", "\x9b2J", "\u202e", "a\nb", "\ud800", "\x7f", "\xad", "\U000e0041"]),
)
_scalars = _names | st.integers() | st.booleans() | st.floats() | _octets
Strategies = Mapping[Any, st.SearchStrategy[Any]]
_NASTY: Strategies = {
    str: _names,
    int: st.integers(0, 2**40) | st.just(2**70),
    float: st.floats(0, 1),  # shares
    bool: st.booleans(),
    NoneType: st.none(),
    bytes: _octets,
    Cut: st.builds(lambda data, more: Cut(data, len(data) + more), st.binary(max_size=20), st.integers(0, 3)),
    Hidden: st.builds(Hidden, st.integers(0, 100)),
    Any: _scalars | st.lists(_scalars, max_size=2) | st.dictionaries(_names, _scalars, max_size=2),
}


def made_up(hint: Any, plain: Strategies = _NASTY) -> st.SearchStrategy[Any]:
    """Values of a type; of a struct with all its fields made up. ``plain`` has those of types without parts."""
    if hint in plain:
        return plain[hint]
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return st.sampled_from(typing.get_args(hint))
    parts = [made_up(one, plain) for one in typing.get_args(hint)]
    if origin in (typing.Union, UnionType):
        return st.one_of(parts)
    if origin is list:
        return st.lists(*parts, max_size=9)
    if origin is dict:
        return st.dictionaries(*parts, max_size=3)
    fields = typing.get_type_hints(hint)
    return st.builds(hint, **{name: made_up(fields[name], plain) for name in hint.__struct_fields__})


def made_up_events(plain: Strategies = _NASTY) -> st.SearchStrategy[AnyEvent]:
    """Events of all types."""
    return st.one_of([made_up(kind, plain) for kind in EVENT_TYPES])
