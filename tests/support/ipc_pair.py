"""A REP socket, and a REQ socket in a child of its process, unmodified pyzmq.

    python ipc_pair.py ENDPOINT ROUNDS STATUS

With ROUNDS they talk so often, and it ends with STATUS. With 0 it says "ready" and the child's number once they have
talked; then each line on its standard input is a round, after which it says "done".
"""

import os
import sys

import zmq


def ask(endpoint: str, rounds: int, orders: int, answers: int) -> None:
    context = zmq.Context()
    client = context.socket(zmq.REQ)
    client.connect(endpoint)
    number = 0
    while number < rounds or (not rounds and os.read(orders, 1)):
        client.send(b"request %d" % number)
        client.recv()
        os.write(answers, b".")
        number += 1
    client.close()
    context.term()


def main(endpoint: str, rounds: int, status: int) -> None:
    context = zmq.Context()
    server = context.socket(zmq.REP)
    server.bind(endpoint)
    bound = server.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
    (orders, order), (answer, answers) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(order)
        ask(bound, rounds, orders, answers)
        os._exit(0)
    number = 0

    def reply() -> None:
        nonlocal number
        server.recv()
        server.send(b"reply %d" % number)
        number += 1
        os.read(answer, 1)

    if rounds:
        for _ in range(rounds):
            reply()
        print("said by the command", flush=True)
    else:
        os.write(order, b".")
        reply()
        print(f"ready\n{child}", flush=True)
        for _ in sys.stdin:
            os.write(order, b".")
            reply()
            print("done", flush=True)
    os.close(order)
    os.waitpid(child, 0)
    server.close()
    context.term()
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
