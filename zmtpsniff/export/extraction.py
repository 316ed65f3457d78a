"""Bodies of messages as files, with an index that says where each comes from."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import msgspec

from dissectors.events import AnyEvent, Hidden, Message, Octets, at_hand
from dissectors.payloads import body_start
from zmtpsniff.analysis.bodies import decode, unpack
from zmtpsniff.errors import Error, naming
from zmtpsniff.render.payload import frames_to_show
from zmtpsniff.words.text import as_text

INDEX = "index.jsonl"
UNPACKED_OCTETS = 64 << 20  # of a body that was compressed: more of it stays compressed
_NAME_OCTETS = 40  # of a topic, in the name of a file
_UNSAFE = re.compile(rb"[^A-Za-z0-9]+")
# The first octets of a kind of file, and the ending of its name.
_MAGICS: Sequence[tuple[bytes, str]] = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF8", "gif"),
    (b"%PDF-", "pdf"),
    (b"\x1f\x8b\x08", "gz"),
    (b"\x28\xb5\x2f\xfd", "zst"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"\x93NUMPY", "npy"),
    (b"\x80\x04\x95", "pickle"),
    (b"\x80\x05\x95", "pickle"),
    (b"OggS", "ogg"),
    (b"fLaC", "flac"),
    (b"<?xml", "xml"),
)
_RIFF = {b"WAVE": "wav", b"WEBP": "webp", b"AVI ": "avi"}


class IndexEntry(msgspec.Struct, omit_defaults=True):
    """A line of the index: a file and where it comes from. An empty or hidden body has no file."""

    file: str | None  # its name in the folder
    length: int  # octets on the wire
    packet: int
    flow: int
    time_ns: int
    src: str
    dst: str
    frame: int | None = None  # its place in the message, from 0; None for a file with several
    octets: int | None = None  # in the file, if not as many as on the wire
    unpacked: str | None = None  # what compressed it, outermost first, if that was undone
    incomplete: bool = False
    hidden: bool = False  # credentials, without --show-secrets


class Extractor:
    """Writes the bodies of messages into the files of a folder."""

    def __init__(self, folder: str, *, whole: bool = False, unpacks: bool = False, show_secrets: bool = False) -> None:
        """Make the folder. Raises Error if it cannot be written to, or is not empty.

        With ``whole`` the frames of a message after its envelope become one file, else each frame becomes a file.
        ``unpacks`` undoes gzip, zlib and zstd. Credentials are left out unless ``show_secrets``.
        """
        self._folder = folder
        self._whole = whole
        self._unpacks = unpacks
        self._show_secrets = show_secrets
        self._encoder = msgspec.json.Encoder()
        self.messages = 0
        self.files = 0
        with naming(folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if os.listdir(folder):
                raise Error(f"{folder}: not empty; give --to a new folder, so that nothing is overwritten")
            self._index = self._create(INDEX)

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Write the messages among some events; raises Error if that cannot be done."""
        try:
            for event in events:
                if isinstance(event, Message):
                    self.messages += 1
                    for entry in self._entries(event):
                        self._index.write(self._encoder.encode(entry) + b"\n")
        except OSError as error:
            raise Error(f"{error.filename or self._folder}: {error.strerror or error}") from None

    def close(self) -> None:
        """End the index; raises Error if that cannot be done."""
        with naming(f"{self._folder}/{INDEX}"):
            self._index.close()

    def _entries(self, message: Message) -> Iterator[IndexEntry]:
        frames = frames_to_show(message, self._show_secrets)
        if self._whole:
            yield self._entry(message, frames[min(body_start(frames), len(frames) - 1) :], None)
            return
        for place, frame in enumerate(frames):
            yield self._entry(message, [frame], place)

    def _entry(self, message: Message, frames: Sequence[Octets], place: int | None) -> IndexEntry:
        length = sum(map(len, frames))
        entry = IndexEntry(
            None, length, message.packet, message.flow, message.time_ns, message.src, message.dst, place,
            incomplete=message.incomplete, hidden=any(isinstance(frame, Hidden) for frame in frames),
        )  # fmt: skip
        data = b"".join(map(at_hand, frames))
        if not data:
            return entry
        if self._unpacks and len(data) == length:
            data, entry.unpacked = unpack(data, UNPACKED_OCTETS)
        if len(data) != length:
            entry.octets = len(data)
        entry.file = self._name(message, place, data)
        with self._create(entry.file) as file:
            file.write(data)
        self.files += 1
        return entry

    def _name(self, message: Message, place: int | None, data: bytes) -> str:
        """A name that begins with the message's number, so that a listing is in the capture's order."""
        topic = at_hand(message.frames[min(body_start(message.frames), len(message.frames) - 1)])
        words = [f"{self.messages:06}", f"flow{message.flow}", message.socket_type or "message"]
        if place != 0 and (text := _UNSAFE.sub(b"-", topic[:_NAME_OCTETS]).strip(b"-").decode()):
            words.append(text)
        if place is not None:
            words.append(str(place))
        return f"{'_'.join(words)}.{ending(data)}"

    def _create(self, name: str) -> BinaryIO:
        return open(os.path.join(self._folder, name), "xb")


def ending(data: bytes) -> str:
    """The ending of the name of a file with these contents: ``json``, ``png``; ``bin`` for unknown ones."""
    for magic, name in _MAGICS:
        if data.startswith(magic):
            return name
    if data.startswith(b"RIFF") and (name := _RIFF.get(data[8:12], "")):
        return name
    found = decode(data)
    if found is not None and " " not in found[0]:
        return {"protobuf": "pb"}.get(found[0], found[0])
    return "bin" if as_text(data) is None else "txt"
