"""The words that the formats for people have in common."""

from collections.abc import Mapping

from dissectors.events import Beacon, Command, Connection, Greeting, Message, Octets, Peer, Process, Subscription
from dissectors.records import record_fields
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import escape, quote

# The ends of a connection as the wire shows them, in words.
ENDS = {"fin": "closed", "rst": "reset", "timeout": "timed out", "open": "still open"}

_NAMES = [field.name for field in record_fields(Command)]
_OWN_FIELDS = _NAMES[_NAMES.index("name") + 1 :]

_TOLD_APART = frozenset(
    {"incomplete", "encrypted", "latency_ns", "request", "socket_type", "identity"}
)  # the last two: properties


def protocol(version: str) -> str:
    """A version with the name of its protocol, as in ``ZMTP 3.1``, ``ZWS 2.0``."""
    return escape(f"ZWS {version[3:]}" if version.startswith("ZWS") else f"ZMTP {version}")


def kind_words(counts: Mapping[str, int]) -> list[str]:
    """Kinds, such as types of sockets, each with how often it occurred if there are several."""
    if len(counts) < 2:
        return [*map(escape, counts)]
    return [f"{escape(name)} {count:,}" for name, count in counts.items()]


def greeting_words(event: Greeting) -> str:
    """The announcements of a greeting, as in ``ZMTP 3.1 NULL``, ``ZMTP 2.0 REQ``; may be empty."""
    words = [] if event.version is None else [protocol(event.version)]
    words += [escape(word) for word in (event.mechanism, event.socket_type) if word is not None]
    if event.as_server:
        words.append("as server")
    return " ".join(words)


def topic_words(event: Subscription, max_bytes: int, more: str) -> str:
    """The topic of a subscription or cancellation, as in ``"weather."``."""
    everything = " (everything)" if event.topic == b"" else ""
    return f"{quote(event.topic, max_bytes, more)}{everything}"


def beacon_words(event: Beacon) -> str:
    """The announcement of a beacon, as in ``ZRE 1 port 49152``, ``ZRE 1 leaving``."""
    return f"ZRE {escape(event.version)} {f'port {event.port}' if event.port else 'leaving'}"


def shown_type(event: Message) -> str | None:
    """The type of a message's sender, as in ``PUB``; as in ``PUB?`` if it is inferred."""
    return f"{event.socket_type}?" if event.inferred else event.socket_type


def message_kind(socket_type: str | None) -> str:
    """The kind of a message by its sender, as in ``REQ message``."""
    return "message" if socket_type is None else f"{escape(socket_type)} message"


def message_words(socket_type: str | None, frames: int, octets: int) -> str:
    """The sender and the size of a message, as in ``REQ message, 2 frames, 45 octets``."""
    return f"{message_kind(socket_type)}, {plural(frames, 'frame')}, {plural(octets, 'octet')}"


def has_relations(event: Message) -> bool:
    """Whether relations of a message to others are known, beside its envelope.

    ``jsonl.py`` asks for the same fields in its loop. There a call for each message would cost a quarter of its time.
    """
    return event.request is not None or event.matched is not None or event.forwards is not None


def relation_words(event: Message | Command) -> list[str]:
    """The relations of a message to others, beside the subscription that it matches."""
    words = []
    if event.request is not None:
        guess = " by order" if isinstance(event, Message) and event.paired == "order" else ""
        how = "answers" if event.latency_ns is None else f"{brief(event.latency_ns)} after"
        part = event.request_part if isinstance(event, Message) else 1
        words.append(f"{how} {place_words(event.request, part)}{guess}")
    if isinstance(event, Message) and event.forwards is not None:
        place = event.forwards
        words.append(f"forwards {place_words(place.packet, place.part)} of connection {place.flow}")
    return words


def place_words(packet: int, part: int) -> str:
    """A message by its packet and, if it is not the first that ends there, by its part, as in ``#12`` and ``#12.2``."""
    return f"#{packet}" if part == 1 else f"#{packet}.{part}"


def command_fields(event: Command) -> list[tuple[str, str | Octets]]:
    """The fields of a command by the names that people know, as octets or as text that is ready to be shown."""
    fields: list[tuple[str, str | Octets]] = []
    for name in _OWN_FIELDS:
        value = getattr(event, name)
        if value is None or name in _TOLD_APART:
            continue
        if name == "properties":
            fields += [(escape(key), octets) for key, octets in value.items()]
        elif name == "ttl_ms":
            fields.append(("ttl", f"{value} ms"))
        elif isinstance(value, int):
            fields.append((name, str(value)))
        else:
            fields.append((name.replace("_", " "), escape(value) if isinstance(value, str) else value))
    return fields


def field_words(event: Command, max_bytes: int, more: str, tells_encryption: bool = False) -> str:
    """A command's fields and its relations, as in ``REQ Identity="a" (2 ms after #7)``; may be empty."""
    words = []
    for name, value in command_fields(event):
        if name.lower() == "socket-type" and event.socket_type is not None:
            words.append(escape(event.socket_type))
            continue
        if name.lower() == "identity" and value == b"":
            continue
        shown = value if isinstance(value, str) else quote(value, max_bytes, more)
        words.append(f"{name.replace(' ', '-')}={shown}")
    if event.incomplete:
        words.append("(incomplete)")
    if event.encrypted and tells_encryption:
        words.append("(encrypted)")
    if relations := relation_words(event):
        words.append(f"({', '.join(relations)})")
    return " ".join(words)


def end_words(event: Connection) -> str:
    """How a connection ended, as in ``closed after 1.2 s``."""
    return f"{ENDS[event.end]} after {brief(event.end_ns - event.start_ns)}"


def peer_words(peer: Peer, max_bytes: int, more: str) -> str:
    """One end of a connection as it announced itself: ``REQ ZMTP 3.1 identity "worker"``; may be empty."""
    words = [] if peer.type_name is None else [escape(peer.type_name)]
    if peer.inferred:
        words.append("(inferred)")
    if peer.version is not None:
        words.append(protocol(peer.version))
    if peer.identity is not None and peer.identity != b"":
        words.append(f"identity {quote(peer.identity, max_bytes, more)}")
    if peer.beacon is not None:
        words.append(f"beacon #{peer.beacon}")
    if process := program(peer.process):
        words.append(process)
    return " ".join(words)


def program(process: Process | None) -> str:
    """The program at one end of a connection, as in ``python3 [4711] in 8f3ab2c41d90``; empty if it is not known."""
    if process is None:
        return ""
    where = process.pod or process.container
    place = f" in {escape(where)}" if where is not None else ""
    return f"{escape(process.name)} [{process.pid}]{place}"


def connection_words(event: Connection) -> str:
    """The agreement of a connection's two ends, as in ``ZMTP 3.1 NULL, handshake complete``; may be empty."""
    agreed = [protocol(event.version)] if event.version is not None else []
    if event.mechanism is not None:
        agreed.append(escape(event.mechanism))
    parts = [" ".join(agreed)] if agreed else []
    if event.handshake is not None:
        parts.append(f"handshake {event.handshake.replace('-', ' ')}")
    return ", ".join(parts)


def command_words(event: Command) -> str:
    """The name of a command, with the socket type that a READY or INITIATE announces, as in ``READY REQ``."""
    return " ".join([escape(word) for word in (event.name, event.socket_type) if word is not None])
