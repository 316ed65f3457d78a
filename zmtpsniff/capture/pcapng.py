"""The pcapng file format, as draft-ietf-opsawg-pcapng describes it."""

import struct
from collections.abc import Iterator
from typing import Any

from dissectors.columns import ROW
from zmtpsniff.capture.block import MOST_NS, Block, Packet
from zmtpsniff.capture.file_octets import FileOctets
from zmtpsniff.capture.pcapng_blocks import (
    COMMENT,
    CURVE_KEYS,
    END_OF_OPTIONS,
    ENHANCED_PACKET,
    EPB_DROPCOUNT,
    IF_TSOFFSET,
    IF_TSRESOL,
    INTERFACE,
    ISB_IFDROP,
    ISB_OSDROP,
    LEAST_BLOCK,
    OLD_PACKET,
    SECRETS,
    SECTION_HEADER,
    SIMPLE_PACKET,
    STATISTICS,
)
from zmtpsniff.capture.source import CaptureError, SourceState
from zmtpsniff.native import file_records
from zmtpsniff.native.capture_rows import BASE

MAGIC = b"\x0a\x0d\x0d\x0a"  # section 4.1: a palindrome, so that it needs no byte order
BYTE_ORDERS = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
LARGEST_BLOCK = 16 << 20  # octets; Wireshark's own limit for years

_AHEAD = 28  # octets of a block ahead of those of its packet, in all blocks that can have rows
_LATEST_NS = 1 << 62
MOST_KEY_LINES = 65_536  # of one capture that wait to be taken


class _BlockError(Exception):
    """A block that cannot be what it claims; the text says why."""


class _Interface:
    """The contents of an Interface Description Block, and the losses reported for the interface since."""

    def __init__(self, link: int, snaplen: int, resolution: int, offset: int) -> None:
        self.link = link
        self.snaplen = snaplen or LARGEST_BLOCK
        self.offset = offset * 1_000_000_000
        self._dropped_between = 0
        self._dropped_total = 0
        exponent = resolution & 0x7F
        # A unit of time is numerator / denominator nanoseconds.
        if resolution & 0x80:
            self.numerator, self.denominator = 1_000_000_000, 1 << exponent
        elif exponent > 9:
            self.numerator, self.denominator = 1, 10 ** (exponent - 9)
        else:
            self.numerator, self.denominator = 10 ** (9 - exponent), 1

    @property
    def base(self) -> bytes:
        """The base of its times, as a BASE; units of less than a nanosecond, and times before 1970, are not for it."""
        is_plain = self.denominator == 1 and 0 <= self.offset <= _LATEST_NS
        return BASE.pack(self.numerator if is_plain else 0, self.offset if is_plain else 0, self.link)

    def time_ns(self, high: int, low: int) -> int:
        return (high << 32 | low) * self.numerator // self.denominator + self.offset

    def lost(self, *, between: int = 0, total: int = 0) -> int:
        """Note packets lost before this one, or all losses so far. Returns by how many the interface's losses grew.

        Both count the same losses, so the larger number is right.
        """
        before = max(self._dropped_between, self._dropped_total)
        self._dropped_between += between
        self._dropped_total = max(self._dropped_total, total)
        return max(self._dropped_between, self._dropped_total) - before


class _Section:
    """The byte order and the interfaces of a section."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.interfaces: list[_Interface] = []
        self.bases = bytearray()  # of them

    def unpack(self, layout: str, data: bytes, offset: int) -> tuple[Any, ...]:
        """Unpack from ``data``, which holds the block and nothing after it."""
        try:
            return struct.unpack_from(self.order + layout, data, offset)
        except struct.error:
            raise _BlockError("a block too short for what it has to hold") from None

    def options(self, data: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
        """The options from ``offset`` up to the end of the block. An option that does not fit into it is left out."""
        stop = len(data) - 4
        while offset + 4 <= stop:
            code, length = self.unpack("HH", data, offset)
            if code == END_OF_OPTIONS:
                return
            offset += 4
            if offset + length > stop:
                return
            yield code, data[offset : offset + length]
            offset += length + 3 & ~3

    def number(self, octets: bytes) -> int:
        return int.from_bytes(octets, "big" if self.order == ">" else "little")

    def add(self, interface: _Interface) -> None:
        self.interfaces.append(interface)
        self.bases += interface.base

    def interface(self, index: int) -> _Interface:
        if index >= len(self.interfaces):
            raise _BlockError(f"a packet of interface {index}, which is not described,")
        return self.interfaces[index]


def read_pcapng(stream: FileOctets, data: bytes, source: SourceState) -> Iterator[Block]:
    """Check the first section header and return the packets, a block for every piece that the stream delivers.

    ``data`` is the beginning of the file as far as it was read to see the magic number. Comments on sections,
    interfaces and their statistics go to ``source.comments``, keys of CURVE to ``source.key_lines``, losses to
    ``source.dropped``, what is wrong after the first section header to ``source.faults``; a section header that is none
    or not whole raises CaptureError.
    """
    data = stream.extend(data, 28)
    order = BYTE_ORDERS.get(data[8:12])
    if order is None:
        raise CaptureError(f"{stream.name}: not a capture file, though it begins like a pcapng file")
    if len(data) >= 16:
        length, major, minor = struct.unpack_from(order + "I4xHH", data, 4)
        if major != 1:
            raise CaptureError(f"{stream.name}: pcapng version {major}.{minor}, only version 1 is known")
        if length < 28 or length % 4 or length > LARGEST_BLOCK:
            raise CaptureError(f"{stream.name}: a pcapng file whose section header claims {length} octets")
        data = stream.extend(data, length)
    if len(data) < 28 or len(data) < length:
        raise CaptureError(f"{stream.name}: a pcapng file cut short in its section header, so there is no packet in it")
    return _packets(stream, data, source)


def _packets(stream: FileOctets, data: bytes, source: SourceState) -> Iterator[Block]:
    section = _Section("<")
    last_time = 0
    position = 0
    while True:
        rows: list[bytes] = []
        odd: dict[int, Packet] = {}
        count = 0
        need = 12
        corrupt = ""
        while True:
            plain, position = file_records.pcapng_rows(data, position, section.order == ">", section.bases)
            if plain:
                rows.append(plain)
                count += len(plain) // ROW.size
                last_time = ROW.unpack_from(plain, len(plain) - ROW.size)[0]
            if len(data) - position < 12:
                break
            if section.number(data[position : position + 4]) == SECTION_HEADER:
                order = BYTE_ORDERS.get(data[position + 8 : position + 12])
                if order is None:
                    corrupt = "a section header without byte order"
                    break
                section = _Section(order)
            kind, length = struct.unpack_from(section.order + "II", data, position)
            if length < LEAST_BLOCK or length % 4 or length > LARGEST_BLOCK:
                corrupt = f"a block that claims a length of {length} octets"
                break
            stop = position + length
            if stop > len(data):
                need = length
                break
            if data[stop - 4 : stop] != data[position + 4 : position + 8]:
                corrupt = "a block whose two lengths differ"
                break
            try:
                packet = _block(section, kind, data[position:stop], last_time, source)
            except _BlockError as reason:
                corrupt = str(reason)
                break
            if packet is not None:
                last_time, link, octets, wire, comment = packet
                has_row = kind != SIMPLE_PACKET and comment is None and -MOST_NS <= last_time < MOST_NS
                if not has_row:
                    odd[count] = packet
                time_ns, captured = (last_time, len(octets)) if has_row else (0, 0)
                rows.append(ROW.pack(time_ns, position + _AHEAD, captured, wire, link))
                count += 1
            position = stop
        if count:
            yield Block(data, b"".join(rows), odd, stream.offset(data, -_AHEAD))
        if corrupt:
            stream.corrupt(source, data, position, corrupt)
            return
        data = stream.extend(data[position:], need)
        position = 0
        if len(data) < need:
            stream.ended(source, data, position, "block")
            return


def _block(section: _Section, kind: int, block: bytes, last_time: int, source: SourceState) -> Packet | None:
    """Take in a whole block of any kind; return its packet if it holds one. Raises _BlockError."""
    if kind in (ENHANCED_PACKET, OLD_PACKET):
        layout = "IIIII" if kind == ENHANCED_PACKET else "HHIIII"
        fields = section.unpack(layout, block, 8)
        index, (high, low, captured, wire) = fields[0], fields[-4:]
        interface = section.interface(index)
        if kind == OLD_PACKET and fields[1] != 0xFFFF:  # appendix A: all ones if the count is not known
            source.dropped += interface.lost(between=fields[1])
        if 28 + captured > len(block) - 4:
            raise _BlockError(f"a packet of {captured} octets, longer than its block,")
        comments = []
        for code, value in section.options(block, 28 + (captured + 3 & ~3)):
            if code == COMMENT:
                comments.append(_text(value))
            elif code == EPB_DROPCOUNT and kind == ENHANCED_PACKET:
                source.dropped += interface.lost(between=section.number(value))
        octets = block[28 : 28 + captured]
        return interface.time_ns(high, low), interface.link, octets, wire, "\n".join(comments) or None
    if kind == SIMPLE_PACKET:
        interface = section.interface(0)
        (wire,) = section.unpack("I", block, 8)
        captured = min(wire, interface.snaplen)
        if 12 + captured > len(block) - 4:
            raise _BlockError(f"a packet of {captured} octets, longer than its block,")
        return last_time, interface.link, block[12 : 12 + captured], wire, None  # it has no time of its own
    if kind == SECTION_HEADER:
        (major, minor) = section.unpack("HH", block, 12)
        if major != 1:
            raise _BlockError(f"a section of version {major}.{minor}, which is not known,")
        source.comments += [_text(value) for code, value in section.options(block, 24) if code == COMMENT]
    elif kind == INTERFACE:
        section.add(_interface(section, block, source))
    elif kind == STATISTICS:
        (index,) = section.unpack("I", block, 8)
        total = 0
        for code, value in section.options(block, 20):
            if code == COMMENT:
                source.comments.append(_text(value))
            elif code in (ISB_IFDROP, ISB_OSDROP):
                total += section.number(value)
        if index < len(section.interfaces):
            source.dropped += section.interfaces[index].lost(total=total)
    elif kind == SECRETS:
        secrets_kind, length = section.unpack("II", block, 8)
        if 16 + length > len(block) - 4:
            raise _BlockError(f"secrets of {length} octets, longer than their block,")
        if secrets_kind == CURVE_KEYS:
            lines = block[16 : 16 + length].decode("ascii", "replace").splitlines()
            source.key_lines += lines[: max(MOST_KEY_LINES - len(source.key_lines), 0)]
    return None


def _interface(section: _Section, block: bytes, source: SourceState) -> _Interface:
    link, snaplen = section.unpack("HxxI", block, 8)
    resolution, offset = 6, 0
    for code, value in section.options(block, 16):
        if code == IF_TSRESOL and len(value) == 1:
            resolution = value[0]
        elif code == IF_TSOFFSET and len(value) == 8:
            (offset,) = section.unpack("q", value, 0)
        elif code == COMMENT:
            source.comments.append(_text(value))
    return _Interface(link, snaplen, resolution, offset)


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode("utf-8", "replace")
