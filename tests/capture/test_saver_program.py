"""Saving packets where it does not go well, and as an option of the program."""

import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.saved_files import (
    ETHERNET,
    ORIGIN,
    PATIENCE,
    PROGRAM,
    SLL,
    many,
    packet,
    program,
    read,
    records,
    ring_files,
    save,
)
from tests.support.small_disk import small_disk
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.ring import FileRing
from zmtpsniff.capture.saver import Saver
from zmtpsniff.capture.source import CaptureError

# --- files that cannot be written


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/nowhere/a.pcapng", "/nowhere/a.pcapng: No such file or directory"),
        ("/dev/full", "/dev/full: No space left on device"),
        ("/tmp", "/tmp: a directory"),
        ("/tmp/new/", "/tmp/new/: a directory"),
        ("", "-w: the name of a file is missing"),
    ],
)
def test_file_that_cannot_be_opened(path: str, words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        Saver(path, ORIGIN)


def check_ended_well(done: "subprocess.CompletedProcess[str]", path: Path, packets: list[Packet]) -> None:
    """The dissection went on to the end, the file holds whole packets from the first on, and that is told."""
    assert done.returncode == 2
    assert re.fullmatch(rf"zmtpsniff: {path}: .*; saving ended after .*\n", done.stderr)
    found, source = read(path)
    assert source.faults == []
    assert 0 < len(found) < len(packets)
    assert found == packets[: len(found)]
    *others, total = records(done.stdout)
    assert total["packets"] == len(packets)
    (problem,) = (record for record in others if record.get("code") == "saving-ended")
    assert problem["severity"] == "error"
    assert str(problem["detail"]).startswith(f"{path}: ")
    assert f"after {len(found)} packets" in str(problem["detail"])


def limit_files(octets: int) -> None:
    """Let this process write no file that is longer."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, octets))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


@pytest.mark.parametrize("limit", [100_000, 99_999, 123_457, 200_001])
def test_file_that_must_not_grow_on(limit: int, tmp_path: Path) -> None:
    packets = many(tmp_path / "in.pcapng", 1000)
    target = tmp_path / "out.pcapng"
    bound = partial(limit_files, limit)
    done = program("read", tmp_path / "in.pcapng", "-w", target, "-T", "json", preexec_fn=bound)
    check_ended_well(done, target, packets)
    assert limit - 560 < target.stat().st_size <= limit


@pytest.fixture
def little_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with 256 KiB of room."""
    with small_disk(tmp_path / "disk", 256) as place:
        yield place


def test_full_disk_ends_the_saving_only(little_disk: Path, tmp_path: Path) -> None:
    packets = many(tmp_path / "in.pcapng", 1000)
    done = program("read", tmp_path / "in.pcapng", "-w", little_disk / "out.pcapng", "-T", "json")
    check_ended_well(done, little_disk / "out.pcapng", packets)
    assert "No space left on device" in done.stdout
    assert (little_disk / "out.pcapng").stat().st_size > (256 << 10) - 4096 - 560


def test_full_disk_in_a_ring(little_disk: Path, tmp_path: Path) -> None:
    packets = many(tmp_path / "in.pcapng", 1000)
    done = program("read", tmp_path / "in.pcapng", "-w", little_disk / "out", "-b", "filesize:10", "-T", "json")
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert done.stdout.count("saving-ended") == 1
    files = ring_files(little_disk / "out")
    found, _ = read(*files)
    assert 300 < len(found) < 1000
    assert found == packets[: len(found)]
    for file in files:
        file.unlink()
    # A ring that fits goes on for ever.
    ring = ["-b", "filesize:50", "-b", "files:4"]
    done = program("read", tmp_path / "in.pcapng", "-w", little_disk / "out", *ring, "-T", "json")
    assert "saving-ended" not in done.stdout
    files = ring_files(little_disk / "out")
    found, _ = read(*files)
    assert len(files) == 4
    assert found == packets[-len(found) :]


def test_ring_whose_folder_goes_away(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    saver = Saver(str(folder / "ring"), ORIGIN, FileRing(packets=2))
    saver.write(Block.of([packet(0), packet(1)]))
    shutil.rmtree(folder)
    saver.write(Block.of([packet(2)]))
    saver.write(Block.of([packet(3)]))
    saver.close(0)
    (fault,) = saver.faults
    assert fault.code == "saving-ended"
    assert re.fullmatch(r".*/ring_00002_\d+: No such file or directory; saving ended after 2 packets, .*", fault.detail)


def test_file_without_room_for_a_header_is_not_left_behind(tmp_path: Path) -> None:
    many(tmp_path / "in.pcapng", 3)
    bound = partial(limit_files, 20)
    done = program("read", tmp_path / "in.pcapng", "-w", tmp_path / "out.pcapng", preexec_fn=bound)
    assert (done.returncode, done.stderr) == (2, f"zmtpsniff: {tmp_path}/out.pcapng: File too large\n")
    assert not (tmp_path / "out.pcapng").exists()


# --- a program that is ended while it saves


def interrupted(tmp_path: Path, number: int, *options: str) -> tuple[list[Packet], int]:
    """Feed the program packets without end until much is saved, then send it the signal; what it was fed, status."""
    made = tmp_path / "endless.pcapng"
    packets = many(made, 20_000, 1200)
    data = made.read_bytes()
    header = len(data) - 20_000 * 1232
    target = tmp_path / "out.pcapng"
    command = [*PROGRAM, "read", "-", "-w", str(target), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        assert run.stdin
        try:
            run.stdin.write(data[: header + 1232 * 10_000 + 100])
            run.stdin.flush()
            deadline = time.monotonic() + PATIENCE
            while (
                sum(file.stat().st_size for file in tmp_path.glob("out*")) < 9_000_000 and time.monotonic() < deadline
            ):
                time.sleep(0.01)
            run.send_signal(number)
            status = run.wait(PATIENCE)
        finally:
            run.kill()
        run.stdin.close()
    return packets, status


def test_killed_program_leaves_whole_packets(tmp_path: Path) -> None:
    packets, status = interrupted(tmp_path, signal.SIGKILL)
    assert status == -signal.SIGKILL
    found, source = read(tmp_path / "out.pcapng")
    assert {fault.code for fault in source.faults} <= {"capture-truncated"}
    assert 7000 < len(found) <= 10_000
    assert found == packets[: len(found)]


def test_killed_ring_leaves_whole_packets(tmp_path: Path) -> None:
    packets, status = interrupted(tmp_path, signal.SIGKILL, "-b", "filesize:1000")
    assert status == -signal.SIGKILL
    found, _ = read(*ring_files(tmp_path / "out"))
    assert 7000 < len(found) <= 10_000
    assert found == packets[: len(found)]


def test_interrupted_program_leaves_a_whole_file(tmp_path: Path) -> None:
    packets, status = interrupted(tmp_path, signal.SIGINT)
    assert status == 130
    found, source = read(tmp_path / "out.pcapng")
    assert source.faults == []
    assert 7000 < len(found) <= 10_000
    assert found == packets[: len(found)]


# --- the command line


def test_count_bounds_what_is_saved(tmp_path: Path) -> None:
    packets = many(tmp_path / "in.pcapng", 300)
    done = program("read", tmp_path / "in.pcapng", "-c", "217", "-T", "json", "-w", tmp_path / "out.pcapng")
    assert records(done.stdout)[-1]["packets"] == 217
    assert read(tmp_path / "out.pcapng")[0] == packets[:217]


def test_several_captures_become_one(tmp_path: Path) -> None:
    packets = [packet(number, link=[ETHERNET, SLL][number % 2]) for number in range(1000)]
    save(tmp_path / "even", [packets[::2]])
    save(tmp_path / "odd", [packets[1::2]])
    done = program("read", tmp_path / "even", tmp_path / "odd", "-w", tmp_path / "all.pcapng")
    assert (done.returncode, done.stderr) == (0, "")
    assert read(tmp_path / "all.pcapng")[0] == packets


def test_packets_to_a_pipe_while_records_go_to_a_file(tmp_path: Path) -> None:
    packets = many(tmp_path / "in.pcapng", 300)
    paths = str(tmp_path / "in.pcapng"), str(tmp_path / "records")
    command = [*PROGRAM, "read", paths[0], "-w", "-", "-T", "json", "-o", paths[1]]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=PATIENCE)
    (tmp_path / "out.pcapng").write_bytes(done.stdout)
    assert read(tmp_path / "out.pcapng")[0] == packets
    assert records((tmp_path / "records").read_text())[-1]["packets"] == 300


def test_closed_pipe_ends_the_saving_only(tmp_path: Path) -> None:
    many(tmp_path / "in.pcapng", 3000)
    paths = str(tmp_path / "in.pcapng"), str(tmp_path / "records")
    command = [*PROGRAM, "read", paths[0], "-w", "-", "-T", "json", "-o", paths[1]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout
        assert run.stderr
        run.stdout.read(1000)
        run.stdout.close()
        assert (run.wait(PATIENCE), run.stderr.read()) == (0, b"")
    *others, total = records((tmp_path / "records").read_text())
    assert total["packets"] == 3000
    assert [record["code"] for record in others] == ["saving-ended", "no-flows"]
    assert "standard output: Broken pipe" in str(others[0]["detail"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["in.pcapng", "-w", "in.pcapng"], "in.pcapng: not overwritten, since it is one of the captures to read"),
        (["in.pcapng", "-w", "link"], "link: not overwritten"),
        (["-", "-w", "in.pcapng"], "in.pcapng: not overwritten"),
        (["in.pcapng", "-w", "folder"], "folder: a directory"),
        (["in.pcapng", "-w", "-"], "-w -: the records go to standard output, too; give them a file with -o"),
        (["in.pcapng", "-w", "-", "-o", "-"], "-w -: the records go to standard output"),
        (["in.pcapng", "-w", "-", "-o", "r", "-b", "packets:3"], "standard output: cannot be several files"),
        (["in.pcapng", "-w", "x", "-o", "./x"], "-w x: the records go to this file"),
        (["in.pcapng", "-w", "x", "-b", "files:3"], "-b files:3: give filesize:N"),
        (["in.pcapng", "-b", "packets:3"], "-b: needs -w FILE"),
        (["in.pcapng", "-w", "x", "--engine", "tshark"], "-w: not with --engine tshark"),
    ],
)
def test_wrong_options_change_no_file(options: list[str], words: str, tmp_path: Path) -> None:
    many(tmp_path / "in.pcapng", 3)
    (tmp_path / "link").symlink_to("in.pcapng")
    (tmp_path / "folder").mkdir()
    before = (tmp_path / "in.pcapng").read_bytes()
    with (tmp_path / "in.pcapng").open("rb") as standard_input:
        done = program("read", *options, cwd=tmp_path, stdin=standard_input if "-" in options[:1] else None)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "in.pcapng").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["folder", "in.pcapng", "link"]
