"""The capture point: what it records of the segments that pass, and how that loses its order.

A :class:`Record` is a packet in a file: the time stamped on it, and its segment. All functions that disturb take and
return lists of records and get a ``Random`` where they use chance.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from random import Random
from typing import Literal, NamedTuple

from tests.world.network import START_NS
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.merge import merged

from .network import Segment, Session

_TIME = itemgetter(0)
_LONG_PAUSE_NS = 1_000_000_000


class Record(NamedTuple):
    """A packet in a capture file."""

    time_ns: int
    segment: Segment


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


def jitter(records: Records, random: Random, most_ns: int, queues: Callable[[Segment], object]) -> Records:
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


def without(records: Records, lost: Callable[[Segment], bool]) -> Records:
    """Some packets are not recorded."""
    return [record for record in records if not lost(record.segment)]


# ---------------------------------------------------------------------- packets


def packets(records: Iterable[Record]) -> list[Packet]:
    """The packets of a capture file."""
    out: list[Packet] = []
    for time, segment in records:
        data = segment.octets()
        out.append((time, 1, data, len(data), None))
    return out


def joined(files: Sequence[list[Packet]]) -> list[Packet]:
    """The packets of files in the order in which they are read together."""
    if len(files) == 1:
        return files[0]
    return [packet for batch in merged([iter([Block.of(file)]) for file in files]) for packet in batch]
