"""Errors of other libraries, and faults of an installation, as lines of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import FIXTURES
from zmtpsniff.errors import one_line


def test_an_error_of_another_library_is_a_line_without_colours() -> None:
    """As Delta Lake tells that a cloud cannot be reached."""
    error = OSError("\x1b[31mGeneric GCS error\x1b[0m:\n  \x1b[1;33mno token\x1b[0m ")
    assert one_line(error) == "Generic GCS error: no token"


def _run_beside(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a folder on its path that comes before all others."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, cwd=FIXTURES, check=False
    )


@pytest.mark.parametrize("file", ["dissectors/__init__.py", "dissectors.py"])
def test_a_foreign_package_of_the_same_name_is_named(file: str, tmp_path: Path) -> None:
    foreign = tmp_path / file
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("raise SystemExit('it was run')\n")
    wrong = (
        f"{foreign} hides the package dissectors, which is a part of zmtpsniff: rename it, or take it off Python's path"
    )
    done = _run_beside(tmp_path, "-m", "zmtpsniff", "read", "m31_req_rep.pcap")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"zmtpsniff: {wrong}\n")
    done = _run_beside(tmp_path, "-c", "import zmtpsniff; zmtpsniff.open")
    assert done.stderr.splitlines()[-1] == f"zmtpsniff.errors.Error: {wrong}"


def test_a_folder_of_the_same_name_that_is_no_package_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "dissectors").mkdir()
    done = _run_beside(tmp_path, "-m", "zmtpsniff", "read", "m31_req_rep.pcap")
    assert (done.returncode, done.stderr) == (0, "")
