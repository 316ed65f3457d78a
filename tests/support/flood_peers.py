"""Programs that say much: requests and their replies, so many messages a second in portions, for some seconds.

python -m tests.support.flood_peers RATE SECONDS OCTETS prints how many messages there were.
"""

import itertools
import sys
import threading
import time

import zmq

ENDPOINT = "tcp://127.0.0.1:5555"
_TICK_S = 0.01


def _answer(context: zmq.Context[zmq.Socket[bytes]], count: list[int]) -> None:
    """Give each request back, until nothing comes for two seconds."""
    with context.socket(zmq.ROUTER) as router:
        router.bind(ENDPOINT)
        while router.poll(2000 if count[0] else None):
            router.send_multipart(router.recv_multipart())
            count[0] += 2


def main(rate: int, seconds: float, octets: int) -> None:
    """Ask."""
    count = [0]
    with zmq.Context() as context:
        answers = threading.Thread(target=_answer, args=[context, count])
        answers.start()
        with context.socket(zmq.DEALER) as dealer:
            dealer.connect(ENDPOINT)
            begin = time.monotonic()
            for tick in itertools.count(1):
                for number in range(round(rate * _TICK_S / 2)):
                    dealer.send_multipart([b"", b"%06d %06d " % (tick, number) + bytes(octets)])
                while dealer.poll(0):
                    dealer.recv_multipart()
                time.sleep(max(0.0, begin + tick * _TICK_S - time.monotonic()))
                if time.monotonic() - begin > seconds:
                    break
            while dealer.poll(1000):
                dealer.recv_multipart()
        answers.join()
    print(count[0])


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
