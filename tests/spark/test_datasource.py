"""The format `zmtp`: what it reads is what `read` says, of files that are there."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tests.spark.spark_tables import assert_places, by_series, captures, cut, cut_anywhere, expected
from tests.support.paths import FIXTURES
from zmtpsniff.capture.locations import LocationError
from zmtpsniff.decode_as import parse
from zmtpsniff.spark import register
from zmtpsniff.spark.datasource import TABLES, ZmtpSource
from zmtpsniff.spark.tables import arrow_schema

RULES = ("udp.port==5556,zmtp", "udp.port==5557,zmtp")


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def schema(table: str) -> StructType:
    return from_arrow_schema(arrow_schema(table))


def source(path: Path, table: str, **options: str) -> ZmtpSource:
    given = {"path": str(path), "table": table, "series": "(.)", "decodeAs": ";".join(RULES), "maxBytes": "65536"}
    return ZmtpSource({**given, **options})


def without_findings(records: "Counter[str]") -> "Counter[str]":
    """Without the records that are in tables only."""
    return Counter({
        record: count for record, count in records.items() if json.loads(record)["type"] not in ("finding", "work")
    })  # fmt: skip


@pytest.mark.parametrize(("number", "share"), [(1, 60), (5, 60), pytest.param(5, 1, marks=pytest.mark.slow)])
def test_tables_equal_read(tmp_path: Path, number: int, share: int) -> None:
    """The whole of the work of a task, without Spark, of every so many-th capture."""
    wrong = []
    for path in captures()[::share]:
        folder = tmp_path / path.parent.name / path.name
        files = [path] if number == 1 else cut_anywhere(path, number, folder, random.Random(number))
        found: dict[str, Any] = {"captures": [{"series": "/"}], "work": [], "findings": []}
        for table in TABLES:
            reader = source(path if files == [path] else folder, table, shards=str(number)).reader(schema(table))
            parts = reader.partitions()
            assert len(parts) == number
            found[table] = [row for part in parts for row in rows(reader.read(part))]
        if by_series(found)["/"] != without_findings(expected(files, decode_as=tuple(map(parse, RULES)))):
            wrong.append(path.name)
        if found["messages"]:
            assert_places(found)
    assert not wrong


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": "packets"}, "connections"),
        ({"ports": "x"}, "port"),
        ({"decodeAs": "tcp"}, "tcp.port==5555,zmtp"),
        ({"tabel": "messages"}, "unknown field `tabel`; options are table, series, shards, ports"),
        ({"shards": "0"}, r"Expected `int` >= 1 - at `\$.shards`"),
        ({"maxBytes": "-1"}, r"Expected `int` >= 0 - at `\$.maxbytes`"),
        ({"idle": "nan"}, r"Expected `float` > 0.0 - at `\$.idle`"),
        ({"bodies": "no"}, r"Expected `bool`, got `str` - at `\$.bodies`"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ZmtpSource({"path": str(tmp_path), **options}).schema()


def test_nothing_to_read(tmp_path: Path) -> None:
    nothing = source(tmp_path, "messages")
    assert "`time_ns` BIGINT NOT NULL, " in nothing.schema()
    reader = nothing.reader(schema("messages"))
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []
    gone = source(tmp_path / "gone", "messages")
    with pytest.raises(LocationError, match="there is no such file"):  # as soon as it is named
        gone.schema()
    with pytest.raises(LocationError, match="there is no such file"):  # also with columns of one's own
        gone.reader(schema("messages")).partitions()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two series, one of them in three files."""
    folder = tmp_path_factory.mktemp("captures")
    cut(FIXTURES / "app_malamute.pcap", [40, 80], folder / "one")
    cut(FIXTURES / "m31_pub_sub.pcap", [], folder / "two")
    return folder


@pytest.mark.slow
def test_read_on_spark(spark_session: SparkSession, folder: Path) -> None:
    register(spark_session)
    reader = spark_session.read.format("zmtp").options(TABLE="messages", MaxBytes="4")
    messages = reader.load(str(folder))
    assert messages.schema == schema("messages")
    everything = messages.collect()
    wanted = [record for part in ("one", "two") for record in expected(sorted((folder / part).iterdir())).elements()]
    assert len(everything) == sum('"type": "message"' in record for record in wanted)
    assert max(len(frame.data) for row in everything for frame in row.frames) == 4
    assert {row.series for row in everything} == {str(folder / "one"), str(folder / "two")}

    times = sorted(row.time for row in everything)
    middle, port = times[len(times) // 2], everything[0].dst_port
    for where, held in (
        (f"time >= timestamp'{middle.isoformat()}'", [row for row in everything if row.time >= middle]),
        (f"dst_port = {port}", [row for row in everything if row.dst_port == port]),
        (f"dst_port IN ({port}, 1) AND time_ns < 1", []),
        (f"series = '{folder}/two'", [row for row in everything if row.series == f"{folder}/two"]),
        (f"date = '{everything[0].date}'", [row for row in everything if row.date == everything[0].date]),
    ):
        found = messages.where(where)
        assert sorted(found.collect(), key=str) == sorted(held, key=str), where
    pruned = reader.schema("size BIGINT, conn_id STRING").load(str(folder))
    assert pruned.columns == ["size", "conn_id"]
    assert sorted(pruned.collect()) == sorted((row.size, row.conn_id) for row in everything)


@pytest.mark.slow
def test_a_frame_that_is_asked_twice(spark_session: SparkSession, folder: Path) -> None:
    """Spark would keep predicates that it had pushed down for the next query on the frame: it pushes none."""
    register(spark_session)
    messages = spark_session.read.format("zmtp").load(str(folder / "one"))
    count = messages.count()
    assert messages.where("dst_port = 1").count() == 0
    assert messages.count() == count > 0
    assert messages.where("dst_port > 1").union(messages.where("dst_port = 1")).count() == count
