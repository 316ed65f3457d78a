"""CURVE written by hand with PyNaCl: both sides of a handshake and its messages, with all keys known.

Against a real peer one of the two sides is played, and what has been said is kept.
"""

import socket
from dataclasses import dataclass, field
from random import Random

import nacl.bindings as sodium

from dissectors.zmtp.curve_keys import Key, SecretKey, SharedKey
from tests.world.octets import command, frame, greeting, prop

CLIENT, SERVER = 0, 1
Sent = list[tuple[int, bytes]]


@dataclass(frozen=True)
class Pair:
    """A public key and its secret key."""

    public: bytes
    secret: bytes


def pair(random: Random) -> Pair:
    secret = random.randbytes(32)
    return Pair(sodium.crypto_scalarmult_base(secret), secret)


def seal(octets: bytes, nonce: bytes, key: bytes) -> bytes:
    sealed: bytes = sodium.crypto_box_afternm(octets, nonce, key)
    return sealed


def opened(box: bytes, nonce: bytes, key: bytes) -> bytes:
    plain: bytes = sodium.crypto_box_open_afternm(box, nonce, key)
    return plain


def both(public: bytes, secret: bytes) -> bytes:
    key: bytes = sodium.crypto_box_beforenm(public, secret)
    return key


@dataclass
class Curve:
    """The keys of one connection, and the commands that are made with them."""

    seed: int = 1
    nonces: list[int] = field(default_factory=lambda: [0, 0])
    sent: Sent = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        # Long-term, then transient.
        self.client, self.server = pair(self.random), pair(self.random)
        self.client_now, self.server_now = pair(self.random), pair(self.random)
        self.cookie_key = self.random.randbytes(32)
        self.cookie = b""

    @property
    def key(self) -> bytes:
        if self.client_now.secret:
            return both(self.server_now.public, self.client_now.secret)
        return both(self.client_now.public, self.server_now.secret)

    def ways(self) -> dict[str, list[Key]]:
        """The keys that open all of the connection, each set by itself."""
        shared = SharedKey(self.client_now.public, self.server_now.public, self.key)
        client, server = self.client_now, self.server_now
        return {
            "k": [shared],
            "k alone": [SharedKey(None, None, self.key)],
            "s'": [SecretKey(server.public, server.secret)],
            "s' alone": [SecretKey(None, server.secret)],
            "c' and S'": [SecretKey(client.public, client.secret), SecretKey(server.public, None)],
            "c' and S": [SecretKey(client.public, client.secret), SecretKey(self.server.public, None)],
            "c' and s": [SecretKey(client.public, client.secret), SecretKey(self.server.public, self.server.secret)],
            "K": [SecretKey(None, self.cookie_key)],
        }

    def _nonce(self, side: int) -> bytes:
        self.nonces[side] += 1
        return self.nonces[side].to_bytes(8, "big")

    def hello(self) -> bytes:
        nonce = self._nonce(CLIENT)
        box = seal(bytes(64), b"CurveZMQHELLO---" + nonce, both(self.server.public, self.client_now.secret))
        return command(b"HELLO", b"\1\0" + bytes(72) + self.client_now.public + nonce + box)

    def welcome(self) -> bytes:
        nonce = self.random.randbytes(16)
        plain = self.client_now.public + self.server_now.secret
        self.cookie = nonce + seal(plain, b"COOKIE--" + nonce, self.cookie_key)
        nonce = self.random.randbytes(16)
        key = both(self.client_now.public, self.server.secret)
        return command(b"WELCOME", nonce + seal(self.server_now.public + self.cookie, b"WELCOME-" + nonce, key))

    def initiate(self, metadata: bytes) -> bytes:
        nonce = self.random.randbytes(16)
        key = both(self.server_now.public, self.client.secret)
        vouch = nonce + seal(self.client_now.public + self.server.public, b"VOUCH---" + nonce, key)
        nonce = self._nonce(CLIENT)
        box = seal(self.client.public + vouch + metadata, b"CurveZMQINITIATE" + nonce, self.key)
        return command(b"INITIATE", self.cookie + nonce + box)

    def ready(self, metadata: bytes) -> bytes:
        nonce = self._nonce(SERVER)
        return command(b"READY", nonce + seal(metadata, b"CurveZMQREADY---" + nonce, self.key))

    def message(self, side: int, body: bytes, flags: int = 0) -> bytes:
        nonce = self._nonce(side)
        prefix = b"CurveZMQMESSAGEC" if side == CLIENT else b"CurveZMQMESSAGES"
        return frame(b"\7MESSAGE" + nonce + seal(bytes([flags]) + body, prefix + nonce, self.key))

    def handshake(self, client: bytes = b"DEALER", server: bytes = b"ROUTER") -> Sent:
        return [
            (CLIENT, greeting(b"CURVE")),
            (SERVER, greeting(b"CURVE", as_server=1)),
            (CLIENT, self.hello()),
            (SERVER, self.welcome()),
            (CLIENT, self.initiate(prop(b"Socket-Type", client) + prop(b"Identity", b"me"))),
            (SERVER, self.ready(prop(b"Socket-Type", server) + prop(b"Identity", b""))),
        ]

    def multipart(self, side: int, *bodies: bytes) -> Sent:
        return [(side, self.message(side, body, place < len(bodies) - 1)) for place, body in enumerate(bodies)]


class RealPeer:
    """A libzmq peer on a connection whose other side is played here."""

    def __init__(self, connection: socket.socket, curve: Curve, side: int) -> None:
        """Play ``side``."""
        self.curve = curve
        self._connection = connection
        self._side = side
        self._held = b""
        connection.settimeout(60)

    def send(self, octets: bytes) -> None:
        self._connection.sendall(octets)
        self.curve.sent.append((self._side, octets))

    def receive(self, size: int) -> bytes:
        while len(self._held) < size:
            more = self._connection.recv(65536)
            if not more:
                raise EOFError("the peer closed the connection")
            self._held += more
        octets, self._held = self._held[:size], self._held[size:]
        self.curve.sent.append((1 - self._side, octets))
        return octets

    def frame(self) -> bytes:
        """The body of the next frame."""
        while len(self._held) < 9:
            more = self._connection.recv(65536)
            if not more:
                raise EOFError("the peer closed the connection")
            self._held += more
        long = self._held[0] & 2
        size = int.from_bytes(self._held[1:9], "big") if long else self._held[1]
        head = 9 if long else 2
        return self.receive(head + size)[head:]

    def play_client(self, server_key: bytes, socket_type: bytes) -> None:
        """The handshake with a real server of this long-term public key."""
        curve = self.curve
        curve.server = Pair(server_key, b"")
        self.send(greeting(b"CURVE"))
        self.receive(64)
        self.send(curve.hello())
        body = self.frame()
        key = both(server_key, curve.client_now.secret)
        plain = opened(body[24:], b"WELCOME-" + body[8:24], key)
        curve.server_now = Pair(plain[:32], b"")
        curve.cookie = plain[32:]
        self.send(curve.initiate(prop(b"Socket-Type", socket_type) + prop(b"Identity", b"me")))
        assert self.frame().startswith(b"\5READY")

    def play_server(self, socket_type: bytes) -> None:
        """The handshake with a real client, which knows our long-term public key."""
        curve = self.curve
        self.send(greeting(b"CURVE", as_server=1))
        self.receive(64)
        hello = self.frame()
        curve.client_now = Pair(hello[80:112], b"")
        self.send(curve.welcome())
        assert self.frame().startswith(b"\x08INITIATE")
        self.send(curve.ready(prop(b"Socket-Type", socket_type)))

    def say(self, body: bytes, flags: int = 0) -> None:
        self.send(self.curve.message(self._side, body, flags))
