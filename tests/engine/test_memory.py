"""The memory of the program."""

import os
import platform
import subprocess
import sys

import pytest

from tests.support.both_cores import built_core
from zmtpsniff.native import VARIABLE

PAGES_AGAIN = """
import resource
from zmtpsniff.engine.memory import keep_freed_memory
{}
for _ in range(50):
    blocks = [bytes(100_000) for _ in range(40)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def _faults(first: str) -> int:
    """Pages that a program gets from the system; it takes and frees 4 MB fifty times."""
    program = [sys.executable, "-c", PAGES_AGAIN.format(first)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=os.environ | {VARIABLE: "1"})
    return int(done.stdout)


def test_freed_memory_is_kept() -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("other C libraries decide by themselves")
    built_core()
    assert _faults("keep_freed_memory()") < _faults("") / 2
