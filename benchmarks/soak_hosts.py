"""A host that appears while others capture: a network namespace of its own, joined by a veth pair.

``python soak_hosts.py NUMBER``, in the network of who captures. A client in the namespace asks a service here; in
between nobody says anything, and the interface goes down and up again. In the end the namespace goes.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import zmq

PORT = 6001
REQUESTS = 50  # before the interface goes down, and after it is up
DOWN_S = 3.0
_STEP_S = 0.02


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _answer(address: str, ready: threading.Event) -> None:
    with zmq.Context() as context, context.socket(zmq.REP) as reply:
        reply.bind(f"tcp://{address}:{PORT}")
        ready.set()
        for _ in range(2 * REQUESTS):
            reply.send(reply.recv())


def _ask(network: str) -> None:
    """Be the client, which takes one step for each line on standard input."""
    print("here", flush=True)
    input()
    _ip("address", "add", f"{network}.2/24", "dev", "inside")
    _ip("link", "set", "inside", "up")
    with zmq.Context() as context, context.socket(zmq.REQ) as request:
        request.connect(f"tcp://{network}.1:{PORT}")
        for _ in range(2):
            for number in range(REQUESTS):
                request.send(b"question %d" % number)
                request.recv()
                time.sleep(_STEP_S)
            print("asked", flush=True)
            input()


def _host(network: str, interface: str) -> None:
    command = ["unshare", "--net", sys.executable, __file__, "inside", network]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin
        assert client.stdout

        def go_on() -> None:
            assert client.stdin
            client.stdin.write("\n")
            client.stdin.flush()

        client.stdout.readline()
        _ip("link", "add", interface, "type", "veth", "peer", "name", "inside", "netns", str(client.pid))
        _ip("address", "add", f"{network}.1/24", "dev", interface)
        _ip("link", "set", interface, "up")
        ready = threading.Event()
        service = threading.Thread(target=_answer, args=[f"{network}.1", ready])
        service.start()
        ready.wait()
        go_on()
        client.stdout.readline()
        _ip("link", "set", interface, "down")
        time.sleep(DOWN_S)
        _ip("link", "set", interface, "up")
        go_on()
        client.stdout.readline()
        service.join()
        go_on()


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        _ask(sys.argv[2])
    else:
        number = int(sys.argv[1])
        _host(f"10.{90 + number // 250}.{number % 250}", f"soak{number}")
