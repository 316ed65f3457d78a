"""The objects that an object keeps alive, for tests that memory is bounded."""

import gc
from collections import deque
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TypeVar

from msgspec import Struct

T = TypeVar("T")
_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType)


def reachable(root: object) -> Iterator[object]:
    """All objects that this one keeps alive, itself first, but for code and what only code refers to."""
    known: set[int] = set()
    rest = [root]
    while rest:
        one = rest.pop()
        if id(one) not in known and not isinstance(one, _CODE):
            known.add(id(one))
            yield one
            rest += gc.get_referents(one)
            if isinstance(one, Struct):  # the collector may be told not to look into it
                rest += [getattr(one, name, None) for name in one.__struct_fields__]


def only(kind: type[T], root: object) -> T:
    """The one object of a class that this one keeps alive."""
    (found,) = (one for one in reachable(root) if isinstance(one, kind))
    return found


def entries(root: object) -> int:
    """How many things all containers have together that this object keeps alive."""
    return sum(len(one) for one in reachable(root) if isinstance(one, (dict, list, set, deque)))
