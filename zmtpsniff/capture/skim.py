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

from zmtpsniff.capture.pcapng_blocks import ENHANCED_PACKET, TimeBase
from zmtpsniff.capture.source import Packet

Numbers = NDArray[np.int64]
_time = itemgetter(0)
_AROUND = 32  # octets of an Enhanced Packet Block around the packet and its padding
_MOST_NS = (1 << 63) - 1  # numbers of numpy hold no more; Python's do


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
        """Leave out what ``glance`` does not want, in formats whose readers support that: pcap, pcapng."""
        self.count = 0
        self.least_ns: int | None = None
        self.latest_ns: int | None = None
        self.offsets: list[int] = []  # for open_stream()
        self._glance = glance
        self._piece: FilePiece | None = None  # what its reader was given last

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

    def records(
        self, data: bytes, edges: Sequence[int], order: str, unit: int, header: int, link: int, offset: int
    ) -> list[Packet]:
        """The wanted packets among the records of a pcap file.

        The last unwanted packet comes with them, since its time shows how far the capture is. The records are the
        octets between the ``edges`` in ``data``, which begins at ``offset`` in the file. Each has a ``header`` of this
        byte ``order``, and a time with a fraction in units of ``unit`` nanoseconds.
        """
        ends = np.array(edges)
        begins = ends[:-1]
        heads = structures(data, begins, _record(order))
        times = heads["seconds"].astype(np.int64) * 1_000_000_000 + heads["fraction"].astype(np.int64) * unit
        return self._choose(data, link, begins + header, ends[1:], times, heads["wire"], begins + offset)

    def blocks(
        self, data: bytes, edges: Sequence[int], order: str, bases: Sequence[TimeBase], offset: int
    ) -> tuple[list[Packet], int]:
        """The wanted ones of the packets in the first blocks of a section of a pcapng file, and how far these reach.

        They are Enhanced Packet Blocks without options, of interfaces with the same time base; there may be none. The
        last packet that nobody wants comes with them. Blocks of this byte ``order``, of 32 octets or more, are all that
        is between the ``edges`` in ``data``, which begins at ``offset`` in the file. The section has interfaces with
        these ``bases``.
        """
        ends = np.array(edges)
        begins = ends[:-1]
        heads = structures(data, begins, _block(order))
        first = int(heads["interface"][0])
        if first >= len(bases) or not bases[first].unit_ns:
            return [], edges[0]
        link, unit_ns, offset_ns = base = bases[first]
        indexes = heads["interface"]
        plain = indexes == first
        if not plain.all():
            seen = np.unique(indexes).tolist()
            plain = np.isin(indexes, [index for index in seen if index < len(bases) and bases[index] == base])
        plain &= heads["kind"] == ENHANCED_PACKET
        padding = ends[1:] - begins - _AROUND - heads["captured"]
        plain &= padding & ~3 == 0  # from 0 to 3, so that there are no options
        plain &= structures(data, ends[1:] - 4, _length(order)) == heads["length"]
        count = len(plain) if plain.all() else int(plain.argmin())
        if not count:
            return [], edges[0]
        heads = heads[:count]
        most_ns = (int(heads["high"].max()) + 1 << 32) * unit_ns + abs(offset_ns)
        if max(most_ns, abs(self.latest_ns or 0)) > _MOST_NS:
            return [], edges[0]
        times = (heads["high"].astype(np.int64) << 32 | heads["low"]) * unit_ns + offset_ns
        starts = begins[:count] + 28
        stops = starts + heads["captured"]
        packets = self._choose(data, link, starts, stops, times, heads["wire"], begins[:count] + offset)
        return packets, edges[count]

    def _choose(
        self,
        data: bytes,
        link: int,
        starts: Numbers,
        stops: Numbers,
        times: Numbers,
        wires: "NDArray[np.uint32]",
        offsets: Numbers,
    ) -> list[Packet]:
        """The wanted ones of packets that are in ``data`` from ``starts`` to ``stops``, and the last unwanted one."""
        chosen = np.arange(len(starts))
        if self._glance is not None:
            unwanted = self._glance.unwanted(link, data, starts, stops - starts)
            if unwanted.any():
                unwanted[np.flatnonzero(unwanted)[-1]] = False
                chosen = np.flatnonzero(~unwanted)
        orders = np.maximum.accumulate(times)
        if self.latest_ns is not None:
            np.maximum(orders, self.latest_ns, out=orders)
        cuts = zip(starts[chosen].tolist(), stops[chosen].tolist(), strict=True)
        octets = [data[start:stop] for start, stop in cuts]
        packets: list[Packet] = list(
            zip(times[chosen].tolist(), repeat(link), octets, wires[chosen].tolist(), repeat(None), strict=False)
        )
        self._piece = FilePiece(
            packets, (chosen + (self.count + 1)).tolist(), orders[chosen].tolist(), offsets[chosen].tolist()
        )
        self._counted(len(starts), int(times.min()), int(orders[-1]))
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


@lru_cache(2)
def _block(order: str) -> "np.dtype[Any]":
    names = ("kind", "length", "interface", "high", "low", "captured", "wire")
    return np.dtype([(name, f"{order}u4") for name in names])


@lru_cache(2)
def _length(order: str) -> "np.dtype[Any]":
    return np.dtype(f"{order}u4")
