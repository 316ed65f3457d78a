"""Programs for captures that begin too late: ``python -m tests.support.running_systems NAME``, one of `SYSTEMS`.

Each system talks over loopback for half a second. Record it with ``tcpdump -i lo tcp port 5581``, from its start: the
handshakes say what is right, and tests cut them off.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import zmq

PORT = 5581
NUMBERS = 50
SETTLE = 0.3  # seconds that connections and subscriptions need

_ENDPOINT = f"tcp://127.0.0.1:{PORT}"
_context = zmq.Context()


def _socket(kind: int, bound: bool) -> "zmq.Socket[bytes]":
    socket = _context.socket(kind)
    socket.rcvtimeo = 700
    if bound:
        socket.bind(_ENDPOINT)
    else:
        socket.connect(_ENDPOINT)
    return socket


def _together(first: Callable[[], None], *others: Callable[[], None]) -> None:
    threads = [threading.Thread(target=each) for each in (first, *others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _hear(socket: "zmq.Socket[bytes]", answer: Callable[[list[bytes]], object] | None = None) -> None:
    """Take messages until none come any more."""
    while True:
        try:
            frames = socket.recv_multipart()
        except zmq.Again:
            socket.close(100)
            return
        if answer is not None:
            answer(frames)


def requests(clients: int, service: float, pause: float, bound: bool = False) -> None:
    """REQs, which are ``bound`` or connect, and a REP; how long both take."""

    def reply() -> None:
        socket = _socket(zmq.REP, not bound)

        def answer(frames: list[bytes]) -> None:
            time.sleep(service)
            socket.send(b"answer to " + frames[0])

        _hear(socket, answer)

    def ask(client: int) -> None:
        socket = _socket(zmq.REQ, bound)
        for number in range(NUMBERS // clients):
            socket.send(b"question %d" % (1000 * client + number))
            socket.recv()
            time.sleep(pause)
        socket.close()

    _together(reply, *(partial(ask, client) for client in range(clients)))


def publications(topics: Sequence[bytes], frames: int, wishes: Sequence[bytes]) -> None:
    """A PUB that is bound, whose messages have one to three frames, and a SUB for each wish."""
    publisher = _socket(zmq.PUB, True)

    def publish() -> None:
        time.sleep(SETTLE)
        for number in range(NUMBERS):
            topic, count = topics[number % len(topics)], b"%d" % number
            publisher.send_multipart([topic + b" " + count] if frames == 1 else [topic, count, b"more"][:frames])
            time.sleep(0.005)
        publisher.close(100)

    def subscribe(wish: bytes) -> None:
        socket = _socket(zmq.SUB, False)
        socket.subscribe(wish)
        _hear(socket)

    _together(publish, *(partial(subscribe, wish) for wish in wishes))


def jobs(pushers: int, workers: int, bound: bool) -> None:
    """PUSHs and PULLs; a single PUSH is ``bound``, or a single PULL."""

    def push() -> None:
        socket = _socket(zmq.PUSH, bound)
        time.sleep(SETTLE)
        for number in range(NUMBERS):
            socket.send(b"job %d" % number)
            time.sleep(0.005)
        socket.close(100)

    def work() -> None:
        _hear(_socket(zmq.PULL, not bound))

    _together(*[push] * pushers, *[work] * workers)


def turns() -> None:
    """A DEALER and a ROUTER whose programs do as REQ and REP."""
    router, dealer = _socket(zmq.ROUTER, True), _socket(zmq.DEALER, False)

    def ask() -> None:
        for number in range(NUMBERS):
            dealer.send_multipart([b"", b"question %d" % number])
            dealer.recv_multipart()
            time.sleep(0.002)
        dealer.close()

    _together(ask, lambda: _hear(router, router.send_multipart))


SYSTEMS: dict[str, Callable[[], None]] = {
    "requests_fast": partial(requests, 1, 0, 0),
    "requests_of_three": partial(requests, 3, 0.001, 0.002),
    "requests_slow": partial(requests, 1, 0.01, 0),
    "requests_to_clients": partial(requests, 1, 0.002, 0.002, bound=True),
    "topics": partial(publications, [b"prices.EUR", b"prices.USD"], 2, [b"prices", b"prices.EUR"]),
    "one_topic": partial(publications, [b"weather"], 1, [b"weather"]),
    "topics_for_each": partial(publications, [b"one", b"two", b"three"], 3, [b"one", b"two", b"t"]),
    "jobs_for_one": partial(jobs, 1, 1, bound=False),
    "jobs_of_two": partial(jobs, 2, 1, bound=False),
    "jobs_for_three": partial(jobs, 1, 3, bound=True),
    "jobs_fetched": partial(jobs, 1, 1, bound=True),
    "dealer_takes_turns": turns,
}

if __name__ == "__main__":
    SYSTEMS[sys.argv[1]]()
