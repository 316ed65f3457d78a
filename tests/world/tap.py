"""Captures of packets at hand: a source of them, and files with them."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from zmtpsniff.capture.block import NOTHING, Block, Packet
from zmtpsniff.capture.files import open_captures
from zmtpsniff.capture.pcapng_writer import PcapngSection, Provenance
from zmtpsniff.capture.source import SourceState

RECORD = 1000
"""Octets from one record to the next in the file that is not there, from which Packets come."""
_TICK_NS = 300_000_000  # between two looks of a live capture at its clock
_AWAKE_NS = 1_500_000_000  # so long before a packet it looks at all


class Packets(SourceState):
    """A source of packets that are at hand, as if they were from a file."""

    def __init__(self, given: Sequence[Packet], batch: int = 100, live: bool = False) -> None:
        """Give out the packets in batches of so many; ``live`` says whether time passes without packets, too."""
        super().__init__()
        self._now_ns = 0
        self._given = given
        self._batch = batch
        self._live = live

    def batches(self) -> Iterator[Block]:
        """Yield the packets."""
        for at in range(0, len(self._given), self._batch):
            packets = list(self._given[at : at + self._batch])
            if self._live:
                # Often enough for time to pass: a capture that gives nothing for long stands still.
                until_ns = packets[0][0] - 1
                for now_ns in (*range(until_ns - _AWAKE_NS, until_ns, _TICK_NS), until_ns):
                    if now_ns > self._now_ns:
                        self._now_ns = now_ns
                        yield NOTHING
            yield Block.of(packets)

    def clock(self) -> int:
        """The time, nanoseconds since the Unix epoch: that just before the next packet."""
        return self._now_ns


def load(path: Path) -> list[Packet]:
    """All packets of a capture file."""
    return [packet for batch in open_captures([str(path)]).batches() for packet in batch]


def save(path: Path, packets: Iterable[Packet]) -> None:
    """Write a capture file: pcap of Ethernet, with nanoseconds."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1))
        for time_ns, _, octets, length, _ in packets:
            file.write(struct.pack("<IIII", *divmod(time_ns, 10**9), len(octets), length) + octets)


def save_pcapng(path: Path, packets: Sequence[Packet]) -> Path:
    """Write a capture file: pcapng, as zmtpsniff saves packets."""
    section = PcapngSection(Provenance("zmtpsniff test"))
    path.write_bytes(section.header([]) + section.packets(Block.of(packets)))
    return path
