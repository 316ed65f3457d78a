"""Tables in another format than Parquet: the same rows, brought up to date by each run."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import FIXTURES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")

import zmtpsniff.spark.ingest as adding
from tests.spark.local_job import Session
from tests.spark.spark_tables import cut, packets
from zmtpsniff.spark import export
from zmtpsniff.spark.ingest import ingest
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.tables import ddl

TABLES = ("connections", "messages", "captures")


def rows(session: "SparkSession", folder: Path, table: str, name: str) -> Counter[str]:
    found = session.read.schema(ddl(table)).format(name).load(f"{folder}/{table}").collect()
    return Counter(str(row) for row in found)


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("part-*")}


@pytest.mark.slow
def test_another_format_has_the_same_rows(
    spark_session: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = FIXTURES / "m31_pub_sub.pcap"
    parts = cut(path, [len(packets(path)) // 2], tmp_path / "in" / "one")
    other = tmp_path / "in" / "two" / "other.pcap"
    other.parent.mkdir()
    other.write_bytes((FIXTURES / "rec_proxy.pcap").read_bytes())
    out = tmp_path / "out"

    # Dissected in this process, which is quicker; what Spark does here is the export.
    dissect = adding._dissect
    monkeypatch.setattr(adding, "_dissect", lambda session, *rest: dissect(Session(), *rest))  # type: ignore[arg-type]

    def run(*inputs: Path) -> Any:
        return ingest(spark_session, [str(path) for path in inputs], str(out), format="orc")

    run(parts[0], other)
    before = files(out / "messages")
    assert run(parts[0], other).files == 0
    assert before == files(out / "messages") != {}

    # Killed when the store has all, but the other format does not: the next run brings it up to date.
    def die(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(export, "export", die)
        with pytest.raises(KeyboardInterrupt):
            run(*parts)
    assert run(*parts).files == 0
    for table in TABLES:
        found = rows(spark_session, out, table, "orc")
        assert found == rows(spark_session, out / "_parquet", table, "parquet") != Counter()
    assert rows(spark_session, out, "captures", "orc").total() == 3
    # A day whose rows have gone, as those of a series that is dissected anew may, goes.
    note = out / "_parquet" / "_exported.json"
    told = json.loads(note.read_text())
    told["made_of"]["messages"]["date=2001-01-01"] = ["messages/date=2001-01-01/old.parquet"]
    note.write_text(json.dumps(told))
    (out / "messages" / "date=2001-01-01").mkdir()
    run(*parts)
    assert not (out / "messages" / "date=2001-01-01").exists()

    with pytest.raises(SparkError, match="has tables in orc: say --format orc"):
        ingest(spark_session, [str(other)], str(out), format="json")
    with pytest.raises(SparkError, match="another format"):
        ingest(spark_session, [str(other)], str(out))
    assert ingest(spark_session, [str(other)], str(out), format="ORC").known == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [("csv", "Spark cannot write the tables so: .+"), ("no-such-format", "Spark knows no such format$")],
)
def test_a_format_that_cannot_be_is_told_at_once(
    spark_session: "SparkSession", tmp_path: Path, name: str, said: str
) -> None:
    with pytest.raises(SparkError, match=f"^--format {name}: {said}") as told:
        ingest(spark_session, [str(FIXTURES / "m31_pub_sub.pcap")], str(tmp_path), format=name)
    assert "\n" not in str(told.value)
    assert not list(tmp_path.iterdir())


def test_tables_in_parquet_stay_so(tmp_path: Path) -> None:
    inputs = [str(FIXTURES / "m31_pub_sub.pcap")]
    ingest(Session(), inputs, str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(SparkError, match="has tables in Parquet: leave out --format orc"):
        ingest(Session(), inputs, str(tmp_path), format="orc")  # type: ignore[arg-type]
    done = ingest(Session(), inputs, str(tmp_path), format="PARQUET")  # type: ignore[arg-type]
    assert (done.files, done.known) == (0, 1)
