"""Connections that come and go: whole ones, and such as end abruptly, stop in their greeting or say nothing."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections import Counter, deque
from multiprocessing.connection import Connection

import zmq

VISIT_S = 0.1  # from the beginning of one visit to that of the next, if it takes no longer
PATIENCE_MS = 10_000
KEPT = 30  # half-open, and idle connections at a time; the oldest gives way
MESSAGES = 5
LARGE = 200_000  # octets; many segments
HOST = "127.0.0.1"
GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x00NULL" + bytes(16 + 32)  # 23/ZMTP, Greeting
_PROPERTIES = b"\x0bSocket-Type" + struct.pack("!I", 4) + b"PUSH" + b"\x08Identity" + bytes(4)
READY = b"\x04" + bytes([6 + len(_PROPERTIES)]) + b"\x05READY" + _PROPERTIES
_ABORT = struct.pack("ii", 1, 0)  # linger for no time: close with a reset


def talk(seconds: float, result: Connection, odd: bool) -> None:
    """Visit for so many seconds; send how many visits of each kind there were, and ``messages`` sent over them all.

    Those who are ``odd`` come more often, and do what a diagnosis may speak of.
    """
    pause = VISIT_S / 10 if odd else VISIT_S
    with _House() as house:
        kinds = [house.push, house.push, house.ask, house.idle]
        if odd:
            kinds += [house.subscribe, house.abort, house.stop_short]
        chance, end = random.Random(1), time.monotonic() + seconds
        while (begin := time.monotonic()) < end:
            visit = chance.choice(kinds)
            house.visits[visit.__name__] += 1
            visit(chance)
            time.sleep(max(0.0, begin + pause - time.monotonic()))
        house.leave()
        result.send(house.visits)


class _House:
    """The sockets that are visited, and the visitors that stay for a while."""

    def __init__(self) -> None:
        self.visits: Counter[str] = Counter()
        self._context = zmq.Context()
        self._context.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        self._context.setsockopt(zmq.SNDTIMEO, PATIENCE_MS)
        self._pull, self._pull_at = self._open(zmq.PULL)
        self._reply, self._reply_at = self._open(zmq.REP)
        self._publish, self._publish_at = self._open(zmq.XPUB)
        self._bin, self._bin_at = self._open(zmq.PULL)
        self._strangers: deque[socket.socket] = deque()
        self._idle: deque[zmq.Socket[bytes]] = deque()

    def __enter__(self) -> _House:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)

    def _open(self, kind: int) -> tuple[zmq.Socket[bytes], int]:
        opened = self._context.socket(kind)
        return opened, opened.bind_to_random_port(f"tcp://{HOST}")

    def _visitor(self, kind: int, port: int) -> zmq.Socket[bytes]:
        visitor = self._context.socket(kind)
        visitor.connect(f"tcp://{HOST}:{port}")
        return visitor

    def push(self, chance: random.Random) -> None:
        """A few messages, now and then a large one."""
        with self._visitor(zmq.PUSH, self._pull_at) as visitor:
            for number in range(MESSAGES):
                size = LARGE if chance.random() < 0.02 else chance.randrange(300)
                visitor.send(b"%d " % number + b"x" * size)
            for _ in range(MESSAGES):
                self._pull.recv()
        self.visits["messages"] += MESSAGES

    def ask(self, _: random.Random) -> None:
        """Questions and answers."""
        with self._visitor(zmq.REQ, self._reply_at) as visitor:
            for number in range(MESSAGES):
                visitor.send(b"question %d" % number)
                self._reply.send(self._reply.recv())
                visitor.recv()
        self.visits["messages"] += 2 * MESSAGES

    def subscribe(self, _: random.Random) -> None:
        """Subscribe to a topic of its own; get one message."""
        topic = b"topic %d" % self.visits["subscribe"]
        with self._visitor(zmq.SUB, self._publish_at) as visitor:
            visitor.subscribe(topic)
            while self._publish.recv() != b"\x01" + topic:
                pass  # those before it are cancelled when their subscribers go
            self._publish.send(topic)
            visitor.recv()
        self.visits["messages"] += 1

    def abort(self, chance: random.Random) -> None:
        """Messages of which the last is cut short by a reset."""
        with socket.create_connection((HOST, self._bin_at), PATIENCE_MS / 1000) as visitor:
            # Else the kernel may keep the messages until the peer has acknowledged, and throw them away at the reset.
            visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            visitor.sendall(GREETING)
            _read(visitor, len(GREETING))
            visitor.sendall(READY)
            _read(visitor, _read(visitor, 2)[1])
            messages = [b"\x00" + bytes([len(body)]) + body for body in [b"y" * chance.randrange(200)] * MESSAGES]
            visitor.sendall(b"".join(messages) + b"\x00\xc8cut short")
            visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self.visits["messages"] += MESSAGES
        with contextlib.suppress(zmq.Again):
            while True:
                self._bin.recv(zmq.NOBLOCK)

    def stop_short(self, chance: random.Random) -> None:
        """A part of a greeting, then silence."""
        visitor = socket.create_connection((HOST, self._bin_at), PATIENCE_MS / 1000)
        visitor.sendall(GREETING[: chance.randrange(len(GREETING))])
        self._strangers.append(visitor)
        if len(self._strangers) > KEPT:
            oldest = self._strangers.popleft()
            if chance.random() < 0.5:
                oldest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            oldest.close()

    def idle(self, _: random.Random) -> None:
        """A connection without messages."""
        self._idle.append(self._visitor(zmq.PUSH, self._bin_at))
        if len(self._idle) > KEPT:
            self._idle.popleft().close(linger=0)

    def leave(self) -> None:
        """Let all go that are still there."""
        for stranger in self._strangers:
            stranger.close()
        for visitor in self._idle:
            visitor.close(linger=0)


def _read(connection: socket.socket, size: int) -> bytes:
    octets = b""
    while len(octets) < size:
        piece = connection.recv(size - len(octets))
        if not piece:
            raise ConnectionError("the peer has gone")
        octets += piece
    return octets
