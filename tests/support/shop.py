"""A small shop of 13 connections, broken or changed in realistic ways: ``python -m tests.support.shop WAY [SECONDS]``.

It talks over loopback for some four seconds. ``none`` is the shop as it should be.
"""

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import zmq

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]
FRONT, BACK, PRICES, JOBS, ADMIN, VAULT, STOCK = range(5561, 5568)
SECONDS = 4.0
_SLOW_EVERY = 8  # so often that a busy machine, which takes fewer orders, has enough slow ones


class Fault(NamedTuple):
    """A way in which the shop is broken, and the findings that a diagnosis must have."""

    what: str
    code: str
    words: str  # that its first lines must have


FAULTS = {
    "dead-server": Fault("the stock service is not running", "endpoint-refused", f"127.0.0.1:{STOCK}"),
    "typo": Fault("a subscriber wants prices.GPB", "subscription-unmatched", '"prices.GBP"'),
    "null": Fault("the vault's client does not use CURVE", "mechanisms-differ", f"127.0.0.1:{VAULT}"),
    "slow-archive": Fault("a subscriber is too slow", "messages-dropped", f"127.0.0.1:{PRICES}"),
    "password": Fault("the admin's password is wrong", "credentials-refused", f"127.0.0.1:{ADMIN}"),
    "server-key": Fault("the vault's client has another public key", "server-key-wrong", f"127.0.0.1:{VAULT}"),
    "wrong-port": Fault("the jobs are pushed to the prices", "sockets-mismatched", f"127.0.0.1:{PRICES}"),
    "slow-service": Fault(
        "some orders take a worker half a second", "replies-slow", "taking a request and answering it"
    ),
    "hanging-worker": Fault("a worker hangs", "worker-silent", f"127.0.0.1:{BACK}"),
}


# Ways in which the shop works, but not as before: a policy must tell them.
CHANGES = {
    "no-archive": "nobody subscribes to all prices any more",
    "open-vault": "the vault speaks NULL, and so does its client",
    "new-client": "somebody else subscribes to prices, too",
}


class Shop:
    """All sockets of the shop, each used by a thread of its own."""

    def __init__(self, fault: str, seconds: float = SECONDS) -> None:
        """Open the shop, broken in one of the ways of FAULTS or changed in one of CHANGES, for some seconds."""
        self._fault = fault
        self._seconds = seconds
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._context = zmq.Context()
        self._server_key, self._server_secret = zmq.curve_keypair()

    def run(self) -> None:
        """Work for a while, then close; raises nothing."""
        self._start(self._zap)
        time.sleep(0.1)
        for serve in (self._broker, self._prices, self._jobs, self._admin, self._vault):
            self._start(serve)
        if self._fault != "dead-server":
            self._start(self._stock)
        time.sleep(0.2)
        self._start(lambda: self._worker(hangs=False))
        self._start(lambda: self._worker(hangs=self._fault == "hanging-worker"))
        for topic in (b"prices.GBP", b"prices.EUR", b"prices.GPB" if self._fault == "typo" else b"prices.GBP"):
            self._start(partial(self._subscriber, topic, 0.0))
        if self._fault != "no-archive":
            self._start(lambda: self._subscriber(b"", 0.01 if self._fault == "slow-archive" else 0.0))
        if self._fault == "new-client":
            self._start(lambda: self._subscriber(b"prices.EUR", 0.0))
        self._start(lambda: self._packer(PRICES if self._fault == "wrong-port" else JOBS))
        self._start(lambda: self._packer(JOBS))
        self._start(self._admin_client)
        self._start(self._vault_client)
        self._start(self._stock_client)
        for _ in range(2):
            self._start(self._customer)
        time.sleep(self._seconds)
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._context.destroy(linger=0)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def _socket(self, kind: int, port: int, *, bind: bool = False, **options: int | bytes) -> Socket:
        made = self._context.socket(kind)
        made.linger = 0
        for name, value in options.items():
            made.set(getattr(zmq, name.upper()), value)
        address = f"tcp://127.0.0.1:{port}"
        made.bind(address) if bind else made.connect(address)
        return made

    def _serve(self, socket: Socket, answer: Callable[[list[bytes]], list[bytes]]) -> None:
        while not self._stop.is_set():
            if socket.poll(100):
                socket.send_multipart(answer(socket.recv_multipart()))

    def _ask(self, socket: Socket, request: Callable[[int], list[bytes]], pause: float) -> None:
        """Ask, wait for the reply, and ask again."""
        number = 0
        while not self._stop.is_set():
            socket.send_multipart(request(number))
            number += 1
            while not socket.poll(100) and not self._stop.is_set():
                pass
            if socket.poll(0):
                socket.recv_multipart()
            time.sleep(pause)

    # ------------------------------------------------------------------ services

    def _zap(self) -> None:
        """Admits alice with her password, and any CURVE key."""
        socket = self._context.socket(zmq.REP)
        socket.linger = 0
        socket.bind("inproc://zeromq.zap.01")

        def judge(request: list[bytes]) -> list[bytes]:
            version, number, _, _, _, mechanism, *credentials = request
            good = mechanism != b"PLAIN" or credentials == [b"alice", b"opensesame"]
            return [version, number, b"200" if good else b"400", b"OK" if good else b"no", b"", b""]

        self._serve(socket, judge)

    def _broker(self) -> None:
        front = self._socket(zmq.ROUTER, FRONT, bind=True)
        back = self._socket(zmq.DEALER, BACK, bind=True)
        while not self._stop.is_set():
            for source, target in ((front, back), (back, front)):
                if source.poll(5):
                    target.send_multipart(source.recv_multipart())

    def _worker(self, *, hangs: bool) -> None:
        socket = self._socket(zmq.REP, BACK)
        count = 0
        while not self._stop.is_set():
            if socket.poll(100):
                count += 1
                request = socket.recv_multipart()
                if hangs and count > 3:
                    self._stop.wait()
                    return
                if self._fault == "slow-service" and count % _SLOW_EVERY == 0:
                    time.sleep(0.5)
                socket.send_multipart([b"done", *request])

    def _prices(self) -> None:
        options = {"sndhwm": 20, "sndbuf": 4096} if self._fault == "slow-archive" else {}
        socket = self._socket(zmq.PUB, PRICES, bind=True, **options)
        number = 0
        fast = self._fault == "slow-archive"
        end = time.monotonic() + self._seconds - 1
        while not self._stop.is_set():
            if not fast or time.monotonic() < end:
                for currency in (b"GBP", b"EUR"):
                    number += 1
                    socket.send_multipart([b"prices." + currency, b"%d" % (number * 7919 % 100_003), b"." * 200])
            time.sleep(0.002 if fast else 0.02)

    def _jobs(self) -> None:
        socket = self._socket(zmq.PUSH, JOBS, bind=True, sndtimeo=100)
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                socket.send(b"job %d" % number)
            except zmq.Again:
                continue
            time.sleep(0.02)

    def _admin(self) -> None:
        self._serve(self._socket(zmq.REP, ADMIN, bind=True, plain_server=1, zap_domain=b"shop"), lambda _: [b"ok"])

    def _vault(self) -> None:
        options: dict[str, Any] = {"curve_server": 1, "curve_secretkey": self._server_secret, "zap_domain": b"shop"}
        secured = {} if self._fault == "open-vault" else options
        self._serve(self._socket(zmq.REP, VAULT, bind=True, **secured), lambda _: [b"gold"])

    def _stock(self) -> None:
        self._serve(self._socket(zmq.ROUTER, STOCK, bind=True), lambda request: [*request[:2], b"in stock"])

    # ------------------------------------------------------------------ clients

    def _customer(self) -> None:
        self._ask(self._socket(zmq.REQ, FRONT), lambda number: [b"order", b"%d" % number], 0.02)

    def _subscriber(self, topic: bytes, pause: float) -> None:
        options: dict[str, Any] = {"rcvhwm": 10, "rcvbuf": 4096} if pause else {}
        socket = self._socket(zmq.SUB, PRICES, subscribe=topic, **options)
        while not self._stop.is_set():
            if socket.poll(100):
                socket.recv_multipart()
                time.sleep(pause)

    def _packer(self, port: int) -> None:
        socket = self._socket(zmq.PULL, port)
        while not self._stop.is_set():
            if socket.poll(100):
                socket.recv()

    def _admin_client(self) -> None:
        password = b"letmein" if self._fault == "password" else b"opensesame"
        socket = self._socket(zmq.REQ, ADMIN, plain_username=b"alice", plain_password=password)
        self._ask(socket, lambda number: [b"status"], 0.1)

    def _vault_client(self) -> None:
        public, secret = zmq.curve_keypair()
        server = zmq.curve_keypair()[0] if self._fault == "server-key" else self._server_key
        keys: dict[str, Any] = {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": server}
        socket = self._socket(zmq.REQ, VAULT, **({} if self._fault in ("null", "open-vault") else keys))
        self._ask(socket, lambda number: [b"how much?"], 0.1)

    def _stock_client(self) -> None:
        socket = self._socket(zmq.DEALER, STOCK)
        self._ask(socket, lambda number: [b"", b"left of %d?" % number], 0.05)


if __name__ == "__main__":
    Shop(sys.argv[1], *map(float, sys.argv[2:3])).run()
