"""Encodes records again: the frames of which a record was made (23/ZMTP, "Framing").

A record does not show how its sender framed it, so there may be several ways.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dissectors.events import Command, Message, Octets, Subscription, WireEvent, at_hand
from dissectors.zmtp import wire

Name = tuple[str, ...]
"""Which piece: as the tree names it, such as ``("frames[0]", "flags")``."""


class WirePiece(NamedTuple):
    """Octets that belong to one field."""

    name: Name
    octets: bytes


def encodings(event: WireEvent) -> Iterator[list[WirePiece]]:
    """Each way in which a record can stand on the wire."""
    if isinstance(event, Message) and all(type(frame) is bytes for frame in event.frames):
        last = len(event.frames) - 1
        frames = [(f"frames[{place}]", at_hand(frame), place < last) for place, frame in enumerate(event.frames)]
        yield [piece for name, body, more in frames for piece in _frame_v2(name, [WirePiece(("body",), body)], more)]
        yield [piece for name, body, more in frames for piece in _frame_v1(name, body, more)]
    elif isinstance(event, Subscription) and type(event.topic) is bytes:
        topic = WirePiece(("topic",), event.topic)
        if event.encoding == "message":
            octet = b"\x01" if event.action == "subscribe" else b"\x00"
            yield _frame_v2("", [WirePiece(("action",), octet), topic])
            yield _frame_v1("", octet + event.topic, False)
        else:
            name = b"\x09SUBSCRIBE" if event.action == "subscribe" else b"\x06CANCEL"
            yield _frame_v2("", [WirePiece(("action",), name), topic], flags=wire.COMMAND)
    elif isinstance(event, Command):
        body = _command(event)
        if body is not None:
            yield _frame_v2("", body, flags=wire.COMMAND)
            yield _frame_v2("", body)  # 25/ZMTP-CURVE: a MESSAGE goes in a frame of messages


def frame_head(length: int, flags: int = 0) -> bytes:
    """The header of a frame with a body of ``length`` octets, from ZMTP 2.0 on (23/ZMTP, "Framing").

    ``flags`` are MORE and COMMAND; LONG is added if the length needs it.
    """
    if length <= wire.SHORT_LIMIT:
        return bytes([flags, length])
    return bytes([flags | wire.LONG]) + length.to_bytes(8, "big")


def _frame_v2(frame: str, body: list[WirePiece], more: bool = False, flags: int = 0) -> list[WirePiece]:
    """A frame of ZMTP 2.0 and later (23/ZMTP, "Framing")."""
    length = sum([len(piece.octets) for piece in body])
    flags |= wire.MORE if more else 0
    prefix = (frame,) if frame else ()
    octets = frame_head(length, flags)
    head = [WirePiece((*prefix, "flags"), octets[:1]), WirePiece((*prefix, "length"), octets[1:])]
    return head + [WirePiece((*prefix, *piece.name), piece.octets) for piece in body]


def _frame_v1(frame: str, body: bytes, more: bool) -> list[WirePiece]:
    """A frame of ZMTP 1.0 (13/ZMTP, "Framing"): its length counts the flags."""
    prefix = (frame,) if frame else ()
    length = len(body) + 1
    octets = bytes([length]) if length < wire.LENGTH_ESCAPE_V1 else b"\xff" + length.to_bytes(8, "big")
    head = [WirePiece((*prefix, "length"), octets), WirePiece((*prefix, "flags"), bytes([more]))]
    return [*head, WirePiece((*prefix, "body"), body)]


def _command(event: Command) -> list[WirePiece] | None:
    """The body of a command (23/ZMTP, "Commands"); None if its form is unknown, or if it must not be shown."""
    name = event.name.encode("utf-8", "surrogateescape")
    if len(name) > 255 or event.incomplete:
        return None
    pieces = [WirePiece(("name",), bytes([len(name)]) + name)]
    if event.name == "HELLO" and event.version is not None:  # 25/ZMTP-CURVE
        major, _, minor = event.version.partition(".")
        if not (major + minor).isdigit():
            return None
        pieces.append(WirePiece(("version",), bytes([int(major) & 255, int(minor) & 255])))
        pieces.append(WirePiece(("padding",), bytes(72)))
    if event.ttl_ms is not None:  # 37/ZMTP, "Connection Heartbeating": tenths of a second
        pieces.append(WirePiece(("ttl_ms",), (event.ttl_ms // 100 & 0xFFFF).to_bytes(2, "big")))
    if event.reason is not None:
        if type(event.reason) is not bytes or len(event.reason) > 255:
            return None
        pieces.append(WirePiece(("reason",), bytes([len(event.reason)]) + event.reason))
    for field in ("context", "group", "username", "password", "client_key", "cookie", "nonce", "box", "token", "data"):
        value: Octets | None = getattr(event, field)
        if value is None:
            continue
        if type(value) is not bytes:
            return None
        sized = field in ("username", "password")  # 23/ZMTP, "The PLAIN Mechanism"
        pieces.append(WirePiece((field,), (bytes([len(value) & 255]) if sized else b"") + value))
    for key, value in (event.properties or {}).items():
        if type(value) is not bytes:
            return None
        octets = key.encode("utf-8", "surrogateescape")
        path = ("properties", key)
        pieces.append(WirePiece((*path, "name"), bytes([len(octets) & 255]) + octets))
        pieces.append(WirePiece((*path, "length"), len(value).to_bytes(4, "big")))
        pieces.append(WirePiece((*path, "value"), value))
    return pieces
