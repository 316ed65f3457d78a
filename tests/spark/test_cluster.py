"""A real cluster, started and ended here: a master with two workers, and a server of Spark Connect.

Its Python does not find our packages: executors have the code that is shipped to them, or none.
"""

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.spark.spark_tables import by_series, cut, expected, read_tables
from tests.support.live_program import wait_for
from tests.support.paths import FIXTURES, PROJECT
from tests.support.ports import free_port
from tests.support.shown_commands import blocks
from tests.support.spark_settings import JAVA_OPTIONS, write_settings

pytestmark = pytest.mark.usefixtures("spark_installed")
PATIENCE = 400  # seconds, on a machine that does much else


def _wait_for_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.2)
    raise AssertionError(f"nobody listens on port {port}")


def _home() -> Path:
    """The folder of Spark."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


@contextmanager
def _running(folder: Path, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A program of Spark's; what it starts is of its process group and ends with it."""
    home = _home()
    with open(folder / f"{command[-1].rpartition('/')[2]}-{len(list(folder.iterdir()))}.log", "wb") as log:
        process = subprocess.Popen(
            [str(home / "bin" / command[0]), *command[1:]],
            env=_environment(folder) | {"SPARK_HOME": str(home)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def _environment(folder: Path) -> dict[str, str]:
    """Small programs, whose Python has what we need but not us."""
    path = folder / "path"
    if not path.exists():
        path.mkdir()
        (path / "sitecustomize.py").write_text(
            f"import sys\nsys.path[:] = [name for name in sys.path if name != {str(PROJECT)!r}]\n"
        )
        python = folder / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH="{path}:$PYTHONPATH" exec {sys.executable} "$@"\n')
        python.chmod(0o755)
    return {
        **os.environ,
        **write_settings(
            folder,
            spark_driver_host="127.0.0.1",
            spark_driver_memory="512m",
            spark_executor_memory="512m",
        ),
        "SPARK_DAEMON_MEMORY": "600m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(folder / "python"),
    }


# Several commands one after another, in one process, which starts Spark once.
COMMANDS = """
import json, sys
from zmtpsniff.cli.main import cli
for arguments in json.loads(sys.argv[1]):
    if status := cli(arguments, standalone_mode=False):
        sys.exit(status)
"""


def _zmtpsniff(folder: Path, *commands: tuple[str, ...]) -> str:
    """The standard output of commands of ``zmtpsniff spark``."""
    arguments = json.dumps([("spark", *command) for command in commands])
    return _output(folder, [sys.executable, "-c", COMMANDS, arguments])


def _output(folder: Path, command: list[str], **environment: str) -> str:
    """The standard output of a program."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        cwd=PROJECT,
        env=_environment(folder) | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _submit(folder: Path, address: str, captures: "Captures") -> None:
    """Run the program of the page on operation with spark-submit."""
    (job,) = (
        block.text for block in blocks(PROJECT / "docs" / "spark-operation.md") if block.text.startswith("import sys")
    )
    (folder / "job.py").write_text(job)
    arguments = [str(folder / "job.py"), address, str(captures.source), str(captures.tables)]
    command = [str(_home() / "bin" / "spark-submit"), "--master", address, *arguments]
    said = _output(folder, command, PYSPARK_DRIVER_PYTHON=sys.executable, PYTHONPATH=str(PROJECT))
    assert "2 files, " in said


class Captures:
    """Captures in pieces, and what is to be in the tables that are made of them."""

    def __init__(self, folder: Path, fixture: str, places: list[int]) -> None:
        self.source, self.tables = folder / "in", folder / "out"
        self.pieces = cut(FIXTURES / fixture, places, self.source)
        self.ingest = ("ingest", str(self.source), "--output", str(self.tables), "--max-bytes", "65536")

    def assert_are_in_tables(self) -> None:
        assert by_series(read_tables(self.tables))[str(self.source)] == expected(self.pieces)


def test_python_of_the_cluster_lacks_us(tmp_path: Path) -> None:
    _environment(tmp_path)
    done = subprocess.run(
        [str(tmp_path / "python"), "-c", "import pyarrow, msgspec, zmtpsniff"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=tmp_path,
        check=False,
    )
    assert "No module named 'zmtpsniff'" in done.stderr


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    """The address of a master with two workers of a core each, which work in folders work0 and work1."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    package, here = "org.apache.spark.deploy", ("--host", "127.0.0.1")
    master = ("spark-class", f"{package}.master.Master", *here, "--port", str(port), "--webui-port", "0")
    worker = ("spark-class", f"{package}.worker.Worker", *here, "--cores", "1", "--memory", "600m", "--webui-port", "0")
    with ExitStack() as running:
        _wait_for_port(port, running.enter_context(_running(folder, *master)))
        for at in range(2):
            running.enter_context(_running(folder, *worker, "--work-dir", str(folder / f"work{at}"), address))
        yield address


@pytest.mark.slow
def test_standalone_cluster(tmp_path: Path) -> None:
    one = Captures(tmp_path / "one", "app_malamute.pcap", [40, 80])
    other = Captures(tmp_path / "other", "m31_push_pull.pcap", [12, 24])
    with _cluster(tmp_path) as address:
        to_master = ("--master", address)
        _zmtpsniff(tmp_path, (*one.ingest, *to_master), (*other.ingest, "--follow", "--once", *to_master))
        submitted = Captures(tmp_path / "submitted", "m31_pub_sub.pcap", [60])
        _submit(tmp_path, address, submitted)
    one.assert_are_in_tables()
    other.assert_are_in_tables()
    assert len(read_tables(submitted.tables)["captures"]) == 2
    assert all(any((tmp_path / f"work{at}").glob("app-*/*/stderr")) for at in range(2))  # each had an executor


@pytest.mark.slow
def test_workers_with_an_environment_that_is_packed(tmp_path: Path) -> None:
    """As the page on operation has it. Each worker unpacks one of its own, and does tasks with its Python."""
    (block,) = (one for one in blocks(PROJECT / "docs" / "spark-operation.md") if "venv-pack" in one.text)
    source, tables, log = tmp_path / "in", tmp_path / "out", tmp_path / "log"
    log.mkdir()
    pieces = cut(FIXTURES / "app_malamute.pcap", [40, 80], source)
    with _cluster(tmp_path) as address:
        conf = write_settings(
            tmp_path / "conf",
            spark_driver_host="127.0.0.1",
            spark_executor_memory="512m",
            spark_eventLog_enabled="true",
            spark_eventLog_dir=log.as_uri(),
            spark_eventLog_compress="false",
            # No task begins before both workers are there.
            spark_cores_max="2",
            spark_scheduler_minRegisteredResourcesRatio="1.0",
            spark_scheduler_maxRegisteredResourcesWaitingTime=f"{PATIENCE}s",
        )
        names = {"/captures": str(source), "/tables": str(tables), "spark://host:7077": address}
        script = re.sub("|".join(names), lambda match: names[match[0]], block.text)
        here = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        command = ["bash", "-ec", f"cd {tmp_path}\n{script.rstrip()} --shards 8 --max-bytes 65536"]
        _output(tmp_path, command, **conf, PATH=here)
    assert by_series(read_tables(tables))[str(source)] == expected(pieces)
    said = [json.loads(line) for path in log.rglob("events_*") for line in path.read_text().splitlines()]
    ended = [
        one for one in said if one["Event"] == "SparkListenerTaskEnd" and one["Task End Reason"]["Reason"] == "Success"
    ]
    workers = {str(one.relative_to(tmp_path)): one for one in tmp_path.glob("work*/app-*/*/environment/bin/python")}
    assert len(ended) == 8
    assert {one["Task Info"]["Executor ID"] for one in ended} == {Path(name).parts[2] for name in workers}
    assert {Path(name).parts[0] for name in workers} == {"work0", "work1"}


def _executors(driver: "subprocess.Popen[bytes]") -> list[int]:
    """The processes for tasks that a program has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            number = int(path.parent.name)
            if b"CoarseGrainedExecutorBackend" in path.read_bytes() and os.getpgid(number) == driver.pid:
                found.append(number)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["executor", "driver"])
def test_one_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str) -> None:
    """In mid-run, when some tasks have written: nothing is lost, and nothing is there twice.

    After a driver the next run does the rest, beside executors of the first one that have not noticed yet.
    """
    cut(FIXTURES / "app_malamute.pcap", [20, 40, 60, 80, 100], tmp_path / "cut")
    source, tables = tmp_path / "in", tmp_path / "out"
    for host in range(20):
        shutil.copytree(tmp_path / "cut", source / str(host))
    home = tmp_path / "home"  # Spark would write the logs of executors into its own folder
    home.mkdir()
    for one in _home().iterdir():
        (home / one.name).symlink_to(one)
    monkeypatch.setenv("SPARK_HOME", str(home))
    options = ("--max-bytes", "65536", "--shards", "2", "--master", "local-cluster[2,1,2048]")
    arguments = ("ingest", str(source), "--output", str(tables), *options)
    with open(tmp_path / "said", "wb") as said:
        run = subprocess.Popen(
            [sys.executable, "-m", "zmtpsniff", "spark", *arguments],
            stderr=said,
            cwd=PROJECT,
            env=_environment(tmp_path),
            start_new_session=True,
        )
    try:
        wait_for(lambda: any(tables.glob("messages/date=*/*.parquet")) or run.poll() is not None, PATIENCE)
        executors = _executors(run)
        assert len(executors) == 2, (tmp_path / "said").read_text()[-2000:]
        os.kill(executors[0] if victim == "executor" else run.pid, signal.SIGKILL)
        status = run.wait(PATIENCE)
        if victim == "driver":
            _zmtpsniff(tmp_path, arguments)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert status == (0 if victim == "executor" else -signal.SIGKILL), (tmp_path / "said").read_text()[-2000:]
    by_host = by_series(read_tables(tables))
    assert all(by_host.pop(str(folder)) == expected(sorted(folder.iterdir())) for folder in source.iterdir())
    assert not by_host


@pytest.mark.slow
def test_spark_connect(tmp_path: Path) -> None:
    port = free_port()
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    settings = ("--conf", f"spark.connect.grpc.binding.port={port}", "--master", "local[2]")
    captures = Captures(tmp_path / "one", "app_malamute.pcap", [40, 80])
    with _running(tmp_path, "spark-submit", "--class", server, *settings, "spark-internal") as process:
        _wait_for_port(port, process)
        to_master = ("--master", f"sc://127.0.0.1:{port}")
        report = ("report", str(captures.tables), "-T", "json")
        told = _zmtpsniff(tmp_path, (*captures.ingest, *to_master), report)
    captures.assert_are_in_tables()
    rows = [json.loads(line) for line in told.splitlines()]
    assert {row["type"] for row in rows} >= {"report-total", "report-pair", "report-socket", "report-timeline"}
    messages = len(read_tables(captures.tables)["messages"])
    assert [row["messages"] for row in rows if row["type"] == "report-total"] == [messages]
