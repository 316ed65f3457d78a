"""The libraries in use that make CURVE's shared keys. Their symbol shows them, in files that processes have mapped."""

import contextlib
import ctypes
import math
import os
import sys
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from glob import escape, glob

from zmtpsniff.host.elf import find_functions
from zmtpsniff.host.perf_mappings import PerfMappings
from zmtpsniff.host.processes import MemoryArea, mappings, open_mapped, pids
from zmtpsniff.host.uprobes import BEFORENM, INNER_BEFORENM, Uprobes

_FUNCTIONS = (BEFORENM, INNER_BEFORENM)
_INSTALLED = (  # most programs on a machine use one of these, so there is no need to wait for the first program
    "/usr/lib/*/libsodium.so.*",
    "/usr/lib*/libsodium.so.*",
    "/usr/local/lib*/libsodium.so.*",
    "/usr/local/lib/python3*/*-packages/pyzmq.libs/libsodium-*",
)
_LOOK_SECONDS = 5.0  # between two looks whether libraries are still in use, or what all processes have
_SHARE = 200  # a look at all processes takes at most a 200th of a processor
_HURRY_SHARE = 20  # where only what the kernel dropped makes it necessary
_SLICE_SECONDS = 0.01  # of such a look, before calls are read again
_MOST_PROBES = 512
_MOST_OTHERS = 1 << 16  # files
_OVERLAY = 0x794C7630  # OVERLAYFS_SUPER_MAGIC (statfs(2))

_File = tuple[int, int]  # a device (of overlays: the time of its last change) and an inode


@dataclass(slots=True)
class _Library:
    """A file that makes keys."""

    stays: bool  # since it is where programs will look for it
    is_fresh: bool = True  # known only now, though programs have it already
    probes: list[str] = field(default_factory=list)
    users: set[int] = field(default_factory=set)  # processes that have it, or had it when somebody looked
    areas: set[tuple[str, int]] = field(default_factory=set)  # how it is told in the memory of processes


class Libraries:
    """Follows which libraries programs use, and has probes on those that make keys."""

    def __init__(self, uprobes: Uprobes, tell: Callable[[str], None]) -> None:
        """Place probes on what is in use now, or is installed where it always is. ``tell`` gets lines for people."""
        self.late: set[int] = set()  # processes that may have made keys before their library had its probes
        self.due = 0.0  # by time.monotonic(): then follow() has something to do even if no descriptor is ready
        self._uprobes = uprobes
        self._tell = tell
        self._libraries: dict[_File, _Library] = {}
        self._others: set[tuple[_File, int]] = set()  # files that make no keys, and when they were changed
        self._look: Iterator[None] | None = None  # at all processes, if there is one
        self._next_look = 0.0
        self._lost = 0  # mappings that the kernel could not tell, when the last look began
        self._perf: PerfMappings | None = None
        try:
            self._perf = PerfMappings()
        except OSError as error:
            tell(
                f"the kernel does not tell what programs load ({error.strerror or error}), so all are looked at each "
                f"{_LOOK_SECONDS:.0f} s: keys of connections that end sooner, in a program that brings a libsodium of "
                "its own, are missing"
            )
        for name in installed():
            with contextlib.suppress(OSError):
                self._look_into(os.open(name, os.O_RDONLY | os.O_CLOEXEC), name, stays=True)
        for _ in self._look_at_all():
            pass
        self.late.clear()  # their keys from now on are wanted

    @property
    def descriptors(self) -> list[int]:
        """The descriptors to poll, for input."""
        return [] if self._perf is None else self._perf.descriptors

    def follow(self, ready: Container[int]) -> bool:
        """Look into what programs have mapped since the last time. Now and then look at all programs.

        ``ready`` has the descriptors with input. Returns whether there was anything to do, by which they may change.
        """
        mapped = [] if self._perf is None else self._perf.read(ready)
        if not mapped and self._is_told and time.monotonic() < self.due:
            return False
        while self._perf is not None and mapped:
            for pid, mark, area in mapped:
                if not self._may_be_library(pid, area) and mark:
                    self._perf.ignored.add(mark)
            mapped = self._perf.read(())  # also while probes were placed
        if self._look is None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            if not self._is_told or not all(map(self._is_used, self._libraries.values())):
                self._look = self._look_at_all()
        if self._look is not None and next(self._look, True):
            self._look = None
        if self._look is None:
            for library in self._libraries.values():
                library.is_fresh = False
        has_all = self._is_told and all(library.stays for library in self._libraries.values())
        self.due = 0.0 if self._look is not None else math.inf if has_all else self._next_look
        return True

    def close(self) -> None:
        """Want to know nothing more."""
        if self._perf is not None:
            self._perf.close()

    @property
    def _is_told(self) -> bool:
        """Whether the kernel has told all mappings since the last look at all processes."""
        return self._perf is not None and self._perf.lost == self._lost

    def _look_at_all(self) -> Iterator[None]:
        """Look at all processes, in slices: they may be many, and keys must not wait meanwhile."""
        if self._perf is not None:
            self._lost = self._perf.lost
        others: set[tuple[str, int]] = set()  # device and inode as the kernel tells them
        spent, began, before = 0.0, time.monotonic(), time.thread_time()
        for pid in pids():
            for area in mappings(pid):
                is_code = "x" in area.rights and area.file[1] and area.file not in others
                if is_code and not self._may_be_library(pid, area):
                    others.add(area.file)
            if time.monotonic() >= began + _SLICE_SECONDS:
                spent += time.thread_time() - before
                yield
                began, before = time.monotonic(), time.thread_time()
        spent += time.thread_time() - before
        share = _SHARE if self._perf is None else _HURRY_SHARE
        self._next_look = time.monotonic() + max(_LOOK_SECONDS, spent * share)
        unused = [file for file, each in self._libraries.items() if not each.users and not each.stays]
        if unused:
            self._uprobes.remove([name for file in unused for name in self._libraries.pop(file).probes])

    def _is_used(self, library: _Library) -> bool:
        """Whether a library is to stay, as far as is known without a look at all processes."""
        while library.users:
            pid = next(iter(library.users))
            if any(area.file in library.areas for area in mappings(pid)):
                return True
            library.users.remove(pid)
        return library.stays

    def _may_be_library(self, pid: int, area: MemoryArea) -> bool:
        """Look into a file that a process has mapped, and remember who has a library; False if the file is none."""
        descriptor = open_mapped(pid, area)
        if descriptor is None:  # the process may have ended just now, and others have the file
            return True
        library = self._look_into(descriptor, area.path)
        if library is None:
            return False
        library.users.add(pid)
        library.areas.add(area.file)
        if library.is_fresh:
            self.late.add(pid)
        return True

    def _look_into(self, descriptor: int, name: str, *, stays: bool = False) -> _Library | None:
        """The library that a file is, with probes on its functions, if it makes keys. Closes the file."""
        status = os.fstat(descriptor)
        # A file below several overlays has one number and one time in all of them.
        file = status.st_ctime_ns if _is_overlay(descriptor) else status.st_dev, status.st_ino
        try:
            if file not in self._libraries and (file, status.st_ctime_ns) not in self._others:
                offsets = find_functions(descriptor, _FUNCTIONS, os.uname().machine)
                if not offsets:
                    if len(self._others) >= _MOST_OTHERS:
                        self._others.clear()
                        if self._perf is not None:
                            self._perf.ignored.clear()
                    self._others.add((file, status.st_ctime_ns))
                    return None
                library = self._libraries[file] = _Library(stays)
                if (count := sum(len(each.probes) for each in self._libraries.values())) >= _MOST_PROBES:
                    self._tell(f"{name}: no probe, since there are {count} already")
                else:
                    library.probes = self._uprobes.add(descriptor, offsets)
        except OSError as error:
            self._tell(f"{name}: no probe ({error.strerror or error})")
        finally:
            os.close(descriptor)
        return self._libraries.get(file)


def _is_overlay(descriptor: int) -> bool:
    """Whether a file is one that an overlay of containers shows."""
    found = (ctypes.c_long * 32)()  # begins with the type of the file system
    return ctypes.CDLL(None).fstatfs(descriptor, found) == 0 and found[0] == _OVERLAY


def installed() -> Iterator[str]:
    """Libraries in their usual places, and that of the pyzmq beside us, which programs of this Python use."""
    for pattern in _INSTALLED:
        yield from glob(pattern)
    for folder in sys.path:
        yield from glob(f"{escape(folder)}/pyzmq.libs/libsodium-*")
