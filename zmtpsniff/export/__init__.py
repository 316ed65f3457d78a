"""Events for other programs: metrics of Prometheus, spans of OpenTelemetry, bodies as files."""

from collections.abc import Sequence
from typing import Protocol

from dissectors.events import AnyEvent


class Observer(Protocol):
    """Sees all events of a capture."""

    def take(self, events: Sequence[AnyEvent]) -> None:
        """See the next events."""

    def close(self) -> None:
        """Learn that the events are over."""
