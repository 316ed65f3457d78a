"""Payloads of messages for people: a name and a value on each line."""

import json
from typing import Any

from dissectors.events import Body, Hidden, Message, Octets, Payload
from zmtpsniff.words.text import escape, quote

_ITEMS = 32  # of a list or of all fields, unless everything is asked for
_DEEP = 12


def frames_to_show(event: Message, show_secrets: bool = False) -> list[Octets]:
    """The frames of a message, without the octets of those that hold credentials unless ``show_secrets``."""
    if show_secrets:
        return event.frames
    secrets = [] if event.payload is None else event.payload.secrets
    if not secrets and _ends_with_password(event):
        secrets = [len(event.frames) - 1]
    if not secrets:
        return event.frames
    return [Hidden(len(frame)) if place in secrets else frame for place, frame in enumerate(event.frames)]


def _ends_with_password(event: Message) -> bool:
    """Whether it is a request of ZAP with a password (27/ZAP), even if no dissector looked at it.

    Such a request has 8 frames after its envelope: version, ..., mechanism, username, password.
    """
    frames = event.frames
    if len(frames) < 3 or frames[-3] != b"PLAIN":
        return False
    return event.incomplete or (len(frames) >= 8 and frames[-8] == b"1.0")


def payload_words(payload: Payload) -> str:
    """The protocol and what is said, on one line, safe to show."""
    return f"{escape(payload.protocol)}: {escape(payload.summary)}"


def payload_fields(payload: Payload, everything: bool = False) -> list[tuple[str, str | Octets]]:
    """The fields, as octets or as text that is ready to be shown. A field inside another is named ``header.date``."""
    fields: list[tuple[str, str | Octets]] = []
    _flatten("", payload.fields, fields, 0)
    if not everything and len(fields) > _ITEMS:
        left = len(fields) - _ITEMS
        fields[_ITEMS:] = [("...", f"{left} more")]
    return fields


def body_text(body: Body) -> str:
    """The value of a body as JSON over several lines, not yet safe to show."""
    return json.dumps(body.value, indent=2, ensure_ascii=False, default=_plain)


def _flatten(name: str, value: Any, fields: list[tuple[str, str | Octets]], depth: int) -> None:
    if isinstance(value, dict) and depth < _DEEP:
        if not value and name:
            fields.append((name, "{}"))
        for key, item in value.items():
            inner = escape(str(key))
            _flatten(f"{name}.{inner}" if name else inner, item, fields, depth + 1)
    elif isinstance(value, list | tuple) and depth < _DEEP:
        if not value:
            fields.append((name, "(none)"))
        for place, item in enumerate(value):
            _flatten(f"{name}[{place}]", item, fields, depth + 1)
    elif isinstance(value, Octets):
        fields.append((name, value))
    elif isinstance(value, str):
        fields.append((name, value.encode("utf-8", "backslashreplace")))
    elif value is not None:
        fields.append((name, escape(str(value).lower() if isinstance(value, bool) else str(value))))


def _plain(value: Any) -> Any:
    if isinstance(value, Octets):
        return quote(value)
    return str(value)
