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
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from zmtpsniff.host.processes import started

KEY_SIZE = 32
BEFORENM = "crypto_box_beforenm"
INNER_BEFORENM = "crypto_box_curve25519xsalsa20poly1305_beforenm"
"""The functions that crypto_box() and crypto_box_open() of libsodium call, and that crypto_box_beforenm() hands over
to.
"""

MOST_PROBES = 512

_FILESYSTEMS = "/proc/filesystems"
_FOLDERS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_PREFIX = "zmtpsniff_"
# A connection takes 2 KiB of the kernel's buffers. Each processor has a buffer.
_BUFFERS_KIB = 32_768  # of all
_MOST_BUFFER_KIB = 4096  # of one
# The second and the third argument, by the kernel's names of their registers.
_REGISTERS = {"x86_64": ("si", "dx"), "aarch64": ("x1", "x2")}
_WORDS = KEY_SIZE // 8
_READ_SIZE = 1 << 16
_REMOVAL_SECONDS = 2.0
_LINE = re.compile(
    rb"-(\d+) +\[\d+\] .{0,40}? (?:(?P<probe>[bi])\d+: \(0x[0-9a-f]+\)(?P<words>(?: [ps]\d=0x[0-9a-f]+)*)$)"
)
_LOST = re.compile(rb"\[LOST (\d+) EVENTS\]")


class NoUprobesError(Exception):
    """The kernel gives no probes to this process; its text is one line that says why."""


class BeforenmCall(NamedTuple):
    """A call of a function that makes a shared key."""

    pid: int
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
        self._instance = f"{self._folder}/instances/{self._group}"
        self._probes: set[str] = set()
        self._placed = 0  # so far
        self._calls: list[BeforenmCall] = []  # that have been read, but not given out
        self._pipe = -1
        self._rest = b""
        self.lost = 0  # calls that came too fast to be read
        remove_left(self._folder)
        try:
            os.mkdir(self._instance)
            buffer_kib = min(_MOST_BUFFER_KIB, _BUFFERS_KIB // (os.cpu_count() or 1) + 1)
            self._write("buffer_size_kb", f"{buffer_kib}")
            self._write("set_event_notrace_pid", f"{os.getpid()}")  # what we compute ourselves is no news
            with contextlib.suppress(OSError):  # since 5.0; before, a poll ends at each event
                self._write("buffer_percent", "0")
            self._pipe = os.open(f"{self._instance}/trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.close()
            raise NoUprobesError(reason(error)) from error

    @property
    def descriptor(self) -> int:
        """The descriptor to poll, for input."""
        return self._pipe

    @property
    def count(self) -> int:
        """How many probes there are."""
        return len(self._probes)

    def add(self, descriptor: int, machine: str, offsets: dict[str, int]) -> list[str]:
        """Place probes on functions of an open file, in every process that has it mapped or will; returns their names.

        ``offsets`` says where in the file those of BEFORENM and INNER_BEFORENM are that it has. Raises OSError.
        """
        names = []
        public, secret = _REGISTERS[machine]
        arguments = " ".join(
            f"{letter}{word}=+{word * 8}(%{register}):x64"
            for letter, register in (("p", public), ("s", secret))
            for word in range(_WORDS)
        )
        for function, offset in offsets.items():
            name = f"{'b' if function == BEFORENM else 'i'}{self._placed}"
            self._placed += 1
            # Named by its descriptor, for spaces in a name end it.
            self._define(f"p:{self._group}/{name} /proc/self/fd/{descriptor}:{offset:#x} {arguments}\n")
            self._probes.add(name)
            names.append(name)
            self._write(f"events/{self._group}/{name}/enable", "1")
        return names

    def remove(self, names: Sequence[str]) -> None:
        """Take some of the probes away."""
        for name in names:
            self._write(f"events/{self._group}/{name}/enable", "0")
        self._read()  # the kernel forgets what is not read by now
        for name in names:
            self._define(f"-:{self._group}/{name}\n")
            self._probes.remove(name)

    def read(self) -> list[BeforenmCall]:
        """The calls since the last time."""
        self._read()
        calls, self._calls = self._calls, []
        return calls

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._pipe, _READ_SIZE)
            except BlockingIOError:
                data = b""
            if not data:
                return
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()[-_READ_SIZE:]
            for line in lines:
                if call := parse_call(line):
                    self._calls.append(call)
                elif found := _LOST.search(line):
                    self.lost += int(found[1])

    def close(self) -> None:
        """Take everything away again; twice does no harm."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        _remove(self._folder, self._group)
        self._probes.clear()

    def __enter__(self) -> "Uprobes":
        """Nothing more to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take the probes away, however it ends."""
        self.close()

    def _write(self, name: str, text: str) -> None:
        _write(f"{self._instance}/{name}", text)

    def _define(self, text: str) -> None:
        _write(self._events, text, os.O_APPEND)


def parse_call(line: bytes) -> BeforenmCall | None:
    """A call, from a line of the kernel; None if it is none, or one that gave no keys."""
    found = _LINE.search(line)
    if found is None:
        return None
    words = dict(word.split(b"=") for word in found["words"].split())
    try:
        keys = [
            b"".join(int(words[b"%c%d" % (letter, word)], 16).to_bytes(8, "little") for word in range(_WORDS))
            for letter in b"ps"
        ]
    except (KeyError, OverflowError):
        return None
    return BeforenmCall(int(found[1]), BEFORENM if found["probe"] == b"b" else INNER_BEFORENM, keys[0], keys[1])


def find_tracefs() -> str:
    """The folder of tracefs; mounts it if need be. Raises NoUprobesError if it offers no probes."""
    if not hasattr(os, "uname") or os.uname().sysname != "Linux":
        raise NoUprobesError("keys are taken from programs on Linux only")
    if os.uname().machine not in _REGISTERS:
        raise NoUprobesError(f"keys are not taken from programs on {os.uname().machine}, only on x86_64 and aarch64")
    if os.geteuid() != 0:
        raise NoUprobesError("only root may take keys from programs: run it with sudo")
    for folder in _FOLDERS:
        if os.path.exists(f"{folder}/uprobe_events"):
            return folder
    folder = _FOLDERS[0]
    if not os.path.isdir(folder) or not _knows_tracefs():
        raise NoUprobesError("this kernel cannot trace: it was built without CONFIG_FTRACE")
    if not os.path.exists(f"{folder}/trace"):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"tracefs", folder.encode(), b"tracefs", 0, None) != 0:
            number = ctypes.get_errno()
            raise NoUprobesError(reason(OSError(number, os.strerror(number))))
    if not os.path.exists(f"{folder}/uprobe_events"):
        raise NoUprobesError("this kernel has no probes for programs: it was built without CONFIG_UPROBE_EVENTS")
    return folder


def reason(error: OSError, lockdown: str | None = None, capabilities: int | None = None) -> str:
    """One line that says why tracefs refused root.

    ``lockdown`` and ``capabilities`` describe the kernel and this process; None to ask the kernel.
    """
    if lockdown is None:
        lockdown = _read("/sys/kernel/security/lockdown")
    if capabilities is None:
        status = re.search(r"^CapEff:\s*([0-9a-f]+)$", _read("/proc/self/status"), re.M)
        capabilities = int(status[1], 16) if status else 0
    what = error.strerror or str(error)
    if "[confidentiality]" in lockdown:
        return f"the kernel is locked down, which forbids probes ({what}): boot with lockdown=integrity, or without"
    if not capabilities >> _SYS_ADMIN & 1:
        return f"root of a container may not place probes ({what}): run it on the host, which sees into containers"
    return f"the kernel places no probes ({what}): in a container run it on the host"


_SYS_ADMIN = 21  # CAP_SYS_ADMIN


def remove_left(folder: str, is_alive: Callable[[int], str | None] = started) -> list[str]:
    """Remove the probes of runs that were killed; returns their groups. ``is_alive`` is for tests."""
    groups = set(_groups(folder))
    with contextlib.suppress(OSError):
        groups.update(name for name in os.listdir(f"{folder}/instances") if name.startswith(_PREFIX))
    left = []
    for group in groups:
        pid, _, since = group.removeprefix(_PREFIX).partition("_")
        if pid.isdecimal() and is_alive(int(pid)) != since:
            left.append(group)
            _remove(folder, group)
    return left


def _groups(folder: str) -> list[str]:
    """The groups of our probes, one for each probe."""
    return re.findall(rf"^p:({_PREFIX}\w+)/", _read(f"{folder}/uprobe_events"), re.M)


def _remove(folder: str, group: str) -> None:
    """Remove an instance, which ends its events, and then the probes of a group."""
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while True:
        with contextlib.suppress(FileNotFoundError):
            _write_quietly(f"{folder}/instances/{group}/events/enable", "0")
        try:
            os.rmdir(f"{folder}/instances/{group}")
        except FileNotFoundError:
            break
        except OSError:  # somebody reads it
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
    while names := re.findall(rf"^p:{re.escape(group)}/(\S+) ", _read(f"{folder}/uprobe_events"), re.M):
        for name in names:
            _write_quietly(f"{folder}/uprobe_events", f"-:{group}/{name}\n", os.O_APPEND)
        if time.monotonic() > deadline:
            break


def _write_quietly(name: str, text: str, flags: int = 0) -> None:
    with contextlib.suppress(OSError):
        _write(name, text, flags)


def _write(name: str, text: str, flags: int = 0) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CLOEXEC | flags)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _read(name: str) -> str:
    try:
        with open(name, encoding="utf-8", errors="backslashreplace") as file:
            return file.read()
    except OSError:
        return ""


def _knows_tracefs() -> bool:
    return "\ttracefs\n" in _read(_FILESYSTEMS)
