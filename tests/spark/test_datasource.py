"""The format `zmtp`: what it reads is what `read` says, of a folder as it is and of one that fills."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import CAPTURES, FIXTURES
from zmtpsniff.capture.locations import LocationError
from zmtpsniff.decode_as import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")
pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'zmtpsniff[spark]'")

from pyspark.sql.datasource import (
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from tests.spark.spark_tables import assert_places, by_series, cut, expected, later
from tests.world.tap import load
from zmtpsniff.spark import register
from zmtpsniff.spark.datasource import TABLES, ZmtpSource
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.tables import arrow_schema

SUFFIXES = (".pcap", ".pcapng", ".pcap.gz", ".strace")
RULES = ("udp.port==5556,zmtp", "udp.port==5557,zmtp")
PIECES = (1, 5)
ALL = ReadAllAvailable()


def captures() -> list[Path]:
    folders = [FIXTURES, *([CAPTURES] if CAPTURES.is_dir() else [])]
    return [path for folder in folders for path in sorted(folder.iterdir()) if path.name.endswith(SUFFIXES)]


def in_pieces(path: Path, number: int, folder: Path) -> list[Path]:
    """A capture, or the files that it is cut into at random places."""
    count = len(load(path))
    if number == 1 or count < 2:
        return [path]
    return cut(path, random.Random(number).sample(range(1, count), min(number, count) - 1), folder)


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


@pytest.mark.slow
@pytest.mark.parametrize("number", PIECES)
def test_tables_equal_read(tmp_path: Path, number: int) -> None:
    """The whole of the work of a task, without Spark."""
    wrong = []
    for path in captures():
        folder = tmp_path / path.parent.name / path.name
        files = in_pieces(path, number, folder)
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
    "name",
    [
        "rec_frozen_peer.pcap",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("app_malamute.pcap", "m31_heartbeat.pcap", "ws_pub_sub.pcap")
        ),
    ],
)
def test_stream_goes_on_from_what_was_left(tmp_path: Path, name: str) -> None:
    """Every file a micro-batch of its own, without Spark."""
    files = in_pieces(FIXTURES / name, 4, tmp_path / "cut")
    found: dict[str, Any] = {"captures": [{"series": "/"}], "work": [], "findings": []}
    for table in TABLES:
        folder = tmp_path / "in" / table
        folder.mkdir(parents=True)
        options = {"state": str(tmp_path / "state" / table)}
        offset = source(folder, table, **options).streamReader(schema(table)).initialOffset()
        found[table] = []
        for at, file in enumerate(files):
            (folder / file.name).write_bytes(file.read_bytes())
            killed = source(folder, table, **options, shards="5").streamReader(schema(table))
            for part in killed.partitions(offset, killed.latestOffset(offset, ALL))[2:]:
                list(killed.read(part))
            shards = {"shards": str(1 + at % 3)}
            reader = source(folder, table, **options, **shards).streamReader(schema(table))
            end = reader.latestOffset(offset, ALL)
            assert reader.latestOffset(offset, ALL) == end  # asked again after a crash
            parts = reader.partitions(offset, end)
            for part in parts:
                once = rows(reader.read(part))
                assert rows(reader.read(part)) == once  # a task that is run again
                found[table] += once
            reader.commit(end)
            offset = end
        assert reader.latestOffset(offset, ALL) == offset
        assert reader.partitions(offset, offset) == []
    assert_places(found)
    for row in (row for some in found.values() for row in some):
        names = [name for name in ("file", "request_file") if row.get(name)]
        row |= {name: str(files[0].parent / Path(row[name]).name) for name in names}
    assert by_series(found)["/"] == without_findings(expected(files))


def test_a_stream_that_ends_with_what_is_there(tmp_path: Path) -> None:
    """It takes that in as many micro-batches as it needs, and no file that comes meanwhile."""
    folder = tmp_path / "in"
    cut(FIXTURES / "m31_push_pull.pcap", [20, 30], folder)
    options = {"state": str(tmp_path / "state"), "maxFiles": "2"}
    reader: Any = source(folder, "messages", **options).streamReader(schema("messages"))
    reader.prepareForTriggerAvailableNow()
    (folder / "late.pcap").write_bytes((FIXTURES / "m31_req_rep.pcap").read_bytes())
    offset: dict[str, Any] = {"batch": 0, "files": []}
    taken = []
    while (end := reader.latestOffset(offset, ALL)) != offset:
        for part in reader.partitions(offset, end):
            rows(reader.read(part))
        taken.append([Path(file[0]).name for file in end["files"]])
        offset = end
    assert taken == [["000.pcapng", "001.pcapng"], ["002.pcapng"]]


def test_late_file_of_a_stream(tmp_path: Path) -> None:
    """Its rows come, too; what its connections are called is not known any more."""
    files = cut(FIXTURES / "app_malamute.pcap", [45, 90], tmp_path / "cut")
    # What waits for the octets of the late file is told once others show that they will not come.
    last_ns = load(files[2])[-1][0]
    apart_ns = last_ns - load(FIXTURES / "m31_ipv6.pcap")[0][0]
    files.append(later(FIXTURES / "m31_ipv6.pcap", apart_ns + 10**13, tmp_path / "cut" / "004.pcapng"))
    folder = tmp_path / "in"
    folder.mkdir()
    found = []
    offset: dict[str, Any] = {"batch": 0, "files": []}
    for file in (files[0], files[2], files[1], files[3]):
        (folder / file.name).write_bytes(file.read_bytes())
        reader = source(folder, "messages", state=str(tmp_path / "state")).streamReader(schema("messages"))
        end = reader.latestOffset(offset, ALL)
        for part in reader.partitions(offset, end):
            found += rows(reader.read(part))
        offset = end
    assert {row["file"] for row in found} == {str(folder / file.name) for file in files}
    sizes = Counter(row["size"] for row in found if row["file"] != str(folder / files[3].name))
    whole = source(FIXTURES / "app_malamute.pcap", "messages").reader(schema("messages"))
    assert sizes <= Counter(row["size"] for part in whole.partitions() for row in rows(whole.read(part)))


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


def test_stream_wants_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="state"):
        source(tmp_path, "messages").streamReader(schema("messages"))
    reader = source(tmp_path, "messages", state=str(tmp_path / "state")).streamReader(schema("messages"))
    for number in (1, 2):  # which no task has left there
        with pytest.raises(SparkError, match="it is not what this checkpoint left; begin with new folders"):
            reader.latestOffset({"batch": number, "files": []}, ALL)


def test_nothing_to_read(tmp_path: Path) -> None:
    reader = source(tmp_path, "messages").reader(schema("messages"))
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
def test_read_on_spark(spark_session: "SparkSession", folder: Path) -> None:
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
def test_a_frame_that_is_asked_twice(spark_session: "SparkSession", folder: Path) -> None:
    """Spark would keep predicates that it had pushed down for the next query on the frame: it pushes none."""
    register(spark_session)
    messages = spark_session.read.format("zmtp").load(str(folder / "one"))
    count = messages.count()
    assert messages.where("dst_port = 1").count() == 0
    assert messages.count() == count > 0
    assert messages.where("dst_port > 1").union(messages.where("dst_port = 1")).count() == count


@pytest.mark.slow
def test_stream_on_spark(spark_session: "SparkSession", folder: Path, tmp_path: Path) -> None:
    register(spark_session)
    source = tmp_path / "in"
    source.mkdir()
    files = sorted((folder / "one").iterdir())
    stream = spark_session.readStream.format("zmtp").option("state", str(tmp_path / "state"))
    frame = stream.option("maxFiles", 2).load(str(source)).select("conn_id", "time_ns", "size")
    for some in (files[:2], files[2:]):
        for file in some:
            (source / file.name).write_bytes(file.read_bytes())
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(processingTime="1 second").start(str(tmp_path / "out"))
        query.processAllAvailable()
        query.stop()
    reader = spark_session.read.format("zmtp").load(str(folder / "one")).select("conn_id", "time_ns", "size")
    assert sorted(spark_session.read.parquet(str(tmp_path / "out")).collect()) == sorted(reader.collect())
