"""Libraries that make keys: found before the first program uses them, and while programs load them."""

import os
import time
from pathlib import Path

import pytest
import zmq

from zmtpsniff.host import libraries
from zmtpsniff.host.libraries import Libraries
from zmtpsniff.host.processes import MemoryArea, open_mapped

PACKAGED = sorted(Path(zmq.__file__).parent.with_name("pyzmq.libs").glob("libsodium-*"))
needs_wheel = pytest.mark.skipif(not PACKAGED, reason="this pyzmq is not one of the wheels that bring a libsodium")


class NoUprobes:
    """Remembers the files that probes are wanted for."""

    def __init__(self) -> None:
        self.count = 0
        self.executed: list[int] = []
        self.files: set[int] = set()

    def add(self, descriptor: int, _machine: str, _offsets: dict[str, int]) -> None:
        self.files.add(os.fstat(descriptor).st_ino)


@pytest.fixture
def uprobes() -> NoUprobes:
    return NoUprobes()


@needs_wheel
def test_the_library_beside_us_needs_no_program_that_uses_it(
    uprobes: NoUprobes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late we would see that a program has loaded it, its first key is seen."""
    monkeypatch.setattr(libraries, "pids", list)
    Libraries(uprobes)  # type: ignore[arg-type]
    assert {file.stat().st_ino for file in PACKAGED} <= uprobes.files


@needs_wheel
def test_a_program_that_is_slow_to_load_is_looked_at_all_the_same(
    uprobes: NoUprobes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither it nor we had a processor for long: it is looked at as often as ever."""
    now = 100.0
    mapped: list[MemoryArea] = []
    status = PACKAGED[0].stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(libraries, "installed", lambda: iter([]))
    monkeypatch.setattr(libraries, "pids", list)
    monkeypatch.setattr(libraries, "mappings", lambda pid: mapped if pid == os.getpid() else [])
    monkeypatch.setattr(libraries, "open_mapped", lambda *_: os.open(PACKAGED[0], os.O_RDONLY))
    followed = Libraries(uprobes)  # type: ignore[arg-type]
    uprobes.executed.append(os.getpid())
    followed.follow()
    now += 60  # with a look at all processes, and another second until the next
    followed.follow()
    mapped.append(MemoryArea(0, 4096, "r-xp", (device, status.st_ino), str(PACKAGED[0])))
    followed.follow()
    assert uprobes.files == {status.st_ino}


@needs_wheel
def test_a_process_that_ends_while_it_is_looked_at(uprobes: NoUprobes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is found in the next process that has it."""
    tried: set[tuple[str, int]] = set()

    def open_later(pid: int, mapping: MemoryArea) -> int | None:
        """Each file fails the first time, as if the process had gone."""
        if mapping.file in tried:
            return open_mapped(pid, mapping)
        tried.add(mapping.file)
        return None

    assert zmq.has("curve")  # this process has it
    monkeypatch.setattr(libraries, "installed", lambda: iter([]))
    monkeypatch.setattr(libraries, "pids", lambda: [os.getpid()])
    monkeypatch.setattr(libraries, "open_mapped", open_later)
    followed = Libraries(uprobes)  # type: ignore[arg-type]
    assert uprobes.files == set()
    uprobes.executed.append(os.getpid())
    followed.follow()
    assert {file.stat().st_ino for file in PACKAGED} <= uprobes.files
    assert followed.faults == []
