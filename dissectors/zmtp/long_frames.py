"""Finds frames that are longer than the window of a search, by the headers of long frames.

A header says where the next frame begins. So for a frame of 40 MiB it is enough to remember that place. When the
stream reaches the place, there is no frame, or the evidence grows. The stream shows how much a header is worth: the
fewer of its octets look like a header, the less likely one leads to another by chance.
"""

import math
import re
from typing import NamedTuple

from msgspec import field

from dissectors.snapshots import Part
from dissectors.zmtp import resync, wire

# A header has so many octets, and a command's name after it has a few more.
TAIL = 32
# The first four octets of a plausible length; and the beginnings of headers of long frames whose length needs a long
# frame.
_ZEROS = bytes(4)
_LONG_V1 = rb"\xff\0{4}(?!\0{3}[^\xff])"
_LONG_V2 = rb"[\x02\x03\x06]\0{4}(?!\0{3})"
_LEADS = {
    0: (b"\x02\x03\x06\xff", re.compile(_LONG_V2 + b"|" + _LONG_V1)),
    1: (b"\xff", re.compile(_LONG_V1)),
    2: (b"\x02\x03\x06", re.compile(_LONG_V2)),
}
# If octets look like headers more often than once in so many, one header proves nothing, and costs time.
_DENSE_OCTETS = 512
_MOST_TRAILS = 64
# The most evidence that one long header gives by leading to another.
_MOST_LINK_BITS = 24.0
# Short frames prove nothing here: in tables of small numbers long chains of them come by chance. At most so many may
# lie between two long frames.
_MOST_SHORT = 32
# Bits of evidence that a chain needs: on a connection known to be ZMTP, and on one of which nothing is known.
_KNOWN_BITS = 24.0
_UNKNOWN_BITS = 32.0
# A chain that begins with a false frame may meet a true one, but not after so many frames.
_LINKS_NOT_TRUSTED = 2


class Trail(NamedTuple):
    """Frames that have led to a place further on."""

    long: int  # headers of long frames among them
    links: int  # frames of any length
    bits: float  # of evidence, if one of them has led to where a segment begins


class LongFrames(Part, gc=False):
    """The headers of long frames in a stream that is searched, and the places to which they lead."""

    octets: int = 0  # of the stream so far
    seen: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0})  # headers by framing, true and false
    trails: dict[tuple[int, int], Trail] = field(default_factory=dict)  # by place and framing

    def skip(self, length: int) -> None:
        """Pass over ``length`` missing octets, and over all frames that begin there."""
        self.octets += length
        self.trails = {key: trail for key, trail in self.trails.items() if key[0] >= self.octets}

    def leads_before(self, place: int) -> bool:
        """Whether a header leads to a place ahead, less than ``place`` octets from the start."""
        return any(octets < place for octets, _ in self.trails)

    def take(self, data: bytes, size: int, starts: list[int], framing: int, known: bool) -> resync.Discovery | None:
        """Follow frames that begin in the next ``size`` octets of the stream. Returns the discovery if it is certain.

        ``data`` holds these octets, and up to ``TAIL`` octets after them, which are read for headers and will come
        again. ``starts`` are the offsets in it at which TCP segments begin; ``framing`` and ``known`` are as in
        ``find_frames``.
        """
        base = self.octets
        self.octets += size
        self._note(data, size, base, framing)
        while self.trails:
            place, kind = min(self.trails)
            if place >= self.octets:
                break
            found = self._follow(data, place - base, size, kind, starts, known)
            if found is not None:
                return found
        return None

    def _note(self, data: bytes, size: int, base: int, framing: int) -> None:
        """Remember the places to which the headers of long frames that begin here lead."""
        kinds = [kind for kind in ((framing,) if framing else (1, 2)) if not self._looks_like_headers(kind)]
        if not kinds:
            return
        leads, pattern = _LEADS[kinds[0] if len(kinds) == 1 else 0]
        end = size + len(_ZEROS)
        if data.find(_ZEROS, 1, end) < 0 or all(data.find(lead, 0, size) < 0 for lead in leads):
            return
        noted: list[tuple[int, int]] = []
        for match in pattern.finditer(data, 0, end):
            at = match.start()
            kind = 1 if data[at] == wire.LENGTH_ESCAPE_V1 else 2
            header = resync.read_header(data, at, kind)
            if header is not None:
                self.seen[kind] += 1
                noted.append((base + header[1], kind))
                if len(noted) > size // _DENSE_OCTETS:
                    return
        for key in noted:
            self._add(key, Trail(1, 1, 0.0))

    def _looks_like_headers(self, framing: int) -> bool:
        """Whether headers are so frequent that one leading to another proves nothing."""
        return self.seen[framing] ** 2 > self.octets

    def _add(self, key: tuple[int, int], trail: Trail) -> None:
        """Remember the place where a trail leads."""
        if key in self.trails:
            trail = max(trail, self.trails[key])
        elif len(self.trails) >= _MOST_TRAILS:
            # The one that leads farthest is the least likely to be of use.
            last = max(self.trails)
            if last < key:
                return
            del self.trails[last]
        self.trails[key] = trail

    def _follow(
        self, data: bytes, first: int, size: int, framing: int, starts: list[int], known: bool
    ) -> resync.Discovery | None:
        """Follow the frames from offset ``first`` of ``data`` on, as long as they begin in ``size`` octets."""
        base = self.octets - size
        trail = self.trails.pop((base + first, framing))
        least = _KNOWN_BITS if known else _UNKNOWN_BITS
        long, links, bits = trail
        if first in starts:
            bits = max(bits, min(math.log2(len(data) / len(starts)), resync.MOST_ALIGNED_BITS))
        at, short = first, 0
        begins = None
        doubtful = 0
        while at < size:
            header = resync.read_header(data, at, framing)
            if header is None:
                return None
            start, stop, _ = header
            if start - at > 2:
                long += 1
                short = 0
            else:
                short += 1
            evidence = bits + self._bits_of_links(long, framing)
            if begins is None and (evidence >= least or links >= _LINKS_NOT_TRUSTED):
                begins = at
            if begins is not None:
                doubtful += 1
                if evidence >= least:
                    # A false header may lead to true short frames, but only if there are headers beside those of this
                    # chain.
                    return resync.Discovery(begins, framing, evidence, doubtful if self.seen[framing] > long else 1)
            if short > _MOST_SHORT:
                return None
            links += 1
            at = stop
        self._add((base + at, framing), Trail(long, links, bits))
        return None

    def _bits_of_links(self, long: int, framing: int) -> float:
        """The bits of evidence if ``long`` headers of long frames lead to each other, among all headers seen.

        False headers come in clusters: where some are, there are more. So the other headers count twice.
        """
        others = math.log2(max(self.seen[framing] - long, 0) + 1)
        each = max(min(math.log2(self.octets) - 2 * others, _MOST_LINK_BITS), 0.0)
        return (long - 1) * each - others if long > 1 else -math.inf
