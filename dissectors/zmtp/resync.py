"""Finding frames in the middle of a stream.

A frame says how long it is, so frames chain: where one ends the next must begin, with flags that are legal. A chain
that runs on for long enough is no accident. How long is enough depends on how often a legal flags octet turns up
anyway in these octets: among text hardly ever, among small binary numbers all the time. So each frame counts for as
many bits as its flags octet is surprising.
"""

import math
from typing import NamedTuple

from dissectors.zmtp import wire

_FLAGS_V2 = b"\x00\x01\x02\x03\x04\x06"
_FLAGS_V1 = b"\x00\x01\x7e\x7f"
# Translates flags to 1 and other octets to 0.
_MARKED_V2 = bytes(octet in _FLAGS_V2 for octet in range(256))
_MARKED_V1 = bytes(octet in _FLAGS_V1 for octet in range(256))

# Bits of evidence: to believe a chain that starts where a segment does, on a connection known to be ZMTP; on one of
# which nothing is known; and to believe one that starts anywhere.
_KNOWN_BITS = 10.0
_UNKNOWN_BITS = 32.0
_ANYWHERE_BITS = 40.0
# A chain with less is not even a reason to doubt another.
_DOUBT_BITS = 16.0
# Octets of which more than this part could be flags tell nothing by their flags, only by frames that end where
# segments do; that is looked at in so many octets at most, because it takes long.
_DENSE = 0.4
_MOST_DENSE_OCTETS = 1 << 14
# A message that ends exactly where a segment does: by chance that is as rare as its frame is long.
MOST_ALIGNED_BITS = 12.0
# Contents that only ZMTP has
_MARK_BITS = 40.0
# A frame that is empty and ends a message is rare in ZMTP, and what other protocols' 4-octet lengths look like.
_EMPTY_BITS = -10.0
_PLAUSIBLE_LENGTH = 1 << 32
_MARKS = (
    wire.CURVE_MESSAGE,
    *(b"\x04PING", b"\x04PONG", b"\x09SUBSCRIBE", b"\x06CANCEL", b"\x04JOIN", b"\x05LEAVE"),
    *(b"\x05READY", b"\x05HELLO", b"\x07WELCOME", b"\x08INITIATE", b"\x05ERROR"),
)
# The first octets of a long length are zero, which is worth as much as zeros are rare, but not more than:
_MOST_LONG_BITS = 24.0
# A frame that begins anywhere may be a false one that happens to end where a true one begins. Not so many in a row.
_LINKS_NOT_TRUSTED = 2
_LONG_HEADER_V1 = 10  # octets, with the flags
# Frames of ZMTP 1.0 that end so are what 4-octet lengths of other protocols look like.
_ZEROS = b"\0\0\0"


class Found(NamedTuple):
    """Where frames begin."""

    offset: int
    framing: int  # 1: ZMTP 1.0, 2: ZMTP 2.0 and later
    bits: float


class _Link(NamedTuple):
    """What follows from a frame's position."""

    bits: float  # evidence of the chain from here
    following: int  # where the next frame begins


def find_frames(window: bytes, starts: list[int], framing: int, known: bool, cut: int = 0) -> Found | None:
    """Find where frames begin in ``window``, or None if nothing is certain enough.

    ``starts`` are offsets at which TCP segments begin, where a frame begins more often than elsewhere; ``framing``
    is that of the connection, 0 if unknown; ``known`` says whether the connection is known to be ZMTP; ``cut`` is the
    number of octets that the snaplen took from the end of the last segment.
    """
    if not window:
        return None
    best: Found | None = None
    for candidate in (framing,) if framing else (2, 1):
        found = _find(window, starts, candidate, known, cut)
        if found and (best is None or found.bits > best.bits):
            best = found
    return best


def _find(window: bytes, starts: list[int], framing: int, known: bool, cut: int) -> Found | None:
    links = _chains(window, starts, framing, cut)
    least = _KNOWN_BITS if known else _UNKNOWN_BITS
    for start in starts:
        if start in links and links[start].bits >= least:
            return Found(start, framing, links[start].bits)
    return _merged(links, framing)


def _chains(window: bytes, starts: list[int], framing: int, cut: int) -> dict[int, _Link]:
    """Every offset from which frames chain to the end of the window, with the evidence for it."""
    end = len(window)
    flags = _FLAGS_V2 if framing == 2 else _FLAGS_V1
    chance = 1 - len(window.translate(None, flags)) / end
    if chance == 0 or (chance > _DENSE and end > _MOST_DENSE_OCTETS):
        return {}
    flags_at = _places(window.translate(_MARKED_V2 if framing == 2 else _MARKED_V1))
    positions = flags_at if framing == 2 else _candidates_v1(window, flags_at)
    surprise = -math.log2(chance) if chance <= _DENSE else 0.0
    zero = -math.log2(window.count(0) / end) if 0 in window else _MOST_LONG_BITS
    boundaries = {*starts, end + cut}
    links: dict[int, _Link] = {}
    header = _header_v2 if framing == 2 else _header_v1
    for position in reversed(positions):
        # Most lead nowhere, and nearly all of these are short frames.
        if framing == 2:
            if window[position] <= wire.MORE and position + 1 < end:
                stop = position + 2 + window[position + 1]
                if stop < end and stop not in links:
                    continue
        elif window[position] != wire.LENGTH_ESCAPE_V1:
            stop = position + 1 + window[position]
            if stop + 1 < end and stop not in links:
                continue
        found = header(window, position, end)
        if found is None:
            continue
        start, stop, more = found
        bits = surprise
        if start == stop and not more:
            bits = _EMPTY_BITS
        elif window.startswith(_MARKS, start):
            bits += _MARK_BITS
        if start - position > 2:
            bits += min(zero * (start - position - 2), _MOST_LONG_BITS) if framing == 2 else 0.0
        if framing == 1 and window.startswith(_ZEROS, stop - len(_ZEROS)):
            bits = _EMPTY_BITS
        if stop in boundaries and not more:
            bits += min(math.log2(stop - position), MOST_ALIGNED_BITS)
        if stop < end:
            link = links.get(stop)
            if link is not None:
                bits += link.bits
            elif framing == 2 or stop + 1 < end:
                continue
        links[position] = _Link(bits, stop)
    return links


def _places(marked: bytes) -> list[int]:
    """The offsets of octets that are 1."""
    found: list[int] = []
    place = marked.find(1)
    while place >= 0:
        found.append(place)
        place = marked.find(1, place + 1)
    return found


def read_header(octets: bytes, position: int, framing: int) -> tuple[int, int, bool] | None:
    """Start and end of the body of a frame at ``position`` and its MORE bit; None if none with a whole header is there.

    The end may be behind that of ``octets``.
    """
    end = len(octets)
    if end - position < 2:
        return None
    if framing == 1 and octets[position] == wire.LENGTH_ESCAPE_V1 and end - position < _LONG_HEADER_V1:
        return None
    found = (_header_v2 if framing == 2 else _header_v1)(octets, position, end)
    flags = _FLAGS_V2 if framing == 2 else _FLAGS_V1
    if found is None or found[0] > end or octets[position if framing == 2 else found[0] - 1] not in flags:
        return None
    return found


def _candidates_v1(window: bytes, flags_at: list[int]) -> list[int]:
    """Offsets at which a frame of ZMTP 1.0 may begin, whose flags come after a length of 1 or of 9 octets."""
    escape = wire.LENGTH_ESCAPE_V1
    short = {at - 1 for at in flags_at if at >= 1 and 0 < window[at - 1] < escape}
    long = {at - 9 for at in flags_at if at >= 9 and window[at - 9] == escape}
    return sorted(short | long)


def _header_v2(window: bytes, position: int, end: int) -> tuple[int, int, bool] | None:
    """Start and end of a frame's body and its MORE bit, None if no frame begins here."""
    flags = window[position]
    more = bool(flags & wire.MORE)
    start = position + (9 if flags & wire.LONG else 2)
    if start > end:
        return end, end + 1, more
    length = int.from_bytes(window[position + 1 : start], "big")
    if flags & wire.LONG and not wire.SHORT_LIMIT < length <= _PLAUSIBLE_LENGTH:
        return None
    if flags & wire.COMMAND and start < end and not 0 < window[start] < length:
        return None
    return start, start + length, more


def _header_v1(window: bytes, position: int, end: int) -> tuple[int, int, bool] | None:
    """The same for ZMTP 1.0."""
    length = window[position]
    start = position + 2
    if length == wire.LENGTH_ESCAPE_V1:
        start = position + 10
        length = int.from_bytes(window[position + 1 : start - 1], "big")
        if not wire.SHORT_LIMIT <= length <= _PLAUSIBLE_LENGTH:
            return None
    return start, start + length - 1, bool(window[start - 1] & wire.MORE)


def _merged(links: dict[int, _Link], framing: int) -> Found | None:
    """The first frame on which all chains have met, if the evidence for it is enough wherever it starts.

    Chains that start at the wrong place in a body either die or end up on the right one, so a frame on which all of
    them meet is right if it is not among the first of its chain.
    """
    # Walk all chains in order of position; `ahead` holds where those begun before go on, and after how many frames.
    ahead: dict[int, int] = {}
    for position in sorted(links):
        before = ahead.pop(position, 0)
        link = links[position]
        if link.bits < _DOUBT_BITS:
            continue
        if not ahead and before >= _LINKS_NOT_TRUSTED and link.bits >= _ANYWHERE_BITS:
            return Found(position, framing, link.bits)
        ahead[link.following] = max(before + 1, ahead.get(link.following, 0))
    return None
