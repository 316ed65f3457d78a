"""What a stream of the format ``zmtp`` keeps in a folder of its own: which files it took, and what is open after them.

    DIR/files/N.json            the files of list N, by their numbers
    DIR/left/SERIES/N.msgpack   what a series was left with after list N

A task that is run again writes the same again.
"""

import json
import re
from hashlib import sha256
from uuid import uuid4

import msgspec
from pyarrow.fs import FileSelector, FileSystem, FileType

from zmtpsniff.spark.inputs import local_path
from zmtpsniff.spark.listing import Listed, below, local_files
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.store import absolute
from zmtpsniff.spark.whole import Left


def list_all(inputs: list[str], state: str = "") -> list[Listed]:
    """The files that inputs name, as list_files has them; of other file systems those that Arrow knows.

    What is kept in the folder ``state`` is left out. An input without files is none. Raises SparkError.
    """
    but = below(state, r"files/[0-9]+\.json|left/[0-9a-f]{32}/") if state else None
    found: set[Listed] = set()
    for name in inputs:
        local = local_path(name)
        if local is not None:
            found.update(local_files(local, but))
            continue
        try:
            system, path = FileSystem.from_uri(name)
            infos = system.get_file_info(FileSelector(path, recursive=True))
        except (OSError, ValueError) as error:
            raise SparkError(f"{name}: {' '.join(str(error).split())}; ingest reads whatever Spark can") from error
        scheme = name.partition("://")[0]
        files = (
            Listed(f"{scheme}://{info.path}", info.size, info.mtime_ns or 0)
            for info in infos
            if info.type == FileType.File and not any(part[0] in "._" for part in info.path.split("/") if part)
        )
        found.update(file for file in files if but is None or not re.search(but, file.path))
    return sorted(found)


class Progress:
    """The folder."""

    def __init__(self, location: str) -> None:
        """Open the folder ``location``, a path or URL, made if needed; raises SparkError."""
        local = local_path(location)
        try:
            self._system, self._root = FileSystem.from_uri(location if local is None else absolute(local))
            self._system.create_dir(f"{self._root}/files")
        except (OSError, ValueError) as error:
            raise SparkError(f"state {location}: {' '.join(str(error).split())}") from error

    def lists(self) -> int:
        """The number of the last list."""
        return max(self._numbers("files"), default=0)

    def files(self, number: int) -> dict[int, str]:
        """The files of a list, by their numbers."""
        return msgspec.json.decode(self._read(f"files/{number}.json"), type=dict[int, str])

    def note(self, number: int, files: dict[int, str]) -> None:
        """Write a list."""
        self._write(f"files/{number}.json", json.dumps(files).encode())

    def left(self, series: str, number: int) -> Left:
        """What a series was left with by the last list up to ``number`` that has files of it; raises SparkError."""
        folder = _folder(series)
        found = max((one for one in self._numbers(folder) if one <= number), default=None)
        if found is None:
            raise SparkError(f"{self._root}: what was open in {series} is gone; begin with new folders")
        return msgspec.msgpack.decode(self._read(f"{folder}/{found}.msgpack"), type=Left)

    def leave(self, series: str, number: int, left: Left) -> None:
        """Keep what a series is left with after list ``number``."""
        folder = _folder(series)
        self._system.create_dir(f"{self._root}/{folder}")
        self._write(f"{folder}/{number}.msgpack", msgspec.msgpack.encode(left))

    def forget(self, number: int) -> None:
        """Delete what nobody asks for once the lists up to ``number`` are done: all but the latest of each series."""
        selector = FileSelector(f"{self._root}/left", allow_not_found=True)
        for folder in self._system.get_file_info(selector):
            name = f"left/{folder.base_name}"
            done = sorted(one for one in self._numbers(name) if one <= number)
            for old in done[:-1]:
                self._system.delete_file(f"{self._root}/{name}/{old}.msgpack")

    def _numbers(self, folder: str) -> list[int]:
        found = self._system.get_file_info(FileSelector(f"{self._root}/{folder}", allow_not_found=True))
        names = (info.base_name.partition(".") for info in found)
        return [int(name) for name, _, kind in names if kind in ("json", "msgpack")]

    def _read(self, name: str) -> bytes:
        with self._system.open_input_stream(f"{self._root}/{name}") as file:
            return bytes(file.read())

    def _write(self, name: str, octets: bytes) -> None:
        """Write a file so that it is there as a whole or not at all."""
        path = f"{self._root}/{name}"
        partial = f"{path}.{uuid4().hex}.partial"
        with self._system.open_output_stream(partial) as file:
            file.write(octets)
        self._system.move(partial, path)


def _folder(series: str) -> str:
    return f"left/{sha256(series.encode()).hexdigest()[:32]}"
