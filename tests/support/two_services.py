"""Two services of one machine that ask the same database: ``python -m tests.support.two_services``.

Each is a process. A question to the database has nothing in common with the request that it is for, and the clients ask
both services at the same time, until standard input ends.
"""

import itertools
import multiprocessing
import random
import sys
import time
from collections.abc import Callable

import zmq

DATABASE, SERVICES = 5591, (5592, 5593)


def serve(port: int) -> None:
    """Take requests, and ask the database before each reply."""
    context = zmq.Context()
    front, database = context.socket(zmq.REP), context.socket(zmq.REQ)
    database.connect(f"tcp://127.0.0.1:{DATABASE}")
    front.bind(f"tcp://127.0.0.1:{port}")
    while True:
        front.recv()
        database.send(b"select %x" % random.getrandbits(64))
        database.recv()
        front.send(b"done")


def keep() -> None:
    """Answer as the database."""
    context = zmq.Context()
    socket = context.socket(zmq.REP)
    socket.bind(f"tcp://127.0.0.1:{DATABASE}")
    while True:
        socket.recv()
        time.sleep(random.uniform(0.001, 0.004))
        socket.send(b"row")


def ask(port: int) -> None:
    """Send requests, one after the other."""
    context = zmq.Context()
    socket = context.socket(zmq.REQ)
    socket.connect(f"tcp://127.0.0.1:{port}")
    for number in itertools.count():
        socket.send(b"order %d" % number)
        socket.recv()
        time.sleep(random.uniform(0.01, 0.03))


def main() -> None:
    """Run all of them until standard input ends."""
    programs: list[tuple[Callable[..., None], tuple[int, ...]]] = [(keep, ())]
    programs += [(program, (port,)) for program in (serve, ask) for port in SERVICES]
    for program, arguments in programs:
        multiprocessing.Process(target=program, args=arguments, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
