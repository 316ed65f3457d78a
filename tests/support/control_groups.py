"""Limits on processor and memory, as systemd and Kubernetes set them: control groups, in either of their versions."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PERIOD_US = 100_000
_CONTROLLERS = ("cpu", "memory")


class ControlGroup:
    """A group of processes that has limits together."""

    def __init__(self, cpu: Path, memory: Path) -> None:
        """The folder of each controller; both are one in version 2."""
        self._cpu = cpu
        self._memory = memory
        self._is_new = cpu == memory

    def limit_memory(self, octets: int) -> None:
        """They may have so much memory, and no swap."""
        (self._memory / ("memory.max" if self._is_new else "memory.limit_in_bytes")).write_text(str(octets))

    def limit_cpu(self, share: float) -> None:
        """They may take such a share of a core."""
        quota = round(share * _PERIOD_US)
        if self._is_new:
            (self._cpu / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        else:
            (self._cpu / "cpu.cfs_quota_us").write_text(str(quota))

    def run(self, *command: str) -> list[str]:
        """The command that runs this one in the group."""
        join = "".join(f"echo $$ >{folder}/cgroup.procs; " for folder in {self._cpu, self._memory})
        return ["sh", "-c", f'{join}exec "$@"', "sh", *command]

    def memory(self) -> int:
        """The octets that they have now, without what the kernel keeps of files for as long as it likes."""
        stat = dict(map(str.split, (self._memory / "memory.stat").read_text().splitlines()))
        return int(stat["anon" if self._is_new else "rss"])

    def killed(self) -> int:
        """How many of them the kernel ended since they wanted more memory."""
        events = self._memory / ("memory.events" if self._is_new else "memory.oom_control")
        return int(dict(map(str.split, events.read_text().splitlines()))["oom_kill"])

    def throttled(self) -> int:
        """How many periods they had to wait for processor time."""
        return int(dict(map(str.split, (self._cpu / "cpu.stat").read_text().splitlines()))["nr_throttled"])

    def end(self) -> None:
        """End all in it, and remove it."""
        for folder in {self._cpu, self._memory}:
            for _ in range(500):
                for pid in (folder / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.02)


@contextmanager
def new_control_group() -> Iterator[ControlGroup]:
    """A group without limits so far; skips where the system has none to give."""
    folders = [place / f"zmtpsniff-{os.getpid()}" for place in _places()]
    try:
        for folder in dict.fromkeys(folders):
            folder.mkdir()
    except OSError as reason:
        pytest.skip(f"no control group can be made here: {reason}")
    group = ControlGroup(*folders)
    try:
        yield group
    finally:
        group.end()


def _places() -> list[Path]:
    """Where groups with limits on processor and memory can be made."""
    mounts = [line.split()[1:4] for line in Path("/proc/mounts").read_text().splitlines()]
    for folder in [Path(place) for place, kind, _ in mounts if kind == "cgroup2"]:
        if {*_CONTROLLERS} <= {*(folder / "cgroup.controllers").read_text().split()}:
            try:
                (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS))
            except OSError as reason:
                pytest.skip(f"no control group can have limits here: {reason}")
            return [folder] * len(_CONTROLLERS)
    old = {name: Path(place) for place, kind, options in mounts if kind == "cgroup" for name in options.split(",")}
    if not {*_CONTROLLERS} <= old.keys():
        pytest.skip("no control groups are mounted here that limit processor and memory")
    return [old[name] for name in _CONTROLLERS]
