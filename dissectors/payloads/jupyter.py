"""Jupyter's messaging protocol, version 5: notebooks and kernels."""

from collections import OrderedDict
from typing import Any, ClassVar, NamedTuple

import msgspec

from dissectors.payloads import (
    REQUEST,
    Message,
    Octets,
    Payload,
    PayloadConnection,
    PayloadKind,
    Place,
    request_fields,
    text,
)

_DELIMITER = b"<IDS|MSG>"
_IDENTITIES = 16  # frames in which the delimiter is looked for
_PARTS = 5  # signature, header, parent header, metadata, content
_REMEMBERED = 20_000  # requests of all connections, twice each
_STDIN = frozenset({"input_request", "input_reply"})
_CONTROLS = ("shutdown", "interrupt", "debug", "create_subshell", "delete_subshell", "list_subshell")
_CONTROL = frozenset(f"{what}_{kind}" for what in _CONTROLS for kind in ("request", "reply"))


class _Request(NamedTuple):
    kind: str
    place: Place


class Jupyter:
    """All channels. Messages of a kernel are joined with the request that they are about, whatever channel they use."""

    name = "jupyter"
    least_frames = 1 + _PARTS
    fields: ClassVar[dict[str, PayloadKind]] = {
        "channel": "text", "msg_type": "text", "identities": "list of octets", "signature": "text", "header": "object",
        "header.msg_id": "text", "header.session": "text", "header.username": "text", "header.date": "text",
        "header.msg_type": "text", "header.version": "text", "parent_header": "object", "parent_header.msg_id": "text",
        "parent_header.msg_type": "text", "metadata": "value", "content": "value", "content.execution_count": "number",
        "content.execution_state": "text", "content.status": "text", "content.code": "text", "content.name": "text",
        "content.text": "text", "content.ename": "text", "content.evalue": "text", "buffers": "list of octets",
        "answers": "text", **REQUEST,
    }  # fmt: skip

    def __init__(self) -> None:
        """Start without any request."""
        # By flow and number; flow 0 for the last flow that it came over, since schedulers pass requests on.
        self._requests: OrderedDict[tuple[int, str], _Request] = OrderedDict()

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether the delimiter is there, and a header behind it."""
        frames = message.frames
        if len(frames) <= _PARTS:
            return False
        place = _delimiter(frames)
        if place is None or len(frames) < place + 1 + _PARTS:
            return False
        header = frames[place + 2]
        return isinstance(header, bytes) and header[:1] == b"{" and b'"msg_type"' in header

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The headers and the content."""
        frames = message.frames
        place = _delimiter(frames)
        if place is None:
            return _heartbeat(frames)
        parts = frames[place + 1 :]
        if len(parts) < _PARTS:
            return None
        header = _decoded(parts[1])
        parent = _decoded(parts[2])
        if not isinstance(header, dict) or not isinstance(parent, dict):
            return None
        kind, number = header.get("msg_type"), header.get("msg_id")
        if not isinstance(kind, str) or not isinstance(number, str):
            return None
        fields: dict[str, Any] = {
            "channel": _channel(message, connection, kind),
            "msg_type": kind,
            "identities": frames[:place],
            "signature": text(parts[0]),
            "header": header,
            "parent_header": parent,
            "metadata": _decoded(parts[3]),
            "content": _decoded(parts[4]),
        }
        if len(parts) > _PARTS:
            fields["buffers"] = parts[_PARTS:]
        if kind.endswith("_request") and fields["channel"] != "iopub":  # else it is a copy for those who watch
            self._requests[0, number] = self._requests[message.flow, number] = _Request(kind, message.place)
            while len(self._requests) > _REMEMBERED:
                self._requests.popitem(last=False)
        summary = f"{fields['channel']} {kind}"
        asked = str(parent.get("msg_id"))
        request = self._requests.get((message.flow, asked)) or self._requests.get((0, asked))
        if request is not None:
            fields |= request_fields(request.place)
            fields["answers"] = request.kind
        return Payload("jupyter", summary + _gist(fields["content"]), fields)


def _delimiter(frames: list[Octets]) -> int | None:
    try:
        return frames.index(_DELIMITER, 0, _IDENTITIES)
    except ValueError:
        return None


def _decoded(part: Octets) -> Any:
    """A part of a message, from JSON. The octets themselves if they are no JSON or not all at hand."""
    if not isinstance(part, bytes):
        return part
    try:
        return msgspec.json.decode(part)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return part


def _channel(message: Message, connection: PayloadConnection, kind: str) -> str:
    """The channel of a message. Published messages are iopub; the kind of a message tells the other channels apart."""
    if connection.socket_types.get(message.src) in ("PUB", "XPUB") or connection.state.get("channel") == "iopub":
        connection.state["channel"] = "iopub"
    elif kind in _STDIN:
        connection.state["channel"] = "stdin"
    elif kind in _CONTROL:
        connection.state["channel"] = "control"
    elif not kind.endswith(("_request", "_reply")):
        return str(connection.state.get("channel", "iopub"))
    return str(connection.state.setdefault("channel", "shell"))


def _gist(content: Any) -> str:
    """The value that people look for in some kinds of content."""
    if not isinstance(content, dict):
        return ""
    for name in ("execution_state", "code", "status", "ename", "name"):
        value = content.get(name)
        if isinstance(value, str) and value:
            line, _, more = value.partition("\n")
            return f" {line[:60]}{'...' if more or len(line) > 60 else ''}"
    return ""


def _heartbeat(frames: list[Octets]) -> Payload | None:
    """A message of the fifth channel, an echo. Other programs use the same form, so somebody must name the protocol."""
    if len(frames) == 2 and frames[0] == b"":
        return Payload("jupyter", "hb", {"channel": "hb", "content": frames[1]})
    return None
