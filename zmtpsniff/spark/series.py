"""Which files are read as one capture, what the tables have of them, and which new ones come late."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any, NamedTuple

from zmtpsniff.spark.file_list import FileInfo
from zmtpsniff.spark.inputs import File

_OVERLAP_NS = 100_000_000
_LEAST_OCTETS = 32 << 20  # of new files for each shard of a series
_SAME_TIME = 16  # files opened at a time


def check_series(rule: str) -> str:
    """A rule for :func:`series_of`, as it is; ValueError says what is wrong with one that is none."""
    if rule in ("folder", "file"):
        return rule
    try:
        groups = re.compile(rule).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{rule!r} is no regular expression: {error}") from None
    if not groups:
        raise ValueError(f"{rule!r} is not folder or file, and has no group (...) that names the series")
    return rule


def series_of(path: str, rule: str) -> str:
    """The series that a file belongs to: ``rule`` is folder, file or a regular expression whose group 1 names it.

    A path that the expression does not match is a series of its own.
    """
    if rule == "folder":
        return path.rpartition("/")[0] or "/"
    if rule == "file":
        return path
    match = re.search(rule, path)
    return match[1] if match and match[1] else path


def by_series(files: Sequence[FileInfo], rule: str) -> dict[str, list[FileInfo]]:
    """Files by the series that they belong to; raises ValueError for a rule that is none."""
    check_series(rule)
    found: dict[str, list[FileInfo]] = {}
    for file in files:
        found.setdefault(series_of(file.path, rule), []).append(file)
    return found


class KnownFile(NamedTuple):
    """A file that the tables have; its times are 0 if it has no packets."""

    listed: FileInfo
    first_ns: int
    last_ns: int


def known_files(captures: Any) -> dict[str, list[KnownFile]]:
    """The files that rows of the table ``captures`` tell of, by series."""
    found: dict[str, list[KnownFile]] = {}
    names = ("series", "file", "size", "modified_ns", "first_ns", "last_ns")
    columns = (captures.column(name).to_pylist() for name in names)
    for series, path, size, modified_ns, first_ns, last_ns in zip(*columns, strict=True):
        found.setdefault(series, []).append(KnownFile(FileInfo(path, size, modified_ns), first_ns or 0, last_ns or 0))
    return found


def oldest(files: Sequence[FileInfo], most: int | None) -> list[FileInfo]:
    """Those that were written to first, as whoever rotates captures closes them; at most so many."""
    return sorted(files, key=lambda file: (file.modified_ns, file.path))[:most]


def late_files(files: Sequence[FileInfo], known: Sequence[KnownFile]) -> list[FileInfo]:
    """Those of new files that are to be read before some that are known.

    Packets of several queues are written a little out of order: where a file begins after the latest one has, an
    overlap of _OVERLAP_NS does not count.
    """
    latest_ns, begun_ns = max(((file.last_ns, file.first_ns) for file in known), default=(0, 0))
    if not latest_ns:
        return []
    with ThreadPoolExecutor(_SAME_TIME) as pool:
        beginnings = pool.map(lambda file: File(file.path).first_packets(), files)
        begins = [(file, min(map(itemgetter(0), some))) for file, some in zip(files, beginnings, strict=True) if some]
    return [file for file, at in begins if at < latest_ns - (_OVERLAP_NS if at >= begun_ns else 0)]


def shard_counts(octets: dict[str, int], cores: int) -> dict[str, int]:
    """How many tasks share each series that has so many octets of new files, on so many cores.

    One of each of many small series; of few large ones as many as keep all cores at work.
    """
    share = max(_LEAST_OCTETS, sum(octets.values()) // max(cores, 1))
    return {name: min(max(cores, 1), -(-size // share)) or 1 for name, size in octets.items()}
