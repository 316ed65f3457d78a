"""The native core is fuzzed for a moment, under AddressSanitizer and UndefinedBehaviorSanitizer."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.support.paths import PROJECT

pytestmark = pytest.mark.slow  # each builds the core anew


def _run(command: list[str], folder: Path = PROJECT) -> str:
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    return said


def test_the_sanitizers_see_what_is_read_outside(tmp_path: Path) -> None:
    """A core whose check is off by one is stopped: without this the test below would prove nothing."""
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
