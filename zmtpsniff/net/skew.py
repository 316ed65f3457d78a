"""By how much the clocks of capture files differ, told from connections that two of them saw.

Theory
------

Two hosts record the same segment. The clock of the second one is ahead by *s*, and the way between them takes *w*. So
what goes from the first to the second seems to take ``w + s``, and what comes back ``w - s``. Half of the difference is
*s*, if the ways there and back are about the same. The median of many segments leaves out those that had to wait.

Files that have no connection in common with the first one are compared with others that do; the differences add up.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median

from zmtpsniff.capture.block import Block
from zmtpsniff.net.addresses import reverse
from zmtpsniff.net.packets import HeaderDecoder

_SEGMENTS = 100_000  # with octets, of one file
_LEAST = 4  # segments in each direction

_Sightings = dict[tuple[bytes, int, int], int]
"""By direction, sequence number and length: when a file has that segment first."""


def clock_differences(files: Sequence[Iterator[Block]]) -> list[int | None]:
    """By how many nanoseconds the clock of each file is ahead of that of the first.

    The result is None for a file that shares no connection, in both directions, with another file.
    """
    seen = [_sightings(file) for file in files]
    ahead: list[int | None] = [0, *[None] * (len(files) - 1)]
    pairs = {
        (one, other): difference
        for one, other in combinations(range(len(files)), 2)
        if (difference := _difference(seen[one], seen[other])) is not None
    }
    known = [0]
    for place in known:  # which grows
        for (one, other), difference in pairs.items():
            for near, far, sign in ((one, other, 1), (other, one, -1)):
                base = ahead[place]
                if near == place and ahead[far] is None and base is not None:
                    ahead[far] = base + sign * difference
                    known.append(far)
    return ahead


def _sightings(batches: Iterator[Block]) -> _Sightings:
    headers = HeaderDecoder()
    seen: _Sightings = {}
    for block in batches:
        for time_ns, _, key, seq, _, _, payload, _ in headers.segments_of(block, range(1, len(block) + 1)):
            if payload:
                seen.setdefault((key, seq, len(payload)), time_ns)
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
