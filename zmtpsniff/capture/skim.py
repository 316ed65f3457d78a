"""The packets of a file in pieces, some left out before any object is made of them.

A reader may want only a part of a file's packets. Then its *glance* says for each piece which packets to leave out.
They still count, and so do their times. numpy looks at the headers of all packets of a piece at once, so a packet that
is left out costs a fifth of another.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from zmtpsniff.capture.source import Packet

Numbers = NDArray[np.int64]
_time = itemgetter(0)


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
        """Leave out what ``glance`` does not want, in formats whose readers support that: pcap."""
        self.count = 0
        self.least_ns: int | None = None
        self.latest_ns: int | None = None
        self.offsets: list[int] = []  # for open_stream()
        self._glance = glance
        self._piece: FilePiece | None = None  # what choose() gave its reader last

    def pieces(self, batches: Iterable[list[Packet]]) -> Iterator[FilePiece]:
        """Yield what the reader that has this skim yields, as pieces."""
        for packets in batches:
            piece, self._piece = self._piece, None
            if packets:
                yield piece or self._whole(packets)

    def _whole(self, packets: list[Packet]) -> FilePiece:
        """A piece of which nothing is left out."""
        times = list(map(_time, packets))
        orders = list(accumulate(times, max, initial=self.latest_ns))[self.latest_ns is not None :]
        numbers = range(self.count + 1, self.count + 1 + len(packets))
        self._counted(len(packets), min(times), orders[-1])
        return FilePiece(packets, numbers, orders, self.offsets or [0] * len(packets))

    def _counted(self, count: int, least_ns: int, latest_ns: int) -> None:
        self.count += count
        self.least_ns = least_ns if self.least_ns is None else min(self.least_ns, least_ns)
        self.latest_ns = latest_ns

    def choose(
        self, data: bytes, edges: Sequence[int], order: str, unit: int, header: int, link: int, offset: int
    ) -> list[Packet]:
        """The wanted packets among the records of a pcap file.

        The last unwanted packet comes with them, since its time shows how far the capture is. The records are the
        octets between the ``edges`` in ``data``, which begins at ``offset`` in the file. Each has a ``header`` of this
        byte ``order``, and a time with a fraction in units of ``unit`` nanoseconds.
        """
        ends = np.array(edges)
        begins = ends[:-1]
        starts = begins + header
        chosen = np.arange(len(begins))
        if self._glance is not None:
            unwanted = self._glance.unwanted(link, data, starts, ends[1:] - starts)
            if unwanted.any():
                unwanted[np.flatnonzero(unwanted)[-1]] = False
                chosen = np.flatnonzero(~unwanted)
        heads = structures(data, begins, _record(order))
        times = heads["seconds"].astype(np.int64) * 1_000_000_000 + heads["fraction"].astype(np.int64) * unit
        orders = np.maximum.accumulate(times)
        if self.latest_ns is not None:
            np.maximum(orders, self.latest_ns, out=orders)
        cuts = zip(starts[chosen].tolist(), ends[chosen + 1].tolist(), strict=True)
        octets = [data[start:stop] for start, stop in cuts]
        wires = heads["wire"][chosen].tolist()
        packets: list[Packet] = list(
            zip(times[chosen].tolist(), repeat(link), octets, wires, repeat(None), strict=False)
        )
        self._piece = FilePiece(
            packets,
            (chosen + (self.count + 1)).tolist(),
            orders[chosen].tolist(),
            (begins[chosen] + offset).tolist(),
        )
        self._counted(len(begins), int(times.min()), int(orders[-1]))
        return packets


def structures(data: bytes, begins: Numbers, layout: "np.dtype[np.void]") -> "NDArray[np.void]":
    """The structures of a ``layout`` that begin in ``data`` at these places, all of them whole."""
    # As plain octets numpy gathers them ten times as fast as field by field.
    places = max(len(data) - layout.itemsize + 1, 0)
    everywhere: NDArray[np.void] = np.ndarray(places, f"V{layout.itemsize}", data, strides=(1,))
    return everywhere[begins].view(layout)


@lru_cache(2)
def _record(order: str) -> "np.dtype[Any]":
    return np.dtype([(name, f"{order}u4") for name in ("seconds", "fraction", "captured", "wire")])
