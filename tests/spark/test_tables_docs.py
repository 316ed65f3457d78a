"""The examples of the page on Spark for reading tables and keeping them, run as they stand."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.paths import FIXTURES, PROJECT
from tests.support.shown_commands import blocks

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")
for package in ("duckdb", "polars"):
    pytest.importorskip(package)

from tests.spark.local_job import take
from zmtpsniff.cli.main import cli

PAGES = [PROJECT / "docs" / name for name in ("spark.md", "spark-operation.md", "spark-report.md")]
BLOCKS = [
    block for page in PAGES for block in blocks(page) if block.mark("run by") == "tests/spark/test_tables_docs.py"
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: " ".join(re.findall(r"\w+", block.text)[:4]))
def test_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: object) -> None:
    folder = tmp_path / "web1"
    folder.mkdir()
    for name in ("app_malamute.pcap", "rec_plain_wrong_password.pcap"):
        (folder / name).write_bytes((FIXTURES / name).read_bytes())
    take([folder], tmp_path / "tables")
    monkeypatch.chdir(tmp_path)
    text = block.text.replace("/tables", str(tmp_path / "tables"))  # type: ignore[attr-defined]
    if "import " in text:
        exec(text, {})
        return
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "zmtpsniff"
        done = CliRunner().invoke(cli, words[1:])
        assert done.exit_code == 0, done.output
