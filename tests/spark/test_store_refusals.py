"""The folder of the tables refuses in the middle of a run: nothing is half done, and the next run does the rest."""

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake.exceptions import DeltaError

from tests.spark.local_job import take
from tests.spark.s3_server import Bucket, new_bucket
from tests.spark.spark_tables import assert_equals_read, cut, read_tables
from tests.support.paths import FIXTURES, PROJECT
from tests.support.runner import run
from tests.support.small_disk import remount, small_disk
from zmtpsniff.capture.locations import file_system
from zmtpsniff.spark.maintenance import optimize
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.tables import TABLES


class Pieces(NamedTuple):
    """The parts of a capture, and what each of its tables has after the first part and after both."""

    files: list[Path]
    counts: tuple[Counter[str], Counter[str]]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Pieces:
    folder = tmp_path_factory.mktemp("given")
    files = cut(FIXTURES / "m31_pub_sub.pcap", [60], folder / "in")
    counts = []
    for some in (files[:1], files):
        take(some, folder / "out")
        counts.append(rows(folder / "out"))
    return Pieces(files, (counts[0], counts[1]))


def rows(output: Path | str) -> Counter[str]:
    return Counter({table: len(found) for table, found in read_tables(output).items()})


def shown(output: Path | str) -> list[Counter[str]]:
    """The counts of rows in all tables that readers find; none where there are no tables yet."""
    try:
        return [rows(output)]
    except DeltaError:
        return []


def assert_no_table_is_half_done(output: Path | str, pieces: Pieces) -> None:
    """Each table has none of the rows, or all of the first part, or of both, and is not behind ``captures``."""
    for counts in shown(output):
        stages = (Counter[str](), *pieces.counts)
        at = {table: [stage for stage, one in enumerate(stages) if one[table] == counts[table]] for table in TABLES}
        assert all(at.values()), counts
        assert all(at["captures"][0] <= some[-1] for some in at.values()), counts


def is_refused(output: Path | str, pieces: Pieces, why: str, again: Callable[[], None]) -> bool:
    """Whether taking the parts is refused, in one line that says ``why``; then ``again`` is called, and all goes well.

    In the end the tables have what they would have had, had nothing been refused.
    """
    said = None
    try:
        for some in (pieces.files[:1], pieces.files):
            take(some, output)
    except SparkError as error:
        said = str(error)
    assert said is None or (said.startswith(f"--output {output}: ") and why in said and "\n" not in said), said
    assert_no_table_is_half_done(output, pieces)
    again()
    take(pieces.files, output)
    assert_equals_read(output, pieces.files)
    return said is not None


# ---------------------------------------------------------------------- a disk


@pytest.mark.slow  # mounting needs root, and it fails at each of its steps
def test_a_full_disk(tmp_path: Path, pieces: Pieces) -> None:
    """Of sizes from one that has no room for a table to one that has room for all."""
    refused = []
    for kib in itertools.count(32, 12):
        with small_disk(tmp_path / str(kib), kib) as disk:
            again = partial(remount, disk, "size=8m")
            refused.append(is_refused(disk / "out", pieces, "No space left on device", again))
        if not refused[-1]:
            break
    assert len(refused) > 10


@pytest.mark.slow  # mounting needs root
def test_a_full_disk_where_nothing_is_left(tmp_path: Path) -> None:
    """A task that fails takes its files with it, also the one whose first octets had no room."""
    large = tmp_path / "in"
    cut(FIXTURES / "app_malamute.pcap", [60], large)
    for kib in range(120, 160, 4):
        with small_disk(tmp_path / str(kib), kib) as disk:
            with pytest.raises(SparkError, match="No space left on device") as error:
                take([large], disk / "out")
            if " says: " in str(error.value):  # the task
                assert [*disk.rglob("*.parquet")] == []


@pytest.mark.slow  # mounting needs root, and Spark starts twice
@pytest.mark.usefixtures("spark_installed")
def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    path = FIXTURES / "app_malamute.pcap"
    with small_disk(tmp_path / "disk", 160) as disk:
        options = ["--output", str(disk / "out"), "--max-bytes", "65536", "--master", "local[1]"]
        command = [sys.executable, "-m", "zmtpsniff", "spark", "ingest", str(path), *options]
        ingest = partial(subprocess.run, command, stderr=subprocess.PIPE, text=True, cwd=PROJECT, timeout=600)
        done = ingest()
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert done.stderr.startswith(f"zmtpsniff: --output {disk}/out: ")
        assert "No space left on device" in done.stderr
        assert shown(disk / "out") == [Counter()]
        remount(disk, "size=8m")
        done = ingest()
        assert (done.returncode, done.stderr.partition(":")[0]) == (0, "1 file"), done.stderr
        assert_equals_read(disk / "out", [path])


@pytest.mark.slow  # mounting needs root
def test_a_folder_that_may_only_be_read(tmp_path: Path, pieces: Pieces) -> None:
    with small_disk(tmp_path / "disk", 8192) as disk:
        take(pieces.files[:1], disk / "out")
        remount(disk, "ro")
        with pytest.raises(SparkError, match="Read-only file system") as error:
            take(pieces.files, disk / "out")
        assert "\n" not in str(error.value)
        with pytest.raises(SparkError, match="Read-only file system"):
            optimize(str(disk / "out"))
        done = run("spark", "ingest", pieces.files[0], "--output", disk / "new")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert take(pieces.files[:1], disk / "out")[:2] == (0, 1)  # nothing to do is no fault
        assert rows(disk / "out") == pieces.counts[0]
        remount(disk, "rw")
        take(pieces.files, disk / "out")
        assert_equals_read(disk / "out", pieces.files)


def test_a_folder_that_cannot_be_made(tmp_path: Path, pieces: Pieces) -> None:
    """The command says so at once, before Spark starts."""
    (tmp_path / "file").touch()
    done = run("spark", "ingest", pieces.files[0], "--output", tmp_path / "file" / "out")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert done.stderr.startswith(f"zmtpsniff: --output {tmp_path}/file/out: ")
    assert "Not a directory" in done.stderr


# ---------------------------------------------------------------------- an object store


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with new_bucket(monkeypatch) as made:
        yield made


@pytest.mark.slow
def test_an_object_store_that_throttles(bucket: Bucket, tmp_path: Path) -> None:
    """The rows are the same; a store that never does what it is asked is told in one line."""
    from pyarrow.fs import LocalFileSystem, copy_files

    files = cut(FIXTURES / "app_malamute.pcap", [60], tmp_path / "host")  # Arrow gives up below the answer's length
    system, path = file_system(f"{bucket.url}/throttled/in/host")
    copy_files(str(tmp_path / "host"), path, source_filesystem=LocalFileSystem(), destination_filesystem=system)
    assert take([f"{bucket.url}/throttled/in"], f"{bucket.url}/throttled/out")[:2] == (2, 0)
    there = [f"{bucket.url}/throttled/in/host/{file.name}" for file in files]
    assert_equals_read(f"{bucket.url}/throttled/out", files, there)
    said = "the store gets too many requests, and answers SlowDown: run this again when it has less to do"
    with pytest.raises(SparkError, match=f"^--output {bucket.url}/busy/out: {said}$"):
        take(files, f"{bucket.url}/busy/out")


@pytest.mark.slow
def test_an_object_store_that_refuses(bucket: Bucket, pieces: Pieces) -> None:
    """From each fifth of its changes on, whatever this is: of a table, of a file of rows, of a commit's steps."""
    refused = []
    for changes in itertools.count(0, 5):
        bucket.refuse_after(changes)
        output = f"{bucket.url}/refusing/{changes}"
        refused.append(is_refused(output, pieces, "Denied", partial(bucket.refuse_after, None)))
        if not refused[-1]:
            break
    assert len(refused) > 5
