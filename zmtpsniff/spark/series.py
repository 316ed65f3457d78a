"""Series: files that are one capture, those that the tables know, and the tasks for new ones."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.capture.locations import is_there
from zmtpsniff.spark.inputs import File
from zmtpsniff.spark.options import ShardSpec, check_series
from zmtpsniff.spark.task import ShardTask

_OVERLAP_NS = 100_000_000
_LEAST_OCTETS = 32 << 20  # of new files for each shard of a series
_SAME_TIME = 16  # files opened at a time


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
    """A file that the tables have; its times are 0 if it has no packets, as where nobody could open it."""

    listed: FileInfo
    first_ns: int
    last_ns: int
    is_missing: bool


def known_files(captures: Any) -> dict[str, list[KnownFile]]:
    """The files that rows of the table ``captures`` tell of, by series."""
    found: dict[str, list[KnownFile]] = {}
    columns = (column.to_pylist() for column in captures.columns)
    for series, path, size, modified_ns, first_ns, last_ns, condition in zip(*columns, strict=True):
        listed = FileInfo(path, size, modified_ns)
        found.setdefault(series, []).append(KnownFile(listed, first_ns or 0, last_ns or 0, condition == "missing"))
    return found


def oldest(files: Sequence[FileInfo], most: int | None) -> list[FileInfo]:
    """The files that were written first, as a capture program closes them in turn; at most so many."""
    return sorted(files, key=lambda file: (file.modified_ns, file.path))[:most]


def late_files(files: Sequence[FileInfo], known: Sequence[KnownFile]) -> list[FileInfo]:
    """The new files that must be read before some known ones.

    Packets of several queues are a little out of order. So a file may begin up to _OVERLAP_NS before the latest ends.
    """
    latest_ns, begun_ns = max(((file.last_ns, file.first_ns) for file in known), default=(0, 0))
    if not latest_ns:
        return []
    with ThreadPoolExecutor(_SAME_TIME) as pool:
        beginnings = pool.map(lambda file: File(file.path).beginning(), files)
        begins = [(file, some.span_ns[0]) for file, some in zip(files, beginnings, strict=True) if some]
    return [file for file, at in begins if at < latest_ns - (_OVERLAP_NS if at >= begun_ns else 0)]


def shard_task(
    name: str, files: Sequence[FileInfo], known: Sequence[KnownFile], is_lost: bool, seen: set[str]
) -> ShardTask:
    """The task for new files of a series, as one shard. ``seen`` are files that are there.

    Where files before are gone, so that the series cannot be dissected anew, a late file is read by itself.
    """
    paths = {file.path for file in files}
    others = [file.listed for file in known if file.listed.path not in paths]
    changed = {file.listed.path for file in known} & paths
    late = [] if changed else late_files(files, known)
    if changed or late or (is_lost and known):
        if all(file.path in seen or is_there(file.path) for file in others):
            return ShardTask(name, ShardSpec(), sorted([*files, *others]), anew=True)
        files = [file for file in files if file.path not in changed]  # what was read of these stays
    end_ns = max((file.last_ns for file in known), default=0)
    spec = ShardSpec(first_file=1 + len(known), end_ns=end_ns)
    return ShardTask(name, spec, sorted(file for file in files if file not in late), alone=late)


def shard_counts(octets: dict[str, int], cores: int) -> dict[str, int]:
    """The number of tasks for each series, from the octets of its new files and the number of cores.

    Each of many small series gets one task. Few large ones get as many as keep all cores busy.
    """
    share = max(_LEAST_OCTETS, sum(octets.values()) // max(cores, 1))
    return {name: min(max(cores, 1), -(-size // share)) or 1 for name, size in octets.items()}
