"""Which files are meant by the inputs of a command, and which of them are read as one capture."""

import glob
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from zmtpsniff.spark.inputs import local_path
from zmtpsniff.spark.session import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Listed(NamedTuple):
    """A file: its path or URL, its size in octets, when it was last written to."""

    path: str
    size: int
    modified_ns: int


def list_files(inputs: list[str], session: "SparkSession | None" = None) -> list[Listed]:
    """The files that inputs name: files, globs, folders with all that is in them, or URLs of Hadoop file systems.

    Hidden files and folders, and those whose names begin with "_", are left out of folders, as Spark does. Sorted, each
    once. Raises SparkError for an input that names no file.
    """
    found: dict[str, Listed] = {}
    for name in inputs:
        local = local_path(name)
        files = _of_spark(name, session) if local is None and session is not None else _of_folder(local or name)
        if not files:
            raise SparkError(f"{name}: there is no such file, or no file in it")
        found.update((file.path, file) for file in files)
    return sorted(found.values())


def listed_in(paths: "DataFrame") -> list[Listed]:
    """The files that a data frame names in its column ``path``; sorted, each once."""
    columns = {
        "path": "path",
        "length": "length" if "length" in paths.columns else "-1L",
        "modified": "unix_micros(modificationTime)" if "modificationTime" in paths.columns else "0L",
    }
    found = paths.selectExpr(*(f"{column} AS {name}" for name, column in columns.items())).distinct().collect()
    files = (Listed(row.path, row.length, row.modified * 1000) for row in found)
    return sorted(
        _listed(file.path) if file.size < 0 and local_path(file.path) == file.path else file for file in files
    )


def _of_folder(name: str) -> list[Listed]:
    paths = [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))
    files: list[Listed] = []
    for path in paths:
        if os.path.isdir(path):
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(folder for folder in folders if folder[0] not in "._")
                files += [_listed(os.path.join(folder, name)) for name in sorted(names) if name[0] not in "._"]
        else:
            files.append(_listed(path))
    return files


def _listed(path: str) -> Listed:
    path = os.path.abspath(path)
    try:
        stat = os.stat(path)
    except OSError:  # a broken link: it is told when it is read
        return Listed(path, 0, 0)
    return Listed(path, stat.st_size, stat.st_mtime_ns)


def _of_spark(url: str, session: "SparkSession") -> list[Listed]:
    """What Hadoop's file system lists; the content is not read."""
    from pyspark.errors import PySparkException

    reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        rows = reader.load(url).selectExpr("path", "length", "unix_micros(modificationTime) AS modified").collect()
    except PySparkException as error:
        raise SparkError(f"{url}: {(str(error).strip() or 'not found').splitlines()[0]}") from error
    return [Listed(row.path, row.length, row.modified * 1000) for row in rows]


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
