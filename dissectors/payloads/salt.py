"""Salt over ZeroMQ: what masters publish and minions return, and events (saltstack/salt, salt/transport/zeromq.py)."""

from typing import Any

import msgspec

from dissectors.payloads import Message, Octets, Payload, PayloadConnection, body_start

_END_OF_TAG = b"\n\n"  # salt/utils/event.py: TAGEND
_LONGEST_TAG = 256
_TOPIC = 40  # a SHA-1 in hexadecimal digits, where the publisher filters by minion
_ENCODINGS = frozenset({"clear", "aes", "pub", "pillar"})
_MAPS = frozenset([*range(0x81, 0x90), 0xDE, 0xDF])
_TOLD = ("cmd", "fun", "id", "jid", "tgt")


class Salt:
    """Envelopes of messages between masters and minions; most are encrypted inside."""

    name = "salt"

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether there is a MessagePack map with "enc" and "load", or an event's tag with a map behind it."""
        body = _body(message.frames)
        return body is not None and (_is_envelope(body) or _tag(body) is not None)

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The envelope with its load where that is not encrypted, or the event."""
        body = _body(message.frames)
        if body is None:
            return None
        tag = _tag(body)
        found = _decoded(body if tag is None else body[len(tag) + len(_END_OF_TAG) :])
        if found is None:
            return None
        if tag is not None:
            if "_stamp" not in found:  # which all events have
                return None
            return Payload("salt", f"event {tag.decode()}", {"kind": "event", "tag": tag.decode(), "data": found})
        encoding, load = found.get("enc"), found.get("load")
        if encoding not in _ENCODINGS or not isinstance(load, dict | bytes):
            return None
        fields: dict[str, Any] = {"kind": "envelope", **found}
        if "key" in found and isinstance(found["key"], str):
            return None  # of something else: keys are octets
        told = [str(load[name]) for name in _TOLD if name in load] if isinstance(load, dict) else []
        return Payload("salt", " ".join([str(encoding), *told]), fields)


def _body(frames: list[Octets]) -> bytes | None:
    """The one frame that counts: behind a delimiter, or behind the topic where a publisher filters."""
    start = body_start(frames)
    rest = frames[start:]
    if len(rest) == 2 and not start and isinstance(rest[0], bytes):
        is_topic = rest[0] in (b"broadcast", b"syndic") or len(rest[0]) == _TOPIC
        rest = rest[1:] if is_topic else rest
    return rest[0] if len(rest) == 1 and isinstance(rest[0], bytes) else None


def _is_envelope(body: bytes) -> bool:
    return body[:1] != b"" and body[0] in _MAPS and b"\xa3enc" in body and b"\xa4load" in body


def _tag(body: bytes) -> bytes | None:
    place = body.find(_END_OF_TAG, 0, _LONGEST_TAG)
    if place < 1 or place + 2 >= len(body) or body[place + 2] not in _MAPS:
        return None
    tag = body[:place]
    return tag if tag.isascii() and tag.decode().isprintable() and b"_stamp" in body else None


def _decoded(body: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) and all(isinstance(name, str) for name in found) else None
