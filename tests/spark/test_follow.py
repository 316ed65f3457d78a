"""A folder that fills: nothing lost and nothing twice, whatever comes when, and whoever is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock, Timer, current_thread, main_thread
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tests.support.paths import FIXTURES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")

from tests.spark.local_job import Session
from tests.spark.spark_tables import by_series, cut, expected, later, packets, read_tables
from tests.support.spark_settings import write_settings
from zmtpsniff.cli.main import cli
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.spark import follow as following
from zmtpsniff.spark import session
from zmtpsniff.spark.follow import Following, follow
from zmtpsniff.spark.ingest import add, ingest
from zmtpsniff.spark.listing import list_files
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.quiet import tell_quiet
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.store import Store

SECOND_NS = 1_000_000_000
IDLE_SECONDS = 3600
PATIENCE = 400  # seconds that a run of Spark may take on a machine that does much else


def deliver(file: Path, folder: Path) -> Path:
    """Put a file into a folder as whoever rotates captures does: renamed once it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{file.name}"
    partial.write_bytes(file.read_bytes())
    return partial.rename(folder / file.name)


@pytest.mark.slow
def test_files_come_late_and_again(spark_session: "SparkSession", tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    first, second = source / "host one%20", source / "two"
    pieces = cut(FIXTURES / "app_malamute.pcap", [20, 45, 60, 90], tmp_path / "one")
    begun = cut(FIXTURES / "m31_push_pull.pcap", [25], tmp_path / "two")[0]
    apart_ns = packets(begun)[-1][0] - packets(FIXTURES / "m31_ipv6.pcap")[0][0]
    other = later(FIXTURES / "m31_ipv6.pcap", apart_ns + 2 * IDLE_SECONDS * SECOND_NS, tmp_path / "two" / "999.pcapng")

    def take() -> dict[str, list[dict[str, object]]]:
        options = Options(idle_seconds=IDLE_SECONDS)
        follow(spark_session, [str(source)], str(output), options, once=True).wait()
        return read_tables(output)

    for number in (0, 1, 3):
        deliver(pieces[number], first)
    deliver(begun, second)
    found = take()
    assert len(found["captures"]) == 4
    assert found["messages"]
    assert not [row for rows in found.values() for row in rows if row.get("provisional")]
    assert not [row for row in found["connections"] if row["series"] == str(second)]  # it goes on

    for number in (2, 4, 1):  # late, new, again
        deliver(pieces[number], first)
    deliver(other, second)
    found = take()
    assert len(found["captures"]) == 7
    tables = by_series(found)
    assert tables[str(first)] == expected(sorted(first.iterdir()))
    assert tables[str(second)] == expected([begun, other], flow_limits=FlowLimits(idle_seconds=IDLE_SECONDS))
    ends = [row["end"] for row in found["connections"] if row["series"] == str(second)]
    assert sorted(map(str, ends)) == ["fin", "timeout"]


@pytest.mark.slow
def test_goes_on_from_what_the_state_store_has(spark_session: "SparkSession", tmp_path: Path) -> None:
    """And from what the tables' folder has, once a run without --follow has written there."""
    source, output = tmp_path / "in", tmp_path / "out"
    pieces = cut(FIXTURES / "m31_push_pull.pcap", [8, 14, 20, 26], tmp_path / "one")
    before = dict(spark_session.conf.getAll)

    def take(number: int) -> None:
        deliver(pieces[number], source)
        follow(spark_session, [str(source)], str(output), once=True).wait()

    take(0)
    take(1)
    assert dict(spark_session.conf.getAll) == before
    state = output / "_checkpoint" / "state" / "0"
    parts = [part for part in state.iterdir() if part.name.isdigit()]
    assert len(parts) == spark_session.sparkContext.defaultParallelism
    assert all(any(part.glob("*.changelog")) for part in parts)  # of RocksDB
    log = [*(output / "_open").glob("*.parquet")]
    assert log
    for file in log:
        file.unlink()
    take(2)
    deliver(pieces[3], source)
    ingest(spark_session, [str(source)], str(output))  # which has of what is open what was written with piece 2
    take(4)
    found = read_tables(output)
    assert len(found["captures"]) == len(pieces)
    assert [row["end"] for row in found["connections"]] == ["fin"]
    assert by_series(found)[str(source)] == expected(pieces)


class SlowQuery:
    """A query that Spark gives up so many times."""

    def __init__(self, fails: int, text: str) -> None:
        self.fails = fails
        self.text = text
        self.starts = 0

    def start(self) -> "SlowQuery":
        self.starts += 1
        return self

    def awaitTermination(self, seconds: int) -> bool:  # noqa: N802  # as Spark calls it
        from pyspark.errors import StreamingQueryException

        if self.starts <= self.fails:
            raise StreamingQueryException(self.text)
        return True


@pytest.mark.usefixtures("spark_installed")
@pytest.mark.parametrize(
    ("fails", "text", "starts"),
    [
        (1, "Query terminated with exception: Python worker failed to connect back.", 2),
        (99, "Query terminated with exception: Python worker failed to connect back.", 5),
        (1, "Query terminated with exception: no space left", 1),
    ],
)
def test_begins_again_where_python_was_slow(tmp_path: Path, fails: int, text: str, starts: int) -> None:
    query = SlowQuery(fails, text)
    following = Following(query.start, Lock(), str(tmp_path), Options())  # type: ignore[arg-type]
    if starts > fails:
        following.wait()
    else:
        with pytest.raises(SparkError, match=text):
            following.wait()
    assert query.starts == starts


class EndlessQuery:
    """A query that runs until it is stopped; what happens to it, in order."""

    def __init__(self) -> None:
        self.stopped = Event()
        self.told: list[object] = []

    def start(self) -> "EndlessQuery":
        return self

    def awaitTermination(self, seconds: int) -> bool:  # noqa: N802  # as Spark calls it
        self.told.append(current_thread() is main_thread())
        Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        return self.stopped.wait(PATIENCE)

    def stop(self) -> None:
        self.told.append("stopped")
        self.stopped.set()


def test_an_interrupt_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pyspark wants to do about it, and not while somebody waits for Java in the main thread."""
    query = EndlessQuery()

    def get_session(master: str | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def start(*arguments: object, **options: object) -> Following:
        return Following(query.start, Lock(), str(tmp_path), Options())  # type: ignore[arg-type]

    monkeypatch.setattr(session, "get_session", get_session)
    monkeypatch.setattr(session, "log_nothing", lambda session: query.told.append("silent"))
    monkeypatch.setattr(following, "follow", start)
    command = ["spark", "ingest", str(tmp_path), "--output", str(tmp_path / "out"), "--follow"]
    # Programs that a shell starts in the background ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = CliRunner().invoke(cli, command, catch_exceptions=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.exit_code, done.output) == (0, "")
    assert query.told == [False, "silent", "stopped"]


def _run(source: Path, output: Path, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "zmtpsniff", "spark", "ingest", str(source), "--output", str(output)]
    return subprocess.Popen(
        [*command, "--master", "local[1]", "--follow", *options],
        stdout=subprocess.DEVNULL,
        stderr=output.with_name("stderr").open("wb"),
        start_new_session=True,  # so that the driver and its JVM can be killed at once
        env=os.environ | write_settings(output.with_name("settings")),
    )


def _kill_when(process: "subprocess.Popen[bytes]", is_time: Callable[[], bool]) -> bool:
    """Kill a run and its JVM as soon as something is so; False if it never was."""
    deadline = time.monotonic() + PATIENCE
    seen = False
    try:
        while not seen and time.monotonic() < deadline and process.poll() is None:
            seen = is_time()
            time.sleep(0.001)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    return seen


@pytest.mark.slow
@pytest.mark.usefixtures("spark_installed")
def test_killed_in_mid_batch(tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    pieces = cut(FIXTURES / "app_malamute.pcap", [30, 60, 90], tmp_path / "one")
    for file in pieces[:2]:
        deliver(file, source)
    assert _kill_when(_run(source, output), lambda: any(output.glob("_staging/*/*/**/*.parquet")))
    assert not any(output.glob("messages/**/*.parquet"))  # nothing of half a micro-batch is seen

    # Killed again once the tables have it, most likely before Spark knows that.
    deliver(pieces[2], source)
    assert _kill_when(_run(source, output), lambda: any(output.glob("messages/**/*.parquet")))

    deliver(pieces[3], source)
    last = _run(source, output, "--once")
    try:
        assert last.wait(PATIENCE) == 0
        told = output.with_name("stderr").read_text()
        assert told.endswith(f" into {output}\n")
        assert "Python worker" not in told
    finally:
        if last.poll() is None:
            os.killpg(last.pid, signal.SIGKILL)
    found = read_tables(output)
    assert len(found["captures"]) == len(pieces)
    assert by_series(found)[str(source)] == expected(pieces)


def test_late_file_whose_predecessors_are_gone(tmp_path: Path) -> None:
    """Its rows come, and those that were there stay; without Spark."""
    files = cut(FIXTURES / "app_malamute.pcap", [100, 200], tmp_path / "in")
    other = cut(FIXTURES / "m31_ipv6.pcap", [], tmp_path / "two")
    output = str(tmp_path / "out")

    def take(*some: Path) -> None:
        options = Options(tells_open=False)
        add(Session(), list_files(list(map(str, some))), output, options)  # type: ignore[arg-type]

    take(files[0], files[2])
    before = by_series(read_tables(tmp_path / "out"))[str(tmp_path / "in")]
    files[0].unlink()
    take(files[1], *other)
    found = read_tables(tmp_path / "out")
    assert len(found["captures"]) == 4
    tables = by_series(found)
    assert before <= tables[str(tmp_path / "in")]
    late = [row for row in found["messages"] if row["file"] == str(files[1])]
    alone = [row for row in by_series({**found, "messages": late})[str(tmp_path / "in")] if '"message"' in row]
    assert alone
    assert tables[str(tmp_path / "two")] == expected(other)


def test_what_is_open_where_no_file_comes_any_more(tmp_path: Path) -> None:
    """It is told, provisionally, until one comes after all; without Spark."""
    files = cut(FIXTURES / "m31_push_pull.pcap", [25], tmp_path / "in")
    options = Options(tells_open=False, idle_seconds=IDLE_SECONDS)
    output = str(tmp_path / "out")

    def connections() -> list[tuple[str, bool]]:
        return [(row["end"], row["provisional"]) for row in read_tables(tmp_path / "out")["connections"]]

    add(Session(), list_files([str(files[0])]), output, options)  # type: ignore[arg-type]
    assert tell_quiet(output, options) == 0  # it has just been written
    assert connections() == []
    late_ns = files[0].stat().st_mtime_ns + (IDLE_SECONDS + 1) * SECOND_NS
    assert tell_quiet(output, options, late_ns) == 1
    assert connections() == [("open", True)]
    assert by_series(read_tables(tmp_path / "out"))[str(tmp_path / "in")] == expected([files[0]])
    assert tell_quiet(output, options, late_ns) == 0
    add(Session(), list_files([str(files[1])]), output, options)  # type: ignore[arg-type]
    assert connections() == [("fin", False)]
    assert by_series(read_tables(tmp_path / "out"))[str(tmp_path / "in")] == expected(files)


def test_datagrams_have_rows_before_they_end(tmp_path: Path) -> None:
    """Which nobody sees; without Spark."""
    files = cut(FIXTURES / "epgm_pub_sub.pcap", [30], tmp_path / "in")
    for file in files:
        found = list_files([str(file)])
        add(Session(), found, str(tmp_path / "out"), Options(tells_open=False))  # type: ignore[arg-type]
    assert by_series(read_tables(tmp_path / "out"))[str(tmp_path / "in")] == expected(files)


@pytest.mark.parametrize("done", range(4))
def test_commit_is_finished_by_the_next_run(tmp_path: Path, done: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever of a journal was done when the run died."""
    old = tmp_path / "messages/date=2026-01-01/old.parquet"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    store = Store(str(tmp_path))
    added = [f"messages/date=2026-01-0{day}/new.parquet" for day in (1, 2)]
    for name in added:
        path = Path(store.staging) / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"new")

    def apply(journal: dict[str, list[str]]) -> None:
        steps = [*((Path(store.staging) / name, tmp_path / name) for name in added), (old, None)]
        for source, target in steps[:done]:
            if target is None:
                source.unlink()
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                source.rename(target)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "_apply", apply)
    with pytest.raises(KeyboardInterrupt):
        store.commit(added, [str(old.relative_to(tmp_path))])
    store.close()
    after = Store(str(tmp_path))
    assert sorted(after.files("messages")) == added
    after.close()
    assert not any((tmp_path / "_journal").iterdir())
