"""The files that programs map to run code from them, as the kernel tells it (perf_event_open(2)).

An event that counts nothing is opened on each processor for the records that come with it: one of each executable
mapping, in all processes and containers. The kernel writes them into a ring for each processor, and wakes who polls.
"""

import ctypes
import errno
import mmap
import os
import struct
from typing import NamedTuple

from zmtpsniff.host.processes import MemoryArea

_CALLS = {"x86_64": 298, "aarch64": 241}  # perf_event_open
_ATTRIBUTES = struct.Struct("<IIQQQQQII8x")  # up to those of 2008, which every kernel takes
_SOFTWARE, _DUMMY = 1, 9
_MMAP, _WATERMARK, _MMAP2 = 1 << 8, 1 << 14, 1 << 23
_CLOSE_ON_EXEC = 8
_HEAD_AT, _TAIL_AT = 1024, 1032  # in the first page, which describes the ring
_HEADER = struct.Struct("<IHH")
_LOST_RECORD, _MMAP2_RECORD = 2, 10
_LOST = struct.Struct("<8x8xQ")
_MAPPED = struct.Struct("<8xIIQQQIIQQII")
_EXECUTABLE = 4  # PROT_EXEC
_POSSIBLE = "/sys/devices/system/cpu/possible"


class Mapped(NamedTuple):
    """A file, in the memory of a process that runs code from it."""

    pid: int
    generation: int  # of the inode, whose number other files may have later
    area: MemoryArea


class PerfMappings:
    """The mappings of all processes from now on, until close()."""

    def __init__(self, ring_octets: int = 1 << 18) -> None:
        """Ask the kernel for it; raises OSError. A ring has so many octets, a power of two of pages."""
        self.lost = 0  # records for which a ring had no room
        self._rings: dict[int, mmap.mmap] = {}  # by their descriptors
        self._octets = ring_octets
        call = ctypes.CDLL(None, use_errno=True).syscall
        # Records of threads that begin and end come, too: they are shorter than this watermark, and seldom wake.
        attributes = _ATTRIBUTES.pack(
            _SOFTWARE, _ATTRIBUTES.size, _DUMMY, 0, 0, 0, _MMAP | _MMAP2 | _WATERMARK, _MAPPED.size, 0
        )
        try:
            for processor in _processors():
                descriptor = call(_CALLS[os.uname().machine], attributes, -1, processor, -1, _CLOSE_ON_EXEC)
                if descriptor >= 0:
                    self._rings[descriptor] = mmap.mmap(descriptor, mmap.PAGESIZE + ring_octets)
                elif (number := ctypes.get_errno()) != errno.ENODEV:  # a processor that is switched off
                    raise OSError(number, os.strerror(number))
        except OSError:
            self.close()
            raise

    @property
    def descriptors(self) -> list[int]:
        """The descriptors to poll, for input."""
        return list(self._rings)

    def read(self) -> list[Mapped]:
        """The files that have been mapped since the last time."""
        found = []
        for ring in self._rings.values():
            head, tail = struct.unpack_from("<QQ", ring, _HEAD_AT)
            if head == tail:
                continue
            begin, end = (mmap.PAGESIZE + place % self._octets for place in (tail, head))
            octets = ring[begin:end] if begin < end else ring[begin:] + ring[mmap.PAGESIZE : end]
            struct.pack_into("<Q", ring, _TAIL_AT, head)
            at = 0
            while at < len(octets):
                kind, _, size = _HEADER.unpack_from(octets, at)
                if kind == _MMAP2_RECORD:
                    pid, _, address, length, _, major, minor, inode, generation, rights, _ = _MAPPED.unpack_from(
                        octets, at
                    )
                    if inode and rights & _EXECUTABLE:
                        name = octets[at + _MAPPED.size : at + size].partition(b"\0")[0]
                        file = f"{major:02x}:{minor:02x}", inode
                        area = MemoryArea(address, address + length, "r-xp", file, os.fsdecode(name))
                        found.append(Mapped(pid, generation, area))
                elif kind == _LOST_RECORD:
                    self.lost += _LOST.unpack_from(octets, at)[0]
                at += size
        return found

    def close(self) -> None:
        """Want nothing more of the kernel."""
        for descriptor, ring in self._rings.items():
            ring.close()
            os.close(descriptor)
        self._rings.clear()


def _processors() -> list[int]:
    """The numbers of all processors that there may be."""
    with open(_POSSIBLE, encoding="ascii") as file:
        parts = [part.split("-") for part in file.read().strip().split(",")]
    return [number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)]
