"""The examples of the page on Spark for reading tables and keeping them, run as they stand."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.spark.local_job import take
from tests.support.paths import FIXTURES, PROJECT
from tests.support.shown_commands import blocks
from zmtpsniff.cli.main import cli

# In this order: what a later page asks for has the names that an earlier one made.
PAGES = [PROJECT / "docs" / name for name in ("spark-ingest.md", "spark-report.md", "spark-operation.md")]


def test_the_blocks_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "web1"
    folder.mkdir()
    for name in ("app_malamute.pcap", "rec_plain_wrong_password.pcap"):
        (folder / name).write_bytes((FIXTURES / name).read_bytes())
    take([folder], tmp_path / "tables")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    found = [one for page in PAGES for one in blocks(page) if one.mark("run by") == "tests/spark/test_tables_docs.py"]
    assert {block.kind for block in found} == {"sh", "python"}
    for block in found:
        text = block.text.replace("/tables", str(tmp_path / "tables"))
        if block.kind == "python":
            exec(text, names)
            continue
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            assert words[0] == "zmtpsniff"
            done = CliRunner().invoke(cli, words[1:])
            assert done.exit_code == 0, done.output
