"""A capture file read by an executor: opened by whatever its path or URL names, packet by packet."""

from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING

from zmtpsniff.capture.files import CHUNK, open_stream, read_chunks
from zmtpsniff.capture.locations import SPECIAL, LocationError, is_special, open_location
from zmtpsniff.capture.source import CaptureError, Fault

if TYPE_CHECKING:
    from zmtpsniff.capture.skim import FilePiece, Glance

_CHUNK = 4 * CHUNK  # numpy takes as long for few packets as for many


class File:
    """A capture file as a source of packets. It keeps errors, and never raises them.

    ``error`` says why the file or its rest could not be read, None if nothing is wrong. ``skim`` knows its packets.
    """

    def __init__(self, path: str, glance: "Glance | None" = None) -> None:
        """Read a path or URL, without the packets that ``glance`` rules out."""
        from zmtpsniff.capture.skim import Skim  # and numpy, which takes a while

        self.path = path
        self.skim = Skim(glance)
        self.dropped = 0
        self.faults: list[Fault] = []
        self.comments: list[str] = []
        self.key_lines: list[str] = []
        self.unreadable: str | None = None
        self._opened = False

    @property
    def error(self) -> str | None:
        """The reason why the file, or its rest, could not be read."""
        return self.unreadable or next((fault.detail for fault in self.faults if fault.code in _COSTLY), None)

    @property
    def condition(self) -> str:
        """The condition: whole, damaged (read up to there), foreign (no capture), missing (cannot be opened)."""
        if self.unreadable is not None:
            return "foreign" if self._opened else "missing"
        return "whole" if self.error is None else "damaged"

    def first_piece(self) -> "FilePiece | None":
        """The first packets, None if there are none."""
        with closing(self.pieces(CHUNK)) as pieces:
            return next(pieces, None)

    def pieces(self, chunk: int = _CHUNK) -> "Generator[FilePiece]":
        """Yield the packets, as far as the file can be read, ``chunk`` octets at a time."""
        try:
            if is_special(self.path):
                raise CaptureError(f"{self.path}: {SPECIAL}")
            with closing(open_location(self.path)) as file:
                self._opened = True
                chunks = read_chunks(file, chunk)
                yield from self.skim.pieces(open_stream(self.path, chunks, self))
        except (CaptureError, LocationError) as error:
            self.unreadable = str(error)
        except OSError as error:
            self.unreadable = f"{self.path}: {error.strerror or error}"


_COSTLY = frozenset(("capture-truncated", "capture-corrupt"))
