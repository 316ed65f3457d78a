"""The tables say of every capture what `read` says, whole and cut: on Spark, and the stages of a job alone."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import CAPTURES, FIXTURES
from zmtpsniff.decode_as import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.spark.local_job import local_session, take
from tests.spark.spark_tables import assert_places, by_series, cut, expected, read_tables
from tests.world.tap import load
from zmtpsniff.spark.tables import TABLES, arrow_schema

SUFFIXES = (".pcap", ".pcapng", ".pcap.gz", ".strace")
RULES = tuple(map(parse, ("udp.port==5556,zmtp", "udp.port==5557,zmtp")))


def captures() -> list[Path]:
    folders = [FIXTURES, *([CAPTURES] if CAPTURES.is_dir() else [])]
    found = [path for folder in folders for path in sorted(folder.iterdir()) if path.name.endswith(SUFFIXES)]
    assert len(found) > 50
    return found


def series(folder: Path, pieces: Sequence[int], share: int) -> dict[str, list[Path]]:
    """Every so many-th capture, whole and cut into so many files at random places: a folder each, with its files."""
    random_places = random.Random(6)
    found: dict[str, list[Path]] = {}
    for path in captures()[::share]:
        count = len(load(path))
        for number in pieces:
            if number > 1 and count < 2:
                continue
            target = folder / f"{path.parent.name}-{path.name}-{number}"
            if number == 1:
                target.mkdir(parents=True)
                (target / path.name).write_bytes(path.read_bytes())
                found[str(target)] = [target / path.name]
            else:
                places = random_places.sample(range(1, count), min(number, count) - 1)
                found[str(target)] = cut(path, places, target)
    return found


def assert_tables_equal_read(
    session: Any, folder: Path, pieces: Sequence[int], shards: int | None = None, share: int = 1
) -> None:
    wanted = series(folder / "in", pieces, share)
    take([folder / "in"], folder / "out", session, rules=RULES, shards=shards)
    tables = read_tables(folder / "out")
    assert_places(tables)
    found = by_series(tables)
    assert found.keys() == wanted.keys()
    wrong = []
    for name, files in wanted.items():
        records = expected(files, decode_as=RULES)
        if records != found[name]:
            missing, many = [*(records - found[name]).elements()], [*(found[name] - records).elements()]
            wrong.append(f"{Path(name).name}: missing {len(missing)} {missing[:2]}, too many {len(many)} {many[:2]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("pieces", "shards", "share"),
    [
        ((5,), None, 4),
        *(pytest.param(*case, 1, marks=pytest.mark.slow) for case in (((1, 2, 5), None), ((5, 20), 3))),
    ],
)
def test_tasks_equal_read(tmp_path: Path, pieces: Sequence[int], shards: int | None, share: int) -> None:
    assert_tables_equal_read(local_session(), tmp_path, pieces, shards, share)


@pytest.mark.slow
def test_spark_equals_read(spark_session: "SparkSession", tmp_path: Path) -> None:
    assert_tables_equal_read(spark_session, tmp_path, (5,))


def test_files_have_the_documented_schema(tmp_path: Path) -> None:
    take([FIXTURES / "m31_pub_sub.pcap"], tmp_path)
    for table in TABLES:
        found = DeltaTable(str(tmp_path / table))
        assert found.metadata().partition_columns == ["date"]
        assert pa.schema(found.schema()) == arrow_schema(table)
        comments = [one.metadata["comment"] for one in found.schema().fields]
        assert comments == [column.comment for column in TABLES[table]]
        for path in found.file_uris():
            with open(path, "rb") as opened:
                wanted = arrow_schema(table)
                assert pq.ParquetFile(opened).schema_arrow == wanted.remove(wanted.get_field_index("date"))
