"""The boxes of a CURVE connection, opened with what a ring of keys knows (26/CURVEZMQ).

    command   box                                           opened by
    HELLO     64 zeros           (C' to S)                   C' and s, or c' and S
    WELCOME   S', the cookie     (S to C')                   the same
              the cookie: C', s' (of the server to itself)   its key K
    INITIATE  C, vouch, metadata (C' to S')                  k, made of C' and s', or of S' and c'
              the vouch: C', S   (C to S')                   C and s'
    READY     metadata           (S' to C')                  k
    MESSAGE   flags, a frame     (either way)                k

The search for a key ends when a key has opened one box: the 16 octets of a box's authenticator prove the key. From then
on a box that it does not open is a problem. HELLO shows C', which finds a key directly. If the capture lacks HELLO, the
search tries every key with two boxes, since one of them may be damaged.

Keys may come late, while a capture goes on. Then the events of a connection wait for them (:class:`Wait`).

A snapshot has no key. It has what the connection has shown of itself, and asks the ring of keys again.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from msgspec import field

from dissectors.events import AnyEvent, Command, Message, Side, at_hand
from dissectors.snapshots import LATER, Live, Part
from dissectors.zmtp import wire
from dissectors.zmtp.curve_keys import KEY_SIZE, KeyRing, SecretKey, SharedKey, Sodium
from dissectors.zmtp.journal import Journal

# How many keys to try with one box: opening costs 2 µs, making a key of two others 50 µs.
_MOST_SHARED = 16_384
_MOST_SECRETS = 256

_HELLO = b"CurveZMQHELLO---"
_WELCOME = b"WELCOME-"
_COOKIE = b"COOKIE--"
_INITIATE = b"CurveZMQINITIATE"
_VOUCH = b"VOUCH---"
_READY = b"CurveZMQREADY---"
_FROM_CLIENT = b"CurveZMQMESSAGEC"
_FROM_SERVER = b"CurveZMQMESSAGES"
_LONG_NONCE = 16  # octets of a nonce on the wire; the other 8 are a fixed prefix
_VOUCH_SIZE = 96

LEAST_BOX = wire.CURVE_BOX_OVERHEAD + 1
"""Octets of the box of a MESSAGE with an empty frame."""
OVERHEAD = wire.CURVE_MESSAGE_LEAST
"""How many octets longer the body of a MESSAGE is than the body of the frame in it."""

# The most octets that wait for keys: of one connection, and of all.
_WAITING_OCTETS = 4 << 20
_WAITING_OCTETS_OF_ALL = 64 << 20
_FIRST = 2  # the search tries keys with so many boxes of a connection, since one may be damaged
_EVENT_COST = 500  # octets of memory that an event takes beside its box
_MOST_SERVERS = 65_536  # servers whose keys are remembered
_SILENT_NS = 10_000_000_000  # a server that cannot open HELLO closes the connection before this time


class Box(NamedTuple):
    """A box, and the nonce that was sent with it."""

    nonce: bytes
    octets: bytes


class Introduction(NamedTuple):
    """The fields in the box of INITIATE."""

    long_term_key: bytes  # C
    metadata: bytes
    vouch_is_good: bool | None  # None if nobody can open it here


class Boxes(Part):
    """Opens the boxes of one connection."""

    curve: Live["Curve"] = LATER  # has the keys; None for the state in a snapshot, where nobody has keys
    _sodium: Live[Sodium] = LATER
    wait: Live["Wait | None"] = None  # where its events wait for a key, if they do
    waited: Live[bool] = False  # its events have waited once, and do not wait again
    client_side: Side | None = None  # which of TCP's sides is CURVE's client
    client_key: bytes | None = None  # C'
    server_key: bytes | None = None  # S'
    hello_for: bytes | None = None  # S, if HELLO was opened
    hello: Box | None = None
    hello_ns: int = 0
    welcome: Box | None = None
    cookie: bytes | None = None
    is_open: Live[bool] = False  # a key has opened a box
    key: Live[bytes] = b""  # k, once it is open; no snapshot has secrets
    _is_sealed: Live[bool] = False  # no key has opened a MESSAGE that came
    _nonces: Live[dict[Side, bytes]] = field(default_factory=dict)  # prefixes of those of MESSAGEs, once it is open
    _server_secret: Live[bytes | None] = None  # s'
    _hello_key: Live[bytes | None] = None  # opens HELLO and WELCOME
    _asked: Live[int] = 0  # how many keys the ring had at the last box
    _asked_before: Live[int] = 0  # and at the one before

    def __post_init__(self) -> None:
        """Use the keys of ``curve``."""
        if self.curve is not None:
            self._sodium = self.curve.sodium

    def after_load(self) -> None:
        """Use the keys that the ring has now."""
        if self.curve is not None:
            self._open_hello(0)
            self._open_welcome()

    # ------------------------------------------------------------------ the handshake

    def take_hello(self, side: Side, client_key: bytes, hello: Box, time_ns: int) -> bytes | None:
        """Take the HELLO of ``side``. Returns S, the long-term key of the server that it is for, if a key opens it."""
        self.client_side = side
        self.client_key = client_key
        self.hello = hello
        self.hello_ns = time_ns
        self._open_hello(0)
        return self.hello_for

    def take_welcome(self, welcome: Box) -> bytes | None:
        """Take WELCOME. Returns the server's transient key S', None if no key opens the box."""
        self.welcome = welcome
        self._open_welcome()
        return self.server_key

    def take_initiate(self, side: Side, cookie: bytes, initiate: Box) -> Introduction | None:
        """Take the INITIATE of ``side``. Returns its content, None if no key opens the box."""
        self.client_side = side
        self.cookie = cookie
        plaintext = self._open(initiate.octets, [(side, _INITIATE + initiate.nonce)])
        if plaintext is None or len(plaintext) < KEY_SIZE + _VOUCH_SIZE:
            return None
        long_term, vouch = plaintext[:KEY_SIZE], plaintext[KEY_SIZE : KEY_SIZE + _VOUCH_SIZE]
        return Introduction(long_term, plaintext[KEY_SIZE + _VOUCH_SIZE :], self._open_vouch(long_term, vouch))

    def take_ready(self, side: Side, ready: Box) -> bytes | None:
        """Take the READY of ``side``. Returns its metadata, None if no key opens the box."""
        self.client_side = "client" if side == "server" else "server"
        return self._open(ready.octets, [(self.client_side, _READY + ready.nonce)])

    def _open_hello(self, since: int) -> None:
        """Look for the key of HELLO, which opens WELCOME, too, among the keys that came after number ``since``."""
        if self.hello is None or self.client_key is None or self._hello_key is not None:
            return
        nonce, box = self.hello
        client_secret = self.curve.ring.secret_of(self.client_key)
        for known in self.curve.ring.secrets(0 if client_secret else since, _MOST_SECRETS):
            key = self._key_with(known, self.client_key, client_secret)
            if key is not None and self._sodium.open(key, _HELLO + nonce, box) is not None:
                self._hello_key, self.hello_for = key, known.public
                return

    def _open_welcome(self) -> None:
        if self.welcome is None or self._hello_key is None or self.server_key is not None:
            return
        nonce, box = self.welcome
        plaintext = self._sodium.open(self._hello_key, _WELCOME + nonce, box)
        if plaintext is not None:
            self.server_key = plaintext[:KEY_SIZE]

    def _open_vouch(self, long_term: bytes, vouch: bytes) -> bool | None:
        """Whether the client's long-term key vouches for its transient one; None if s' is not known."""
        if self._server_secret is None or self.client_key is None:
            return None
        key = self._sodium.shared(long_term, self._server_secret)
        if key is None:
            return False
        plaintext = self._sodium.open(key, _VOUCH + vouch[:_LONG_NONCE], vouch[_LONG_NONCE:])
        return plaintext is not None and plaintext.startswith(self.client_key)

    # ------------------------------------------------------------------ messages

    def open_message(self, side: Side, nonce: bytes, box: bytes) -> bytes | None:
        """The content of a MESSAGE's box: flags, and a frame's body; None if no key opens it."""
        if self.is_open:
            return self._sodium.open(self.key, self._nonces[side] + nonce, box)
        clients: tuple[Side, ...] = ("client", "server") if self.client_side is None else (self.client_side,)
        plaintext = self._open(
            box, [(client, (_FROM_CLIENT if client == side else _FROM_SERVER) + nonce) for client in clients]
        )
        if plaintext is None and not self._is_sealed:
            self._is_sealed = True
            self.curve.sealed_connections += 1
        return plaintext

    def begin_message(self, side: Side, nonce: bytes, box: bytes) -> bytes | None:
        """The content of the beginning of a box whose end is missing, if another box has proved the key."""
        if not self.is_open or len(box) < LEAST_BOX:
            return None
        return self._sodium.begin(self.key, self._nonces[side] + nonce, box)

    def try_box(self, side: Side, command: Command) -> None:
        """Look for a key that opens the box of an INITIATE, READY or MESSAGE of ``side``."""
        nonce, box = command.nonce, command.box
        if not isinstance(nonce, bytes) or not isinstance(box, bytes):
            return
        if command.name == "MESSAGE":
            self.open_message(side, nonce, box)
        elif command.name == "READY":
            self.take_ready(side, Box(nonce, box))
        elif isinstance(command.cookie, bytes):
            self.take_initiate(side, command.cookie, Box(nonce, box))

    # ------------------------------------------------------------------ the key

    def _open(self, box: bytes, nonces: list[tuple[Side, bytes]]) -> bytes | None:
        """Open a box with the key, or find the key by it. Each nonce is for one guess which side is the client."""
        if self.is_open:
            return self._sodium.open(self.key, nonces[0][1], box)
        for key, server_secret in self._candidates():
            for client, nonce in nonces:
                plaintext = self._sodium.open(key, nonce, box)
                if plaintext is not None:
                    self._prove(key, server_secret, client)
                    return plaintext
        return None

    def _prove(self, key: bytes, server_secret: bytes | None, client: Side) -> None:
        self.is_open = True
        self.curve.opened_connections += 1
        if self._is_sealed:
            self._is_sealed = False
            self.curve.sealed_connections -= 1
        self.key = key
        self._server_secret = server_secret
        self.client_side = client
        server: Side = "server" if client == "client" else "client"
        self._nonces = {client: _FROM_CLIENT, server: _FROM_SERVER}

    def _candidates(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys that may be the key of the connection, with s' where it is known."""
        ring = self.curve.ring
        since, self._asked_before, self._asked = self._asked_before, self._asked, ring.added
        if self._asked > since:
            self._open_hello(since)
            self._open_welcome()
        client = self.client_key
        if client is not None:
            yield from _with_secret(ring.shared_by(client), ring)
            yield from self._made(client)
        if self._asked <= since:
            return
        if client is None:
            yield from _with_secret(ring.shared(since, _MOST_SHARED), ring)
        yield from _with_secret(ring.wildcards(since, _MOST_SHARED), ring)
        if client is None:
            return
        client_secret = ring.secret_of(client)
        for pair in ring.secrets(since, _MOST_SECRETS):
            yield from self._made_with(pair, client, client_secret)

    def _made_with(
        self, pair: SecretKey, client: bytes, client_secret: bytes | None
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """The key of the connection, if ``pair`` has s' or K, or if c' is known and ``pair`` has S'."""
        if pair.secret is not None and self.cookie is not None and (client_secret is None or pair.public is None):
            nonce, box = self.cookie[:_LONG_NONCE], self.cookie[_LONG_NONCE:]
            plaintext = self._sodium.open(pair.secret, _COOKIE + nonce, box)
            if plaintext is not None:
                pair = SecretKey(None, plaintext[KEY_SIZE:])
        key = self._key_with(pair, client, client_secret)
        if key is not None:
            yield key, pair.secret

    def _made(self, client: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys made of S', if that is known, and a secret key in the ring."""
        server = self.server_key
        if server is None:
            return
        server_secret = self.curve.ring.secret_of(server)
        key = self._key_with(SecretKey(server, server_secret), client, self.curve.ring.secret_of(client))
        if key is not None:
            yield key, server_secret

    def _key_with(self, server: SecretKey, client: bytes, client_secret: bytes | None) -> bytes | None:
        """The key that both sides make, each of its own secret key and the other's public one; None if neither can."""
        if client_secret is not None and server.public is not None:
            return self._sodium.shared(server.public, client_secret)
        return None if server.secret is None else self._sodium.shared(client, server.secret)

    def wrong_server_key(self, server: str, end_ns: int) -> str | None:
        """A sentence that the client has the wrong key of ``server``, None if nothing shows that.

        The connection ended at ``end_ns`` without WELCOME. A server that cannot open HELLO closes it at once.
        """
        if self.hello is None or self.welcome is not None or end_ns - self.hello_ns > _SILENT_NS:
            return None
        self._open_hello(0)
        known = self.curve.servers.get(server)
        if self.hello_for is not None:
            if known is None or known == self.hello_for:
                return None
            return f"the client's HELLO is for the server key {self.hello_for.hex()}, but {server} has {known.hex()}"
        secrets = [key.public for key in self.curve.ring.secrets(0, _MOST_SECRETS) if key.secret is not None]
        if not secrets:
            return None
        if known is not None:
            return f"the client's HELLO is for another key than that of {server}: {known.hex()}"
        none = (
            "the secret key given does not open" if len(secrets) == 1 else f"none of {len(secrets)} secret keys opens"
        )
        return f"the client has a wrong key of {server}: {none} its HELLO, and the connection ended with it"


def _with_secret(keys: Sequence[SharedKey], ring: KeyRing) -> Iterator[tuple[bytes, bytes | None]]:
    for known in keys:
        yield known.key, None if known.server is None else ring.secret_of(known.server)


class Opener(Protocol):
    """Shows what one side of a connection says."""

    journal: Journal

    @property
    def may_lack_octets(self) -> bool:
        """Whether the next message in boxes may have begun in octets that nobody can read."""

    def begin_inside(self, damaged: bool) -> None:
        """The key is known: be ready for frames in boxes. If ``damaged``, the first may belong to a message before."""

    def reopen(self, event: Command, whole: bool) -> None:
        """Show the content of a command's box, which no key opened when the command came.

        It is not ``whole`` if octets of it, or of what may belong to it, are not in the capture.
        """


class Wait:
    """The events of a connection whose key may still come, in their order."""

    def __init__(self, boxes: Boxes, openers: tuple[Opener, Opener], begin_ns: int) -> None:
        """From now on the events of ``openers`` wait here."""
        self.begin_ns = begin_ns
        self.octets = 0
        self._boxes = boxes
        self._openers = openers
        self._events: list[AnyEvent] = []
        self._out = openers[0].journal.out
        self._sealed: dict[int, tuple[Opener, bool]] = {}  # by place of a closed command: who can open it, is it whole
        self._damaged = [opener.may_lack_octets for opener in openers]  # when the first box came
        self._deferred: dict[int, list[Callable[[], None]]] = {}  # by the place of the event behind it
        self._asked = boxes.curve.ring.added
        self._tallies = [opener.journal.tally for opener in openers]
        for opener in openers:
            opener.journal.out = self._events

    def add(self, opener: Opener, command: Command, whole: bool) -> None:
        """Let a command wait; ``opener`` had no key for its box. ``whole`` is for :meth:`Opener.reopen`."""
        self._sealed[len(self._events)] = opener, whole
        self._events.append(command)
        self.octets += _EVENT_COST + len(at_hand(command.box or b""))

    def defer(self, action: Callable[[], None]) -> None:
        """Do this in the end, between the events before and those behind it: boxes are read then, holes are here."""
        self._deferred.setdefault(len(self._events), []).append(action)
        self.octets += _EVENT_COST

    def ask_again(self) -> None:
        """Try the keys that have come since with the first boxes."""
        boxes = self._boxes
        if boxes.curve.ring.added == self._asked:
            return
        self._asked = boxes.curve.ring.added
        for place in list(islice(self._sealed, _FIRST)):
            command, (opener, _) = self._events[place], self._sealed[place]
            assert isinstance(command, Command)
            side: Side = "client" if opener is self._openers[0] else "server"
            if not boxes.is_open:
                boxes.try_box(side, command)

    def sealed(self) -> list[Command]:
        """The first commands that wait for a key."""
        found = (self._events[place] for place in islice(self._sealed, _FIRST))
        return [event for event in found if isinstance(event, Command)]

    def end(self) -> None:
        """Give out the events, with the content of their boxes if there is a key now."""
        journals = {}
        for opener, tally in zip(self._openers, self._tallies, strict=True):
            journal = journals[opener.journal.src] = opener.journal
            journal.out = self._out
            journal.tally = tally  # the messages in boxes count, too, each in its place
        if self._boxes.is_open:
            for opener, damaged in zip(self._openers, self._damaged, strict=True):
                opener.begin_inside(damaged)
        events, self._events = self._events, []
        for place, event in enumerate(events):
            self._act(place)
            sealed = self._sealed.get(place)
            if sealed is None:
                if isinstance(event, Message):
                    journals[event.src].recount(event)
                self._out.append(event)
            else:
                assert isinstance(event, Command)
                by, whole = sealed
                by.reopen(event, whole)
        self._act(len(events))

    def _act(self, place: int) -> None:
        for action in self._deferred.pop(place, ()):
            action()


class Curve:
    """Opens the boxes of all connections of a dissection, with a ring of keys, and knows what waits for keys."""

    def __init__(self, ring: KeyRing) -> None:
        """Take keys from ``ring``."""
        self.ring = ring
        self.patience_ns = 0  # how long events wait for a key that may still come; 0: no more keys will come
        self.servers: dict[str, bytes] = {}  # long-term public keys by addresses of servers that have proved them
        self.opened_connections = 0  # those of which a key has opened a box
        self.sealed_connections = 0  # those that had a MESSAGE, and no key for it
        self._sodium: Sodium | None = None
        self._waits: dict[Boxes, Wait] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether there is a key, or one may come."""
        return bool(self.ring.added or self.patience_ns)

    @property
    def sodium(self) -> Sodium:
        """The library that opens boxes; raises NoSodiumError."""
        if self._sodium is None:
            self._sodium = Sodium()
        return self._sodium

    def learn(self, server: str, key: bytes) -> None:
        """The server at this address has proved its long-term public key: it answered a HELLO for that."""
        if len(self.servers) < _MOST_SERVERS:
            self.servers[server] = key

    # ------------------------------------------------------------------ keys that come late

    @property
    def waiting_since_ns(self) -> int | None:
        """Since when events wait; None if none do."""
        return min((wait.begin_ns for wait in self._waits.values()), default=None)

    def sealed(self) -> list[Command]:
        """The first waiting commands of each connection that no key has opened."""
        return [command for wait in self._waits.values() for command in wait.sealed()]

    def hold(self, boxes: Boxes, openers: tuple[Opener, Opener], now_ns: int) -> Wait | None:
        """Where the next event of the connection has to wait; None if it need not, or must not."""
        if boxes.wait is None:
            if boxes.waited or not self.patience_ns:
                return None
            boxes.waited = True
            boxes.wait = self._waits[boxes] = Wait(boxes, openers, now_ns)
        wait = boxes.wait
        others = sum(other.octets for other in self._waits.values()) if wait.octets > _WAITING_OCTETS // 64 else 0
        if wait.octets > _WAITING_OCTETS or others > _WAITING_OCTETS_OF_ALL:
            self.release(boxes)
            return None
        return wait

    def release(self, boxes: Boxes) -> None:
        """Let the events of a connection wait no longer."""
        wait = self._waits.pop(boxes, None)
        if wait is not None:
            wait.ask_again()
            boxes.wait = None
            wait.end()

    def settle(self, now_ns: int) -> None:
        """It is ``now_ns``: give out the events that have waited for too long, or have a key now."""
        for boxes, wait in list(self._waits.items()):
            wait.ask_again()
            if boxes.is_open or now_ns - wait.begin_ns > self.patience_ns:
                self.release(boxes)
