"""A capture file read by an executor: opened by whatever its path or URL names, packet by packet."""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from typing import IO, Any, Protocol
from urllib.parse import unquote, urlsplit

from zmtpsniff.capture.files import CHUNK, open_stream
from zmtpsniff.capture.octets import CUT_SHORT, DamageError
from zmtpsniff.capture.source import CaptureError, Fault, Packet, Source


class PlacedSource(Source, Protocol):
    """A source that says where in its file the packets are."""

    # Of the packets of the list that was yielded last: offset of the record, octets from the beginning of what the file
    # holds; 0 where packets have no record, since a capture does not begin with one.
    offsets: list[int]


class File:
    """A capture file as a source of packets; what is wrong with it is kept, never raised.

    ``error`` says why it or its rest could not be read, None if nothing is wrong.
    """

    def __init__(self, path: str, copy: str | None = None) -> None:
        """Read ``path``, or the local file ``copy`` if only Spark can open it."""
        self.path = path
        self.dropped = 0
        self.faults: list[Fault] = []
        self.comments: list[str] = []
        self.offsets: list[int] = []  # of a PlacedSource
        self.unreadable: str | None = None
        self._copy = copy

    @property
    def error(self) -> str | None:
        """Why it, or its rest, could not be read."""
        return self.unreadable or next((fault.detail for fault in self.faults if fault.code in _COSTLY), None)

    def batches(self) -> Iterator[list[Packet]]:
        """Yield the packets, up to where the file can be read."""
        try:
            with closing(self._open()) as file:
                known: list[int] = []
                for packets in open_stream(self.path, _chunks(file), self, known):
                    self.offsets = known or [0] * len(packets)
                    yield packets
        except CaptureError as error:
            self.unreadable = str(error)
        except OSError as error:
            self.unreadable = f"{self.path}: {error.strerror or error}"

    def _open(self) -> Any:
        if self._copy is not None:
            return open(self._copy, "rb", buffering=0)
        local = local_path(self.path)
        if local is not None:
            if is_special(local):
                raise CaptureError(f"{self.path}: {SPECIAL}")
            return open(local, "rb", buffering=0)
        from pyarrow.fs import FileSystem

        system, path = FileSystem.from_uri(self.path)
        return system.open_input_stream(path)


_COSTLY = frozenset(("capture-truncated", "capture-corrupt"))


def local_path(path: str) -> str | None:
    """The path of a local file that is named by its path or as Hadoop names it (file:/x, file:///x), else None."""
    if path.startswith("file:"):
        return unquote(urlsplit(path).path)
    return None if "://" in path else path


SPECIAL = "it is a FIFO, a socket or a device, and no file"
"""What is said of what :func:`is_special` finds."""


def is_special(path: str) -> bool:
    """Whether a path or URL names a local FIFO, socket or device: who reads that may wait for ever."""
    local = local_path(path)
    try:
        mode = 0 if local is None else os.stat(local).st_mode
    except OSError:  # it is told when it is read
        return False
    return bool(mode) and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def is_readable_in_python(path: str) -> bool:
    """Whether this can open a path or URL without Spark's help."""
    if local_path(path) is not None:
        return True
    from pyarrow.fs import FileSystem

    try:
        FileSystem.from_uri(path)
    except (OSError, ValueError):  # ArrowInvalid is a ValueError
        return False
    return True


def is_there(path: str) -> bool:
    """Whether a file is still there, as far as this can tell: of one that only Spark can open it is believed."""
    local = local_path(path)
    if local is not None:
        return os.path.exists(local)
    if not is_readable_in_python(path):
        return True
    from pyarrow.fs import FileSystem, FileType

    system, name = FileSystem.from_uri(path)
    return bool(system.get_file_info(name).type != FileType.NotFound)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while True:
        try:
            chunk = file.read(CHUNK)
        except OSError as error:
            raise DamageError(
                CUT_SHORT, f"it cannot be read on ({error.strerror or os.strerror(error.errno or 5)})"
            ) from error
        if not chunk:
            return
        yield chunk
