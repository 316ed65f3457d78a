"""Protocol Buffers without their description: finds messages by their wire format alone.

No octet says that this is a message of Protocol Buffers, and many short octets look like one by chance. So a message
counts only if it has a word in it, and if its form is worth 40 bits.

Each step of reading is worth some bits. These values are chosen so that over random octets the mean of 2^bits of a step
is 1 at most; a step that fails counts as 0. Then the mean over whole messages is 1 at most, too. So, by Markov's
inequality, at most one in 2^40 random messages is worth 40 bits, however long it is. The caller excludes text.
"""

from math import log2
from typing import Any, NamedTuple

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_CERTAIN = 40.0
_HIGHEST_FIELD = 2047  # whose key is of two octets
_DEPTH = 16
_FIELDS = 10_000
_WORD = 4  # letters

# Of keys. Of the 256 octets 4 are the next field, 4 the same again and 52 at most another one; 1 of 8 pairs is a key of
# two octets: 4/256 * 2^4 + 4/256 * 2^2 + 52/256 * 2 + 1/8 * 2^-1 < 0.8.
_NEXT, _AGAIN, _OTHER, _LONG = 4.0, 2.0, 1.0, -1.0
# Of what a length is in front of: text of 4 octets or more, a message inside, or octets: 2^-2 + 2^-2 + 2^-1 = 1.
# Letters and signs of ASCII are 95 of 256 octets, and what begins any other text is 1 of 30: 0.37 * 2^1.3 + 0.033 < 1.
_TEXT, _INSIDE, _OCTETS, _LETTER = -2.0, -2.0, -1.0, 1.3


class _Message(NamedTuple):
    """A message, how many bits its form is worth, and whether there is a word in it."""

    fields: dict[str, Any]
    bits: float
    word: bool


class _WrongError(ValueError):
    """The octets are no message as encoders write it."""


def decode(data: bytes) -> dict[str, Any] | None:
    """The fields of a message by their numbers; None if it is not certain to be a message.

    Numbers are unsigned, and fixed numbers are octets, since only a description says what they mean. A repeated field
    is a list.
    """
    try:
        found = _read(data, 0)
    except _WrongError:
        return None
    return found.fields if found.word and found.bits >= _CERTAIN else None


def _read(data: bytes, depth: int) -> _Message:
    place, before, count, bits, word = 0, 0, 0, 0.0, False
    fields: dict[str, Any] = {}
    end = len(data)
    while place < end:
        start = place
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        count += 1
        if not 0 < number <= _HIGHEST_FIELD or count > _FIELDS:
            raise _WrongError
        name = str(number)
        if place > start + 1:
            bits += _LONG
        elif number == before + 1:
            bits += _NEXT
        elif number != before:
            bits += _OTHER
        elif not isinstance(fields[name], list):
            bits += _AGAIN  # once: what repeats itself is often something else
        before = number
        value: Any
        if kind == _VARINT:
            value, place = _varint(data, place)
        elif kind == _LENGTH:
            length, place = _varint(data, place)
            left = end - place
            if length > left:
                raise _WrongError
            if left < 0x80:
                bits += 8 - log2(left + 1)
            value, more, is_word = _content(data[place : place + length], depth)
            bits += more
            word = word or is_word
            place += length
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
            if size > end - place:
                raise _WrongError
            value = data[place : place + size]
            place += size
        else:
            raise _WrongError
        if name not in fields:
            fields[name] = value
        elif isinstance(fields[name], list):
            fields[name].append(value)
        else:
            fields[name] = [fields[name], value]
    return _Message(fields, bits, word)


def _content(data: bytes, depth: int) -> tuple[Any, float, bool]:
    """The content of a field with a length: text, a message, or octets. Also its bits, and whether it has a word."""
    if not data:
        return "", 0.0, False
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and text:
        if len(data) < _WORD:
            return text, _OCTETS, False
        letters = sum(octet < 0x80 for octet in data)
        return text, _TEXT + _LETTER * letters, sum(map(str.isalpha, text)) >= _WORD
    if depth < _DEPTH:
        try:
            inside = _read(data, depth + 1)
        except _WrongError:
            pass
        else:
            if inside.bits + _INSIDE > _OCTETS:
                return inside.fields, inside.bits + _INSIDE, inside.word
    return data, _OCTETS, False


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number and the place after it, if its form is the shortest one and it has at most 64 bits."""
    value = shift = 0
    while place < len(data):
        octet = data[place]
        place += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            if (not octet and shift) or value >= 1 << 64:
                raise _WrongError
            return value, place
        shift += 7
        if shift > 63:
            raise _WrongError
    raise _WrongError
