"""Run tests with a native core that has AddressSanitizer and UndefinedBehaviorSanitizer: ``python -m tests.sanitized``.

A copy of the project has that core, so that nothing else uses it. The tests are those of all that the core does, unless
others are named; options go to pytest. The first octet that is read outside ends the run.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.paths import CAPTURES, PROJECT
from zmtpsniff.native.build import compile_core

_OPTIONS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
_TESTS = (
    "tests/native", "tests/engine", "tests/render", "tests/capture/test_files.py", "tests/program/test_captures.py",
    "tests/program/test_fuzz.py",
    "-k", "not gcc and not clang and not freed_memory",  # which analyse the source, or are about glibc's allocator
)  # fmt: skip

# Each Python of the tests begins with this: the library must be in a program before all others are, and beside it that
# of C++, or exceptions in other packages end the program. Python alone has them: tshark stands still with them.
_LIBRARIES = ("libasan.so", "libstdc++.so")
_PRELOADED = """
import os, sys
if os.environ.pop("LD_PRELOAD", "") != {libraries!r}:
    os.execve(sys.executable, sys.orig_argv, {{**os.environ, "LD_PRELOAD": {libraries!r}}})
"""
_IS_SANITIZED = "import ctypes; from zmtpsniff.native import core; ctypes.CDLL(core.__file__).__asan_init"


def main() -> int:
    """Run them; the exit status is that of pytest, or 1 if there is no such core."""
    given = sys.argv[1:]
    tests = [] if any(Path(argument.partition("::")[0]).exists() for argument in given) else [*_TESTS]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # tests run the program as other users
        _copy(Path(folder))
        core = Path(folder, "zmtpsniff", "native", "core.abi3.so")
        os.environ["CC"] = "gcc"  # whose sanitizers are a library that another program loads before all others
        if (reason := compile_core(core.with_name("core.c"), core, *_OPTIONS)) is not None:
            print(f"tests.sanitized: {reason}", file=sys.stderr)
            return 1
        libraries = " ".join(map(_library, _LIBRARIES))
        Path(folder, "sitecustomize.py").write_text(_PRELOADED.format(libraries=libraries))
        environment = {
            **os.environ, "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",  # so that AddressSanitizer knows each block
            "PYTHONPATH": folder, "ZMTPSNIFF_NATIVE": "1", "ZMTPSNIFF_CAPTURES": str(CAPTURES.absolute()),
        }  # fmt: skip
        subprocess.run([sys.executable, "-c", _IS_SANITIZED], cwd=folder, env=environment, check=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, *given]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def _library(name: str) -> str:
    """Where a library of GCC is."""
    command = ["gcc", f"-print-file-name={name}"]
    return str(Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()).resolve())


def _copy(folder: Path) -> None:
    """Copy all files that are part of the source."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (PROJECT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name)


if __name__ == "__main__":
    sys.exit(main())
