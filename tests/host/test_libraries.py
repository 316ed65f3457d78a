"""Which libraries get probes."""

import os
from typing import Any

import pytest
import zmq  # with whose libsodium this process makes keys

from zmtpsniff.host import libraries
from zmtpsniff.host.libraries import Libraries
from zmtpsniff.host.processes import MemoryArea, open_mapped


class ProbeLog:
    """Probes that are written down instead of placed."""

    def __init__(self) -> None:
        self.executed: list[int] = []
        self.count = 0
        self.names: list[str] = []

    def add(self, descriptor: int, machine: str, offsets: dict[str, int]) -> None:
        self.names.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        self.count += len(offsets)


@pytest.mark.skipif(not os.path.isdir("/proc/self/map_files"), reason="only Linux tells what a process has mapped")
def test_a_process_that_ends_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is found in the next process that has it."""
    assert zmq.has("curve")
    tried: set[tuple[str, int]] = set()

    def open_later(pid: int, mapping: MemoryArea) -> int | None:
        """Each file fails the first time, as if the process had gone."""
        if mapping.file in tried:
            return open_mapped(pid, mapping)
        tried.add(mapping.file)
        return None

    monkeypatch.setattr(libraries, "pids", lambda: [os.getpid()])
    monkeypatch.setattr(libraries, "open_mapped", open_later)
    monkeypatch.setattr(libraries, "_INSTALLED", ())
    uprobes: Any = ProbeLog()
    found = Libraries(uprobes)
    assert uprobes.names == []
    uprobes.executed.append(os.getpid())
    found.follow()
    assert any("sodium" in name for name in uprobes.names), uprobes.names
    assert found.faults == []
