"""The libraries in use that make CURVE's shared keys. Their symbol shows them, in files that processes have mapped."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from glob import escape, glob
from importlib.util import find_spec

from zmtpsniff.host.elf import find_functions
from zmtpsniff.host.processes import mappings, open_mapped, pids
from zmtpsniff.host.uprobes import BEFORENM, INNER_BEFORENM, MOST_PROBES, Uprobes

_FUNCTIONS = (BEFORENM, INNER_BEFORENM)
_INSTALLED = (  # most programs on a machine use one of these, so there is no need to wait for the first program
    "/usr/lib/*/libsodium.so.*",
    "/usr/lib*/libsodium.so.*",
    "/usr/local/lib*/libsodium.so.*",
    "/usr/lib/python3/dist-packages/pyzmq.libs/libsodium-*",
    "/usr/local/lib/python3*/*-packages/pyzmq.libs/libsodium-*",
)
_LEAST_SECONDS = 1.0  # between two looks at all processes
_SHARE = 20  # a look takes at most a 20th of the time
_SLICE_SECONDS = 0.01  # of a look at all processes, before calls are read again
_YOUNG_SECONDS = 3.0  # a new program loads what it needs in this time, and is looked at each time
_YOUNG_LOOKS = 150  # at least so long: on a busy machine both it and we get less of a processor


class Libraries:
    """Follows which libraries programs use, and places probes on those that make keys."""

    def __init__(self, uprobes: Uprobes) -> None:
        """Place probes on what is in use now, or is installed where it always is."""
        self.faults: list[str] = []  # lines for people
        self._uprobes = uprobes
        self._known: set[tuple[str, int]] = set()  # mapped files that have been looked into
        self._probed: set[tuple[int, int]] = set()
        self._young: dict[int, tuple[float, int]] = {}  # processes, until when they are, and the looks that are left
        for name in installed():
            self._open(name)
        self._left: list[int] = []  # processes that a look at all has still to come to
        self._spent = 0.0  # seconds, by that look
        self._look(pids())
        self._next_look = time.monotonic() + _LEAST_SECONDS

    def follow(self) -> None:
        """Look for new programs, and now and then at all programs. Call it some 50 times a second."""
        now = time.monotonic()
        for pid in self._uprobes.executed:
            self._young[pid] = now + _YOUNG_SECONDS, _YOUNG_LOOKS
        self._uprobes.executed.clear()
        self._young = {
            pid: (until, looks - 1)
            for pid, (until, looks) in self._young.items()
            if (until > now or looks > 0) and os.path.exists(f"/proc/{pid}")
        }
        self._look(self._young)
        if not self._left and now >= self._next_look:
            self._left, self._spent = pids(), 0.0
        if self._left:
            self._look_on()

    def _look_on(self) -> None:
        """Continue the look at all processes. They may be many, and keys must not wait meanwhile."""
        began = now = time.monotonic()
        while self._left and now - began < _SLICE_SECONDS:
            self._look([self._left.pop()])
            now = time.monotonic()
        self._spent += now - began
        if not self._left:
            self._next_look = now + max(_LEAST_SECONDS, self._spent * _SHARE)

    def _look(self, processes: Iterable[int]) -> None:
        for pid in processes:
            for mapping in mappings(pid):
                if "x" in mapping.rights and mapping.file[1] and mapping.file not in self._known:
                    descriptor = open_mapped(pid, mapping)
                    if descriptor is not None:  # else the process may have ended just now, and others have the file
                        self._known.add(mapping.file)
                        self._take(descriptor, mapping.path)

    def _open(self, name: str) -> None:
        try:
            self._take(os.open(name, os.O_RDONLY | os.O_CLOEXEC), name)
        except OSError:
            return

    def _take(self, descriptor: int, name: str, functions: Sequence[str] = _FUNCTIONS) -> None:
        """Place probes on the functions of a file, if it has any, and close it."""
        try:
            status = os.fstat(descriptor)
            file = status.st_dev, status.st_ino
            program = find_functions(descriptor, functions)
            if program is None or file in self._probed:
                return
            self._probed.add(file)
            if program.machine != os.uname().machine:
                return
            if self._uprobes.count + len(program.offsets) > MOST_PROBES:
                self.faults.append(f"{name}: no probe, since there are {self._uprobes.count} already")
                return
            self._uprobes.add(descriptor, program.machine, program.offsets)
        except OSError as error:
            self.faults.append(f"{name}: no probe ({error.strerror or error})")
        finally:
            os.close(descriptor)


def installed() -> Iterator[str]:
    """Libraries in their usual places, and that of the pyzmq beside us, which programs of this Python use."""
    for pattern in _INSTALLED:
        yield from glob(pattern)
    spec = find_spec("zmq")
    if spec is not None and spec.origin is not None:
        packages = os.path.dirname(os.path.dirname(spec.origin))
        yield from glob(f"{escape(packages)}/pyzmq.libs/libsodium-*")
