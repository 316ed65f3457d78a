"""Messages that come many at a time and differ only in their octets."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from dissectors.batches import MessageBatch
from dissectors.events import AnyEvent, Message, Octets


class Run(NamedTuple):
    """Messages of one frame each, of one sender and packet, without any relation to other messages."""

    first: Message
    frames: list[Octets]  # of all of them, the first included


def runs(
    events: Sequence[AnyEvent], stays: Callable[[MessageBatch], bool] = lambda _: False
) -> Iterator[AnyEvent | Run]:
    """The events in their order. Messages that differ from the one before only in their frame are put into runs.

    So are those of batches that do not stay as they are.

    A busy sender sends hundreds of small messages in a packet. A run makes their common part once.
    """
    for common, group in groupby(events, _common):
        some: list[Any] = [*group]
        if common is not None:
            yield Run(some[0], [message.frames[0] for message in some])
            continue
        for event in some:
            if isinstance(event, MessageBatch) and not stays(event):
                for message, bodies in event.runs():
                    yield message if bodies is None else Run(message, [*bodies])
            else:
                yield event


def _common(event: AnyEvent) -> tuple[Any, ...] | None:
    """The facts that all messages of a run share; None if an event is in no run."""
    if (
        type(event) is Message
        and len(event.frames) == 1
        and not event.incomplete
        and event.envelope is None
        and event.matched is None
        and event.request is None
        and event.forwards is None
        and event.payload is None
        and not event.bodies
    ):
        return (
            event.packet, event.time_ns, event.flow, event.src, event.dst, event.socket_type, event.inferred,
            event.lookalike, event.encrypted,
        )  # fmt: skip
    return None
