"""The events that dissectors report: one type for each record of the JSON output.

An event is a fact read from the wire. Its fields are the fields of the JSON record of the same name, in that order. A
field that does not apply is ``None``, and the record leaves it out. The meaning and the unit of a field stand beside
its type, and nowhere else: :mod:`dissectors.records` says who reads them.

Octets from the wire stay ``bytes`` here. Renderers show them as text, as hexadecimal digits or as a dump, so nothing is
converted that nobody looks at.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, get_args

import msgspec

from dissectors.records import internal, meaning, moment, record_fields, relation
from dissectors.zmtp.sockets import WITH_TOPICS

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # from the worst on
Side = Literal["client", "server"]


UNBOUNDED = 1 << 62
"""A stream offset for a sender of whom nobody knows what it had received."""


_LONGEST = (1 << 63) - 1  # len() gives no more


class Cut(msgspec.Struct, frozen=True, gc=False):
    """Octets of which only the first are at hand: the rest was over a limit or is not in the capture."""

    data: bytes
    length: int  # octets on the wire, len(data) or more

    def __len__(self) -> int:
        """The octets on the wire, within what Python takes for a length: a sender may claim any."""
        return min(max(self.length, 0), _LONGEST)

    def __bool__(self) -> bool:
        """True: octets are there, also if none was kept."""
        return True


class Hidden(msgspec.Struct, frozen=True, gc=False):
    """Octets that must not be shown, such as a password. Only their number is known."""

    length: int

    def __len__(self) -> int:
        """The octets on the wire."""
        return self.length

    def __bool__(self) -> bool:
        """True: octets are there, also if none was kept."""
        return True


Octets = bytes | Cut | Hidden


def at_hand(octets: Octets) -> bytes:
    """The octets at hand: all, the first ones, or none."""
    if isinstance(octets, bytes):
        return octets
    return octets.data if isinstance(octets, Cut) else b""


def without_first(octets: Octets, number: int) -> Octets:
    """Octets without the first ``number``, which are at hand."""
    if isinstance(octets, Cut):
        return Cut(octets.data[number:], octets.length - number)
    return at_hand(octets)[number:]


def text(octets: Octets) -> str:
    """A name from the wire as a string. Octets that are not UTF-8 become ``\\x..``, so nothing is lost."""
    return at_hand(octets).decode("utf-8", "backslashreplace")


def printable(octets: bytes) -> str | None:
    """The text of octets that are printable ASCII characters; None of other octets."""
    return shown if octets.isascii() and (shown := octets.decode()).isprintable() else None


# Fields that several events have.
_TIME = moment("When its last packet was captured")
_PACKET = meaning("The number of the packet that completed it, from 1.")
_FLOW = meaning("The number of the connection, from 1.")
_SRC = meaning('The sender, as address and port: "10.0.0.1:5555", "[::1]:5555".')
_DST = meaning("The receiver, in the same way.")
_INCOMPLETE = meaning("Octets of it are, or may be, missing from the capture.")
_ENCRYPTED = meaning("It came in a box of CURVE, which a key opened (--curve-keys).")
_LATENCY = relation("How long it came after what it answers.", "ns")
_REQUEST = relation("The number of the packet with what it answers.")
_INFERRED = relation("The type of its socket is not announced, but found out by what it sends.")
_LOOKALIKE = relation(
    'Where the type is inferred: the one that the socket may have as well, "DEALER". Sockets of both can send '
    "the same, and nothing in the capture tells them apart."
)
_PART = meaning(
    "Which of the messages of this connection and sender that end in this packet, from 1. JSON leaves a 1 out."
)

Offset = Annotated[int, internal()]
"""The stream offset, in the octets of an event's sender, of the octets that completed the event."""
Seen = Annotated[int, internal()]
"""The stream offset up to which the sender of an event had received the octets of the other side."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Event(msgspec.Struct, tag_field="type", omit_defaults=True, gc=False):
    """Base of all events."""

    def __repr__(self) -> str:
        """The fields of its record that apply."""
        given = [
            f"{field.name}={value!r}"
            for field in record_fields(type(self))
            if (value := getattr(self, field.name)) != field.default or field.required
        ]
        return f"{type(self).__name__}({', '.join(given)})"


class WireEvent(Event):
    """An event that has a sender and a place in the capture."""

    time_ns: Annotated[int, _TIME]
    packet: Annotated[int, _PACKET]
    flow: Annotated[int, _FLOW]
    src: Annotated[str, _SRC]
    dst: Annotated[str, _DST]

    @property
    def time(self) -> datetime:
        """``time_ns`` as a time in UTC, which has microseconds."""
        return _EPOCH + timedelta(microseconds=self.time_ns // 1000)


class Greeting(WireEvent, tag="greeting"):
    """The facts that one side announces about itself before anything else (23/ZMTP, 15/ZMTP, 13/ZMTP)."""

    version: Annotated[str | None, meaning('The version that this side announces: "3.1".')] = None
    mechanism: Annotated[
        str | None, meaning('The security mechanism announced: "NULL", "PLAIN", "CURVE", "GSSAPI".')
    ] = None
    as_server: Annotated[
        bool | None, meaning("Whether the greeting's side is the server of the security mechanism.")
    ] = None
    socket_type: Annotated[str | None, meaning('ZMTP 2.0: the type of the sender\'s socket: "REQ".')] = None
    identity: Annotated[Octets | None, meaning("ZMTP 1.0, 2.0: the identity (routing id) of this side.")] = None


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The frames in front of what a request or reply says (28/REQREP): identities, and an empty one as delimiter."""

    identities: Annotated[int, meaning("How many identities and numbers of requests are in front of it.")]
    delimiter: Annotated[bool, meaning("Whether an empty frame follows them.")]


class Place(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Another message of the same capture."""

    flow: Annotated[int, meaning("The connection of that message.")]
    packet: Annotated[int, meaning("The packet of that message.")]
    part: Annotated[int, meaning("The part of that message. JSON leaves a 1 out.")] = 1


class Command(WireEvent, tag="command"):
    """A command frame of ZMTP 3.x, or a CURVE MESSAGE. The fields that it has depend on its name."""

    name: Annotated[str, meaning('The name of a command: "READY", "PING".')]
    properties: Annotated[
        dict[str, Octets] | None,
        meaning("READY, INITIATE: what it announces, by the names as on the wire."),
    ] = None
    socket_type: Annotated[str | None, meaning('READY, INITIATE: the type of the sender\'s socket: "REQ".')] = None
    identity: Annotated[Octets | None, meaning("READY, INITIATE: the identity (routing id) of this side.")] = None
    reason: Annotated[Octets | None, meaning("ERROR, CLOSE: why, in words.")] = None
    ttl_ms: Annotated[int | None, meaning("PING: how long the connection may be silent.", "ms")] = None
    context: Annotated[Octets | None, meaning("PING, PONG: what PING gives PONG to return.")] = None
    group: Annotated[Octets | None, meaning("JOIN, LEAVE: the group.")] = None
    username: Annotated[Octets | None, meaning("PLAIN HELLO: the user name.")] = None
    password: Annotated[Octets | None, meaning("PLAIN HELLO: the password; only its length unless --show-secrets.")] = (
        None
    )
    version: Annotated[str | None, meaning('CURVE HELLO: the version of CURVE: "1.0".')] = None
    client_key: Annotated[Octets | None, meaning("CURVE HELLO: the client's transient public key.")] = None
    server_key: Annotated[
        Octets | None,
        meaning(
            "CURVE, opened by a key: the server's public key; in HELLO the long-term one that the client asks for, "
            "in WELCOME the transient one."
        ),
    ] = None
    long_term_key: Annotated[
        Octets | None, meaning("CURVE INITIATE, opened by a key: the client's long-term public key.")
    ] = None
    shared_key: Annotated[
        Octets | None,
        meaning("CURVE INITIATE, opened: the key of this connection; only its length unless --show-secrets."),
    ] = None
    nonce: Annotated[Octets | None, meaning("CURVE: the nonce, as short as it is sent.")] = None
    cookie: Annotated[Octets | None, meaning("CURVE INITIATE: the cookie that WELCOME gave.")] = None
    box: Annotated[Octets | None, meaning("CURVE, GSSAPI: the encrypted part.")] = None
    token: Annotated[Octets | None, meaning("GSSAPI INITIATE: the token.")] = None
    status: Annotated[int | None, meaning("CLOSE of WebSocket: why it is closed (RFC 6455, section 7.4).")] = None
    data: Annotated[Octets | None, meaning("What an unknown or malformed command holds after its name.")] = None
    offset: Offset = 0
    seen: Seen = UNBOUNDED
    incomplete: Annotated[bool, _INCOMPLETE] = False
    encrypted: Annotated[bool, _ENCRYPTED] = False
    latency_ns: Annotated[int | None, _LATENCY] = None
    request: Annotated[int | None, _REQUEST] = None


class Subscription(WireEvent, tag="subscription"):
    """A topic subscribed to or cancelled, sent as a command (3.1) or as a message (29/PUBSUB)."""

    action: Annotated[Literal["subscribe", "cancel"], meaning("What is done.")]
    topic: Annotated[Octets, meaning("The topic subscribed to or cancelled.")]
    encoding: Annotated[Literal["message", "command"], meaning("How a subscription was sent.")]
    offset: Offset = 0
    seen: Seen = UNBOUNDED
    incomplete: Annotated[bool, _INCOMPLETE] = False
    encrypted: Annotated[bool, _ENCRYPTED] = False


class Payload(msgspec.Struct, gc=False):
    """The words of an application in a message, with fields of its protocol."""

    protocol: Annotated[str, meaning('The protocol, by the name of its dissector: "mlm", "jupyter".')]
    summary: Annotated[str, meaning("What it says, on one line.")]
    # Strings, numbers, booleans and octets (secrets are Hidden), or lists and dicts of these. In a record they stand
    # beside the two fields above.
    fields: Annotated[dict[str, Any], internal()] = {}
    secrets: Annotated[list[int], internal()] = []  # places of frames that hold credentials, not shown to people


class Body(msgspec.Struct, frozen=True, gc=False):
    """A structure found in a frame: JSON, MessagePack, CBOR or Protocol Buffers."""

    frame: Annotated[int, meaning("The place of the frame, from 0.")]
    format: Annotated[str, meaning('What it is in: "msgpack", "gzip json".')]
    value: Annotated[Any, meaning("Its value.")]


class Message(WireEvent, tag="message"):
    """An application's message with all its frames."""

    frames: Annotated[list[Octets], meaning("All its frames, in their order.")]
    socket_type: Annotated[str | None, meaning('The type of the sender\'s socket: "REQ".')] = None
    inferred: Annotated[bool, _INFERRED] = False
    lookalike: Annotated[str | None, _LOOKALIKE] = None
    offset: Offset = 0
    seen: Seen = UNBOUNDED
    part: Annotated[int, _PART] = 1
    incomplete: Annotated[bool, _INCOMPLETE] = False
    encrypted: Annotated[bool, _ENCRYPTED] = False
    envelope: Annotated[Envelope | None, relation("What is in front of a request or reply.")] = None
    matched: Annotated[Octets | None, relation("The subscription that a message matches.")] = None
    latency_ns: Annotated[int | None, _LATENCY] = None
    request: Annotated[int | None, _REQUEST] = None
    request_part: Annotated[int, relation("The part of the message that it answers. JSON leaves a 1 out.")] = 1
    paired: Annotated[
        Literal["envelope", "order", "forwards", "id"] | None,
        relation("How it was found what a reply answers, where the protocol does not say it."),
    ] = None
    forwards: Annotated[Place | None, relation("The same message on its way to the proxy that sent this one on.")] = (
        None
    )
    payload: Annotated[
        Payload | None,
        relation("What the application says; payload.NAME is a field of its protocol, of the type that it has there."),
    ] = None
    bodies: Annotated[list[Body], relation("What is in the frames of a message (--decode-bodies).")] = []
    # When the packet with its first octets came, if it is longer than a few packets.
    begun_ns: Annotated[int | None, internal()] = None
    # Of its last frame, if that was too long to be kept, and somebody asked for it.
    digest: Annotated[bytes | None, internal()] = None
    # Whether most messages of its form got replies, if an id in the bodies tells which.
    expects_reply: Annotated[bool | None, internal()] = None

    @property
    def topic(self) -> Octets | None:
        """The topic of a message of a PUB or XPUB, or the group of one of a RADIO: its first frame. None of others."""
        return self.frames[0] if self.frames and self.socket_type in WITH_TOPICS else None

    def octets(self, place: int) -> bytes:
        """The octets at hand of the frame at a place, from 0 (negative: from the end); raises IndexError."""
        return at_hand(self.frames[place])

    @property
    def place(self) -> Place:
        """Where it is, which no other message has in common with it."""
        return Place(self.flow, self.packet, self.part)

    @property
    def answers(self) -> Place | None:
        """Where the message is that it answers."""
        return None if self.request is None else Place(self.flow, self.request, self.request_part)


class Beacon(WireEvent, tag="beacon"):
    """A datagram by which a peer of ZRE announces itself to its network (20/ZRE, 36/ZRE)."""

    version: Annotated[str, meaning('The version of the beacon: "1"; "3" is Zyre\'s with a key.')]
    uuid: Annotated[
        str,
        meaning(
            "The UUID of the beacon's peer, as 32 hexadecimal digits; its identity is an octet 1 and these octets."
        ),
    ]
    port: Annotated[int, meaning("Where the beacon's peer takes connections; 0 if it takes leave.")]
    public_key: Annotated[Octets | None, meaning("Beacon of version 3: the peer's key of CURVE.")] = None
    data: Annotated[Octets | None, meaning("What later versions have after the port.")] = None


class Problem(Event, tag="problem"):
    """Something that is wrong or worth knowing."""

    severity: Annotated[Severity, meaning("How bad it is.")]
    code: Annotated[str, meaning("Which problem this is: zmtpsniff explain lists all.")]
    detail: Annotated[str, meaning("A problem in a sentence.")]
    time_ns: Annotated[int | None, _TIME] = None
    packet: Annotated[int | None, _PACKET] = None
    flow: Annotated[int | None, _FLOW] = None
    src: Annotated[str | None, _SRC] = None
    dst: Annotated[str | None, _DST] = None
    since_ns: Annotated[int | None, internal()] = None  # the last octets before those that are missing
    by_ns: Annotated[int | None, internal()] = None  # how late packets came, or by how much clocks differ


class Comment(Event, tag="comment"):
    """A comment that somebody wrote into the capture file, on a packet or on the whole capture."""

    text: Annotated[str, meaning("A comment in the capture file.")]
    time_ns: Annotated[int | None, _TIME] = None
    packet: Annotated[int | None, _PACKET] = None


class Process(msgspec.Struct, omit_defaults=True, frozen=True, gc=False):
    """A process of the machine that a live capture runs on (Linux)."""

    pid: Annotated[int, meaning("The number of the process.")]
    name: Annotated[str, meaning("The name of the process, as the kernel has it.")]
    container: Annotated[
        str | None, meaning("The container that it runs in: its name, or the first digits of its id.")
    ] = None
    pod: Annotated[str | None, meaning("The pod of Kubernetes that it runs in, as namespace/name.")] = None


class Peer(msgspec.Struct, omit_defaults=True, repr_omit_defaults=True, gc=False):
    """One end of a connection, as it announced itself."""

    address: Annotated[str, meaning("Its address and port.")]
    version: Annotated[str | None, meaning("The version that it announces.")] = None
    socket_type: Annotated[str | None, meaning("The type of its socket.")] = None
    identity: Annotated[Octets | None, meaning("Its identity.")] = None
    beacon: Annotated[int | None, relation("The number of the packet with the first beacon that announced it.")] = None
    inferred: Annotated[bool, _INFERRED] = False
    lookalike: Annotated[str | None, _LOOKALIKE] = None
    process: Annotated[Process | None, relation("Live on Linux: the process that has this end.")] = None

    @property
    def type_name(self) -> str | None:
        """The type of its socket, or the two that it may have: "REQ or DEALER"; None if nobody knows it."""
        return self.socket_type if self.lookalike is None else f"{self.socket_type} or {self.lookalike}"


class Sides(msgspec.Struct, gc=False):
    """A number for each side of a connection."""

    client: Annotated[int, meaning("Those that the client sent.")]
    server: Annotated[int, meaning("Those that the server sent.")]


Transport = Literal["tcp", "ws", "udp", "pgm", "epgm", "ipc"]
Handshake = Literal["complete", "failed", "incomplete", "not-seen"]
End = Literal["fin", "rst", "timeout", "open"]


class Connection(Event, tag="connection"):
    """The summary of one connection, once it or the capture is over."""

    flow: Annotated[int, _FLOW]
    transport: Annotated[Transport, meaning("What carries the connection.")]
    client: Annotated[Peer, meaning("The side that connected.")]
    server: Annotated[Peer, meaning("The side that was connected to.")]
    messages: Annotated[Sides, meaning("How many message records there are of it.")]
    octets: Annotated[Sides, meaning("How many octets its streams or datagrams had, each counted once.")]
    start_ns: Annotated[int, moment("When its first packet was captured")]
    end_ns: Annotated[int, moment("When its last packet was captured")]
    end: Annotated[End, meaning("How it ended.")]
    version: Annotated[str | None, meaning('The version negotiated: "3.1".')] = None
    mechanism: Annotated[str | None, meaning("The security mechanism, if both sides agree on it.")] = None
    handshake: Annotated[Handshake | None, meaning("What became of the handshake, where the transport has one.")] = None
    subscriptions: Annotated[list[Octets], meaning("The topics still subscribed to at its end.")] = []
    closed_by: Annotated[Side | None, meaning("Which side closed it first, if the capture shows that.")] = None

    @property
    def is_closed(self) -> bool:
        """Whether a side closed it; else nobody knows when it ended, or it is open."""
        return self.end in ("fin", "rst")

    @property
    def closer(self) -> Peer | None:
        """The side that closed it first; None if nobody knows."""
        return None if self.closed_by is None else self.client if self.closed_by == "client" else self.server


class Share(msgspec.Struct, gc=False):
    """The share of a pusher's messages that one worker got."""

    address: Annotated[str, meaning("The address and port of a worker.")]
    messages: Annotated[int, meaning("How many messages a worker got.")]
    share: Annotated[float, meaning("Which share of all messages a worker got, 0 to 1.")]


class Work(Event, tag="work"):
    """How a PUSH socket shared its messages among its workers (30/PIPELINE), at the end of the capture."""

    address: Annotated[str, meaning("The address and port of the socket that pushes, which its workers connect to.")]
    messages: Annotated[int, meaning("How many messages it sent.")]
    workers: Annotated[list[Share], meaning("Those who got its messages.")]


class Capture(Event, tag="capture"):
    """The totals of a run, its last record."""

    packets: Annotated[int, meaning("How many packets were captured.")]
    dropped: Annotated[int, meaning("How many packets were lost by the capture.")]
    flows: Annotated[int, meaning("How many connections there were.")]
    zmtp_flows: Annotated[int, meaning("How many of them were ZMTP.")]
    messages: Annotated[int, meaning("How many message records there were.")]
    problems: Annotated[int, meaning("How many problem records there were.")]
    duration_ns: Annotated[int, meaning("How long it took from the first packet to the last.", "ns")]
    end_ns: Annotated[int | None, internal()] = None  # when the last packet was captured, since 1970


AnyEvent = Greeting | Command | Subscription | Message | Beacon | Problem | Comment | Connection | Work | Capture
EVENT_TYPES: tuple[type[AnyEvent], ...] = get_args(AnyEvent)


def time_of(event: object) -> int | None:
    """When an event was made, nanoseconds since 1970: the end of a connection; None if it does not say."""
    return event.end_ns if isinstance(event, Connection) else getattr(event, "time_ns", None)
