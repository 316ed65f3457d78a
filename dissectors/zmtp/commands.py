"""Commands of ZMTP 3.x and of its security mechanisms: their names and fields.

Everything here is pure: octets go in, the fields of a :class:`~dissectors.events.Command` and its faults come out.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dissectors.events import Cut, Hidden, Octets, text
from dissectors.zmtp import wire

Fields = dict[str, object]
Fault = tuple[str, str]  # problem code, detail

HANDSHAKE_COMMANDS = frozenset({"READY", "HELLO", "WELCOME", "INITIATE", "ERROR"})
COMMANDS_OF_3_1 = frozenset({"SUBSCRIBE", "CANCEL", "PING", "PONG", "JOIN", "LEAVE"})


class Content(NamedTuple):
    """The fields of a command."""

    name: str
    fields: Fields
    faults: list[Fault]


class Metadata(NamedTuple):
    """The properties of READY or INITIATE."""

    properties: dict[str, Octets]
    faults: list[Fault]


def find_property(properties: dict[str, Octets], name: str) -> Octets | None:
    """The value of a property; names compare without case (23/ZMTP, "The NULL Security Mechanism")."""
    wanted = name.lower()
    for key, value in properties.items():
        if key.lower() == wanted:
            return value
    return None


def parse_metadata(data: bytes, whole: bool = True) -> Metadata:
    """Read properties: name length, name, 4-octet value length, value (23/ZMTP, "metadata").

    With ``whole`` false the end of ``data`` is where the capture ends, so a property cut short is no fault.
    """
    properties: dict[str, Octets] = {}
    seen: set[str] = set()
    faults: list[Fault] = []
    position, end = 0, len(data)
    while position < end:
        name_end = position + 1 + data[position]
        value_start = name_end + 4
        if value_start > end:
            if whole:
                faults.append(("bad-metadata", f"a property's name or length runs past the end, at octet {position}"))
            break
        raw = data[position + 1 : name_end]
        length = int.from_bytes(data[name_end:value_start], "big")
        name = text(raw)
        if value_start + length > end:
            if whole:
                detail = f"the value of {name!r} is announced with {length} octets, {end - value_start} are left"
                faults.append(("bad-metadata", detail))
            else:
                properties[name] = Cut(data[value_start:], length)
            break
        if not raw:
            faults.append(("empty-property-name", f"a property of {length} octets has no name"))
        if name.lower() in seen:
            faults.append(("duplicate-property", f"property {name!r} is sent twice"))
        else:
            properties[name] = data[value_start : value_start + length]
        seen.add(name.lower())
        position = value_start + length
    return Metadata(properties, faults)


def split_name(body: bytes) -> tuple[bytes, bytes] | str:
    """Split a command's body into its name and its data, or say in a sentence why that is not possible."""
    if not body:
        return "a command frame without a name"
    length = body[0]
    if length == 0:
        return "a command with an empty name"
    if 1 + length > len(body):
        return f"a command's name is announced with {length} octets, the frame has {len(body) - 1}"
    return body[1 : 1 + length], body[1 + length :]


def has_name(body: bytes) -> bool:
    """Whether the whole name of a command is in ``body``, which may lack its end."""
    return not isinstance(split_name(body), str)


def parse_command(body: bytes, mechanism: str | None, whole: bool = True, show_secrets: bool = False) -> Content:
    """Take the body of a command frame apart.

    ``mechanism`` says how to read HELLO, WELCOME, INITIATE, READY and MESSAGE. ``whole`` is false if the capture lacks
    octets at the end of ``body``, which is no fault of the peer.
    """
    if body.startswith(wire.BROKEN_ERROR) and len(body) > len(wire.BROKEN_ERROR):
        fields, faults = _error(body[len(wire.BROKEN_ERROR) :], whole)
        detail = "ERROR without the length of its name (libzmq 4.3 PLAIN server)"
        return Content("ERROR", fields, [("malformed-error", detail), *faults])
    split = split_name(body)
    if isinstance(split, str):
        if not whole:
            return Content(text(body[1:]), {}, [])
        return Content(text(body[1:]), {"data": body}, [("malformed-command", split)])
    raw, data = split
    name = text(raw)
    if name == "HELLO" and mechanism == "PLAIN":
        return Content(name, *_plain_hello(data, whole, show_secrets))
    parser = _CURVE.get(name) if mechanism == "CURVE" else _GSSAPI.get(name) if mechanism == "GSSAPI" else None
    parser = parser or _COMMON.get(name)
    if parser is None:
        hidden = name == "HELLO" and not show_secrets  # of PLAIN, where another mechanism was announced
        return Content(name, {"data": Hidden(len(data)) if hidden else data} if data else {}, [])
    return Content(name, *parser(data, whole))


def assume_mechanism(body: bytes, whole: bool = True) -> str | None:
    """Which mechanism a command of the handshake, or a MESSAGE, looks like; None if it may be of any.

    ``whole`` is false if octets at the end of ``body`` are missing from the capture.
    """
    split = split_name(body)
    if isinstance(split, str):
        return None
    name, data = split
    if name == b"MESSAGE":
        return "CURVE"
    if not whole and not data:
        return None
    if name == b"HELLO":
        has_size = not whole or len(data) == sum(size for _, size in _CURVE_HELLO)
        return "CURVE" if has_size and data[:2] == _VERSION_OF_CURVE[: len(data)] else "PLAIN"
    if name == b"WELCOME":  # that of PLAIN is empty
        return "CURVE" if not whole or len(data) == sum(size for _, size in _CURVE_WELCOME) else "PLAIN"
    return "CURVE" if name in (b"READY", b"INITIATE") and parse_metadata(data, whole).faults else None


def is_known(name: str, mechanism: str | None) -> bool:
    """Whether any version, or this mechanism, specifies a command of this name."""
    known = name in _COMMON or name in HANDSHAKE_COMMANDS
    return known or (name == "MESSAGE" and mechanism in ("CURVE", "GSSAPI"))


_Result = tuple[Fields, list[Fault]]


def metadata(data: bytes, whole: bool = True) -> tuple[Fields, list[Fault]]:
    """READY and INITIATE: properties, among them Socket-Type and Identity (23/ZMTP, "The NULL Security Mechanism")."""
    properties, faults = parse_metadata(data, whole)
    socket_type = find_property(properties, "Socket-Type")
    return {
        "properties": properties,
        "socket_type": text(socket_type) if isinstance(socket_type, bytes) else None,
        "identity": find_property(properties, "Identity"),
    }, faults


def _error(data: bytes, whole: bool) -> _Result:
    """ERROR: 1-octet length, reason (23/ZMTP, "The NULL Security Mechanism")."""
    if not data:
        return {}, [("malformed-command", "ERROR without a reason")] if whole else []
    length = data[0]
    reason: Octets = data[1 : 1 + length]
    if len(data) - 1 == length:
        return {"reason": reason}, []
    if not whole:
        return {"reason": Cut(data[1 : 1 + length], length)}, []
    if len(data) - 1 < length:
        detail = f"the reason of ERROR is announced with {length} octets, {len(data) - 1} are left"
    else:
        detail = f"{len(data) - 1 - length} octets after the reason of ERROR"
    return {"reason": reason}, [("malformed-command", detail)]


def _plain_hello(data: bytes, whole: bool, show_secrets: bool) -> _Result:
    """PLAIN HELLO: 1-octet length, username, 1-octet length, password (24/ZMTP-PLAIN)."""
    overrun: list[Fault] = [("malformed-command", "username or password of HELLO run past its end")] if whole else []
    if not data:
        return {}, overrun
    name_end = 1 + data[0]
    if name_end > len(data):
        # The length of the name is wrong, so these octets may be the password.
        username: Octets = Hidden(data[0]) if whole and not show_secrets else Cut(data[1:], data[0])
        return {"username": username}, overrun
    fields: Fields = {"username": data[1:name_end]}
    if name_end == len(data):
        return fields, overrun
    length = data[name_end]
    password = data[name_end + 1 : name_end + 1 + length]
    shown: Octets = password if len(password) == length else Cut(password, length)
    fields["password"] = shown if show_secrets else Hidden(length)
    if len(password) < length:
        return fields, overrun
    if name_end + 1 + length < len(data):
        return fields, [("malformed-command", "octets after the password of HELLO")]
    return fields, []


def _ping(data: bytes, whole: bool) -> _Result:
    """PING: 2-octet TTL in tenths of a second, context of at most 16 octets (37/ZMTP, "Connection Heartbeating")."""
    if len(data) < 2:
        return {"data": data} if data else {}, [("malformed-command", "PING without its TTL")] if whole else []
    fields: Fields = {"ttl_ms": int.from_bytes(data[:2], "big") * 100}
    rest, faults = _context("PING")(data[2:], whole)
    return fields | rest, faults


def _context(name: str) -> Callable[[bytes, bool], _Result]:
    def parse(data: bytes, whole: bool) -> _Result:
        faults: list[Fault] = []
        if len(data) > wire.CONTEXT_LIMIT:
            faults = [
                ("malformed-command", f"{name} with a context of {len(data)} octets, {wire.CONTEXT_LIMIT} at most")
            ]
        return {"context": data} if data else {}, faults

    return parse


def _only(field: str) -> Callable[[bytes, bool], _Result]:
    return lambda data, whole: ({field: data}, [])


def _nothing(data: bytes, whole: bool) -> _Result:
    return ({"data": data}, [("malformed-command", "WELCOME of PLAIN holds octets")]) if data else ({}, [])


def _curve(name: str, exact: bool, sizes: tuple[tuple[str, int], ...], data: bytes, whole: bool) -> _Result:
    """Fields of fixed sizes, one after the other. Unless ``exact``, the last one takes the rest, at least its size."""
    fields: Fields = {}
    position = 0
    total = sum(size for _, size in sizes)
    for field, size in sizes:
        end = position + size if exact or field != sizes[-1][0] else max(len(data), position + size)
        part = data[position:end]
        if field == "padding":
            pass
        elif len(part) < end - position:
            if part:
                fields[field] = Cut(part, end - position)
        elif field == "version":
            fields[field] = f"{part[0]}.{part[1]}"
        else:
            fields[field] = part
        position = end
    if not whole or len(data) == total or (not exact and len(data) > total):
        return fields, []
    least = "" if exact else " at least"
    return fields, [("malformed-command", f"CURVE {name} of {len(data)} octets, must be{least} {total}")]


_COMMON: dict[str, Callable[[bytes, bool], _Result]] = {
    "READY": metadata,
    "INITIATE": metadata,
    "WELCOME": _nothing,
    "ERROR": _error,
    "PING": _ping,
    "PONG": _context("PONG"),
    "JOIN": _only("group"),
    "LEAVE": _only("group"),
    "SUBSCRIBE": _only("data"),
    "CANCEL": _only("data"),
}

# 25/ZMTP-CURVE, "Framing of the handshake commands": the fields of each command and their octets
_CURVE_HELLO = (("version", 2), ("padding", 72), ("client_key", 32), ("nonce", 8), ("box", 80))
_CURVE_WELCOME = (("nonce", 16), ("box", 144))
_VERSION_OF_CURVE = b"\1\0"


def _curve_hello(data: bytes, whole: bool) -> _Result:
    """HELLO of CURVE has one version, 1.0, and a padding of zeros (26/CURVEZMQ, "The HELLO Command")."""
    fields, faults = _curve("HELLO", True, _CURVE_HELLO, data, whole)
    if whole and not faults:
        if not data.startswith(_VERSION_OF_CURVE):
            faults = [("malformed-command", f"CURVE HELLO of version {fields['version']}, must be 1.0")]
        elif any(data[2:74]):
            faults = [("malformed-command", "the padding of CURVE HELLO is not zero")]
    return fields, faults


_CURVE: dict[str, Callable[[bytes, bool], _Result]] = {
    "HELLO": _curve_hello,
    "WELCOME": partial(_curve, "WELCOME", True, _CURVE_WELCOME),
    "INITIATE": partial(_curve, "INITIATE", False, (("cookie", 96), ("nonce", 8), ("box", 16 + 32))),
    "READY": partial(_curve, "READY", False, (("nonce", 8), ("box", 16))),
    "MESSAGE": partial(_curve, "MESSAGE", False, (("nonce", 8), ("box", 17))),
}


def _gssapi(name: str, field: str) -> Callable[[bytes, bool], _Result]:
    """INITIATE and MESSAGE of GSSAPI as libzmq sends them: 4-octet length, token or wrapped message.

    38/ZMTP-GSSAPI leaves the layout open.
    """

    def parse(data: bytes, whole: bool) -> _Result:
        if len(data) < 4:
            return {"data": data}, [("malformed-command", f"GSSAPI {name} without a length")] if whole else []
        length = int.from_bytes(data[:4], "big")
        if len(data) - 4 == length:
            return {field: data[4:]}, []
        faults: list[Fault] = []
        if whole:
            detail = f"GSSAPI {name} announces {length} octets, {len(data) - 4} are there"
            faults = [("malformed-command", detail)]
        return {field: Cut(data[4 : 4 + length], length)}, faults

    return parse


# READY of GSSAPI is metadata, or wrapped in a MESSAGE where the mechanism encrypts.
_GSSAPI: dict[str, Callable[[bytes, bool], _Result]] = {
    "INITIATE": _gssapi("INITIATE", "token"),
    "MESSAGE": _gssapi("MESSAGE", "box"),
}
