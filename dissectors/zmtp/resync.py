"""Finds frames in the middle of a stream.

A frame says how long it is, so frames form chains: where one ends, the next must begin, with legal flags. A chain
that is long enough is no accident. How long that is depends on how often a legal flags octet comes by chance in these
octets: hardly ever in text, all the time in small binary numbers. So each frame counts for as many bits as its flags
octet is surprising.

Where legal flags are rare, the search follows all of them, from the end of the window to its beginning, so it reads
no frame twice. Where they are frequent, each proves little, and it would take long to follow them all. But a chain
needs many frames there to be believed, so it begins early in the window, or where a segment begins. The search
follows only chains from such places, and only so many frames that it takes about as long as in any other octets.
"""

import itertools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from dissectors.zmtp import frame_headers, wire

_FLAGS_V2 = b"\x00\x01\x02\x03\x04\x06"
_FLAGS_V1 = b"\x00\x01\x7e\x7f"
# The flags of short frames, which continue false chains: the length of a long frame is never plausible by chance.
_SHORT_FLAGS_V2 = b"\x00\x01\x04"
_MARKED_V2 = bytes(octet in _FLAGS_V2 for octet in range(256))  # translates flags to 1 and other octets to 0
# A length of 1 or of 9 octets in front of flags.
_LENGTH_V1 = re.compile(rb"[\x01-\xfe](?=[\x00\x01\x7e\x7f])|\xff(?=.{8}[\x00\x01\x7e\x7f])", re.DOTALL)

# Bits of evidence that a chain needs: one that starts where a segment does, on a connection known to be ZMTP, then on
# an unknown connection; and one that starts anywhere.
_KNOWN_BITS = 10.0
_UNKNOWN_BITS = 32.0
_ANYWHERE_BITS = 40.0
# A chain with fewer bits is no reason to doubt another one.
_DOUBT_BITS = 16.0
# A chain of false frames may lead to a true frame in the middle of a message. So many bits, with those for meeting
# exactly that place, exclude this.
_SURE_BITS = 18.0
# Frames that begin between segments are believed with so much evidence before them.
_BEFORE_BITS = 10.0
# If more than this part of the octets could be flags, flags prove nothing; only frames that end where segments end do.
# False chains go on there until they meet a true frame, so a meeting is worth nothing.
_DENSE = 0.4
_DENSE_BITS = 18.0
# The search follows all places if there are at most `_FEW`, and one more in so many octets. Otherwise it follows
# `_FEW_FRAMES` frames, and one more in so many octets.
_FEW = 48
_OCTETS_A_PLACE = 22
_OCTETS_A_FRAME = 64
_FEW_FRAMES = 192
# A chain that was not followed to its end needs so many more bits.
_CUT_BITS = -30.0
# A message that ends exactly where a segment does: by chance that is as rare as its frame is long.
MOST_ALIGNED_BITS = 12.0
# Contents that only ZMTP has
MARK_BITS = 40.0
MARKS = (
    wire.CURVE_MESSAGE,
    *(b"\x04PING", b"\x04PONG", b"\x09SUBSCRIBE", b"\x06CANCEL", b"\x04JOIN", b"\x05LEAVE"),
    *wire.HANDSHAKE,
)
# A frame that is empty and ends a message is rare in ZMTP, but the 4-octet lengths of other protocols look so. So many
# in a row are zeros of something else.
_EMPTY_BITS = -10.0
_MOST_EMPTY = 16
_TOO_MANY_EMPTY = bytes(2 * (_MOST_EMPTY + 2))
_OTHER_THAN_ZERO = re.compile(rb"[^\0]")
# The first octets of a long length are zero. That is worth as much as zeros are rare, but at most:
_MOST_LONG_BITS = 24.0
_LONG_HEADER_V1 = 10  # octets, with the flags
# The longer a frame, the rarer it is. From 64 KiB on, a frame of twice the length counts for one bit less.
_USUAL_LENGTH_BITS = 16
# The 4-octet lengths of other protocols look like frames of ZMTP 1.0 that end so.
_ZEROS = b"\0\0\0"


class Discovery(NamedTuple):
    """The place where frames begin, and the evidence for it."""

    offset: int
    framing: int  # 1: ZMTP 1.0, 2: ZMTP 2.0 and later
    bits: float
    doubtful: int  # messages that begin in so many frames may lack their first frames, or be none at all


class Frame(NamedTuple):
    """A frame of a chain."""

    place: int  # where it begins
    begin: int  # of its body
    following: int  # where it ends and the next frame begins
    more: bool


class Link(NamedTuple):
    """A frame of a chain that leads to the end of the window, with the evidence for it."""

    frame: Frame
    own: float  # bits of this frame
    bits: float  # of the chain from here


def find_frames(octets: bytes, starts: list[int], framing: int, known: bool, cut: int = 0) -> Discovery | None:
    """Find the place where frames begin in ``octets``, or None if no place is certain enough.

    ``starts`` are offsets at which TCP segments begin, where a frame begins more often than elsewhere; ``framing``
    is that of the connection, 0 if unknown; ``known`` says whether the connection is known to be ZMTP; ``cut`` is the
    number of octets that the snaplen took from the end of the last segment.
    """
    if not octets:
        return None
    best: Discovery | None = None
    windows = [Window(octets, starts, candidate, cut) for candidate in ((framing,) if framing else (2, 1))]
    for window in windows:
        found = window.find(known)
        if found and (best is None or found.bits > best.bits):
            best = found
    if best is not None and any(window.most_bits >= best.bits for window in windows if window.framing != best.framing):
        return None  # as much speaks for frames of the other kind, only not yet enough
    return best


class Window:
    """A part of a stream, and the evidence that a frame is among its octets."""

    def __init__(self, octets: bytes, starts: list[int], framing: int, cut: int = 0) -> None:
        """Look at ``octets``, one at least; the rest is as in :func:`find_frames`."""
        self.octets = octets
        self.end = len(octets)
        self.starts = starts
        self.framing = framing
        self.boundaries = {*starts, self.end + cut}
        self._flags = _FLAGS_V2 if framing == 2 else _FLAGS_V1
        self._short_flags = _SHORT_FLAGS_V2 if framing == 2 else _FLAGS_V1
        self._header = _header_v2 if framing == 2 else _header_v1
        self._places_count = _count(octets, self._flags)
        self._short_count = _count(octets, self._short_flags)
        chance = max(self._short_count, 1) / self.end
        self._dense = chance > _DENSE
        self.surprise = 0.0 if self._dense else -math.log2(chance)  # bits of a flags octet
        # Long frames are judged by their own flags: flags of short frames may be everywhere, as among zeros, and those
        # of long frames rare.
        long_flags = bytes(set(self._flags) - set(self._short_flags)) or bytes([wire.LENGTH_ESCAPE_V1])
        self._long_surprise = max(self.surprise, -math.log2(max(_count(octets, long_flags), 1) / self.end))
        self.most_bits = 0.0  # of any chain that was found
        self._zero = -math.log2(octets.count(0) / self.end) if 0 in octets else _MOST_LONG_BITS

    def find(self, known: bool) -> Discovery | None:
        """The place where frames begin, None if no place is certain enough."""
        links = self._chains()
        self.most_bits = max((link.bits for link in links.values()), default=0.0)
        least = _UNKNOWN_BITS
        if known:
            # False frames of ZMTP 1.0 go unnoticed, as all octets but zero are lengths there.
            least = _DENSE_BITS if self._dense else _DOUBT_BITS if self.framing == 1 else _KNOWN_BITS
        starts = [start for start in self.starts if start in links and links[start].bits >= least]
        start = self._first_without_rival(links, starts) if starts else self.end
        begin = self._meeting(links, start)
        return self._found(links, begin) if begin < self.end else None

    def _first_without_rival(self, links: dict[int, Link], starts: list[int]) -> int:
        """The first of ``starts`` that no chain with more evidence contradicts; else the window's end.

        Such a chain begins inside a body, and never meets a frame of the chain from the start.
        """
        lasts: dict[int, int] = {}  # the last frame of the chain from each place
        most: dict[int, float] = {}  # the most bits of a chain to each last frame
        for place in sorted(links, reverse=True):
            link = links[place]
            last = lasts[place] = lasts.get(link.frame.following, place)
            most[last] = max(most.get(last, link.bits), link.bits)
        bits, last = max((bits, last) for last, bits in most.items())
        return next((start for start in starts if lasts[start] == last or links[start].bits >= bits), self.end)

    def frames(self, place: int, most: int) -> list[Frame]:
        """The frames that chain from ``place`` on, at most ``most``, as long as they begin in the window."""
        frames: list[Frame] = []
        while not self._is_last(place) and len(frames) < most:
            header = self._read(place)
            if header is None:
                break
            frames.append(Frame(place, *header))
            place = header[1]
        return frames

    def gain(self, frames: list[Frame]) -> float:
        """The bits that a frame is worth more once the headers of a chain are known.

        Among text, only headers look like flags. So no frame in a body can lead to another one.
        """
        if self._dense:
            return 0.0
        headers = b"".join(self.octets[frame.place : frame.begin] for frame in frames)
        others = self._short_count - _count(headers, self._short_flags)
        return max(math.log2(self.end / (others + 1)) - self.surprise, 0.0)

    # ------------------------------------------------------------------ chains

    def _chains(self) -> dict[int, Link]:
        """The frames that chain to the end of the window, by their places."""
        if not self._places_count:
            return {}
        if self._places_count > _FEW + self.end // _OCTETS_A_PLACE:
            return self._some_chains()
        return self._all_chains()

    def _all_chains(self) -> dict[int, Link]:
        """Read a frame at every place, the last place first."""
        octets, end, framing = self.octets, self.end, self.framing
        links: dict[int, Link] = {}
        for place in reversed(list(self._places())):
            # Most lead nowhere, and nearly all of these are short frames.
            if framing == 2:
                if octets[place] <= wire.MORE and place + 1 < end:
                    stop = place + 2 + octets[place + 1]
                    if stop < end and stop not in links:
                        continue
            elif octets[place] != wire.LENGTH_ESCAPE_V1:
                stop = place + 1 + octets[place]
                if stop + _LONG_HEADER_V1 <= end and stop not in links:
                    continue
            header = self._header(octets, place)
            if header is not None and (header[1] in links or self._is_last(header[1])):
                self._add(links, Frame(place, *header))
        return links

    def _some_chains(self) -> dict[int, Link]:
        """Follow frames from where segments begin, then from the first of the other places."""
        links: dict[int, Link] = {}
        dead: set[int] = set()  # places from which no frames lead to the end
        room = _FEW_FRAMES + self.end // _OCTETS_A_FRAME
        zeros = _TOO_MANY_EMPTY if self.framing == 2 else None
        for start in itertools.chain(self.starts, self._places()):
            if start not in dead and start not in links and not (zeros and self.octets.startswith(zeros, start)):
                room -= self._follow(start, links, dead, room)
            room -= 1
            if room <= 0:
                break
        return links

    def _follow(self, start: int, links: dict[int, Link], dead: set[int], room: int) -> int:
        """Follow at most ``room`` frames, until it is known whether they lead to the end. Returns how many there were.

        Frames that do are added to ``links``, the others to ``dead``.
        """
        frames: list[Frame] = []
        place, empty = start, 0
        while place not in links and not self._is_last(place) and len(frames) < room:
            too_many = empty > _MOST_EMPTY  # in front of this place, where frames may begin all the same
            header = None if too_many or place in dead else self._read(place)
            if header is None:
                dead.update(frame.place for frame in frames)
                if not too_many:
                    dead.add(place)
                return len(frames)
            begin, stop, more = header
            frames.append(Frame(place, begin, stop, more))
            empty = empty + 1 if begin == stop and not more else 0
            place = stop
        rest = 0.0 if place in links or self._is_last(place) else _CUT_BITS
        for frame in reversed(frames):
            self._add(links, frame, rest)
            rest = 0.0
        return len(frames)

    def _add(self, links: dict[int, Link], frame: Frame, rest: float = 0.0) -> None:
        """Add a frame to the links. ``rest`` are the bits of the frames after it, if the next frame is not a link."""
        own = self._worth(frame)
        following = links.get(frame.following)
        links[frame.place] = Link(frame, own, own + (rest if following is None else following.bits))

    def _places(self) -> Iterator[int]:
        """Offsets at which a frame may begin, by the octets that would be its flags."""
        octets = self.octets
        if self.framing == 1:
            for match in _LENGTH_V1.finditer(octets):
                yield match.start()
            return
        marked = octets.translate(_MARKED_V2)
        place = marked.find(1)
        while place >= 0:
            if octets.startswith(_TOO_MANY_EMPTY, place):  # no frame begins here, nor before the last of these zeros
                other = _OTHER_THAN_ZERO.search(octets, place)
                place = (other.start() if other else self.end) - len(_TOO_MANY_EMPTY)
            else:
                yield place
            place = marked.find(1, place + 1)

    def _read(self, place: int) -> tuple[int, int, bool] | None:
        """Begin and end of the body of the frame at ``place``, and its MORE bit; None if there is no frame."""
        octets = self.octets
        if self.framing == 1:
            return read_header(octets, place, 1)
        flags = octets[place]
        if flags <= wire.MORE and place + 1 < self.end:
            return place + 2, place + 2 + octets[place + 1], flags == wire.MORE
        return _header_v2(octets, place) if flags in self._flags else None

    def _is_last(self, place: int) -> bool:
        """Whether too little is left of the window at ``place`` to judge a frame there."""
        left = self.end - place
        if self.framing == 2:
            return left <= 0
        return left < 2 or (left < _LONG_HEADER_V1 and self.octets[place] == wire.LENGTH_ESCAPE_V1)

    def _worth(self, frame: Frame) -> float:
        """The bits of evidence that a frame is."""
        octets = self.octets
        place, begin, stop, more = frame
        bits = self.surprise if begin - place <= 2 else self._long_surprise
        if begin == stop and not more:
            bits = _EMPTY_BITS
        elif octets.startswith(MARKS, begin):
            bits += MARK_BITS
        if self.framing == 2:
            if begin - place > 2:
                length = octets[place + 1 : begin]
                bits += min(self._zero * (len(length) - len(length.lstrip(b"\0"))), _MOST_LONG_BITS)
                bits -= max((stop - begin).bit_length() - _USUAL_LENGTH_BITS, 0)
        elif octets.startswith(_ZEROS, stop - len(_ZEROS)):
            bits = _EMPTY_BITS
        if stop in self.boundaries and not more:
            bits += min(math.log2(stop - place), MOST_ALIGNED_BITS)
        return bits

    # ------------------------------------------------------------------ where to begin

    def _meeting(self, links: dict[int, Link], most: int) -> int:
        """The first frame at which all chains meet, if the evidence is enough; ``most`` if that comes first.

        Chains that start at a wrong place in a body either end or lead into the right chain. So a frame at which all of
        them meet is right, unless it is among the first of its chain.
        """
        # Walk all chains in order of place. `ahead` has the places where chains from before go on, and their bits so
        # far.
        ahead: dict[int, float] = {}
        for place in sorted(links):
            before = ahead.pop(place, 0.0)
            link = links[place]
            if link.bits < _DOUBT_BITS:
                continue
            if place >= most or (not ahead and before >= _BEFORE_BITS and link.bits >= _ANYWHERE_BITS):
                return min(place, most)
            following = link.frame.following
            ahead[following] = max(before + link.own, ahead.get(following, 0.0))
        return most

    def _found(self, links: dict[int, Link], offset: int) -> Discovery:
        """Frames begin at ``offset``. The frames that lead there decide which messages are doubtful.

        If a chain has false frames, its first true frame follows them, and may be any frame of a message. So a message
        is whole if the frame before it is certain, and has no MORE.
        """
        chain = [links[offset]]
        while chain[-1].frame.following in links:
            chain.append(links[chain[-1].frame.following])
        gain = self.gain([link.frame for link in chain])
        sure = _DENSE_BITS if self._dense else _SURE_BITS - math.log2((self.end - offset) / len(chain))
        bits, inside = self._before(links, offset, gain)
        doubtful = int(inside and bits >= sure)
        for link in chain:
            if bits >= sure:
                break
            bits += link.own + gain
            doubtful += 1
        if bits < sure and self.surprise:
            doubtful += math.ceil((sure - bits) / self.surprise)
        return Discovery(offset, self.framing, links[offset].bits, doubtful)

    def _before(self, links: dict[int, Link], offset: int, gain: float) -> tuple[float, bool]:
        """The most evidence of frames that lead to ``offset``, ``gain`` more for each; and whether that place is inside
        a message.

        A command does not show that, since PING and PONG come between the frames of a message, too.
        """
        ahead: dict[int, tuple[float, bool]] = {}
        for place in sorted(place for place in links if place < offset):
            frame, own, _ = links[place]
            bits, inside = ahead.pop(place, (0.0, True))
            if self.framing == 1 or not self.octets[place] & wire.COMMAND:
                inside = frame.more
            ahead[frame.following] = max((bits + own + gain, inside), ahead.get(frame.following, (0.0, True)))
        bits, inside = ahead.get(offset, (0.0, True))
        # They may begin anywhere, and so many octets hold false ones.
        return max(bits - math.log2(offset + 1), 0.0), inside


def _count(octets: bytes, which: bytes) -> int:
    """Count the octets that are one of ``which``."""
    return len(octets) - len(octets.translate(None, which))


def read_header(octets: bytes, position: int, framing: int) -> tuple[int, int, bool] | None:
    """Start and end of the body of a frame at ``position``, and its MORE bit; None if no frame begins there.

    The end may be behind that of ``octets``. Of a ZMTP 1.0 frame the whole header must be there.
    """
    if len(octets) - position < 2:
        return None
    found = (_header_v2 if framing == 2 else _header_v1)(octets, position)
    flags = _FLAGS_V2 if framing == 2 else _FLAGS_V1
    return None if found is None or octets[position if framing == 2 else found[0] - 1] not in flags else found


def _header_v2(octets: bytes, position: int) -> tuple[int, int, bool] | None:
    """Start and end of a frame's body and its MORE bit, None if no frame begins here. The header may be cut."""
    header = frame_headers.read_v2(octets, position)
    if isinstance(header, int):  # what there is of the length must be that of a plausible one
        end = len(octets)
        return None if any(octets[position + 1 : position + 4]) else (end, end + 1, bool(octets[position] & wire.MORE))
    flags, start, length = header
    if flags & wire.LONG and not wire.SHORT_LIMIT < length <= wire.PLAUSIBLE_LENGTH:
        return None
    if flags & wire.COMMAND and start < len(octets) and not 0 < octets[start] < length:
        return None
    return start, start + length, bool(flags & wire.MORE)


def _header_v1(octets: bytes, position: int) -> tuple[int, int, bool] | None:
    """Start, end and MORE bit of a ZMTP 1.0 frame, None if no frame begins here or if its header is cut."""
    header = frame_headers.read_v1(octets, position)
    if isinstance(header, int):
        return None
    flags, start, length = header
    is_long = start - position > 2
    if not (wire.LENGTH_ESCAPE_V1 <= length + 1 <= wire.PLAUSIBLE_LENGTH if is_long else length >= 0):
        return None
    return start, start + length, bool(flags & wire.MORE)
