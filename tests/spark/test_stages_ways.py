"""The ways in tables are those of trace, for one shard or several, one run or many."""

from pathlib import Path

import pytest

from tests.spark.local_job import take
from tests.spark.spark_tables import cut, expected_ways, ways_in
from tests.support.examples import sampled
from tests.support.paths import FIXTURES
from tests.world.tap import load

CAPTURES = ["rec_proxy", "app_malamute", "m31_push_pull", "m31_pub_sub", "rec_late_reply"]


def wanted(path: Path, folder: Path) -> tuple[list[Path], int]:
    """A capture cut in three files, and the number of its packets."""
    count = len(load(path))
    return cut(path, [count // 3, 2 * count // 3], folder), count


@pytest.mark.parametrize("name", CAPTURES)
def test_they_are_those_of_trace(tmp_path: Path, name: str) -> None:
    files, _ = wanted(FIXTURES / f"{name}.pcap", tmp_path / "in")
    expected = expected_ways(files)
    assert expected
    take([tmp_path / "in"], tmp_path / "out", shards=2, ways=True)
    assert ways_in(tmp_path / "out") == expected


@pytest.mark.parametrize("name", sampled(CAPTURES))
def test_file_by_file(tmp_path: Path, name: str) -> None:
    files, _ = wanted(FIXTURES / f"{name}.pcap", tmp_path / "in")
    for file in files:
        take([file], tmp_path / "out", ways=True)
    assert ways_in(tmp_path / "out") == expected_ways(files)


def test_nobody_has_to_wait_for_them(tmp_path: Path) -> None:
    take([FIXTURES / "rec_proxy.pcap"], tmp_path / "out")
    assert not ways_in(tmp_path / "out")
