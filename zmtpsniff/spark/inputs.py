"""A capture file read by an executor: opened by whatever its path or URL names, in pieces of many packets."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.files import CHUNK, open_stream, read_chunks
from zmtpsniff.capture.locations import SPECIAL, LocationError, is_special, open_location
from zmtpsniff.capture.source import CaptureError, Fault
from zmtpsniff.native import core
from zmtpsniff.spark.places import PacketPlaces

_CHUNK = 4 * CHUNK  # flows go to the native core and back for each block


class FilePiece(NamedTuple):
    """Packets of a file, in order; between them may be others, which were left out."""

    block: Block
    numbers: Sequence[int]  # in the file, from 1
    orders_ns: Sequence[int]  # for each packet the greatest time so far, also of packets that were left out

    @property
    def size(self) -> int:
        """The number of packets."""
        return len(self.numbers)

    def part(self, begin: int, end: int | None = None) -> "FilePiece":
        """The packets from the one at ``begin`` up to that at ``end``."""
        end = self.size if end is None else end
        return FilePiece(self.block.part(begin, end), self.numbers[begin:end], self.orders_ns[begin:end])

    def places(self, file: int) -> PacketPlaces:
        """The places of the packets, if the file has this number."""
        return PacketPlaces(file, self.numbers, self.orders_ns, self.block.offset)


class File:
    """A capture file as a source of packets. It keeps errors, and never raises them.

    ``error`` says why the file or its rest could not be read, None if nothing is wrong. ``count`` is the number of
    packets so far, ``first_ns`` and ``last_ns`` are their least and their greatest time; None without packets.
    """

    def __init__(self, path: str, is_wanted: Callable[[bytes], bool] | None = None) -> None:
        """Read a path or URL, without the packets of directions of TCP whose keys are not wanted, if the core can."""
        self.path = path
        self.count = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.dropped = 0
        self.faults: list[Fault] = []
        self.comments: list[str] = []
        self.key_lines: list[str] = []
        self.unreadable: str | None = None
        self._is_wanted = is_wanted
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
        numbers: Sequence[int] = range(self.count + 1, self.count + 1 + len(block))
        self.count += len(block)
        if core is None or self._is_wanted is None or block.odd:
            return FilePiece(block, numbers, orders_ns)
        rows, octets = core.wanted(block.octets, block.rows, self._is_wanted)
        places = array("I", octets)
        if len(places) == len(block):
            return FilePiece(block, numbers, orders_ns)
        chosen = Block(block.octets, rows, base=block.base)
        return FilePiece(chosen, [numbers[place] for place in places], [orders_ns[place] for place in places])


def in_order(files: Sequence[Iterator[FilePiece]]) -> Iterator[tuple[int, FilePiece]]:
    """Merge the packets of files by their places: pieces, each with the number of its file among these."""
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
