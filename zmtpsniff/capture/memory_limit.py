"""How much memory this process may have: the limits that systemd and Kubernetes set for its control groups (Linux)."""

from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def memory_limit(groups: Path = _GROUPS, root: Path = _ROOT) -> int | None:
    """The lowest limit in octets, None if there is none, or nothing tells.

    ``groups`` says in which groups the process is, ``root`` has their folders, as cgroups(7) describes both.
    """
    found = []
    for file in _files(groups, root):
        try:
            found.append(int(file.read_text()))
        except (OSError, ValueError):  # no such file; "max"
            continue
    return min(found, default=None)


def _files(groups: Path, root: Path) -> Iterator[Path]:
    """The files that may hold a limit, of each group and all above it."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base, names = (
            (root / "memory", ["memory.limit_in_bytes"]) if controllers else (root, ["memory.max", "memory.high"])
        )
        folder = base / name.strip("/")
        for each in (folder, *folder.parents):
            if not each.is_relative_to(base):
                break
            yield from (each / file for file in names)
