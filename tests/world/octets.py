"""Octets of ZMTP peers: greetings, frames, commands and handshakes of each version."""

SIGNATURE = b"\xff" + bytes(7) + b"\x01\x7f"
MORE, LONG, COMMAND = 1, 2, 4
"""Flags of a frame (23/ZMTP)."""
NUMBERS = {
    name: number
    for number, name in enumerate(
        (b"PAIR", b"PUB", b"SUB", b"REQ", b"REP", b"DEALER", b"ROUTER", b"PULL", b"PUSH", b"XPUB", b"XSUB")
    )
}
"""Socket types of ZMTP 2.0."""


def greeting(mechanism: bytes = b"NULL", major: int = 3, minor: int = 1, as_server: int = 0) -> bytes:
    return SIGNATURE + bytes([major, minor]) + mechanism.ljust(20, b"\0") + bytes([as_server]) + bytes(31)


def greeting_v2(socket_type: int, identity: bytes = b"", revision: int = 1) -> bytes:
    return SIGNATURE + bytes([revision, socket_type, 0, len(identity)]) + identity


def frame(body: bytes, flags: int = 0) -> bytes:
    """A frame of ZMTP 2.0 and later."""
    if len(body) > 255:
        return bytes([flags | 2]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


def frame_v1(body: bytes, flags: int = 0) -> bytes:
    """A frame of ZMTP 1.0."""
    if len(body) >= 254:
        return b"\xff" + (len(body) + 1).to_bytes(8, "big") + bytes([flags]) + body
    return bytes([len(body) + 1, flags]) + body


def message(version: int, *bodies: bytes) -> bytes:
    """A message of so many frames; the version is 1, 2 or 3."""
    make = frame_v1 if version == 1 else frame
    return b"".join(make(body, number < len(bodies)) for number, body in enumerate(bodies, 1))


def command(name: bytes, data: bytes = b"") -> bytes:
    return frame(bytes([len(name)]) + name + data, 4)


def prop(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value


def ready(socket_type: bytes, *more: bytes) -> bytes:
    return command(b"READY", prop(b"Socket-Type", socket_type) + b"".join(more))


def peers(client: bytes = b"DEALER", server: bytes = b"ROUTER") -> list[tuple[int, bytes]]:
    """A NULL handshake: what each side (0: client, 1: server) sends, in order."""
    return [(0, greeting()), (1, greeting()), (0, ready(client)), (1, ready(server))]
