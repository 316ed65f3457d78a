"""The libraries in use that make CURVE's shared keys. Their symbol shows them, in files that processes have mapped."""

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from glob import escape, glob
from importlib.util import find_spec

from zmtpsniff.host.elf import find_functions
from zmtpsniff.host.perf_mappings import PerfMappings
from zmtpsniff.host.processes import MemoryArea, mappings, open_mapped, pids
from zmtpsniff.host.uprobes import BEFORENM, INNER_BEFORENM, MOST_PROBES, Uprobes

_FUNCTIONS = (BEFORENM, INNER_BEFORENM)
_INSTALLED = (  # most programs on a machine use one of these, so there is no need to wait for the first program
    "/usr/lib/*/libsodium.so.*",
    "/usr/lib*/libsodium.so.*",
    "/usr/local/lib*/libsodium.so.*",
    "/usr/lib/python3/dist-packages/pyzmq.libs/libsodium-*",
    "/usr/local/lib/python3*/*-packages/pyzmq.libs/libsodium-*",
)
_LOOK_SECONDS = 5.0  # between two looks whether libraries are still in use, or what all processes have
_SHARE = 200  # such looks take at most a 200th of the time
_HURRY_SHARE = 20  # those that make up for what the kernel dropped take at most a 20th
_SLICE_SECONDS = 0.01  # of such a look, before calls are read again
_MOST_KNOWN = 1 << 16  # files

_File = tuple[str, int, int]
"""A file that is mapped: a device, an inode, and the generation of the inode if the kernel told it, else 0."""

_Place = tuple[int, int]
"""A file that is opened: a device (of overlays: the time of its last change) and an inode."""


@dataclass(slots=True)
class _Library:
    """A file that makes keys."""

    stays: bool  # since it is where programs will look for it
    probes: list[str] = field(default_factory=list)
    users: set[int] = field(default_factory=set)  # processes that have it, or had it when somebody looked
    areas: set[tuple[str, int]] = field(default_factory=set)  # how it is told in the memory of processes


class Libraries:
    """Follows which libraries programs use, and has probes on those that make keys."""

    def __init__(self, uprobes: Uprobes) -> None:
        """Place probes on what is in use now, or is installed where it always is."""
        self.faults: list[str] = []  # lines for people
        self.late: set[int] = set()  # processes that may have made keys before their library had its probes
        self._uprobes = uprobes
        self._known: dict[_File, _Place | None] = {}  # files that have been looked into; None if it makes no keys
        self._libraries: dict[_Place, _Library] = {}
        self._fresh: set[_Place] = set()  # libraries that are known only now, though programs have them already
        self._left: list[int] = []  # processes that a look at all has still to come to
        self._seen: set[_File] = set()  # by that look
        self._spent = 0.0  # seconds, by that look
        self._next_look = self._earliest = 0.0
        self._lost = 0  # mappings that the kernel could not tell, when the last look began
        self._perf: PerfMappings | None = None
        try:
            self._perf = PerfMappings()
        except OSError as error:
            self.faults.append(
                f"the kernel does not tell what programs load ({error.strerror or error}), so all are looked at each "
                f"{_LOOK_SECONDS:.0f} s: keys of connections that end sooner, in a program that brings a libsodium of "
                "its own, are missing"
            )
        for name in installed():
            self._open(name)
        self._begin_look()
        while self._left:
            self._look_on()
        self.late.clear()  # their keys from now on are wanted

    @property
    def descriptors(self) -> list[int]:
        """The descriptors to poll, for input."""
        return [] if self._perf is None else self._perf.descriptors

    @property
    def patience(self) -> float | None:
        """The seconds after which follow() has something to do even if no descriptor is ready; None if never."""
        if self._left:
            return 0
        if self._perf is not None and not self._is_lacking and all(each.stays for each in self._libraries.values()):
            return None
        return max(0.0, self._next_look - time.monotonic())

    def follow(self) -> None:
        """Look into what programs have mapped since the last time. Now and then look at all programs."""
        while self._perf is not None and (mapped := self._perf.read()):  # also while probes were placed
            for pid, generation, area in mapped:
                self._take(pid, area, generation)
        if self._is_lacking:
            self._next_look = min(self._next_look, self._earliest)
        if self._left:
            self._look_on()
        elif time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            are_used = [self._is_used(library) for library in self._libraries.values()]
            if self._perf is None or self._is_lacking or not all(are_used):
                self._begin_look()
        if not self._left:
            self._fresh.clear()

    def close(self) -> None:
        """Want to know nothing more."""
        if self._perf is not None:
            self._perf.close()

    @property
    def _is_lacking(self) -> bool:
        """Whether there were mappings that the kernel could not tell, and no look at all processes since."""
        return self._perf is not None and self._perf.lost > self._lost

    def _begin_look(self) -> None:
        self._left, self._spent = pids(), 0.0
        self._seen.clear()
        if self._perf is not None:
            self._lost = self._perf.lost

    def _look_on(self) -> None:
        """Continue the look at all processes. They may be many, and keys must not wait meanwhile."""
        began = now = time.monotonic()
        while self._left and now - began < _SLICE_SECONDS:
            pid = self._left.pop()
            for area in mappings(pid):
                if "x" in area.rights and area.file[1]:
                    self._seen.add((*area.file, 0))
                    self._take(pid, area)
            now = time.monotonic()
        self._spent += now - began
        if not self._left:
            self._earliest = now + self._spent * _HURRY_SHARE
            self._next_look = now + max(_LOOK_SECONDS, self._spent * _SHARE)
            # A file that nobody has may become another one with its number.
            self._known = {file: place for file, place in self._known.items() if file[2] or file in self._seen}
            self._forget()

    def _is_used(self, library: _Library) -> bool:
        """Whether a library is to stay, as far as is known without a look at all processes."""
        while library.users:
            pid = next(iter(library.users))
            if any(area.file in library.areas for area in mappings(pid)):
                return True
            library.users.remove(pid)
        return library.stays

    def _forget(self) -> None:
        """Forget the libraries that no process has, now that all have been looked at."""
        for place, library in [*self._libraries.items()]:
            if not library.users and not library.stays:
                del self._libraries[place]
                self._known = {file: known for file, known in self._known.items() if known != place}
                self._uprobes.remove(library.probes)

    def _take(self, pid: int, area: MemoryArea, generation: int = 0) -> None:
        """Look into a file that a process has mapped, if it is new, and remember who has a library."""
        file = *area.file, generation
        if file not in self._known:
            descriptor = open_mapped(pid, area)
            if descriptor is None:  # the process may have ended just now, and others have the file
                return
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[file] = self._place(descriptor, area.path, is_overlay=_is_overlay(pid, area.file[0]))
        place = self._known[file]
        if place is not None:
            library = self._libraries[place]
            library.users.add(pid)
            library.areas.add(area.file)
            if place in self._fresh:
                self.late.add(pid)

    def _open(self, name: str) -> None:
        try:
            self._place(os.open(name, os.O_RDONLY | os.O_CLOEXEC), name, stays=True)
        except OSError:
            return

    def _place(self, descriptor: int, name: str, *, stays: bool = False, is_overlay: bool = False) -> _Place | None:
        """Place probes on the functions of a file, if it has any and none are there, and close it."""
        try:
            status = os.fstat(descriptor)
            # A file below several overlays has one number and one time in all of them.
            place = status.st_ctime_ns if is_overlay else status.st_dev, status.st_ino
            program = None if place in self._libraries else find_functions(descriptor, _FUNCTIONS)
            if program is None or program.machine != os.uname().machine:
                return place if place in self._libraries else None
            library = self._libraries[place] = _Library(stays)
            self._fresh.add(place)
            if self._uprobes.count + len(program.offsets) > MOST_PROBES:
                self.faults.append(f"{name}: no probe, since there are {self._uprobes.count} already")
            else:
                library.probes = self._uprobes.add(descriptor, program.machine, program.offsets)
        except OSError as error:
            self.faults.append(f"{name}: no probe ({error.strerror or error})")
        finally:
            os.close(descriptor)
        return place


def _is_overlay(pid: int, device: str) -> bool:
    """Whether a process sees a device, such as "00:2b", as an overlay of containers."""
    major, minor = (int(number, 16) for number in device.split(":"))
    mounted = re.compile(rf"^\d+ \d+ {major}:{minor} .* - overlay ", re.M)
    try:
        with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="replace") as file:
            return major == 0 and mounted.search(file.read()) is not None
    except OSError:
        return False


def installed() -> Iterator[str]:
    """Libraries in their usual places, and that of the pyzmq beside us, which programs of this Python use."""
    for pattern in _INSTALLED:
        yield from glob(pattern)
    spec = find_spec("zmq")
    if spec is not None and spec.origin is not None:
        packages = os.path.dirname(os.path.dirname(spec.origin))
        yield from glob(f"{escape(packages)}/pyzmq.libs/libsodium-*")
