"""Numbers of packets that say where each is, and in what order the files of a series are merged.

A *place* is the number of a packet in all files of a series: events carry places as those of ``read`` carry numbers, so
that nobody keeps a list of the offsets in a file. It holds the number in its file, which counts from 1 (Wireshark's
frame number) and every format has, compressed or not, and the offset where its record begins there, 0 for none.

A capture may be a little out of order. ``read`` merges files by the time of the packet at hand, so a packet counts as
no earlier than those before it in its file: ``order_ns`` is the greatest time of the file up to the packet.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    import pyarrow as pa

_FILE_BITS = 24
_NUMBER_BITS = 40
_OFFSET_BITS = 64
_NUMBER = (1 << _NUMBER_BITS) - 1
_FILE = (1 << _FILE_BITS) - 1
_OFFSET = (1 << _OFFSET_BITS) - 1
_RECORD = (1 << _FILE_BITS + _NUMBER_BITS + _OFFSET_BITS) - 1


def places_of(file: int, numbers: Iterable[int], orders_ns: Iterable[int], offsets: Iterable[int]) -> list[int]:
    """The places of packets of file number ``file``, from 1, whose numbers there these are.

    A place grows in the order in which files are merged.
    """
    begin = file << _NUMBER_BITS
    return [
        (order_ns << _FILE_BITS + _NUMBER_BITS | begin | number) << _OFFSET_BITS | offset
        for number, order_ns, offset in zip(numbers, orders_ns, offsets, strict=True)
    ]


class PacketPlaces(Sequence[int]):
    """The places of packets of a file, each made when somebody asks for it."""

    def __init__(
        self, file: int, numbers: Sequence[int], orders_ns: Sequence[int], offset_of: Callable[[int], int]
    ) -> None:
        """Those of file number ``file``. ``offset_of`` tells the offset of a record."""
        self._file = file
        self._numbers = numbers
        self._orders_ns = orders_ns
        self._offset_of = offset_of

    def __len__(self) -> int:
        """The number of packets."""
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        """One place, or some."""
        if isinstance(index, int):
            return self[index : index + 1][0]
        offsets = map(self._offset_of, range(*index.indices(len(self))))
        return places_of(self._file, self._numbers[index], self._orders_ns[index], offsets)


def parted(place: int) -> tuple[int, int, int]:
    """The number of the file that a packet is in, its own number there, and the offset of its record."""
    number = place >> _OFFSET_BITS
    return number >> _NUMBER_BITS & _FILE, number & _NUMBER, place & _OFFSET


def where(places: Sequence[int]) -> list["pa.Array"]:
    """Of packets: the number of the file that each is in, its own number there, and the offset of its record.

    What is 0 is null: the offset if a packet has no record, all of the place 0. Arrow takes places apart: two of its
    integers hold each but for its time.
    """
    import pyarrow as pa  # of which a program that only reads files needs nothing
    import pyarrow.compute as pc

    octets = b"".join([(place & _RECORD).to_bytes(16, "little") for place in places])
    integers = pa.Array.from_buffers(pa.uint64(), 2 * len(places), [None, pa.py_buffer(octets)])
    pairs = pa.FixedSizeListArray.from_arrays(integers, 2)
    offsets, numbers = pc.list_element(pairs, 0), pc.list_element(pairs, 1)
    found = pc.shift_right(numbers, _NUMBER_BITS), pc.bit_wise_and(numbers, _NUMBER), offsets
    return [pc.if_else(pc.equal(some, 0), None, some).cast(pa.int64()) for some in found]
