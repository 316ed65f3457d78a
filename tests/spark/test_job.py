"""Faults of workers are told in one line, and leave nothing half done."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.local_job import take
from tests.spark.spark_tables import by_series, expected, read_tables
from tests.support.paths import FIXTURES
from zmtpsniff.spark.job import fault
from zmtpsniff.spark.session import SparkError

LOST = "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): org.apache.spark.api.python.PythonException: "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{LOST}ImportError: the worker at h7 lacks msgspec\n", "the worker at h7 lacks msgspec"),
        (f"{LOST}ModuleNotFoundError: No module named 'pyarrow'", "a worker lacks pyarrow"),  # as Spark finds first
    ],
)
def test_a_worker_without_packages(text: str, said: str) -> None:
    assert fault(text) == f"{said}: its Python needs msgspec, pyarrow and backports.zstd"


def test_the_line_of_a_task() -> None:
    assert (
        fault(f"{LOST}x\nzmtpsniff.spark.task.TaskError: --output /o: h says: full\n\tat y")
        == "--output /o: h says: full"
    )


def test_our_own_mistakes_are_no_faults_of_workers() -> None:
    assert fault(f"{LOST}KeyError: 'x'") is None


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
