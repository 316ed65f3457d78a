"""The packets of a capture by their number, long after they were read."""

from collections.abc import Callable, Iterator

from zmtpsniff.browse.blocks import NumberedFile
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.source import Source, SourceState


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
        self._packets = NumberedFile(Block, Block.packets)

    def take(self, block: Block) -> None:
        """Add what was read; OSError if the disk is full."""
        if block:
            begin, end = block.span()
            self._packets.add([Block(block.octets[begin:end], block.shifted(-begin), block.odd)])

    def packet(self, number: int) -> Packet | None:
        """A packet by its number, from 1; None if it cannot be had."""
        if not 1 <= number <= len(self._packets):
            return None
        first, packets = self._packets.around(number - 1)
        packet: Packet = packets[number - 1 - first]
        return packet

    def all(self) -> Iterator[list[Packet]]:
        """All packets so far, in lists."""
        return self._packets.lists(0, len(self._packets))

    def close(self) -> None:
        """Give the disk its room back."""
        self._packets.close()
