"""A REP and a REQ socket under CURVE in one program, unmodified pyzmq; it knows nothing of keys that anybody wants.

    python curve_pair.py PORT ROUNDS [wrong-key]

First it says "ready" on its standard output, once both are connected and have talked. Each line on its standard input
is a request; the reply is printed. With ROUNDS it makes so many connections instead, one after the other, with a
request each. "wrong-key" gives the client another server's key: then it waits for the end of its input.
"""

import os
import sys
import threading

import zmq

PATIENCE_MS = 60_000


def serve(socket: "zmq.Socket[bytes]") -> None:
    while True:
        socket.send(b"reply to " + socket.recv())


def connect(context: "zmq.Context[zmq.Socket[bytes]]", port: int, key: bytes) -> "zmq.Socket[bytes]":
    client = context.socket(zmq.REQ)
    client.linger = 0
    client.rcvtimeo = PATIENCE_MS
    client.curve_serverkey = key
    client.curve_publickey, client.curve_secretkey = zmq.curve_keypair()
    client.connect(f"tcp://127.0.0.1:{port}")
    return client


def ask(client: "zmq.Socket[bytes]", text: bytes) -> bytes:
    client.send(text)
    return client.recv()


def main(port: int, rounds: int, wrong: bool) -> None:
    context = zmq.Context()
    public, secret = zmq.curve_keypair()
    server = context.socket(zmq.REP)
    server.curve_server = True
    server.curve_secretkey = secret
    server.bind(f"tcp://127.0.0.1:{port}")
    threading.Thread(target=serve, args=(server,), daemon=True).start()
    if rounds:
        for number in range(rounds):
            client = connect(context, port, public)
            ask(client, b"request %d" % number)
            client.close()
        print("done", flush=True)
        sys.stdin.read()
        return
    client = connect(context, port, zmq.curve_keypair()[0] if wrong else public)
    if not wrong:
        ask(client, b"hello")
    print("ready", flush=True)
    for line in sys.stdin.buffer:
        if not wrong:
            print(ask(client, line.strip()).decode(), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), "wrong-key" in sys.argv)
    sys.stdout.flush()
    os._exit(0)  # the thread of the server waits in libzmq
