"""The notebook is made of its source, and its cells run."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.local_job import take
from tests.spark.spark_tables import of_hosts
from tests.support.paths import FIXTURES, PROJECT


def make_notebook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_notebook", PROJECT / "docs" / "make_notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notebook_is_that_of_its_source() -> None:
    made = make_notebook()
    spark = made.SPARK_NOTEBOOK
    assert spark.target.read_text() == made.notebook(spark), "python docs/make_notebook.py makes it"


@pytest.mark.slow
def test_notebook_runs(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All cells, and each question has the same answer in SQL and with data frames."""
    captures = [FIXTURES / f"{name}.pcap" for name in ("m31_pub_sub", "rec_reconnect_storm")]
    captures += of_hosts(FIXTURES / "brokers" / "two_brokers.pcap.gz", tmp_path / "hosts", 3)
    take(captures, tmp_path / "tables", series="file", ways=True)
    monkeypatch.setenv("ZMTPSNIFF_TABLES", str(tmp_path / "tables"))
    master = spark_session.sparkContext.master
    assert master is not None
    monkeypatch.setenv("ZMTPSNIFF_MASTER", master)
    made = make_notebook()
    names: dict[str, Any] = {}
    shown = []
    for kind, text in made.cells(made.SPARK_NOTEBOOK.source.read_text()):
        if kind == "code":
            exec(compile(text, "spark-notebook", "exec"), names)
            shown.append(capsys.readouterr().out)
    setup, *answers = shown
    assert not setup
    storms = answers.pop(8)
    assert "incomplete" in storms
    for in_sql, with_frames in zip(answers[::2], answers[1::2], strict=True):
        assert in_sql == with_frames
        assert in_sql.count("\n|") > 1, "no row"
