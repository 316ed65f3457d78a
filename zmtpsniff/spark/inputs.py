"""A capture file read by an executor: opened by whatever its path or URL names, in pieces of many packets."""

from array import array
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.files import CHUNK, open_stream, read_chunks
from zmtpsniff.capture.locations import SPECIAL, LocationError, is_special, open_location
from zmtpsniff.capture.source import CaptureError, Fault

_CHUNK = 4 * CHUNK  # flows go to the native core and back for each block


class FilePiece(NamedTuple):
    """Packets of a file in a row."""

    block: Block
    number: int  # of the first in the file, from 1
    orders_ns: Sequence[int]  # for each packet the greatest time so far, by which files are merged

    @property
    def size(self) -> int:
        """The number of packets."""
        return len(self.orders_ns)

    def part(self, begin: int, end: int | None = None) -> "FilePiece":
        """The packets from the one at ``begin`` up to that at ``end``."""
        end = self.size if end is None else end
        return FilePiece(self.block.part(begin, end), self.number + begin, self.orders_ns[begin:end])


class File:
    """A capture file as a source of packets. It keeps errors, and never raises them.

    ``error`` says why the file or its rest could not be read, None if nothing is wrong. ``count`` is the number of
    packets so far, ``first_ns`` and ``last_ns`` are their least and their greatest time; None without packets.
    """

    def __init__(self, path: str) -> None:
        """Read a path or URL."""
        self.path = path
        self.count = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.dropped = 0
        self.faults: list[Fault] = []
        self.comments: list[str] = []
        self.key_lines: list[str] = []
        self.unreadable: str | None = None
        self._opened = False

    @property
    def error(self) -> str | None:
        """The reason why the file, or its rest, could not be read."""
        return self.unreadable or next((fault.detail for fault in self.faults if fault.code in _COSTLY), None)

    @property
    def condition(self) -> str:
        """The condition: whole, damaged (read up to there), foreign (no capture), missing (cannot be opened)."""
        if self.unreadable is not None:
            return "foreign" if self._opened else "missing"
        return "whole" if self.error is None else "damaged"

    def first_piece(self) -> FilePiece | None:
        """The first packets, None if there are none."""
        with closing(self.pieces(CHUNK)) as pieces:
            return next(pieces, None)

    def pieces(self, chunk: int = _CHUNK) -> Generator[FilePiece]:
        """Yield the packets, as far as the file can be read, ``chunk`` octets at a time."""
        try:
            if is_special(self.path):
                raise CaptureError(f"{self.path}: {SPECIAL}")
            with closing(open_location(self.path)) as file:
                self._opened = True
                for block in open_stream(self.path, read_chunks(file, chunk), self):
                    if block:
                        yield self._piece(block)
        except (CaptureError, LocationError) as error:
            self.unreadable = str(error)
        except OSError as error:
            self.unreadable = f"{self.path}: {error.strerror or error}"

    def _piece(self, block: Block) -> FilePiece:
        times_ns = block.times_ns
        least_ns = min(times_ns)
        self.first_ns = least_ns if self.first_ns is None else min(self.first_ns, least_ns)
        orders_ns = list(accumulate(times_ns, max, initial=least_ns if self.last_ns is None else self.last_ns))[1:]
        self.last_ns = orders_ns[-1]
        self.count += len(block)
        return FilePiece(block, self.count + 1 - len(block), orders_ns)

    def offsets(self) -> "array[int]":
        """Where the record of each packet begins, as far as the file can be read."""
        return array("q", (offset for piece in self.pieces() for offset in piece.block.offsets()))


def in_order(files: Sequence[Iterator[FilePiece]]) -> Iterator[tuple[int, FilePiece]]:
    """Merge the packets of files by their times: pieces, each with the number of its file among these.

    A capture may be a little out of order. ``read`` merges files by the time of the packet at hand, so a packet counts
    as no earlier than those before it in its file.
    """
    heads = [(piece.orders_ns[0], number, piece) for number, file in enumerate(files) for piece in _next_piece(file)]
    heapify(heads)
    while heads:
        _, number, piece = heappop(heads)
        stop = piece.size
        if heads:
            other_ns, other, _ = heads[0]
            stop = bisect_left(piece.orders_ns, other_ns + (number < other))
        yield number, piece if stop == piece.size else piece.part(0, stop)
        for rest in (piece.part(stop),) if stop < piece.size else _next_piece(files[number]):
            heappush(heads, (rest.orders_ns[0], number, rest))


def _next_piece(file: Iterator[FilePiece]) -> tuple[FilePiece, ...]:
    """The next piece, if there is one."""
    piece = next(file, None)
    return () if piece is None else (piece,)


_COSTLY = frozenset(("capture-truncated", "capture-corrupt"))
