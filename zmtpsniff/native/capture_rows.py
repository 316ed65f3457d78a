"""The records of capture files and of the kernel's ring as rows, and back: functions of ``core.c`` in plain Python.

They are the specification of the native core, and take its place where there is none.
"""

import struct
from array import array

from dissectors.columns import ROW

_ENHANCED_PACKET = 6
BASE = struct.Struct("=qqI4x")
"""The meaning of the times of an interface: unit and offset in nanoseconds, then its link type. Unit 0: no rows."""


def pcap_rows(
    data: bytes, place: int, is_big: bool, unit_ns: int, header: int, most: int, link: int
) -> tuple[bytes, int]:
    """The records of a pcap file from ``place`` on, as rows; and the place behind the last one.

    The next record is not whole, or has more than ``most`` octets of a packet.
    """
    unpack, pack = struct.Struct(">4I" if is_big else "<4I").unpack_from, ROW.pack
    rows = []
    size, start = len(data), place + header
    while start <= size:
        seconds, fraction, captured, wire = unpack(data, place)
        end = start + captured
        if captured > most or end > size:
            break
        rows.append(pack(seconds * 1_000_000_000 + fraction * unit_ns, start, captured, wire, link))
        place, start = end, end + header
    return b"".join(rows), place


def pcapng_rows(data: bytes, place: int, is_big: bool, bases: bytes | bytearray) -> tuple[bytes, int]:
    """The Enhanced Packet Blocks without options from ``place`` on, as rows; and the place behind the last one.

    ``bases`` say what the times of each interface mean: unit and offset in nanoseconds, link type.
    """
    order = ">" if is_big else "<"
    block, length_again = struct.Struct(order + "7I"), struct.Struct(order + "I")
    interfaces = len(bases) // BASE.size
    rows = []
    while place + block.size <= len(data):
        kind, length, index, high, low, captured, wire = block.unpack_from(data, place)
        if kind != _ENHANCED_PACKET or not 32 <= length - captured <= 35 or place + length > len(data):
            break
        if length_again.unpack_from(data, place + length - 4)[0] != length or index >= interfaces:
            break
        unit_ns, offset_ns, link = BASE.unpack_from(bases, index * BASE.size)
        time_ns = (high << 32 | low) * unit_ns + offset_ns
        if unit_ns <= 0 or offset_ns < 0 or time_ns >= 1 << 63:
            break
        rows.append(ROW.pack(time_ns, place + 28, captured, wire, link))
        place += length
    return b"".join(rows), place


def time_span(rows: bytes) -> tuple[int, int]:
    """The least and the greatest time of one row or more, in nanoseconds; raises ValueError without a row."""
    times_ns = array("q", rows)[:: ROW.size // 8]
    return min(times_ns), max(times_ns)


def enhanced_packets(octets: bytes, rows: bytes, index: int, begin_ns: int) -> tuple[bytes, int]:
    """The packets of rows as Enhanced Packet Blocks without options, and how many they are.

    They are those from the first on that have its link type, and a time on the same side of 1970. ``index`` is the
    number of their interface, whose times count from ``begin_ns``, modulo 2^64. Raises ValueError for a row without
    octets, or one of 4 GiB.
    """
    blocks = []
    first_ns, _, _, _, first_link = ROW.unpack_from(rows) if rows else (0,) * 5
    for time_ns, start, captured, wire, link in ROW.iter_unpack(rows):
        if link != first_link or (time_ns < 0) != (first_ns < 0):
            break
        length = 32 + (captured + 3 & ~3)
        if start + captured > len(octets) or length >> 32:
            raise ValueError("a row lies in its octets, and its block has less than 4 GiB")
        high, low = divmod((time_ns - begin_ns) % (1 << 64), 1 << 32)
        blocks.append(struct.pack("<7I", _ENHANCED_PACKET, length, index, high, low, captured, wire))
        blocks.append(octets[start : start + captured])
        blocks.append(struct.pack(f"<{length - 32 - captured}xI", length))
    return b"".join(blocks), len(blocks) // 3


_RING_PACKET = struct.Struct("=IIIIIIHH")  # tpacket3_hdr
_HARDWARE = struct.Struct("=H")  # in the sockaddr_ll behind it
_LIKE_ETHERNET = (1, 772)
_VLAN_VALID = 1 << 4


def ring_rows(block: bytes, count: int) -> bytes | None:
    """The packets in a block of the kernel's ring (TPACKET_V3), as rows; None if one of them is not plain."""
    rows = []
    place = 0
    for number in range(1, count + 1):
        if place + 58 > len(block):
            return None
        step, seconds, nanoseconds, size, length, status, link, network = _RING_PACKET.unpack_from(block, place)
        is_ethernet = _HARDWARE.unpack_from(block, place + 56)[0] in _LIKE_ETHERNET
        skipped = 0 if is_ethernet else network - link
        start = place + link + skipped
        if status & _VLAN_VALID or network < link or skipped > min(size, length) or start + size - skipped > len(block):
            return None
        if not step and number < count:
            return None
        time_ns = seconds * 1_000_000_000 + nanoseconds
        rows.append(ROW.pack(time_ns, start, size - skipped, length - skipped, 1 if is_ethernet else 101))
        place += step
    return b"".join(rows)
