"""What a stream of the format ``zmtp`` keeps in a folder of its own: which files it took, and what is open after them.

    DIR/files/N.json                   the files of list N
    DIR/states/SERIES/N-K.msgpack      what shard K of a series was left with after list N

A task that is run again writes the same again. The number of shards may change from list to list.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from uuid import uuid4

import msgspec
from pyarrow.fs import FileSelector

from zmtpsniff.capture.locations import file_system, make_parent
from zmtpsniff.spark.file_list import below
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.shard import ShardSpec, State

Groups = dict[bytes, tuple[int, State]]
"""The states of groups, each with the time when it is over."""


_FASTEST = 1  # level of compression


class _Snapshot(msgspec.Struct, array_like=True):
    end_ns: int
    groups: Groups


class Progress:
    """The folder."""

    def __init__(self, location: str) -> None:
        """Use the folder ``location``, a path or URL, made if needed; raises SparkError."""
        self.own = below(location, r"files/[0-9]+\.json|states/[0-9a-f]{32}/")  # which matches what is kept in it
        self._system, self._root = file_system(location)

    def lists(self) -> int:
        """The number of the last list."""
        return max((number for number, _ in self._numbers("files")), default=0)

    def files(self, number: int) -> list[str]:
        """The files of a list."""
        return msgspec.json.decode(self._read(f"files/{number}.json"), type=list[str])

    def note(self, number: int, files: Sequence[str]) -> None:
        """Write a list."""
        self._write(f"files/{number}.json", json.dumps(files).encode())

    def snapshot(self, series: str, number: int) -> tuple[Groups, int, int]:
        """What a series was left with by the last list up to ``number`` that has files of it.

        The states of its groups, when it ended, and the number of the next group. Raises SparkError.
        """
        folder = _folder(series)
        numbers = self._numbers(folder)
        found = max((one for one, _ in numbers if one <= number), default=None)
        if found is None:
            raise SparkError(f"{self._root}: what was open in {series} is gone; begin with new folders")
        shards = [
            msgspec.msgpack.decode(zlib.decompress(self._read(f"{folder}/{name}")), type=_Snapshot)
            for one, name in numbers
            if one == found
        ]
        groups = {name: one for shard in shards for name, one in shard.groups.items()}
        next_group = 1 + max((state.number for _, state in groups.values()), default=-1)
        return groups, max(shard.end_ns for shard in shards), next_group

    def keep(
        self, series: str, number: int, spec: ShardSpec, groups: Mapping[bytes, tuple[int, State]], end_ns: int
    ) -> None:
        """Keep what a shard of a series is left with after list ``number``."""
        name = f"{_folder(series)}/{number}-{spec.number}.msgpack"
        self._write(name, zlib.compress(msgspec.msgpack.encode(_Snapshot(end_ns, dict(groups))), _FASTEST))

    def forget(self, number: int) -> None:
        """Delete what nobody asks for once the lists up to ``number`` are done: all but the latest of each series."""
        selector = FileSelector(f"{self._root}/states", allow_not_found=True)
        for folder in self._system.get_file_info(selector):
            numbers = self._numbers(f"states/{folder.base_name}")
            latest = max((one for one, _ in numbers if one <= number), default=0)
            for one, name in numbers:
                if one < latest:
                    self._system.delete_file(f"{self._root}/states/{folder.base_name}/{name}")

    def _numbers(self, folder: str) -> list[tuple[int, str]]:
        """The files in a folder, each with the number that its name begins with."""
        found = self._system.get_file_info(FileSelector(f"{self._root}/{folder}", allow_not_found=True))
        names = [info.base_name for info in found if info.base_name.endswith((".json", ".msgpack"))]
        return [(int(name.partition(".")[0].partition("-")[0]), name) for name in names]

    def _read(self, name: str) -> bytes:
        with self._system.open_input_stream(f"{self._root}/{name}") as file:
            return bytes(file.read())

    def _write(self, name: str, octets: bytes) -> None:
        """Write a file so that it is there as a whole or not at all."""
        path = f"{self._root}/{name}"
        partial = f"{path}.{uuid4().hex}.partial"
        make_parent(self._system, path)
        with self._system.open_output_stream(partial) as file:
            file.write(octets)
        self._system.move(partial, path)


def _folder(series: str) -> str:
    return f"states/{sha256(series.encode()).hexdigest()[:32]}"
