"""The interface of every output format."""

from collections.abc import Sequence
from typing import Protocol

from dissectors.events import AnyEvent


class Renderer(Protocol):
    """Writes events in one format to one stream, and touches nothing else."""

    def write(self, events: Sequence[AnyEvent]) -> None:
        """Write a batch of events, in their order."""

    def finish(self) -> None:
        """Write what is still held back and flush the stream; the stream itself stays open."""
