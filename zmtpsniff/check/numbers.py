"""Numbers in messages: in a frame, in a field of a payload, or in a field of a body."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dissectors.events import Cut, Hidden, Message, at_hand
from zmtpsniff.analysis.bodies import bodies_of
from zmtpsniff.filters.paths import Step
from zmtpsniff.filters.structures import inside, payload_fields

_FRAME = re.compile(r"frames\[(-?\d{1,4})\](\[(\d{1,4}):(\d{1,2})\])?(\.uint(_le)?)?")
_FIELD = re.compile(r"(payload|body)((\.[A-Za-z_][\w-]*|\[\d{1,4}\])+)")
_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]")
_DECIMAL = re.compile(r"\s*[-+]?\d{1,30}\s*", re.ASCII)
_MOST_OCTETS = 8  # of a number that is no text

Reader = Callable[[Message], int | None]
"""The number in a message; None if there is none."""


class NotAtHandError(LookupError):
    """There may be a number in the message, but its octets are not in the capture, or were not kept."""


def number_reader(text: str) -> Reader:
    """A reader of the number at ``frames[1]``, ``frames[1].uint``, ``body.seq`` or ``payload.sequence``.

    ``uint`` is a number of one to eight octets, the highest first (``uint_le``: the lowest first). Without it, the
    frame has digits. ``[4:2]`` behind the frame are its two octets from the fourth on, as in filters. Raises ValueError
    for another text. The reader raises NotAtHandError.
    """
    if match := _FRAME.fullmatch(text):
        place, order = int(match[1]), None if match[5] is None else "little" if match[6] else "big"
        part = slice(int(match[3]), int(match[3]) + int(match[4])) if match[2] else None
        return lambda message: _in_frame(message, place, part, order)
    if match := _FIELD.fullmatch(text):
        steps = [Step("name", name) if name else Step("place", "", int(at)) for name, at in _STEP.findall(match[2])]
        if match[1] == "payload":
            return lambda message: _in_payload(message, steps)
        # The decoders of bodies are imported now: once privileges are given up they may be out of reach.
        import cbor2  # noqa: F401

        import zmtpsniff.words.zstd  # noqa: F401

        return lambda message: _in_body(message, steps)
    raise ValueError(
        f"{text!r} names no number; there are frames[1], frames[1].uint, frames[1][0:8].uint, body.NAME, payload.NAME"
    )


def _in_frame(message: Message, place: int, part: slice | None, order: Any) -> int | None:
    if not -len(message.frames) <= place < len(message.frames):
        return None
    frame = message.frames[place]
    if part is not None:
        if len(frame) < part.stop:
            return None
        octets = at_hand(frame)[part]
        frame = octets if len(octets) == part.stop - part.start else Hidden(len(octets))
    if order is None:
        return _number(frame)
    if not isinstance(frame, bytes):
        raise NotAtHandError
    return int.from_bytes(frame, order) if 0 < len(frame) <= _MOST_OCTETS else None


def _in_payload(message: Message, steps: Sequence[Step]) -> int | None:
    return _first(inside(payload_fields(message.payload), steps))


def _in_body(message: Message, steps: Sequence[Step]) -> int | None:
    number = _first(inside([body.value for body in message.bodies or bodies_of(message)], steps))
    if number is not None:
        return number
    if any(isinstance(frame, Cut) for frame in message.frames):
        raise NotAtHandError
    return None


def _first(values: Iterable[Any]) -> int | None:
    """The first of these values that is a number."""
    return next((number for value in values if (number := _number(value)) is not None), None)


def _number(value: Any) -> int | None:
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    if isinstance(value, Cut | Hidden):
        raise NotAtHandError
    if isinstance(value, bytes):
        value = value.decode("latin-1") if len(value) <= _MOST_OCTETS * 4 else None
    return int(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else None
