"""Several files in place of one: the values of ``-b``, and the names of the files. Units and names are dumpcap's."""

import os
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

_KILOBYTE = 1000  # octets
_UNITS = {"filesize": "kB", "duration": "seconds", "packets": "packets", "files": "files"}


class FileRing(NamedTuple):
    """When to go on with another file, and how many files to keep; None for no limit."""

    octets: int | None = None  # no file becomes larger, unless by its only packet
    duration_ns: int | None = None  # from the first packet of a file to its last, by their own times
    packets: int | None = None
    files: int | None = None


def parse_ring(values: Sequence[str]) -> FileRing | None:
    """The values of ``-b``, such as ``filesize:1000``; None if there are none.

    Raises ValueError with a sentence that says what is wrong.
    """
    numbers: dict[str, float] = {}
    for value in values:
        kind, _, number = value.partition(":")
        if kind not in _UNITS:
            raise ValueError(f"{value}: must be one of filesize:N, duration:N, packets:N, files:N")
        form = r"\d+(\.\d+)?" if kind == "duration" else r"\d+"
        if not re.fullmatch(form, number, re.ASCII) or not float(number):
            raise ValueError(f"{value}: must be {kind}:N, with N in {_UNITS[kind]}, at least 1")
        numbers[kind] = float(number) if kind == "duration" else int(number)
    if not numbers:
        return None
    if not numbers.keys() - {"files"}:
        raise ValueError(f"{values[-1]}: give filesize:N, duration:N or packets:N, too, to say when a file is full")
    return FileRing(
        octets=int(numbers["filesize"]) * _KILOBYTE if "filesize" in numbers else None,
        duration_ns=round(numbers["duration"] * 1_000_000_000) if "duration" in numbers else None,
        packets=int(numbers["packets"]) if "packets" in numbers else None,
        files=int(numbers["files"]) if "files" in numbers else None,
    )


def ring_name(path: str, number: int, seconds: float) -> str:
    """The name of a ring's file, as dumpcap has it: ``a.pcapng`` becomes ``a_00001_20261121173000.pcapng``.

    ``seconds`` is when it is opened, since the Unix epoch; the name has it in local time.
    """
    stem, suffix = os.path.splitext(path)
    return f"{stem}_{number:05}_{time.strftime('%Y%m%d%H%M%S', time.localtime(seconds))}{suffix}"
