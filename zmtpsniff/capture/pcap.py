"""The pcap file format, as draft-ietf-opsawg-pcap describes it."""

import struct
from collections.abc import Iterator

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.file_octets import FileOctets
from zmtpsniff.capture.source import CaptureError, Fault, SourceState
from zmtpsniff.native import file_records

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


def read_pcap(stream: FileOctets, data: bytes, source: SourceState) -> Iterator[Block]:
    """Check the file header and return the packets that follow it, a block for every piece that the stream delivers.

    ``data`` is the beginning of the file as far as it was read to see the magic number. Faults after the header go to
    ``source.faults``; a header that is not whole or of another version raises CaptureError.
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
    return _packets(stream, data, source, order, unit, header, snaplen, link)


def _packets(
    stream: FileOctets, data: bytes, source: SourceState, order: str, unit: int, header: int, snaplen: int, link: int
) -> Iterator[Block]:
    unpack_captured = struct.Struct(order + "8xI").unpack_from
    most = min(max(snaplen, LEAST_SNAPLEN), LARGEST_RECORD)
    expected = min(snaplen or most, most)
    position = HEADER_SIZE
    while True:
        rows, position = file_records.pcap_rows(data, position, order == ">", unit, header, expected, link)
        if rows:
            yield Block(data, rows, base=stream.offset(data, -header))
        need = header
        if len(data) - position >= header:
            (captured,) = unpack_captured(data, position)
            if captured > most:
                stream.corrupt(source, data, position, f"a record that claims {captured} captured octets")
                return
            if captured > expected:
                where = stream.offset(data, position)
                source.faults.append(
                    Fault(
                        "record-over-snaplen",
                        f"{stream.name}: the record at offset {where} holds {captured} octets, but the file header "
                        f"states a snaplen of {snaplen}; zmtpsniff reads such records all the same",
                    )
                )
                expected = most
                continue
            need += captured
        data = stream.extend(data[position:], need)
        position = 0
        if len(data) < need:
            stream.ended(source, data, position, "record")
            return
