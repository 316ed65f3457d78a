"""The pcap file format, as draft-ietf-opsawg-pcap describes it."""

import struct
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import add, itemgetter
from typing import TYPE_CHECKING

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.octets import FileOctets
from zmtpsniff.capture.source import CaptureError, Fault, Packet, SourceState
from zmtpsniff.native import core

if TYPE_CHECKING:
    from zmtpsniff.capture.skim import Skim

HEADER_SIZE = 24
LARGEST_RECORD = 16 << 20  # octets; a record that claims more is no packet, whatever snaplen the file states
LEAST_SNAPLEN = 262_144  # what libpcap and Wireshark accept in a record at any rate

# Octets of the magic number as they stand in the file: byte order, nanoseconds in a unit of the fraction,
# octets of a record's header.
MAGICS: dict[bytes, tuple[str, int, int]] = {
    b"\xa1\xb2\xc3\xd4": (">", 1000, 16),
    b"\xd4\xc3\xb2\xa1": ("<", 1000, 16),
    b"\xa1\xb2\x3c\x4d": (">", 1, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 1, 16),
    # Alexey Kuznetsov's libpcap, with the interface, protocol and direction after the lengths.
    b"\xa1\xb2\xcd\x34": (">", 1000, 24),
    b"\x34\xcd\xb2\xa1": ("<", 1000, 24),
}

_octets = itemgetter(2)  # of a packet


def read_pcap(
    stream: FileOctets,
    data: bytes,
    source: SourceState,
    offsets: list[int] | None = None,
    skim: "Skim | None" = None,
) -> Iterator[list[Packet] | Block]:
    """Check the file header and return the packets that follow it, a list for every piece that the stream delivers.

    ``data`` is the beginning of the file as far as it was read to see the magic number. What is wrong after the header
    goes to ``source.faults``; a header that is not whole or of another version raises CaptureError. ``offsets``
    and ``skim`` are those of open_stream.
    """
    order, unit, header = MAGICS[data[:4]]
    data = stream.extend(data, HEADER_SIZE)
    if len(data) < HEADER_SIZE:
        raise CaptureError(f"{stream.name}: a pcap file cut short in its file header, so there is no packet in it")
    major, minor, snaplen, network = struct.unpack_from(order + "HH8xII", data, 4)
    if major != 2:
        raise CaptureError(f"{stream.name}: pcap version {major}.{minor}, only version 2 is known")
    # The upper half of the network field tells about the frame check sequence.
    link = network & 0xFFFF
    return _packets(stream, data, source, order, unit, header, snaplen, link, offsets, skim)


def _packets(
    stream: FileOctets,
    data: bytes,
    source: SourceState,
    order: str,
    unit: int,
    header: int,
    snaplen: int,
    link: int,
    offsets: list[int] | None,
    skim: "Skim | None",
) -> Iterator[list[Packet] | Block]:
    unpack = struct.Struct(order + "4I").unpack_from
    unpack_captured = struct.Struct(order + "8xI").unpack_from
    most = min(max(snaplen, LEAST_SNAPLEN), LARGEST_RECORD)
    expected = min(snaplen or most, most)
    second, second_ns = 0, 0
    position = HEADER_SIZE
    while True:
        if skim is not None:
            edges = _edges(data, position, header, expected, unpack_captured)
            if len(edges) > 1:
                yield skim.records(data, edges, order, unit, header, link, stream.offset(data, 0))
                position = edges[-1]
        if core is not None and offsets is None and skim is None:
            rows, position = core.pcap_rows(data, position, order == ">", unit, header, expected, link)
            if rows:
                yield Block(data, rows)
        batch: list[Packet] = []
        append = batch.append
        begin = position
        end = len(data)
        last_header = end - header
        need = header
        corrupt = ""
        while position <= last_header:
            seconds, fraction, captured, wire = unpack(data, position)
            if captured > expected:
                if captured > most:
                    corrupt = f"a record that claims {captured} captured octets"
                    break
                where = stream.offset(data, position)
                source.faults.append(
                    Fault(
                        "record-over-snaplen",
                        f"{stream.name}: the record at offset {where} holds {captured} octets, but the file header "
                        f"states a snaplen of {snaplen}; zmtpsniff reads such records all the same",
                    )
                )
                expected = most
            if seconds != second:
                second, second_ns = seconds, seconds * 1_000_000_000
            start = position + header
            stop = start + captured
            if stop > end:
                need = header + captured
                break
            append((second_ns + fraction * unit, link, data[start:stop], wire, None))
            position = stop
        if batch:
            if offsets is not None:
                # Nothing is between records, so their lengths give their places. The loop above need not count them.
                ends = accumulate(map(len, map(_octets, batch)), initial=stream.offset(data, begin))
                offsets[:] = map(add, ends, range(0, header * len(batch), header))
            yield batch
        if corrupt:
            stream.corrupt(source, data, position, corrupt)
            return
        data = stream.extend(data[position:], need)
        position = 0
        if len(data) < need:
            stream.ended(source, data, position, "record")
            return


def _edges(
    data: bytes, position: int, header: int, most: int, unpack_captured: Callable[[bytes, int], tuple[int]]
) -> list[int]:
    """Where records begin, one after the other from ``position`` on, and where the last one ends.

    They end before a record that is not whole, or that has more than ``most`` octets of a packet.
    """
    edges = [position]
    append = edges.append
    last_header = len(data) - header
    most += header
    while position <= last_header:
        size = header + unpack_captured(data, position)[0]
        if size > most:
            return edges
        position += size
        append(position)
    if position > len(data):
        del edges[-1]
    return edges
