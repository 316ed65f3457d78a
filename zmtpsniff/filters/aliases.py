"""More names of fields: those of Wireshark, and fields that are computed from others."""

from collections.abc import Callable
from typing import NamedTuple

from dissectors.events import Command, Connection, Event, Greeting, Message, Problem, WireEvent
from zmtpsniff.filters.function_source import SourceCode
from zmtpsniff.filters.paths import Kind, Value, fields_of, structure


class Alias(NamedTuple):
    """Another name for a path of ours."""

    path: str
    records: tuple[type[Event], ...] = ()  # those where it is the same; all if empty


class DerivedField(NamedTuple):
    """A field that is computed from others."""

    kind: Kind
    meaning: str
    make: Callable[[type[Event], SourceCode], Value | None]  # None where a type of record has no such field


ALIASES: dict[str, Alias] = {
    "zmtp.version": Alias("version", (Greeting, Connection)),
    "zmtp.mechanism": Alias("mechanism"),
    "zmtp.as-server": Alias("as_server"),
    "zmtp.command-name": Alias("name", (Command,)),
    "zmtp.username": Alias("username"),
    "zmtp.password": Alias("password"),
    "zmtp.reason": Alias("reason"),
    "zmtp.ping.context": Alias("context"),
    "zmtp.curvezmq.version": Alias("version", (Command,)),
    "zmtp.curvezmq.publickey": Alias("client_key"),
    "zmtp.curvezmq.nonce": Alias("nonce"),
    "zmtp.curvezmq.box": Alias("box"),
    "zmtp.curvezmq.cookie": Alias("cookie"),
    "zmtp.data": Alias("frames"),
    "zmtp.data.text": Alias("frames.text"),
    "zmtp.length": Alias("frames.length"),
    "frame.number": Alias("packet"),
}


def _ends(record: type[Event]) -> tuple[str, str] | None:
    """The expressions of both addresses of a record."""
    if record is Connection:
        return "e.client.address", "e.server.address"
    return ("e.src", "e.dst") if "src" in fields_of(record) else None


def _of_both(kind: Kind, function: str) -> Callable[[type[Event], SourceCode], Value | None]:
    def make(record: type[Event], source: SourceCode) -> Value | None:
        ends = _ends(record)
        if ends is None:
            return None
        name = source.name()
        return Value(kind, name, True, ((name, f"({function}({ends[0]}), {function}({ends[1]}))"),))

    return make


def _of_one(kind: Kind, function: str, end: str) -> Callable[[type[Event], SourceCode], Value | None]:
    def make(record: type[Event], source: SourceCode) -> Value | None:
        return Value(kind, f"{function}(e.{end})", True) if end in fields_of(record) else None

    return make


def _of_field(kind: Kind, field: str, template: str, *records: type[Event]) -> "Callable[..., Value | None]":
    """A field computed from another that may be None."""

    def make(record: type[Event], source: SourceCode) -> Value | None:
        if field not in fields_of(record) or (records and record not in records):
            return None
        name = source.name()
        return Value(kind, f"({template.format(name)} if ({name} := e.{field}) is not None else None)", True)

    return make


def _of_properties(kind: Kind, method: str) -> Callable[[type[Event], SourceCode], Value | None]:
    def make(record: type[Event], source: SourceCode) -> Value | None:
        if "properties" not in fields_of(record):
            return None
        name = source.name()
        return Value(kind, name, False, ((name, f"(e.properties or {{}}).{method}()"),))

    return make


def _mechanism(record: type[Event], source: SourceCode) -> Value | None:
    if "mechanism" in fields_of(record):  # of the record itself
        return None
    return Value("text", "mechanism_of(e)", True) if record is Command else None


def _topic(record: type[Event], source: SourceCode) -> Value | None:
    return Value("octets", "e.topic", True) if record is Message else None  # of others it is their own field


def _body(record: type[Event], source: SourceCode) -> Value | None:
    if record is not Message:
        return None
    from zmtpsniff.filters.body_values import BodyValues

    return structure(f"{source.constant(BodyValues())}(e)", [], source)


def _protocol(record: type[Event], source: SourceCode) -> Value | None:
    if issubclass(record, WireEvent):
        return Value("object", "e")
    return Value("object", "e.src", True) if record is Problem else None


DERIVED: dict[str, DerivedField] = {
    "mechanism": DerivedField(
        "text", "The mechanism that it is certain to belong to by what it holds.", _mechanism
    ),
    "topic": DerivedField("octets", "Of a message of a publisher: its first frame; of RADIO, the group.", _topic),
    "body": DerivedField(
        "value",
        "What is in a frame as JSON, MessagePack, CBOR or Protocol Buffers; body.order.qty is a field of it, with the "
        "type that it has there.",
        _body,
    ),
    "ip.addr": DerivedField("ip", "The IPv4 address of either end.", _of_both("ip", "ip")),
    "ip.src": DerivedField("ip", "The IPv4 address of the sender.", _of_one("ip", "ip", "src")),
    "ip.dst": DerivedField("ip", "The IPv4 address of the receiver.", _of_one("ip", "ip", "dst")),
    "ipv6.addr": DerivedField("ipv6", "The IPv6 address of either end.", _of_both("ipv6", "ipv6")),
    "ipv6.src": DerivedField("ipv6", "The IPv6 address of the sender.", _of_one("ipv6", "ipv6", "src")),
    "ipv6.dst": DerivedField("ipv6", "The IPv6 address of the receiver.", _of_one("ipv6", "ipv6", "dst")),
    "tcp.port": DerivedField("number", "The port of either end.", _of_both("number", "port")),
    "tcp.srcport": DerivedField("number", "The port of the sender.", _of_one("number", "port", "src")),
    "tcp.dstport": DerivedField("number", "The port of the receiver.", _of_one("number", "port", "dst")),
    "tcp.stream": DerivedField(
        "number", "The number of the connection as Wireshark counts, from 0: flow less 1.",
        _of_field("number", "flow", "{} - 1"),
    ),
    "frame.time": DerivedField(
        "time", 'When: "2026-11-21 18:00:00.5", local time unless it ends in Z or +01:00.',
        _of_field("time", "time_ns", "{}"),
    ),
    "frame.time_epoch": DerivedField(
        "time", "When: seconds since 1970, with up to nine decimals.", _of_field("time", "time_ns", "{}")
    ),
    **{
        f"{version}.{part}": DerivedField(
            "number", f"The {place} number of {meaning}.",
            _of_field("number", "version", f"part_of_version({{}}, {number})", record),
        )
        for version, record, meaning in (
            ("zmtp.version", Greeting, "the version"),
            ("zmtp.curvezmq.version", Command, "the version of CURVE"),
        )
        for number, (part, place) in enumerate((("major", "first"), ("minor", "second")))
    },
    "zmtp.command-name.length": DerivedField(
        "number", "How long the name of a command is.", _of_field("number", "name", "len({})", Command)
    ),
    "zmtp.ping.ttl": DerivedField(
        "number", "The time to live of a PING in tenths of a second, as on the wire: ttl_ms / 100.",
        _of_field("number", "ttl_ms", "{} // 100"),
    ),
    "zmtp.metadata.key": DerivedField("text", "The name of any property.", _of_properties("text", "keys")),
    "zmtp.metadata.value": DerivedField("octets", "The value of any property.", _of_properties("octets", "values")),
    "zmtp": DerivedField("object", "Any record of octets on the wire.", _protocol),
    "tcp": DerivedField("object", "The same.", _protocol),
    "ip": DerivedField("object", "Any record of IPv4.", _of_both("object", "ip")),
    "ipv6": DerivedField("object", "Any record of IPv6.", _of_both("object", "ipv6")),
    "frame": DerivedField("object", "Any record that has a packet.", _of_field("object", "packet", "{}")),
}  # fmt: skip

# Wireshark's, for which our records have nothing.
MISSING = {
    **dict.fromkeys(
        ("zmtp.flags", "zmtp.flags.reserved", "zmtp.flags.command", "zmtp.flags.long", "zmtp.flags.more"),
        "a message is a record with all its frames",
    ),
    **dict.fromkeys(("zmtp.signature", "zmtp.padding", "zmtp.filler", "zmtp.curvezmq.signature"), "they say nothing"),
    "frame.time_relative": "use frame.time_epoch",
    "frame.time_delta": "use frame.time_epoch",
    "frame.len": "records are not packets",
    "tcp.len": "records are not packets",
    "udp.port": "udp is not dissected",
}
