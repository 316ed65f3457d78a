"""All fields that a filter can name: from the types of the events, with Wireshark's names for them."""

import typing
from functools import lru_cache
from typing import NamedTuple

import msgspec

from dissectors.events import AnyEvent, Event, Payload, record_fields
from zmtpsniff.filters.aliases import ALIASES, DERIVED
from zmtpsniff.filters.paths import PARTS, PAYLOAD_FIELDS, Value, is_octets, is_record, kind_of, without_none
from zmtpsniff.filters.source import SourceCode


class FieldInfo(NamedTuple):
    """A field as it is listed."""

    name: str
    kind: str  # a Kind, "list of" one, or "properties"
    records: tuple[str, ...]
    meaning: str
    also: str = ""  # the name of the same field in our records, for one of Wireshark's


# What each field says; tests/filters/test_program.py holds this to what the events have.
MEANINGS: dict[str, str] = {
    "type": "Which record this is.",
    "time_ns": "When its last packet was captured, in nanoseconds since 1970.",
    "packet": "The number of the packet that completed it, from 1.",
    "flow": "The number of the connection, from 1.",
    "src": 'The sender, as address and port: "10.0.0.1:5555", "[::1]:5555".',
    "dst": "The receiver, in the same way.",
    "version": 'The version announced, negotiated, or of CURVE: "3.1".',
    "mechanism": 'The security mechanism: "NULL", "PLAIN", "CURVE", "GSSAPI".',
    "as_server": "Whether this side is the server of the security mechanism.",
    "socket_type": 'The type of the sender\'s socket: "REQ".',
    "identity": "The identity (routing id) that this side announces.",
    "name": 'The name of a command: "READY", "PING".',
    "properties": 'What READY or INITIATE announces: properties.Socket-Type, properties["X-Name"].',
    "reason": "What ERROR says.",
    "status": "Why a WebSocket is closed, as its CLOSE says.",
    "ttl_ms": "How long a PING's connection may be silent, in milliseconds.",
    "context": "What PING gives PONG to return.",
    "group": "The group of JOIN or LEAVE.",
    "username": "The user name of a PLAIN HELLO.",
    "password": "The password of a PLAIN HELLO; only its length unless --show-secrets.",
    "client_key": "The client's transient public key of a CURVE HELLO.",
    "nonce": "The nonce of a CURVE command.",
    "cookie": "The cookie of a CURVE INITIATE.",
    "box": "The encrypted part of a CURVE or GSSAPI command.",
    "token": "The token of a GSSAPI INITIATE.",
    "data": "What an unknown or malformed command holds after its name, or a beacon of a later version after its port.",
    "uuid": "The UUID of the peer that a beacon is of, as 32 hexadecimal digits.",
    "port": "Where the peer that a beacon is of takes connections; 0 if it takes leave.",
    "public_key": "The key of a beacon's peer.",
    "incomplete": "Octets of it are, or may be, missing from the capture.",
    "latency_ns": "Nanoseconds since the request that it answers.",
    "request": "The number of the packet with the request that it answers.",
    "action": '"subscribe" or "cancel".',
    "topic": "The topic subscribed to or cancelled.",
    "encoding": 'How a subscription was sent: "message" or "command".',
    "frames": "The frames of a message; frames[0] is the first, frames[-1] the last.",
    "envelope": "What is in front of a request or reply.",
    "envelope.identities": "How many identities are in front of it.",
    "envelope.delimiter": "Whether an empty frame follows them.",
    "matched": "The subscription that a message matches.",
    "paired": 'How it was found what a reply answers: "envelope", "order"; left out where the protocol says it.',
    "forwards": "The same message on its way to the proxy that sent this one on.",
    "forwards.flow": "The connection of that message.",
    "forwards.packet": "The packet of that message.",
    "payload": "What the application says; payload.NAME is a field of its protocol, as octets: docs/payloads.md.",
    "payload.protocol": 'The protocol: "mlm", "jupyter".',
    "payload.summary": "What it says, on one line.",
    "bodies": "What is in the frames of a message (--decode-bodies).",
    "bodies.frame": "The place of the frame, from 0.",
    "bodies.format": 'What it is in: "msgpack", "gzip json".',
    "bodies.value": "Its value.",
    "severity": '"error", "warning" or "note".',
    "code": "Which problem this is: docs/problems.md lists all.",
    "detail": "A problem in a sentence.",
    "text": "A comment in the capture file.",
    "transport": 'What carries the connection: "tcp".',
    "client": "The side that connected.",
    "client.address": "Its address and port.",
    "client.version": "The version that it announces.",
    "client.socket_type": "The type of its socket.",
    "client.identity": "Its identity.",
    "client.beacon": "The number of the packet with the first beacon that announced it.",
    "server": "The side that was connected to.",
    "server.address": "Its address and port.",
    "server.version": "The version that it announces.",
    "server.socket_type": "The type of its socket.",
    "server.identity": "Its identity.",
    "server.beacon": "The number of the packet with the first beacon that announced it.",
    "messages": "How many messages there were.",
    "messages.client": "How many the client sent.",
    "messages.server": "How many the server sent.",
    "octets": "How many octets there were.",
    "octets.client": "How many the client sent.",
    "octets.server": "How many the server sent.",
    "start_ns": "When the connection began, in nanoseconds since 1970.",
    "end_ns": "When it ended.",
    "end": 'How it ended: "fin", "rst", "timeout", "open".',
    "handshake": '"complete", "failed", "incomplete" or "not-seen".',
    "subscriptions": "The topics still subscribed to at its end.",
    "address": "The address and port of the socket that pushes.",
    "workers": "Those who got its messages.",
    "workers.address": "The address and port of a worker.",
    "workers.messages": "How many messages a worker got.",
    "workers.share": "Which share of all messages a worker got, 0 to 1.",
    "packets": "How many packets were captured.",
    "dropped": "How many packets were lost by the capture.",
    "flows": "How many connections there were.",
    "zmtp_flows": "How many of them were ZMTP.",
    "problems": "How many problem records there were.",
    "duration_ns": "Nanoseconds from the first packet to the last.",
}
PART_MEANINGS = {
    "text": "the octets as text, where they are text",
    "hex": "their hexadecimal digits, where they are no text",
    "length": "how many there were on the wire",
    "truncated": "whether some are not at hand",
}


@lru_cache(1)
def list_fields() -> tuple[FieldInfo, ...]:
    """All fields, those of the records first, in their order, then Wireshark's."""
    found: dict[str, tuple[str, list[str]]] = {"type": ("text", [])}
    for record in typing.get_args(AnyEvent):
        tag = record.__struct_config__.tag
        found["type"][1].append(tag)
        for name, kind in _of_struct(record, ""):
            known, records = found.setdefault(name, (kind, []))
            records.append(tag)
            if kind not in known.split(" or "):
                found[name] = (f"{known} or {kind}", records)
    derived = {name: info for name, info in _derived() if name not in found}
    for name, info in _derived():
        if name in found:
            kind, records = found[name]
            found[name] = (kind, [*records, *(record for record in info.records if record not in records)])
    listed = [FieldInfo(name, kind, tuple(records), MEANINGS.get(name, "")) for name, (kind, records) in found.items()]
    for name, alias in ALIASES.items():
        kind, records = _of_path(alias.path, found)
        only = {record.__struct_config__.tag for record in alias.records}
        shown = tuple(record for record in records if record in only or not only)
        listed.append(FieldInfo(name, kind, shown, f"Wireshark's name for {alias.path}.", alias.path))
    return tuple(listed + list(derived.values()))


@lru_cache(1)
def names() -> frozenset[str]:
    """The names of all fields and of their parts."""
    listed = {info.name: info.kind for info in list_fields()}
    return frozenset(listed) | {f"{name}.{part}" for name, kind in listed.items() if "octets" in kind for part in PARTS}


def _of_struct(struct: type[msgspec.Struct], prefix: str) -> list[tuple[str, str]]:
    """The names and kinds of what a struct holds."""
    found: list[tuple[str, str]] = []
    for field in record_fields(struct):
        if struct is Payload and field.name not in PAYLOAD_FIELDS:
            continue
        name = prefix + field.name
        hint, _ = without_none(field.type)
        inner = typing.get_args(hint)[0] if typing.get_origin(hint) is list else hint
        kind: str = "properties" if typing.get_origin(hint) is dict else kind_of(hint)
        found.append((name, f"list of {kind}s".replace("octetss", "octets") if inner is not hint else kind))
        if is_record(inner) and not is_octets(inner):
            found += _of_struct(inner, f"{name}.")
    return found


def _of_path(path: str, found: dict[str, tuple[str, list[str]]]) -> tuple[str, list[str]]:
    """The kind and the records of a field or of a part of one."""
    if path in found:
        return found[path]
    whole, _, part = path.rpartition(".")
    kind, records = found[whole]
    made = PARTS[part][0]
    return (f"list of {made}s" if kind.startswith("list") else made), records


def _derived() -> list[tuple[str, FieldInfo]]:
    events: tuple[type[Event], ...] = typing.get_args(AnyEvent)
    made: list[tuple[str, FieldInfo]] = []
    for name, derived in DERIVED.items():
        values: dict[str, Value] = {}
        for event in events:
            if (value := derived.make(event, SourceCode({}))) is not None:
                values[str(event.__struct_config__.tag)] = value
        made.append((name, FieldInfo(name, derived.kind, tuple(values), derived.meaning)))
    return made
