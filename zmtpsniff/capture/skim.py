"""The packets of a file in pieces, some left out before anything is made of them.

Who wants a part of a file's packets alone has a *glance* say of each piece which packets to leave out. Left out packets
cost a fifth of others: where they are and when they came is looked at by numpy, all of a piece at once. They count all
the same, and so do their times.
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
    """What knows packets that nobody wants; it ``is_idle`` as long as it knows none."""

    @property
    def is_idle(self) -> bool:
        """Whether all packets are wanted so far."""
        ...

    def unwanted(self, link: int, data: bytes, starts: Numbers, sizes: Numbers) -> "NDArray[np.bool_]":
        """For packets of a link type, which begin at ``starts`` in ``data``, whether each is not wanted."""
        ...


class Piece(NamedTuple):
    """Packets of a file, in order; between them may be others, which were left out."""

    packets: list[Packet]
    numbers: Sequence[int]  # in the file, from 1
    orders_ns: list[int]  # for each the greatest time up to it, also of packets that were left out
    offsets: list[int]  # of their records, as open_stream() tells them; 0 where packets have none


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
        self._piece: Piece | None = None  # what choose() gave its reader last

    @property
    def is_useful(self) -> bool:
        """Whether there is anything to leave out."""
        return self._glance is not None and not self._glance.is_idle

    def pieces(self, batches: Iterable[list[Packet]]) -> Iterator[Piece]:
        """Yield what the reader that has this skim yields, as pieces."""
        for packets in batches:
            piece, self._piece = self._piece, None
            if packets:
                yield piece or self._whole(packets)

    def _whole(self, packets: list[Packet]) -> Piece:
        """A piece of which nothing is left out."""
        times = list(map(_time, packets))
        orders = list(accumulate(times, max, initial=self.latest_ns))[self.latest_ns is not None :]
        numbers = range(self.count + 1, self.count + 1 + len(packets))
        self._counted(len(packets), min(times), orders[-1])
        return Piece(packets, numbers, orders, self.offsets or [0] * len(packets))

    def _counted(self, count: int, least_ns: int, latest_ns: int) -> None:
        self.count += count
        self.least_ns = least_ns if self.least_ns is None else min(self.least_ns, least_ns)
        self.latest_ns = latest_ns

    def choose(
        self, data: bytes, edges: Sequence[int], order: str, unit: int, header: int, link: int, offset: int
    ) -> list[Packet] | None:
        """The wanted ones of packets in records of a pcap file; None if all are, and the reader is to read on as usual.

        The records are all that is between the ``edges`` in ``data``, which begins at ``offset`` in the file; each has
        a ``header``, of this byte ``order``, and its time a fraction in units of ``unit`` nanoseconds. The last of
        those left out comes all the same: what comes last says how late it is.
        """
        if self._glance is None or len(edges) < 2:
            return None
        ends = np.array(edges)
        begins = ends[:-1]
        starts = begins + header
        unwanted = self._glance.unwanted(link, data, starts, ends[1:] - starts)
        if not unwanted.any():
            return None
        unwanted[np.flatnonzero(unwanted)[-1]] = False
        heads = structures(data, begins, _record(order))
        times = heads["seconds"].astype(np.int64) * 1_000_000_000 + heads["fraction"].astype(np.int64) * unit
        orders = np.maximum.accumulate(times)
        if self.latest_ns is not None:
            np.maximum(orders, self.latest_ns, out=orders)
        chosen = np.flatnonzero(~unwanted)
        cuts = zip(starts[chosen].tolist(), ends[chosen + 1].tolist(), strict=True)
        octets = [data[start:stop] for start, stop in cuts]
        wires = heads["wire"][chosen].tolist()
        packets: list[Packet] = list(
            zip(times[chosen].tolist(), repeat(link), octets, wires, repeat(None), strict=False)
        )
        self._piece = Piece(
            packets,
            (chosen + (self.count + 1)).tolist(),
            orders[chosen].tolist(),
            (begins[chosen] + offset).tolist(),
        )
        self._counted(len(begins), int(times.min()), int(orders[-1]))
        return packets


def structures(data: bytes, begins: Numbers, layout: "np.dtype[np.void]") -> "NDArray[np.void]":
    """The structures of a ``layout`` that begin in ``data`` at these places, all of them whole."""
    # As plain octets they are gathered ten times as fast as field by field.
    places = max(len(data) - layout.itemsize + 1, 0)
    everywhere: NDArray[np.void] = np.ndarray(places, f"V{layout.itemsize}", data, strides=(1,))
    return everywhere[begins].view(layout)


@lru_cache(2)
def _record(order: str) -> "np.dtype[Any]":
    return np.dtype([(name, f"{order}u4") for name in ("seconds", "fraction", "captured", "wire")])
