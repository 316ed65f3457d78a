"""Which files are listed, and which are left alone."""

import os
import re
from errno import EACCES
from pathlib import Path
from typing import Any

import pytest

from tests.spark.local_job import take
from tests.support.paths import FIXTURES
from zmtpsniff.capture.file_list import list_files
from zmtpsniff.capture.locations import LocationError
from zmtpsniff.spark.inputs import File
from zmtpsniff.spark.options import check_series
from zmtpsniff.spark.series import series_of
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.tables import tables_of

CAPTURE = "m31_push_pull.pcap"


def put(*places: Path) -> None:
    """A capture in each place."""
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((FIXTURES / CAPTURE).read_bytes())


@pytest.mark.parametrize("output", ["messy/out", "."])
@pytest.mark.parametrize("given", ["messy", "messy/**", "link"])
def test_tables_beside_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, given: str) -> None:
    """Captures may even be in a folder that is called like a table, but in no table."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "messy" / "captures" / "one.pcap")
    (tmp_path / "link").symlink_to("messy")
    for files, known in ((1, 0), (0, 1)):
        done = take([given], output)
        assert (done.files, done.known) == (files, known)
    assert list((tmp_path / output / "captures").glob("date=*/*.parquet"))
    with pytest.raises(SparkError, match="/messy/captures: has files that zmtpsniff did not write"):
        take([given], "messy")
    assert [path.name for path in (tmp_path / "messy" / "captures").iterdir()] == ["one.pcap"]


@pytest.mark.parametrize(
    ("output", "paths", "others"),
    [
        ("/a b/out", ["/a b/out/"], ["/a b/out2/", "/x/a b/out/", "/a b/"]),
        ("file:///out/", ["/out/"], ["/in/out/"]),
        ("s3a://tables/out/", ["s3://tables/out/"], ["s3://captures/out/", "/tables/out/"]),
        ("s3://tables", ["s3://tables/"], ["s3://tables/more/"]),
        ("hdfs://host/out", ["hdfs://host/out/"], ["hdfs://host/in/out/"]),
    ],
)
def test_what_is_of_the_tables(output: str, paths: list[str], others: list[str]) -> None:
    found = tables_of(output)
    for path in paths:
        assert re.search(found, f"{path}messages/date=2026-11-21/one.parquet")
        assert re.search(found, f"{path}_states/one")
        assert not re.search(found, f"{path}messages/one.pcap")
    for path in others:
        assert not re.search(found, f"{path}messages/date=2026-11-21/one.parquet")


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    one, pipe = tmp_path / "one.pcap", tmp_path / "pipe.pcap"
    put(one)
    os.mkfifo(pipe)
    (tmp_path / "link.pcap").symlink_to(pipe)
    (tmp_path / "gone.pcap").symlink_to("nowhere")  # which is told
    for given in (tmp_path, tmp_path / "*.pcap"):
        wanted = [str(tmp_path / "gone.pcap"), str(one)]
        assert [file.path for file in list_files([str(given)])] == wanted
    for location in (str(pipe), f"file://{pipe}", "/dev/null"):
        with pytest.raises(LocationError, match="it is a FIFO, a socket or a device, and no file; write"):
            list_files([location])
    file = File(str(pipe))  # also one that is not listed
    assert list(file.blocks()) == []
    assert file.error == f"{pipe}: it is a FIFO, a socket or a device, and no file"


def test_series() -> None:
    for rule, name in (("folder", "/in/web1"), ("file", "/in/web1/7.pcap"), ("/(web[0-9])/", "web1"), ("(x)?w", "")):
        assert series_of("/in/web1/7.pcap", check_series(rule)) == (name or "/in/web1/7.pcap")
    with pytest.raises(ValueError, match="is not folder or file, and has no group"):
        check_series("(?:web)")


def test_a_folder_that_nobody_may_look_into_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed as a file that nobody can open, so that whoever reads it says so."""
    put(tmp_path / "a" / "1.pcap", tmp_path / "b" / "2.pcap")
    scans = os.scandir

    def refuse(path: str) -> Any:
        if str(path) == str(tmp_path / "b"):
            raise PermissionError(EACCES, "Permission denied", path)
        return scans(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert [file.path for file in list_files([str(tmp_path)])] == [str(tmp_path / "a" / "1.pcap"), str(tmp_path / "b")]
    assert File(str(tmp_path / "b")).beginning() is None
