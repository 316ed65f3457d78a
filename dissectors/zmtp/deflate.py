"""Messages of WebSocket that are compressed: the permessage-deflate extension (RFC 7692)."""

import zlib
from collections import OrderedDict
from collections.abc import Sequence
from weakref import ref

EXTENSION = "permessage-deflate"
# Octets of a message that are looked at, compressed and not: what is longer is lost, and all that builds upon it.
COMPRESSED_LIMIT = 1 << 24
INFLATED_LIMIT = 1 << 26

_TAIL = b"\x00\x00\xff\xff"  # that a sender leaves out (section 7.2.1)
_PIECE = 1 << 16
_MOST_BITS = -15  # of the window: a larger one than the sender's does no harm
# So many senders' windows, of some 50 KiB, are held in all: who opens more connections gets no more memory by it.
_MOST_WINDOWS = 4096


def parameters(extensions: Sequence[str]) -> frozenset[str] | None:
    """The names of the parameters with which an answer accepts permessage-deflate; None if it does not."""
    for extension in extensions:
        name, *words = (word.partition("=")[0].strip().lower() for word in extension.split(";"))
        if name == EXTENSION:
            return frozenset(words)
    return None


class Inflater:
    """Undoes the compression of what one side sends, message by message."""

    __slots__ = ("__weakref__", "_decoder", "_lost", "_takeover")

    def __init__(self, takeover: bool) -> None:
        """``takeover`` says that each message may refer back to those before."""
        self._takeover = takeover
        self._decoder = zlib.decompressobj(_MOST_BITS)
        self._lost = False

    def lose(self) -> None:
        """A message is missing, and so is what later ones refer to."""
        self._lost = self._takeover
        self._decoder = zlib.decompressobj(_MOST_BITS)

    def inflate(self, octets: bytes, keep: int) -> tuple[bytes, int] | None:
        """The first ``keep`` octets of a message and how many it has; None if that cannot be known."""
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
        if not self._takeover:
            self._decoder = zlib.decompressobj(_MOST_BITS)
        elif self._decoder.eof:  # a final block, after which zlib would forget what later messages refer to
            self.lose()
        else:
            _windows.use(self)
        return b"".join(kept), length


class _Windows:
    """The inflaters that hold a window; the one whose use was longest ago gives way."""

    def __init__(self) -> None:
        self._used: OrderedDict[int, ref[Inflater]] = OrderedDict()

    def use(self, inflater: Inflater) -> None:
        """Note that this one holds a window now."""
        used, key = self._used, id(inflater)
        if key in used:
            used.move_to_end(key)
            return
        used[key] = ref(inflater, lambda _: used.pop(key, None))
        if len(used) > _MOST_WINDOWS:
            _, oldest = used.popitem(last=False)
            gone = oldest()
            if gone is not None:
                gone.lose()


_windows = _Windows()
