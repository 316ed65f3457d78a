"""Programs that wait for messages: ``python -m tests.support.waiting_peers NAME``, one of `SYSTEMS`."""

import contextlib
import sys
import threading
import time

import zmq

PORT = 5571
_ENDPOINT = f"tcp://127.0.0.1:{PORT}"
_context = zmq.Context()


def _socket(kind: int, bound: bool = False) -> "zmq.Socket[bytes]":
    socket = _context.socket(kind)
    socket.linger = 0
    socket.rcvtimeo = 60_000
    if bound:
        socket.bind(_ENDPOINT)
    else:
        socket.connect(_ENDPOINT)
    return socket


def _subscriber(topic: bytes) -> "zmq.Socket[bytes]":
    socket = _socket(zmq.SUB)
    socket.subscribe(topic)
    return socket


def old_news() -> None:
    """A topic is published before somebody subscribes to it, and not again."""
    publisher = _socket(zmq.XPUB, bound=True)
    _keep = [_subscriber(b"weather.A"), _subscriber(b"weather.B")]
    for _ in _keep:
        publisher.recv()
    for number in range(5):
        publisher.send(b"weather.B 0")
        publisher.send(b"weather.A %d" % number)
    for socket in 5 * _keep:
        socket.recv()
    _keep.append(_subscriber(b"weather.B"))
    for number in range(20):
        time.sleep(0.3)
        publisher.send(b"weather.A %d" % number)


def left_out() -> None:
    """A publisher ignores the subscription of one subscriber."""
    publisher = _socket(zmq.XPUB, bound=True)
    publisher.setsockopt(zmq.XPUB_MANUAL, 1)
    keep = [_subscriber(b"news")]
    publisher.recv()
    publisher.setsockopt(zmq.SUBSCRIBE, b"news")
    keep.append(_subscriber(b"news"))
    publisher.recv()
    for number in range(15):
        time.sleep(0.1)
        publisher.send(b"news %d" % number)


def no_news() -> None:
    """A publisher has nothing to say."""
    _keep = [_socket(zmq.PUB, bound=True), _subscriber(b"news")]
    time.sleep(6)


def _queue() -> "tuple[zmq.Socket[bytes], zmq.Socket[bytes]]":
    """A PUSH and a PULL that can queue little."""
    push, pull = _context.socket(zmq.PUSH), _context.socket(zmq.PULL)
    for socket in (push, pull):
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = 1
        socket.sndbuf = socket.rcvbuf = 8192
    push.bind(_ENDPOINT)
    pull.connect(_ENDPOINT)
    return push, pull


def _push(push: "zmq.Socket[bytes]", seconds: float, size: int = 10_000) -> None:
    """Send as much as goes, up to 80 messages a second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(zmq.Again):
            push.send(bytes(size), zmq.DONTWAIT)
        time.sleep(1 / 80)


def slow_worker() -> None:
    """A worker takes 20 of 80 messages a second."""
    push, pull = _queue()
    other = threading.Thread(target=_push, args=(push, 8.0, 1000))
    other.start()
    while other.is_alive():
        pull.recv()
        time.sleep(1 / 20)


def pausing_worker() -> None:
    """A worker takes nothing for three seconds, then all."""
    push, pull = _queue()
    other = threading.Thread(target=_push, args=(push, 5.0))
    other.start()
    time.sleep(3)
    while other.is_alive():
        pull.poll(100)
        if pull.poll(0):
            pull.recv()


def stopped_worker() -> None:
    """A worker takes ten messages, and then nothing."""
    push, pull = _queue()
    other = threading.Thread(target=_push, args=(push, 5.0))
    other.start()
    for _ in range(10):
        pull.recv()
    other.join()


SYSTEMS = {one.__name__: one for one in (old_news, left_out, no_news, slow_worker, pausing_worker, stopped_worker)}

if __name__ == "__main__":
    SYSTEMS[sys.argv[1]]()
    _context.destroy(0)
