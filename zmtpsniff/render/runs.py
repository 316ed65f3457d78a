"""Messages that come many at a time and differ only in their octets."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dissectors.batches import MessageBatch
from dissectors.events import AnyEvent, Message, Octets


class Run(NamedTuple):
    """Messages of one frame each, of one sender and packet, without any relation to other messages."""

    first: Message
    frames: list[Octets]  # of all of them, the first included


def runs(events: Sequence[AnyEvent]) -> Iterator[AnyEvent | Run]:
    """The events in their order. Messages that differ from the one before only in their frame are put into runs.

    A busy sender sends hundreds of small messages in a packet. A run makes their common part once.
    """
    first: Message | None = None  # of the run that is going on
    frames: list[Octets] = []
    for event in events:
        if isinstance(event, MessageBatch):
            if first is not None:
                yield Run(first, frames)
                first = None
            for message, bodies in event.runs():
                yield message if bodies is None else Run(message, [*bodies])
            continue
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
            # Compared by identity: that is quicker, and equal but different objects only begin another run.
            if (
                first is not None
                and event.packet is first.packet
                and event.time_ns is first.time_ns
                and event.flow is first.flow
                and event.src is first.src
                and event.dst is first.dst
                and event.socket_type is first.socket_type
                and event.encrypted is first.encrypted
            ):
                frames.append(event.frames[0])
                continue
            if first is not None:
                yield Run(first, frames)
            first, frames = event, [event.frames[0]]
            continue
        if first is not None:
            yield Run(first, frames)
            first = None
        yield event
    if first is not None:
        yield Run(first, frames)
