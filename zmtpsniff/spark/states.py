"""Objects of flows and dissectors as octets: what is open where a file ends goes on in the next one.

It is a pickle of whatever they consist of. Reading one takes nothing but classes and functions of the modules named
here, which do nothing but dissect.
"""

import io
import pickle
import zlib
from collections import deque
from collections.abc import Mapping
from importlib import import_module
from types import FunctionType, MethodType
from typing import Any

_MODULES = ("zmtpsniff.net.flow", "zmtpsniff.net.flows", "zmtpsniff.net.reassembly")
_PACKAGE = "dissectors"
_FLAT = 1  # level of compression: states are small and many


class StateError(ValueError):
    """Octets that are no state, or not one of this version; or what cannot be kept."""


def encode(value: object, outside: Mapping[str, object], familiar: bytes = b"") -> bytes:
    """An object as octets, small if it is much like those that :func:`plain` made ``familiar`` of.

    It refers to the objects ``outside`` by their names. Raises StateError if it cannot be kept.
    """
    one = zlib.compressobj(_FLAT, zdict=familiar)
    return one.compress(plain(value, outside)) + one.flush()


def plain(value: object, outside: Mapping[str, object]) -> bytes:
    """The same, not compressed."""
    file = io.BytesIO()
    try:
        _Pickler(file, outside).dump(value)
    except (pickle.PicklingError, TypeError, RecursionError) as error:
        raise StateError(str(error)) from error
    return file.getvalue()


def decode(octets: bytes, outside: Mapping[str, object], familiar: bytes = b"") -> Any:
    """The object of :func:`encode`, which refers to the objects ``outside``; raises StateError."""
    try:
        one = zlib.decompressobj(zdict=familiar)
        return _Unpickler(io.BytesIO(one.decompress(octets) + one.flush()), outside).load()
    except StateError:
        raise
    except Exception as error:  # whatever is wrong with the octets
        raise StateError(f"not a state: {error}") from error


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, outside: Mapping[str, object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = {id(one): name for name, one in outside.items()}

    def persistent_id(self, value: Any) -> str | None:
        return self._names.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, outside: Mapping[str, object]) -> None:
        super().__init__(file)
        self._outside = outside

    def persistent_load(self, name: Any) -> Any:
        return self._outside[name]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _BUILT_IN:
            return _BUILT_IN[module, name]
        found = getattr(import_module(module), name, None) if _is_ours(module) else None
        if not isinstance(found, type | FunctionType) or found.__module__ != module:
            raise StateError(f"{module}.{name} does not belong in a state")
        return found


def _is_ours(module: str) -> bool:
    return module in _MODULES or module.partition(".")[0] == _PACKAGE


def _bound(owner: object, name: str) -> MethodType:
    """The method ``name`` of an object of ours: a state is often named by one."""
    method = getattr(type(owner), name, None)
    if not _is_ours(type(owner).__module__) or not isinstance(method, FunctionType):
        raise StateError(f"no method of ours is called {name!r}")
    return MethodType(method, owner)


_BUILT_IN: dict[tuple[str, str], Any] = {
    ("builtins", "getattr"): _bound,  # which is how pickles name a method
    ("builtins", "frozenset"): frozenset,
    ("collections", "deque"): deque,
}
