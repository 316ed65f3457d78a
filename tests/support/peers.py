"""Two programs that talk ZeroMQ to each other and log what their applications sent and received, as JSON Lines.

    python peers.py server PLAN
    python peers.py client PLAN

PLAN is JSON: {"host": address, "exchanges": [name, ...], "curve": [public key, secret key]}, and "heartbeat_ms" if the
exchanges are to have heartbeats. They take place one after the other, each on a port of its own, from FIRST_PORT on;
the server binds all of them, and the client is connected with all of them, before the first starts.
A line is {"port", "what": "sent" | "received" | "subscribed" | "cancelled", "frames": [[length, SHA-256], ...]}, with
the frames as they are on the wire.
"""

import hashlib
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import count, islice
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import zmq

if TYPE_CHECKING:
    from zmq.auth.thread import ThreadAuthenticator

FIRST_PORT = 5600
CONTROL_PORT = 5599  # a PAIR on which the client says that it is ready
MARK = b"told in confidence"  # in every message over CURVE
USERNAME, PASSWORD = b"alice", b"pass-word-of-alice"
_PATIENCE_MS = 120_000
_TOPICS = [b"topic %02d" % number for number in range(40)]
MIB = 1 << 20


def fingerprint(frames: list[bytes]) -> list[list[Any]]:
    return [[len(frame), hashlib.sha256(frame).hexdigest()] for frame in frames]


class LoggedSocket:
    """A socket whose messages are logged."""

    def __init__(self, socket: zmq.Socket[bytes], port: int) -> None:
        self.socket = socket
        self._port = port
        self._monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)

    def await_peer(self) -> None:
        """Wait until the first connection is ready for messages."""
        assert self._monitor.poll(_PATIENCE_MS)
        self.socket.disable_monitor()

    def send(self, *frames: bytes) -> None:
        self.log("sent", self._on_the_wire(frames))
        self.socket.send_multipart(frames)

    def recv(self) -> list[bytes]:
        frames = self.socket.recv_multipart()
        self.log("received", self._on_the_wire(frames))
        return frames

    def log(self, what: str, frames: list[bytes]) -> None:
        print(json.dumps({"port": self._port, "what": what, "frames": fingerprint(frames)}))

    def _on_the_wire(self, frames: Any) -> list[bytes]:
        kind = self.socket.type
        if kind in (zmq.REQ, zmq.REP):
            return [b"", *frames]  # the delimiter
        return list(frames[1:] if kind == zmq.ROUTER else frames)  # the identity is not sent


def _push(push: LoggedSocket, _: LoggedSocket) -> None:
    for number in range(200):
        push.send(b"push %d" % number)


def _pull(pull: LoggedSocket, _: LoggedSocket) -> None:
    for _number in range(200):
        pull.recv()


def _request(req: LoggedSocket, _: LoggedSocket) -> None:
    for number in range(50):
        req.send(b"request %d" % number, *([b"part"] * (number % 3)))
        req.recv()


def _reply(rep: LoggedSocket, _: LoggedSocket) -> None:
    for _number in range(50):
        rep.send(b"reply to", *rep.recv())


def _answer(router: LoggedSocket, _: LoggedSocket) -> None:
    for _number in range(50):
        identity, delimiter, *frames = router.recv()
        router.send(identity, delimiter, b"reply to", *frames)


def _send_multipart(push: LoggedSocket, _: LoggedSocket) -> None:
    push.send(b"", b"", b"")
    push.send(bytes(range(256)), b"", b"\xff" * 255, b"\0" * 256)
    push.send(*(b"frame %d" % number for number in range(300)))


def _receive_multipart(pull: LoggedSocket, _: LoggedSocket) -> None:
    for _number in range(3):
        pull.recv()


def _send_parts(push: LoggedSocket, _: LoggedSocket) -> None:
    random = Random("parts")
    for number in range(60):
        push.send(b"%d" % number, *(random.randbytes(random.choice((0, 9, 300, 12_000))) for _ in range(number % 7)))


def _receive_parts(pull: LoggedSocket, _: LoggedSocket) -> None:
    for _number in range(60):
        pull.recv()


def _send_big(push: LoggedSocket, _: LoggedSocket) -> None:
    push.send(b"m" * MIB)
    push.send(b"first", b"n" * MIB, b"last")
    push.send(b"0123456789abcdef" * (20 * MIB // 16))
    push.send(b"small again")


def _receive_big(pull: LoggedSocket, _: LoggedSocket) -> None:
    for _number in range(4):
        pull.recv()


def _deal(dealer: LoggedSocket, _: LoggedSocket) -> None:
    for number in range(50):
        dealer.send(b"", b"task %d" % number)
    for _number in range(100):
        dealer.recv()


def _route(router: LoggedSocket, _: LoggedSocket) -> None:
    for _number in range(50):
        identity, *frames = router.recv()
        router.send(identity, b"taken", *frames)
        router.send(identity, b"done", *frames)


def _subscribe(sub: LoggedSocket, control: LoggedSocket) -> None:
    for topic in (b"apples", b"pears", b"pears", b"p", b"sync 1"):
        sub.log("subscribed", [topic])
        sub.socket.subscribe(topic)
    _await_end(sub, control)
    for topic in (b"apples", b"p"):
        sub.log("cancelled", [topic])
        sub.socket.unsubscribe(topic)
    sub.log("subscribed", [b"sync 2"])
    sub.socket.subscribe(b"sync 2")
    _await_end(sub, control)


def _await_end(sub: LoggedSocket, control: LoggedSocket) -> None:
    """Receive everything up to the end, after saying that the last subscription has arrived."""
    sub.recv()
    control.send(b"subscribed")
    while sub.recv()[-1] != b"end":
        pass


def _publish(pub: LoggedSocket, control: LoggedSocket) -> None:
    # Publications before the last subscription came are not sent; the client's log tells what was.
    for sync in (b"sync 1", b"sync 2"):
        while not control.socket.poll(10):
            pub.socket.send(sync)
        control.recv()
        for number in range(50):
            for topic in (b"apples", b"pears", b"plums"):
                pub.socket.send_multipart([topic, b"%d" % number])
        pub.socket.send_multipart([b"pears", b"end"])


def _follow_topics(sub: LoggedSocket, control: LoggedSocket) -> None:
    """Cancel a topic and subscribe to another one now and then, while messages on both are on their way."""
    topics = deque(_TOPICS)
    for topic in (b"sync", *islice(topics, 20)):
        sub.log("subscribed", [topic])
        sub.socket.subscribe(topic)
    sub.recv()
    control.send(b"subscribed")
    for number in count():
        if sub.recv()[-1] == b"last":
            break
        if number % 10 == 0:
            sub.log("cancelled", [topics[0]])
            sub.socket.unsubscribe(topics[0])
            sub.log("subscribed", [topics[20]])
            sub.socket.subscribe(topics[20])
            topics.rotate(-1)
    # Once a message on this one comes, the publisher has got all changes.
    sub.log("subscribed", [b"end"])
    sub.socket.subscribe(b"end")
    while sub.recv() != [b"end"]:
        pass
    control.send(b"left")


def _publish_topics(pub: LoggedSocket, control: LoggedSocket) -> None:
    while not control.socket.poll(10):
        pub.send(b"sync")
    control.recv()
    for number in range(600):
        pub.send(_TOPICS[number * 7 % len(_TOPICS)], b"%d" % number)
        if number % 10 == 0:
            time.sleep(0.005)  # or all is sent before the first change of subscriptions comes
    pub.send(b"sync", b"last")
    while not control.socket.poll(10):
        pub.send(b"end")
    control.recv()


def _send_in_confidence(push: LoggedSocket, _: LoggedSocket) -> None:
    for number in range(20):
        push.send(MARK, b"%d" % number)


def _receive_in_confidence(pull: LoggedSocket, _: LoggedSocket) -> None:
    for _number in range(20):
        pull.recv()


def _push_many(push: LoggedSocket, _: LoggedSocket) -> None:
    for number in range(20_000):
        push.send(b"push %d" % number)


def _pull_many(pull: LoggedSocket, _: LoggedSocket) -> None:
    for _number in range(20_000):
        pull.recv()


Part = Callable[[LoggedSocket, LoggedSocket], None]


class Exchange(NamedTuple):
    client: tuple[int, Part]
    server: tuple[int, Part]
    mechanism: str = "NULL"


EXCHANGES = {
    "push_pull": Exchange((zmq.PUSH, _push), (zmq.PULL, _pull)),
    "req_rep": Exchange((zmq.REQ, _request), (zmq.REP, _reply)),
    "req_router": Exchange((zmq.REQ, _request), (zmq.ROUTER, _answer)),
    "multipart": Exchange((zmq.PUSH, _send_multipart), (zmq.PULL, _receive_multipart)),
    "parts": Exchange((zmq.PUSH, _send_parts), (zmq.PULL, _receive_parts)),
    "big": Exchange((zmq.PUSH, _send_big), (zmq.PULL, _receive_big)),
    "dealer_router": Exchange((zmq.DEALER, _deal), (zmq.ROUTER, _route)),
    "pub_sub": Exchange((zmq.SUB, _subscribe), (zmq.PUB, _publish)),
    "topics": Exchange((zmq.SUB, _follow_topics), (zmq.PUB, _publish_topics)),
    "plain": Exchange((zmq.REQ, _request), (zmq.REP, _reply), "PLAIN"),
    "curve": Exchange((zmq.PUSH, _send_in_confidence), (zmq.PULL, _receive_in_confidence), "CURVE"),
    "curve_req_rep": Exchange((zmq.REQ, _request), (zmq.REP, _reply), "CURVE"),
    "curve_pub_sub": Exchange((zmq.SUB, _subscribe), (zmq.PUB, _publish), "CURVE"),
    "curve_dealer_router": Exchange((zmq.DEALER, _deal), (zmq.ROUTER, _route), "CURVE"),
    "curve_parts": Exchange((zmq.PUSH, _send_parts), (zmq.PULL, _receive_parts), "CURVE"),
    "flood": Exchange((zmq.PUSH, _push_many), (zmq.PULL, _pull_many)),
}


def _open(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, port: int, serves: bool, plan: Any, how: str
) -> LoggedSocket:
    socket = context.socket(kind)
    socket.ipv6 = ":" in plan["host"]
    socket.rcvtimeo = socket.sndtimeo = _PATIENCE_MS
    socket.sndhwm = socket.rcvhwm = 0
    if "heartbeat_ms" in plan and port != CONTROL_PORT:
        socket.heartbeat_ivl = plan["heartbeat_ms"]
        socket.heartbeat_timeout = socket.heartbeat_ttl = _PATIENCE_MS  # nobody is given up
    # A heartbeat that comes after its receiver has closed is answered by a RST, which stops TCP from repeating what was
    # lost: the last word on the control connection would be at risk.
    if how == "PLAIN":
        if serves:
            socket.plain_server = True
            socket.zap_domain = b"*"
        else:
            socket.plain_username, socket.plain_password = USERNAME, PASSWORD
    if how == "CURVE":
        public, secret = (key.encode() for key in plan["curve"])
        if serves:
            socket.curve_server = True
            socket.curve_secretkey = secret
        else:
            socket.curve_serverkey = public
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    host = f"[{plan['host']}]" if socket.ipv6 else plan["host"]
    logged = LoggedSocket(socket, port)
    (socket.bind if serves else socket.connect)(f"tcp://{host}:{port}")
    return logged


def _started_authenticator(context: zmq.Context[zmq.Socket[bytes]]) -> "ThreadAuthenticator":
    from zmq.auth import CURVE_ALLOW_ANY  # here, since asyncio comes with it, which takes longer than most exchanges
    from zmq.auth.thread import ThreadAuthenticator

    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_plain(domain="*", passwords={USERNAME.decode(): PASSWORD.decode()})
    authenticator.configure_curve(domain="*", location=CURVE_ALLOW_ANY)
    return authenticator


def main(role: str, plan: Any) -> None:
    serves = role == "server"
    context = zmq.Context()
    asks = serves and any(EXCHANGES[name].mechanism != "NULL" for name in plan["exchanges"])
    authenticator = _started_authenticator(context) if asks else None
    try:
        talk(context, serves, plan)
    finally:
        if authenticator is not None:
            authenticator.stop()
        # After an error nothing waits for what could not be sent; without one nothing is left.
        context.destroy(linger=0)


def talk(context: zmq.Context[zmq.Socket[bytes]], serves: bool, plan: Any) -> None:
    control = _open(context, zmq.PAIR, CONTROL_PORT, serves, plan, "NULL")
    parts = []
    for port, name in enumerate(plan["exchanges"], FIRST_PORT):
        exchange = EXCHANGES[name]
        kind, part = exchange.server if serves else exchange.client
        parts.append((_open(context, kind, port, serves, plan, exchange.mechanism), part))
    for socket, _ in parts:
        socket.await_peer()
    for socket, part in parts:
        part(socket, control)
    # Neither leaves before the other has everything.
    if serves:
        control.send(b"done")
        control.recv()
    else:
        control.recv()
        control.send(b"done")
    for socket, _ in parts:
        socket.socket.close()
    control.socket.close(linger=_PATIENCE_MS)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
