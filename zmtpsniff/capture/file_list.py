"""Which files are meant by paths, folders, globs and URLs."""

import glob
import os
import re
from collections.abc import Sequence
from errno import EACCES
from fnmatch import translate
from typing import NamedTuple

from zmtpsniff.capture.locations import (
    SPECIAL,
    LocationError,
    file_system,
    is_special,
    is_there,
    local_path,
    url_of,
)
from zmtpsniff.errors import one_line


class FileInfo(NamedTuple):
    """A file: its path or URL, its size in octets, when it was last written to."""

    path: str
    size: int
    modified_ns: int


def list_files(inputs: Sequence[str], but: str | None = None, empty: bool = False) -> list[FileInfo]:
    """The files that inputs name: files, globs, folders with all that is in them, as paths or URLs.

    Hidden files and folders, and those whose names begin with "_", are left out of folders, and so are paths and URLs
    that match the regular expression ``but``, and FIFOs, sockets and devices in folders and globs.
    Sorted, each once. Raises LocationError for an input that is not there, or one of these, and, unless it may be
    ``empty``, for one without files.
    """
    found: dict[str, FileInfo] = {}
    for name in inputs:
        local = local_path(name)
        files = _of_url(name, but) if local is None else _local_files(local, but)
        if not files and not (empty and is_there(name)):
            raise LocationError(f"{name}: there is no such file, or no file in it")
        found.update((file.path, file) for file in files)
    return sorted(found.values())


def _local_files(name: str, but: str | None) -> list[FileInfo]:
    if is_special(name):
        raise LocationError(f"{name}: {SPECIAL}; write what comes out of it to a file first")
    files: list[FileInfo] = []
    refused: list[OSError] = []
    for path in [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True)):
        if os.path.isdir(path):
            for folder, folders, names in os.walk(path, onerror=refused.append):
                folders[:] = sorted(folder for folder in folders if folder[0] not in "._")
                files += _chosen(folder, [name for name in sorted(names) if name[0] not in "._"], but)
        else:
            files += _chosen(os.path.dirname(path), [os.path.basename(path)], but)
    # A folder that nobody may look into: it is told when it is read.
    return files + [FileInfo(os.path.abspath(str(one.filename)), 0, 0) for one in refused if one.errno == EACCES]


def _chosen(folder: str, names: Sequence[str], but: str | None) -> list[FileInfo]:
    """The files of a folder with these names. The expression ``but`` leaves out paths, of which links are resolved."""
    real = os.path.realpath(folder)
    wanted = (os.path.join(folder, name) for name in names if but is None or not re.search(but, f"{real}/{name}"))
    return [listed(path) for path in wanted if not is_special(path)]


def listed(path: str) -> FileInfo:
    """A local file as it is now."""
    path = os.path.abspath(path)
    try:
        stat = os.stat(path)
    except OSError:  # a broken link: it is told when it is read
        return FileInfo(path, 0, 0)
    return FileInfo(path, stat.st_size, stat.st_mtime_ns)


def _of_url(url: str, but: str | None) -> list[FileInfo]:
    """The files that are listed in another file system than this machine's."""
    system, path = file_system(url)  # which says so if there is no pyarrow
    from pyarrow.fs import FileSelector, FileType

    fixed = re.split(r"[*?[]", path, maxsplit=1)[0]
    folder = path if fixed == path else fixed.rpartition("/")[0]
    try:
        info = system.get_file_info(folder)
        selector = FileSelector(folder, recursive=True, allow_not_found=True)
        infos = [info] if info.type == FileType.File else system.get_file_info(selector)
    except OSError as error:
        raise LocationError(f"{url}: {one_line(error)}") from error
    wanted = re.compile(translate(path)) if fixed != path else None
    files = [
        FileInfo(url_of(url, one.path), one.size, one.mtime_ns or 0)
        for one in infos
        if one.type == FileType.File
        and not any(part[0] in "._" for part in one.path[len(folder) :].split("/") if part)
        and (wanted is None or wanted.match(one.path))
    ]
    return [file for file in files if but is None or not re.search(but, file.path)]
