"""Cuts a capture that comes through a pipe between packets, without reading the packets."""

import struct
import sys
from typing import Any

from zmtpsniff.capture import pcap, pcapng
from zmtpsniff.capture.engines.engine import Piece
from zmtpsniff.capture.pcapng_blocks import ENHANCED_PACKET, LEAST_BLOCK


class Cutter:
    """Cuts the output of a capture program, in the byte order of this machine, into pieces that can be left out.

    A piece has whole records. A piece with anything but packets must be kept, since other records depend on it.
    """

    def __init__(self, beginning: bytes) -> None:
        """``beginning`` are the first octets. Raises ValueError if their format is unknown."""
        order = "<" if sys.byteorder == "little" else ">"
        self._rest = b""
        self._is_header = True
        if beginning[:4] == pcapng.MAGIC:
            self._cut = self._cut_pcapng
            self._unpack: Any = struct.Struct(order + "II").unpack_from
        elif beginning[:4] in pcap.MAGICS:
            order, _, self._header = pcap.MAGICS[beginning[:4]]
            self._cut = self._cut_pcap
            self._unpack = struct.Struct(order + "I").unpack_from
        else:
            raise ValueError("not a capture")

    def feed(self, octets: bytes) -> Piece | None:
        """Take the octets that have come. Returns all whole records, None if there is none."""
        data = self._rest + octets if self._rest else octets
        stop, packets, needed = self._cut(data)
        self._rest = data[stop:]
        if not stop:
            return None
        data = data[:stop] if self._rest else data
        return Piece(len(data), packets, data, needed)

    def finish(self) -> Piece | None:
        """The octets at the end that are no whole packet."""
        return Piece(len(self._rest), 0, self._rest, True) if self._rest else None

    def _cut_pcapng(self, data: bytes) -> tuple[int, int, bool]:
        """Where the last whole block ends, how many packets come before, and whether there are other blocks."""
        unpack = self._unpack
        position = packets = blocks = 0
        last = len(data) - 8
        end = len(data)
        while position <= last:
            kind, length = unpack(data, position)
            if length < LEAST_BLOCK:  # no block: who reads it will say so
                return end, packets, True
            stop = position + length
            if stop > end:
                break
            blocks += 1
            if kind == ENHANCED_PACKET:
                packets += 1
            position = stop
        return position, packets, blocks > packets

    def _cut_pcap(self, data: bytes) -> tuple[int, int, bool]:
        unpack, header = self._unpack, self._header
        position = packets = 0
        needed = self._is_header
        if self._is_header:
            if len(data) < pcap.HEADER_SIZE:
                return 0, 0, True
            position = pcap.HEADER_SIZE
            self._is_header = False
        last = len(data) - header
        end = len(data)
        while position <= last:
            stop = position + header + unpack(data, position + 8)[0]
            if stop > end:
                break
            packets += 1
            position = stop
        return position, packets, needed
