"""Numbers of packets that say where each is, and in what order the files of a series are merged.

A *mark* is the number of a packet in one file, a *place* that in all files of a series: events carry places as those of
``read`` carry numbers, so that nobody keeps a list of the offsets in a file. The number in a file counts from 1
(Wireshark's frame number), which every format has, compressed or not; the offset is where its record begins, 0 for
none.

A capture may be a little out of order. ``read`` merges files by the time of the packet at hand, so a packet counts as
no earlier than those before it in its file: ``order_ns`` is the greatest time of the file up to the packet.
"""

from collections.abc import Sequence
from operator import add

_FILE_BITS = 24
_NUMBER_BITS = 40
_OFFSET_BITS = 48
_MARK_BITS = _NUMBER_BITS + _OFFSET_BITS
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


def marked(number: int, offset: int) -> int:
    """The mark of a packet: it grows with its number in the file, from 1, and holds that and its record's offset."""
    return number << _OFFSET_BITS | offset


def marks(first: int, offsets: Sequence[int]) -> list[int]:
    """The marks of packets whose numbers count up from ``first``."""
    step = 1 << _OFFSET_BITS
    return list(map(add, range(first * step, (first + len(offsets)) * step, step), offsets))


def placed(order_ns: int, file: int, mark: int) -> int:
    """The place of a packet: it grows in the order in which files are merged, and holds the file's number and more."""
    return order_ns << _FILE_BITS + _MARK_BITS | file << _MARK_BITS | mark


def file_of(place: int) -> int:
    """The number of the file that a place is in."""
    return place >> _MARK_BITS & (1 << _FILE_BITS) - 1


def numbers_and_offsets(places: Sequence[int]) -> tuple[list[int], list[int | None]]:
    """The numbers of packets in their files, and the offsets of their records; None for those without a record."""
    most = (1 << _NUMBER_BITS) - 1
    numbers = [place >> _OFFSET_BITS & most for place in places]
    return numbers, [place & _OFFSET_MASK or None for place in places]
