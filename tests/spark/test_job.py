"""Faults of workers are told in one line, and leave nothing half done."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.local_job import take
from tests.spark.spark_tables import by_series, expected, read_tables
from tests.support.paths import FIXTURES, PROJECT
from tests.support.shown_commands import blocks
from zmtpsniff.spark.job import fault
from zmtpsniff.spark.masters import PACKAGES
from zmtpsniff.spark.session import SparkError

LOST = "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): org.apache.spark.api.python.PythonException: "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "ImportError: the worker at h7 lacks msgspec\n",
            f"the worker at h7 lacks msgspec: its Python needs {PACKAGES}",
        ),
        # As Spark finds first.
        ("ModuleNotFoundError: No module named 'pyarrow'", f"a worker lacks pyarrow: its Python needs {PACKAGES}"),
        ("x\nzmtpsniff.spark.task.TaskError: --output /o: h says: full\n\tat y", "--output /o: h says: full"),
        ("KeyError: 'x'", None),  # a mistake of ours
    ],
)
def test_the_line_of_a_fault(text: str, said: str | None) -> None:
    assert fault(f"{LOST}{text}") == said


# The work of a task where nothing but some packages can be imported: folder, capture, packages.
WORK = """
import os, sys
from importlib.machinery import PathFinder

class Finder:
    def find_spec(self, name, path, target=None):
        found = PathFinder.find_spec(name, path)
        if found and "site-packages" in (found.origin or "") and name.partition(".")[0] not in sys.argv[3:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Finder())

from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.spark.options import Options, ShardSpec
from zmtpsniff.spark.task import Job, ShardTask, dissect

folder, path = sys.argv[1:3]
file = FileInfo(path, os.path.getsize(path), 0)
done = dissect(Job(folder, [], Options(ways=True)), [ShardTask("series", ShardSpec(), [file])])
print(sum(file.rows for file in done.files if file.table == "messages"))
"""


def test_workers_need_what_is_said(tmp_path: Path) -> None:
    """They have nothing else where their environment was made as we say."""
    (block,) = (one for one in blocks(PROJECT / "docs" / "spark-operation.md") if "venv-pack" in one.text)
    packages = block.text.partition("pip install ")[2].splitlines()[0].removesuffix(" venv-pack").split()
    assert f"{', '.join(packages[:-1])} and {packages[-1]}" == PACKAGES
    names = [package.partition(".")[0] for package in packages]
    command = [sys.executable, "-c", WORK, str(tmp_path), str(FIXTURES / "app_malamute.pcap"), *names]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


@contextmanager
def largest_file(octets: int) -> Iterator[None]:
    """No file can have more octets, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("octets", [1000, 8000])
def test_nothing_is_half_done_where_nothing_can_be_written(tmp_path: Path, octets: int) -> None:
    first, second = FIXTURES / "m31_push_pull.pcap", FIXTURES / "app_malamute.pcap"
    take([first], tmp_path, series="file")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with largest_file(octets), pytest.raises(SparkError, match=r"^--output .*File too large") as raised:
        take([second], tmp_path, series="file")
    assert "\n" not in str(raised.value)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    take([second], tmp_path, series="file")
    assert by_series(read_tables(tmp_path)) == {str(path): expected([path]) for path in (first, second)}
