"""Few pieces are joined in the driver, many on Spark: the tables are the same."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import FIXTURES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq
from spark_tables import by_series, cut, expected, packets, read_tables

from zmtpsniff.spark import job, judged
from zmtpsniff.spark.ingest import ingest
from zmtpsniff.spark.mapping import PIECE_SCHEMA

CAPTURES = ("m31_pub_sub.pcap", "rec_reconnect_storm.pcap", "draft_radio_dish_udp.pcap", "app_salt.pcap")
PARTS = 5


@pytest.mark.parametrize("limits", [{}, {"_MOST_WAITING": 0, "_MOST_JOINED": 0}, {"_MOST_PIECES": 0}])
def test_joined_here_or_on_spark(
    spark_session: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    called: Counter[str] = Counter()
    for name, value in limits.items():
        monkeypatch.setattr(judged, name, value)
    for module, name in ((job, "here"), (job, "on_spark"), (judged, "run_here")):
        monkeypatch.setattr(module, name, _counted(called, name, getattr(module, name)))
    wanted = {}
    for name in CAPTURES:
        folder = tmp_path / "in" / name
        count = len(packets(FIXTURES / name))
        wanted[str(folder)] = cut(FIXTURES / name, [count * part // PARTS for part in range(1, PARTS)], folder)
    files = [path for paths in wanted.values() for path in paths]
    first = [str(path) for path in files if path.stem < "002"]
    ingest(spark_session, first, str(tmp_path / "out"))  # which leaves states
    ingest(spark_session, [str(path) for path in files], str(tmp_path / "out"))
    found = by_series(read_tables(tmp_path / "out"))
    assert {name: expected(paths) for name, paths in wanted.items()} == found
    many, waiting = "_MOST_PIECES" in limits, "_MOST_WAITING" in limits
    assert (called["here"], called["on_spark"], called["run_here"]) == ((0, 2, 0) if many else (2, 0, 4 * waiting))


def _counted(called: Counter[str], name: str, function: Any) -> Any:
    def counted(*arguments: Any) -> Any:
        called[name] += 1
        return function(*arguments)

    return counted


@pytest.mark.parametrize(("octets", "few"), [(1 << 10, True), (2 << 20, False)])
def test_pieces_that_were_compressed_well_are_not_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, octets: int, few: bool
) -> None:
    monkeypatch.setattr(judged, "_MOST_PIECES", 1 << 20)
    row = {"part": 0, "group": b"a", "first_ns": 1, "file_no": 1, "path": "x", "piece": bytes(octets)}
    file = tmp_path / "one.parquet"
    pq.write_table(pa.Table.from_pylist([row], schema=PIECE_SCHEMA), file, compression="zstd")
    told = judged.Written(0, file.name, 1, file.stat().st_size)
    assert told.octets < 16 << 10
    assert judged.are_few(str(tmp_path), [told], PIECE_SCHEMA.empty_table()) == few


def test_many_states_are_not_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "_MOST_PIECES", 1 << 20)
    row = {"part": 0, "group": b"a", "first_ns": -1, "file_no": 0, "path": "", "piece": bytes(2 << 20)}
    assert not judged.are_few(str(tmp_path), [], pa.Table.from_pylist([row], schema=PIECE_SCHEMA))
