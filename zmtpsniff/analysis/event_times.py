"""The times of events by another clock."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from dissectors.batches import MessageBatch
from dissectors.events import AnyEvent

_TIMES = ("time_ns", "begun_ns", "since_ns", "start_ns", "end_ns", "first_ns", "last_ns")

Clock = Callable[[int], int]
"""Gives the time of one clock for that of another one."""


def retimed(events: Iterable[AnyEvent], clock: Clock) -> list[AnyEvent]:
    """The same events with times by another clock."""
    return [_retimed(event, clock) for event in events]


def _retimed(event: Any, clock: Clock) -> Any:
    return event.with_times(clock) if isinstance(event, MessageBatch) else retimed_struct(event, clock)


def retimed_struct(record: Any, clock: Clock) -> Any:
    """A copy of a record with times by another clock."""
    times = {name: clock(time_ns) for name in _TIMES if (time_ns := getattr(record, name, None)) is not None}
    return msgspec.structs.replace(record, **times) if times else record
