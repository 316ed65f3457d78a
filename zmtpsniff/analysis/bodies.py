"""The content of frames: JSON, MessagePack, CBOR, Protocol Buffers and text, compressed or not.

No frame says which of these encodings it has. So only a certain one counts: an object or array that takes all octets of
the frame, and that no other encoding reads as an object or array, too.
"""

import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from dissectors.events import Body, Message
from zmtpsniff.analysis import protobuf
from zmtpsniff.words.text import as_text

UNPACKED_OCTETS = 1 << 20
_LAYERS = 3  # of compression
_ITEMS = 10_000  # of one value: a few octets of CBOR can stand for very many
_DEPTH = 32
_SELF_DESCRIBED_CBOR = b"\xd9\xd9\xf7"  # RFC 8949, 3.4.6
_MESSAGEPACK_STARTS = frozenset([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
_CBOR_STARTS = frozenset(range(0x80, 0xC0))


def bodies_of(message: Message) -> list[Body]:
    """The content of a message's whole frames."""
    found = []
    for place, frame in enumerate(message.frames):
        if isinstance(frame, bytes) and len(frame) > 1:
            body = decode(frame)
            if body is not None:
                found.append(Body(place, *body))
    return found


def decode(data: bytes, limit: int = UNPACKED_OCTETS) -> tuple[str, Any] | None:
    """The names of the encodings, outermost first, and the value; None if that is not certain."""
    data, names, is_whole = _without_layers(data, limit)
    if not is_whole:
        return " ".join(names), f"more than {limit:,} octets"
    found = _structure(data)
    if found is not None:
        return " ".join([*names, found[0]]), found[1]
    if not names:
        return None  # it is shown as text or octets already
    try:
        return " ".join([*names, "text"]), data.decode()
    except UnicodeDecodeError:
        return " ".join(names), data


def unpack(data: bytes, limit: int) -> tuple[bytes, str | None]:
    """Decompress octets. Returns the result, and the names of the compressions, outermost first.

    If octets are not compressed in a known way, or would become more than ``limit``, they stay as they are, and there
    are no names.
    """
    content, names, is_whole = _without_layers(data, limit)
    return (content, " ".join(names)) if names and is_whole else (data, None)


def _without_layers(data: bytes, limit: int) -> tuple[bytes, list[str], bool]:
    """The octets below all layers of compression, the layers' names, and whether the limit was enough."""
    names: list[str] = []
    while len(names) < _LAYERS and (unpacked := _unpack(data, limit)) is not None:
        name, content = unpacked
        names.append(name)
        if content is None:
            return data, names, False
        data = content
    return data, names, True


def _unpack(data: bytes, limit: int) -> tuple[str, bytes | None] | None:
    """The name of a compression, and the decompressed octets (None if they are too many); None if there is none."""
    if data.startswith(b"\x1f\x8b\x08"):
        return _whole("gzip", zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), zlib.error, data, limit)
    if data[0:1] == b"\x78" and len(data) > 7 and int.from_bytes(data[:2], "big") % 31 == 0:
        return _whole("zlib", zlib.decompressobj(), zlib.error, data, limit)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        from zmtpsniff.words.zstd import zstd

        inflater = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 23})
        return _whole("zstd", inflater, zstd.ZstdError, data, limit)
    return None


def _whole(
    name: str, inflater: Any, fault: type[Exception], data: bytes, limit: int
) -> tuple[str, bytes | None] | None:
    """As _unpack(); octets that are not compressed in one piece are not compressed."""
    try:
        content: bytes = inflater.decompress(data, limit + 1)
    except (fault, ValueError):
        return None
    if len(content) > limit:
        return name, None
    return (name, content) if inflater.eof and not inflater.unused_data else None


def _structure(data: bytes) -> tuple[str, Any] | None:
    if not data:
        return None
    if data[:1] in b"{[ \r\n\t":
        try:
            value = msgspec.json.decode(data)
            return ("json", _plain(value)) if isinstance(value, dict | list) else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # what looks like white space may be something else
    if data.startswith(_SELF_DESCRIBED_CBOR):
        found = _read(_cbor, data, certain=True)
        return None if found is None else ("cbor", found)
    candidates = []
    for name, starts, read in (
        ("msgpack", _MESSAGEPACK_STARTS, msgspec.msgpack.decode),
        ("cbor", _CBOR_STARTS, _cbor),
    ):
        if data[0] in starts and (value := _read(read, data)) is not None:
            candidates.append((name, value))
    if candidates:
        return candidates[0] if len(candidates) == 1 else None
    found = protobuf.decode(data)
    if found is None or as_text(data) is not None or _is_counted_text(data):
        return None
    if _is_valid(msgspec.msgpack.decode, data) or _is_valid(_cbor, data):
        return None
    return "protobuf", _plain(found)


def _is_counted_text(data: bytes) -> bool:
    """Whether octets are a length of 1 to 8 octets, and a text of that length."""
    for size in (1, 2, 4, 8):
        rest = data[size:]
        if (text := as_text(rest)) is not None:
            lengths = {length & (1 << 8 * size) - 1 for length in (len(rest), len(text))}
            return not lengths.isdisjoint((int.from_bytes(data[:size], "little"), int.from_bytes(data[:size], "big")))
    return False


def _is_valid(read: Callable[[bytes], Any], data: bytes) -> bool:
    try:
        read(data)
    except Exception:  # whatever is wrong with it
        return False
    return True


def _cbor(data: bytes) -> Any:
    import io

    import cbor2

    stream = io.BytesIO(data)
    value = cbor2.CBORDecoder(stream, read_size=1).decode()
    if stream.tell() != len(data):
        raise ValueError("octets left")
    return value


def _read(read: Callable[[bytes], Any], data: bytes, certain: bool = False) -> Any:
    """The value as lists, dicts and scalars; None if that is not certain, or octets follow the value."""
    try:
        value = read(data)
        return _plain(value) if certain or _is_certain(value, 0) else None
    except Exception:  # whatever hostile octets bring about
        return None


def _is_certain(value: Any, depth: int) -> bool:
    """Whether octets of another encoding would hardly give this value by chance."""
    if isinstance(value, dict):
        return bool(value) and all(isinstance(key, str) and key.isprintable() and key for key in value)
    if not isinstance(value, list) or len(value) < 2 or depth > 2:
        return False
    return any(
        _is_certain(item, depth + 1) or (isinstance(item, str) and len(item) > 3 and item.isprintable())
        for item in value
    )


def _plain(value: Any) -> Any:
    """A value as in JSON, but with octets, cut to a depth and a length that people can read."""
    left = _ITEMS

    def convert(item: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > _DEPTH:
            return "..."
        if item is None or isinstance(item, str | bool | int | float | bytes):
            return item
        if isinstance(item, dict):
            return {_key(key): convert(each, depth + 1) for key, each in item.items()}
        if isinstance(item, list | tuple | set | frozenset):
            return [convert(each, depth + 1) for each in item]
        if isinstance(item, msgspec.msgpack.Ext):
            return {"ext": item.code, "data": bytes(item.data)}
        if hasattr(item, "tag") and hasattr(item, "value"):
            return {"tag": item.tag, "value": convert(item.value, depth + 1)}
        return item.isoformat() if hasattr(item, "isoformat") else str(item)

    return convert(value, 0)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(key)
