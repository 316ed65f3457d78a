"""Lists of objects in a temporary file, so that millions of them take no memory."""

import os
import pickle
import tempfile
from array import array
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from zmtpsniff.words.zstd import zstd

_LEVEL = 1  # the level of zstd: a block takes a tenth of its room, in less time than it takes to make its octets
_KEPT = 64  # blocks to keep that were read last: those on a screen, and a few more


class BlockFile:
    """Blocks of objects, each written once and read as often as somebody looks.

    The file has no name, so that nobody else can write what is unpickled here, and the system removes it at the end.
    One thread may add blocks while others read.
    """

    def __init__(self, unfold: Callable[[list[Any]], list[Any]] = list) -> None:
        """Make the file, where TMPDIR says; OSError if that cannot be done.

        Whoever reads a block gets what ``unfold`` makes of its objects.
        """
        self._unfold = unfold
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it stays open as long as this object lives
        self._offsets = array("Q", [0])
        self.block = lru_cache(_KEPT)(self._read)

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self._offsets) - 1

    def append(self, objects: list[Any]) -> None:
        """Add a block; OSError if the disk is full, and the block is not there then."""
        data = zstd.compress(pickle.dumps(objects, pickle.HIGHEST_PROTOCOL), _LEVEL)
        start = self._offsets[-1]
        written = 0
        while written < len(data):
            written += os.pwrite(self._file.fileno(), data[written:], start + written)
        self._offsets.append(start + len(data))

    def _read(self, place: int) -> list[Any]:
        """The objects of a block; nobody may change them."""
        start, stop = self._offsets[place], self._offsets[place + 1]
        data = zstd.decompress(os.pread(self._file.fileno(), stop - start, start))
        return self._unfold(pickle.loads(data))

    def close(self) -> None:
        """Give the disk its room back."""
        self._file.close()
