"""Processes in /proc: the files that they have mapped, their names, their containers (proc(5))."""

import os
import re
import stat
from collections.abc import Iterator
from glob import escape, glob
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


def read_text(name: str, errors: str = "backslashreplace") -> str:
    """The content of a file of the kernel; empty if there is none, or it may not be read."""
    try:
        with open(name, encoding="utf-8", errors=errors, newline="\n") as file:
            return file.read()
    except OSError:
        return ""


def mappings(pid: int) -> Iterator[MemoryArea]:
    """The files that a process has mapped; none if it has ended, or may not be looked at."""
    for line in read_text(f"/proc/{pid}/maps", "surrogateescape").split("\n")[:-1]:
        place, rights, _, device, inode, *path = line.split(maxsplit=5)
        begin, end = (int(bound, 16) for bound in place.split("-"))
        yield MemoryArea(begin, end, rights, (device, int(inode)), path[0] if path else "")


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
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if fields else None


def process_of(thread: int) -> int:
    """The process that a thread belongs to; the thread's number itself if it has ended."""
    found = re.search(r"^Tgid:\s*(\d+)$", read_text(f"/proc/{thread}/status"), re.M)
    return int(found[1]) if found else thread


def look_up(pid: int) -> Process | None:
    """A process by its number; None if it has ended."""
    name, groups = (read_text(f"/proc/{pid}/{file}") for file in ("comm", "cgroup"))
    return Process(pid, name.rstrip("\n"), container_of(groups), pod_of(groups)) if name else None


def container_of(groups: str) -> str | None:
    """The container that control groups (/proc/PID/cgroup) name: the first digits of its id, or its name."""
    if found := _CONTAINER.search(groups):
        return found[1][:_ID_SHOWN]
    found = _PLAIN_CONTAINER.search(groups)
    return found[1] if found else None


def pod_of(groups: str) -> str | None:
    """The pod that control groups name, as namespace/name; None without one, or without the folders of the kubelet."""
    if found := _POD.search(groups):
        for folder in glob(f"{escape(_PODS)}/*_*_{found[1].replace('_', '-')}"):
            namespace, name = os.path.basename(folder).split("_")[:2]
            return f"{namespace}/{name}"
    return None
