"""Compressed messages of WebSocket: the permessage-deflate extension (RFC 7692)."""

import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from weakref import ref

from dissectors.snapshots import LATER, Live, Part

EXTENSION = "permessage-deflate"
# The most octets of a message, compressed and not. A longer message is lost, and with it all that refer back to it.
COMPRESSED_LIMIT = 1 << 24
INFLATED_LIMIT = 1 << 26

_TAIL = b"\x00\x00\xff\xff"  # that a sender leaves out (section 7.2.1)
_PIECE = 1 << 16
_MOST_BITS = -15  # of the window: a larger one than the sender's does no harm
_WINDOW = 1 << 15
# RFC 1951, sections 3.2.3 to 3.2.6: a block without octets, and the parts of a block with fixed codes
_EMPTY_BLOCK = b"\x00" + _TAIL
_FIXED_BLOCK, _LENGTH_258, _END_OF_BLOCK = "010", "11000101", "0000000"
_EXTRA_BITS = [max(code // 2 - 1, 0) for code in range(30)]  # of the distance with each code
_DISTANCES = [1 + sum(1 << bits for bits in _EXTRA_BITS[:code]) for code in range(30)]  # the least with each code
# The most windows of senders, of some 50 KiB each, in all. More connections get no more memory.
_MOST_WINDOWS = 4096


def parameters(extensions: Sequence[str]) -> frozenset[str] | None:
    """The names of the parameters with which an answer accepts permessage-deflate; None if it does not."""
    for extension in extensions:
        name, *words = (word.partition("=")[0].strip().lower() for word in extension.split(";"))
        if name == EXTENSION:
            return frozenset(words)
    return None


class Inflater(Part, weakref=True):
    """Undoes the compression of one side, message by message."""

    takeover: bool = True  # each message may refer back to those before
    _decoder: Live[Any] = LATER
    _history: Live[int] = 0  # octets that later messages may refer to
    _lost: Live[bool] = False
    _saved: tuple[bool, bytes] = (False, b"")  # for a snapshot: whether it is lost, and the octets of the history

    def __post_init__(self) -> None:
        """Begin with an empty window."""
        self._forget()

    def lose(self) -> None:
        """A message is missing, and so is what later ones refer to."""
        self._lost = self.takeover
        self._forget()

    def _forget(self) -> None:
        self._decoder = zlib.decompressobj(_MOST_BITS)
        self._history = 0

    def inflate(self, octets: bytes, keep: int) -> tuple[bytes, int] | None:
        """The first ``keep`` octets of a message, and how many octets it has; None if nobody can know."""
        if self._lost:
            return None
        kept: list[bytes] = []
        room = keep
        length = 0
        rest = octets + _TAIL
        try:
            while True:
                piece = self._decoder.decompress(rest, _PIECE)
                rest = self._decoder.unconsumed_tail
                length += len(piece)
                if room > 0:
                    kept.append(piece[:room])
                    room -= len(piece)
                if length > INFLATED_LIMIT:
                    self.lose()
                    return None
                if not rest or self._decoder.eof:
                    break
        except zlib.error:
            self.lose()
            return None
        if not self.takeover:
            self._forget()
        elif self._decoder.eof:  # a final block, after which zlib would forget the octets that later messages refer to
            self.lose()
        else:
            self._history = min(self._history + length, _WINDOW)
            self._hold_window()
        return b"".join(kept), length

    def _hold_window(self) -> None:
        """Note that this one has a window now; of too many the one that has been unused for longest loses its own."""
        key = id(self)
        if key in _windows:
            _windows.move_to_end(key)
            return
        _windows[key] = ref(self, lambda _: _windows.pop(key, None))
        while len(_windows) > _MOST_WINDOWS:
            _, oldest = _windows.popitem(last=False)
            gone = oldest()
            if gone is not None:
                gone.lose()

    # ------------------------------------------------------------------ snapshots

    def before_save(self) -> None:
        """Save the window that later messages refer to.

        zlib does not give its window away. So a copy of the decoder gets a block that says: repeat your last output.
        If the decoder is inside a block, it reads that block as something else. No honest sender stops there, and then
        the state is lost.
        """
        window = b""
        is_whole = True
        if self._history:
            try:
                one = self._decoder.copy()
                is_whole = not one.decompress(_EMPTY_BLOCK)
                window = one.decompress(_repeat(self._history))[: self._history]
            except zlib.error:
                is_whole = False
            is_whole = is_whole and len(window) == self._history
        self._saved = self._lost or not is_whole, window if is_whole else b""

    def after_load(self) -> None:
        """Make a decoder that has the window."""
        self._lost, window = self._saved
        if window:
            self._decoder = zlib.decompressobj(_MOST_BITS, zdict=window)
            self._history = len(window)
            self._hold_window()


_windows: OrderedDict[int, ref[Inflater]] = OrderedDict()
"""The inflaters that have a window, the one used last at the end."""


def _repeat(size: int) -> bytes:
    """A block that repeats the last ``size`` octets, and perhaps more (RFC 1951, section 3.2.6: fixed codes)."""
    code = bisect_right(_DISTANCES, size) - 1
    extra = format(size - _DISTANCES[code], "b").zfill(_EXTRA_BITS[code])[::-1] if _EXTRA_BITS[code] else ""
    # Codes begin with their highest bit, all other numbers with their lowest.
    match = _LENGTH_258 + format(code, "05b") + extra
    bits = _FIXED_BLOCK + match * -(-size // 258) + _END_OF_BLOCK
    return int(bits[::-1], 2).to_bytes(-(-len(bits) // 8), "little")
