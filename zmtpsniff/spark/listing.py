"""Which files are meant by the inputs of a command, and which of them are read as one capture."""

import glob
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from zmtpsniff.spark.inputs import SPECIAL, is_special, local_path
from zmtpsniff.spark.session import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# What is beside the tables, see zmtpsniff.spark.store; only globs find it, since it is left out of folders.
_BESIDE = r"_(?:open|staging|journal|checkpoint(?:_of_jobs)?|parquet)/|_(?:lock|followed)$"


class Listed(NamedTuple):
    """A file: its path or URL, its size in octets, when it was last written to."""

    path: str
    size: int
    modified_ns: int


def below(location: str, inside: str) -> str:
    """A regular expression that paths and URLs match which lie below a folder, and are ``inside`` it.

    ``location`` is the folder, a path or URL, ``inside`` a regular expression. Java knows what it is made of, too.
    """
    local = local_path(location)
    if local is not None:
        names = {re.escape(name(local).rstrip("/")) for name in (os.path.abspath, os.path.realpath)}
        begin = rf"(?:file:(?://)?)?(?:{'|'.join(sorted(names))})"
    else:  # s3://, s3a:// and s3n:// are the same, and who lists hdfs:/// says which host that is
        host, slash, path = location.partition("://")[2].rstrip("/").partition("/")
        begin = r"[^:/]+://" + (re.escape(host) or "[^/]*") + re.escape(slash + path)
    return f"^{begin}/(?:{inside})"


def tables_of(output: str) -> str:
    """A regular expression that the paths and URLs of what a run writes into ``output`` match, and no others there.

    An output may be in the folder of the captures, or that in the output.
    """
    from zmtpsniff.spark.tables import PARTITION, TABLES

    return below(output, f"(?:{'|'.join(TABLES)})/{PARTITION}=|{_BESIDE}")


def list_files(inputs: Sequence[str], session: "SparkSession | None" = None, but: str | None = None) -> list[Listed]:
    """The files that inputs name: files, globs, folders with all that is in them, or URLs of Hadoop file systems.

    Hidden files and folders, and those whose names begin with "_", are left out of folders, as Spark does, and so are
    paths and URLs that match the regular expression ``but`` (see :func:`below`), and FIFOs, sockets and
    devices in folders and globs. Sorted, each once. Raises SparkError for an input that names no file, or one of these.
    """
    found: dict[str, Listed] = {}
    for name in inputs:
        local = local_path(name)
        files = (
            _of_spark(name, session, but) if local is None and session is not None else local_files(local or name, but)
        )
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


def local_files(name: str, but: str | None = None) -> list[Listed]:
    """The files that a path or glob names, as :func:`list_files` has them; raises SparkError for a FIFO."""
    if is_special(name):
        raise SparkError(f"{name}: {SPECIAL}; write what comes out of it to a file first")
    paths = [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))
    files: list[Listed] = []
    for path in paths:
        if os.path.isdir(path):
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(folder for folder in folders if folder[0] not in "._")
                files += _chosen(folder, [name for name in sorted(names) if name[0] not in "._"], but)
        else:
            files += _chosen(os.path.dirname(path), [os.path.basename(path)], but)
    return files


def _chosen(folder: str, names: Sequence[str], but: str | None) -> list[Listed]:
    """The files of a folder that have these names, without those to leave out, by whatever links it was come to."""
    real = os.path.realpath(folder)
    wanted = (os.path.join(folder, name) for name in names if but is None or not re.search(but, f"{real}/{name}"))
    return [_listed(path) for path in wanted if not is_special(path)]


def _listed(path: str) -> Listed:
    path = os.path.abspath(path)
    try:
        stat = os.stat(path)
    except OSError:  # a broken link: it is told when it is read
        return Listed(path, 0, 0)
    return Listed(path, stat.st_size, stat.st_mtime_ns)


def _of_spark(url: str, session: "SparkSession", but: str | None) -> list[Listed]:
    """What Hadoop's file system lists; the content is not read."""
    from pyspark.errors import PySparkException

    reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        rows = reader.load(url).selectExpr("path", "length", "unix_micros(modificationTime) AS modified").collect()
    except PySparkException as error:
        raise SparkError(f"{url}: {(str(error).strip() or 'not found').splitlines()[0]}") from error
    wanted = (row for row in rows if but is None or not re.search(but, row.path))
    return [Listed(row.path, row.length, row.modified * 1000) for row in wanted]


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


def by_series(files: Sequence[Listed], rule: str) -> dict[str, list[Listed]]:
    """Files by the series that they belong to; raises ValueError for a rule that is none."""
    check_series(rule)
    found: dict[str, list[Listed]] = {}
    for file in files:
        found.setdefault(series_of(file.path, rule), []).append(file)
    return found


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
