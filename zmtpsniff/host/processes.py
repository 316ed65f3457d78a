"""Processes in /proc: the files that they have mapped, their names, their containers (proc(5))."""

import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from dissectors.events import Process

_CONTAINER = re.compile(
    r"(?:docker|cri-containerd|crio|libpod|containerd|garden|machine|lxc)[-/:.]?.*?([0-9a-f]{12,64})"
)
_PLAIN_CONTAINER = re.compile(r"/(?:lxc(?:\.payload)?[./]|machine\.slice/machine-)([^/]+)")
# A uid, as systemd or cgroupfs writes it; that of a static pod has no dashes.
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})\b")
_PODS = "/var/log/pods"  # where the kubelet has a folder for each pod of this machine: NAMESPACE_NAME_UID
_ID_SHOWN = 12  # digits, as container tools show them


class MemoryArea(NamedTuple):
    """A piece of a file, or of no file, in the memory of a process."""

    begin: int
    end: int
    rights: str  # such as "rw-p"
    file: tuple[str, int]  # device and inode; 0 as inode is no file
    path: str  # in the process's own mount namespace


def pids() -> list[int]:
    """The processes there are."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def mappings(pid: int) -> Iterator[MemoryArea]:
    """The files that a process has mapped; none if it has ended, or may not be looked at."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:
        return
    for line in lines:
        fields = line.rstrip("\n").split(maxsplit=5)
        begin, _, end = fields[0].partition("-")
        yield MemoryArea(
            int(begin, 16),
            int(end, 16),
            fields[1],
            (fields[3], int(fields[4])),
            fields[5] if len(fields) > 5 else "",
        )


def open_mapped(pid: int, mapping: MemoryArea) -> int | None:
    """A descriptor of the file that is mapped, also if its name is gone or is another container's; None if it fails."""
    for name in (f"/proc/{pid}/map_files/{mapping.begin:x}-{mapping.end:x}", f"/proc/{pid}/root{mapping.path}"):
        try:
            if stat.S_ISREG(os.stat(name).st_mode):  # opening a device may do something
                return os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
    return None


def started(pid: int) -> str | None:
    """A mark that tells a process from a later one of the same number: its start, in ticks since the system's."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None


def process_of(thread: int) -> int:
    """The process that a thread belongs to; the thread's number itself if it has ended."""
    try:
        with open(f"/proc/{thread}/status", "rb") as file:
            found = re.search(rb"^Tgid:\s*(\d+)$", file.read(), re.M)
    except OSError:
        return thread
    return int(found[1]) if found else thread


def look_up(pid: int) -> Process | None:
    """A process by its number; None if it has ended."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            name = file.read().rstrip(b"\n").decode(errors="backslashreplace")
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="backslashreplace") as file:
            groups = file.read()
    except OSError:
        return None
    return Process(pid, name, container_of(groups), pod_of(groups))


def container_of(groups: str) -> str | None:
    """The container that control groups (/proc/PID/cgroup) name: the first digits of its id, or its name."""
    if found := _CONTAINER.search(groups):
        return found[1][:_ID_SHOWN]
    if found := _PLAIN_CONTAINER.search(groups):
        return found[1]
    return None


def pod_of(groups: str) -> str | None:
    """The pod that control groups name, as namespace/name; None without one, or without the folders of the kubelet."""
    found = _POD.search(groups)
    if found is None:
        return None
    uid = found[1].replace("_", "-")
    try:
        folders = os.listdir(_PODS)
    except OSError:
        return None
    for folder in folders:
        namespace, _, rest = folder.partition("_")
        name, _, its_uid = rest.rpartition("_")
        if its_uid == uid:
            return f"{namespace}/{name}"
    return None
