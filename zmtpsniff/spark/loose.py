"""IP fragments whose datagram is not whole in the file that has them: put together with those of other files."""

from typing import Any

import msgspec

from zmtpsniff.packets import HeaderDecoder
from zmtpsniff.segment import Datagram, Segment

_MOST_KEYS = 2048


class Fragment(msgspec.Struct, array_like=True):
    """What a header decoder is told of a fragment, with its place among all packets of the series."""

    order_ns: int
    file_no: int
    packet: int
    time_ns: int
    name: list[Any]  # tells datagrams apart
    protocol: int
    addresses: bytes
    octets: bytes
    length: int
    offset: int
    more: bool


class LooseDecoder(HeaderDecoder):
    """A header decoder of one file that remembers the fragments of what is not whole."""

    def __init__(self) -> None:
        """Start without fragments."""
        super().__init__()
        self._loose: dict[tuple[object, ...], list[Fragment]] = {}
        self._new: list[Fragment] = []

    def place(self, latest: list[int], first_number: int, file_no: int) -> None:
        """Give those of the packets taken last their places: the latest time up to each packet, and the file."""
        for fragment in self._new:
            fragment.order_ns = latest[fragment.packet - first_number]
            fragment.file_no = file_no
        self._new.clear()

    def loose(self) -> list[Fragment]:
        """The fragments of all datagrams that are not whole at the end of the file."""
        return [fragment for key, found in self._loose.items() if self._fragments.holds(key) for fragment in found]

    def _fragment(
        self,
        time: int,
        number: int,
        key: tuple[object, ...],
        protocol: int,
        addresses: bytes,
        data: bytes,
        start: int,
        stop: int,
        offset: int,
        more: bool,
    ) -> Segment | None:
        segment = super()._fragment(time, number, key, protocol, addresses, data, start, stop, offset, more)
        if not self._fragments.holds(key):
            self._loose.pop(key, None)
            return segment
        octets = data[start:stop]
        fragment = Fragment(time, 0, number, time, list(key), protocol, addresses, octets, stop - start, offset, more)
        self._loose.setdefault(key, []).append(fragment)
        self._new.append(fragment)
        if len(self._loose) > _MOST_KEYS:
            self._loose = {name: found for name, found in self._loose.items() if self._fragments.holds(name)}
        return segment


class _Joiner(HeaderDecoder):
    def take(self, fragment: Fragment) -> Segment | None:
        octets, length = fragment.octets, fragment.length
        name = tuple(fragment.name)
        return self._fragment(
            fragment.time_ns, fragment.packet, name, fragment.protocol, fragment.addresses, octets, 0, length,
            fragment.offset, fragment.more,
        )  # fmt: skip


def joined(fragments: list[Fragment]) -> list[tuple[tuple[int, int, int], Segment | Datagram]]:
    """What the loose fragments of all files of a series make together, each with its place, in order."""
    joiner = _Joiner()
    out: list[tuple[tuple[int, int, int], Segment | Datagram]] = []
    for fragment in sorted(fragments, key=place_of):
        segment = joiner.take(fragment)
        place = place_of(fragment)
        if segment is not None:
            out.append((place, segment))
        out += [(place, datagram) for datagram in joiner.datagrams]
        joiner.datagrams = []
    return out


def place_of(fragment: Fragment) -> tuple[int, int, int]:
    """Where a fragment comes among all packets of its series."""
    return fragment.order_ns, fragment.file_no, fragment.packet
