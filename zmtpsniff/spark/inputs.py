"""A capture file read by an executor: opened by whatever its path or URL names, packet by packet."""

from collections.abc import Generator
from contextlib import closing

from zmtpsniff.capture.files import CHUNK, open_stream, read_chunks
from zmtpsniff.capture.locations import SPECIAL, LocationError, is_special, open_location
from zmtpsniff.capture.source import CaptureError, Fault, Packet


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
            if is_special(self.path):
                raise CaptureError(f"{self.path}: {SPECIAL}")
            with closing(open_location(self.path)) as file:
                self._opened = True
                known: list[int] = []
                for packets in open_stream(self.path, read_chunks(file, CHUNK), self, known):
                    self.offsets = known or [0] * len(packets)
                    yield packets
        except (CaptureError, LocationError) as error:
            self.unreadable = str(error)
        except OSError as error:
            self.unreadable = f"{self.path}: {error.strerror or error}"


_COSTLY = frozenset(("capture-truncated", "capture-corrupt"))
