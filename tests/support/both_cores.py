"""The native core and its specification in one: each call runs both, and what they return must be the same."""

from functools import partial
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dissectors import columns
from zmtpsniff.native import capture_rows, reference
from zmtpsniff.net.segment import BEGINS

_BUILT = Path(reference.__file__).with_name("core.abi3.so")


def built_core() -> ModuleType:
    """The native core, also where ZMTPSNIFF_NATIVE switches it off."""
    if not _BUILT.exists():
        pytest.skip("the native core was not built: pip install -v -e . says why", allow_module_level=True)
    name = "zmtpsniff.native.core"
    spec = spec_from_file_location(name, _BUILT, loader=ExtensionFileLoader(name, str(_BUILT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Recorder:
    """Proxies whose calls are noted with their results: they may not be called twice."""

    def __init__(self, proxies: Any) -> None:
        self._proxies = proxies
        self.had_replies = self.has_replies = bool(proxies.has_replies)
        self.calls: list[tuple[str, tuple[Any, ...], Any]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.append((name, arguments, getattr(self._proxies, name)(*arguments)))
            return self.calls[-1][2]

        return call


class _Player:
    """Proxies that must be called as those of a recorder were, and answer as they did."""

    def __init__(self, recorder: _Recorder) -> None:
        self.has_replies = recorder.had_replies
        self.left = recorder.calls

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            expected, with_these, result = self.left.pop(0)
            assert (name, arguments) == (expected, with_these)
            self.has_replies |= name == "begin_reply_place"
            return result

        return call


class BothCores:
    """Has the functions of the core, and counts what they did."""

    def __init__(self) -> None:
        self._core = built_core()
        self.packets = self.messages = self.connections = 0

    def __getattr__(self, name: str) -> Any:
        """A function that calls nobody back."""
        return partial(self._same, name)

    def directions(self, *arguments: Any) -> Any:
        *counts, busy = self._core.directions(*arguments)
        *expected, keys = reference.directions(*arguments)
        assert (counts, sorted(busy)) == (expected, sorted(keys))
        return *counts, busy

    def segments(self, *arguments: Any) -> Any:
        return self._asking("segments", *arguments)

    def whole(self, *arguments: Any) -> Any:
        found = self._asking("whole", *arguments)
        self.connections += sum(step[2] == BEGINS for step in found[0])
        return found

    def _asking(self, name: str, octets: bytes, rows: bytes, numbers: Any, other: Any, *more: Any) -> Any:
        answers = {}  # a packet may not be looked at twice

        def first(place: int) -> Any:
            answers[place] = other(place)
            return answers[place]

        found = getattr(self._core, name)(octets, rows, numbers, first, *more)
        assert found == getattr(reference, name)(octets, rows, numbers, answers.__getitem__, *more)
        return found

    def take(self, octets: bytes, rows: bytes, place: int, number: int, pause_ns: int, lookup: Any) -> Any:
        answers = {}  # a lookup may not be asked twice

        def first(key: bytes) -> Any:
            answers[key] = lookup(key)
            return answers[key]

        found = self._core.take(octets, rows, place, number, pause_ns, first)
        expected = reference.take(octets, rows, place, number, pause_ns, answers.__getitem__)
        assert found == expected
        self.packets += found[0] - place
        self.messages += len(found[1]) // columns.MESSAGE.size
        return found

    def pair(self, *arguments: Any) -> Any:
        *others, proxies = arguments
        recorder = _Recorder(proxies)
        found = self._core.pair(*others, recorder)
        player = _Player(recorder)
        assert found == reference.pair(*others, player)  # type: ignore[call-arg]
        assert not player.left
        return found

    def _same(self, name: str, *arguments: Any) -> Any:
        plain = getattr(capture_rows if hasattr(capture_rows, name) else reference, name)
        try:
            found = getattr(self._core, name)(*arguments)
        except ValueError:
            with pytest.raises(ValueError, match=r"\w"):
                plain(*arguments)
            raise
        assert found == plain(*arguments)
        return found
