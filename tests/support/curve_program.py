"""A program in C on libzmq, which makes its first key within milliseconds of loading the library."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

SOURCE = Path(__file__).with_name("curve_once.c")
PACKAGED = sorted(Path(zmq.__file__).parent.with_name("pyzmq.libs").glob("lib*"))
needs_wheel = pytest.mark.skipif(not PACKAGED, reason="this pyzmq is not one of the wheels that bring a libsodium")


def libsodium(folder: Path) -> Path:
    """The library that makes the keys, in a folder with a copy of those of pyzmq."""
    (found,) = folder.glob("libsodium-*")
    return found


def copied(folder: Path) -> Path:
    """A folder with a copy of pyzmq's libraries that nobody has seen before."""
    folder.mkdir()
    for file in PACKAGED:
        shutil.copy(file, folder)
    return folder


def compiled(folder: Path) -> Path:
    """The program; skips the test where nothing compiles it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (libzmq,) = (file for file in PACKAGED if file.name.startswith("libzmq"))
    program = folder / "curve_once"
    subprocess.run([compiler, "-o", program, SOURCE, libzmq, "-Wl,--allow-shlib-undefined"], check=True)
    return program


@contextmanager
def started(program: Path, libraries: Path, prefix: Sequence[str] = ()) -> Iterator["subprocess.Popen[bytes]"]:
    """The program with libraries of a folder, once its first sockets have talked; ``prefix`` is a command to run it."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    with subprocess.Popen(
        [*prefix, program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            connect(process, None)
            yield process
        finally:
            process.kill()


def connect(process: "subprocess.Popen[bytes]", line: bytes | None = b"\n") -> None:
    """Have the program make another connection."""
    assert process.stdin
    assert process.stdout
    if line is not None:
        process.stdin.write(line)
        process.stdin.flush()
    assert process.stdout.readline() == b"done\n"
