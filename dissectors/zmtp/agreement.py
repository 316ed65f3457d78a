"""The agreement of both sides of a connection: what their greetings, or their upgrades, come to.

23/ZMTP ("Version Negotiation" and "Security Mechanism"), 45/ZWS ("Handshake", "No Mechanism"), RFC 7692.
"""

from functools import lru_cache

import msgspec

from dissectors.zmtp import commands, deflate, wire
from dissectors.zmtp import websocket_frames as ws
from dissectors.zmtp.greeting import GreetingV3, negotiated_v3
from dissectors.zmtp.opening import Opening
from dissectors.zmtp.security import MECHANISMS
from dissectors.zmtp.upgrade import PROTOCOL, Upgrade

_ALIKE = 64  # pairs of greetings to remember with what they agree on: most are like others before them
_NO_FAULTS: tuple[commands.Fault, ...] = ()


class Agreement(msgspec.Struct, frozen=True):
    """The agreement that the greetings of both sides come to."""

    version: str | None = None  # that both use; None if the capture does not show it
    mechanism: str | None = None  # that both use; None if they differ, there is none, or the capture lacks it
    is_known: bool = True  # the capture shows what both say of mechanisms
    failed: bool = False  # there will be no connection
    faults: tuple[commands.Fault, ...] = _NO_FAULTS


_Announced = tuple[int | None, GreetingV3 | None, str | None]
"""The announcement of a side: its revision, the rest of its greeting, and its mechanism."""


def agree(one: Opening, other: Opening) -> Agreement:
    """The agreement of two greetings of 3.x (23/ZMTP, "Version Negotiation" and "Security Mechanism")."""
    return _agree((one.revision, one.greeting, one.mechanism), (other.revision, other.greeting, other.mechanism))


@lru_cache(_ALIKE)
def _agree(one: _Announced, other: _Announced) -> Agreement:
    version = None
    mine, yours = _version(one), _version(other)
    if mine is not None and yours is not None:
        version = negotiated_v3(mine, yours)
    (_, said, mechanism), (_, answered, theirs) = one, other
    if mechanism is None or theirs is None:
        return Agreement(version, is_known=False)
    if mechanism != theirs:
        detail = f"the client announces {mechanism or 'none'}, the server {theirs or 'none'}"
        return Agreement(version, failed=True, faults=(("mechanism-mismatch", detail),))
    if said is not None and not said.mechanism_is_legal:
        return Agreement(version, failed=True)
    if mechanism not in MECHANISMS:
        return Agreement(version, mechanism, faults=_unknown(mechanism))
    if mechanism != "NULL" and said is not None and said.as_server and answered is not None and answered.as_server:
        fault = "both-as-server", "both sides say that they are the server"
        return Agreement(version, mechanism, failed=True, faults=(fault,))
    return Agreement(version, mechanism)


def _version(announced: _Announced) -> tuple[int, int] | None:
    revision, rest, _ = announced
    return None if revision is None or rest is None or rest.minor is None else (revision, rest.minor)


def agree_zws(client: Upgrade, server: Upgrade) -> Agreement:
    """The agreement of two upgrades to ZWS; the server's protocol counts (45/ZWS, "Handshake")."""
    protocol = server.protocols[0]
    if protocol not in client.protocols:
        detail = f"the client offers {', '.join(client.protocols)}, the server chooses {protocol}"
        return Agreement(failed=True, faults=(("mechanism-mismatch", detail),))
    mechanism = server.mechanism
    unknown = mechanism is not None and mechanism not in MECHANISMS
    return Agreement(PROTOCOL, mechanism, faults=_unknown(mechanism) if unknown else _NO_FAULTS)


def inflater(one: Opening) -> deflate.Inflater | None:
    """Undoes the compression of a side, if the server has agreed to any (RFC 7692, section 7.1)."""
    server = _server(one)
    if server is None:  # its answer is not in the capture
        return deflate.Inflater(True)
    accepted = deflate.parameters(server.extensions)
    return None if accepted is None else deflate.Inflater(f"{one.side}_no_context_takeover" not in accepted)


def begins_with_identity(one: Opening, data: bytes, position: int) -> bool:
    """Whether the first message of WebSocket is the identity (45/ZWS, "No Mechanism").

    It is if there is no mechanism. Where the heads do not say whether there is one, ``data`` from ``position`` on show
    it: with a mechanism, commands come first.
    """
    server = _server(one)
    if server is not None and one.upgrade is not None and one.other.upgrade is not None:
        return server.protocols[0] == PROTOCOL
    header = ws.parse_header(data, position)
    if isinstance(header, int) or header[3] >= len(data):
        return one.mechanism is None
    return not ws.unmask(data[header[3] : header[3] + 1], header[1])[0] & wire.COMMAND_INSIDE


def _server(one: Opening) -> Upgrade | None:
    """The server's answer to an upgrade, which counts for both sides; None if it is not known."""
    return (one if one.side == "server" else one.other).upgrade


def _unknown(mechanism: str | None) -> tuple[commands.Fault, ...]:
    return (("unknown-mechanism", f"mechanism {mechanism!r} is not known"),)
