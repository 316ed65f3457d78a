"""Salt over ZeroMQ: what masters publish and minions return, and events (saltstack/salt, salt/transport/zeromq.py)."""

from typing import Any, ClassVar

import msgspec

from dissectors.payloads import (
    REQUEST,
    Message,
    Octets,
    Payload,
    PayloadConnection,
    PayloadKind,
    body_start,
    messagepack,
    printable,
    request_fields,
)

_END_OF_TAG = b"\n\n"  # salt/utils/event.py: TAGEND
_LONGEST_TAG = 256
_TOPIC = 40  # a SHA-1 in hexadecimal digits, if the publisher filters by minion
_ENCODINGS = frozenset({"clear", "aes", "pub", "pillar"})
_MAPS = frozenset([*range(0x81, 0x90), 0xDE, 0xDF])
_MAP_OCTETS = frozenset(bytes([octet]) for octet in _MAPS)
_ARRAYS = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD])
_HEADERS = {0xD9: 2, 0xDA: 3, 0xDB: 5}  # octets in front of strings that are not short
_MAP_OF_ANY = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_LIST_OF_ANY = msgspec.msgpack.Decoder(list[msgspec.Raw])
_SEALED_REPLY = frozenset([*range(0xA0, 0xC0), 0xC4, 0xC5, 0xC6, *_HEADERS, *_MAPS])
_ASKED = "asked"  # in the state of a connection: who asked, and in which packet
_TOLD = ("cmd", "fun", "id", "jid", "tgt")


class Salt:
    """Envelopes of messages between masters and minions. Most contents are encrypted."""

    name = "salt"
    fields: ClassVar[dict[str, PayloadKind]] = {
        "kind": "text", "enc": "text", "load": "value", "tag": "text", "data": "object", **REQUEST,
    }  # fmt: skip

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether there is a MessagePack map with "enc" and "load", or an event: a tag, then a map."""
        if not (connection.state or _may_be_clear(message.frames)):
            return False  # nearly all messages of others
        body = _body(message.frames)
        if body is None:
            return False
        return _is_envelope(body) or _tag(body) is not None or _is_reply(message, connection, body)

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The envelope with its load if that is in clear, or the event."""
        body = _body(message.frames)
        if body is None:
            return None
        tag = _tag(body)
        if tag is None and not _is_envelope(body):
            return _reply(message, connection, body)
        found = _decoded(body if tag is None else body[len(tag) + len(_END_OF_TAG) :])
        if found is None:
            return None
        if tag is not None:
            if "_stamp" not in found:  # which all events have
                return None
            return Payload("salt", f"event {tag}", {"kind": "event", "tag": tag, "data": found})
        encoding, load = found.get("enc"), found.get("load")
        if encoding == "clear":
            found["load"] = load = _packed_map(load)
        if encoding not in _ENCODINGS or not isinstance(load, dict | bytes):
            return None
        fields: dict[str, Any] = {"kind": "envelope", **found}
        if "key" in found and isinstance(found["key"], str):
            return None  # of something else: keys are octets
        if connection.socket_types.get(message.src) == "REQ":
            connection.state[_ASKED] = (message.src, message.place)
        elif message.dst == connection.state.get(_ASKED, ("",))[0]:
            fields |= request_fields(connection.state.pop(_ASKED)[1])
        told = [str(load[name]) for name in _TOLD if name in load] if isinstance(load, dict) else []
        return Payload("salt", " ".join([str(encoding), *told]), fields)


def _may_be_clear(frames: list[Octets]) -> bool:
    """Whether the last frame of a message begins as an envelope does, or as an event's tag does."""
    body = frames[-1] if frames else b""
    return isinstance(body, bytes) and (body[:1] in _MAP_OCTETS or body.find(_END_OF_TAG, 0, _LONGEST_TAG) > 0)


def _body(frames: list[Octets]) -> bytes | None:
    """The frame with the content, after a delimiter, or after the topic if the publisher filters; None if empty."""
    start = body_start(frames)
    if len(frames) == 2 and not start and isinstance(frames[0], bytes):
        is_topic = frames[0] in (b"broadcast", b"syndic") or len(frames[0]) == _TOPIC
        start = 1 if is_topic else 0
    if len(frames) != start + 1:
        return None
    body = frames[start]
    return body if body and isinstance(body, bytes) else None


def _is_reply(message: Message, connection: PayloadConnection, body: bytes) -> bool:
    """Whether a message answers an envelope of this connection. A reply to an encrypted envelope does not show it."""
    asked = connection.state.get(_ASKED)
    return asked is not None and asked[0] == message.dst and body[0] in _SEALED_REPLY


def _reply(message: Message, connection: PayloadConnection, body: bytes) -> Payload | None:
    """The sealed content, or a map that holds it with its key."""
    if not _is_reply(message, connection, body):
        return None
    found = _read(body)
    if found is None:
        return None
    request = request_fields(connection.state.pop(_ASKED)[1])
    return Payload("salt", "reply", {"kind": "reply", "load": found, **request})


def _is_envelope(body: bytes) -> bool:
    return body[0] in _MAPS and b"\xa3enc" in body and b"\xa4load" in body


def _tag(body: bytes) -> str | None:
    place = body.find(_END_OF_TAG, 0, _LONGEST_TAG)
    if place < 1 or place + 2 >= len(body) or body[place + 2] not in _MAPS:
        return None
    return printable(body[:place]) if b"_stamp" in body else None


def _decoded(body: bytes) -> dict[str, Any] | None:
    found = _read(body)
    return found if isinstance(found, dict) and all(isinstance(name, str) for name in found) else None


def _read(body: bytes) -> Any:
    """The value that the octets encode, which is never nil; None if they are none."""
    try:
        return _value(body)
    except (ValueError, TypeError, RecursionError):  # TypeError: a map as a key
        return None


def _value(packed: bytes) -> Any:
    """The value that the octets encode. Salt writes octets as strings, as old MessagePack did; they may be no text."""
    try:
        return messagepack.value(packed)
    except UnicodeDecodeError:
        pass
    if packed[0] in _MAPS:
        return {name: _value(bytes(value)) for name, value in _MAP_OF_ANY.decode(packed).items()}
    if packed[0] in _ARRAYS:
        return [_value(bytes(value)) for value in _LIST_OF_ANY.decode(packed)]
    return packed[_HEADERS.get(packed[0], 1) :]


def _packed_map(octets: Any) -> Any:
    """The map that octets inside another map encode; if the octets encode no map, they stay as they are."""
    if not isinstance(octets, bytes) or octets[:1] == b"" or octets[0] not in _MAPS:
        return octets
    found = _decoded(octets)
    return octets if found is None else found
