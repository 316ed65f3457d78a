"""Saves packets to a pcapng file, or to a ring of files, while they are dissected, too."""

import contextlib
import os
import stat
import time
from collections import deque
from collections.abc import Iterator, Sequence

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.pcapng_writer import STATISTICS_SIZE, PcapngSection, Provenance, key_blocks, whole_blocks
from zmtpsniff.capture.ring import FileRing, ring_name
from zmtpsniff.capture.source import CaptureError, Fault, Source, SourceState

ENDED = "saving-ended"  # the problem code
STANDARD_OUTPUT = "-"

_NO_LIMIT = 1 << 80
_TO_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)  # Windows: no ends of lines
_MOST_KEYS = 65_536  # lines that each further file of a ring gets; the oldest give way
_KEYS_FOLLOW = "# keys follow, as they came"


class Saver:
    """Writes packets as they come. Once write() returns, its packets can be read from the file.

    If the disk is full, or the file cannot be written on, the saving ends, but never the dissection. The file keeps
    its whole blocks, and ``faults`` reports it once.

    One thread at a time may use a saver; another may look at ``faults``.
    """

    def __init__(
        self,
        path: str,
        origin: Provenance,
        ring: FileRing | None = None,
        *,
        inputs: Sequence[str] = (),
        comments: list[str] | None = None,
        count: int | None = None,
        key_lines: Sequence[str] | None = None,
    ) -> None:
        """Open the (first) file and write its beginning; raises CaptureError if that cannot be done.

        ``path`` may be ``-`` for standard output. ``inputs`` are files that must not be overwritten. ``comments`` are
        those on the capture as a whole; the list may grow while packets come. Only the first ``count`` packets are
        saved, None for all. ``key_lines`` are lines of a key file that the file is to hold; None if none will come,
        also by add_keys().
        """
        self.faults: list[Fault] = []
        self._path = path
        self._ring = ring
        self._inputs = inputs
        self._comments = [] if comments is None else comments
        self._left = _NO_LIMIT if count is None else count
        self._section = PcapngSection(origin)
        self._fd = -1
        self._name = ""  # of the file that is open
        self._names: list[str] = []  # of the files kept
        self._number = 0
        self._regular = False
        self._size = 0  # octets of the file that is open
        self._in_file = 0  # packets in it
        self._first_ns = 0  # time of its first packet
        self._last_ns = 0
        self._comments_written = 0  # in this file
        self._dropped: int | None = None
        self._dropped_before = 0  # told in earlier files
        self._packets_before = 0  # saved in them
        self._keys: deque[str] | None = None if key_lines is None else deque(key_lines, _MOST_KEYS)
        self._new_keys: list[str] = []  # not in the file yet
        if path == STANDARD_OUTPUT and ring is not None:
            raise CaptureError("standard output: cannot be several files (-b needs -w with the name of a file)")
        if not path:
            raise CaptureError("-w: the name of a file is missing")
        if path.endswith("/") or os.path.isdir(path):  # a ring would make names of it
            raise CaptureError(f"{path}: a directory, not a file to save packets to")
        try:
            self._open()
        except OSError as error:
            self._let_go()
            raise CaptureError(f"{self._title()}: {error.strerror or error}") from error

    @property
    def is_standard_output(self) -> bool:
        """Whether it writes to no file of its own."""
        return self._path == STANDARD_OUTPUT

    @property
    def packets(self) -> int:
        """How many packets have been saved whole, also in files that the ring has removed."""
        return self._packets_before + self._in_file

    def write(self, block: Block, dropped: int | None = None) -> None:
        """Save the packets; ``dropped`` is how many were lost so far before they reached us, None if nobody knows."""
        if self._fd < 0:
            return
        if dropped is not None:
            self._dropped = dropped
        if len(block) > self._left:
            block = block.part(0, self._left)
        try:
            self._begin_again_if_better()
            self._save_keys()
            if self._ring is None:
                self._save(block)
            else:
                self._save_in_ring(block, self._ring)
        except (OSError, CaptureError) as error:
            self._end(error)
        self._left -= len(block)

    def add_keys(self, lines: Sequence[str]) -> None:
        """Save lines of a key file, too, in front of the next packets; any thread may say so."""
        self._new_keys += lines

    def close(self, dropped: int | None = None) -> None:
        """End the file, with a block of statistics if the number of lost packets is known.

        A second call does nothing.
        """
        if self._fd < 0:
            return
        if dropped is not None:
            self._dropped = dropped
        try:
            self._finish()
        except OSError as error:
            self._end(error)

    def _save_keys(self) -> None:
        if not self._new_keys:
            return
        lines = self._new_keys[:]
        del self._new_keys[: len(lines)]
        if self._keys is None:
            self._keys = deque(maxlen=_MOST_KEYS)
        self._keys += lines
        self._put(key_blocks(lines))

    def _save(self, block: Block) -> None:
        if block:
            self._put(self._section.packets(block))
            self._in_file += len(block)
            self._last_ns = block.times_ns[-1]

    def _save_in_ring(self, block: Block, ring: FileRing) -> None:
        while block:
            stop = self._fitting(block, ring)
            self._save(block.part(0, stop))
            block = block.part(stop)
            if block:
                self._finish()
                self._open()

    def _fitting(self, block: Block, ring: FileRing) -> int:
        """How many of the packets the open file takes. An empty one takes at least one packet."""
        stop = len(block)
        if ring.packets is not None:
            stop = min(stop, ring.packets - self._in_file)
        times_ns = block.times_ns
        if not self._in_file:
            self._first_ns = times_ns[0]
        duration = _NO_LIMIT if ring.duration_ns is None else ring.duration_ns
        room = _NO_LIMIT
        if ring.octets is not None:
            ending = len(self._section.statistics(0, 0, self._late_comments()))
            room = ring.octets - self._size - max(ending, STATISTICS_SIZE)
        earliest_ns, latest_ns = block.span_ns
        earliest_ns = min(earliest_ns, self._first_ns)
        if not block.odd and self._section.most_octets(block) <= room and latest_ns - earliest_ns < duration:
            self._first_ns = earliest_ns
            return stop
        for place, size in enumerate(self._section.sizes(block.part(0, stop))):
            age = times_ns[place] - self._first_ns
            if age < 0:  # the clock was set back
                self._first_ns += age
            room -= size
            if (age >= duration or room < 0) and (self._in_file or place):
                return place
        return stop

    def _put(self, data: bytes) -> None:
        """Write blocks; if that fails only the whole ones stay."""
        start = self._size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            self._size += len(data)
        except BaseException:  # an interrupt, too, must not leave half a block
            written = len(data) - len(rest)
            if self._regular:
                written = os.lseek(self._fd, 0, os.SEEK_CUR) - start
            whole, packets = whole_blocks(data, written)
            self._in_file += packets
            self._size = start + whole
            if self._regular:
                os.ftruncate(self._fd, self._size)
                os.lseek(self._fd, self._size, os.SEEK_SET)
            raise

    def _open(self) -> None:
        """Open the next file and write its header. Raises OSError, CaptureError for a file that must stay."""
        self._size = self._in_file = 0
        if self._path == STANDARD_OUTPUT:
            if os.isatty(1):
                raise CaptureError("standard output: a terminal; save packets to a file or into a pipe")
            self._fd = os.dup(1)
        else:
            name = self._path
            if self._ring is not None:
                self._number += 1
                name = ring_name(self._path, self._number, time.time())
                while self._ring.files is not None and len(self._names) >= self._ring.files:
                    _remove(self._names.pop(0))
            if any(_same(name, other) for other in self._inputs):
                raise CaptureError(f"{name}: not overwritten, since it is one of the captures to read")
            self._name = name
            # Packets may hold secrets: like dumpcap's, the file is for its owner only.
            self._fd = os.open(name, _TO_WRITE, 0o600)
            self._regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
            self._names.append(name)
        self._put(self._header())

    def _header(self) -> bytes:
        self._comments_written = len(self._comments)
        keys = b"" if self._keys is None else key_blocks([_KEYS_FOLLOW, *self._keys])
        return self._section.header(self._comments[: self._comments_written]) + keys

    def _late_comments(self) -> list[str]:
        return self._comments[self._comments_written :]

    def _begin_again_if_better(self) -> None:
        """Write the header anew while nothing follows it, if there are comments that belong into it."""
        if not self._in_file and self._regular and self._late_comments():
            os.ftruncate(self._fd, 0)
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._size = 0
            self._put(self._header())

    def _finish(self) -> None:
        """End the file that is open with its statistics. Raises OSError."""
        self._begin_again_if_better()
        self._save_keys()
        dropped = None if self._dropped is None else self._dropped - self._dropped_before
        ending = self._section.statistics(self._last_ns, dropped, self._late_comments())
        if ending:
            self._put(ending)
        self._dropped_before = self._dropped or 0
        self._packets_before, self._in_file = self.packets, 0
        descriptor, self._fd = self._fd, -1
        os.close(descriptor)

    def _end(self, error: Exception) -> None:
        """End the saving, and tell why."""
        reason = f"{self._title()}: {error.strerror or error}" if isinstance(error, OSError) else str(error)
        self._let_go()
        self.faults.append(Fault(ENDED, f"{reason}; saving ended after {self.packets} packets, the rest is not saved"))

    def _let_go(self) -> None:
        """Close what is open, however it went; a file without even a header is no capture and goes."""
        if self._fd < 0:
            return
        descriptor, self._fd = self._fd, -1
        with contextlib.suppress(OSError):
            os.close(descriptor)
        if self._regular and not self._size:
            with contextlib.suppress(OSError):
                os.unlink(self._name)

    def _title(self) -> str:
        return "standard output" if self._path == STANDARD_OUTPUT else self._name or self._path


class SavingSource(SourceState):
    """A Source that saves the packets of another, with the keys that come with them, as it gives them out."""

    def __init__(self, source: Source, saver: Saver, keys_only: bool = False) -> None:
        """``saver`` should have the comments of ``source``; it is closed at the end of batches().

        With ``keys_only`` somebody else saves packets, and closes it.
        """
        super().__init__(source)
        self.key_lines = []
        self._source = source
        self._saver = saver
        self._keys_only = keys_only
        self._told = keys_only

    def batches(self) -> Iterator[Block]:
        """Yield the packets, each block once it is saved; raises what the source raises."""
        try:
            for block in self._source.batches():
                if lines := self._source.key_lines[:]:
                    del self._source.key_lines[: len(lines)]
                    self.key_lines += lines
                    self._saver.add_keys(lines)
                if not self._keys_only:
                    self._saver.write(block, self._source.dropped or None)
                self._take_over()
                yield block
        finally:
            if not self._keys_only:
                self._saver.close(self._source.dropped or None)
            self._take_over()

    def _take_over(self) -> None:
        self.dropped = self._source.dropped
        if self._saver.faults and not self._told:  # there is no second
            self._told = True
            self.faults += self._saver.faults


def _remove(name: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # somebody was quicker
        os.unlink(name)


def _same(name: str, other: str) -> bool:
    """Whether the two are one file; ``other`` may be ``-`` for standard input."""
    try:
        return os.path.samestat(os.stat(name), os.fstat(0) if other == STANDARD_OUTPUT else os.stat(other))
    except OSError:
        return False
