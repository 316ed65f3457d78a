"""Decides whether a connection is ZMTP if the capture lacks its beginning.

A chain of frames does not prove it. Other protocols, such as DNS over TCP, put a length of two octets before each
message. That looks like a short frame of ZMTP 2.0 or later whose flags are zero. Four things tell the two apart:

- Flags. After a frame with MORE, a long frame or a command, a length of two octets would lead to another place. If the
  next frame is there all the same, that may be an accident, but not many times.
- Segments. Most segments end where a message does. If lengths of two octets lead past the ends of segments, they are
  no lengths.
- The other side. A push or a publication gets no answer, but a question does. So a side that talks alone
  is believed if the capture has packets of the other side, and no octets in them. Without these packets nothing is
  known: acknowledgments that stand still for a while have come before a rare answer, too.
- Contents. Commands have names, publishers send the topics of subscriptions, and DNS has a form of its own.

If both sides send only flags of zero, nothing tells the two apart. A frame of ZMTP 1.0 is a length of one octet and,
nearly always, a zero or a one. Two things tell it from others: long frames, and segments that never end where more
frames have to follow.
"""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from msgspec import field

from dissectors.events import Side, printable
from dissectors.snapshots import Part
from dissectors.zmtp import frame_headers, resync, wire
from dissectors.zmtp.half import Half

_PROOF_BITS = 24.0
# libzmq 2.1 has these bits in the flags of every frame.
_FLAGS_OF_2_1 = b"\x7e\x7f"
_FLAGS_OF_2_1_BITS = 7.0
_MOST_FRAMES = 4096  # that are looked at at once
# So many frames of a side that talks alone are enough to believe it; so many are enough to judge a flow before its end.
_FEW_FRAMES = 4
_MANY_FRAMES = 64
# A side with fewer octets may be anything.
_FEW_OCTETS = 64
# If more than this part of the messages is empty, the frames are lengths of four octets.
_MOST_EMPTY = 0.25
# If more than this part of the segments ends where frames must follow, it is another protocol.
_MOST_TORN = 0.2
# A topic of so many octets begins a message by no accident; and the least messages for each subscription.
_TOPIC_OCTETS = 3
_MESSAGES_EACH = 8
# From so many places longer messages are looked for, up to so many octets: random octets seem to be a long length.
_MOST_STARTS = 8
_LONG_LIMIT = 4095

# RFC 1035, section 4.1
_DNS_HEADER = 12
_DNS_OPCODES = frozenset({0, 4, 5})
_LONGEST_LABEL = 63


class Likeness(NamedTuple):
    """The features of a chain of frames that tell ZMTP from other protocols."""

    frames: int
    proof: float  # bits that they are frames and not what follows lengths of one or two octets
    is_other: bool  # another protocol explains them better, if there is no proof


# The other side is silent if so many segments in a row have seen nothing new of it, or so many at the end.
_QUIET = 20
_QUIET_AT_END = 2


class MidStream(Part, gc=False):
    """Evidence for ZMTP in a connection whose beginning is not in the capture."""

    # Frames of a side that may be ZMTP as well as something else.
    ambiguous: dict[Side, int] = field(default_factory=dict)

    def believes(self, one: Half, other: Half, octets: bytes, found: resync.Discovery, is_over: bool) -> bool:
        """Whether ``octets`` of ``one``, in which the search has ``found`` a chain of frames, are ZMTP.

        ``is_over`` says that no more octets will come.
        """
        search = one.search
        assert search is not None
        chain = _Chain(octets, search.starts, found, search.cut)
        likeness = chain.likeness()
        self.ambiguous.pop(one.side, None)
        if likeness.proof >= _PROOF_BITS:
            return True
        if likeness.is_other:
            return False
        # Whether the other side has certainly sent nothing since the first captured packet of this side.
        is_quiet = not other.buffer.octets and search.silence >= (_QUIET_AT_END if is_over else _QUIET)
        if other.buffer.octets:
            starts = [] if other.search is None else other.search.starts
            if chain.is_subscribed_by(other.buffer.content, starts):
                return True
        elif not other.is_absent:
            if not (is_quiet or is_over):
                return False  # it will soon be known
            if likeness.frames >= _FEW_FRAMES:
                return True
        self.ambiguous[one.side] = likeness.frames
        return False

    def remains_open(self, sides: Iterable[Half], is_over: bool) -> bool:
        """Whether both sides may speak ZMTP, and have sent so much that more will hardly decide."""
        least = _FEW_FRAMES if is_over else _MANY_FRAMES
        some = [one for one in sides if one.buffer.octets >= _FEW_OCTETS]
        return bool(some) and all(self.ambiguous.get(one.side, 0) >= least for one in some)


class _Chain:
    """Frames that chain to the end of a window."""

    def __init__(self, octets: bytes, starts: list[int], found: resync.Discovery, cut: int) -> None:
        """Follow the frames that ``found`` says."""
        self._octets = octets
        self._starts = starts
        self._framing = found.framing
        self._offset = found.offset
        window = resync.Window(octets, starts, found.framing, cut)
        self._frames = window.frames(found.offset, _MOST_FRAMES)
        end = self._frames[-1].following
        self._boundaries = {place for place in window.boundaries if found.offset < place <= end}
        # Segments that end with a message, and segments that end where more frames of a message must follow.
        self._whole = sorted(frame.following for frame in self._frames if not frame.more and self._is_boundary(frame))
        self._torn = sum(frame.more and self._is_boundary(frame) for frame in self._frames)
        # Bits of evidence in a frame that follows where a length of another kind would lead elsewhere. For messages of
        # that other kind it takes two accidents: a frame is there, and it leads to where those messages go on.
        surprise = window.surprise + window.gain(self._frames)
        self._worth = surprise + min(math.log2((end - self._offset) / len(self._frames)), 2 * surprise)

    def _is_boundary(self, frame: resync.Frame) -> bool:
        return frame.following in self._boundaries

    def likeness(self) -> Likeness:
        """The likeness of the frames of this chain."""
        if self._framing == 1:
            return Likeness(len(self._frames), self._proof_v1(), self._torn > _MOST_TORN * len(self._boundaries))
        return Likeness(len(self._frames), self._proof_v2(), self._is_other_v2())

    # ------------------------------------------------------------------ ZMTP 2.0 and later

    def _proof_v2(self) -> float:
        octets = self._octets
        if all(frame.more for frame in self._frames):
            return 0.0  # no message ever ends: the same type in front of each length
        aligned = 2 * len(self._whole) >= len(self._boundaries)
        bits = resync.MARK_BITS if any(map(self._is_marked, self._frames)) else 0.0
        ends = iter(self._whole)
        end = next(ends, None)
        seen: set[bytes] = set()
        for frame, following in pairwise(self._frames):
            flags = octets[frame.place]
            if not flags or (flags & wire.COMMAND and not self._is_marked(frame)):
                continue
            while end is not None and end <= frame.place:
                end = next(ends, None)
            elsewhere = frame.place + 2 + int.from_bytes(octets[frame.place : frame.place + 2], "big")
            if aligned and end is not None and end < elsewhere:
                bits += max(self._worth, _bits_of_end(end - frame.place))
                continue
            # Messages that are all alike may have the same accident in all of them.
            headers = octets[frame.place : frame.begin] + octets[following.place : following.begin]
            if headers not in seen:
                seen.add(headers)
                exact = flags & wire.LONG and self._is_boundary(frame)
                bits += max(self._worth, _bits_of_end(following.place - frame.place) if exact else 0.0)
        return bits

    def _is_marked(self, frame: resync.Frame) -> bool:
        """Whether a frame is a command that is known by its name, or a MESSAGE of CURVE."""
        if self._octets[frame.place] & wire.COMMAND:
            return self._octets.startswith(resync.MARKS, frame.begin)
        length = frame.following - frame.begin
        return length >= wire.CURVE_MESSAGE_LEAST and self._octets.startswith(wire.CURVE_MESSAGE, frame.begin)

    def _is_other_v2(self) -> bool:
        count = len(self._frames)
        empty = sum(frame.begin == frame.following and not frame.more for frame in self._frames)
        if empty > _MOST_EMPTY * count:
            return True
        if 2 * sum(map(self._is_dns, self._frames)) >= count:
            return True
        return any(self._has_longer(start) for start in self._starts[:_MOST_STARTS] if start < self._offset)

    def _is_dns(self, frame: resync.Frame) -> bool:
        """Whether a body is a query of DNS, or an answer (RFC 1035, section 4.1)."""
        body = self._octets[frame.begin : frame.following]
        if len(body) <= _DNS_HEADER or body[2] >> 3 & 15 not in _DNS_OPCODES or body[3] & 0x40:
            return False
        if body[4:6] != b"\0\1" or body[6] or body[8] or body[10]:
            return False
        at = _DNS_HEADER
        while at < len(body) and 0 < body[at] <= _LONGEST_LABEL:
            at += 1 + body[at]
        return body[at : at + 1] == b"\0" and body[at + 3 : at + 4] in (b"\0", b"\x80")

    def _has_longer(self, start: int) -> bool:
        """Whether messages behind lengths of two octets lead from a place to the chain, with one over 255 octets."""
        octets, offset = self._octets, self._offset
        place, count, longer = start, 0, False
        while place < offset:
            length = int.from_bytes(octets[place : place + 2], "big")
            if length > _LONG_LIMIT:
                return False
            longer = longer or length > wire.SHORT_LIMIT
            place += 2 + length
            count += 1
        exact = count > 1 or place in self._starts
        return longer and exact and any(frame.place == place for frame in self._frames)

    def is_subscribed_by(self, octets: bytes, starts: list[int]) -> bool:
        """Whether the octets of the other side are only subscriptions, and this side publishes their topics.

        ``starts`` are offsets at which its segments begin. The first segment may be a part of a subscription.
        """
        if self._framing == 1:
            return False
        topics = next(filter(None, (_topics(octets[start:]) for start in starts[:2])), [])
        begin = [self._frames[0], *(frame for before, frame in pairwise(self._frames) if not before.more)]
        if topics and len(begin) >= _MESSAGES_EACH * len(topics):
            return True
        long = tuple(topic for topic in topics if len(topic) >= _TOPIC_OCTETS)
        return bool(long) and sum(self._octets.startswith(long, frame.begin) for frame in begin) > 1

    # ------------------------------------------------------------------ ZMTP 1.0

    def _proof_v1(self) -> float:
        octets = self._octets
        bits = 0.0
        seen: set[bytes] = set()
        for frame, following in pairwise(self._frames):
            headers = octets[frame.place : frame.begin] + octets[following.place : following.begin]
            if octets[frame.place] == wire.LENGTH_ESCAPE_V1 and headers not in seen:
                seen.add(headers)
                bits += self._worth
        count = len(self._frames)
        last = sum(not frame.more for frame in self._frames)
        if last and not self._torn:
            bits += len(self._whole) * math.log2(count / last)
        if count >= _FEW_FRAMES and all(octets[frame.begin - 1] in _FLAGS_OF_2_1 for frame in self._frames):
            bits += _FLAGS_OF_2_1_BITS
        return bits


def _bits_of_end(octets: int) -> float:
    """The evidence of a segment that ends exactly where so many octets do."""
    return min(math.log2(octets), resync.MOST_ALIGNED_BITS)


def _topics(octets: bytes) -> list[bytes]:
    """The topics in ``octets``, if the octets are only subscriptions and cancellations of readable topics."""
    topics = []
    place = 0
    while place < len(octets):
        header = frame_headers.read_v2(octets, place)
        if isinstance(header, int):
            break
        flags, begin, length = header
        if flags or not length or octets[begin : begin + 1] not in (b"\0", b"\1"):
            break
        place = begin + length
        topics.append(octets[begin + 1 : place])
    readable = all(printable(topic) is not None for topic in topics)
    return topics if place == len(octets) and readable else []
