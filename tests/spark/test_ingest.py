"""The tables say of every capture what `read` says, whole and cut: on Spark, and the stages of a job alone."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import CAPTURES, FIXTURES
from zmtpsniff.decode_as import parse
from zmtpsniff.spark import dissect
from zmtpsniff.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")

from tests.spark.local_job import Session
from tests.spark.spark_tables import assert_places, by_series, cut, expected, packets, read_tables
from zmtpsniff.spark.ingest import ingest
from zmtpsniff.spark.tables import TABLES, arrow_schema

SUFFIXES = (".pcap", ".pcapng", ".pcap.gz", ".strace")
RULES = tuple(map(parse, ("udp.port==5556,zmtp", "udp.port==5557,zmtp")))


def captures() -> list[Path]:
    folders = [FIXTURES, *([CAPTURES] if CAPTURES.is_dir() else [])]
    return [path for folder in folders for path in sorted(folder.iterdir()) if path.name.endswith(SUFFIXES)]


def series(folder: Path, pieces: Sequence[int]) -> dict[str, list[Path]]:
    """Every capture, whole and cut into so many files at random places: a folder each, with its files."""
    random_places = random.Random(6)
    found: dict[str, list[Path]] = {}
    for path in captures():
        count = len(packets(path))
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


def assert_tables_equal_read(session: Any, folder: Path, pieces: Sequence[int]) -> None:
    wanted = series(folder / "in", pieces)
    ingest(session, [str(folder / "in")], str(folder / "out"), Options(rules=RULES))
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
    assert len(wanted) > 50


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [(1, 2), (5, 20)])
def test_stages_equal_read(tmp_path: Path, pieces: Sequence[int]) -> None:
    assert_tables_equal_read(Session(), tmp_path, pieces)


def test_spark_equals_read(spark_session: "SparkSession", tmp_path: Path) -> None:
    assert_tables_equal_read(spark_session, tmp_path, (5,))


@pytest.mark.slow
def test_urls_that_only_hadoop_knows(spark_session: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "in" / "web1").mkdir(parents=True)
    for number, content in enumerate((FIXTURES / "m31_pub_sub.pcap", FIXTURES / "m31_req_rep.pcap")):
        (tmp_path / "in" / "web1" / f"{number}.pcap").write_bytes(content.read_bytes())
    spark_session.conf.set("fs.viewfs.mounttable.site.link./captures", f"file://{tmp_path}/in")
    ingest(spark_session, ["viewfs://site/captures"], str(tmp_path / "out"))
    ((name, found),) = by_series(read_tables(tmp_path / "out")).items()
    assert name == "viewfs://site/captures/web1"
    assert found == expected(sorted((tmp_path / "in" / "web1").iterdir()))


@pytest.mark.slow
def test_late_file_that_only_hadoop_opens(spark_session: "SparkSession", tmp_path: Path) -> None:
    """Its series is dissected anew, from files that are brought to the task again."""
    files = cut(FIXTURES / "m31_push_pull.pcap", [12, 24], tmp_path / "in" / "web1")
    spark_session.conf.set("fs.viewfs.mounttable.late.link./captures", f"file://{tmp_path}/in")
    for place in (0, 2, 1):
        url = f"viewfs://late/captures/web1/{files[place].name}"
        assert ingest(spark_session, [url], str(tmp_path / "out")).files == 1
    ((_, found),) = by_series(read_tables(tmp_path / "out")).items()
    assert found == expected(files)


@pytest.mark.slow
def test_data_frames_of_a_library(spark_session: "SparkSession", tmp_path: Path) -> None:
    path = FIXTURES / "m31_pub_sub.pcap"
    ingest(spark_session, [str(path)], str(tmp_path))
    tables = dissect(spark_session.createDataFrame([(str(path),)], "path STRING"))
    try:
        for name in TABLES:
            frame = getattr(tables, name)
            if not (tmp_path / name).exists():
                assert frame.count() == 0
                continue
            stored = spark_session.read.parquet(str(tmp_path / name))
            assert sorted(frame.columns) == sorted(stored.columns)
            assert frame.count() == stored.count(), name
            assert dict(frame.dtypes) == dict(stored.dtypes), name
    finally:
        tables.close()


def test_files_have_the_documented_schema(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    ingest(Session(), [str(FIXTURES / "m31_pub_sub.pcap")], str(tmp_path))  # type: ignore[arg-type]
    for table in ("connections", "messages", "commands", "subscriptions", "captures"):
        (file,) = (tmp_path / table).glob("date=*/*.parquet")
        with file.open("rb") as opened:
            schema = pq.ParquetFile(opened).schema_arrow
        wanted = arrow_schema(table)
        assert schema.equals(wanted.remove(wanted.get_field_index("date")))
