"""A PUB or a SUB over PGM or EPGM, which logs the messages that it sent or received, as JSON Lines.

    python multicast_peers.py LIBRARY pub ADDRESS
    python multicast_peers.py LIBRARY sub ADDRESS

The PUB sends "sync" again and again until a line comes on its standard input, then MESSAGES and END, and "sync" again
until another line comes. The SUB logs "ready" once it has heard a sync, and ends with END.
"""

import json
import select
import sys
import time

from tests.support import draft_sockets as zmq
from tests.support.draft_peers import body, fingerprint

# Small ones together in a packet, big ones over several.
MESSAGES = [[b"%d" % number, body((number * 37) % 300)] for number in range(120)]
MESSAGES += [[b"big", body(size), b""] for size in (1400, 1500, 5000, 20_000)]
MESSAGES += [[b"last %d" % number, body(700)] for number in range(60)]
END = [b"end"]


def log(frames: list[bytes]) -> None:
    print(json.dumps(fingerprint(frames)), flush=True)


def publish(socket: zmq.Socket) -> None:
    _sync(socket)
    for number, frames in enumerate([*MESSAGES, END]):
        socket.send(*frames)
        log(frames)
        if number % 3 == 0:
            time.sleep(0.002)  # or all small ones are in a few packets
    _sync(socket)  # a packet that is lost is asked for when others come


def _sync(socket: zmq.Socket) -> None:
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        socket.send(b"sync")
        log([b"sync"])
    sys.stdin.readline()


def subscribe(socket: zmq.Socket) -> None:
    socket.set(zmq.SUBSCRIBE, b"")
    assert socket.recv() == [b"sync"]
    print(json.dumps("ready"), flush=True)
    while (frames := socket.recv()) != END:
        if frames != [b"sync"]:
            log(list(frames))


if __name__ == "__main__":
    _, library, role, address = sys.argv
    with zmq.Context(library) as context:
        opened = context.socket(zmq.PUB if role == "pub" else zmq.SUB)
        opened.set(zmq.RATE, 50_000)  # kbit/s
        opened.set(zmq.RECOVERY_IVL, 10_000)
        opened.set(zmq.LINGER, 200)
        opened.connect(address)
        (publish if role == "pub" else subscribe)(opened)
