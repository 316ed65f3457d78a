"""The HTTP upgrade that a ZWS connection begins with (45/ZWS, "Handshake"; RFC 6455, section 4); pure functions."""

from typing import NamedTuple

HEAD_LIMIT = 16_384  # octets of a request or response up to its empty line
HEAD_END = b"\r\n\r\n"
_STARTS = (b"GET ", b"HTTP/")
PROTOCOL = "ZWS2.0"


class Upgrade(NamedTuple):
    """An upgrade to ZWS, from a request or a response."""

    line: str  # the first line
    protocols: tuple[str, ...]  # those of ZWS that it offers or chooses
    extensions: tuple[str, ...] = ()  # of WebSocket, each with its parameters

    @property
    def mechanism(self) -> str | None:
        """The first mechanism that is named, None if none is."""
        return next((name for name in map(mechanism_of, self.protocols) if name is not None), None)


def may_be_head(octets: bytes) -> bool | None:
    """Whether a stream with this beginning may be an upgrade; None if there are too few octets to tell."""
    for start in _STARTS:
        if octets.startswith(start):
            return True
        if start.startswith(octets):
            return None
    return False


def mechanism_of(protocol: str) -> str | None:
    """The mechanism that a sub-protocol names: ``ZWS2.0/NULL`` names NULL, ``ZWS2.0`` none."""
    return protocol.partition("/")[2] or None


def parse_head(octets: bytes) -> Upgrade | None:
    """Read a request or response without its empty line; None if it is none that upgrades to ZWS.

    A response upgrades only if its status is 101.
    """
    line, *fields = octets.decode("latin-1").split("\r\n")
    if line.startswith("HTTP/"):
        if line.split(" ")[1:2] != ["101"]:
            return None
    elif not line.startswith("GET "):
        return None
    protocols: list[str] = []
    extensions: list[str] = []
    upgrades = False
    for field in fields:
        name, _, value = field.partition(":")
        match name.strip().lower():
            case "upgrade":
                upgrades = upgrades or "websocket" in (word.strip().lower() for word in value.split(","))
            case "sec-websocket-protocol":
                protocols += [word.strip() for word in value.split(",")]
            case "sec-websocket-extensions":
                extensions += [word.strip() for word in value.split(",")]
    ours = tuple(name for name in protocols if name == PROTOCOL or name.startswith(f"{PROTOCOL}/"))
    return Upgrade(line, ours, tuple(extensions)) if upgrades and ours else None


def first_line(octets: bytes) -> str:
    """The first line of a request or response, cut to 80 characters."""
    return octets.partition(b"\r\n")[0][:80].decode("latin-1")
