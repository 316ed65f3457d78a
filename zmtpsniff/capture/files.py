"""Capture files: recognised by their magic, several of them merged by time, standard input as it comes."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from itertools import chain
from typing import IO

from zmtpsniff.capture import compression, pcap, pcapng
from zmtpsniff.capture.block import Block
from zmtpsniff.capture.file_octets import CUT_SHORT, DamageError, FileOctets
from zmtpsniff.capture.merge import Run, merged_runs
from zmtpsniff.capture.source import CaptureError, SourceState, refuse_twice
from zmtpsniff.capture.time_window import TimeWindow

CHUNK = 256 << 10  # octets read at a time: enough to make calls cheap, little enough to stay in a processor's cache
LEAST_CHUNK = 16 << 10
MAGIC_SIZE = 6  # octets; that of xz is the longest

_TEXT_STARTS = frozenset(bytes([octet]) for octet in b"[<+-0123456789abcdefghijklmnopqrstuvwxyz")

# Files that people take for capture files. The error names them and says what to do.
LOOKALIKES: tuple[tuple[bytes, str], ...] = (
    (b"BZh", "it looks like bzip2: unpack it first"),
    (b"\x04\x22\x4d\x18", "it looks like lz4: unpack it first"),
    (b"PK\x03\x04", "it looks like a zip archive: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "it looks like a 7z archive: unpack it first"),
    (b"\x1f\x8b", "it looks like gzip: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "it looks like zstd: unpack it first"),
    (b"\xfd7zXZ\x00", "it looks like xz: unpack it first"),
    (b"snoop\x00", "it looks like snoop: convert it with editcap"),
    (b"GMBU", "it looks like Microsoft Network Monitor: convert it with editcap"),
    (b"RTSS", "it looks like Microsoft Network Monitor 1: convert it with editcap"),
    (b"\x7fELF", "it looks like a program"),
    (b"{", "it looks like JSON"),
    (b"<", "it looks like XML or HTML"),
)

Clock = Callable[[int], int]
"""Gives the right time for one that a file has."""


class Captures(SourceState):
    """One or more capture files as one source of packets; made by open_captures()."""

    def __init__(self, window: TimeWindow | None = None) -> None:
        """Start without a file. Packets outside of ``window`` are left out."""
        self._window = window
        super().__init__()
        self._files: list[FileIO | IO[bytes]] = []
        self._captures: list[Iterator[Block]] = []
        self._clocks: Sequence[Clock | None] = ()  # of the files
        self.names: list[str] = []  # of the files
        # Called with the files that the packets of each block come from, if there are several.
        self.tell_runs: Callable[[list[Run]], None] = lambda runs: None

    def set_clocks(self, clocks: Sequence[Clock | None]) -> None:
        """Put the times of each file's packets right by its clock; None: they are."""
        self._clocks = clocks

    def add(self, name: str | IO[bytes], chunk_size: int) -> None:
        """Open the file ``name``, or take one that is open, and check that it is a capture; raises CaptureError."""
        if not isinstance(name, str):
            title = str(getattr(name, "name", "the file object"))
            self._captures.append(open_stream(title, read_chunks(name, chunk_size), self))
            return
        title = "standard input" if name == "-" else name
        self.names.append(name)
        try:
            file = FileIO(0, closefd=False) if name == "-" else _open(name)
        except OSError as error:
            more = (
                f"; name the captures in it: {title.rstrip('/')}/*.pcap" if isinstance(error, IsADirectoryError) else ""
            )
            raise CaptureError(f"{title}: {error.strerror or error}{more}") from error
        except ValueError as error:  # a name that no file can have
            raise CaptureError(f"{title!r}: {error}") from error
        self._files.append(file)
        if file.isatty():
            raise CaptureError(f"{title}: a terminal, not a capture file")
        self._captures.append(open_stream(title, read_chunks(file, chunk_size), self))

    def batches(self) -> Iterator[Block]:
        """Yield the packets: of one file in its order, of several merged by time."""
        files = self._captures
        if any(self._clocks):
            files = [_retimed(file, clock) if clock else file for file, clock in zip(files, self._clocks, strict=True)]
        if self._window is not None:
            files = list(map(self._window.cut, files))
        try:
            if len(files) == 1:
                yield from files[0]
                return
            for block, runs in merged_runs(files, self.interruptions):
                self.tell_runs(runs)
                yield block
        finally:
            self.close()

    def again(self) -> "list[Captures]":
        """Each file once more, from its beginning; empty if one of them cannot be read twice, or there are no two.

        Raises CaptureError.
        """
        if len(self._captures) < 2 or len(self.names) < len(self._captures) or not all(map(os.path.isfile, self.names)):
            return []
        return [open_captures([name], self._window) for name in self.names]

    def position(self) -> tuple[int, int] | None:
        """Octets read so far and octets in all, of the files as they are stored.

        None where nobody knows: not all are regular files, one is standard input, or all is read and they are closed.
        """
        octets = whole = 0
        for file in self._files:
            if file.closed or not isinstance(file, FileIO) or not file.closefd:
                return None
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            octets += file.tell()
            whole += status.st_size
        return octets, whole

    def close(self) -> None:
        """Close the files; batches() does so at its end."""
        for file in self._files:
            file.close()


def open_captures(names: Sequence[str | IO[bytes]], window: TimeWindow | None = None) -> Captures:
    """Open capture files by name or URL, ``-`` for standard input, and return them as one source.

    Packets outside of ``window`` are left out. A URL may be that of a folder, or a glob, as no shell knows these.

    An object that is open stays so: it belongs to who opened it.

    All of them are opened and their beginnings checked before this returns. Raises CaptureError for the first that
    cannot be read or is no capture.
    """
    refuse_twice(names)
    names = [name for given in names for name in expanded(given)]
    captures = Captures(window)
    try:
        for name in names:
            captures.add(name, max(CHUNK // len(names), min(CHUNK, LEAST_CHUNK)))
    except CaptureError:
        captures.close()
        raise
    return captures


def open_stream(title: str, chunks: Iterator[bytes], source: SourceState) -> Iterator[Block]:
    """The packets of a capture of any known format that may be written while it is read: a block for each piece.

    Comments, losses and faults go to ``source``. Raises CaptureError if the beginning is of no capture.
    """
    stream = FileOctets(title, chunks)
    data = stream.extend(b"", MAGIC_SIZE)
    _fail_if_damaged(stream)
    if not data:
        raise CaptureError(f"{title}: empty, not a capture file")
    inside = ""
    for magic, (format_name, decompress) in compression.FORMATS.items():
        if data.startswith(magic):
            inside = f"what its {format_name} data hold is "
            stream = FileOctets(title, decompress(chain((data,), chunks)))
            data = stream.extend(b"", MAGIC_SIZE)
            if len(data) < MAGIC_SIZE:
                _fail_if_damaged(stream)
            break
    if data[:4] in pcap.MAGICS:
        return pcap.read_pcap(stream, data, source)
    if data[:4] == pcapng.MAGIC:
        return pcapng.read_pcapng(stream, data, source)
    if data[:1] in _TEXT_STARTS:
        from zmtpsniff.capture import strace_log  # which compiles many expressions

        data, is_log = strace_log.find_log(stream, data)
        if is_log:
            return strace_log.read_log(stream, data, source)
    raise CaptureError(f"{title}: {inside}{_no_capture(data)}")


def _retimed(blocks: Iterator[Block], clock: Clock) -> Iterator[Block]:
    """The packets of a file with the right times."""
    for block in blocks:
        yield block.with_times(clock)


def expanded(name: str | IO[bytes]) -> Sequence[str | IO[bytes]]:
    """The files that a URL names, or the one file that any other name stands for; raises CaptureError."""
    if not isinstance(name, str) or "://" not in name:
        return (name,)
    from zmtpsniff.capture.file_list import list_files
    from zmtpsniff.capture.locations import LocationError

    try:
        return [file.path for file in list_files([name])]
    except LocationError as error:
        raise CaptureError(str(error)) from error


def _open(name: str) -> FileIO | IO[bytes]:
    if "://" not in name:
        return FileIO(name)
    from zmtpsniff.capture.locations import open_location

    return open_location(name)


def read_chunks(file: FileIO | IO[bytes], size: int) -> Iterator[bytes]:
    """The octets that are there, up to ``size`` at a time: FileIO never waits for more than the first octet.

    Raises DamageError if a file cannot be read on.
    """
    while True:
        try:
            chunk = file.read(size)
        except OSError as error:
            raise DamageError(CUT_SHORT, f"it cannot be read on ({error.strerror or error})") from error
        if not chunk:
            return
        yield chunk


def _fail_if_damaged(stream: FileOctets) -> None:
    if stream.damage is not None:
        raise CaptureError(f"{stream.name}: {stream.damage}")


def _no_capture(data: bytes) -> str:
    what = "not a capture file (pcap or pcapng, plain or gzip, zstd, xz)"
    for magic, advice in LOOKALIKES:
        if data.startswith(magic):
            return f"{what}; {advice}"
    if data and all(0x20 <= octet < 0x7F or octet in b"\t\n\r" for octet in data[:64]):
        return f"{what}; it looks like text"
    return what
