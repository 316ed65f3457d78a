"""Reactions of libzmq to a peer that breaks a rule: a socket, and a TCP connection that speaks as its peer.

`python -m tests.support.violations LIBRARY...` prints that of any libzmq, such as an older one.
"""

import socket
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.support import draft_sockets as zmq
from tests.world.octets import command, frame, greeting, prop, ready

AFTER = b"after"
PING = command(b"PING", b"\0\0")
_MORE = 1
_RECONNECT_IVL, _MAXMSGSIZE, _REQ_RELAXED = 18, 22, 53
_PATIENCE = 60.0  # for what must come, on a machine that does much else
_SILENT = 2.0  # libzmq answers a PING at once, if it has PING and the connection is ready
_QUIET = 1.5  # it would connect again within 20 ms


class Violation(NamedTuple):
    """The octets of a peer after its handshake, or in place of that."""

    kind: int  # the socket of libzmq
    peer: bytes  # the type that its peer announces
    said: bytes  # what breaks the rule
    asks: tuple[bytes, ...] = ()  # what libzmq sends before
    after: bytes = frame(AFTER)  # what is right and comes after it
    opening: bytes = greeting()
    ready: bytes | None = None  # in place of READY
    topic: bytes | None = None  # of a SUB
    most: int = -1  # octets of a frame (ZMQ_MAXMSGSIZE)


class Reaction(NamedTuple):
    """The reaction of libzmq."""

    closed: bool  # the connection
    again: bool  # it connected again
    stuck: bool  # a REQ cannot send any more
    heard: list[list[bytes]]  # what the program received, without what was right
    works: bool  # the program received what was right

    def __str__(self) -> str:
        """It, in a line."""
        words = "goes on" if not self.closed else "closes, connects again" if self.again else "closes for good"
        words += ", deaf" if not self.closed and not self.works else ""
        return f"{words}{', send blocks' if self.stuck else ''}; the program gets {self.heard or 'nothing'}"


def bundled() -> str:
    """The library that pyzmq has."""
    import zmq as pyzmq

    pyzmq.zmq_version()
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libzmq" in line}
    return min(paths)


def reaction(library: str, one: Violation, silent: float = _PATIENCE, least: int = 0) -> Reaction:
    """Provoke libzmq, which connects, and see what it does; one that is silent for so long knows no PING.

    The first messages, ``least`` of them, may come late.
    """
    with socket.create_server(("127.0.0.1", 0)) as server, zmq.Context(library) as context:
        server.settimeout(_PATIENCE)
        victim = context.socket(one.kind)
        for option, value in ((_RECONNECT_IVL, 10), (zmq.LINGER, 0)):
            victim.set(option, value)
        if one.most >= 0:
            victim.set(_MAXMSGSIZE, struct.pack("q", one.most))
        if one.topic is not None:
            victim.set(zmq.SUBSCRIBE, one.topic)
        victim.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        peer, _ = server.accept()
        with peer:
            peer.settimeout(_PATIENCE)
            peer.sendall(one.opening + (ready(one.peer) if one.ready is None else one.ready))
            _await(peer, b"\x05READY", silent)  # libzmq refuses what comes before it has sent its own
            if one.asks:
                victim.send(*one.asks)
                if not _await(peer, one.asks[-1], silent):
                    raise AssertionError("it did not ask")
            closed = not _await(peer, b"\4PONG", silent, one.said + PING)
            if not closed:
                peer.sendall(one.after)
            heard, works = _hear(victim, _SILENT if one.after and not closed else 0.2, least)
            server.settimeout(_QUIET)
            again = stuck = False
            if closed:
                try:
                    server.accept()[0].close()
                    again = True
                except TimeoutError:
                    pass
            victim.set(zmq.SNDTIMEO, 0)
            try:
                if one.kind == zmq.REQ:
                    victim.set(_REQ_RELAXED, 1)  # else it cannot send before it has a reply
                    victim.send(b"more")
            except BlockingIOError:
                stuck = True
        return Reaction(closed, again, stuck, heard, works)


def _await(peer: socket.socket, octets: bytes, silent: float, ask: bytes = b"") -> bool:
    """Whether these octets come; False if the other side closes before."""
    came = b""
    try:
        peer.sendall(ask)
        peer.settimeout(silent)
        while octets not in came:
            more = peer.recv(65536)
            if not more:
                return False
            came += more
    except TimeoutError:
        return True  # libzmq before 4.2 knows no PING
    except ConnectionError:
        return False
    return True


def _hear(victim: zmq.Socket, seconds: float, least: int) -> tuple[list[list[bytes]], bool]:
    """The messages that the program receives up to the right one, and whether that came."""
    heard: list[list[bytes]] = []
    end = time.monotonic() + (_PATIENCE if least else seconds)
    while (left := end - time.monotonic()) > 0:
        victim.set(zmq.RCVTIMEO, int(left * 1000) + 1)
        try:
            message = [bytes(one) for one in victim.recv()]
        except OSError:
            break
        if message[-1].endswith(AFTER):
            return heard, True
        heard.append(message)
        if len(heard) == least:
            end = time.monotonic() + seconds
    return heard, False


def _frames(*bodies: bytes) -> bytes:
    return b"".join(frame(body, _MORE) for body in bodies[:-1]) + frame(bodies[-1])


_REPLY = _frames(b"", AFTER)
_ASK = (b"question",)


def _to_req(*bodies: bytes) -> Violation:
    return Violation(zmq.REQ, b"REP", _frames(*bodies), _ASK, _REPLY)


def _to_rep(*bodies: bytes) -> Violation:
    return Violation(zmq.REP, b"REQ", _frames(*bodies), after=_REPLY)


def _to_pull(said: bytes, **more: object) -> Violation:
    return Violation(zmq.PULL, b"PUSH", said, **more)  # type: ignore[arg-type]


def _metadata(*properties: bytes) -> Violation:
    return Violation(zmq.PULL, b"PUSH", b"", ready=command(b"READY", b"".join(properties)))


_TYPE = prop(b"Socket-Type", b"PUSH")
_XPUB = 9
VIOLATIONS = {
    "reply without delimiter": _to_req(b"reply"),
    "reply with a delimiter alone": _to_req(b""),
    "reply behind an identity": _to_req(b"id", b"", b"reply"),
    "reply without a request": Violation(zmq.REQ, b"REP", _frames(b"", b"reply"), (), b""),
    "second reply": Violation(zmq.REQ, b"REP", _frames(b"", b"reply") * 2, _ASK, b""),
    "reply to a DEALER without delimiter": Violation(zmq.DEALER, b"REP", _frames(b"reply")),
    "reply of a DEALER to a REP": Violation(zmq.REP, b"DEALER", _frames(b"request"), after=_REPLY),
    "request without delimiter": _to_rep(b"request"),
    "request with a delimiter alone": _to_rep(b""),
    "request behind identities": _to_rep(b"id", b"id", b"", b"request"),
    "two requests": _to_rep(b"", b"request"),
    "request to a ROUTER without delimiter": Violation(zmq.ROUTER, b"REQ", _frames(b"request")),
    "topic that is not subscribed to": Violation(zmq.SUB, b"PUB", frame(b"other"), topic=b"a"),
    "subscription that is none": Violation(zmq.PUB, b"SUB", frame(b"\7topic"), after=b""),
    "subscription to an XPUB that is none": Violation(_XPUB, b"SUB", frame(b"\7topic"), after=frame(b"\1" + AFTER)),
    "subscription of two frames": Violation(_XPUB, b"SUB", _frames(b"\1topic", b"\1more"), after=frame(b"\1z" + AFTER)),
    "cancel without subscribe": Violation(_XPUB, b"SUB", frame(b"\0topic"), after=frame(b"\1" + AFTER)),
    "SUBSCRIBE to a PULL": _to_pull(command(b"SUBSCRIBE", b"topic")),
    "SUBSCRIBE to a ROUTER": Violation(zmq.ROUTER, b"DEALER", command(b"SUBSCRIBE", b"topic")),
    "message to a PUSH": Violation(zmq.PUSH, b"PULL", frame(b"message"), after=b""),
    "unknown command": _to_pull(command(b"DANCE", b"x")),
    "command without a name": _to_pull(frame(b"", 4)),
    "READY again": _to_pull(ready(b"PUSH")),
    "PING without a time": _to_pull(command(b"PING")),
    "PONG without a PING": _to_pull(command(b"PONG")),
    "reserved bits": _to_pull(frame(b"odd", 8)),
    "MORE on a command": _to_pull(frame(b"\x04PING\0\1", 5)),
    "command inside a message": _to_pull(frame(b"one", _MORE) + command(b"DANCE", b"x") + frame(b"two")),
    "PING inside a message": _to_pull(frame(b"one", _MORE) + PING + frame(b"two")),
    "LONG that is not needed": _to_pull(b"\x02" + bytes(7) + b"\x03odd"),
    "frame of 2^63 octets": _to_pull(b"\x02\x80" + bytes(7)),
    "frame over ZMQ_MAXMSGSIZE": _to_pull(frame(bytes(100)), most=99),
    "socket type that does not fit": Violation(zmq.PULL, b"PUB", b""),
    "socket type that is unknown": Violation(zmq.PULL, b"DANCE", b""),
    "no socket type": _metadata(),
    "property without a name": _metadata(_TYPE, prop(b"", b"x")),
    "property twice": _metadata(_TYPE, _TYPE),
    "metadata past the end": _metadata(_TYPE, b"\1X\0\0\0\x09short"),
    "identity of 256 octets": Violation(
        zmq.ROUTER, b"DEALER", b"", ready=ready(b"DEALER", prop(b"Identity", bytes([65]) * 256))
    ),
    "message before READY": Violation(zmq.PULL, b"PUSH", b"", ready=frame(b"early") + ready(b"PUSH")),
    "ERROR in place of READY": Violation(zmq.PULL, b"PUSH", b"", ready=command(b"ERROR", b"\3why")),
    "another mechanism": Violation(zmq.PULL, b"PUSH", b"", opening=greeting(b"PLAIN"), ready=b""),
    "unknown mechanism": Violation(zmq.PULL, b"PUSH", b"", opening=greeting(b"DANCE"), ready=b""),
    **{
        f"message of two frames to a {name}": Violation(kind, peer, _frames(b"one", b"two"))
        for name, kind, peer in (
            ("CLIENT", zmq.CLIENT, b"SERVER"),
            ("SERVER", zmq.SERVER, b"CLIENT"),
            ("GATHER", zmq.GATHER, b"SCATTER"),
            ("CHANNEL", zmq.CHANNEL, b"CHANNEL"),
            ("PEER", zmq.PEER, b"PEER"),
        )
    },
}


def main(libraries: list[str]) -> None:
    """Print what each library does, a line for each violation."""
    for library in libraries or [bundled()]:
        print("==", library)
        with ThreadPoolExecutor(16) as pool:
            done = [(name, pool.submit(_or_error, library, one)) for name, one in VIOLATIONS.items()]
        for name, one in done:
            print(f"{name:45} {one.result()}")


def _or_error(library: str, one: Violation) -> object:
    try:
        return reaction(library, one, _SILENT)
    except Exception as error:
        return repr(error)


if __name__ == "__main__":
    main(sys.argv[1:])
