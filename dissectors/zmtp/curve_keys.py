"""Keys of CURVE connections: the lines of a key file, and a ring of keys that is asked while connections are read.

A line of a key file is a key; ``#`` begins a comment. Each key is 64 hexadecimal digits, ``-`` one that is not known:

    CURVE_SHARED_KEY <client's transient public key> <server's transient public key> <precomputed key>
    CURVE_SECRET_KEY <public key> <secret key>

The letters are those of 26/CURVEZMQ: C and S are the long-term public keys of client and server, c and s the secret
keys that belong to them. C', S', c' and s' are those of one connection, its transient keys. What opens the boxes of a
connection is the precomputed key k, which both ends make of their own secret and the other's public transient key.

PyNaCl (libsodium) does the arithmetic. It is imported with the first key, so that those who have none need not have it.
"""

import threading
from collections import deque
from collections.abc import Iterable
from itertools import islice
from types import ModuleType

import msgspec

KEY_SIZE = 32  # octets
MOST_KEYS = 65_536  # that a ring has of each kind; the oldest give way
UNKNOWN = "-"

_SHARED, _SECRET = "CURVE_SHARED_KEY", "CURVE_SECRET_KEY"
_LONGEST_LINE = 4096  # characters


class KeyLineError(ValueError):
    """A line that is no key; its text says why, in a few words and without the key."""


class NoSodiumError(Exception):
    """PyNaCl, which opens boxes, is not installed; its text says what to do."""

    def __init__(self) -> None:
        """There is one reason."""
        super().__init__("keys of CURVE need PyNaCl, which is not installed: pip install 'zmtpsniff[curve]'")


class SharedKey(msgspec.Struct, frozen=True, gc=False):
    """The precomputed key of one connection."""

    client: bytes | None  # C', which HELLO shows
    server: bytes | None  # S'
    key: bytes  # k


class SecretKey(msgspec.Struct, frozen=True, gc=False):
    """A secret key: transient or long-term, or the one that a server seals its cookies with (which has no public)."""

    public: bytes | None
    secret: bytes | None  # None: the public key alone, which opens something together with the other side's secret key


Key = SharedKey | SecretKey


def sodium() -> ModuleType:
    """The bindings of libsodium; raises NoSodiumError."""
    try:
        import nacl.bindings
    except ImportError:
        raise NoSodiumError from None
    return nacl.bindings


def parse_key(line: str) -> Key | None:
    """The key in a line of a key file, None if it has none; raises KeyLineError, and NoSodiumError if it has one."""
    if len(line) > _LONGEST_LINE:
        raise KeyLineError(f"a line of {len(line)} characters is no key")
    words = line.partition("#")[0].split()
    if not words:
        return None
    kind, *digits = words
    if kind == _SHARED:
        if len(digits) != 3:
            raise KeyLineError(f"{_SHARED} takes 3 keys, not {len(digits)}")
        client, server, key = map(_octets, digits)
        if key is None:
            raise KeyLineError(f"the precomputed key of {_SHARED} is missing")
        return SharedKey(client, server, key)
    if kind != _SECRET:
        raise KeyLineError(f"a line begins with {_SHARED} or {_SECRET}")
    if len(digits) != 2:
        raise KeyLineError(f"{_SECRET} takes 2 keys, not {len(digits)}")
    public, secret = map(_octets, digits)
    if public is None and secret is None:
        raise KeyLineError(f"{_SECRET} without a key")
    if public is not None and secret is not None and public_of(secret) != public:
        raise KeyLineError("the secret key does not belong to the public key")
    return SecretKey(public, secret)


def format_key(key: Key) -> str:
    """The line of a key file for ``key``, without an end of line."""
    if isinstance(key, SharedKey):
        return " ".join((_SHARED, _digits(key.client), _digits(key.server), _digits(key.key)))
    return " ".join((_SECRET, _digits(key.public), _digits(key.secret)))


def public_of(secret: bytes) -> bytes:
    """The public key of a secret key."""
    public: bytes = sodium().crypto_scalarmult_base(secret)
    return public


def _octets(digits: str) -> bytes | None:
    if digits == UNKNOWN:
        return None
    try:
        octets = bytes.fromhex(digits)
    except ValueError:
        octets = b""
    if len(octets) != KEY_SIZE or len(digits) != 2 * KEY_SIZE:
        raise KeyLineError(f"a key is {2 * KEY_SIZE} hexadecimal digits, or {UNKNOWN} where it is not known")
    return octets


def _digits(key: bytes | None) -> str:
    return UNKNOWN if key is None else key.hex()


class KeyRing:
    """Keys that may open connections, to be asked by what a connection shows of itself.

    Keys may be added, also by another thread, while connections are read: ``added`` grows then, so that those whom the
    ring could not help know when to ask again. A ring keeps `MOST_KEYS` of each kind; the oldest give way.
    """

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        """Begin with these keys; raises NoSodiumError if there is one."""
        self.added = 0  # how many keys there have been so far
        self._lock = threading.Lock()
        self._shared: deque[SharedKey] = deque(maxlen=MOST_KEYS)
        self._by_client: dict[bytes, SharedKey] = {}
        self._wildcards: deque[SharedKey] = deque(maxlen=MOST_KEYS)
        self._secrets: deque[tuple[bytes, bytes]] = deque(maxlen=MOST_KEYS)
        self._by_public: dict[bytes, bytes] = {}
        self._publics: deque[bytes] = deque(maxlen=MOST_KEYS)
        for key in keys:
            self.add(key)

    def add_line(self, line: str) -> None:
        """Add the key in a line of a key file, if it has one; raises KeyLineError, NoSodiumError."""
        key = parse_key(line)
        if key is not None:
            self.add(key)

    def add(self, key: Key) -> None:
        """Add a key; one that is there already changes nothing. Raises NoSodiumError."""
        if isinstance(key, SharedKey):
            sodium()
            self._add_shared(key)
        elif key.secret is not None:
            self._add_secret(key.public or public_of(key.secret), key.secret)
        elif key.public is not None:
            sodium()
            self._add_public(key.public)

    def _add_shared(self, key: SharedKey) -> None:
        with self._lock:
            client = key.client
            if (client is not None and self._by_client.get(client) == key) or (client is None and key in self._latest):
                return
            if len(self._shared) == MOST_KEYS:
                oldest = self._shared[0]
                if oldest.client is not None and self._by_client.get(oldest.client) is oldest:
                    del self._by_client[oldest.client]
            self._shared.append(key)
            if client is None:
                self._wildcards.append(key)
            else:
                self._by_client[client] = key
            self.added += 1

    @property
    def _latest(self) -> tuple[SharedKey, ...]:
        """The wildcards among which one that is added again is looked for."""
        return tuple(islice(reversed(self._wildcards), 64))

    def _add_secret(self, public: bytes, secret: bytes) -> None:
        with self._lock:
            if public in self._by_public:
                return
            if len(self._secrets) == MOST_KEYS:
                self._by_public.pop(self._secrets[0][0], None)
            self._secrets.append((public, secret))
            self._by_public[public] = secret
            self.added += 1

    def _add_public(self, public: bytes) -> None:
        with self._lock:
            if public not in self._publics:
                self._publics.append(public)
                self.added += 1

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._shared) + len(self._secrets) + len(self._publics)

    def shared_by(self, client: bytes) -> SharedKey | None:
        """The precomputed key of the connection whose client's transient public key this is."""
        return self._by_client.get(client)

    def secret_of(self, public: bytes) -> bytes | None:
        """The secret key that belongs to a public key."""
        return self._by_public.get(public)

    def shared(self, most: int) -> list[SharedKey]:
        """Precomputed keys, the newest first."""
        with self._lock:
            return list(islice(reversed(self._shared), most))

    def wildcards(self, most: int) -> list[SharedKey]:
        """Those of which no public key of the client is known, the newest first."""
        with self._lock:
            return list(islice(reversed(self._wildcards), most))

    def secrets(self, most: int) -> list[tuple[bytes, bytes]]:
        """Secret keys behind their public keys, the newest first."""
        with self._lock:
            return list(islice(reversed(self._secrets), most))

    def publics(self, most: int) -> list[bytes]:
        """Public keys whose secret keys are not known, or not needed, the newest first."""
        with self._lock:
            alone = list(islice(reversed(self._publics), most))
            return alone + [public for public, _ in islice(reversed(self._secrets), most)]

    def lines(self) -> list[str]:
        """All keys as lines of a key file, the oldest first."""
        with self._lock:
            keys: list[Key] = [SecretKey(public, None) for public in self._publics]
            keys += [SecretKey(public, secret) for public, secret in self._secrets]
            keys += self._shared
        return list(map(format_key, keys))
