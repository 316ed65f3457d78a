"""A row's packet is cut out of its file as the page on Spark says, for rows and captures of all kinds."""

import gzip
import io
import os
import random
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.capture.test_files_offsets import captures, sections
from tests.spark.local_job import take
from tests.spark.spark_tables import read_tables
from tests.support import records
from tests.support.paths import FIXTURES, PROJECT
from tests.support.shown_commands import blocks
from tests.world.tap import load
from zmtpsniff.words.zstd import zstd

SHELL, PYTHON = (
    block.text
    for block in blocks(PROJECT / "docs" / "spark-ingest.md")
    if block.mark("run by") == "tests/spark/test_cut_out.py"
)


def rows(path: Path, folder: Path, table: str = "messages") -> list[dict[str, Any]]:
    take([path], folder)
    return read_tables(folder)[table]


class Spark:
    """So much of a session as the page uses: it reads rows that are at hand."""

    def __init__(self, found: list[dict[str, Any]]) -> None:
        self.found = found

    def where(self, condition: str) -> "Spark":
        assert condition == "offset IS NOT NULL"
        return Spark([row for row in self.found if row["offset"] is not None])

    def first(self) -> SimpleNamespace:
        return SimpleNamespace(**self.found[0])


def page(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the page's Python with rows of ``problems``; the names that it leaves."""
    names: dict[str, Any] = {"spark": Spark(found)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zmtpsniff.spark.open_tables", lambda session, folder: {"problems": session})
        exec(PYTHON, names)
    return names


def problems(folder: Path) -> list[dict[str, Any]]:
    return rows(FIXTURES / "rec_plain_wrong_password.pcap", folder, "problems")


def test_python_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = problems(tmp_path / "out")
    page(found)
    row = next(row for row in found if row["offset"] is not None)
    assert load(tmp_path / "one.pcap") == [load(Path(row["file"]))[row["packet"] - 1]]


@pytest.mark.slow
def test_python_of_the_page_with_captures_of_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cut_out = page(problems(tmp_path / "out"))["cut_out"]
    (tmp_path / "sections.pcapng").write_bytes(sections())
    one = tmp_path / "one"
    for path in (*captures(), tmp_path / "sections.pcapng"):
        octets, whole = records.content(path), load(path)
        offsets = records.offsets(octets)
        assert offsets is not None
        numbers = range(len(whole)) if path.parent == tmp_path else random.Random(3).sample(range(len(whole)), 3)
        for number in numbers:
            one.write_bytes(cut_out(io.BytesIO(octets), offsets[number]))
            ((time_ns, *rest),) = load(one)
            assert rest == list(whole[number][1:]), path.name
            # One of a simple packet block has none of its own.
            assert time_ns == whole[number][0] or not time_ns, path.name


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_python_of_the_page_with_a_compressed_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    cut_out = page(problems(tmp_path / "out"))["cut_out"]
    packed = tmp_path / "capture"
    octets = (FIXTURES / "m31_pub_sub.pcap").read_bytes()
    packed.write_bytes(gzip.compress(octets) if form == "gzip" else zstd.compress(octets))
    found = rows(packed, tmp_path / "packed")
    assert [row["offset"] for row in found] == [
        row["offset"] for row in rows(FIXTURES / "m31_pub_sub.pcap", tmp_path / "plain")
    ]
    opened: Any = gzip.open if form == "gzip" else zstd.open
    with opened(packed, "rb") as file:
        (tmp_path / "one").write_bytes(cut_out(file, found[-1]["offset"]))
    assert load(tmp_path / "one") == [load(packed)[found[-1]["packet"] - 1]]


@pytest.mark.skipif(not (shutil.which("editcap") and shutil.which("tshark")), reason="Wireshark's tools are not there")
def test_commands_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes((FIXTURES / "m31_pub_sub.pcap").read_bytes())
    row = rows(path, tmp_path / "out")[-1]
    environment = {**os.environ, "PACKET": str(row["packet"]), "OFFSET": str(row["offset"])}
    subprocess.run(["sh", "-ec", SHELL], cwd=tmp_path, env=environment, check=True, capture_output=True)
    expected = [load(path)[row["packet"] - 1]]
    assert load(tmp_path / "one.pcap") == load(tmp_path / "one.pcapng") == expected
