"""Where functions begin in ELF files: real libraries, made ones, and octets that are none."""

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from zmtpsniff.host.elf import find_functions

NAMES = ("crypto_box_beforenm", "crypto_box")
SODIUM = [
    *(Path(zmq.__file__).parents[1] / "pyzmq.libs").glob("libsodium-*"),
    *Path("/usr/lib").glob("*/libsodium.so.23"),
]


def find(data: bytes, tmp: Path, machine: str = "x86_64") -> dict[str, int]:
    file = tmp / "file"
    file.write_bytes(data)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return find_functions(descriptor, NAMES, machine)
    finally:
        os.close(descriptor)


def made(machine: int, base: int, functions: dict[str, int]) -> bytes:
    """An ELF file with one executable segment, mapped at another address than its place, and a table of symbols."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in functions)
    code_at, code_size = 0x200, 0x100
    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", strings.index(name.encode()), 0x12, 0, 1, base + offset, 8)
        for name, offset in functions.items()
    )
    symbols_at, strings_at = 0x300, 0x300 + len(symbols)
    sections_at = (strings_at + len(strings) + 7) & ~7
    header = struct.pack(
        "<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 3, machine, 1, 0, 64, sections_at, 0, 64, 56, 1, 64, 3, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, code_at, base, base, code_size, code_size, 0x1000)
    octets = (header + segment).ljust(0x300, b"\0") + symbols + strings
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, symbols_at, len(symbols), 2, 0, 8, 24)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, strings_at, len(strings), 0, 0, 1, 0)
    return octets.ljust(sections_at, b"\0") + sections


@pytest.mark.parametrize("library", SODIUM, ids=lambda path: path.name)
@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump (binutils) is not installed")
def test_as_objdump_says(library: Path, tmp_path: Path) -> None:
    said = subprocess.run(["objdump", "-T", library], capture_output=True, text=True, check=True).stdout
    expected = {
        name: int(match[1], 16) for name in NAMES if (match := re.search(rf"^([0-9a-f]+) .* {name}$", said, re.M))
    }
    found = find(library.read_bytes(), tmp_path, os.uname().machine)
    assert found == expected  # these libraries map their code where the file has it


@pytest.mark.parametrize(("machine", "name"), [(62, "x86_64"), (183, "aarch64")])
def test_offsets_are_of_the_file_not_of_memory(machine: int, name: str, tmp_path: Path) -> None:
    data = made(machine, 0x401000, {"crypto_box": 0x10, "crypto_box_beforenm": 0x40})
    assert find(data, tmp_path, name) == {"crypto_box": 0x210, "crypto_box_beforenm": 0x240}
    assert find(data, tmp_path, "riscv64") == {}


def test_a_function_beyond_its_segment_is_none(tmp_path: Path) -> None:
    assert find(made(62, 0x401000, {"crypto_box": 0x1000}), tmp_path) == {}


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"#!/bin/sh\n", bytes(4096), made(3, 0, {"crypto_box": 0})])
def test_what_is_none(data: bytes, tmp_path: Path) -> None:
    assert find(data, tmp_path) == {}


@given(
    changes=st.lists(st.tuples(st.integers(0, 0x500), st.binary(min_size=1, max_size=8)), max_size=6),
    cut=st.integers(0, 0x500),
)
def test_bad_tables_are_none_or_something(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]], cut: int
) -> None:
    data = bytearray(made(62, 0x401000, {"crypto_box": 0x10, "crypto_box_beforenm": 0x40}))
    for at, octets in changes:
        data[at : at + len(octets)] = octets
    find(bytes(data[: len(data) - cut]), tmp_path_factory.getbasetemp())
