"""The packets of a capture by their number, long after they were read."""

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from zmtpsniff.browse.blocks import BlockFile
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.compression import FORMATS
from zmtpsniff.capture.files import CHUNK, MAGIC_SIZE, open_captures, open_stream
from zmtpsniff.capture.pcap import MAGICS
from zmtpsniff.capture.pcapng import MAGIC
from zmtpsniff.capture.source import CaptureError, Fault, Source

_STEP = 256  # packets between two places that are kept
_KEPT = 64  # blocks of packets that were looked at last


class PacketLog(Protocol):
    """Packets that can be read again. One thread adds packets while others ask for them."""

    count: int

    def take(self, block: Block) -> None:
        """Add what was read."""

    def packet(self, number: int) -> Packet | None:
        """A packet by its number, from 1; None if it cannot be had."""

    def all(self) -> Iterator[list[Packet]]:
        """All packets so far, in lists."""

    def close(self) -> None:
        """Let go of files."""


class TappedSource:
    """A Source that shows its packets to somebody on their way."""

    def __init__(self, source: Source, tap: Callable[[Block], None]) -> None:
        """``tap`` is given each block of ``source`` just before it is given out."""
        self.dropped = source.dropped
        self.faults = source.faults  # lists that only grow
        self.comments = source.comments
        self.key_lines = source.key_lines
        self._source = source
        self._tap = tap

    def batches(self) -> Iterator[Block]:
        """Yield the packets; raises what the source and the tap raise."""
        for block in self._source.batches():
            self.dropped = self._source.dropped
            self._tap(block)
            yield block
        self.dropped = self._source.dropped


class StoredPackets:
    """Packets that can be read only once, in a temporary file."""

    def __init__(self) -> None:
        """Start without packets; OSError if there is no room for temporary files."""
        self.count = 0
        self._blocks = BlockFile()
        self._tail: list[Packet] = []

    def take(self, block: Block) -> None:
        """Add what was read; OSError if the disk is full."""
        tail = self._tail + block.packets()
        begin = 0
        while len(tail) - begin >= _STEP:
            self._blocks.append(tail[begin : begin + _STEP])
            begin += _STEP
        self._tail = tail[begin:]
        self.count += len(block)

    def packet(self, number: int) -> Packet | None:
        """A packet by its number, from 1; None if it cannot be had."""
        place, index = divmod(number - 1, _STEP)
        tail = self._tail
        block = self._blocks.block(place) if 0 <= place < len(self._blocks) else tail
        return block[index] if 0 < number <= self.count and index < len(block) else None

    def all(self) -> Iterator[list[Packet]]:
        """All packets so far, in lists."""
        count = self.count
        for place in range(0, count, _STEP):
            found = [self.packet(number + 1) for number in range(place, min(place + _STEP, count))]
            yield [packet for packet in found if packet is not None]

    def close(self) -> None:
        """Give the disk its room back."""
        self._blocks.close()


class FilePackets:
    """Packets of a plain pcap or pcapng file, which is read again where somebody looks.

    What stands in front of its first packet (the file header; the section and its interfaces) is read first each time,
    so that reading can begin anywhere. Then interfaces that pcapng describes later on are missing, so the caller
    compares the time of a packet with the time that it must have.
    """

    def __init__(self, name: str) -> None:
        """Packets of the file ``name`` will be taken."""
        self.count = 0
        self._name = name
        self._steps = array("Q")
        self._file = os.open(name, os.O_RDONLY)
        self._block = lru_cache(_KEPT)(self._read)

    def take(self, block: Block) -> None:
        """Take note of where what was read begins."""
        self._steps.extend(block.offsets()[-self.count % _STEP :: _STEP])
        self.count += len(block)

    def packet(self, number: int) -> Packet | None:
        """A packet by its number, from 1; None if it cannot be had."""
        place, index = divmod(number - 1, _STEP)
        if not 0 < number <= self.count:
            return None
        block = self._block(place, min(self.count - place * _STEP, _STEP))
        return block[index] if index < len(block) else None

    def all(self) -> Iterator[list[Packet]]:
        """All packets so far, in lists."""
        left = self.count
        source = open_captures([self._name])
        try:
            for block in source.batches():
                yield block.packets(0, left)
                left -= len(block)
                if left <= 0:
                    return
        finally:
            source.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _read(self, place: int, count: int) -> list[Packet]:
        """``count`` packets from a place on, fewer if they cannot be had."""
        chunks = self._chunks(self._steps[place])
        found: list[Packet] = []
        try:
            for block in open_stream(self._name, chunks, _SourceFacts()):
                found += block
                if len(found) >= count:
                    break
        except CaptureError:
            pass
        return found[:count]

    def _chunks(self, offset: int) -> Iterator[bytes]:
        """The octets in front of the first packet, then those from ``offset`` on."""
        yield os.pread(self._file, self._steps[0], 0)
        while data := os.pread(self._file, CHUNK, offset):
            yield data
            offset += len(data)


class _SourceFacts:
    """The facts that a source gathers beside its packets. Nobody asks for them here."""

    def __init__(self) -> None:
        self.dropped = 0
        self.faults: list[Fault] = []
        self.comments: list[str] = []
        self.key_lines: list[str] = []


def can_be_read_again(names: Sequence[str]) -> bool:
    """Whether packets can be read from any place: one plain capture file, which is no pipe."""
    if len(names) != 1 or names[0] == "-" or not Path(names[0]).is_file():
        return False
    with open(names[0], "rb") as file:
        magic = file.read(MAGIC_SIZE)
    return not magic.startswith(tuple(FORMATS)) and (magic[:4] in MAGICS or magic[:4] == MAGIC)
