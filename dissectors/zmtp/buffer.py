"""A buffer for the octets of a stream that wait for more, and a collector of long bodies."""

from collections.abc import Callable
from typing import Protocol

from msgspec import field

from dissectors.snapshots import Live, Part, quick
from dissectors.zmtp.limits import Hash

Read = Callable[[bytes, int], int]
"""Takes octets from a position on; returns how far it got. If it got no further, `Buffer.need` says what it needs."""

WAIT_LIMIT = 4096
"""A body that lacks more octets than this is collected piece by piece; one that lacks fewer waits in front of the
next segment, which costs one copy of that segment."""


@quick
class Buffer(Part, gc=False):
    """The octets of a stream that no reader has taken yet.

    A reader gets octets and a position, and returns how far it got. A reader that lacks octets sets ``need`` to the
    number of octets that it wants from that position on. The buffer does not call it before they are there, so no octet
    is read twice.
    """

    octets: int = 0  # of the stream so far, gaps included
    held: int = 0  # octets that wait
    need: int = 1  # so many must be there before the next read
    _pieces: list[bytes] | None = None  # the octets that wait

    @property
    def content(self) -> bytes:
        """The octets that wait."""
        return b"".join(self._pieces or ())

    def add(self, data: bytes) -> bytes | None:
        """Add octets to those that wait. Returns all of them if they are as many as needed, else None."""
        if not self.held:
            return data
        assert self._pieces is not None
        self._pieces.append(data)
        self.held += len(data)
        return None if self.held < self.need else b"".join(self._pieces)

    def clear(self) -> None:
        """Drop the octets that wait."""
        self._pieces = None
        self.held = 0

    def run(self, read: Read, data: bytes, position: int = 0) -> None:
        """Let ``read`` take ``data`` from ``position`` on as long as it gets further; the rest waits.

        ``data`` are the octets that waited, and those behind them. During the call the buffer is empty, so
        that no waiting octets are read twice.
        """
        self._pieces = None
        self.held = 0
        end = len(data)
        while position < end:
            self.need = 1
            reached = read(data, position)
            if reached == position:
                self.hold(data, position)
                return
            position = reached

    def hold(self, data: bytes, position: int) -> None:
        """Keep the octets from ``position`` on until at least one more comes."""
        self._pieces = [data[position:] if position else data]
        self.held = len(data) - position
        if self.need <= self.held:
            self.need = self.held + 1


class LongBody(Part, gc=False):
    """A body that comes in several pieces. It keeps the first octets and counts the others."""

    length: int = 0
    _room: int = 0  # so many octets are kept
    left: int = 0  # octets that have not come yet
    is_whole: bool = True  # the capture has all of its octets so far
    _kept: int = 0
    _pieces: list[bytes] = field(default_factory=list)
    hash: Live[Hash | None] = None  # of its octets so far, if somebody asks for it; no snapshot can have it

    def __post_init__(self) -> None:
        """Begin with no octets."""
        self.left = self.length

    def take(self, data: bytes, position: int) -> int:
        """Take the octets from ``position`` on that belong to the body; returns where they end."""
        size = min(self.left, len(data) - position)
        wanted = min(size, self._room - self._kept)
        if wanted > 0 and self.is_whole:
            self._pieces.append(data[position : position + wanted])
            self._kept += wanted
        if self.hash is not None:
            self.hash.update(memoryview(data)[position : position + size])
        self.left -= size
        return position + size

    def skip(self, length: int | None) -> bool:
        """Count ``length`` missing octets (None: unknown). Returns whether all of them are inside the body."""
        if length is None or length > self.left:
            return False
        self.is_whole = False
        self.hash = None
        self.left -= length
        return True

    @property
    def octets(self) -> bytes:
        """The first octets, up to the first missing one, and at most as many as there is room for."""
        return b"".join(self._pieces)


class Collector(Protocol):
    """A reader that collects the body of a frame, which comes in pieces."""

    body: LongBody | None

    def end_body(self, body: LongBody) -> None:
        """This body is over: each of its octets has come, or is known to be missing."""


def is_collected(lacking: int, length: int, room: int) -> bool:
    """Whether a body of ``length`` octets is collected piece by piece; else it waits in front of the next segment.

    It lacks ``lacking`` octets, and ``room`` octets of it are kept.
    """
    return lacking > WAIT_LIMIT or length > room


def collect(reader: Collector, data: bytes, position: int) -> int:
    """Take octets from ``position`` on for the body that a reader collects. Returns where they end."""
    body = reader.body
    assert body is not None
    position = body.take(data, position)
    if not body.left:
        reader.end_body(body)
    return position


def skip(reader: Collector, length: int | None) -> bool:
    """Count ``length`` missing octets (None: unknown) as part of a body. Returns whether all are inside the body."""
    body = reader.body
    if body is None or not body.skip(length):
        return False
    if not body.left:
        reader.end_body(body)
    return True
