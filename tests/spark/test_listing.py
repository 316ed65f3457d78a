"""Which files are listed, and which are left alone."""

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.paths import FIXTURES

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")

from tests.spark.local_job import Session
from zmtpsniff.spark.ingest import ingest
from zmtpsniff.spark.inputs import File
from zmtpsniff.spark.listing import check_series, list_files, series_of, tables_of
from zmtpsniff.spark.progress import list_all
from zmtpsniff.spark.session import SparkError

CAPTURE = "m31_push_pull.pcap"


def put(*places: Path) -> None:
    """A capture in each place."""
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((FIXTURES / CAPTURE).read_bytes())


@pytest.mark.parametrize("output", ["messy/out", "messy", "."])
@pytest.mark.parametrize("given", ["messy", "messy/**", "link"])
def test_tables_beside_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, given: str) -> None:
    """Captures may even be in a folder that is called like a table."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "messy" / "captures" / "one.pcap")
    (tmp_path / "link").symlink_to("messy")
    for files, known in ((1, 0), (0, 1)):
        done = ingest(Session(), [given], output)  # type: ignore[arg-type]
        assert (done.files, done.known) == (files, known)
    assert list((tmp_path / output / "captures").glob("date=*/*.parquet"))


@pytest.mark.parametrize(
    ("output", "paths", "others"),
    [
        ("/a b/out", ["/a b/out/", "file:/a b/out/", "file:///a b/out/"], ["/a b/out2/", "/x/a b/out/", "/a b/"]),
        ("file:///out/", ["/out/"], ["/in/out/"]),
        ("s3://tables/out/", ["s3a://tables/out/", "s3://tables/out/"], ["s3a://captures/out/", "/tables/out/"]),
        ("s3a://tables", ["s3a://tables/"], ["s3a://tables/more/"]),
        ("hdfs:///out", ["hdfs://host:8020/out/", "hdfs:///out/"], ["hdfs://host:8020/in/out/"]),
    ],
)
def test_what_is_of_the_tables(output: str, paths: list[str], others: list[str]) -> None:
    found = tables_of(output)
    for path in paths:
        assert re.search(found, f"{path}messages/date=2026-11-21/one.parquet")
        assert not re.search(found, f"{path}messages/one.pcap")
    for path in others:
        assert not re.search(found, f"{path}messages/date=2026-11-21/one.parquet")


def test_tables_where_only_spark_lists() -> None:
    class Reader:
        """A session, its reader and a data frame, as far as listing needs them."""

        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *arguments: object) -> Any:
            return self

        def collect(self) -> list[Any]:
            names = ("in/one.pcap", "out/captures/date=2026-11-21/one.parquet")
            return [SimpleNamespace(path=f"s3a://here/{name}", length=1, modified=2) for name in names]

    found = list_files(["s3a://here"], Reader(), tables_of("s3a://here/out"))  # type: ignore[arg-type]
    assert [file.path for file in found] == ["s3a://here/in/one.pcap"]


def test_what_a_stream_keeps(tmp_path: Path) -> None:
    state = tmp_path / "state"
    own = [state / "files" / "1.json", state / "left" / ("0" * 32) / "1.msgpack"]
    put(tmp_path / "one.pcap", state / "two.pcap", *own)
    for given in (str(tmp_path), f"file://{tmp_path}"):
        found = [file.path for file in list_all([given], str(state))]
        assert found == [str(tmp_path / "one.pcap"), str(state / "two.pcap")]
    assert len(list_all([str(tmp_path)])) == 4


def test_what_never_ends_is_left_alone(tmp_path: Path) -> None:
    one, pipe = tmp_path / "one.pcap", tmp_path / "pipe.pcap"
    put(one)
    os.mkfifo(pipe)
    (tmp_path / "link.pcap").symlink_to(pipe)
    (tmp_path / "gone.pcap").symlink_to("nowhere")  # which is told
    for given in (tmp_path, tmp_path / "*.pcap"):
        wanted = [str(tmp_path / "gone.pcap"), str(one)]
        assert [file.path for file in list_files([str(given)])] == wanted
        assert [file.path for file in list_all([str(given)])] == wanted
    for given in (str(pipe), f"file://{pipe}", "/dev/null"):
        with pytest.raises(SparkError, match="it is a FIFO, a socket or a device, and no file; write"):
            list_files([given])
        with pytest.raises(SparkError, match="it is a FIFO"):
            list_all([given])


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    """Whoever names it."""
    pipe = tmp_path / "pipe.pcap"
    os.mkfifo(pipe)
    file = File(str(pipe))
    assert list(file.batches()) == []
    assert file.error == f"{pipe}: it is a FIFO, a socket or a device, and no file"


def test_series() -> None:
    for rule, name in (("folder", "/in/web1"), ("file", "/in/web1/7.pcap"), ("/(web[0-9])/", "web1"), ("(x)?w", "")):
        assert series_of("/in/web1/7.pcap", check_series(rule)) == (name or "/in/web1/7.pcap")
    for rule in ("(", "web", "(?:web)"):
        with pytest.raises(ValueError, match="is no"):
            check_series(rule)
