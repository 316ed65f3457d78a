"""Which of the sockets of a capture are played again."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from dissectors.events import AnyEvent, Connection, Message, Octets, Peer, Side, Subscription
from dissectors.zmtp.sockets import DRAFTS, SENDING
from zmtpsniff.errors import Error

Key = tuple[str, int | str]
"""The facts that senders have in common if one socket plays them."""


class Role(NamedTuple):
    """One side of a connection of the capture, which is played."""

    flow: int
    side: Side
    address: str  # in the capture
    socket_type: str
    identity: bytes | None  # that it announced
    peer_identity: bytes | None  # that the other side announced
    key: Key


class Plan(NamedTuple):
    """The plan: senders by flow, each with how many messages and subscriptions in all."""

    senders: dict[int, Role]
    messages: int
    subscriptions: int

    @property
    def socket_types(self) -> list[str]:
        """The types of the sockets, each once."""
        return sorted({sender.socket_type for sender in self.senders.values()})


def make_plan(
    batches: Iterable[Sequence[AnyEvent]],
    passes: Callable[[AnyEvent], bool] | None,
    as_whom: str | None,
    bound: bool,
) -> Plan:
    """Read a capture and choose whom to play, by the messages that ``passes`` accepts. Raises Error if there is nobody.

    ``as_whom`` is a socket type, ``clients`` or ``servers``; None for clients if they sent messages, else servers.
    ``bound``: one socket, to which others connect, plays all.
    """
    sent: dict[tuple[int, str], list[int]] = {}  # messages and subscriptions, by flow and address
    connections: list[Connection] = []
    for events in batches:
        for event in events:
            if isinstance(event, (Message, Subscription)):
                if passes is None or passes(event):
                    sent.setdefault((event.flow, event.src), [0, 0])[isinstance(event, Subscription)] += 1
            elif isinstance(event, Connection):
                connections.append(event)
    sides: tuple[Side, ...] = ("server",) if as_whom == "servers" else ("client", "server")
    if as_whom == "clients":
        sides = ("client",)
    socket_type = None if as_whom in ("clients", "servers") else as_whom
    chosen = _chosen(connections, sent, socket_type, sides)
    if not chosen:
        what = "message" if as_whom is None else f"message of {as_whom}"
        raise Error(f"nothing to replay: no {what} passes" if sent else f"nothing to replay: there is no {what}")
    senders: dict[int, Role] = {}
    for connection, side in chosen:
        sender = _sender(connection, side, socket_type, bound)
        senders.setdefault(sender.flow, sender)  # the client, if both have the type
    plan = Plan(
        senders,
        sum([sent[sender.flow, sender.address][0] for sender in senders.values()]),
        sum([sent[sender.flow, sender.address][1] for sender in senders.values()]),
    )
    if bound and len(plan.socket_types) > 1:
        raise Error(f"--bind: one socket cannot be {' and '.join(plan.socket_types)}; choose with --as")
    return plan


def _chosen(
    connections: list[Connection],
    sent: dict[tuple[int, str], list[int]],
    socket_type: str | None,
    sides: tuple[Side, ...],
) -> list[tuple[Connection, Side]]:
    if socket_type is not None:
        return [
            (connection, side)
            for connection in connections
            for side in sides
            if _peer(connection, side).socket_type in (socket_type, None)
            and any(sent.get((connection.flow, _peer(connection, side).address), ()))
        ]
    for side in sides:
        chosen = [
            (connection, side)
            for connection in connections
            if sent.get((connection.flow, _peer(connection, side).address), (0, 0))[0]
        ]
        if chosen:
            return chosen
    return []


def _sender(connection: Connection, side: Side, socket_type: str | None, bound: bool) -> Role:
    own, other = _peer(connection, side), _peer(connection, "server" if side == "client" else "client")
    kind = own.socket_type or socket_type
    if kind is None:
        raise Error(f"the capture does not show the type of {own.address}'s socket; name it with --as")
    if kind in DRAFTS:
        raise Error(f"{kind} sockets cannot be replayed: pyzmq's libzmq has no sockets that are drafts")
    if kind not in SENDING:
        raise Error(f"{kind} sockets cannot be replayed")
    key: Key
    if bound:
        key = "bound", kind
    elif side == "client":
        key = "flow", connection.flow
    else:
        key = f"server {kind}", own.address
    return Role(connection.flow, side, own.address, kind, _name(own.identity), _name(other.identity), key)


def _peer(connection: Connection, side: Side) -> Peer:
    return connection.client if side == "client" else connection.server


def _name(identity: Octets | None) -> bytes | None:
    """An identity that a program chose; those that begin with a zero are ROUTER's own."""
    return identity if isinstance(identity, bytes) and identity and identity[0] else None
