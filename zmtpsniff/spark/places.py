"""Numbers of packets that say where each is, and in what order the files of a series are merged.

A *place* is the number of a packet in all files of a series: events carry places as those of ``read`` carry numbers, so
that nobody keeps a list of the offsets in a file. It holds the number in its file, which counts from 1 (Wireshark's
frame number) and every format has, compressed or not, and the offset where its record begins there, 0 for none.

A capture may be a little out of order. ``read`` merges files by the time of the packet at hand, so a packet counts as
no earlier than those before it in its file: ``order_ns`` is the greatest time of the file up to the packet.
"""

from collections.abc import Iterable, Mapping, Sequence

_FILE_BITS = 24
_NUMBER_BITS = 40
_OFFSET_BITS = 48
_FILE = (1 << _FILE_BITS) - 1
_NUMBER = (1 << _NUMBER_BITS) - 1
_OFFSET = (1 << _OFFSET_BITS) - 1

Where = tuple[list[str], list[int], list[int | None]]
"""Of packets: the file that each is in, its number there, and the offset of its record, None if it has none."""


def places_of(orders_ns: Iterable[int], file: int, first: int, offsets: Sequence[int]) -> list[int]:
    """The places of packets of file number ``file``, whose numbers there count up from ``first``.

    A place grows in the order in which files are merged.
    """
    begin = file << _NUMBER_BITS | first
    numbers = range(begin, begin + len(offsets))
    return [
        (order_ns << _FILE_BITS + _NUMBER_BITS | number) << _OFFSET_BITS | offset
        for order_ns, number, offset in zip(orders_ns, numbers, offsets, strict=True)
    ]


def where(places: Sequence[int], files: Mapping[int, str]) -> Where:
    """Where packets are, in ``files`` by their numbers."""
    records = [place >> _OFFSET_BITS for place in places]
    return (
        [files.get(record >> _NUMBER_BITS & _FILE, "") for record in records],
        [record & _NUMBER for record in records],
        [place & _OFFSET or None for place in places],
    )
