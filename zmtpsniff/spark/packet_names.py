"""Numbers of packets: events carry those of ``read``, which counts the packets of all files in the order of merging.

A table names a packet by its file, its number there, which counts from 1 (Wireshark's frame number) and every format
has, compressed or not, and the offset where its record begins.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zmtpsniff.capture.block import Block

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike

_RECENT = 1 << 20  # packets whose offsets are at hand
_KEPT = 4096  # runs that a later run of the program may refer to

Run = tuple[int, int, int]
"""Packets of one file in a row: the number of the first of them, that of the file, and that of the packet there."""


class PacketName(NamedTuple):
    """A packet: the number of its file, its own number there, and the offset of its record, 0 without one."""

    file: int
    number: int
    offset: int


NOWHERE = PacketName(0, 0, 0)
"""In place of a packet."""


class PacketNames:
    """The packets of a series."""

    def __init__(self, count: int, runs: Iterable[Run], offsets_of: Callable[[int], Sequence[int]]) -> None:
        """Go on behind ``count`` packets, in these runs. ``offsets_of`` reads all offsets of a file, by its number."""
        self.count = count
        self._offsets_of = offsets_of
        self._begins, self._files, self._firsts = array("q"), array("q"), array("q")
        for run in runs:
            self._add(*run)
        self._recent: deque[tuple[int, int, Block]] = deque()  # files, numbers of first packets, where these are
        self._recent_count = 0
        self._read: tuple[int, Sequence[int]] = (-1, ())  # the file whose offsets were read last

    def see(self, file: int, number: int, block: Block) -> None:
        """Remember where the packets of a block are in their file, the first of which has ``number`` there."""
        self._recent.append((file, number, Block(b"", block.rows, base=block.base)))
        self._recent_count += len(block)
        while self._recent_count - len(block) > _RECENT:
            self._recent_count -= len(self._recent.popleft()[2])

    def add(self, file: int, number: int, count: int) -> None:
        """Count packets of a file in a row, the first of which has ``number`` there."""
        begin = self.count + 1
        self.count += count
        if not self._begins or self._files[-1] != file or number - self._firsts[-1] != begin - self._begins[-1]:
            self._add(begin, file, number)

    def _add(self, begin: int, file: int, number: int) -> None:
        self._begins.append(begin)
        self._files.append(file)
        self._firsts.append(number)

    def runs(self) -> list[Run]:
        """The last runs."""
        return list(zip(*(column[-_KEPT:] for column in (self._begins, self._files, self._firsts)), strict=True))

    def find(self, packet: int) -> tuple[int, int]:
        """The file of a packet and its number there; 0 if it was too long ago."""
        at = bisect_right(self._begins, packet) - 1
        return (0, 0) if at < 0 or not packet else (self._files[at], packet - self._begins[at] + self._firsts[at])

    def name(self, packet: int) -> PacketName:
        """The name of a packet."""
        file, number = self.find(packet)
        if not number:
            return NOWHERE
        for at, first, block in reversed(self._recent):
            if at == file and first <= number:
                return PacketName(file, number, block.offset(number - first))
        if self._read[0] != file:
            self._read = file, self._offsets_of(file)
        return PacketName(file, number, self._read[1][number - 1] if number <= len(self._read[1]) else 0)

    def columns(self, packets: "ArrayLike", paths: Mapping[int, str]) -> tuple["pa.Array", "pa.Array"]:
        """The paths and the numbers of packets, null for 0."""
        import numpy as np  # of which a program that only reads files needs nothing
        import pyarrow as pa

        # A run in front of all others stands for packets that are in no file.
        begins, files, firsts = (np.concatenate(([0], run)) for run in (self._begins, self._files, self._firsts))
        asked = np.array(packets, np.int64)
        at = np.searchsorted(begins, asked, side="right") - 1
        unknown = at == 0
        codes = pa.array(files[at], pa.int64(), mask=unknown).dictionary_encode()
        paths_of = pa.array([paths.get(file, "") for file in codes.dictionary.to_pylist()], pa.string())
        names = pa.DictionaryArray.from_arrays(codes.indices, paths_of)
        return names, pa.array(asked - begins[at] + firsts[at], pa.int64(), mask=unknown)
