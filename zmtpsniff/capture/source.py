"""The interface that every source of packets has."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from zmtpsniff.capture.block import Block
from zmtpsniff.errors import Error


class Fault(NamedTuple):
    """A fault in a capture. Packets before it can be read."""

    code: str  # a problem code
    detail: str  # a sentence that names the file and the offset


class CaptureError(Error):
    """The source cannot be used at all. The text is one line that names it and says what is wrong."""


Interruption = tuple[int, int]
"""When nothing was captured: the time of the last packet before it, and of the first one behind it."""


class SourceState(Protocol):
    """The facts of a source beside its packets, as far as it has been read."""

    dropped: int  # packets that the source knows to be lost before they reached us
    faults: list[Fault]
    interruptions: list[Interruption]  # between captures that do not meet
    comments: list[str]  # on the capture as a whole
    # keys that came with the packets, as lines of a key file; a reader that takes lines removes them
    key_lines: list[str]

    def __init__(self, inner: "SourceState | None" = None) -> None:
        """Begin with nothing, or share the lists of the source ``inner``, whose packets this one passes on."""
        self.dropped = 0 if inner is None else inner.dropped
        self.faults = [] if inner is None else inner.faults
        self.interruptions = [] if inner is None else inner.interruptions
        self.comments = [] if inner is None else inner.comments
        self.key_lines = [] if inner is None else inner.key_lines


def refuse_twice(names: Sequence[object]) -> None:
    """Raise CaptureError if standard input, ``-``, is among the names of files more than once."""
    if list(names).count("-") > 1:
        raise CaptureError("standard input: given more than once, but it can be read only once")


def tick_seconds(quiet: float) -> float:
    """How long a live source waits for packets before it gives an empty block; ``quiet`` seconds ago there was one.

    So whoever waits for a time waits a tenth longer, at most a second, and a capture of nothing costs nothing.
    """
    return min(1.0, max(0.1, quiet / 10))


class Source(SourceState, Protocol):
    """A source of packets, read once from beginning to end. Its other facts grow while batches() runs."""

    def batches(self) -> Iterator[Block]:
        """Yield the packets in blocks of any length, as soon as they are there.

        Raises CaptureError if the source turns out to be no capture before its first packet.
        """
        ...
