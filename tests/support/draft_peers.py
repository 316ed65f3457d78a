"""A program whose sockets talk to each other in ways that need libzmq's drafts, and that logs what they said.

    python draft_peers.py LIBRARY EXCHANGE HOST PORT

Each line of the log is {"by": "client" | "server", "frames": [[length, SHA-256], ...]}, as on the wire, in the order of
each side; it is written once the other side has the message. The client is the side that connects.
"""

import hashlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Pong, Request

from tests.support import draft_sockets as zmq

USERNAME, PASSWORD = b"alice", b"pass-word-of-alice"
WRONG = b"another-word"
# About where the lengths of frames of WebSocket change their form, of which one octet is for the flags.
SIZES = [0, 1, 2, 123, 124, 125, 126, 127, 254, 255, 256, 4095, 8191, 8192, 65_533, 65_534, 65_535, 65_536, 70_001]
BIG = 3 << 20
GROUPS = [b"news", b"a", b"fifteen-letters"]

Exchange = Callable[[zmq.Context, str, int], None]


def fingerprint(frames: list[bytes]) -> list[list[Any]]:
    return [[len(frame), hashlib.sha256(frame).hexdigest()] for frame in frames]


def log(by: str, *frames: bytes) -> None:
    print(json.dumps({"by": by, "frames": fingerprint(list(frames))}), flush=True)


def body(size: int) -> bytes:
    return (b"%d octets " % size * (size // 9 + 1))[:size]


class Pair:
    """Two sockets, one connected to the other."""

    def __init__(
        self, context: zmq.Context, client: int, server: int, address: str, options: tuple[Any, Any] = ((), ())
    ) -> None:
        self.client, self.server = context.socket(client), context.socket(server)
        for made, chosen in zip((self.client, self.server), options, strict=True):
            for option, value in chosen:
                made.set(option, value)
        self.server.bind(address)
        self.client.connect(address)

    def ask(self, *frames: bytes) -> None:
        """One way: from the client to the server."""
        self.client.send(*frames)
        assert self.server.recv()[-len(frames) :] == list(frames)
        log("client", *frames)

    def tell(self, *frames: bytes) -> None:
        self.server.send(*frames)
        assert self.client.recv() == list(frames)
        log("server", *frames)


def until_heard(pair: Pair, say: Callable[[bytes], None]) -> list[bytes]:
    """Have the server say something until its client hears it; what was on the wire of that.

    Nothing tells a PUB or a RADIO who has subscribed; what it says before is not sent.
    """
    said = 0
    pair.client.set(zmq.RCVTIMEO, 50)
    while True:
        say(b"%d" % said)
        said += 1
        try:
            first = int(pair.client.recv()[-1].split()[-1])
        except OSError:
            continue
        break
    pair.client.set(zmq.RCVTIMEO, 60_000)
    for _ in range(first + 1, said):
        pair.client.recv()
    return [b"%d" % number for number in range(first, said)]


def ws_sizes(context: zmq.Context, host: str, port: int) -> None:
    """Both ways, since only a client's frames are masked; several parts at once; heartbeats."""
    beats = (zmq.HEARTBEAT_IVL, 100), (zmq.HEARTBEAT_TIMEOUT, 60_000)
    pair = Pair(context, zmq.PAIR, zmq.PAIR, f"ws://{host}:{port}/some/path", (beats, ()))
    for size in SIZES:
        pair.ask(body(size))
        pair.tell(body(size))
    pair.ask(*map(body, SIZES))
    pair.tell(*map(body, SIZES))
    pair.ask(body(BIG))
    pair.tell(body(BIG))
    time.sleep(0.5)
    pair.ask(b"after some heartbeats")
    pair.client.close()
    time.sleep(0.1)


def ws_requests(context: zmq.Context, host: str, port: int) -> None:
    """REQ and ROUTER, whose messages have identities and delimiters."""
    pair = Pair(context, zmq.REQ, zmq.ROUTER, f"ws://{host}:{port}/", (((zmq.ROUTING_ID, b"the-client"),), ()))
    for number in range(10):
        pair.client.send(b"question %d" % number)
        log("client", b"", b"question %d" % number)
        identity, *frames = pair.server.recv()
        assert (identity, frames) == (b"the-client", [b"", b"question %d" % number])
        pair.server.send(identity, b"", b"answer", b"%d" % number)
        assert pair.client.recv() == [b"answer", b"%d" % number]
        log("server", b"", b"answer", b"%d" % number)


def ws_pub_sub(context: zmq.Context, host: str, port: int) -> None:
    pair = Pair(context, zmq.SUB, zmq.PUB, f"ws://{host}:{port}/")
    pair.client.set(zmq.SUBSCRIBE, b"weather")
    for sync in until_heard(pair, lambda said: pair.server.send(b"weather " + said)):
        log("server", b"weather " + sync)
    for number in range(20):
        pair.server.send(b"sports", b"not wanted")
        pair.tell(b"weather", b"%d degrees" % number)
    pair.client.set(zmq.UNSUBSCRIBE, b"weather")
    time.sleep(0.1)


def ws_plain(context: zmq.Context, host: str, port: int) -> None:
    with_zap(context)
    client = (zmq.PLAIN_USERNAME, USERNAME), (zmq.PLAIN_PASSWORD, PASSWORD)
    server = (zmq.PLAIN_SERVER, 1), (zmq.ZAP_DOMAIN, b"global")
    pair = Pair(context, zmq.DEALER, zmq.DEALER, f"ws://{host}:{port}/", (client, server))
    for size in SIZES:
        pair.ask(body(size))
        pair.tell(b"got", body(size))


def ws_plain_refused(context: zmq.Context, host: str, port: int) -> None:
    asked = with_zap(context)
    client = (zmq.PLAIN_USERNAME, USERNAME), (zmq.PLAIN_PASSWORD, WRONG), (zmq.LINGER, 0)
    server = (zmq.PLAIN_SERVER, 1), (zmq.ZAP_DOMAIN, b"global")
    Pair(context, zmq.DEALER, zmq.DEALER, f"ws://{host}:{port}/", (client, server))
    assert asked.wait(60)
    time.sleep(0.3)


def with_zap(context: zmq.Context) -> threading.Event:
    """Answer what libzmq asks about a name and a password, once (RFC 27); says when that is done."""
    asked = threading.Event()
    zap = context.socket(zmq.REP)
    zap.bind("inproc://zeromq.zap.01")

    def answer() -> None:
        version, number, *_, username, password = zap.recv()
        good = (username, password) == (USERNAME, PASSWORD)
        zap.send(version, number, *((b"200", b"OK", username, b"") if good else (b"400", b"No", b"", b"")))
        asked.set()

    threading.Thread(target=answer, daemon=True).start()
    return asked


def udp_radio_dish(context: zmq.Context, host: str, port: int) -> None:
    dish, radio = context.socket(zmq.DISH), context.socket(zmq.RADIO)
    dish.bind(f"udp://{host}:{port}")
    for group in GROUPS:
        dish.join(group)
    while f":{port:04X} " not in Path("/proc/self/net/udp").read_text():
        time.sleep(0.01)  # what is sent before the thread of libzmq has its socket is lost
    radio.connect(f"udp://{host}:{port}")
    for size in (0, 1, 255, 256, 1400, 1473, 8000):
        for group in GROUPS:
            radio.send(body(size), group=group)
            (frame,) = dish.recv()
            assert (frame, frame.group) == (body(size), group)
            log("client", group, frame)


def tcp_radio_dish(context: zmq.Context, host: str, port: int) -> None:
    pair = Pair(context, zmq.DISH, zmq.RADIO, f"tcp://{host}:{port}")
    for group in GROUPS:
        pair.client.join(group)
    last = GROUPS[-1]  # once it has joined that, it has joined all
    for sync in until_heard(pair, lambda said: pair.server.send(said, group=last)):
        log("server", last, sync)
    for size in (0, 1, 255, 256, 70_000):
        for group in GROUPS:
            pair.server.send(body(size), group=b"nobody")
            pair.server.send(body(size), group=group)
            (frame,) = pair.client.recv()
            assert (frame, frame.group) == (body(size), group)
            log("server", group, frame)
    pair.client.leave(GROUPS[0])
    time.sleep(0.1)


def client_server(context: zmq.Context, host: str, port: int) -> None:
    pair = Pair(context, zmq.CLIENT, zmq.SERVER, f"tcp://{host}:{port}")
    for size in (0, 255, 256, 70_000):
        pair.client.send(body(size))
        (frame,) = pair.server.recv()
        log("client", frame)
        pair.server.send(b"got it", routing_id=frame.routing_id)
        assert pair.client.recv() == [b"got it"]
        log("server", b"got it")


def scatter_gather(context: zmq.Context, host: str, port: int) -> None:
    pair = Pair(context, zmq.SCATTER, zmq.GATHER, f"tcp://{host}:{port}")
    for size in (0, 255, 256, 70_000):
        pair.ask(body(size))


def channel(context: zmq.Context, host: str, port: int) -> None:
    pair = Pair(context, zmq.CHANNEL, zmq.CHANNEL, f"tcp://{host}:{port}")
    for size in (0, 255, 256, 70_000):
        pair.ask(body(size))
        pair.tell(body(size))


def ws_client_server(context: zmq.Context, host: str, port: int) -> None:
    pair = Pair(context, zmq.CLIENT, zmq.SERVER, f"ws://{host}:{port}/")
    pair.client.send(b"question")
    (frame,) = pair.server.recv()
    log("client", frame)
    pair.server.send(b"answer", routing_id=frame.routing_id)
    assert pair.client.recv() == [b"answer"]
    log("server", b"answer")


def ws_closed(context: zmq.Context, host: str, port: int) -> None:
    """A client that is not libzmq, made with wsproto: messages in parts, a PING of its own, an end with a reason."""
    pair = context.socket(zmq.PAIR)
    pair.bind(f"ws://{host}:{port}/")
    client = WSConnection(ConnectionType.CLIENT)
    with socket.create_connection((host, port), timeout=60) as stream:

        def send(event: Event) -> None:
            stream.sendall(client.send(event))

        def receive(kind: type[Event]) -> Any:
            while True:
                for event in client.events():
                    if isinstance(event, kind):
                        return event
                client.receive_data(stream.recv(65_536) or None)

        send(Request(host=host, target="/", subprotocols=["ZWS2.0/NULL"]))
        assert receive(AcceptConnection).subprotocol == "ZWS2.0/NULL"
        send(BytesMessage(b"\2\5READY\x0bSocket-Type\0\0\0\4PAIR"))
        receive(BytesMessage)
        send(BytesMessage(b"\1first"))
        send(BytesMessage(b"\0second"))
        assert pair.recv() == [b"first", b"second"]
        log("client", b"first", b"second")
        send(Ping(b"still there?"))
        receive(Pong)
        send(CloseConnection(1000, "bye"))
        receive(CloseConnection)


EXCHANGES: dict[str, Exchange] = {
    exchange.__name__: exchange
    for exchange in (
        ws_sizes,
        ws_requests,
        ws_pub_sub,
        ws_plain,
        ws_plain_refused,
        ws_client_server,
        ws_closed,
        udp_radio_dish,
        tcp_radio_dish,
        client_server,
        scatter_gather,
        channel,
    )
}

if __name__ == "__main__":
    _, library, name, address, number = sys.argv
    with zmq.Context(library) as opened:
        EXCHANGES[name](opened, address, int(number))
