"""By how much the clocks of capture files differ, told from connections that two of them saw.

Theory
------

Two hosts record the same segment. The clock of the second one is ahead by *s*, and the way between them takes *w*. So
what goes from the first to the second seems to take ``w + s``, and what comes back ``w - s``. Half of the difference is
*s*, if the ways there and back are about the same. The median of many segments leaves out those that had to wait.
Segments without octets count, too: a side that only receives sends no others.
NAT may have changed their addresses on the way (:mod:`~zmtpsniff.net.views`).

Files that have no connection in common with the first one are compared with others that do; the differences add up.

A clock that is too fast delays segments in both directions more and more. A delay that one direction has more of is a
queue.

Files that one host recorded one after the other have one clock. In these, all segments have that host at one end.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from statistics import median
from typing import NamedTuple

from dissectors.address import host_of
from zmtpsniff.capture.block import Block
from zmtpsniff.net.addresses import addresses, reverse
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import Segment
from zmtpsniff.net.views import Translations, ViewCollection

_SEGMENTS = 100_000  # of one file
_MOST_SEGMENTS = 500_000  # of all files
_LEAST = 4  # segments in each direction
_HARDLY_NS = 100_000
_MOST_DRIFT = 0.001  # no clock is worse

_Sightings = dict[tuple[bytes, int, int, int], int]
"""By direction, sequence number, acknowledgment number and length: when a file has that segment first."""
_Late = tuple[int, int]
"""When a file has a segment, and how much later another file has it."""


class ClockDifference(NamedTuple):
    """By how much the clock of a file is ahead of that of another one."""

    other: int  # the place of that file; of one without such a file: its own
    ahead_ns: int
    drift: float  # what it gains since then in a nanosecond
    since_ns: int

    def right(self, time_ns: int) -> int:
        """A time of this clock by the other one."""
        return time_ns - self.ahead_ns - round(self.drift * (time_ns - self.since_ns))


class FileComparison(NamedTuple):
    """How capture files of the same time differ."""

    clocks: list[ClockDifference]
    """By how much the clock of each file is ahead of that of the first file to which it can be compared.

    The two share a connection in both directions, or each of them does with others that do.
    """
    translations: Translations
    """Which connections they have with different addresses."""


def compare(files: Sequence[Iterator[Block]]) -> FileComparison:
    """Compare the beginnings of capture files, whose packets these are."""
    views, seen = ViewCollection(), [_Sightings() for _ in files]
    since_ns = None
    for place, segments in _beginnings(files):
        if since_ns is None and segments:
            since_ns = segments[0][0]
        views.take(segments, place)
        sightings = seen[place]
        for time_ns, _, key, seq, ack, _, payload, _ in segments:
            sightings.setdefault((key, seq, ack, len(payload)), time_ns)
    translations = views.translations()
    if translations.aliases:
        seen = [_translated(one, translations) for one in seen]
    return FileComparison(_differences(seen, since_ns or 0), translations)


def translations_of(files: Sequence[Iterator[Block]]) -> Translations:
    """Which connections the beginnings of capture files have with different addresses."""
    views = ViewCollection()
    for place, segments in _beginnings(files):
        views.take(segments, place)
    return views.translations()


def _beginnings(files: Sequence[Iterator[Block]]) -> Iterator[tuple[int, list[Segment]]]:
    """The first segments of all files, with the place of each file; those of no file if one host recorded them all."""
    segments = [_segments(file) for file in files]
    beginnings = [next(blocks, []) for blocks in segments]
    hosts = {_hosts(block) for block in beginnings}
    if len(hosts) == 1 and len(min(hosts)) == 1:
        return
    most = min(_SEGMENTS, _MOST_SEGMENTS // len(files))
    for place, (first, blocks) in enumerate(zip(beginnings, segments, strict=True)):
        count = 0
        for block in chain([first], blocks):
            yield place, block
            count += len(block)
            if count >= most:
                break


def _differences(seen: Sequence[_Sightings], since_ns: int) -> list[ClockDifference]:
    """By how much the clocks of files differ that have these segments."""
    if not any(seen):
        return [ClockDifference(0, 0, 0, 0)] * len(seen)
    differences: defaultdict[int, dict[int, tuple[int, float]]] = defaultdict(dict)
    for one, other in combinations(range(len(seen)), 2):
        if (difference := _difference(seen[one], seen[other], since_ns)) is not None:
            ahead_ns, drift = difference
            differences[one][other], differences[other][one] = difference, (-ahead_ns, -drift)
    found: dict[int, ClockDifference] = {}
    for first in range(len(seen)):
        found.setdefault(first, ClockDifference(first, 0, 0, since_ns))
        for near in (known := [first]):  # which grows
            for far, (ahead_ns, drift) in differences[near].items():
                if far not in found:
                    base = found[near]
                    found[far] = base._replace(ahead_ns=base.ahead_ns + ahead_ns, drift=base.drift + drift)
                    known.append(far)
    return [found[place] for place in range(len(seen))]


def _segments(file: Iterator[Block]) -> Iterator[list[Segment]]:
    headers = HeaderDecoder()
    return (headers.segments_of(block, range(1, len(block) + 1)) for block in file)


def _hosts(segments: Sequence[Segment]) -> frozenset[str]:
    """The hosts that are an end of each segment."""
    ends = [{host_of(end.text) for end in addresses(key)} for key in {segment[2] for segment in segments}]
    return frozenset(set.intersection(*ends)) if ends else frozenset()


def _translated(seen: _Sightings, translations: Translations) -> _Sightings:
    """The same segments, with the addresses that their connections have everywhere."""
    aliases = translations.aliases
    found: _Sightings = {}
    for (key, *numbers), time_ns in seen.items():
        same = {alias.key for alias in aliases.get(key, ())}
        found.setdefault((same.pop() if len(same) == 1 else key, *numbers), time_ns)  # type: ignore[arg-type]
    return found


def _difference(one: _Sightings, other: _Sightings, since_ns: int) -> tuple[int, float] | None:
    """By how much the clock of the other file is ahead at a time, and how much it gains in a nanosecond."""
    took: defaultdict[bytes, list[_Late]] = defaultdict(list)
    for segment in one.keys() & other.keys():
        took[segment[0]].append((one[segment], other[segment] - one[segment]))
    both = [
        (sorted(times), sorted(back))
        for key, times in took.items()
        if len(times) >= _LEAST and len(back := took.get(reverse(key), [])) >= _LEAST
    ]
    if not both:
        return None
    drift = _drift(*max(both, key=lambda ways: min(way[-1][0] - way[0][0] for way in ways)))
    found = [
        sum(median(late_ns - drift * (time_ns - since_ns) for time_ns, late_ns in way) for way in ways) / 2
        for ways in both
    ]
    return round(median(found)), drift


def _drift(there: Sequence[_Late], back: Sequence[_Late]) -> float:
    """How much later segments come with each nanosecond, in both directions; 0 if that hardly matters."""
    slopes = []
    for way in (there, back):
        part = len(way) // 3
        (begun_ns, first_ns), (ended_ns, last_ns) = (
            map(median, zip(*points, strict=True)) for points in (way[: part + 1], way[-part - 1 :])
        )
        gained_ns = last_ns - first_ns
        slopes.append(gained_ns / (ended_ns - begun_ns) if ended_ns > begun_ns and abs(gained_ns) > _HARDLY_NS else 0)
    least = min(slopes, key=abs)  # a queue that grows delays one of them only
    return least if slopes[0] * slopes[1] > 0 and abs(least) <= _MOST_DRIFT else 0
