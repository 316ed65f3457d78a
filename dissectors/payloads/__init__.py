"""Application protocols inside messages: what a payload dissector is, and what it needs.

A dissector is any object with the attributes of :class:`PayloadDissector`. Built-in ones have a file each here,
plug-ins are elsewhere; both import from this module only.
"""

from typing import Any, Literal, Protocol, get_args

from dissectors.address import port_of
from dissectors.events import Hidden, Message, Octets, Payload, Place, at_hand, printable, text
from dissectors.zmtp.commands import parse_metadata

__all__ = [
    "REQUEST",
    "Hidden",
    "Message",
    "Octets",
    "Payload",
    "PayloadConnection",
    "PayloadDissector",
    "PayloadKind",
    "Place",
    "Reader",
    "at_hand",
    "body_start",
    "fields_of",
    "has_signature",
    "parse_metadata",
    "printable",
    "request_fields",
    "text",
]

PayloadKind = Literal[
    "text", "number", "boolean", "octets", "object", "value", "list of texts", "list of numbers", "list of octets",
    "list of objects", "list of values",
]  # fmt: skip
"""The type of a payload's field; a ``value`` may have another type in each message."""

REQUEST: dict[str, PayloadKind] = {"request": "number", "request_part": "number"}
"""The fields that say which request a message answers."""
MOST_WAITING = 1000
"""Requests to remember of a connection that nobody answers."""

_ENVELOPE = 8  # frames in which the end of an envelope is looked for


def request_fields(place: Place) -> dict[str, Any]:
    """The values of these fields for a request at ``message.place`` of its message. A part of 1 is left out."""
    return {"request": place.packet} if place.part == 1 else {"request": place.packet, "request_part": place.part}


class PayloadConnection:
    """The connection of a message, as a payload dissector sees it."""

    __slots__ = ("_one", "_other", "flow", "show_secrets", "socket_types", "state")

    def __init__(self, flow: int, one: str, other: str, show_secrets: bool = False) -> None:
        """``one`` and ``other`` are the addresses of its ends, ``address:port``, in any order."""
        self.flow = flow
        self._one = one
        self._other = other
        self.show_secrets = show_secrets  # whether credentials may be shown
        self.socket_types: dict[str, str] = {}  # address to the socket type that it announced
        self.state: dict[Any, Any] = {}  # of this dissector on this connection, for what it has to remember

    @property
    def client(self) -> str:
        """The end with the higher port, which nearly always is the client."""
        return max(self._other, self._one, key=self.port)

    @property
    def server(self) -> str:
        """The other end."""
        return self._one if self.client is self._other else self._other

    def from_client(self, message: Message) -> bool:
        """Whether the client of the TCP connection sent the message."""
        return message.src == self.client

    def port(self, address: str) -> int:
        """The port of one of the addresses."""
        return port_of(address)


class PayloadDissector(Protocol):
    """Knows one protocol. A run has one object of the class, so the object's own memory is of all connections.

    A dissector may have a ``signature``: octets that begin a frame in every message of the protocol, where a body may
    begin (:func:`has_signature`). Then it is asked only about messages that have such a frame.

    It may have ``least_frames``: it is not asked about messages with fewer frames, unless it recognised another
    message of their connection.

    It may have ``fields``: the names of its payloads' fields and the :data:`PayloadKind` of each. A field inside
    another is written ``header.date``.
    """

    name: str  # short, as users type it: "mlm"

    def match(self, message: Message, connection: PayloadConnection) -> float | bool:
        """How certain it is that the message is of this protocol: 0 to 1, or False or True.

        From 0.5 on a message counts as recognised. If several dissectors recognise a message, the most certain one
        gets it. Look at the first octets first: this is called for many messages.
        """

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The payload of the message; None if it is not of this protocol after all."""


def fields_of(dissector: PayloadDissector) -> dict[str, PayloadKind]:
    """The fields that a dissector declares for its payloads; none if it declares none.

    Raises ValueError if the declaration has another form.
    """
    fields = getattr(dissector, "fields", {})
    if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
        raise ValueError("fields: no dict of names")
    for name, kind in fields.items():
        if kind not in get_args(PayloadKind):
            raise ValueError(f"fields: {name} is {kind!r}, which is none of {', '.join(get_args(PayloadKind))}")
    return fields


class Reader:
    """Reads numbers and strings from octets, in network order. Raises ValueError if there are too few octets."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        """Read ``data`` from ``place`` on."""
        self.data = data
        self.place = place

    def octets(self, length: int) -> bytes:
        """The next ``length`` octets."""
        end = self.place + length
        if end > len(self.data):
            raise ValueError(f"{length} octets expected, {len(self.data) - self.place} left")
        found = self.data[self.place : end]
        self.place = end
        return found

    def number(self, length: int) -> int:
        """A number of ``length`` octets."""
        return int.from_bytes(self.octets(length), "big")

    def string(self, size: int = 1) -> str:
        """A string after its length, which is a number of ``size`` octets, as ZProto's codecs write it."""
        return text(self.octets(self.number(size)))

    def strings(self) -> list[str]:
        """A list of long strings behind its length."""
        return [self.string(4) for _ in range(self._count(4))]

    def dictionary(self) -> dict[str, str]:
        """Names and long strings behind their number."""
        return {self.string(): self.string(4) for _ in range(self._count(5))}

    def end(self) -> None:
        """Raise ValueError if octets are left."""
        if self.place != len(self.data):
            raise ValueError(f"{len(self.data) - self.place} octets too many")

    def _count(self, least: int) -> int:
        """A number of items that take at least ``least`` octets each.

        Raises ValueError if the octets cannot hold so many.
        """
        count = self.number(4)
        if count * least > len(self.data) - self.place:
            raise ValueError(f"{count} items expected, {len(self.data) - self.place} octets left")
        return count


def has_signature(frames: list[Octets], signatures: tuple[bytes, ...]) -> bool:
    """Whether one of the first nine frames, in which the body may begin, begins with one of these octets."""
    for frame in frames[: _ENVELOPE + 1]:  # noqa: SIM110 (a generator takes twice as long)
        if isinstance(frame, bytes) and frame.startswith(signatures):
            return True
    return False


def body_start(frames: list[Octets]) -> int:
    """The place of the first frame after the envelope: after the first empty frame, 0 if there is none."""
    first = frames[:_ENVELOPE]
    return first.index(b"") + 1 if b"" in first else 0
