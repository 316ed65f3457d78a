"""IP fragments whose datagram is not whole in the file that has them: put together with those of other files."""

from typing import Any

import msgspec

from zmtpsniff.fragments import Fragment
from zmtpsniff.packets import HeaderDecoder
from zmtpsniff.segment import Datagram, Segment

_MOST_KEYS = 2048


class LooseFragment(msgspec.Struct, array_like=True):
    """A fragment with its place among all packets of the series."""

    order_ns: int
    file_no: int
    packet: int
    record: int  # offset of the record that it came in
    addresses: bytes
    key: list[Any]  # tells datagrams apart
    time_ns: int
    protocol: int
    start: int
    octets: bytes
    length: int
    more: bool


class LooseDecoder(HeaderDecoder):
    """A header decoder of one file that remembers the fragments of what is not whole."""

    def __init__(self) -> None:
        """Start without fragments."""
        super().__init__()
        self._loose: dict[tuple[object, ...], list[LooseFragment]] = {}
        self._new: list[LooseFragment] = []

    def place(self, latest: list[int], offsets: list[int], first_number: int, file_no: int) -> None:
        """Give those of the packets taken last their places: the latest time up to each, its record, and the file."""
        for fragment in self._new:
            index = fragment.packet - first_number
            fragment.order_ns, fragment.record = latest[index], offsets[index]
            fragment.file_no = file_no
        self._new.clear()

    def loose(self) -> list[LooseFragment]:
        """The fragments of all datagrams that are not whole at the end of the file."""
        return [fragment for key, found in self._loose.items() if self._fragments.holds(key) for fragment in found]

    def _fragment(self, number: int, addresses: bytes, part: Fragment) -> Segment | None:
        segment = super()._fragment(number, addresses, part)
        key: tuple[object, ...] = part.key  # type: ignore[assignment]  # as header decoders make them
        if not self._fragments.holds(key):
            self._loose.pop(key, None)
            return segment
        fragment = LooseFragment(part.time_ns, 0, number, 0, addresses, list(key), *part[1:])
        self._loose.setdefault(key, []).append(fragment)
        self._new.append(fragment)
        if len(self._loose) > _MOST_KEYS:
            self._loose = {name: found for name, found in self._loose.items() if self._fragments.holds(name)}
        return segment


class _Joiner(HeaderDecoder):
    def take(self, fragment: LooseFragment) -> Segment | None:
        _, _, packet, _, addresses, key, *rest = msgspec.structs.astuple(fragment)
        return self._fragment(packet, addresses, Fragment(tuple(key), *rest))


def joined(fragments: list[LooseFragment]) -> list[tuple[LooseFragment, Segment | Datagram]]:
    """What the loose fragments of all files of a series make together, each with the last of its own, in order."""
    joiner = _Joiner()
    out: list[tuple[LooseFragment, Segment | Datagram]] = []
    for fragment in sorted(fragments, key=place_of):
        segment = joiner.take(fragment)
        if segment is not None:
            out.append((fragment, segment))
        out += [(fragment, datagram) for datagram in joiner.datagrams]
        joiner.datagrams = []
    return out


def place_of(fragment: LooseFragment) -> tuple[int, int, int]:
    """Where a fragment comes among all packets of its series."""
    return fragment.order_ns, fragment.file_no, fragment.packet
