"""Packets in a block of octets, without an object for each of them."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add

from dissectors.columns import ROW
from dissectors.columns import with_times as rows_with_times
from zmtpsniff.native import file_records

Packet = tuple[int, int, bytes, int, str | None]
"""Time in nanoseconds since the Unix epoch, link type (LINKTYPE_ number), captured octets, length on the wire in
octets, comment. A view of a packet in a block."""

_WORDS = ROW.size // 4
_BEGIN, _SIZE, _LINK = 2, 3, 5  # places of words in a ROW
MOST_NS = 1 << 63
"""A row holds times of less than so many nanoseconds before and after 1970."""


class Block:
    """Packets of a source, in order, as rows that say where their octets are.

    ``odd`` are those that no row can hold, since they have a comment or their time is too far away, by their places.
    """

    __slots__ = ("base", "octets", "odd", "rows")

    def __init__(
        self, octets: bytes, rows: bytes, odd: dict[int, Packet] | None = None, base: int | None = None
    ) -> None:
        """The packets that ``rows``, each a ROW, find in ``octets``.

        The record of a packet begins in its file at ``base`` more than what its row says. None: there are no records.
        """
        self.octets = octets
        self.rows = rows
        self.odd = odd or {}
        self.base = base

    @classmethod
    def of(cls, packets: Iterable[Packet]) -> "Block":
        """Packets that are there as objects."""
        rows: list[bytes] = []
        parts: list[bytes] = []
        odd: dict[int, Packet] = {}
        begin = 0
        for packet in packets:
            time_ns, link, octets, wire, comment = packet
            if comment is not None or not -MOST_NS <= time_ns < MOST_NS:
                odd[len(rows)] = packet
                time_ns = 0
            rows.append(ROW.pack(time_ns, begin, len(octets), wire, link))
            parts.append(octets)
            begin += len(octets)
        return cls(b"".join(parts), b"".join(rows), odd)

    def __len__(self) -> int:
        """The number of packets."""
        return len(self.rows) // ROW.size

    def __iter__(self) -> Iterator[Packet]:
        """The packets, as objects."""
        return iter(self.packets())

    @property
    def times_ns(self) -> Sequence[int]:
        """The times of all packets."""
        times = array("q", self.rows)[:: ROW.size // 8]
        if not self.odd:
            return times
        found = times.tolist()
        for place, packet in self.odd.items():
            found[place] = packet[0]
        return found

    @property
    def span_ns(self) -> tuple[int, int]:
        """The earliest and the latest time of the packets, of which there must be some."""
        if self.odd:
            times_ns = self.times_ns
            return min(times_ns), max(times_ns)
        span: tuple[int, int] = file_records.time_span(self.rows)
        return span

    def time_ns(self, place: int) -> int:
        """The time of the packet at ``place``, which is not odd."""
        time_ns: int = ROW.unpack_from(self.rows, place * ROW.size)[0]
        return time_ns

    def offset(self, place: int) -> int:
        """Where in its file the record of the packet at ``place`` begins; 0 without records."""
        begin: int = ROW.unpack_from(self.rows, place * ROW.size)[1]
        return 0 if self.base is None else begin + self.base

    def offsets(self) -> list[int]:
        """Where in its file the record of each packet begins; 0 for packets without records."""
        if self.base is None:
            return [0] * len(self)
        return [begin + self.base for begin in self._numbers(_BEGIN)]

    @property
    def links(self) -> set[int]:
        """The link types of the packets."""
        return set(self._numbers(_LINK))

    def sizes(self) -> Sequence[int]:
        """How many octets of each packet were captured."""
        return self._numbers(_SIZE)

    @property
    def captured(self) -> int:
        """How many octets all packets have."""
        return sum(self.sizes())

    def span(self) -> tuple[int, int]:
        """Where the first octet of the packets is, and behind the last one."""
        begins, size = self._numbers(_BEGIN), len(self.octets)
        return min(*begins, size), min(max(map(add, begins, self._numbers(_SIZE))), size)

    def shifted(self, octets: int) -> bytes:
        """The rows, if so many octets more were in front of those of the packets."""
        words = array("I", self.rows)
        words[_BEGIN::_WORDS] = array("I", [begin + octets for begin in words[_BEGIN::_WORDS]])
        return words.tobytes()

    def _numbers(self, field: int) -> "array[int]":
        return array("I", self.rows)[field::_WORDS]

    def with_times(self, clock: Callable[[int], int]) -> "Block":
        """The same packets with the times that ``clock`` gives for theirs."""
        odd = {place: (clock(time_ns), *rest) for place, (time_ns, *rest) in self.odd.items()}
        return Block(self.octets, rows_with_times(self.rows, clock), odd, self.base)  # type: ignore[arg-type]

    def part(self, begin: int, end: int | None = None) -> "Block":
        """The packets from the one at ``begin`` up to that at ``end``."""
        size = ROW.size
        odd = {place - begin: packet for place, packet in self.odd.items() if begin <= place < (end or len(self))}
        rows = self.rows[begin * size : None if end is None else end * size]
        return Block(self.octets, rows, odd, self.base)

    def packets(self, begin: int = 0, end: int | None = None) -> list[Packet]:
        """The packets from the one at ``begin`` up to that at ``end``, as objects."""
        octets = self.octets
        stop = None if end is None else end * ROW.size
        rows = ROW.iter_unpack(self.rows[begin * ROW.size : stop])
        found: list[Packet] = [
            (time_ns, link, octets[at : at + size], wire, None) for time_ns, at, size, wire, link in rows
        ]
        for place, packet in self.odd.items():
            if 0 <= place - begin < len(found):
                found[place - begin] = packet
        return found


NOTHING = Block(b"", b"")
"""A block without packets."""
