"""Majordomo 0.1 and 0.2: clients, a broker and its workers (7/MDP, 18/MDP)."""

from typing import Any, ClassVar

from dissectors.payloads import (
    MOST_WAITING,
    REQUEST,
    Message,
    Octets,
    Payload,
    PayloadConnection,
    PayloadKind,
    Place,
    body_start,
    request_fields,
    text,
)

_CLIENT_V1, _WORKER_V1, _CLIENT_V2, _WORKER_V2 = b"MDPC01", b"MDPW01", b"MDPC02", b"MDPW02"
CLIENTS = frozenset({_CLIENT_V1, _CLIENT_V2})
"""The headers of messages between a client and a broker, which is a ROUTER."""
WORKERS = frozenset({_WORKER_V1, _WORKER_V2})
"""The headers of messages between a worker and a broker."""
_HEADERS = CLIENTS | WORKERS
_COMMANDS = {  # numbered from 1 on
    header: {bytes([number]): name for number, name in enumerate(names.split(), 1)}
    for header, names in (
        (_WORKER_V1, "READY REQUEST REPLY HEARTBEAT DISCONNECT"),
        (_CLIENT_V2, "REQUEST PARTIAL FINAL"),
        (_WORKER_V2, "READY REQUEST PARTIAL FINAL HEARTBEAT DISCONNECT"),
    )
}
# Majortomo numbers the commands of clients as 18/MDP numbers those of workers. Its replies name no service.
_OTHER_CLIENT: dict[bytes, str] = {b"\2": "REQUEST", b"\3": "PARTIAL", b"\4": "FINAL"}
_OTHER = ("other",)  # in the state of connections of that kind, whose other keys are no tuples
_LAST = frozenset({"REPLY", "FINAL"})  # after which nothing follows to a request


def command_of(header: Octets, number: Octets) -> str | None:
    """The name of a command, by the header in front of its number; None if there is none."""
    if not isinstance(header, bytes) or not isinstance(number, bytes):
        return None
    return _COMMANDS.get(header, {}).get(number)


class _Queue:
    """Requests that nothing tells apart."""

    __slots__ = ("count", "only")

    def __init__(self) -> None:
        self.count = 0
        self.only: Place | None = None

    def ask(self, place: Place) -> None:
        """One more waits."""
        self.only = None if self.count else place
        self.count += 1

    def answer(self) -> bool:
        """One of them has its last reply. Returns whether none is left."""
        self.count -= 1
        return not self.count


class Majordomo:
    """The protocols of clients and of workers. Replies are joined with their requests."""

    name = "mdp"
    signature = b"MDP"
    fields: ClassVar[dict[str, PayloadKind]] = {
        "version": "text", "role": "text", "command": "text", "service": "text", "body": "list of octets",
        "addresses": "list of octets", **REQUEST,
    }  # fmt: skip

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether one of the four headers is where it should be."""
        return _place(message.frames) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The command; the broker is the side that has a ROUTER socket."""
        place = _place(message.frames)
        if place is None:
            return None
        header, *rest = message.frames[place:]
        assert isinstance(header, bytes)
        fields: dict[str, Any] = {"version": "0.1" if header.endswith(b"1") else "0.2"}
        fields["role"] = "client" if header[3:4] == b"C" else "worker"
        if header == _CLIENT_V1:
            return _client(message, connection, fields, None, rest)
        if header == _CLIENT_V2 and rest and _is_other(rest[0], message, connection):
            assert isinstance(rest[0], bytes)
            kind = _OTHER_CLIENT.get(rest[0])
            return _client(message, connection, fields, kind, rest[1:], kind == "REQUEST") if kind else None
        kind = _COMMANDS[header].get(rest[0]) if rest and isinstance(rest[0], bytes) else None
        if kind is None:
            return None
        if header == _CLIENT_V2:
            return _client(message, connection, fields, kind, rest[1:])
        return _worker(message, connection, fields, kind, rest[1:])


def _place(frames: list[Octets]) -> int | None:
    if not frames:
        return None
    if isinstance(frames[0], bytes) and frames[0] in _HEADERS:
        return 0
    start = body_start(frames)
    if start < len(frames) and isinstance(header := frames[start], bytes) and header in _HEADERS:
        return start
    return None


def _is_other(number: Octets, message: Message, connection: PayloadConnection) -> bool:
    """Whether a client's connection has Majortomo's numbers.

    Either shows it: a 4, which others do not use, or a 2 of a client, since for others 2 is no request.
    """
    state = connection.state
    if number == b"\4" or (number == b"\2" and not _is_broker(message, connection)):
        state[_OTHER] = True
    return _OTHER in state


def _client(
    message: Message,
    connection: PayloadConnection,
    fields: dict[str, Any],
    kind: str | None,
    rest: list[Octets],
    names_service: bool = True,
) -> Payload | None:
    if names_service and not rest:
        return None
    if kind is None:  # 0.1 has no numbers of commands: the broker replies, all others request
        kind = "REPLY" if _is_broker(message, connection) else "REQUEST"
    fields["command"] = kind
    words = ["client", kind]
    if names_service:
        fields["service"], *rest = text(rest[0]), *rest[1:]
        words.append(fields["service"])
    fields["body"] = rest
    payload = Payload("mdp", " ".join(words), fields)
    _join(message, connection, payload, kind, "" if _OTHER in connection.state else fields["service"])
    return payload


def _worker(
    message: Message, connection: PayloadConnection, fields: dict[str, Any], kind: str, rest: list[Octets]
) -> Payload | None:
    fields["command"] = kind
    if kind == "READY":
        if not rest:
            return None
        fields["service"] = text(rest[0])
        return Payload("mdp", f"worker READY {fields['service']}", fields)
    if kind in ("HEARTBEAT", "DISCONNECT"):
        return Payload("mdp", f"worker {kind}", fields)
    start = body_start(rest)
    if start == 0:
        return None
    addresses = rest[: start - 1]
    fields |= {"addresses": addresses, "body": rest[start:]}
    payload = Payload("mdp", " ".join([f"worker {kind}", *map(text, addresses)]), fields)
    _join(message, connection, payload, kind, tuple(map(text, addresses)))
    return payload


def _is_broker(message: Message, connection: PayloadConnection) -> bool:
    kind = connection.socket_types.get(message.src)
    return kind == "ROUTER" if kind else not connection.from_client(message)


def _join(message: Message, connection: PayloadConnection, payload: Payload, kind: str, key: Any) -> None:
    """Join a reply with the request to the same service, or of the same client, if only one waits.

    Workers answer in any order, and nothing tells the requests of one client to one service apart.
    """
    state: dict[Any, _Queue] = connection.state
    if kind == "REQUEST":
        if len(state) < MOST_WAITING:
            state.setdefault(key, _Queue()).ask(message.place)
    elif queue := state.get(key):
        if queue.only is not None:
            payload.fields |= request_fields(queue.only)
        if kind in _LAST and queue.answer():
            del state[key]
