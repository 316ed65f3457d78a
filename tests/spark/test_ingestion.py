"""The tables say of every capture what `read`, `diagnose` and `trace` say, whole, cut and of several hosts."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.local_job import local_session, take
from tests.spark.spark_tables import (
    assert_places,
    by_series,
    captures,
    cut_anywhere,
    expected,
    of_hosts,
    read_tables,
    without_acknowledgments,
)
from tests.support.paths import FIXTURES
from zmtpsniff.decode_as import parse
from zmtpsniff.spark.tables import TABLES, arrow_schema

RULES = tuple(map(parse, ("udp.port==5556,zmtp", "udp.port==5557,zmtp")))
HOSTS = 0  # in place of a number of pieces
TOGETHER = 40  # captures in the tables of one run


def series(folder: Path, pieces: Sequence[int], paths: Sequence[Path]) -> dict[str, list[Path]]:
    """Captures, each cut into so many files at random places or by hosts: a folder each, with its files."""
    places = random.Random(6)
    found: dict[str, list[Path]] = {}
    for path in paths:
        for number in pieces:
            if number == HOSTS and path.parent.name != "systems":
                continue
            target = folder / f"{path.parent.name}-{path.name}-{number}"
            if number == HOSTS:
                files = of_hosts(path, target, 3)
            else:
                files = [path] if number == 1 else cut_anywhere(path, number, target, places)
            if files == [path]:
                target.mkdir(parents=True)
                files = [target / path.name]
                files[0].write_bytes(path.read_bytes())
            found[str(target)] = files
    return found


def assert_tables_equal_read(
    session: Any, folder: Path, pieces: Sequence[int], shards: int | None = None, share: int = 1
) -> None:
    """Of every so many-th capture, some of them together."""
    chosen = captures()[::share]
    wrong = []
    for at in range(0, len(chosen), TOGETHER):
        wrong += differences(session, folder / f"{at}", pieces, shards, chosen[at : at + TOGETHER])
    assert not wrong, "\n".join(wrong)


def differences(
    session: Any, folder: Path, pieces: Sequence[int], shards: int | None, paths: Sequence[Path]
) -> list[str]:
    wanted = series(folder / "in", pieces, paths)
    take([folder / "in"], folder / "out", session, rules=RULES, shards=shards, ways=True)
    tables = read_tables(folder / "out")
    assert_places(tables)
    found = by_series(tables)
    assert found.keys() == wanted.keys()
    wrong = []
    for name, files in wanted.items():
        records, rows = expected(files, decode_as=RULES, ways=True), found[name]
        if records != rows and len(files) > 1:  # as docs/spark-ingest.md says
            records, rows = map(without_acknowledgments, (records, rows))
        if records != rows:
            missing, many = [*(records - rows).elements()], [*(rows - records).elements()]
            wrong.append(f"{Path(name).name}: missing {len(missing)} {missing[:2]}, too many {len(many)} {many[:2]}")
    return wrong


@pytest.mark.parametrize(
    ("pieces", "shards", "share"),
    [
        ((HOSTS, 5), None, 20),
        *(pytest.param(*case, 1, marks=pytest.mark.slow) for case in (((HOSTS, 1, 2, 5), None), ((HOSTS, 5, 20), 3))),
    ],
)
def test_tasks_equal_read(tmp_path: Path, pieces: Sequence[int], shards: int | None, share: int) -> None:
    assert_tables_equal_read(local_session(), tmp_path, pieces, shards, share)


@pytest.mark.slow
def test_spark_equals_read(spark_session: SparkSession, tmp_path: Path) -> None:
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
