"""Packets in a block of octets, without an object for each of them."""

from array import array

from dissectors.columns import ROW
from zmtpsniff.capture.source import Packet


class Block:
    """Packets of a source, in order, as rows that say where their octets are."""

    __slots__ = ("octets", "rows")

    def __init__(self, octets: bytes, rows: bytes) -> None:
        """The packets that ``rows``, each a ROW, find in ``octets``."""
        self.octets = octets
        self.rows = rows

    def __len__(self) -> int:
        """The number of packets."""
        return len(self.rows) // ROW.size

    @property
    def times_ns(self) -> "array[int]":
        """The times of all packets."""
        return array("q", self.rows)[:: ROW.size // 8]

    def time_ns(self, place: int) -> int:
        """The time of the packet at ``place``."""
        time_ns: int = ROW.unpack_from(self.rows, place * ROW.size)[0]
        return time_ns

    def first(self, count: int) -> "Block":
        """The first ``count`` packets."""
        return Block(self.octets, self.rows[: count * ROW.size])

    def packets(self, begin: int = 0, end: int | None = None) -> list[Packet]:
        """The packets from the one at ``begin`` up to that at ``end``, as objects."""
        octets = self.octets
        stop = None if end is None else end * ROW.size
        rows = ROW.iter_unpack(self.rows[begin * ROW.size : stop])
        return [(time_ns, link, octets[at : at + size], wire, None) for time_ns, at, size, wire, link in rows]
