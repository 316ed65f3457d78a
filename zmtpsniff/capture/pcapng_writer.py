"""Writing the pcapng file format, as draft-ietf-opsawg-pcapng describes it: blocks as octets, no file."""

import platform
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.pcapng_blocks import (
    COMMENT,
    CURVE_KEYS,
    ENHANCED_PACKET,
    IF_TSOFFSET,
    IF_TSRESOL,
    INTERFACE,
    ISB_IFDROP,
    SECRETS,
    SECTION_HEADER,
    STATISTICS,
)

SHB_OS, SHB_USERAPPL = 3, 4  # section 4.1
IF_NAME, IF_FILTER = 2, 11  # section 4.2
LARGEST_OPTION = 65_535  # octets
STATISTICS_SIZE = 44  # octets of a statistics block without comments

_FILTER_IS_TEXT = b"\0"  # section 4.2: what follows is in libpcap's language
_NANOSECONDS = b"\x09"
_U32 = 0xFFFFFFFF
# Times are 64 bits of nanoseconds, enough from 1970 to 2554. Any other time is written relative to the beginning of its
# span. A span begins at whole seconds and at a whole multiple of 2^32 ns, so that only the upper half of a time depends
# on it.
_SPAN_SECONDS = (1 << 23) * 2000
_SPAN_NS = _SPAN_SECONDS * 1_000_000_000

_pack_head: Callable[..., bytes] = struct.Struct("<7I").pack
_pack_length: Callable[[int], bytes] = struct.Struct("<I").pack


class Provenance(NamedTuple):
    """The origin of packets, and the program that writes them, as far as they are known."""

    application: str  # with its version
    interface: str = ""  # name; empty if it is not known or not one
    capture_filter: str = ""
    snaplen: int = 0  # octets, 0 for no limit


class _Tails(dict[int, bytes]):
    """The octets after those of a packet without options, by their number: padding and the block's length."""

    def __missing__(self, size: int) -> bytes:
        tail = bytes(-size % 4) + _pack_length(32 + (size + 3 & ~3))
        if size <= 2048:  # those that come often
            self[size] = tail
        return tail


_tails = _Tails()


class PcapngSection:
    """One section as it grows: which interfaces have been described in it so far."""

    def __init__(self, origin: Provenance) -> None:
        """Nothing is described yet."""
        self._origin = origin
        self._interfaces: dict[tuple[int, int], int] = {}  # (link type, span) to the interface's number

    def header(self, comments: Sequence[str]) -> bytes:
        """The section header, with comments on the whole capture; forgets which interfaces were described."""
        self._interfaces.clear()
        body = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
        options = [_comments(comments), _option(SHB_OS, f"{platform.system()} {platform.release()}".encode())]
        options.append(_option(SHB_USERAPPL, self._origin.application.encode()))
        return _block(SECTION_HEADER, body, b"".join(options))

    def packets(self, batch: Sequence[Packet]) -> bytes:
        """The blocks of these packets, each link type's interface described before its first packet."""
        parts: list[bytes] = []
        append = parts.append
        pack, tails, kind, half = _pack_head, _tails, ENHANCED_PACKET, _U32
        # Of the packet before: the next one mostly has the same.
        current_link = current_period = -1
        index = high = 0
        for time_ns, link, octets, wire, comment in batch:
            if link != current_link or time_ns >> 32 != current_period:
                current_link, current_period = link, time_ns >> 32
                index, high = self._place(time_ns, link, parts)
            size = len(octets)
            if comment is None:
                append(pack(kind, 32 + (size + 3 & ~3), index, high, time_ns & half, size, wire))
                append(octets)
                append(tails[size])
            else:
                body = struct.pack("<5I", index, high, time_ns & half, size, wire) + octets + bytes(-size % 4)
                append(_block(kind, body, _comments([comment])))
        return b"".join(parts)

    def sizes(self, batch: Sequence[Packet]) -> Iterator[int]:
        """How many octets each of these packets adds, if all before it are written."""
        known = set(self._interfaces)
        current_link = current_period = -1
        for time_ns, link, octets, _, comment in batch:
            size = 32 + (len(octets) + 3 & ~3)
            if link != current_link or time_ns >> 32 != current_period:
                current_link, current_period = link, time_ns >> 32
                span = time_ns // _SPAN_NS
                if (link, span) not in known:
                    known.add((link, span))
                    size += len(self._description(link, span))
            if comment is not None:
                size += len(_end(_comments([comment])))
            yield size

    def statistics(self, time_ns: int, dropped: int | None, comments: Sequence[str]) -> bytes:
        """The block that ends a section: packets lost in it, comments that came too late for the header.

        ``time_ns`` is when they were counted. Empty if there are neither losses nor comments, or no interface.
        """
        if not self._interfaces or (dropped is None and not comments):
            return b""
        (_, span), index = next(iter(self._interfaces.items()))
        since = min(max(time_ns - span * _SPAN_NS, 0), (1 << 64) - 1)
        options = _comments(comments)
        if dropped is not None:
            options += _option(ISB_IFDROP, struct.pack("<Q", dropped))
        return _block(STATISTICS, struct.pack("<III", index, since >> 32, since & _U32), options)

    def _place(self, time_ns: int, link: int, parts: list[bytes]) -> tuple[int, int]:
        """Number of the packet's interface, described in ``parts`` if it was not, and upper half of its time."""
        span = time_ns // _SPAN_NS
        index = self._interfaces.get((link, span))
        if index is None:
            index = self._interfaces[link, span] = len(self._interfaces)
            parts.append(self._description(link, span))
        return index, time_ns - span * _SPAN_NS >> 32

    def _description(self, link: int, span: int) -> bytes:
        options = [_option(IF_TSRESOL, _NANOSECONDS)]
        if self._origin.interface:
            options.append(_option(IF_NAME, self._origin.interface.encode("utf-8", "replace")))
        if self._origin.capture_filter:
            text = self._origin.capture_filter.encode("utf-8", "replace")
            options.append(_option(IF_FILTER, _FILTER_IS_TEXT + text))
        if span:
            options.append(_option(IF_TSOFFSET, struct.pack("<q", span * _SPAN_SECONDS)))
        return _block(INTERFACE, struct.pack("<HHI", link, 0, self._origin.snaplen), b"".join(options))


def key_block(lines: Sequence[str], order: str = "<") -> bytes:
    """The block that holds lines of a key file, in the byte order of its section."""
    text = "".join(f"{line}\n" for line in lines).encode("ascii", "replace")
    length = 20 + (len(text) + 3 & ~3)
    head = struct.pack(f"{order}4I", SECRETS, length, CURVE_KEYS, len(text))
    return head + text + bytes(-len(text) % 4) + struct.pack(f"{order}I", length)


def whole_blocks(data: bytes, limit: int) -> tuple[int, int]:
    """How far the whole blocks of ``data`` reach within its first ``limit`` octets, and how many packets they hold."""
    position = packets = 0
    while position < limit:
        kind, length = struct.unpack_from("<II", data, position)
        if position + length > limit:
            break
        position += length
        packets += kind == ENHANCED_PACKET
    return position, packets


def _block(kind: int, body: bytes, options: bytes) -> bytes:
    length = len(body) + len(_end(options)) + 12
    return struct.pack("<II", kind, length) + body + _end(options) + _pack_length(length)


def _end(options: bytes) -> bytes:
    return options and options + bytes(4)


def _option(code: int, value: bytes) -> bytes:
    value = value[:LARGEST_OPTION]
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _comments(comments: Sequence[str]) -> bytes:
    return b"".join([_option(COMMENT, piece) for comment in comments for piece in _pieces(comment)])


def _pieces(comment: str) -> list[bytes]:
    """The comment, in as many pieces as fit into options: cut at ends of lines, or at least between characters."""
    rest = comment.encode("utf-8", "replace")
    pieces = []
    while len(rest) > LARGEST_OPTION:
        cut = rest.rfind(b"\n", 0, LARGEST_OPTION + 1)
        start = cut + 1
        if cut < 0:
            start = cut = LARGEST_OPTION
            while rest[cut] & 0xC0 == 0x80:  # inside a character
                start = cut = cut - 1
        pieces.append(rest[:cut])
        rest = rest[start:]
    return [*pieces, rest]
