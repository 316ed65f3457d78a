"""Pieces are joined by the driver, by tasks of this machine, or on Spark: the tables are the same."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import FIXTURES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")

import pyarrow as pa
from spark_tables import by_series, cut, expected, packets, read_tables

from zmtpsniff.spark import job, judged
from zmtpsniff.spark.ingest import ingest
from zmtpsniff.spark.mapping import PIECE_SCHEMA, PIECES
from zmtpsniff.spark.writing import Writer

CAPTURES = ("m31_pub_sub.pcap", "rec_reconnect_storm.pcap", "draft_radio_dish_udp.pcap", "app_salt.pcap")
PARTS = 5


@pytest.mark.parametrize("limits", [{}, {"_MOST_WAITING": 0, "_MOST_JOINED": 0}, {"_MOST_IN_ALL": 0}])
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
    many, waiting = "_MOST_IN_ALL" in limits, "_MOST_WAITING" in limits
    assert (called["here"], called["on_spark"], called["run_here"]) == ((0, 2, 0) if many else (2, 0, 4 * waiting))


def _counted(called: Counter[str], name: str, function: Any) -> Any:
    def counted(*arguments: Any) -> Any:
        called[name] += 1
        return function(*arguments)

    return counted


def _pieces(folder: Path, sizes: dict[int, int], apart: bool = True) -> judged.Written:
    """A file of pieces of so many octets, one of each part, that can be compressed well."""
    batch = pa.RecordBatch.from_pylist(
        [
            {"part": part, "group": b"a", "first_ns": 1, "file_no": 1, "path": "x", "piece": bytes([part]) * octets}
            for part, octets in sizes.items()
        ],
        schema=PIECE_SCHEMA,
    )
    writer = Writer(str(folder), apart="part" if apart else "")
    writer.take(PIECES, batch)
    ((row,),) = (rows.to_pylist() for rows in writer.close(0))
    assert row["octets"] < sum(sizes.values()) / 50
    return judged.Written(**row)


MIB = 1 << 20
NO_STATES = PIECE_SCHEMA.empty_table()


@pytest.mark.parametrize(
    ("sizes", "processors", "shares"),
    [
        ({0: 1, 1: 1, 2: 1, 3: 1}, 2, [[0, 2], [1, 3]]),
        ({0: 1, 1: 1, 2: 1, 3: 1}, 9, [[0], [1], [2], [3]]),
        ({0: 3, 1: 3, 2: 3, 3: 1}, 1, [[0, 3], [1], [2]]),
        ({0: 3, 1: 1, 2: 3}, 1, [[0], [1], [2], [3]]),  # two to a task would be too many for one
        ({0: 1, 1: 9, 2: 1, 3: 1}, 2, []),  # too many for a task
        ({0: 4, 1: 4, 2: 4, 3: 4}, 2, []),  # too many in all
    ],
)
def test_parts_are_shared_out_to_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: dict[int, int], processors: int, shares: list[list[int]]
) -> None:
    for name, mib in {"_MOST_PIECES": 5, "_FEW_PIECES": 4, "_MOST_IN_ALL": 15}.items():
        monkeypatch.setattr(judged, name, mib * MIB)
    monkeypatch.setattr(judged, "_MOST_JOINED", 0)
    told = _pieces(tmp_path, {part: mib * MIB for part, mib in sizes.items()})
    assert judged.shares_of(str(tmp_path), [told], NO_STATES, 4, processors) == shares


def test_few_are_joined_by_one() -> None:
    assert judged.shares_of("/", [], NO_STATES, 4, 2) == [[0, 1, 2, 3]]


def test_parts_that_were_not_written_apart_count_for_each_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "_MOST_PIECES", 2 * MIB)
    told = _pieces(tmp_path, dict.fromkeys(range(4), MIB), apart=False)
    assert judged.shares_of(str(tmp_path), [told], NO_STATES, 4, 2) == []


def test_many_states_are_not_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "_MOST_PIECES", MIB)
    row = {"part": 0, "group": b"a", "first_ns": -1, "file_no": 0, "path": "", "piece": bytes(2 * MIB)}
    assert judged.shares_of("/", [], pa.Table.from_pylist([row], schema=PIECE_SCHEMA), 4, 2) == []
