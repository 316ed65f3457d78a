"""Objects by their number in a temporary file, so that millions of them take no memory."""

import os
import pickle
import tempfile
from array import array
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence, Sized
from functools import lru_cache
from typing import Any

from zmtpsniff.words.zstd import zstd

ITEMS = 256  # of a block, at least
_LEVEL = 1  # the level of zstd: a block takes a tenth of its room, in less time than it takes to make its octets
_KEPT = 64  # blocks to keep that were read last: those on a screen, and a few more


class NumberedFile:
    """Items by their number, from 0: in blocks of a file, but for the last few, which wait in memory.

    The file has no name, so that nobody else can write what is unpickled here, and the system removes it at the end.
    One thread may add items while others read.
    """

    def __init__(self, columns: type[Sized], unfold: Callable[[Any], Sequence[Any]]) -> None:
        """Make the file, where TMPDIR says; OSError if that cannot be done.

        An object of the type ``columns`` holds several items, which ``unfold`` makes of it when somebody reads them.
        """
        self._columns = columns
        self._unfold = unfold
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it stays open as long as this object lives
        self._offsets = array("Q", [0])
        self._firsts = array("Q")  # the number of the first item of each block
        self._tail: tuple[int, list[Any]] = 0, []  # of no block yet: the number of the first item, and the items
        self._block = lru_cache(_KEPT)(self._read)

    def __len__(self) -> int:
        """How many items there are."""
        first, tail = self._tail
        return first + len(tail)

    def add(self, objects: Sequence[Any]) -> None:
        """Add items, or objects that hold several; OSError if the disk is full, and they are not there then."""
        # Others may ask for an item at any time, so it is in the tail or in a block at every moment.
        first, tail = self._tail
        waiting = [*tail, *objects]
        begin = items = 0
        for place, each in enumerate(waiting, 1):
            items += len(each) if isinstance(each, self._columns) else 1
            if items >= ITEMS:
                self._write(waiting[begin:place])
                self._firsts.append(first)
                first, begin, items = first + items, place, 0
        self._tail = first, self._unfolded(waiting[begin:])

    def around(self, number: int) -> tuple[int, list[Any]]:
        """The items around one, and the number of the first of them; nobody may change them."""
        # The tail first: its items may be in a block a moment later, but never the other way round.
        tail = self._tail
        if number >= tail[0]:
            return tail
        place = bisect(self._firsts, number) - 1
        return self._firsts[place], self._block(place)

    def lists(self, start: int, stop: int) -> Iterator[list[Any]]:
        """The items from one up to before another, in lists."""
        while start < stop:
            first, items = self.around(start)
            part = items[start - first : stop - first]
            yield part
            start += len(part)

    def close(self) -> None:
        """Give the disk its room back."""
        self._file.close()

    def _write(self, objects: list[Any]) -> None:
        data = zstd.compress(pickle.dumps(objects, pickle.HIGHEST_PROTOCOL), _LEVEL)
        start = self._offsets[-1]
        written = 0
        while written < len(data):
            written += os.pwrite(self._file.fileno(), data[written:], start + written)
        self._offsets.append(start + len(data))

    def _read(self, place: int) -> list[Any]:
        """The items of a block."""
        start, stop = self._offsets[place], self._offsets[place + 1]
        data = zstd.decompress(os.pread(self._file.fileno(), stop - start, start))
        return self._unfolded(pickle.loads(data))

    def _unfolded(self, objects: list[Any]) -> list[Any]:
        items: list[Any] = []
        for each in objects:
            items += self._unfold(each) if isinstance(each, self._columns) else [each]
        return items
