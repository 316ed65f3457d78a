"""A capture file read by an executor: opened by whatever its path or URL names, in blocks of many packets."""

from array import array
from collections.abc import Generator, Iterator
from contextlib import closing
from io import FileIO
from typing import IO

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.file_octets import DamageError
from zmtpsniff.capture.files import CHUNK, open_stream, read_chunks
from zmtpsniff.capture.locations import SPECIAL, LocationError, is_special, open_location
from zmtpsniff.capture.source import CaptureError, Fault, Interruption

_CHUNK = 4 * CHUNK  # flows go to the native core and back for each block


class File:
    """A capture file as a source of packets. It keeps errors, and never raises them.

    ``error`` says why the file or its rest could not be read, None if nothing is wrong. ``count`` is the number of
    packets so far, ``first_ns`` and ``last_ns`` are their least and their greatest time; None without packets.
    """

    def __init__(self, path: str) -> None:
        """Read a path or URL."""
        self.path = path
        self.count = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.dropped = 0
        self.faults: list[Fault] = []
        self.interruptions: list[Interruption] = []
        self.comments: list[str] = []
        self.key_lines: list[str] = []
        self.unreadable: str | None = None
        self._opened = False
        self._broke_off = False

    @property
    def error(self) -> str | None:
        """The reason why the file, or its rest, could not be read."""
        return self.unreadable or next((fault.detail for fault in self.faults if fault.code in _COSTLY), None)

    @property
    def condition(self) -> str:
        """The condition: whole, damaged (read up to there), foreign (no capture), missing (to be tried again)."""
        if self._broke_off or (self.unreadable is not None and not self._opened):
            return "missing"
        if self.unreadable is not None:
            return "foreign"
        return "whole" if self.error is None else "damaged"

    def beginning(self) -> Block | None:
        """The first packets, None if there are none."""
        with closing(self.blocks(CHUNK)) as blocks:
            return next(blocks, None)

    def blocks(self, chunk: int | None = None) -> Generator[Block]:
        """Yield the packets, as far as the file can be read, ``chunk`` octets at a time."""
        try:
            if is_special(self.path):
                raise CaptureError(f"{self.path}: {SPECIAL}")
            with closing(open_location(self.path)) as file:
                self._opened = True
                for block in open_stream(self.path, self._chunks(file, chunk or _CHUNK), self):
                    if block:
                        first_ns, last_ns = block.span_ns
                        self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
                        self.last_ns = last_ns if self.last_ns is None else max(self.last_ns, last_ns)
                        self.count += len(block)
                        yield block
        except (CaptureError, LocationError) as error:
            self.unreadable = str(error)
        except OSError as error:
            self.unreadable = f"{self.path}: {error.strerror or error}"

    def _chunks(self, file: FileIO | IO[bytes], size: int) -> Iterator[bytes]:
        """The octets. A store that refuses in the middle is not the file's damage."""
        try:
            yield from read_chunks(file, size)
        except DamageError as error:
            self._broke_off = isinstance(error.__cause__, OSError)
            raise

    def offsets(self) -> "array[int]":
        """Where the record of each packet begins, as far as the file can be read."""
        return array("q", (offset for block in self.blocks() for offset in block.offsets()))


_COSTLY = frozenset(("capture-truncated", "capture-corrupt"))
