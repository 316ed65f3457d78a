"""A client asks a service, whose database it cannot talk to: ``python -m tests.support.unreached_peers CAUSE``.

Each program has an address of its own on the loopback interface of a network namespace.
"""

import os
import subprocess
import sys
import threading
import time

import zmq
from zmq.auth.thread import ThreadAuthenticator

CLIENT, SERVICE, DATABASE = "10.78.0.1", "10.78.0.2", "10.78.0.3"
PORT = 5573
CAUSES = {
    "type": "sockets-mismatched",
    "mechanism": "mechanisms-differ",
    "password": "credentials-refused",
    "key": "server-key-wrong",
    "worker": "sockets-mismatched",
}
_SECONDS = 2.5
_context = zmq.Context()


def _socket(kind: int) -> "zmq.Socket[bytes]":
    socket = _context.socket(kind)
    socket.linger = 0
    return socket


def _connect(socket: "zmq.Socket[bytes]", mine: str, other: str) -> None:
    socket.connect(f"tcp://{mine}:0;{other}:{PORT}")


def _serve(cause: str, database: "zmq.Socket[bytes]", question: "zmq.Socket[bytes]") -> None:
    """Set both sockets up so that they do not come together."""
    if cause in ("mechanism", "password"):
        database.plain_server = True
    if cause == "password":
        question.plain_username, question.plain_password = b"shop", b"guess"
    if cause == "key":
        database.curve_server = True
        database.curve_publickey, database.curve_secretkey = zmq.curve_keypair()
        question.curve_publickey, question.curve_secretkey = zmq.curve_keypair()
        question.curve_serverkey, _ = zmq.curve_keypair()
    if cause == "worker":  # which connects to the service
        question.bind(f"tcp://{SERVICE}:{PORT + 1}")
        database.connect(f"tcp://{DATABASE}:0;{SERVICE}:{PORT + 1}")
    else:
        database.bind(f"tcp://{DATABASE}:{PORT}")
        _connect(question, SERVICE, DATABASE)


def main(cause: str) -> None:
    """Ask, and wait in vain."""
    for address in (CLIENT, SERVICE, DATABASE):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    guard = ThreadAuthenticator(_context)
    guard.start()
    guard.configure_plain(passwords={"shop": "right"})
    service, client = _socket(zmq.REP), _socket(zmq.REQ)
    database, question = _socket(zmq.SUB if cause in ("type", "worker") else zmq.REP), _socket(zmq.REQ)
    _serve(cause, database, question)
    service.bind(f"tcp://{SERVICE}:{PORT}")
    _connect(client, CLIENT, SERVICE)
    client.send(b"how much is it?")
    threading.Thread(target=lambda: question.send(service.recv()), daemon=True).start()
    time.sleep(_SECONDS)
    guard.stop()


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)  # the service waits to send its question
