"""The files that programs map to run code from them, as the kernel tells it (perf_event_open(2)).

An event that counts nothing is opened on each processor for the records that come with it: one of each executable
mapping, in all processes and containers. The kernel writes them into a ring for each processor, and wakes who polls.
It also tells of devices that come and go (uevents), of which some are processors that are switched on.
"""

import contextlib
import ctypes
import mmap
import os
import socket
import struct
from collections.abc import Container

from zmtpsniff.host.processes import MemoryArea

_CALLS = {"x86_64": 298, "aarch64": 241}  # perf_event_open
_ATTRIBUTES = struct.Struct("<IIQQQQQII8x")  # up to those of 2008, which every kernel takes
_SOFTWARE, _DUMMY = 1, 9
_MMAP, _WATERMARK, _MMAP2 = 1 << 8, 1 << 14, 1 << 23
_CLOSE_ON_EXEC = 8
_HEAD_AT, _TAIL_AT = 1024, 1032  # in the first page, which describes the ring
_HEADER = struct.Struct("<IHH")
_LOST_RECORD, _MMAP2_RECORD = 2, 10
_MAPPED = struct.Struct("<8xI4xQQ8xIIQQ8x")
_MARK = slice(40, 64)  # of such a record: the device, the inode, and its generation
# The kernel wakes who polls for each so many octets. A mapping has more, unless its path is shorter than 16 characters:
# that is a program, and more mappings follow at once. A thread that begins or ends has 32, and wakes less often.
_WAKING_OCTETS = 95
_ONLINE = "/sys/devices/system/cpu/online"
_UEVENTS, _OF_KERNEL = 15, 1  # NETLINK_KOBJECT_UEVENT, and its group


class PerfMappings:
    """The mappings of all processes from now on, until close()."""

    def __init__(self, ring_octets: int = 1 << 18) -> None:
        """Ask the kernel for it; raises OSError. A ring has so many octets, a power of two of pages."""
        self._rings: dict[int, tuple[int, mmap.mmap]] = {}  # and their descriptors, by processors
        self._octets = ring_octets
        self.lost = 0  # at least so many records are missing
        self.ignored: set[bytes] = set()  # the marks of files that are not told any more
        self._devices = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _UEVENTS)
        try:
            self._devices.bind((0, _OF_KERNEL))
            self._follow_processors()
        except OSError:
            self.close()
            raise
        self.lost = 0

    @property
    def descriptors(self) -> list[int]:
        """The descriptors to poll, for input."""
        return [self._devices.fileno(), *(descriptor for descriptor, _ in self._rings.values())]

    def read(self, ready: Container[int]) -> list[tuple[int, bytes, MemoryArea]]:
        """The files from which processes have begun to run code since the last time.

        Each has its process, and a mark that no other file will have; empty if there is none. ``ready`` has the
        descriptors with input.
        """
        if self._devices.fileno() in ready:
            with contextlib.suppress(OSError):  # a processor is not ready: that will be told
                self._devices.recv(1 << 13)
                self._follow_processors()
        found = []
        for _, ring in self._rings.values():
            head, tail = struct.unpack_from("<QQ", ring, _HEAD_AT)
            if head == tail:
                continue
            begin, end = (mmap.PAGESIZE + place % self._octets for place in (tail, head))
            octets = ring[begin:end] if begin < end else ring[begin:] + ring[mmap.PAGESIZE : end]
            struct.pack_into("<Q", ring, _TAIL_AT, head)
            at = 0
            while at < len(octets):
                kind, _, size = _HEADER.unpack_from(octets, at)
                record = octets[at : at + size]
                if kind == _MMAP2_RECORD and (mark := record[_MARK]) not in self.ignored:
                    pid, address, length, major, minor, inode, generation = _MAPPED.unpack_from(record)
                    if inode:
                        name = record[_MAPPED.size :].partition(b"\0")[0]
                        file = f"{major:02x}:{minor:02x}", inode
                        area = MemoryArea(address, address + length, "r-xp", file, os.fsdecode(name))
                        found.append((pid, mark if generation or major else b"", area))  # overlays have none
                elif kind == _LOST_RECORD:
                    self.lost += int.from_bytes(record[16:24], "little")
                at += size
        return found

    def close(self) -> None:
        """Want nothing more of the kernel."""
        for processor in [*self._rings]:
            self._close_ring(processor)
        self._devices.close()

    def _follow_processors(self) -> None:
        """Have a ring for each processor that is switched on; what others ran until now is lost."""
        with open(_ONLINE, encoding="utf-8") as file:
            parts = [part.split("-") for part in file.read().split(",")]
        processors = {number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)}
        for processor in self._rings.keys() - processors:
            self._close_ring(processor)
        attributes = _ATTRIBUTES.pack(
            _SOFTWARE, _ATTRIBUTES.size, _DUMMY, 0, 0, 0, _MMAP | _MMAP2 | _WATERMARK, _WAKING_OCTETS, 0
        )
        call = ctypes.CDLL(None, use_errno=True).syscall
        for processor in processors - self._rings.keys():
            descriptor = call(_CALLS[os.uname().machine], attributes, -1, processor, -1, _CLOSE_ON_EXEC)
            if descriptor < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            self._rings[processor] = descriptor, mmap.mmap(descriptor, mmap.PAGESIZE + self._octets)
            self.lost += 1

    def _close_ring(self, processor: int) -> None:
        descriptor, ring = self._rings.pop(processor)
        self.lost += 1
        ring.close()
        os.close(descriptor)
