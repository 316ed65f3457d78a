"""The packets of a capture by their number, long after they were read."""

from array import array
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence

from zmtpsniff.browse.blocks import BlockFile
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.source import Source, SourceState

_LEAST = 256  # packets that are written together


class TappedSource(SourceState):
    """A Source that shows its packets to somebody on their way."""

    def __init__(self, source: Source, tap: Callable[[Block], None]) -> None:
        """``tap`` is given each block of ``source`` just before it is given out."""
        super().__init__(source)
        self._source = source
        self._tap = tap

    def batches(self) -> Iterator[Block]:
        """Yield the packets; raises what the source and the tap raise."""
        for block in self._source.batches():
            self.dropped = self._source.dropped
            self._tap(block)
            yield block
        self.dropped = self._source.dropped


class PacketLog:
    """Packets in a temporary file. One thread adds packets while others ask for them."""

    def __init__(self) -> None:
        """Start without packets; OSError if there is no room for temporary files."""
        self._blocks = BlockFile(_packets_of)
        self._firsts = array("Q")  # how many packets stand before each block of the file
        self._tail: tuple[int, list[Block]] = 0, []  # of no block yet, and how many packets stand before them

    def take(self, block: Block) -> None:
        """Add what was read; OSError if the disk is full."""
        if not block:
            return
        begin, end = block.span()
        first, tail = self._tail
        tail = [*tail, Block(block.octets[begin:end], block.shifted(-begin), block.odd)]
        if (count := sum(map(len, tail))) >= _LEAST:
            self._blocks.append(tail)
            self._firsts.append(first)
            first, tail = first + count, []
        self._tail = first, tail

    def packet(self, number: int) -> Packet | None:
        """A packet by its number, from 1; None if it cannot be had."""
        # The tail first: its packets may be in the file a moment later, but never the other way round.
        first, tail = self._tail
        if number < 1:
            return None
        if number > first:
            packets = _packets_of(tail)
        else:
            place = bisect(self._firsts, number - 1) - 1
            first, packets = self._firsts[place], self._blocks.block(place)
        return packets[number - 1 - first] if number - 1 - first < len(packets) else None

    def all(self) -> Iterator[list[Packet]]:
        """All packets so far, in lists."""
        _, tail = self._tail
        yield from map(self._blocks.block, range(len(self._blocks)))
        yield _packets_of(tail)

    def close(self) -> None:
        """Give the disk its room back."""
        self._blocks.close()


def _packets_of(blocks: Sequence[Block]) -> list[Packet]:
    return [packet for block in blocks for packet in block.packets()]
