"""The kernel tells of files that processes map."""

import mmap
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.live_program import wait_for
from tests.support.uprobes import need_uprobes
from zmtpsniff.host import perf_mappings
from zmtpsniff.host.perf_mappings import PerfMappings
from zmtpsniff.host.processes import MemoryArea


@contextmanager
def mappings(octets: int) -> Iterator[PerfMappings]:
    need_uprobes()
    opened = PerfMappings(octets)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def on_one_processor() -> Iterator[None]:
    """Each has a ring of its own."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run_from(file: Path) -> None:
    """Map a file as a library is mapped."""
    with file.open("rb") as opened:
        mmap.mmap(opened.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()


def ours(found: list[tuple[int, bytes, MemoryArea]]) -> list[MemoryArea]:
    return [area for pid, _, area in found if pid == os.getpid()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "file with a name"
    made.write_bytes(b"code")
    return made


def test_what_is_mapped_wakes_who_polls(file: Path) -> None:
    with mappings(1 << 18) as opened:
        poll = select.poll()
        for descriptor in opened.descriptors:
            poll.register(descriptor, select.POLLIN)
        run_from(file)
        assert poll.poll(60_000)
        (found,) = ours(opened.read(opened.descriptors))
        assert ours(opened.read(opened.descriptors)) == []
    status = file.stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    assert (found.file, found.path) == ((device, status.st_ino), str(file))
    assert found.end - found.begin == mmap.PAGESIZE


@pytest.mark.parametrize("size", [16, 64])
def test_no_mapping_waits_for_another_one(size: int) -> None:
    """A path of 16 characters is the shortest of a library."""
    with TemporaryDirectory(prefix="", dir="/tmp") as folder, mappings(1 << 18) as opened, on_one_processor():
        file = Path(folder, "x" * (size - len(folder) - 1))
        file.write_bytes(b"code")
        poll = select.poll()
        for descriptor in opened.descriptors:
            poll.register(descriptor, select.POLLIN)
        for _ in range(20):
            opened.read(opened.descriptors)
            while poll.poll(0):  # of the last record
                opened.read(opened.descriptors)
            run_from(file)
            assert poll.poll(20)  # at once, before others have made enough records
            assert [len(each.path) for each in ours(opened.read(opened.descriptors))] == [size]


def test_what_is_ignored_is_not_told(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"code")
    with mappings(1 << 18) as opened:
        run_from(file)
        (mark,) = (mark for pid, mark, _ in opened.read(opened.descriptors) if pid == os.getpid())
        if not mark:
            pytest.skip("inodes have no generations here")
        opened.ignored.add(mark)
        for each in (file, other):
            run_from(each)
        assert [each.path for each in ours(opened.read(opened.descriptors))] == [str(other)]


def test_around_the_end_of_a_ring(file: Path) -> None:
    """Other programs fill it, too, while this one gets no processor: what has no room then is counted."""
    told = 0
    with on_one_processor(), mappings(1 << 16) as opened:
        for _ in range(2000):
            run_from(file)
            found = [each.path for each in ours(opened.read(opened.descriptors))]
            assert found == [str(file)] or not found
            told += len(found)
        run_from(file)  # the kernel tells a loss with the next record
        told += len(ours(opened.read(opened.descriptors)))
        assert told > 1000
        assert told + opened.lost >= 2001


def test_what_has_no_room_is_counted(file: Path) -> None:
    runs = told = 0
    with on_one_processor(), mappings(mmap.PAGESIZE) as opened:

        def is_told() -> bool:
            """Make more than there is room for; false if other programs had taken all the room before."""
            nonlocal runs, told
            for _ in range(1000):
                run_from(file)
            some = len(ours(opened.read(opened.descriptors)))
            run_from(file)  # the kernel tells the loss with the next record
            last = len(ours(opened.read(opened.descriptors)))
            runs, told = runs + 1001, told + some + last
            return some > 0 and last > 0

        wait_for(is_told)
        assert told < runs
        assert told + opened.lost >= runs


def test_a_processor_that_is_switched_on_and_off(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells of the device; what ran on it until then is missing each time, and counts as lost."""
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    if first == last:
        pytest.skip("there is one processor")
    online = tmp_path / "online"
    online.write_text(f"{first}\n")
    monkeypatch.setattr(perf_mappings, "_ONLINE", str(online))

    def on_last() -> None:
        os.sched_setaffinity(0, {last})
        run_from(file)

    before = os.sched_getaffinity(0)
    try:
        with mappings(1 << 18) as opened:
            on_last()
            assert (ours(opened.read(opened.descriptors)), opened.lost) == ([], 0)
            for processors, lost in ((f"{first},{last}", 1), (f"{first}", 2), (f"{first},{last}", 3)):
                online.write_text(f"{processors}\n")
                poll = select.poll()
                for descriptor in opened.descriptors:
                    poll.register(descriptor, select.POLLIN)
                Path(f"/sys/devices/system/cpu/cpu{last}/uevent").write_text("change")  # as if the kernel told it
                assert poll.poll(60_000)
                opened.read(opened.descriptors)
                on_last()
                assert len(ours(opened.read(opened.descriptors))) == processors.count(",")
                assert opened.lost == lost
    finally:
        os.sched_setaffinity(0, before)
