"""ZMTP written by hand, for what no real peer sends, and a way to hear what the dissector says of it."""

from dissectors.events import AnyEvent, Problem
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.limits import Limits

CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.2:5555"
SIGNATURE = b"\xff\0\0\0\0\0\0\0\x01\x7f"


def greeting(mechanism: bytes = b"NULL", major: int = 3, minor: int = 1, as_server: int = 0) -> bytes:
    return SIGNATURE + bytes([major, minor]) + mechanism.ljust(20, b"\0") + bytes([as_server]) + bytes(31)


def greeting_v2(socket_type: int, identity: bytes = b"", revision: int = 1) -> bytes:
    return SIGNATURE + bytes([revision, socket_type, 0, len(identity)]) + identity


def frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) > 255:
        return bytes([flags | 2]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


def frame_v1(body: bytes, flags: int = 0) -> bytes:
    if len(body) >= 254:
        return b"\xff" + (len(body) + 1).to_bytes(8, "big") + bytes([flags]) + body
    return bytes([len(body) + 1, flags]) + body


def command(name: bytes, data: bytes = b"") -> bytes:
    return frame(bytes([len(name)]) + name + data, 4)


def prop(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value


def ready(socket_type: bytes, *more: bytes) -> bytes:
    return command(b"READY", prop(b"Socket-Type", socket_type) + b"".join(more))


def peers(client: bytes = b"DEALER", server: bytes = b"ROUTER") -> list[tuple[int, bytes]]:
    """A NULL handshake: what each side (0: client, 1: server) sends, in order."""
    return [(0, greeting()), (1, greeting()), (0, ready(client)), (1, ready(server))]


def dissect(
    sent: list[tuple[int, bytes]],
    end: str = "fin",
    limits: Limits | None = None,
    forced: int | None = None,
    from_start: bool = True,
) -> list[AnyEvent]:
    """The events of a connection in which the sides send these octets in this order."""
    out: list[AnyEvent] = []
    connection = ZmtpConnection(out, 1, CLIENT, SERVER, (from_start, from_start), limits, forced)
    for number, (side, octets) in enumerate(sent, 1):
        if connection.rejected:
            break
        connection.halves[side].feed(octets, number * 1000, number)
    connection.finish(end, 0, len(sent) * 1000)  # type: ignore[arg-type]
    return out


def problems(events: list[AnyEvent]) -> list[str]:
    return [event.code for event in events if isinstance(event, Problem)]
