"""The native core and its specification in one: each call runs both, and what they return must be the same."""

from types import ModuleType
from typing import Any

from zmtpsniff.native import core, reference


class BothCores:
    """Has the functions of the core, and counts what they did."""

    def __init__(self, native: ModuleType | None = core) -> None:
        assert native is not None, "the native core was not built: pip install -e . says why"
        self._core = native
        self.packets = self.messages = 0

    def pcap_rows(self, *arguments: Any) -> Any:
        return self._same("pcap_rows", *arguments)

    def pcapng_rows(self, *arguments: Any) -> Any:
        return self._same("pcapng_rows", *arguments)

    def ring_rows(self, *arguments: Any) -> Any:
        return self._same("ring_rows", *arguments)

    def take(self, octets: bytes, rows: bytes, place: int, number: int, pause_ns: int, lookup: Any) -> Any:
        answers = {}  # a lookup may not be asked twice

        def first(key: bytes) -> Any:
            answers[key] = lookup(key)
            return answers[key]

        found = self._core.take(octets, rows, place, number, pause_ns, first)
        expected = reference.take(octets, rows, place, number, pause_ns, answers.__getitem__)
        assert found == expected
        self.packets += found[0] - place
        self.messages += len(found[1]) // reference.MESSAGE.size
        return found

    def lines(self, *arguments: Any) -> Any:
        return self._same("lines", *arguments)

    def tally(self, *arguments: Any) -> Any:
        return self._same("tally", *arguments)

    def _same(self, name: str, *arguments: Any) -> Any:
        found = getattr(self._core, name)(*arguments)
        assert found == getattr(reference, name)(*arguments)
        return found
