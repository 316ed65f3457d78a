"""Writing the pcapng file format, as draft-ietf-opsawg-pcapng describes it: blocks as octets, no file."""

import platform
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dissectors.columns import ROW
from zmtpsniff.capture.block import Block, Packet
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
from zmtpsniff.native import file_records

SHB_OS, SHB_USERAPPL = 3, 4  # section 4.1
IF_NAME, IF_FILTER = 2, 11  # section 4.2
LARGEST_OPTION = 65_535  # octets
STATISTICS_SIZE = 44  # octets of a statistics block without comments

_FILTER_IS_TEXT = b"\0"  # section 4.2: what follows is in libpcap's language
_NANOSECONDS = b"\x09"
_U32 = 0xFFFFFFFF
# Times are 64 bits of nanoseconds, enough from 1970 to 2554. Any other time is written relative to the beginning of its
# span, which begins at whole seconds.
_SPAN_SECONDS = (1 << 23) * 2000
_SPAN_NS = _SPAN_SECONDS * 1_000_000_000

_KEYS_IN_BLOCK = 4096
_MOST_OVERHEAD = 35  # octets of a packet's block beside those of the packet, without a comment


class Provenance(NamedTuple):
    """The origin of packets, and the program that writes them, as far as they are known."""

    application: str  # with its version
    interface: str = ""  # name; empty if it is not known or not one
    capture_filter: str = ""
    snaplen: int = 0  # octets, 0 for no limit


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

    def packets(self, block: Block) -> bytes:
        """The blocks of these packets, each link type's interface described before its first packet."""
        parts: list[bytes] = []
        begin = 0
        for place, packet in block.odd.items():
            self._put_plain(block.part(begin, place), parts)
            self._put_odd(packet, parts)
            begin = place + 1
        self._put_plain(block.part(begin) if begin else block, parts)
        return b"".join(parts)

    def _put_plain(self, block: Block, parts: list[bytes]) -> None:
        """Add the blocks of packets of which none is odd to ``parts``."""
        rows = block.rows
        while rows:
            time_ns, _, _, _, link = ROW.unpack_from(rows)
            index, begin_ns = self._interface(time_ns, link, parts)
            # Times of one sign are all in one span.
            blocks, count = file_records.enhanced_packets(block.octets, rows, index, begin_ns % (1 << 64))
            parts.append(blocks)
            rows = rows[count * ROW.size :]

    def _put_odd(self, packet: Packet, parts: list[bytes]) -> None:
        time_ns, link, octets, wire, comment = packet
        index, begin_ns = self._interface(time_ns, link, parts)
        high, low = divmod(time_ns - begin_ns, 1 << 32)
        body = struct.pack("<5I", index, high, low, len(octets), wire) + octets + bytes(-len(octets) % 4)
        parts.append(_block(ENHANCED_PACKET, body, b"" if comment is None else _comments([comment])))

    def most_octets(self, block: Block) -> int:
        """As many octets as these packets add, if none of them has a comment, or a few more."""
        return block.captured + len(block) * _MOST_OVERHEAD + 2 * len(block.links) * len(self._description(0, 1))

    def sizes(self, block: Block) -> Iterator[int]:
        """How many octets each of these packets adds, if all before it are written."""
        known = set(self._interfaces)
        for time_ns, link, octets, _, comment in block.packets():
            size = 32 + (len(octets) + 3 & ~3)
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

    def _interface(self, time_ns: int, link: int, parts: list[bytes]) -> tuple[int, int]:
        """Number of the packet's interface, described in ``parts`` if it was not, and when its span begins."""
        span = time_ns // _SPAN_NS
        index = self._interfaces.get((link, span))
        if index is None:
            index = self._interfaces[link, span] = len(self._interfaces)
            parts.append(self._description(link, span))
        return index, span * _SPAN_NS

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


def key_blocks(lines: Sequence[str], order: str = "<") -> bytes:
    """The blocks that hold lines of a key file, in the byte order of their section."""
    begins = range(0, len(lines), _KEYS_IN_BLOCK)
    return b"".join(key_block(lines[begin : begin + _KEYS_IN_BLOCK], order) for begin in begins)


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
    return struct.pack("<II", kind, length) + body + _end(options) + struct.pack("<I", length)


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
