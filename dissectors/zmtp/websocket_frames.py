"""Frames of WebSocket (RFC 6455, section 5.2) and of ZWS inside them: headers, masks, finding them; pure functions."""

from collections.abc import Iterable

from dissectors.zmtp import wire

# RFC 6455, section 5.2
FINAL = 0x80
RESERVED_BITS = 0x70
COMPRESSED = 0x40  # RFC 7692, section 6
OPCODE = 0x0F
_MASKED = 0x80
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
OPCODES = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
CONTROL_LIMIT = 125  # section 5.5
_CONTROLS = frozenset({FINAL | PING, FINAL | PONG, FINAL | CLOSE})

# So many frames must chain: from where a segment begins, and from anywhere else. By chance each is as rare as 1 in some
# 30,000: its first octet, its mask bit and its ZWS flags are known.
_CHAIN_AT_START = 1
_CHAIN_ANYWHERE = 3
# The same on a connection of unknown protocol. Other programs' WebSocket messages may begin with small numbers, too.
_CHAIN_UNKNOWN = 4


def parse_header(data: bytes, position: int) -> tuple[int, bytes, int, int] | int:
    """Read the header of a frame: its first octet, mask (empty: none), payload length, and where the payload begins.

    If the header is not whole, returns the number of octets that it has at least.
    """
    left = len(data) - position
    if left < 2:
        return 2
    second = data[position + 1]
    length = second & 0x7F
    start = position + 2
    size = 2 if length == 126 else 8 if length == 127 else 0
    masked = 4 if second & _MASKED else 0
    if left < 2 + size + masked:
        return 2 + size + masked
    if size:
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    return data[position], data[start : start + masked], length, start + masked


def unmask(data: bytes, mask: bytes) -> bytes:
    """Take the mask off the first octets of a payload (section 5.3); no mask leaves them as they are."""
    size = len(data)
    if not mask or not size:
        return data
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


def find_messages(data: bytes, position: int, masked: bool) -> int | None:
    """Find the place from ``position`` on where unfragmented ZWS messages chain in ``data``, None if not certain."""
    chains: dict[int, int] = {}  # how many whole frames there are from a position on
    candidates = [position]
    at = data.find(bytes([FINAL | BINARY]), position)
    while at >= 0:
        candidates.append(at)
        at = data.find(bytes([FINAL | BINARY]), at + 1)
    for start in reversed(candidates):
        chains[start] = _chain(data, start, masked, chains)
    for start in candidates:
        if chains[start] >= (_CHAIN_AT_START if start == position else _CHAIN_ANYWHERE):
            return start
    return None


def _chain(data: bytes, position: int, masked: bool, chains: dict[int, int]) -> int:
    """Count the whole frames that chain from ``position`` to the end. Those behind ``position`` are in ``chains``."""
    header = parse_header(data, position)
    if isinstance(header, int):
        return 0
    first, mask, length, start = header
    if first != FINAL | BINARY or bool(mask) != masked or not 0 < length <= wire.PLAUSIBLE_LENGTH or start >= len(data):
        return 0
    if unmask(data[start : start + 1], mask)[0] & wire.RESERVED_INSIDE:
        return 0
    stop = start + length
    if stop > len(data):
        return 0
    if stop + 2 > len(data) or (stop not in chains and data[stop] in _CONTROLS):
        return 1
    following = parse_header(data, stop)
    if stop in chains and (chains[stop] or isinstance(following, int) or following[2] + following[3] > len(data)):
        return 1 + chains[stop]
    return 0


def find_unknown(data: bytes, starts: Iterable[int], masked: bool) -> int | None:
    """Find the place where ZWS messages begin in a stream that lacks its upgrade, None if that is not certain.

    ``starts`` are the places in ``data`` where segments begin; ``masked`` is whether the sender must mask its frames.
    """
    return next((start for start in starts if start < len(data) and _is_zws(data, start, masked)), None)


def _is_zws(data: bytes, position: int, masked: bool) -> bool:
    """Whether frames chain to the end: commands of a handshake, or messages that cannot be others' lengths."""
    frames = 0
    all_zero = True
    while position < len(data):
        header = parse_header(data, position)
        if isinstance(header, int):
            break
        first, mask, length, start = header
        stop = start + length
        if bool(mask) != masked or length > wire.PLAUSIBLE_LENGTH:
            return False
        if first in _CONTROLS:
            if length > CONTROL_LIMIT:
                return False
        elif first != FINAL | BINARY or not length:
            return False
        elif start < len(data):
            begin = unmask(data[start : min(start + 10, stop)], mask)
            if begin[0] & wire.RESERVED_INSIDE or wire.flags_inside(begin[0]) == wire.MORE | wire.COMMAND:
                return False
            if begin[0] == wire.COMMAND_INSIDE and begin[1:].startswith(wire.HANDSHAKE):
                return True
            if stop <= len(data):
                frames += 1
                all_zero = all_zero and begin[1:2] in (b"", b"\0")
        position = stop
    return frames >= _CHAIN_UNKNOWN and not all_zero
