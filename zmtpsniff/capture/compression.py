"""Compressed captures: takes chunks of octets, and gives decompressed chunks as soon as possible."""

import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from zmtpsniff.capture.file_octets import CORRUPT, CUT_SHORT, DamageError, FileOctets
from zmtpsniff.capture.source import CaptureError

LIMIT = 256 << 10  # decompressed octets handed on at a time, so that a small file of zeros takes no memory either
XZ_PIECE = 256  # decompressed octets at a time; an error loses at most so many good octets before it
XZ_MEMORY = 256 << 20  # octets; xz -9 needs 65 MiB
ZSTD_BLOCK = 128 << 10  # RFC 8878, section 3.1.1.2.4: Block_Maximum_Size


def gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress gzip, any number of members. Raises DamageError after the last good octet."""
    return _members(chunks, "gzip", partial(zlib.decompressobj, wbits=31), _inflated)


def _members(chunks: Iterator[bytes], name: str, begin: Callable[[], Any], step: "_Step") -> Iterator[bytes]:
    """Decompress members that follow each other, each by a decoder that ``begin`` makes. Raises DamageError."""
    decoder = begin()
    for chunk in chunks:
        rest: bytes | None = chunk
        while rest is not None:
            if decoder.eof:
                rest = rest.lstrip(b"\0")  # padding after a member, as on tapes
                if not rest:
                    break
                decoder = begin()
            octets, rest, error = step(decoder, rest)
            if octets:
                yield octets
            if error is not None:
                raise DamageError(CORRUPT, f"the {name} data are damaged ({error})") from error
            if decoder.eof:
                rest = decoder.unused_data
    if not decoder.eof:
        raise DamageError(CUT_SHORT, f"the {name} data are cut short")


_Step = Callable[[Any, bytes], tuple[bytes, bytes | None, Exception | None]]
"""Gives octets to a decoder. Returns what is decompressed, what is left to give (None: the decoder needs more than
that), and the error that ends it."""


def _inflated(inflate: "zlib._Decompress", octets: bytes) -> tuple[bytes, bytes | None, Exception | None]:
    before = inflate.copy()
    try:
        found = inflate.decompress(octets, LIMIT)
    except zlib.error as error:
        return _inflate_to_error(before, octets), None, error
    return found, inflate.unconsumed_tail if len(found) == LIMIT else None, None


def _inflate_to_error(inflate: "zlib._Decompress", octets: bytes) -> bytes:
    """The output before the error to which ``octets`` lead. zlib itself drops the good octets of a failing call."""
    parts = []
    try:
        for index in range(len(octets)):
            parts.append(inflate.decompress(octets[index : index + 1]))  # noqa: PERF401 - kept when it raises
    except zlib.error:
        pass
    return b"".join(parts)


def unxz(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress xz, any number of streams.

    Raises DamageError after the last good octets, of which XZ_PIECE may be missing.
    """
    import lzma  # few captures need it

    def step(xz: lzma.LZMADecompressor, octets: bytes) -> tuple[bytes, bytes | None, Exception | None]:
        parts: list[bytes] = []
        try:
            while len(parts) < LIMIT // XZ_PIECE:
                parts.append(xz.decompress(octets, XZ_PIECE))
                octets = b""
                if xz.eof or xz.needs_input:
                    break
        except lzma.LZMAError as error:
            return b"".join(parts), None, error
        return b"".join(parts), None if xz.needs_input else b"", None

    return _members(chunks, "xz", partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, XZ_MEMORY), step)


def unzstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress zstd, any number of frames, a block at a time. Raises DamageError after the last whole block.

    This function itself finds the blocks (RFC 8878, section 3.1.1). The library does not say whether a frame is whole,
    nor where damage begins in the octets that it gets at once. A block also bounds the output of one call.
    """
    try:
        from zmtpsniff.words.zstd import zstd
    except ImportError as error:
        raise CaptureError("zstd: the Python package backports.zstd, which reads it, is not installed") from error
    take = _Taker(chunks).take
    while magic := take(4, at_end=True):
        number = int.from_bytes(magic, "little")
        if number & 0xFFFFFFF0 == 0x184D2A50:  # section 3.1.2: a skippable frame
            left = int.from_bytes(take(4), "little")
            while left:
                left -= len(take(min(left, ZSTD_BLOCK)))
            continue
        if number != 0xFD2FB528:
            raise DamageError(CORRUPT, "the zstd data are followed by something else")
        descriptor = take(1)
        single = descriptor[0] >> 5 & 1
        size_flag = descriptor[0] >> 6
        length = (1 - single) + (0, 1, 2, 4)[descriptor[0] & 3] + ((single, 2, 4, 8)[size_flag])
        frame = zstd.ZstdDecompressor()
        try:
            frame.decompress(magic + descriptor + take(length))
            last = False
            while not last:
                header = take(3)
                block = int.from_bytes(header, "little")
                last = bool(block & 1)
                size = 1 if block >> 1 & 3 == 1 else block >> 3  # one octet stands for all of an RLE block
                if size > ZSTD_BLOCK:
                    raise DamageError(CORRUPT, "the zstd data are damaged (block too large)")
                if octets := frame.decompress(header + take(size)):
                    yield octets
            if descriptor[0] & 4 and (octets := frame.decompress(take(4))):
                yield octets
        except zstd.ZstdError as error:
            raise DamageError(CORRUPT, f"the zstd data are damaged ({error})") from error


class _Taker:
    """Takes exact numbers of octets from chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._stream = FileOctets("", chunks)
        self._data = b""
        self._position = 0

    def take(self, count: int, *, at_end: bool = False) -> bytes:
        """Return the next ``count`` octets; with ``at_end`` none if the stream ends here.

        Raises DamageError if it ends before that.
        """
        stop = self._position + count
        if stop > len(self._data):
            self._data = self._stream.extend(self._data[self._position :], count)
            self._position, stop = 0, count
            if self._stream.damage is not None and len(self._data) < count:
                raise self._stream.damage
            if at_end and not self._data:
                return b""
            if len(self._data) < count:
                raise DamageError(CUT_SHORT, "the zstd data are cut short")
        octets = self._data[self._position : stop]
        self._position = stop
        return octets


FORMATS: dict[bytes, tuple[str, Callable[[Iterator[bytes]], Iterator[bytes]]]] = {
    b"\x1f\x8b": ("gzip", gunzip),
    b"\x28\xb5\x2f\xfd": ("zstd", unzstd),
    b"\xfd7zXZ\x00": ("xz", unxz),
}
"""Magic number: name of the format, and what decompresses it."""
