"""Numbers in messages: in a frame, in a field of what an application says, or in one of a body's structure."""

import re
from collections.abc import Callable
from typing import Any

from dissectors.events import Cut, Hidden, Message
from zmtpsniff.analysis.bodies import bodies_of

_FRAME = re.compile(r"frames\[(-?\d{1,4})\](\.uint(_le)?)?")
_FIELD = re.compile(r"(payload|body)((\.[A-Za-z_][\w-]*|\[\d{1,4}\])+)")
_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]")
_DECIMAL = re.compile(r"\s*[-+]?\d{1,30}\s*", re.ASCII)
_MOST_OCTETS = 8  # of a number that is no text

Reader = Callable[[Message], int | None]
"""The number in a message; None if there is none."""


class NotAtHandError(Exception):
    """There may be a number in the message, but its octets are not in the capture or were not kept."""


def number_reader(text: str) -> Reader:
    """What reads the number at ``frames[1]``, ``frames[1].uint``, ``body.seq`` or ``payload.sequence``.

    ``uint`` is a number of one to eight octets, the highest first (``uint_le``: the lowest first); without it, digits.
    Raises ValueError for another text. The reader raises NotAtHandError.
    """
    if match := _FRAME.fullmatch(text):
        place = int(match[1])
        order = None if match[2] is None else "little" if match[3] else "big"
        return lambda message: _in_frame(message, place, order)
    if match := _FIELD.fullmatch(text):
        steps: list[str | int] = [name or int(place) for name, place in _STEP.findall(match[2])]
        if match[1] == "payload":
            return lambda message: _in_payload(message, steps)
        # What decodes bodies is imported when it is needed, and once privileges are given up it may be out of reach.
        import cbor2  # noqa: F401
        import zstandard  # noqa: F401

        return lambda message: _in_body(message, steps)
    raise ValueError(f"{text!r} names no number; there are frames[1], frames[1].uint, body.NAME and payload.NAME")


def _in_frame(message: Message, place: int, order: Any) -> int | None:
    if not -len(message.frames) <= place < len(message.frames):
        return None
    frame = message.frames[place]
    if order is None:
        return _number(frame)
    if not isinstance(frame, bytes):
        raise NotAtHandError
    return int.from_bytes(frame, order) if 0 < len(frame) <= _MOST_OCTETS else None


def _in_payload(message: Message, steps: list[str | int]) -> int | None:
    return None if message.payload is None else _number(_at(message.payload.fields, steps))


def _in_body(message: Message, steps: list[str | int]) -> int | None:
    for body in message.bodies or bodies_of(message):
        number = _number(_at(body.value, steps))
        if number is not None:
            return number
    if any(isinstance(frame, Cut) for frame in message.frames):
        raise NotAtHandError
    return None


def _at(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    return value


def _number(value: Any) -> int | None:
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    if isinstance(value, Cut | Hidden):
        raise NotAtHandError
    if isinstance(value, bytes):
        value = value.decode("latin-1") if len(value) <= _MOST_OCTETS * 4 else None
    return int(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else None
