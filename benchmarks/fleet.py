"""A fleet's captures: so many hosts, each with a folder of rotated files, made from recordings of pyzmq's traffic.

Every host has the same traffic from addresses of its own, with sequence numbers of its own: the recordings run side by
side, their packets merged by time, and the file is changed whenever it is full, so that most connections which last
cross files.
"""

from __future__ import annotations

import heapq
import json
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from traffic import Recording

FILE_OCTETS = 16 << 20  # of a rotated file
BEGIN_NS = 1_790_000_000_000_000_000
BETWEEN_HOSTS_NS = 3_600_000_000_000  # so that a large fleet has captures of several days
BETWEEN_BEGINS_NS = 100_000  # of two connections
LATER_NS = 60_000_000_000  # when connections go on
ETHERNET = 1
_FILE_HEADER = struct.Struct("<IHHiIII")
_RECORD_HEADER = struct.Struct("<IIII")
_RECORDED_HEADER = struct.Struct("<IIII")
_ADDRESSES = slice(26, 34)  # source and destination in an IPv4 header behind that of Ethernet
_NETWORK = 10 << 24  # 10.0.0.0, as a number
_NUMBERS = 38  # where sequence and acknowledgment number are, behind an IPv4 header without options
_FLAGS, _FIN = 47, 1
_TWO_NUMBERS = struct.Struct(">II")
_APART = 0x9E37_79B1  # between the numbers of two hosts, and of two recordings: odd, and far from round
_IPV4 = b"\x08\x00"
_MAGICS = {b"\xd4\xc3\xb2\xa1": 1000, b"\x4d\x3c\xb2\xa1": 1}  # nanoseconds in a unit of the fraction


@dataclass(frozen=True)
class Fleet:
    """The captures, and what is known to be in them."""

    folder: Path
    hosts: int
    files: int
    octets: int
    packets: int
    messages: int

    def host_folders(self) -> list[Path]:
        """The folder of each host."""
        return sorted(path for path in self.folder.iterdir() if path.is_dir())


def ensure(recordings: Sequence[Recording], hosts: int, folder: Path, file_octets: int = FILE_OCTETS) -> Fleet:
    """Return the captures of so many hosts, made now unless an earlier run has left them."""
    facts = folder / "fleet.json"
    if facts.exists():
        known = json.loads(facts.read_text())
        if known["messages"] == hosts * sum(recording.messages for recording in recordings):
            return Fleet(**{**known, "folder": folder})
    shutil.rmtree(folder, ignore_errors=True)
    packets = list(heapq.merge(*(_packets(place, recording.path) for place, recording in enumerate(recordings))))
    files = octets = 0
    for host in range(hosts):
        written = _write(packets, host, folder / f"host-{host:04}", file_octets)
        files += len(written)
        octets += sum(written)
    fleet = Fleet(folder, hosts, files, octets, hosts * len(packets), hosts * sum(r.messages for r in recordings))
    facts.write_text(json.dumps({**asdict(fleet), "folder": folder.name}))
    return fleet


def write_open(recording: Recording, connections: int, further: int, folder: Path) -> tuple[Path, Path]:
    """Write two folders: connections that begin like the recorded one, which continue in the second; none ends."""
    packets = [(time_ns, octets) for time_ns, _, octets in _packets(0, recording.path) if not octets[_FLAGS] & _FIN]
    middle = len(packets) // 2
    for name, some, count, at_ns in (
        ("before", packets[:middle], connections, 0),
        ("after", packets[middle:], further, LATER_NS),
    ):
        times = ((at_ns + place * BETWEEN_BEGINS_NS, place) for place in range(count))
        _write(
            sorted((begin_ns + time_ns, place, octets) for begin_ns, place in times for time_ns, octets in some),
            0,
            folder / name,
            FILE_OCTETS,
        )
    return folder / "before", folder / "after"


def _packets(place: int, path: Path) -> Iterator[tuple[int, int, bytes]]:
    """The packets of a recording: nanoseconds since its first one, the recording's place, octets."""
    data = path.read_bytes()
    unit = _MAGICS[data[:4]]
    position = _FILE_HEADER.size
    begin_ns: int | None = None
    while position < len(data):
        seconds, fraction, captured, _ = _RECORDED_HEADER.unpack_from(data, position)
        position += _RECORDED_HEADER.size
        time_ns = seconds * 1_000_000_000 + fraction * unit
        if begin_ns is None:
            begin_ns = time_ns
        packet = data[position : position + captured]
        position += captured
        if packet[12:14] == _IPV4:
            yield time_ns - begin_ns, place, packet


def _write(packets: Sequence[tuple[int, int, bytes]], host: int, folder: Path, file_octets: int) -> list[int]:
    """Write the rotated files of one host; returns their sizes in octets."""
    folder.mkdir(parents=True)
    header = _FILE_HEADER.pack(0xA1B23C4D, 2, 4, 0, 0, 1 << 18, ETHERNET)
    places = range(host << 8, (host << 8) + 1 + max(place for _, place, _ in packets))
    addresses = [(_NETWORK + place).to_bytes(4, "big") * 2 for place in places]
    shifts = [place * _APART for place in places]
    begin_ns = BEGIN_NS + host * BETWEEN_HOSTS_NS
    sizes: list[int] = []
    parts = [header]
    size = len(header)
    for since_ns, place, packet in packets:
        length = len(packet)
        if size + length > file_octets:
            _save(folder, parts, sizes, size)
            parts, size = [header], len(header)
        seconds, fraction = divmod(begin_ns + since_ns, 1_000_000_000)
        numbers = _TWO_NUMBERS.unpack_from(packet, _NUMBERS)
        parts += (
            _RECORD_HEADER.pack(seconds, fraction, length, length),
            packet[: _ADDRESSES.start],
            addresses[place],
            packet[_ADDRESSES.stop : _NUMBERS],
            _TWO_NUMBERS.pack(*((number + shifts[place]) & 0xFFFF_FFFF for number in numbers)),
            packet[_NUMBERS + _TWO_NUMBERS.size :],
        )
        size += _RECORD_HEADER.size + length
    _save(folder, parts, sizes, size)
    return sizes


def _save(folder: Path, parts: Sequence[bytes], sizes: list[int], size: int) -> None:
    (folder / f"rotated-{len(sizes) + 1:05}.pcap").write_bytes(b"".join(parts))
    sizes.append(size)
