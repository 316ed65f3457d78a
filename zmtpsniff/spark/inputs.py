"""A capture file read by an executor: opened by whatever its path or URL names, packet by packet."""

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import IO, Any

from zmtpsniff.capture.files import CHUNK, open_stream
from zmtpsniff.capture.octets import CUT_SHORT, DamageError
from zmtpsniff.capture.source import CaptureError, Fault, Packet
from zmtpsniff.spark.locations import SPECIAL, file_system, is_special, local_path
from zmtpsniff.spark.session import SparkError


class File:
    """A capture file as a source of packets; what is wrong with it is kept, never raised.

    ``error`` says why it or its rest could not be read, None if nothing is wrong.
    """

    def __init__(self, path: str) -> None:
        """Read a path or URL."""
        self.path = path
        self.dropped = 0
        self.faults: list[Fault] = []
        self.comments: list[str] = []
        self.key_lines: list[str] = []
        # Of the packets of the list that was yielded last: offset of the record, octets from the beginning of what the
        # file holds; 0 where packets have no record, since a capture does not begin with one.
        self.offsets: list[int] = []
        self.unreadable: str | None = None
        self._opened = False

    @property
    def error(self) -> str | None:
        """Why it, or its rest, could not be read."""
        return self.unreadable or next((fault.detail for fault in self.faults if fault.code in _COSTLY), None)

    @property
    def condition(self) -> str:
        """In a word: whole, damaged (read up to there), foreign (no capture) or missing (nobody opens it)."""
        if self.unreadable is not None:
            return "foreign" if self._opened else "missing"
        return "whole" if self.error is None else "damaged"

    def first_packets(self) -> list[Packet]:
        """The first packets, none if there are none."""
        with closing(self.batches()) as batches:
            return next(filter(None, batches), [])

    def batches(self) -> Generator[list[Packet]]:
        """Yield the packets, up to where the file can be read."""
        try:
            with closing(self._open()) as file:
                self._opened = True
                known: list[int] = []
                for packets in open_stream(self.path, _chunks(file), self, known):
                    self.offsets = known or [0] * len(packets)
                    yield packets
        except (CaptureError, SparkError) as error:
            self.unreadable = str(error)
        except OSError as error:
            self.unreadable = f"{self.path}: {error.strerror or error}"

    def _open(self) -> Any:
        local = local_path(self.path)
        if local is None:
            system, path = file_system(self.path)
            return system.open_input_stream(path)
        if is_special(local):
            raise CaptureError(f"{self.path}: {SPECIAL}")
        return open(local, "rb", buffering=0)


_COSTLY = frozenset(("capture-truncated", "capture-corrupt"))


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
