"""The capture point: which packets it records, how that loses its order, and captures as sources and files.

A :class:`Record` is a packet in a file: the time stamped on it, and its segment. All functions that disturb take and
return lists of records and get a ``Random`` where they use chance.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from tests.world.link import CarriedSegment, Session
from tests.world.network import START_NS
from zmtpsniff.capture.block import NOTHING, Block, Packet
from zmtpsniff.capture.files import open_captures
from zmtpsniff.capture.merge import merged
from zmtpsniff.capture.pcapng_writer import PcapngSection, Provenance
from zmtpsniff.capture.source import SourceState

RECORD = 1000
"""Octets from one record to the next in the file that is not there, from which Packets come."""
_TICK_NS = 300_000_000  # between two looks of a live capture at its clock
_AWAKE_NS = 1_500_000_000  # so long before a packet it looks at all
_TIME = itemgetter(0)
_LONG_PAUSE_NS = 1_000_000_000


class Record(NamedTuple):
    """A packet in a capture file."""

    time_ns: int
    segment: CarriedSegment


Records = list[Record]


def watch(place: float, *sessions: Session) -> Records:
    """The packets that pass a place between client (0) and server (1), with their times there."""
    passing = [(segment.passes(place), segment) for session in sessions for segment in session.segments]
    return sorted((Record(START_NS + time, one) for time, one in passing if time >= 0), key=_TIME)


# ---------------------------------------------------------------------- order


def late(records: Records, side: int, late_ns: int) -> Records:
    """One direction is stamped later than it passes; the file is in order of the stamps."""
    moved = [Record(time + late_ns, one) if one.side == side else Record(time, one) for time, one in records]
    return sorted(moved, key=_TIME)


def jitter(records: Records, random: Random, most_ns: int, queues: Callable[[CarriedSegment], object]) -> Records:
    """Each queue hands its packets on in order, but some time later; the time is stamped then."""
    last: dict[object, int] = {}
    moved = []
    for time, one in records:
        queue = queues(one)
        time = max(time + int(most_ns * random.random()), last.get(queue, 0))
        last[queue] = time
        moved.append(Record(time, one))
    return sorted(moved, key=_TIME)


def swap(records: Records, random: Random, places: int, share: float, stamps: Literal["move", "stay"]) -> Records:
    """Packets stand up to some places off; their stamps move with them, or stay sorted where they are.

    No packet is held back until others come after a long pause.
    """
    ends = [0.0] * len(records)  # of the stretch without a pause that a packet is in
    end = float(len(records))
    for index in range(len(records) - 1, -1, -1):
        ends[index] = end
        if index and records[index].time_ns - records[index - 1].time_ns > _LONG_PAUSE_NS:
            end = index - 0.5
    keyed = [
        (min(index + (random.random() * places if random.random() < share else 0), ends[index]), index)
        for index in range(len(records))
    ]
    moved = [records[index] for _, index in sorted(keyed)]
    if stamps == "move":
        return moved
    return [Record(time, one) for (time, _), (_, one) in zip(records, moved, strict=True)]


# ---------------------------------------------------------------------- what is there


def duplicate(records: Records, random: Random, share: float, later_ns: int) -> Records:
    """Some packets are recorded twice, the second time later."""
    again = [Record(time + int(later_ns * random.random()), one) for time, one in records if random.random() < share]
    return sorted([*records, *again], key=_TIME)


def without(records: Records, lost: Callable[[CarriedSegment], bool]) -> Records:
    """Some packets are not recorded."""
    return [record for record in records if not lost(record.segment)]


# ---------------------------------------------------------------------- packets


def captured(records: Iterable[Record]) -> list[Packet]:
    """The packets of a capture file."""
    return [one.packet(time, one.session.hosts, one.session.ports, one.session.isn) for time, one in records]


def joined(files: Sequence[list[Packet]]) -> list[Packet]:
    """The packets of files in the order in which they are read together."""
    if len(files) == 1:
        return files[0]
    return [packet for batch in merged([iter([Block.of(file)]) for file in files], []) for packet in batch]


# ---------------------------------------------------------------------- sources and files


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
