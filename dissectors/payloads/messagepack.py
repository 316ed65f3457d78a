"""MessagePack as payloads hold it: of kinds that every output can show."""

from typing import Any

import msgspec


def _extension(number: int, octets: memoryview) -> dict[str, Any]:
    """An extension: what it means is known to those who chose its number."""
    return {"ext": number, "data": bytes(octets)}


_DECODER = msgspec.msgpack.Decoder(ext_hook=_extension)


def value(octets: bytes) -> Any:
    """What is packed in ``octets``; an extension is a dict of its number, ``ext``, and its ``data``.

    Raises ValueError if that is not MessagePack in one piece or is nested too deeply, and of that UnicodeDecodeError if
    a string is not UTF-8.
    """
    try:
        return _DECODER.decode(octets)
    except (msgspec.DecodeError, TypeError, RecursionError) as error:  # TypeError: a map as a key
        raise ValueError(str(error)) from error
