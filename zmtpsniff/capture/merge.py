"""The packets of several captures as those of one."""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from dissectors.columns import ROW
from zmtpsniff.capture.block import NOTHING, Block, Packet
from zmtpsniff.capture.source import Interruption

MERGED_BATCH = 4096  # packets
APART_NS = 60_000_000_000
"""Captures that follow each other without a pause as long as this belong together, such as the files of a ring."""

Run = tuple[int, int]
"""Packets of one capture: its place among the captures, and how many they are."""


def merged(files: Sequence[Iterator[Block]], interruptions: list[Interruption]) -> Iterator[Block]:
    """Merge the packets of several captures by time; of two packets at the same time the earlier file's comes first.

    Packets that are known to come next are yielded before any file is read on, since reading may wait. Where all
    captures so far have ended for long before the next one begins, ``interruptions`` gets that before the next block.
    """
    return (block for block, _ in merged_runs(files, interruptions))


def merged_runs(
    files: Sequence[Iterator[Block]], interruptions: list[Interruption], most: int = MERGED_BATCH
) -> Iterator[tuple[Block, list[Run]]]:
    """The same, and with each block from where its packets come. A block is yielded once it has ``most`` packets."""
    heads = [_Head(file) for file in files]
    # Time of each file's next packet, and the file's place.
    order = [(head.time_ns, place) for place, head in enumerate(heads) if head.left]
    heapify(order)
    parts: list[tuple[Block, int, int]] = []
    runs: list[Run] = []
    size = going_on = last_ns = 0
    while order:
        time_ns, place = heappop(order)
        head = heads[place]
        block, begin = head.block, head.begin
        if head.is_new:
            head.is_new = False
            if last_ns and not going_on and time_ns - last_ns >= APART_NS:
                if parts:
                    yield _joined(parts), runs
                    parts, runs, size = [], [], 0
                interruptions.append((last_ns, time_ns))
            going_on += 1
        count = head.skip(*order[0], place) if order else head.skip_all()
        last_ns = max(last_ns, block.times_ns[begin + count - 1])
        parts.append((block, begin, begin + count))
        runs.append((place, count))
        size += count
        if not head.left or size >= most:
            yield _joined(parts), runs
            parts, runs, size = [], [], 0
        if head.left or head.read_on():
            heappush(order, (head.time_ns, place))
        else:
            going_on -= 1


class _Head:
    """The packets of a file that come next."""

    def __init__(self, file: Iterator[Block]) -> None:
        self._file = file
        self.is_new = True  # none of its packets was taken
        self.read_on()

    def read_on(self) -> bool:
        """Read the next packets; False if there are none."""
        self.block = next(filter(None, self._file), NOTHING)
        self._times_ns = self.block.times_ns
        self.begin = 0
        return bool(self.left)

    @property
    def left(self) -> int:
        return len(self._times_ns) - self.begin

    @property
    def time_ns(self) -> int:
        return self._times_ns[self.begin]

    def skip(self, other_ns: int, other_place: int, place: int) -> int:
        """Go on to the first packet that comes after that of another file. Returns how many come before it."""
        limit = other_ns + (place < other_place)
        times, begin, size = self._times_ns, self.begin, len(self._times_ns)
        stop = begin + 1  # As long as packets come before those of all others, they need no further comparison.
        while stop < size and times[stop] < limit:
            stop += 1
        self.begin = stop
        return stop - begin

    def skip_all(self) -> int:
        count, self.begin = self.left, len(self._times_ns)
        return count


def _joined(parts: list[tuple[Block, int, int]]) -> Block:
    """Packets of several blocks as one; of each block the packets from one place up to another."""
    blocks = {id(block): block for block, _, _ in parts}
    if len(blocks) == 1:
        return parts[0][0].part(parts[0][1], parts[-1][2])
    begins = {id(block): begin for block, begin, _ in reversed(parts)}
    ends = {id(block): end for block, _, end in parts}
    octets: list[bytes] = []
    rows: dict[int, bytes] = {}  # of each block, with the places of their octets in those of all
    size = 0
    for key, block in blocks.items():
        used = block.part(begins[key], ends[key])
        begin, end = used.span()
        rows[key] = used.shifted(size - begin)
        octets.append(block.octets[begin:end])
        size += end - begin
    found: list[bytes] = []
    odd: dict[int, Packet] = {}
    count = 0
    for block, begin, end in parts:
        first = begins[id(block)]
        found.append(rows[id(block)][(begin - first) * ROW.size : (end - first) * ROW.size])
        if block.odd:
            odd |= {count + place - begin: packet for place, packet in block.odd.items() if begin <= place < end}
        count += end - begin
    return Block(b"".join(octets), b"".join(found), odd)
