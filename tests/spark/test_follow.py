"""A folder that fills, with Spark: nothing lost and nothing twice, whoever is killed; an interrupt is one line."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from tests.spark.local_job import asked, local_session
from tests.spark.spark_tables import by_series, cut, expected, read_tables
from tests.support.paths import FIXTURES
from tests.support.spark_settings import write_settings
from tests.world.tap import load
from zmtpsniff.spark.ingestion import IngestOutcome, IngestRun, follow
from zmtpsniff.spark.options import Options

Ingest = Callable[..., Result]
PATIENCE = 400  # seconds that a run of Spark may take on a machine that does much else


def deliver(file: Path, folder: Path) -> Path:
    """Put a file into a folder as whoever rotates captures does: renamed once it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{file.name}"
    partial.write_bytes(file.read_bytes())
    return partial.rename(folder / file.name)


class Enough(Exception):  # noqa: N818
    pass


def test_files_come_while_it_follows(tmp_path: Path) -> None:
    """Without Spark: the next file comes when the one before has been taken; those that are late, too."""
    source = tmp_path / "in"
    source.mkdir()
    pieces = cut(FIXTURES / "app_malamute.pcap", [20, 45, 60, 90], tmp_path / "cut")
    waiting = [pieces[at] for at in (0, 1, 3, 2, 4)]
    deliver(waiting.pop(0), source)
    found: list[IngestOutcome] = []

    def report(done: IngestOutcome) -> None:
        found.append(done)
        if not waiting:
            raise Enough
        deliver(waiting.pop(0), source)

    with pytest.raises(Enough):
        follow(local_session(), [str(source)], asked(tmp_path / "out"), report, every_seconds=0)
    assert [(done.files, done.known) for done in found] == [(1, number) for number in range(5)]
    assert by_series(read_tables(tmp_path / "out"))[str(source)] == expected(sorted(source.iterdir()))


def test_a_folder_that_is_empty_fills(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()

    def report(done: IngestOutcome) -> None:
        raise Enough

    def fill() -> None:
        time.sleep(0.2)
        deliver(FIXTURES / "m31_req_rep.pcap", source)

    Thread(target=fill).start()
    with pytest.raises(Enough):
        follow(local_session(), [str(source)], asked(tmp_path / "out"), report, every_seconds=0.1)
    assert read_tables(tmp_path / "out")["messages"]


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_on_spark(spark_session: SparkSession, tmp_path: Path) -> None:
    """Once, in several shards, then again."""
    pieces = cut(FIXTURES / "app_malamute.pcap", [20, 45, 60, 90], tmp_path / "cut")
    run = IngestRun(str(tmp_path / "out"), Options(max_bytes=65_536), shards=2)
    for some in (pieces[:3], pieces[3:]):
        for file in some:
            deliver(file, tmp_path / "in")
        follow(spark_session, [str(tmp_path / "in")], run, lambda done: None, once=True)
    assert by_series(read_tables(tmp_path / "out"))[str(tmp_path / "in")] == expected(
        sorted((tmp_path / "in").iterdir())
    )


def command(source: Path, output: Path, *options: str) -> "subprocess.Popen[bytes]":
    start = [sys.executable, "-m", "zmtpsniff", "spark", "ingest", str(source), "--output", str(output)]
    return subprocess.Popen(
        [*start, "--master", "local[1]", "--max-bytes", "65536", *options],
        stdout=subprocess.DEVNULL,
        stderr=output.with_name("stderr").open("wb"),
        start_new_session=True,  # so that the driver and its JVM can be killed at once
        env=os.environ | write_settings(output.with_name("settings")),
    )


def end_when(process: "subprocess.Popen[bytes]", is_time: Callable[[], bool], by: int = signal.SIGKILL) -> bool:
    """Have a run and its JVM get a signal as soon as something is so; False if it never was."""
    deadline = time.monotonic() + PATIENCE
    seen = False
    try:
        while not seen and time.monotonic() < deadline and process.poll() is None:
            seen = is_time()
            time.sleep(0.001)
        os.killpg(process.pid, by)
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return seen


@pytest.mark.slow
@pytest.mark.usefixtures("spark_installed")
def test_killed_in_mid_run(tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    pieces = cut(FIXTURES / "app_malamute.pcap", [30, 60, 90], tmp_path / "cut")
    for file in pieces[:2]:
        deliver(file, source)
    # Once tasks have written, before anything is committed; then in the middle of a commit.
    assert end_when(command(source, output, "--follow"), lambda: any(output.glob("messages/date=*/*.parquet")))
    deliver(pieces[2], source)
    assert end_when(command(source, output, "--follow"), lambda: any(output.glob("_states/_delta_log/*1.json")))
    deliver(pieces[3], source)
    last = command(source, output, "--follow", "--once")
    assert last.wait(PATIENCE) == 0
    assert output.with_name("stderr").read_text().endswith(f" into {output}\n")
    assert len(read_tables(output)["captures"]) == len(pieces)
    assert by_series(read_tables(output))[str(source)] == expected(sorted(source.iterdir()))


@pytest.mark.slow
@pytest.mark.usefixtures("spark_installed")
@pytest.mark.parametrize("options", [(), ("--follow",)])
def test_an_interrupt_is_one_line(tmp_path: Path, options: tuple[str, ...]) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    size = len(load(FIXTURES / "app_malamute.pcap"))
    for file in cut(FIXTURES / "app_malamute.pcap", range(1, size, 4), tmp_path / "cut"):
        for host in range(40):
            deliver(file, source / str(host))
    process = command(source, output, *options)
    assert end_when(process, lambda: any(output.glob("messages/date=*/*.parquet")), signal.SIGINT)
    said = output.with_name("stderr").read_text()
    line = "zmtpsniff: interrupted: run it again, and it goes on from what is in the tables\n"
    assert (process.returncode, said) == ((0, "") if options else (130, line))


@pytest.fixture
def ingest(monkeypatch: pytest.MonkeyPatch) -> Ingest:
    """The command, without Spark: called with the folder of captures, that of the tables, and options."""
    from zmtpsniff.cli.main import cli
    from zmtpsniff.spark import session

    monkeypatch.setattr(session, "LazySession", lambda master: local_session())
    return lambda folder, output, *options: CliRunner().invoke(
        cli, ["spark", "ingest", str(folder), "--output", str(output), *options]
    )


def test_what_is_said_of_files(tmp_path: Path, ingest: Ingest) -> None:
    """In the last lines, each kind by itself; the status is 0 unless --strict is given."""
    folder = tmp_path / "in"
    folder.mkdir()
    content: dict[str, Any] = {"a.pcap": (FIXTURES / "m31_req_rep.pcap").read_bytes(), "b.txt": b"none", "c.txt": b""}
    content["d.pcap"] = content["a.pcap"][:-7]
    for name, octets in content.items():
        (folder / name).write_bytes(octets)
    for at, strict in enumerate(([], ["--strict"])):
        done = ingest(folder, tmp_path / f"out{at}", *strict)
        lines = done.output.splitlines()
        assert lines[0] == f"1 of 4 files is damaged, read up to there: {folder}/d.pcap"
        assert lines[1] == f"2 of 4 files are no captures: {folder}/b.txt, {folder}/c.txt"
        assert lines[2].startswith("4 files: ")
        assert done.exit_code == (2 if strict else 0)


def test_a_file_that_comes_late_is_told(tmp_path: Path, ingest: Ingest) -> None:
    """The first file of a connection, when the second one is in the tables and gone: it has two rows then."""
    capture = FIXTURES / "m31_req_rep.pcap"
    first, second = cut(capture, [len(load(capture)) // 2], tmp_path / "in")
    aside, output = first.rename(tmp_path / "aside"), tmp_path / "out"
    assert ingest(tmp_path / "in", output, "--strict").exit_code == 0
    aside.rename(first)
    second.unlink()
    done = ingest(tmp_path / "in", output, "--strict")
    assert done.exit_code == 0
    assert done.output.splitlines()[0] == (
        f"1 of 1 file came late, when others of its series were gone, and was dissected by itself: {first}"
    )
    found = read_tables(output)["connections"]
    assert sorted(row["shared_id"] for row in found) == [False, True]


def test_a_file_that_has_changed_is_told_once(tmp_path: Path, ingest: Ingest) -> None:
    """Others of its series are gone, so it cannot be read again; a run that follows does not begin with it for ever."""
    folder, output = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in ("a.pcap", "b.pcap"):
        (folder / name).write_bytes((FIXTURES / "m31_req_rep.pcap").read_bytes())
    options = ("--strict", "--follow", "--once")
    assert ingest(folder, output, *options).exit_code == 0
    (folder / "a.pcap").unlink()
    (folder / "b.pcap").write_bytes(b"other")
    done = ingest(folder, output, *options)
    assert done.exit_code == 2
    assert done.output.splitlines() == [
        f"1 of 1 file has changed, but others of its series are gone, so it is not read again: {folder}/b.pcap",
        f"0 files: 0 rows into {output}",
    ]
