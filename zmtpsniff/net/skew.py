"""By how much the clocks of capture files differ, told from connections that two of them saw.

Theory
------

Two hosts record the same segment. The clock of the second one is ahead by *s*, and the way between them takes *w*. So
what goes from the first to the second seems to take ``w + s``, and what comes back ``w - s``. Half of the difference is
*s*, if the ways there and back are about the same. The median of many segments leaves out those that had to wait.
Segments without octets count, too: a side that only receives sends no others.

Files that have no connection in common with the first one are compared with others that do; the differences add up.

Files that one host recorded one after the other have one clock. In these, all segments have that host at one end.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations
from statistics import median

from dissectors.address import host_of
from zmtpsniff.capture.block import Block
from zmtpsniff.net.addresses import addresses, reverse
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import Segment

_SEGMENTS = 100_000  # of one file
_LEAST = 4  # segments in each direction

_Sightings = dict[tuple[bytes, int, int, int], int]
"""By direction, sequence number, acknowledgment number and length: when a file has that segment first."""


def clock_differences(files: Sequence[Iterator[Block]]) -> list[tuple[int, int]]:
    """By how many nanoseconds the clock of each file is ahead of that of another one, whose place comes first.

    That is the first file with which it shares a connection, in both directions, itself or over others; or itself.
    """
    segments = [_segments(file) for file in files]
    beginnings = [next(blocks, []) for blocks in segments]
    hosts = {_hosts(block) for block in beginnings}
    if len(hosts) == 1 and len(min(hosts)) == 1:
        return [(0, 0)] * len(files)
    seen = [_sightings(chain([block], blocks)) for block, blocks in zip(beginnings, segments, strict=True)]
    differences: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for one, other in combinations(range(len(files)), 2):
        if (difference := _difference(seen[one], seen[other])) is not None:
            differences[one][other], differences[other][one] = difference, -difference
    ahead: dict[int, tuple[int, int]] = {}
    for first in range(len(files)):
        ahead.setdefault(first, (first, 0))
        for near in (known := [first]):  # which grows
            for far, difference in differences[near].items():
                if far not in ahead:
                    ahead[far] = ahead[near][0], ahead[near][1] + difference
                    known.append(far)
    return [ahead[place] for place in range(len(files))]


def _segments(file: Iterator[Block]) -> Iterator[list[Segment]]:
    headers = HeaderDecoder()
    return (headers.segments_of(block, range(1, len(block) + 1)) for block in file)


def _hosts(segments: Sequence[Segment]) -> frozenset[str]:
    """The hosts that are an end of each segment."""
    ends = [{host_of(end.text) for end in addresses(key)} for key in {segment[2] for segment in segments}]
    return frozenset(set.intersection(*ends)) if ends else frozenset()


def _sightings(blocks: Iterable[Sequence[Segment]]) -> _Sightings:
    seen: _Sightings = {}
    for block in blocks:
        for time_ns, _, key, seq, ack, _, payload, _ in block:
            seen.setdefault((key, seq, ack, len(payload)), time_ns)
        if len(seen) >= _SEGMENTS:
            break
    return seen


def _difference(one: _Sightings, other: _Sightings) -> int | None:
    """By how much the clock of the other file is ahead."""
    took: defaultdict[bytes, list[int]] = defaultdict(list)
    for segment in one.keys() & other.keys():
        took[segment[0]].append(other[segment] - one[segment])
    found = [
        (median(times) + median(back)) / 2
        for key, times in took.items()
        if len(times) >= _LEAST and len(back := took.get(reverse(key), [])) >= _LEAST
    ]
    return round(median(found)) if found else None
