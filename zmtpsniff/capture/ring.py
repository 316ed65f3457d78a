"""Several files in place of one: the values of ``-b``, and the names of the files. Units and names are dumpcap's."""

import os
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

# By kind: the limit that it is, the unit of its number, and how many of the limit's own units that is.
_KINDS = {
    "filesize": ("octets", "kB", 1000),
    "duration": ("duration_ns", "seconds", 1_000_000_000),
    "packets": ("packets", "packets", 1),
    "files": ("files", "files", 1),
}


class FileRing(NamedTuple):
    """When to begin another file, and how many files to keep; None for no limit."""

    octets: int | None = None  # no file becomes larger, unless by its only packet
    duration_ns: int | None = None  # from the first packet of a file to its last, by their own times
    packets: int | None = None
    files: int | None = None


def parse_ring(values: Sequence[str]) -> FileRing | None:
    """The values of ``-b``, such as ``filesize:1000``; None if there are none.

    Raises ValueError with a sentence that says what is wrong.
    """
    limits: dict[str, int] = {}
    for value in values:
        kind, _, number = value.partition(":")
        if kind not in _KINDS:
            raise ValueError(f"{value}: must be one of filesize:N, duration:N, packets:N, files:N")
        limit, unit, scale = _KINDS[kind]
        form = r"\d+(\.\d+)?" if kind == "duration" else r"\d+"
        if not re.fullmatch(form, number, re.ASCII) or not float(number):
            raise ValueError(f"{value}: must be {kind}:N, with N in {unit}, at least 1")
        limits[limit] = round(float(number) * scale) if kind == "duration" else int(number) * scale
    if limits.keys() == {"files"}:
        raise ValueError(f"{values[-1]}: give filesize:N, duration:N or packets:N, too, to say when a file is full")
    return FileRing(**limits) if limits else None


def ring_name(path: str, number: int, seconds: float) -> str:
    """The name of a ring's file, as dumpcap has it: ``a.pcapng`` becomes ``a_00001_20261121173000.pcapng``.

    ``seconds`` is when it is opened, since the Unix epoch; the name has it in local time.
    """
    stem, suffix = os.path.splitext(path)
    return f"{stem}_{number:05}_{time.strftime('%Y%m%d%H%M%S', time.localtime(seconds))}{suffix}"
