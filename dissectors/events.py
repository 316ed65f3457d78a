"""What dissectors report: one type for each record of the JSON output.

An event is a fact read from the wire; it is made once and never changed. Its fields are the fields of the JSON
record of the same name, in that order; a field that does not apply is ``None`` and left out of the record.

Octets from the wire stay ``bytes`` here. Whether they are shown as text, as hexadecimal digits or as a dump is for
those who show them, so that nothing is converted that nobody looks at.
"""

from typing import Any, Literal

import msgspec

Severity = Literal["error", "warning", "note"]
Side = Literal["client", "server"]


UNBOUNDED = 1 << 62
"""The stream offset that stands for: nothing is known of what a sender had seen."""

# Fields that are no part of a record. ``offset`` is where, in the stream of an event's sender, the octets begin that
# completed it; ``seen`` where those of the other side begin that the sender had not received by then. ``since_ns`` is
# the time of the last octets before those that are missing.
_FOR_ANALYSIS = frozenset({"offset", "seen", "since_ns"})


class Cut(msgspec.Struct, frozen=True, gc=False):
    """Octets of which only the first are at hand: the rest was over a limit or is not in the capture."""

    data: bytes
    length: int  # octets on the wire, len(data) or more


class Hidden(msgspec.Struct, frozen=True, gc=False):
    """Octets that must not be shown (a password), of which only the number is known."""

    length: int


Octets = bytes | Cut | Hidden


def at_hand(octets: Octets) -> bytes:
    """Those of some octets that are at hand: all, the first, or none."""
    if isinstance(octets, bytes):
        return octets
    return octets.data if isinstance(octets, Cut) else b""


def without_first(octets: Octets, number: int) -> Octets:
    """Octets without the first ``number``, which are at hand."""
    if isinstance(octets, Cut):
        return Cut(octets.data[number:], octets.length - number)
    return at_hand(octets)[number:]


def record_fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields that the record of an event, or of a part of one, has."""
    return tuple(field for field in msgspec.structs.fields(kind) if field.name not in _FOR_ANALYSIS)


class Event(msgspec.Struct, tag_field="type", omit_defaults=True, gc=False):
    """Base of all events."""


class WireEvent(Event):
    """An event that has a sender and a place in the capture.

    ``time_ns`` is Unix time in nanoseconds, ``packet`` the 1-based number of the packet that completed the event,
    ``flow`` the number of the connection, ``src`` and ``dst`` are ``address:port``.
    """

    time_ns: int
    packet: int
    flow: int
    src: str
    dst: str


class Greeting(WireEvent, tag="greeting"):
    """What one side announces about itself before anything else (23/ZMTP, 15/ZMTP, 13/ZMTP)."""

    version: str | None = None
    mechanism: str | None = None
    as_server: bool | None = None
    socket_type: str | None = None
    identity: Octets | None = None


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The frames in front of what a request or reply says (28/REQREP): identities, and an empty one as delimiter."""

    identities: int
    delimiter: bool


class Place(msgspec.Struct, frozen=True, gc=False):
    """Another message of the same capture."""

    flow: int
    packet: int


class Command(WireEvent, tag="command"):
    """A command frame of ZMTP 3.x, or a CURVE MESSAGE; which fields it has depends on its name."""

    name: str
    properties: dict[str, Octets] | None = None  # READY, INITIATE: by their names as on the wire
    socket_type: str | None = None  # READY, INITIATE: the property of that name, in upper or lower case
    identity: Octets | None = None  # likewise
    reason: Octets | None = None  # ERROR, CLOSE
    ttl_ms: int | None = None  # PING
    context: Octets | None = None  # PING, PONG
    group: Octets | None = None  # JOIN, LEAVE
    username: Octets | None = None  # PLAIN HELLO
    password: Octets | None = None
    version: str | None = None  # CURVE HELLO
    client_key: Octets | None = None  # CURVE HELLO: the client's transient public key
    nonce: Octets | None = None  # CURVE
    cookie: Octets | None = None  # CURVE INITIATE
    box: Octets | None = None  # CURVE, GSSAPI: the encrypted part
    token: Octets | None = None  # GSSAPI INITIATE
    status: int | None = None  # CLOSE of WebSocket: why the connection is closed (RFC 6455, section 7.4)
    data: Octets | None = None  # what an unknown or malformed command holds after its name
    offset: int = 0
    seen: int = UNBOUNDED
    incomplete: bool = False  # octets of it are missing from the capture
    latency_ns: int | None = None  # PONG: since the PING that it answers
    request: int | None = None  # number of the packet with that


class Subscription(WireEvent, tag="subscription"):
    """A topic subscribed to or cancelled, sent as a command (3.1) or as a message (29/PUBSUB)."""

    action: Literal["subscribe", "cancel"]
    topic: Octets
    encoding: Literal["message", "command"]
    offset: int = 0
    seen: int = UNBOUNDED
    incomplete: bool = False


class Payload(msgspec.Struct, gc=False):
    """What an application says in a message, as a dissector of its protocol knows it.

    ``fields`` are strings, numbers, booleans and octets, or lists and dicts of those; in a record they stand beside
    ``protocol`` and ``summary``. Octets of ``fields`` that nobody should see are ``Hidden`` (see ``secrets``).
    """

    protocol: str  # the name of the dissector
    summary: str  # one line
    fields: dict[str, Any] = {}
    secrets: list[int] = []  # places of frames that hold credentials, which are not shown to people


class Body(msgspec.Struct, frozen=True, gc=False):
    """What is in a frame that some encoding of structures was found in."""

    frame: int  # its place in the message, from 0
    format: str  # "json", "msgpack", "gzip json" ...
    value: Any


class Message(WireEvent, tag="message"):
    """An application's message with all its frames."""

    frames: list[Octets]
    socket_type: str | None = None  # of the sender
    offset: int = 0
    seen: int = UNBOUNDED
    incomplete: bool = False  # frames or octets are, or may be, missing from the capture
    # What other messages tell of it; these are set later, by those who see all of them.
    envelope: Envelope | None = None
    matched: Octets | None = None  # the subscription that it matches
    latency_ns: int | None = None  # since the request that it answers
    request: int | None = None  # number of the packet with that
    paired: Literal["envelope", "order"] | None = None  # how, where the protocol itself does not say it
    forwards: Place | None = None  # the same message on its way to the proxy that sent this one on
    payload: Payload | None = None  # what it says in the protocol of its application, where that is known
    bodies: list[Body] = []  # what is in its frames, where that was asked for


class Beacon(WireEvent, tag="beacon"):
    """A datagram with which a peer of ZRE tells its network that it is there (20/ZRE, 36/ZRE)."""

    version: str  # "1"; "3" is Zyre's with a key
    uuid: str  # 32 hexadecimal digits; the peer's identity in connections is an octet 1 and these
    port: int  # where it takes connections, on the address that sent this; 0 if it takes leave
    public_key: Octets | None = None  # version 3: of CURVE
    data: Octets | None = None  # what later versions have behind the port


class Problem(Event, tag="problem"):
    """Something that is wrong or worth knowing; ``code`` is a key of :data:`dissectors.problems.PROBLEMS`."""

    severity: Severity
    code: str
    detail: str
    time_ns: int | None = None
    packet: int | None = None
    flow: int | None = None
    src: str | None = None
    dst: str | None = None
    since_ns: int | None = None


class Comment(Event, tag="comment"):
    """A comment that somebody wrote into the capture file, on a packet or on the whole capture."""

    text: str
    time_ns: int | None = None
    packet: int | None = None


class Peer(msgspec.Struct, omit_defaults=True, gc=False):
    """One end of a connection, as it announced itself."""

    address: str
    version: str | None = None
    socket_type: str | None = None
    identity: Octets | None = None
    beacon: int | None = None  # number of the packet with the first beacon that announced it


class Sides(msgspec.Struct, gc=False):
    """A number for each side of a connection."""

    client: int
    server: int


Transport = Literal["tcp", "ws", "udp", "pgm", "epgm", "ipc"]
Handshake = Literal["complete", "failed", "incomplete", "not-seen"]
End = Literal["fin", "rst", "timeout", "open"]


class Connection(Event, tag="connection"):
    """The summary of one connection, once it or the capture is over."""

    flow: int
    transport: Transport
    client: Peer
    server: Peer
    messages: Sides
    octets: Sides
    start_ns: int
    end_ns: int
    end: End
    version: str | None = None  # negotiated
    mechanism: str | None = None  # if both agree
    handshake: Handshake | None = None
    subscriptions: list[Octets] = []  # topics still subscribed to


class Share(msgspec.Struct, gc=False):
    """What one worker got of a pusher's messages."""

    address: str
    messages: int
    share: float  # of all of them, 0 to 1


class Work(Event, tag="work"):
    """How a PUSH socket shared its messages among its workers (30/PIPELINE), at the end of the capture."""

    address: str  # of the socket that pushes, which its workers connect to
    messages: int
    workers: list[Share]


class Capture(Event, tag="capture"):
    """The totals of a run, its last record."""

    packets: int
    dropped: int
    flows: int
    zmtp_flows: int
    messages: int
    problems: int
    duration_ns: int


AnyEvent = Greeting | Command | Subscription | Message | Beacon | Problem | Comment | Connection | Work | Capture
