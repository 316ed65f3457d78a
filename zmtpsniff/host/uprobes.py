"""Probes on functions of other programs, which the kernel places and reads (uprobes through tracefs).

Nothing is compiled, loaded or injected. The kernel puts a breakpoint at the beginning of a function in a file, for all
processes that have the file mapped, now or later. At each call it records the octets that the arguments point to. The
records go to an instance of tracefs of our own, so they do not disturb other tracing.
(Documentation/trace/uprobetracer.rst of the kernel; tracefs(5))
"""

import contextlib
import ctypes
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from glob import glob
from typing import NamedTuple

from zmtpsniff.host.processes import read_text, started

BEFORENM = "crypto_box_beforenm"
INNER_BEFORENM = "crypto_box_curve25519xsalsa20poly1305_beforenm"
"""The functions that crypto_box() and crypto_box_open() of libsodium call, and crypto_box_beforenm() hands over to."""

_TRACEFS = "/sys/kernel/tracing"
_PREFIX = "zmtpsniff_"
_SYS_ADMIN = 21  # CAP_SYS_ADMIN
# A connection takes 2 KiB of the kernel's buffers. Each processor has a buffer.
_BUFFERS_KIB = 32_768  # of all
_MOST_BUFFER_KIB = 4096  # of one
# The second and the third argument, by the kernel's names of their registers.
_REGISTERS = {"x86_64": ("si", "dx"), "aarch64": ("x1", "x2")}
_WORDS = 4  # of a key
_READ_SIZE = 1 << 16
_REMOVAL_SECONDS = 2.0
_LINE = re.compile(rb"-(\d+) +\[\d+\] .{0,40}? ([bi])\d+: \(0x[0-9a-f]+\)((?: [ps]\d=0x[0-9a-f]{1,16}){8})$")
_LOST = re.compile(rb"\[LOST (\d+) EVENTS\]")


class NoUprobesError(Exception):
    """The kernel gives no probes to this process; its text is one line that says why."""


class BeforenmCall(NamedTuple):
    """A call of a function that makes a shared key."""

    thread: int
    function: str
    public_key: bytes
    secret_key: bytes


class Uprobes:
    """Probes of this process, from its beginning to close()."""

    def __init__(self) -> None:
        """Make an instance of tracefs, and remove what a run before left that was killed; raises NoUprobesError."""
        self._folder = find_tracefs()
        self._events = f"{self._folder}/uprobe_events"
        self._group = f"{_PREFIX}{os.getpid()}_{started(os.getpid())}"
        self._names: list[str] = []  # of the probes there are
        self._made = 0  # probes and instances, so far
        self._calls: list[BeforenmCall] = []  # that have been read, but not given out
        self._rest = b""
        self.descriptor = -1  # to poll, for input
        self.lost = 0  # calls that came too fast to be read
        remove_left(self._folder)
        try:
            self._open_instance()
        except OSError as error:
            self.close()
            raise NoUprobesError(reason(error)) from error

    def add(self, descriptor: int, offsets: dict[str, int]) -> list[str]:
        """Place probes on functions of an open file, in every process that has it mapped or will; returns their names.

        ``offsets`` says where in the file those of BEFORENM and INNER_BEFORENM are that it has. Raises OSError.
        """
        names = []
        arguments = " ".join(
            f"{letter}{word}=+{word * 8}(%{register}):x64"
            for letter, register in zip("ps", _REGISTERS[os.uname().machine], strict=True)
            for word in range(_WORDS)
        )
        for function, offset in offsets.items():
            names.append(name := f"{'b' if function == BEFORENM else 'i'}{self._made}")
            self._made += 1
            # Named by its descriptor, for spaces in a name end it.
            _write(self._events, f"p:{self._group}/{name} /proc/self/fd/{descriptor}:{offset:#x} {arguments}\n")
            self._enable(name)
            self._names.append(name)
        return names

    def remove(self, names: Sequence[str]) -> None:
        """Take some of the probes away.

        The kernel empties an instance in which a probe was that goes. So another instance takes over before. Calls that
        come meanwhile are in both.
        """
        self._names = [name for name in self._names if name not in names]
        instance, descriptor = self._instance, self.descriptor
        self._open_instance()
        _write(f"{instance}/events/enable", "0")
        self._read(descriptor)
        os.close(descriptor)
        os.rmdir(instance)
        for name in names:
            _write(self._events, f"-:{self._group}/{name}\n")

    def read(self) -> list[BeforenmCall]:
        """The calls since the last time."""
        self._read(self.descriptor)
        calls, self._calls = self._calls, []
        return calls

    def close(self) -> None:
        """Take everything away again; twice does no harm."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        _remove(self._folder, self._group)

    def _open_instance(self) -> None:
        """Have the calls of all probes come into a new instance from now on; raises OSError."""
        self._instance = f"{self._folder}/instances/{self._group}_{self._made}"
        self._made += 1
        os.mkdir(self._instance)
        buffer_kib = min(_MOST_BUFFER_KIB, _BUFFERS_KIB // (os.cpu_count() or 1) + 1)
        _write(f"{self._instance}/buffer_size_kb", f"{buffer_kib}")
        _write(f"{self._instance}/set_event_notrace_pid", f"{os.getpid()}")  # what we compute ourselves is no news
        with contextlib.suppress(OSError):  # since 5.0; before, a poll ends at each event
            _write(f"{self._instance}/buffer_percent", "0")
        self.descriptor = os.open(f"{self._instance}/trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        for name in self._names:
            self._enable(name)

    def _read(self, descriptor: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(descriptor, _READ_SIZE):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    if call := parse_call(line):
                        self._calls.append(call)
                    elif found := _LOST.search(line):
                        self.lost += int(found[1])

    def _enable(self, name: str) -> None:
        _write(f"{self._instance}/events/{self._group}/{name}/enable", "1")


def parse_call(line: bytes) -> BeforenmCall | None:
    """A call, from a line of the kernel; None if it is none, or one that gave no keys."""
    found = _LINE.search(line)
    if found is None:
        return None
    keys = b"".join(int(word[5:], 16).to_bytes(8, "little") for word in found[3].split())
    return BeforenmCall(int(found[1]), BEFORENM if found[2] == b"b" else INNER_BEFORENM, keys[:32], keys[32:])


def find_tracefs() -> str:
    """The folder of tracefs; mounts it if need be. Raises NoUprobesError if it offers no probes."""
    if sys.platform != "linux" or os.uname().machine not in _REGISTERS:
        raise NoUprobesError("keys are taken from programs on Linux only, and there only on x86_64 and aarch64")
    if os.geteuid() != 0:
        raise NoUprobesError("only root may take keys from programs: run it with sudo")
    if not os.path.isdir(_TRACEFS):
        raise NoUprobesError("this kernel cannot trace: it was built without CONFIG_FTRACE")
    if not os.path.exists(f"{_TRACEFS}/trace"):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"tracefs", _TRACEFS.encode(), b"tracefs", 0, None) != 0:
            raise NoUprobesError(reason(OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))))
    if not os.path.exists(f"{_TRACEFS}/uprobe_events"):
        raise NoUprobesError("this kernel has no probes for programs: it was built without CONFIG_UPROBE_EVENTS")
    return _TRACEFS


def reason(error: OSError) -> str:
    """One line that says why tracefs refused root."""
    what = error.strerror
    if "[confidentiality]" in read_text("/sys/kernel/security/lockdown"):
        return f"the kernel is locked down, which forbids probes ({what}): boot with lockdown=integrity, or without"
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)$", read_text("/proc/self/status"), re.M)
    if capabilities is None or not int(capabilities[1], 16) >> _SYS_ADMIN & 1:
        return f"root of a container may not place probes ({what}): run it on the host, which sees into containers"
    return f"the kernel places no probes ({what}): in a container run it on the host"


def remove_left(folder: str, is_alive: Callable[[int], str | None] = started) -> list[str]:
    """Remove the probes of runs that were killed; returns their groups. ``is_alive`` is for tests."""
    left = []
    with contextlib.suppress(OSError):
        for instance in os.listdir(f"{folder}/instances"):
            found = re.fullmatch(rf"({_PREFIX}(\d+)_(\d+))_\d+", instance)
            if found and found[1] not in left and is_alive(int(found[2])) != found[3]:
                left.append(found[1])
                _remove(folder, found[1])
    return left


def _remove(folder: str, group: str) -> None:
    """Remove the probes of a group, and last its instances: while these are there, probes may be left."""
    deadline = time.monotonic() + _REMOVAL_SECONDS
    is_late = False  # looked at behind a try, since a busy machine may let this wait for longer
    while (instances := glob(f"{folder}/instances/{group}_*")) and not is_late:
        is_late = time.monotonic() >= deadline
        try:
            for instance in instances:
                _write(f"{instance}/events/enable", "0")
            # Not from uprobe_events: a read of it may leave lines out while others place and remove theirs.
            for probe in glob(f"{folder}/events/{group}/*/"):
                _write(f"{folder}/uprobe_events", f"-:{group}/{os.path.basename(probe[:-1])}\n")
            for instance in instances:
                os.rmdir(instance)
        except OSError:  # somebody reads it
            time.sleep(0.02)


def _write(name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
