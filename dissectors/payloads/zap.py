"""ZAP 1.0, by which libzmq asks a handler whether a peer may connect (27/ZAP)."""

from typing import Any, ClassVar

from dissectors.payloads import (
    MOST_WAITING,
    REQUEST,
    Hidden,
    Message,
    Octets,
    Payload,
    PayloadConnection,
    PayloadKind,
    Place,
    at_hand,
    body_start,
    parse_metadata,
    request_fields,
    text,
)

_VERSION = b"1.0"
# Mechanism to the names of its credentials (27/ZAP, "NULL Mechanism" and the others).
_CREDENTIALS: dict[bytes, tuple[str, ...]] = {
    b"NULL": (),
    b"PLAIN": ("username", "password"),
    b"CURVE": ("public_key",),
    b"GSSAPI": ("principal",),
}
_STATUS = {b"200": "success", b"300": "temporary error", b"400": "authentication failure", b"500": "internal error"}
_FIRST_CREDENTIAL = 6


class Zap:
    """Requests to an authenticator and its replies."""

    name = "zap"
    signature = _VERSION
    fields: ClassVar[dict[str, PayloadKind]] = {
        "kind": "text", "request_id": "octets", "domain": "text", "address": "text", "identity": "octets",
        "mechanism": "text", "username": "octets", "password": "octets", "public_key": "octets", "principal": "octets",
        "status": "number", "reason": "text", "user_id": "text", "metadata": "object", **REQUEST,
    }  # fmt: skip

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether the version, the status or mechanism, and the number of frames are right."""
        frames = message.frames
        if len(frames) < _FIRST_CREDENTIAL:
            return False
        start = body_start(frames)
        count = len(frames) - start
        if count < _FIRST_CREDENTIAL or frames[start] != _VERSION:
            return False
        if count == 6 and frames[start + 2] in _STATUS:
            return True
        credentials = _credentials(frames[start + 5])
        return credentials is not None and count == _FIRST_CREDENTIAL + len(credentials)

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The fields of a request or a reply."""
        frames = message.frames
        start = body_start(frames)
        body = frames[start:]
        request = at_hand(body[1])
        if len(body) == 6 and body[2] in _STATUS:
            return _reply(body, connection.state.pop(request, None))
        credentials = _credentials(body[5])
        if credentials is None:
            return None
        mechanism = text(body[5])
        fields: dict[str, Any] = {
            "kind": "request",
            "request_id": body[1],
            "domain": text(body[2]),
            "address": text(body[3]),
            "identity": body[4],
            "mechanism": mechanism,
        }
        for name, octets in zip(credentials, body[_FIRST_CREDENTIAL:], strict=True):
            hidden = name == "password" and not connection.show_secrets
            fields[name] = Hidden(len(octets)) if hidden else octets
        hide = "password" in credentials and not connection.show_secrets
        secrets = [start + _FIRST_CREDENTIAL + 1] if hide else []
        if len(connection.state) < MOST_WAITING:
            connection.state[request] = message.place
        user = f" {text(body[6])!r}" if "username" in credentials else ""
        summary = f"request {text(body[1])} for {text(body[3])}, {mechanism}{user}"
        return Payload("zap", summary, fields, secrets)


def _reply(body: list[Octets], request: Place | None) -> Payload:
    status = at_hand(body[2])
    fields: dict[str, Any] = {
        "kind": "reply",
        "request_id": body[1],
        "status": int(status),
        "reason": text(body[3]),
        "user_id": text(body[4]),
        "metadata": parse_metadata(at_hand(body[5])).properties,  # as in READY (23/ZMTP, "metadata")
    }
    if request is not None:
        fields |= request_fields(request)
    user = f" as {text(body[4])!r}" if body[4] else ""
    return Payload("zap", f"reply {text(body[1])}: {status.decode()} {text(body[3]) or _STATUS[status]}{user}", fields)


def _credentials(mechanism: Octets) -> tuple[str, ...] | None:
    return _CREDENTIALS.get(mechanism) if isinstance(mechanism, bytes) else None
