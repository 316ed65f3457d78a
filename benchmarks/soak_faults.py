"""Faults to plant under a capture, each at a port of its own: ``python soak_faults.py NAME PORT SECONDS``.

Each lasts so many seconds, ends by itself, and is told by a finding of the code that CODES names.
"""

from __future__ import annotations

import sys
import time

import zmq
from zmq.auth.thread import ThreadAuthenticator

HOST = "127.0.0.1"
_RETRY_MS = 500  # between two attempts of a client; less would be a storm


class _Peers:
    """The sockets of a fault."""

    def __init__(self, port: int, seconds: float) -> None:
        self.seconds = seconds
        self._endpoint = f"tcp://{HOST}:{port}"
        self.context = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []  # pyzmq closes a socket that nobody holds

    def bound(self, kind: int, **options: object) -> zmq.Socket[bytes]:
        """A socket that peers connect to."""
        return self._socket(kind, options, "bind")

    def connected(self, kind: int, **options: object) -> zmq.Socket[bytes]:
        """A socket that connects."""
        return self._socket(kind, {"reconnect_ivl": _RETRY_MS, **options}, "connect")

    def _socket(self, kind: int, options: dict[str, object], open_by: str) -> zmq.Socket[bytes]:
        made = self.context.socket(kind)
        self._sockets.append(made)
        made.linger = 0
        for name, value in options.items():
            setattr(made, name, value)
        getattr(made, open_by)(self._endpoint)
        return made

    def end(self) -> None:
        """Close them, clients first: else they would come back, and find nobody."""
        for one in reversed(self._sockets):
            one.close()
        self.context.destroy(linger=0)


def refused(peers: _Peers) -> None:
    """No service listens."""
    peers.connected(zmq.REQ)
    time.sleep(peers.seconds)


def mismatched(peers: _Peers) -> None:
    """A REQ connects to a PULL."""
    peers.bound(zmq.PULL)
    peers.connected(zmq.REQ)
    time.sleep(peers.seconds)


def unanswered(peers: _Peers) -> None:
    """A service stops answering, and is closed in the end."""
    reply, request = peers.bound(zmq.REP), peers.connected(zmq.REQ, rcvtimeo=5000)
    for number in range(20):
        request.send(b"question %d" % number)
        reply.send(reply.recv())
        request.recv()
    request.send(b"the last question")
    reply.recv()
    time.sleep(peers.seconds)


def password(peers: _Peers) -> None:
    """A client has the wrong password."""
    warden = ThreadAuthenticator(peers.context)
    warden.start()
    warden.configure_plain(passwords={"someone": "right"})
    peers.bound(zmq.PULL, plain_server=True)
    peers.connected(zmq.PUSH, plain_username=b"someone", plain_password=b"wrong")
    time.sleep(peers.seconds)
    warden.stop()


def mechanisms(peers: _Peers) -> None:
    """A client without a password meets a server that wants one."""
    peers.bound(zmq.PULL, plain_server=True)
    peers.connected(zmq.PUSH)
    time.sleep(peers.seconds)


_PEERS = {each.__name__: each for each in (refused, mismatched, unanswered, password, mechanisms)}
CODES = {
    "refused": "endpoint-refused",
    "mismatched": "sockets-mismatched",
    "unanswered": "request-unanswered",
    "password": "credentials-refused",
    "mechanisms": "mechanisms-differ",
}


def main() -> None:
    """Be the peers of one fault."""
    name, port, seconds = sys.argv[1:]
    peers = _Peers(int(port), float(seconds))
    _PEERS[name](peers)
    peers.end()


if __name__ == "__main__":
    main()
