"""A file system with little room, for what happens when a disk is full or may not be written to."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, kib: int) -> Iterator[Path]:
    """A file system of so much room at a folder that is made; skips the test where none can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # what failed may have left a file open


def remount(place: Path, options: str) -> None:
    """Change it: ``size=8m`` or ``ro``, as mount has them."""
    subprocess.run(["mount", "-o", f"remount,{options}", place], check=True)
