"""The native core under AddressSanitizer and UndefinedBehaviorSanitizer, and fuzzed for a moment."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.paths import PROJECT

pytestmark = pytest.mark.slow  # each builds the core anew
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")


def _run(command: list[str], folder: Path = PROJECT, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0", **environment}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    return said


def test_the_core_is_compared_under_sanitizers(tmp_path: Path) -> None:
    """A copy of the project with such a core: its own tests, the comparisons with the specification, fuzz inputs."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    for name in ("zmtpsniff", "dissectors", "tests", "fixtures"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "failures"))
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    core = tmp_path / "zmtpsniff" / "native" / "core.abi3.so"
    headers = f"-I{sysconfig.get_paths()['include']}"
    _run(
        [
            "gcc",
            "-std=c11",
            "-fPIC",
            "-shared",
            *SANITIZED,
            headers,
            str(core.with_name("core.c")),
            "-o",
            str(core),
            "-lm",
        ]
    )
    library = _run(["gcc", "-print-file-name=libasan.so"]).strip()
    environment = {
        "LD_PRELOAD": library, "PYTHONMALLOC": "malloc", "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1",
        "ZMTPSNIFF_NATIVE": "1",
    }  # fmt: skip
    which = "from zmtpsniff.native import core; print(core.__file__)"
    assert _run([sys.executable, "-c", which], tmp_path, **environment).strip() == str(core)
    tests = ["tests/native/test_core.py", "tests/engine/test_settled.py", "tests/program/test_fuzz.py"]
    without = "not compil and not analys and not clang"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k", without]
    said = _run(command, tmp_path, **environment)
    assert " passed" in said


def test_the_sanitizers_see_what_is_read_outside(tmp_path: Path) -> None:
    """A core whose check is off by one is stopped: without this the test above would prove nothing."""
    broken = _fuzzer(tmp_path, "place < span.size ?", "place <= span.size ?")
    done = subprocess.run(
        [broken, "-runs=100000", "-seed=1", "-max_len=60"], cwd=tmp_path, capture_output=True, check=False
    )
    assert b"heap-buffer-overflow" in done.stderr


def test_the_fuzzer_finds_nothing_for_a_moment(tmp_path: Path) -> None:
    said = _run([_fuzzer(tmp_path), "-runs=300000", "-seed=1", "-max_len=300", "-print_final_stats=1"], tmp_path)
    assert "number_of_executed_units: 300000" in said


def _fuzzer(folder: Path, before: str = "", after: str = "") -> str:
    """The libFuzzer target, built; with a part of the core's source changed."""
    if shutil.which("clang") is None:
        pytest.skip("there is no clang here")
    source, core = folder / "tests" / "fuzz" / "core_fuzzer.c", folder / "zmtpsniff" / "native" / "core.c"
    for path in (source, core):
        path.parent.mkdir(parents=True)
        text = (PROJECT / path.relative_to(folder)).read_text()
        assert before in text or path is source
        path.write_text(text.replace(before, after) if path is core and before else text)
    library, version = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDVERSION")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("Python has no shared library here")
    _run([
        "clang", "-std=c11", "-g", "-O2", "-Wall", "-Wextra", "-fsanitize=fuzzer,address,undefined",
        "-fno-sanitize-recover=all", f"-I{sysconfig.get_paths()['include']}", str(source), "-o", str(folder / "fuzzer"),
        f"-L{library}", f"-lpython{version}", f"-Wl,-rpath,{library}", "-lm",
    ])  # fmt: skip
    return str(folder / "fuzzer")
