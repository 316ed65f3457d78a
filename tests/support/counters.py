"""Programs that count their messages: ``python -m tests.support.counters WAY``, where WAY is ``whole`` or ``faulty``.

An XPUB counts each topic by itself, for one subscriber to all topics and for one to a single topic. A PUSH counts all
its jobs, which two workers share. ``faulty`` leaves out three numbers, says one twice, and says two in the wrong order.
"""

import json
import sys
import time

import zmq

NUMBERS = 60
PRICES, JOBS = 5571, 5572
LEFT_OUT, TWICE, SWAPPED = range(17, 20), 30, 40


def numbers(way: str) -> list[int]:
    """The numbers that a program counts."""
    counted = list(range(1, NUMBERS + 1))
    if way == "faulty":
        counted = [each for each in counted if each not in LEFT_OUT]
        counted.insert(counted.index(TWICE), TWICE)
        place = counted.index(SWAPPED)
        counted[place : place + 2] = reversed(counted[place : place + 2])
    return counted


def main(way: str) -> None:
    """Talk over loopback, for half a second."""
    context = zmq.Context[zmq.Socket[bytes]]()
    prices, jobs = context.socket(zmq.XPUB), context.socket(zmq.PUSH)
    prices.bind(f"tcp://127.0.0.1:{PRICES}")
    jobs.bind(f"tcp://127.0.0.1:{JOBS}")
    receivers = []
    for kind, port, topic in ((zmq.SUB, PRICES, b""), (zmq.SUB, PRICES, b"EUR"), *[(zmq.PULL, JOBS, None)] * 2):
        receiver = context.socket(kind)
        if topic is not None:
            receiver.subscribe(topic)
        receiver.connect(f"tcp://127.0.0.1:{port}")
        receivers.append(receiver)
    for _ in range(2):
        prices.recv()  # a subscription
    counted = numbers(way)
    for value in counted:
        prices.send_multipart([b"EUR", b"%d" % value, b"1.09"])
        prices.send_multipart([b"GBP", b"%d" % (value + 1000), b"0.87"])
        jobs.send(json.dumps({"job": {"seq": value}, "what": "pack"}).encode())
        time.sleep(0.003)
    missing = 4 * len(counted)  # two prices and a job each, and the euros twice
    while missing:
        for receiver in receivers:
            if receiver.poll(10):
                receiver.recv_multipart()
                missing -= 1
    context.destroy(linger=0)


if __name__ == "__main__":
    main(sys.argv[1])
