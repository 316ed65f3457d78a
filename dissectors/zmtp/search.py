"""Finding frames again in one direction of a connection: window by window, and long ones between the windows.

A side that has lost its place in a stream, or never had one, gives all octets to a search until the search has a
`discovery`:

    window ── nothing in as much as is searched at once ──▶ between ── so many octets later ──▶ window
    window ── frames chain for long enough ──▶ discovery          between ── long frames lead here ──▶ discovery
    window ── nothing in all that is searched of a flow that may be anything ──▶ hopeless

In a window every place is tried: :mod:`dissectors.zmtp.resync` weighs the evidence. A frame may be longer than any
window. So the search follows the headers of long frames everywhere (:mod:`dissectors.zmtp.long_frames`). The longer
nothing is found, the more lies between two windows, so that the work stays in proportion to the octets.

Many segments come before frames are certain. A search remembers which octets each segment brought, and when. So the
frames that it finds can be read as if the place in the stream had always been known: each message has the packet that
completed it.
"""

from collections.abc import Callable
from itertools import zip_longest
from typing import Literal, NamedTuple

from msgspec import field

from dissectors.events import UNBOUNDED
from dissectors.snapshots import Live, Part
from dissectors.zmtp import resync, turns
from dissectors.zmtp.buffer import Buffer
from dissectors.zmtp.long_frames import TAIL, LongFrames
from dissectors.zmtp.resync import Discovery

State = Literal["window", "between"]
Judge = Callable[[bytes, Discovery], bool]

_WINDOW_LIMIT = 1 << 17
# So many octets must come before the next attempt. On a connection known to be ZMTP, few frames are enough.
_FEW_OCTETS = 16
_MORE_OCTETS = 64
# While so few segments have come, each may decide by the turns that the sides take.
_MANY_TURNS = 16
# So many octets are searched without a pause. After that, between two windows, only headers of long frames are looked
# for, in so many octets at a time.
_SEARCH_LIMIT = 1 << 20
_BLOCK = 1 << 15
_MOST_BETWEEN = 16 << 20
# The search gives up a flow of unknown protocol after so many octets, unless a header of a long frame leads to a place
# before the second limit.
_GIVE_UP_LIMIT = 64 << 20
_MOST_SEARCHED = 256 << 20
# The most segments whose facts are held. If there are more, two neighbours become one.
_MOST_SEGMENTS = 4096


class Segment(NamedTuple):
    """A segment of which octets are held."""

    place: int  # where it begins, in octets since the search began
    time_ns: int
    packet: int
    begin: int  # where it begins in its sender's stream
    seen: int  # what its sender had seen of the other side


Piece = tuple[bytes, int, int, int, int]
"""Octets of one segment, with its time, packet, beginning in the stream and what its sender had seen."""


def _pair(one: Segment, other: Segment | None) -> Segment:
    """Two neighbours as one: its octets may be as old as those of the first, and known as late as the second."""
    return one if other is None else other._replace(place=one.place, begin=one.begin)


class Search(Part):
    """A search for frames in one direction, after the octets that a buffer holds.

    While the connection is not known to be ZMTP, the search asks a judge whether a chain of frames is ZMTP.
    """

    _buffer: Live[Buffer]
    _judge: Live[Judge]
    framing: int = 0  # of the connection: 1, 2, or 0 if nobody knows
    known: bool = False  # the connection is ZMTP
    named: bool = False  # the user says so
    discovery: Live[Discovery | None] = None  # where frames begin, in the octets given last
    hopeless: Live[bool] = False  # nothing speaks for it that this is ZMTP
    searched: int = 0  # octets searched before those held, or missing there
    missed: int = 0  # those that were missing: they made no work
    # segments in a row whose sender had seen nothing new of the other side, since the search began
    silence: int = 0
    starts: list[int] = field(default_factory=lambda: [0])  # where segments begin in the octets held
    segments: list[Segment] = field(default_factory=list)  # what is known of these segments
    cut: Live[int] = 0  # octets that the snaplen took from the end of those held
    ends: Live[bool] = False  # a gap comes after the octets held
    state: State = "window"
    try_at: int = 0  # the number of octets at which the next attempt is made
    _between: int = 0  # octets until the next window
    long_frames: LongFrames = field(default_factory=LongFrames)

    def begin_with(self, time_ns: int, packet: int, begin: int, seen: int) -> None:
        """Learn to which segment the first octets belong, if nobody knows it; as in :class:`Segment`."""
        if not self.segments:
            self.segments.append(Segment(self.searched, time_ns, packet, begin, seen))

    def segment(self, at: int, time_ns: int, packet: int, begin: int, seen: int) -> None:
        """Learn that a segment begins at offset ``at`` of the octets held; the rest is as in :class:`Segment`."""
        segments = self.segments
        is_silent = bool(segments) and seen == segments[-1].seen != UNBOUNDED
        self.starts.append(at)
        self.silence = self.silence + 1 if is_silent else -UNBOUNDED
        if len(segments) >= _MOST_SEGMENTS:
            self.segments = segments = [_pair(*two) for two in zip_longest(segments[::2], segments[1::2])]
        segments.append(Segment(self.searched + at, time_ns, packet, begin, seen))

    def pieces(self, octets: bytes, at: int) -> list[Piece]:
        """The octets held, ``octets``, from offset ``at`` on, by the segments that brought them."""
        begins = [max(segment.place - self.searched, at) for segment in self.segments]
        ends = [*begins[1:], len(octets)]
        return [
            (octets[begin:end], *segment[1:])
            for segment, begin, end in zip(self.segments, begins, ends, strict=True)
            if begin < end
        ]

    def read(self, data: bytes, position: int) -> int:
        """Search ``data`` from ``position`` on. Returns how many octets are done, or where the `discovery` is."""
        octets = data[position:]
        while True:
            state = self.state
            size = self._window(octets) if state == "window" else self._block(octets)
            if size or self.state == state or self.discovery is not None or self.hopeless:
                return position + size

    def _begin_window(self, try_at: int = 0) -> None:
        self.state = "window"
        self.try_at = try_at
        self._buffer.need = max(try_at, 1)

    def _window(self, window: bytes) -> int:
        """Look for a chain of frames that is certain enough."""
        found = self._by_turns(window, self.framing) if self.known else None
        if found is None:
            if len(window) < self.try_at:
                self._wait()
                return 0
            found = resync.find_frames(window, self.starts, self.framing, self.known, self.cut)
        if found is not None and (self.known or self._judge(window, found)):
            return self._discover(self._by_turns(window, found.framing) or found)
        if self.ends:
            return self._follow(window, len(window))
        if len(window) < _WINDOW_LIMIT:
            more = max(_FEW_OCTETS if self.known else _MORE_OCTETS, len(window) // 2)
            self.try_at = min(len(window) + more, _WINDOW_LIMIT)
            self._wait()
            return 0
        if self._work > _SEARCH_LIMIT:
            if self._is_hopeless():
                self.hopeless = True
            else:
                self._pause()
            return 0
        # Keep the later half: a chain may have begun in it.
        self.try_at = _WINDOW_LIMIT
        return self._follow(window, len(window) // 2)

    @property
    def _is_late(self) -> bool:
        """Whether the octets held are all that is captured of a side, which began before the capture."""
        return not self.searched and not self.segments[0].begin

    def _wait(self) -> None:
        """Wait for the octets of the next attempt; each segment may be the turn that is missing."""
        by_turns = self.known and self._is_late and len(self.starts) < _MANY_TURNS
        self._buffer.need = 1 if by_turns else self.try_at

    def _by_turns(self, window: bytes, framing: int) -> Discovery | None:
        """The frames of a side that takes turns with the other one; the connection is ZMTP."""
        if not self._is_late:
            return None
        return turns.find(window, self.starts, [segment.seen for segment in self.segments], framing, self.named)

    @property
    def _work(self) -> int:
        """The number of octets that have been searched."""
        return self.searched - self.missed

    def _is_hopeless(self) -> bool:
        if self.known or self._work <= _GIVE_UP_LIMIT:
            return False
        return not self.long_frames.leads_before(_MOST_SEARCHED)

    def _pause(self) -> None:
        """The longer nothing is found, the more lies between two windows."""
        if self.known:
            self._between = min(self._work // 4, _MOST_BETWEEN)
        else:
            self._between = min(self._work, max(_GIVE_UP_LIMIT - self._work, _MOST_BETWEEN))
        self.try_at = _BLOCK
        self.state = "between"

    def _block(self, block: bytes) -> int:
        """Search a block between two windows, only for long frames. Returns the number of octets that are done."""
        if len(block) < self.try_at:
            self._buffer.need = self.try_at
            return 0
        self.try_at = self._buffer.need = _BLOCK
        reached = self._follow(block, len(block) if self.ends else max(len(block) - TAIL, 0))
        if self.discovery is None:
            self._between -= reached
            if self._between <= 0:
                # One attempt is enough if the octets are most likely another protocol.
                self._begin_window(0 if self.known else _WINDOW_LIMIT)
        return reached

    def _follow(self, block: bytes, size: int) -> int:
        """Follow long frames through ``size`` octets. Returns how many octets are done."""
        found = self.long_frames.take(block, size, self.starts, self.framing, self.known)
        if found is not None:
            return self._discover(found)
        self.searched += size
        self.starts = [start - size for start in self.starts if start >= size]
        self._forget_segments(len(block) - size)
        return size

    def _forget_segments(self, held: int) -> None:
        """Only ``held`` octets are still there."""
        segments = self.segments
        if not held:
            segments.clear()
        elif len(segments) > 1 and segments[1].place <= self.searched:
            gone = sum(segment.place <= self.searched for segment in segments) - 1
            del segments[:gone]

    def _discover(self, found: Discovery) -> int:
        self.discovery = found
        return found.offset

    def skip(self, length: int | None) -> None:
        """Pass over ``length`` missing octets (None: nobody knows how many). All octets before them, also those held,
        have been searched.
        """
        if length is None:
            self.long_frames.trails = {}
            length = 0
        done = self._buffer.held + length
        self._buffer.clear()
        self.searched += done
        self.missed += length
        self.long_frames.skip(done)
        self.starts = [0]
        self.segments.clear()
        paused = self.state == "between"
        self._begin_window()
        if self.known and self._work > _WINDOW_LIMIT:
            # Between many holes no window grows, so there is a pause after each hole instead.
            if paused:
                self.try_at = _BLOCK
                self.state = "between"
            else:
                self._pause()
