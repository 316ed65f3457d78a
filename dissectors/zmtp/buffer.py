"""A buffer for the octets of a stream that wait for more, and a collector of long bodies."""

from collections.abc import Callable
from typing import Protocol

from dissectors.snapshots import Part

Read = Callable[[bytes, int], int]
"""Takes octets from a position on; returns how far it got. If it got no further, `Buffer.need` says what it needs."""

WAIT_LIMIT = 4096
"""A body that lacks more octets than this is collected piece by piece; one that lacks fewer waits in front of the
next segment, which costs one copy of that segment."""


class BufferState(Part):
    """A buffer's part of a snapshot."""

    octets: int
    need: int
    content: bytes


class LongBodyState(Part):
    """A long body's part of a snapshot."""

    length: int
    left: int
    is_whole: bool
    room: int
    octets: bytes


class Buffer:
    """The octets of a stream that no reader has taken yet.

    A reader gets octets and a position, and returns how far it got. A reader that lacks octets sets ``need`` to the
    number of octets that it wants from that position on. The buffer does not call it before they are there, so no octet
    is read twice.
    """

    __slots__ = ("_pieces", "held", "need", "octets")

    def __init__(self) -> None:
        """Begin where the stream does."""
        self.octets = 0  # of the stream so far, gaps included
        self.held = 0  # octets that wait
        self.need = 1  # so many must be there before the next read
        self._pieces: list[bytes] | tuple[()] = ()

    @property
    def content(self) -> bytes:
        """The octets that wait."""
        return b"".join(self._pieces)

    def add(self, data: bytes) -> bytes | None:
        """Add octets to those that wait. Returns all of them if they are as many as needed, else None."""
        if not self.held:
            return data
        assert isinstance(self._pieces, list)
        self._pieces.append(data)
        self.held += len(data)
        return None if self.held < self.need else b"".join(self._pieces)

    def clear(self) -> None:
        """Nothing waits any more."""
        self._pieces = ()
        self.held = 0

    def run(self, read: Read, data: bytes, position: int = 0) -> None:
        """Let ``read`` take ``data`` from ``position`` on as long as it gets further; the rest waits.

        ``data`` are the octets that waited, and those behind them. During the call the buffer is empty: if reading
        makes somebody read the waiting octets again, there are none.
        """
        self._pieces = ()
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

    def snapshot(self) -> BufferState:
        """What to go on from."""
        return BufferState(self.octets, self.need, self.content)

    def restore(self, state: BufferState) -> None:
        """Go on from there."""
        self.octets = state.octets
        self.need = state.need
        self.held = len(state.content)
        self._pieces = [state.content] if self.held else ()


class LongBody:
    """A body that comes in several pieces. It keeps the first octets and counts the others."""

    __slots__ = ("_kept", "_pieces", "_room", "is_whole", "left", "length")

    def __init__(self, length: int, room: int) -> None:
        """Collect a body of ``length`` octets, and keep ``room`` of them."""
        self.length = length
        self.left = length  # octets that have not come yet
        self.is_whole = True  # the capture has all of its octets so far
        self._room = room
        self._kept = 0
        self._pieces: list[bytes] = []

    def take(self, data: bytes, position: int) -> int:
        """Take the octets from ``position`` on that belong to the body; returns where they end."""
        size = min(self.left, len(data) - position)
        wanted = min(size, self._room - self._kept)
        if wanted > 0 and self.is_whole:
            self._pieces.append(data[position : position + wanted])
            self._kept += wanted
        self.left -= size
        return position + size

    def skip(self, length: int | None) -> bool:
        """Count ``length`` missing octets (None: unknown). Returns whether all of them are inside the body."""
        if length is None or length > self.left:
            return False
        self.is_whole = False
        self.left -= length
        return True

    @property
    def octets(self) -> bytes:
        """The first octets, up to the first missing one, and at most as many as there is room for."""
        return b"".join(self._pieces)

    def snapshot(self) -> LongBodyState:
        """What to go on from."""
        return LongBodyState(self.length, self.left, self.is_whole, self._room, self.octets)

    @classmethod
    def restore(cls, state: LongBodyState) -> "LongBody":
        """One that goes on from there."""
        body = cls(state.length, state.room)
        body.left = state.left
        body.is_whole = state.is_whole
        body._pieces = [state.octets]
        body._kept = len(state.octets)
        return body


class Collector(Protocol):
    """A reader that collects the body of a frame, which comes in pieces."""

    body: LongBody | None

    def end_body(self, body: LongBody) -> None:
        """This body is over: each of its octets has come, or is known to be missing."""


def collect(reader: Collector, data: bytes, position: int) -> int:
    """Take octets from ``position`` on for the body that a reader collects. Returns where they end."""
    body = reader.body
    assert body is not None
    position = body.take(data, position)
    if not body.left:
        reader.end_body(body)
    return position


def skip(reader: Collector, length: int | None) -> bool:
    """Go on behind ``length`` missing octets (None: unknown). Returns whether the hole is inside the reader's body."""
    body = reader.body
    if body is None or not body.skip(length):
        return False
    if not body.left:
        reader.end_body(body)
    return True
