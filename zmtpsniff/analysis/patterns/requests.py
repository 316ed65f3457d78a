"""A request, and the envelope that tells it from others (28/REQREP)."""

from collections.abc import Sequence
from typing import NamedTuple

from dissectors.batches import envelope_with
from dissectors.events import Envelope, Message, Octets, Place

_WHOLE = frozenset({bytes})  # the type of frames whose octets are all at hand


class Request(NamedTuple):
    """A request without its frames, which may be large."""

    time_ns: int
    packet: int
    part: int
    offset: int  # where the octets begin in its sender's stream that completed the request
    key: int  # a number for its envelope, 0 if that is the delimiter alone
    flow: int
    src: str
    dst: str
    forwards: Place | None

    @property
    def place(self) -> Place:
        """The place of the request in the capture."""
        return Place(self.flow, self.packet, self.part)


def request_of(event: Message, key: int) -> Request:
    """The request that a message is; ``key`` is the number for its envelope."""
    return Request(
        event.time_ns, event.packet, event.part, event.offset, key, event.flow, event.src, event.dst, event.forwards
    )


def key_of(frames: Sequence[Octets], envelope: Envelope | None) -> int | None:
    """A number for the envelope of a message; 0 if that is the delimiter alone, None if it is not known."""
    if envelope is None:
        return None
    if not envelope.identities:
        return 0
    identities = tuple(frames[: envelope.identities])
    return (hash(identities) or 1) if _WHOLE.issuperset(map(type, identities)) else None


def envelope_of(frames: Sequence[Octets]) -> Envelope | None:
    """The envelope of a message; None if no delimiter is in front of its content."""
    try:
        identities = frames.index(b"")
    except ValueError:
        return None
    return envelope_with(identities) if identities + 1 < len(frames) else None  # behind a delimiter something must come
