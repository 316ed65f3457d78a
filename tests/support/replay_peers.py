"""Services for replays, and clients of them whose traffic is captured: asked the same, they say the same.

python replay_peers.py serve     until the standard input ends
python replay_peers.py ask       once
"""

import sys
import threading
import time

import zmq

REP, ROUTER, PULL, XPUB = range(5701, 5705)
READY = "ready"
_PAUSE = 0.01  # seconds between messages, so that rates are those of the clients


def serve() -> None:
    context = zmq.Context()
    sockets = {}
    poller = zmq.Poller()
    for kind, port in ((zmq.REP, REP), (zmq.ROUTER, ROUTER), (zmq.PULL, PULL), (zmq.XPUB, XPUB)):
        socket = context.socket(kind)
        socket.bind(f"tcp://127.0.0.1:{port}")
        sockets[socket] = kind
        poller.register(socket, zmq.POLLIN)
    threading.Thread(target=_end_with_input, args=[context], daemon=True).start()
    print(READY, flush=True)
    while True:
        try:
            ready = poller.poll()
            for socket, _ in ready:
                _answer(socket, sockets[socket])
        except zmq.ContextTerminated:
            context.destroy(0)
            return


def _answer(socket: zmq.Socket[bytes], kind: int) -> None:
    frames = socket.recv_multipart()
    if kind == zmq.REP:
        socket.send_multipart([b"reply to", *frames])
    elif kind == zmq.ROUTER:
        socket.send_multipart([*frames[:-1], b"done " + frames[-1], b"for " + frames[0]])
    elif kind == zmq.XPUB and frames == [b"\1last"]:
        for number in range(20):
            socket.send_multipart([b"apples" if number % 2 else b"pears", b"%d" % number])
            time.sleep(_PAUSE)
        socket.send(b"last")


def _end_with_input(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    sys.stdin.read()
    context.term()


def ask() -> None:
    context = zmq.Context()
    request, push, sub = context.socket(zmq.REQ), context.socket(zmq.PUSH), context.socket(zmq.SUB)
    dealers = [context.socket(zmq.DEALER) for _ in range(2)]
    dealers[0].routing_id, dealers[1].routing_id = b"alice", b"bob"
    request.connect(f"tcp://127.0.0.1:{REP}")
    push.connect(f"tcp://127.0.0.1:{PULL}")
    sub.connect(f"tcp://127.0.0.1:{XPUB}")
    for dealer in dealers:
        dealer.connect(f"tcp://127.0.0.1:{ROUTER}")
    for number in range(20):
        request.send_multipart([b"request %d" % number, b"\0\xff"])
        request.recv_multipart()
        push.send(b"push %d" % number)
        for dealer in dealers:
            dealer.send_multipart([b"", b"task %d" % number])
        for dealer in dealers:
            dealer.recv_multipart()
        time.sleep(_PAUSE)
    for topic in (b"apples", b"cherries", b"last"):
        sub.subscribe(topic)
        time.sleep(_PAUSE)
    sub.unsubscribe(b"cherries")
    while sub.recv_multipart() != [b"last"]:
        pass
    context.destroy(1000)


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]]()
