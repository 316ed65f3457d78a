"""The packets of a file in pieces, some left out before any object is made of them.

A reader may want only a part of a file's packets. Then its *glance* says for each piece which packets to leave out.
They still count, and so do their times. numpy looks at the headers of all packets of a piece at once, so a packet that
is left out costs a fifth of another.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from zmtpsniff.capture.block import Block, Packet

Numbers = NDArray[np.int64]
_ROW = np.dtype([("time", "i8"), ("start", "u4"), ("size", "u4"), ("wire", "u4"), ("link", "u4")])


class Glance(Protocol):
    """What knows packets that nobody wants."""

    def unwanted(self, link: int, data: bytes, starts: Numbers, sizes: Numbers) -> "NDArray[np.bool_]":
        """Whether nobody wants a packet, for packets of a link type that begin at ``starts`` in ``data``."""
        ...


class FilePiece(NamedTuple):
    """Packets of a file, in order; between them may be others, which were left out."""

    packets: list[Packet]
    numbers: Sequence[int]  # in the file, from 1
    orders_ns: list[int]  # for each packet the greatest time so far, also of packets that were left out
    offsets: list[int]  # the offsets of their records, as open_stream() gives them; 0 for packets without records


class Skim:
    """The packets of one file in pieces.

    ``count`` is the number of packets so far, ``least_ns`` and ``latest_ns`` are their times; None without packets.
    """

    def __init__(self, glance: Glance | None = None) -> None:
        """Leave out what ``glance`` does not want."""
        self.count = 0
        self.least_ns: int | None = None
        self.latest_ns: int | None = None
        self._glance = glance

    def pieces(self, blocks: Iterable[Block]) -> Iterator[FilePiece]:
        """Yield the wanted packets of each block, and the last unwanted one: its time shows how far the capture is."""
        for block in filter(None, blocks):
            times = block.times_ns
            before = () if self.latest_ns is None else (self.latest_ns,)
            orders = list(accumulate((*before, *times), max))[len(before) :]
            chosen = self._chosen(block)
            packets, offsets = block.packets(), block.offsets()
            yield FilePiece(
                [packets[place] for place in chosen],
                [self.count + 1 + place for place in chosen],
                [orders[place] for place in chosen],
                [offsets[place] for place in chosen],
            )
            self.count += len(block)
            self.least_ns = min(times) if self.least_ns is None else min(self.least_ns, *times)
            self.latest_ns = orders[-1]

    def _chosen(self, block: Block) -> Sequence[int]:
        if self._glance is None:
            return range(len(block))
        rows = np.frombuffer(block.rows, _ROW)
        unwanted, plain = np.zeros(len(rows), bool), np.ones(len(rows), bool)
        plain[[*block.odd]] = False
        for link in np.unique(rows["link"]).tolist():
            (places,) = np.nonzero(plain & (rows["link"] == link))
            starts, sizes = (rows[name][places].astype(np.int64) for name in ("start", "size"))
            unwanted[places] = self._glance.unwanted(link, block.octets, starts, sizes)
        if unwanted.any():
            unwanted[np.flatnonzero(unwanted)[-1]] = False
        chosen: list[int] = np.flatnonzero(~unwanted).tolist()
        return chosen


def structures(data: bytes, begins: Numbers, layout: "np.dtype[np.void]") -> "NDArray[np.void]":
    """The structures of a ``layout`` that begin in ``data`` at these places, all of them whole."""
    # As plain octets numpy gathers them ten times as fast as field by field.
    places = max(len(data) - layout.itemsize + 1, 0)
    everywhere: NDArray[np.void] = np.ndarray(places, f"V{layout.itemsize}", data, strides=(1,))
    return everywhere[begins].view(layout)
