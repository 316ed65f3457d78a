"""Where the records of a capture file begin, told by a walk that knows nothing of how we read captures."""

import gzip
import lzma
import struct
from pathlib import Path

from zmtpsniff.words.zstd import zstd

_SECTION = b"\x0a\x0d\x0d\x0a"
_PACKETS = {2, 3, 6}  # kinds of blocks: obsolete, simple and enhanced ones


def content(path: Path) -> bytes:
    """The octets of a capture file, uncompressed."""
    octets = path.read_bytes()
    if octets.startswith(b"\x1f\x8b"):
        return gzip.decompress(octets)
    if octets.startswith(b"\x28\xb5\x2f\xfd"):
        return zstd.decompress(octets)
    if octets.startswith(b"\xfd7zXZ\x00"):
        return lzma.decompress(octets)
    return octets


def offsets(octets: bytes) -> list[int] | None:
    """Of each packet, in order: where its record of pcap or block of pcapng begins; None if these octets are neither.

    Octets that are cut short at the end are no record.
    """
    if octets.startswith(_SECTION):
        return _blocks(octets)
    if octets[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1", b"\x34\xcd\xb2\xa1"):
        order = "little"
    elif octets[:4] in (b"\xa1\xb2\xc3\xd4", b"\xa1\xb2\x3c\x4d", b"\xa1\xb2\xcd\x34"):
        order = "big"
    else:
        return None
    header = 24 if b"\xcd" in octets[:4] else 16
    found = []
    at = 24
    while at + header <= len(octets):
        end = at + header + int.from_bytes(octets[at + 8 : at + 12], order)  # type: ignore[arg-type]
        if end > len(octets):
            break
        found.append(at)
        at = end
    return found


def _blocks(octets: bytes) -> list[int]:
    found = []
    at = 0
    order = "<"
    while at + 12 <= len(octets):
        if octets.startswith(_SECTION, at):
            order = "<" if octets[at + 8] == 0x4D else ">"
        kind, length = struct.unpack_from(f"{order}II", octets, at)
        if length < 12 or at + length > len(octets):
            break
        if kind in _PACKETS:
            found.append(at)
        at += length
    return found
