"""The interface of every output format, and what those for people have in common."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol, TextIO

from dissectors.events import AnyEvent
from zmtpsniff.words.text import encodable


class Renderer(Protocol):
    """Writes events in one format to one stream, and touches nothing else."""

    def write(self, events: Sequence[AnyEvent]) -> None:
        """Write a batch of events, in their order."""

    def finish(self) -> None:
        """Write what is still held back and flush the stream; the stream itself stays open."""
        return  # most hold nothing back


class TextRenderer(Renderer):
    """Writes lines for each event to a text stream, and holds nothing back."""

    _together = 200  # events whose lines are put together: larger strings leave the processor's cache

    def __init__(self, stream: TextIO) -> None:
        """Write to ``stream``."""
        self._stream = stream
        self._encodable = encodable(getattr(stream, "encoding", None))

    def write(self, events: Sequence[AnyEvent]) -> None:
        """Write the lines of a batch."""
        for start in range(0, len(events), self._together):
            lines: list[str] = []
            for event in events[start : start + self._together]:
                self._add(event, lines)
            if lines:
                self._put(lines)
        self._stream.flush()

    def _put(self, lines: list[str]) -> None:
        lines.append("")
        self._stream.write(self._encodable("\n".join(lines)))

    @abstractmethod
    def _add(self, event: AnyEvent, lines: list[str]) -> None:
        """Add the lines of one event, or of a batch of messages."""
