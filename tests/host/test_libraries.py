"""Libraries that make keys: found before the first program uses them, and when programs load them."""

import math
import mmap
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.curve_program import PACKAGED, compiled, connect, copied, libsodium, needs_wheel, started
from tests.support.live_program import wait_for
from tests.support.namespaces import needs_namespaces
from tests.support.uprobes import need_uprobes
from zmtpsniff.host import libraries, perf_mappings, processes
from zmtpsniff.host.libraries import Libraries
from zmtpsniff.host.perf_mappings import PerfMappings
from zmtpsniff.host.processes import MemoryArea
from zmtpsniff.host.uprobes import BEFORENM, Uprobes


class Probes:
    """Remembers the files that probes are wanted for, and has them placed if there are any."""

    def __init__(self, uprobes: Uprobes | None = None) -> None:
        self.files: dict[int, list[str]] = {}  # inodes, and the names of their probes
        self.added: list[int] = []
        self._uprobes = uprobes

    def add(self, descriptor: int, offsets: dict[str, int]) -> list[str]:
        names = [] if self._uprobes is None else self._uprobes.add(descriptor, offsets)
        self.files[os.fstat(descriptor).st_ino] = names
        self.added.append(os.fstat(descriptor).st_ino)
        return names

    def remove(self, names: Sequence[str]) -> None:
        assert self._uprobes
        self._uprobes.remove(names)
        self.files = {file: placed for file, placed in self.files.items() if placed != names}


class Watch:
    """Libraries and their probes, as a KeyWatch has them."""

    def __init__(self, uprobes: Uprobes) -> None:
        self.probes = Probes(uprobes)
        self.said: list[str] = []
        self.libraries = Libraries(self.probes, self.said.append)  # type: ignore[arg-type]
        self._uprobes = uprobes
        self._callers: set[int] = set()  # threads

    def until(self, done: Callable[[], bool]) -> None:
        def look() -> bool:
            self.libraries.follow(self.libraries.descriptors)
            self._callers.update(call.thread for call in self._uprobes.read() if call.function == BEFORENM)
            return done()

        wait_for(look)

    def sees(self, pid: int) -> Callable[[], bool]:
        """Whether a process has made a key."""
        return lambda: any(int(thread) in self._callers for thread in os.listdir(f"/proc/{pid}/task"))


@pytest.fixture
def watch() -> Iterator[Callable[[], Watch]]:
    """Makes one."""
    need_uprobes()
    with closing(Uprobes()) as uprobes:
        made = []

        def make() -> Watch:
            made.append(Watch(uprobes))
            return made[-1]

        yield make
        for each in made:
            each.libraries.close()


@needs_wheel
def test_the_library_beside_us_needs_no_program_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However late we would see that a program has loaded it, its first key is seen."""
    monkeypatch.setattr(libraries, "pids", list)
    probes = Probes()
    Libraries(probes, print).close()  # type: ignore[arg-type]
    assert libsodium(PACKAGED[0].parent).stat().st_ino in probes.files


@needs_wheel
def test_a_library_that_appears(watch: Callable[[], Watch], tmp_path: Path) -> None:
    """If the program was quicker than we, that is known."""
    seen, program, folder = watch(), compiled(tmp_path), copied(tmp_path / "copy")
    with started(program, folder) as process:
        seen.until(lambda: libsodium(folder).stat().st_ino in seen.probes.files)
        assert process.pid in seen.libraries.late
        connect(process)
        seen.until(seen.sees(process.pid))


@needs_wheel
def test_a_library_that_is_replaced(watch: Callable[[], Watch], tmp_path: Path) -> None:
    """As when a package is upgraded: programs have the old file until they end."""
    seen, program, folder = watch(), compiled(tmp_path), copied(tmp_path / "copy")
    with started(program, folder) as old:
        os.replace(libsodium(copied(tmp_path / "upgrade")), libsodium(folder))
        with started(program, folder) as new:
            seen.until(lambda: libsodium(folder).stat().st_ino in seen.probes.files)
            for process in (old, new):
                connect(process)
                seen.until(seen.sees(process.pid))


def test_a_file_that_makes_no_keys_is_opened_once(
    watch: Callable[[], Watch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_mapped(pid: int, area: MemoryArea) -> int | None:
        opened.append(area.path)
        return processes.open_mapped(pid, area)

    monkeypatch.setattr(libraries, "open_mapped", open_mapped)
    seen, library = watch(), tmp_path / "library"
    library.write_bytes(b"code")
    if os.major(library.stat().st_dev) == 0:
        pytest.skip("inodes may have no generations here")
    with library.open("rb") as file:
        for _ in range(3):
            mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
            seen.libraries.follow(seen.libraries.descriptors)
    assert opened.count(str(library)) == 1


# Runs a program in an overlay that nobody else sees, as container tools do.
OVERLAID = 'mount -t overlay none -o "lowerdir=$1:$2" "$2" || exit; shift 2; exec "$@"'


@needs_wheel
@needs_namespaces
def test_containers_of_one_image(watch: Callable[[], Watch], tmp_path: Path) -> None:
    """Each has a mount of its own of one file, which has one probe."""
    seen, program, folder = watch(), compiled(tmp_path), copied(tmp_path / "copy")
    point = tmp_path / "point"
    point.mkdir()
    prefix = ("unshare", "--mount", "sh", "-c", OVERLAID, "sh", str(folder), str(point))
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("there are no overlays here")
    with started(program, point, prefix) as first, started(program, point, prefix) as second:
        for process in (first, second):
            seen.until(lambda: first.pid in seen.libraries.late)
            connect(process)
            seen.until(seen.sees(process.pid))
    assert seen.probes.added.count(libsodium(folder).stat().st_ino) == 1


@pytest.mark.slow
@needs_wheel
def test_a_library_that_nobody_has_any_more_is_forgotten(
    watch: Callable[[], Watch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its probes would keep the file on the disk."""
    monkeypatch.setattr(libraries, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(libraries, "_SHARE", 0.0)
    seen, program, folder = watch(), compiled(tmp_path), copied(tmp_path / "copy")
    inode = libsodium(folder).stat().st_ino
    for _ in range(2):
        with started(program, folder) as process:
            seen.until(lambda: inode in seen.probes.files)
            connect(process)
            seen.until(seen.sees(process.pid))
        seen.until(lambda: inode not in seen.probes.files)


@needs_wheel
def test_a_kernel_that_does_not_tell(
    watch: Callable[[], Watch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(libraries, "PerfMappings", refuse)
    monkeypatch.setattr(libraries, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(libraries, "_SHARE", 0.0)
    seen, program, folder = watch(), compiled(tmp_path), copied(tmp_path / "copy")
    (said,) = seen.said
    assert "(Operation not permitted)" in said
    assert seen.libraries.due < math.inf  # it looks by itself
    with started(program, folder) as process:
        seen.until(lambda: process.pid in seen.libraries.late)
        connect(process)
        seen.until(seen.sees(process.pid))


@pytest.mark.slow
@needs_wheel
def test_a_look_at_all_makes_up_for_what_the_kernel_dropped(
    watch: Callable[[], Watch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "PerfMappings", lambda: PerfMappings(mmap.PAGESIZE))
    seen, program, folder = watch(), compiled(tmp_path), copied(tmp_path / "copy")
    before = os.sched_getaffinity(0)
    try:
        with open(os.__file__, "rb") as file:
            for processor in before:
                os.sched_setaffinity(0, {processor})
                for _ in range(100):  # more than there is room for
                    mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
    finally:
        os.sched_setaffinity(0, before)
    with started(program, folder) as process:
        seen.until(lambda: process.pid in seen.libraries.late)


def test_a_processor_that_is_switched_off(
    watch: Callable[[], Watch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    if first == last:
        pytest.skip("there is one processor")
    online = tmp_path / "online"
    online.write_text(f"{first},{last}\n")
    monkeypatch.setattr(perf_mappings, "_ONLINE", str(online))
    followed = watch().libraries
    before, news = followed.descriptors, [False]
    online.write_text(f"{first}\n")
    Path(f"/sys/devices/system/cpu/cpu{last}/uevent").write_text("change")  # as if the kernel told it

    def looks() -> bool:
        news.append(followed.follow(before))
        return len(followed.descriptors) < len(before)

    wait_for(looks)
    assert news[-1]


def test_a_look_at_many_processes_lets_keys_be_read_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes for each: on a busy machine, seconds for all."""
    now = 100.0
    looked: list[int] = []

    def mappings(pid: int) -> list[MemoryArea]:
        nonlocal now
        now += 0.1
        looked.append(pid)
        return []

    def refuse() -> None:
        raise OSError

    monkeypatch.setattr(libraries, "PerfMappings", refuse)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(libraries, "installed", lambda: iter([]))
    monkeypatch.setattr(libraries, "pids", list)
    monkeypatch.setattr(libraries, "mappings", mappings)
    followed = Libraries(Probes(), print)  # type: ignore[arg-type]
    monkeypatch.setattr(libraries, "pids", lambda: [1, 2, 3])
    now += 60
    for count in (1, 2, 3, 3):
        followed.follow(())
        assert len(looked) == count
    assert sorted(looked) == [1, 2, 3]
    now += 60
    followed.follow(())
    assert len(looked) == 4
