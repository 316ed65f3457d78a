"""MessagePack in payloads: values of the types that every output can show."""

from typing import Any

import msgspec

# The meaning of an extension is known only to those who chose its number.
_DECODER = msgspec.msgpack.Decoder(ext_hook=lambda number, octets: {"ext": number, "data": bytes(octets)})


def value(octets: bytes) -> Any:
    """The value that ``octets`` encode; an extension becomes a dict of its number, ``ext``, and its ``data``.

    Raises ValueError if the octets are not one value of MessagePack, or if it is nested too deeply, and
    UnicodeDecodeError, which is a ValueError, if a string is not UTF-8.
    """
    try:
        return _DECODER.decode(octets)
    except (msgspec.DecodeError, TypeError, RecursionError) as error:  # TypeError: a map as a key
        raise ValueError(str(error)) from error
