"""Two services of one machine that ask the same database: ``python -m tests.support.two_services REQUESTS``.

Each is a process. A question to the database has nothing in common with the request that it is for, and the clients ask
both services at the same time.
"""

import multiprocessing
import random
import sys
import time

import zmq

DATABASE, SERVICES = 5591, (5592, 5593)
PAUSE_SECONDS = 2.0  # after the first request: time to look for the processes


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


def ask(port: int, requests: int) -> None:
    """Send requests, one after the other."""
    context = zmq.Context()
    socket = context.socket(zmq.REQ)
    socket.connect(f"tcp://127.0.0.1:{port}")
    for number in range(requests):
        socket.send(b"order %d" % number)
        socket.recv()
        time.sleep(random.uniform(0, 0.003) if number else PAUSE_SECONDS)


def main(requests: int) -> None:
    """Run all of them until the clients are served."""
    servers = [multiprocessing.Process(target=serve, args=(port,), daemon=True) for port in SERVICES]
    servers.append(multiprocessing.Process(target=keep, daemon=True))
    clients = [multiprocessing.Process(target=ask, args=(port, requests)) for port in SERVICES]
    for process in [*servers, *clients]:
        process.start()
    for process in clients:
        process.join()


if __name__ == "__main__":
    main(int(sys.argv[1]))
