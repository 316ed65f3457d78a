"""The examples in Python of the page on streaming, run as they stand, one block after the other."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.spark_tables import expected, read_tables
from tests.support.paths import FIXTURES, PROJECT
from tests.support.shown_commands import blocks

NAME = "m31_push_pull.pcap"
BLOCKS = [
    block
    for block in blocks(PROJECT / "docs" / "spark-streaming.md")
    if block.mark("run by") == "tests/spark/test_streaming_docs.py"
]


@pytest.mark.slow
def test_blocks(spark_session: SparkSession, tmp_path: Path) -> None:
    assert len(BLOCKS) == 2
    folder = tmp_path / "captures" / "web1"
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes((FIXTURES / NAME).read_bytes())
    names: dict[str, Any] = {"spark": spark_session}
    for block in BLOCKS:
        text = block.text
        for place in ("/captures", "/tables", "/checkpoint"):
            text = text.replace(f'"{place}', f'"{tmp_path}{place}')
        exec(text, names)
        for query in spark_session.streams.active:
            query.processAllAvailable()
            query.stop()
            assert query.exception() is None
    messages = 14
    assert sum('"type": "message"' in line for line in expected([folder / NAME])) == messages
    assert len(read_tables(tmp_path / "tables")["messages"]) == messages
    assert names["messages"].count() == messages
