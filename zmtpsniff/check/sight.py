"""Finds what a capture may lack of a connection. A rule that asks for it is not checked.

Only the handshake shows which mechanism, version and socket types both sides have. A capture that begins after it
lacks that.
"""

from collections.abc import Callable

from dissectors.events import Connection, Peer

Unseen = Callable[[Connection], bool]
"""Whether the capture does not show of a connection what a rule asks for."""

# Fields that only greetings and commands of a handshake have.
_OF_HANDSHAKE = frozenset(
    {"as_server", "client_key", "cookie", "long_term_key", "password", "properties", "server_key", "shared_key",
     "username"}
)  # fmt: skip
_RECORDS = frozenset({b"greeting"})
_COMMANDS = frozenset({b"HELLO", b"WELCOME", b"INITIATE", b"READY"})
_OF_BOTH = frozenset({"mechanism", "version"})
_OF_PEERS = frozenset({"socket_type", "version", "identity"})


def has_handshake(connection: Connection) -> bool:
    """Whether its handshake is in the capture, or it has none."""
    return connection.handshake != "not-seen"


def certain_type(peer: Peer) -> str | None:
    """The type of a socket, None if nobody knows it or it may have another one."""
    return peer.socket_type if peer.lookalike is None else None


def types_unknown(connection: Connection) -> bool:
    """Whether its socket types are unknown, and its messages do not show them either."""
    return not has_handshake(connection) and None in (connection.client.socket_type, connection.server.socket_type)


def unseen_by(text: str) -> Unseen | None:
    """Finds connections for which the capture may lack a fact that a filter asks for; None if it lacks nothing."""
    from zmtpsniff.filters.mentions import mentions_of  # imports the parser

    fields, texts, _ = mentions_of(text)
    if fields & _OF_HANDSHAKE or ("type" in fields and texts & _RECORDS) or ("name" in fields and texts & _COMMANDS):
        return lambda connection: not has_handshake(connection)
    asked = [field for field in fields if _can_be_unseen(field)]
    if not asked:
        return None
    return lambda connection: not has_handshake(connection) and any(_is_missing(connection, each) for each in asked)


def _can_be_unseen(field: str) -> bool:
    side, _, name = field.rpartition(".")
    return field in _OF_BOTH | _OF_PEERS or (side in ("client", "server") and name in _OF_PEERS)


def _is_missing(connection: Connection, field: str) -> bool:
    side, _, name = field.rpartition(".")
    if side:
        peer: Peer = getattr(connection, side)
        return (certain_type(peer) if name == "socket_type" else getattr(peer, name)) is None
    if field in _OF_BOTH:
        return getattr(connection, field) is None
    return getattr(connection.client, field) is None or getattr(connection.server, field) is None
