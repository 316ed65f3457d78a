"""Exports for programs that watch many machines: metrics of Prometheus, spans of OpenTelemetry."""

from collections.abc import Sequence
from typing import Protocol

from dissectors.events import AnyEvent


class Observer(Protocol):
    """Somebody who is told all events."""

    def take(self, events: Sequence[AnyEvent]) -> None:
        """See some events."""

    def close(self) -> None:
        """There are no more."""
