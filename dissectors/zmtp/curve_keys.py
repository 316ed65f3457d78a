"""Keys of CURVE connections: the lines of a key file, and a ring of keys that finds the key of a connection.

A line of a key file is a key; ``#`` begins a comment. Each key is 64 hexadecimal digits, ``-`` one that is not known:

    CURVE_SHARED_KEY <client's transient public key> <server's transient public key> <precomputed key>
    CURVE_SECRET_KEY <public key> <secret key>

The letters are those of 26/CURVEZMQ. C and S are the long-term public keys of client and server, c and s are the secret
keys that belong to them. C', S', c' and s' are the transient keys of one connection. The precomputed key k opens the
boxes of a connection. Each end makes it from its own secret transient key and the other end's public one.

PyNaCl (libsodium) does the arithmetic. This module imports it with the first key: without keys nobody needs PyNaCl.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain, islice, takewhile
from types import ModuleType
from typing import TypeVar

import msgspec

KEY_SIZE = 32  # octets
MOST_KEYS = 65_536  # that a ring has of each kind; the oldest give way
_MOST_OF_ONE = 4  # keys that a ring finds by one public key
UNKNOWN = "-"

_SHARED, _SECRET = "CURVE_SHARED_KEY", "CURVE_SECRET_KEY"
_LONGEST_LINE = 4096  # characters
# Zeros in front of a box, and of its content, in the functions that libsodium has from NaCl.
_BOX_ZEROS, _PLAIN_ZEROS = 16, 32
_ZEROS = bytes(_BOX_ZEROS)
_AUTHENTICATOR = 16  # octets at the beginning of a box


class KeyLineError(ValueError):
    """A line is no key. The text of the error says why, in a few words and without the key."""


class NoSodiumError(Exception):
    """PyNaCl, which opens boxes, is not installed. The text of the error says what to do."""

    def __init__(self) -> None:
        """Say how to install PyNaCl."""
        super().__init__("keys of CURVE need PyNaCl, which is not installed: pip install 'zmtpsniff[curve]'")


class SharedKey(msgspec.Struct, frozen=True, gc=False):
    """The precomputed key of one connection."""

    client: bytes | None  # C', which HELLO shows
    server: bytes | None  # S'
    key: bytes  # k


class SecretKey(msgspec.Struct, frozen=True, gc=False):
    """A secret key: transient, long-term, or the key of a server's cookies, which has no public key."""

    public: bytes | None
    secret: bytes | None  # None: the public key alone, which opens together with a secret key of the other side


Key = SharedKey | SecretKey
K = TypeVar("K", SharedKey, SecretKey)


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
    """Keys that may open connections; it finds them by the public keys that a connection shows.

    Keys may come while connections are read. Each makes ``added`` grow, so a connection without a key knows when to ask
    again. A ring keeps `MOST_KEYS` of each kind; the oldest give way.
    """

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        """Begin with these keys; raises NoSodiumError if there is one."""
        self.added = 0  # how many keys there have been so far
        # Each key comes with its number, the value of `added` when it came.
        self._shared: deque[tuple[int, SharedKey]] = deque()
        self._wildcards: deque[tuple[int, SharedKey]] = deque()
        self._secrets: deque[tuple[int, SecretKey]] = deque()
        # The newest first.
        self._by_client: dict[bytes, tuple[SharedKey, ...]] = {}
        self._by_key: dict[bytes, tuple[SharedKey, ...]] = {}  # those without a client
        self._by_public: dict[bytes, tuple[SecretKey, ...]] = {}
        for key in keys:
            self.add(key)

    def add_line(self, line: str) -> None:
        """Add the key in a line of a key file, if it has one; raises KeyLineError, NoSodiumError."""
        key = parse_key(line)
        if key is not None:
            self.add(key)

    def add(self, key: Key) -> None:
        """Add a key; one that is there already changes nothing. Raises NoSodiumError."""
        sodium()
        if isinstance(key, SecretKey):
            public = public_of(key.secret) if key.public is None and key.secret is not None else key.public
            assert public is not None
            known = self._by_public.get(public)
            if known is None or (known[0].secret is None and key.secret is not None):
                self._put(self._secrets, self._by_public, SecretKey(public, key.secret))
            return
        keys, index = (self._wildcards, self._by_key) if key.client is None else (self._shared, self._by_client)
        if key not in index.get(_name(key), ()):
            self._put(keys, index, key)

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._shared) + len(self._wildcards) + len(self._secrets)

    def shared_by(self, client: bytes) -> Sequence[SharedKey]:
        """The precomputed keys that may be that of the connection whose client has this transient public key."""
        return self._by_client.get(client, ())

    def secret_of(self, public: bytes) -> bytes | None:
        """The secret key that belongs to a public key."""
        keys = self._by_public.get(public)
        return None if keys is None else keys[0].secret

    def shared(self, since: int, most: int) -> list[SharedKey]:
        """At most ``most`` precomputed keys with the client's public key that came after ``since``, newest first."""
        return self._since(self._shared, since, most)

    def wildcards(self, since: int, most: int) -> list[SharedKey]:
        """At most ``most`` precomputed keys without the client's public key that came after ``since``, newest first."""
        return self._since(self._wildcards, since, most)

    def secrets(self, since: int, most: int) -> list[SecretKey]:
        """At most ``most`` secret keys, and public keys alone, that came after number ``since``, newest first."""
        return self._since(self._secrets, since, most)

    def _put(self, keys: "deque[tuple[int, K]]", index: "dict[bytes, tuple[K, ...]]", key: K) -> None:
        """Add one more key; forget the oldest if there are too many."""
        if len(keys) >= MOST_KEYS:
            _, oldest = keys.popleft()
            left = tuple(each for each in index.pop(_name(oldest), ()) if each is not oldest)
            if left:
                index[_name(oldest)] = left
        index[_name(key)] = tuple(islice(chain([key], index.get(_name(key), ())), _MOST_OF_ONE))
        self.added += 1
        keys.append((self.added, key))

    def _since(self, keys: "deque[tuple[int, K]]", since: int, most: int) -> "list[K]":
        new = takewhile(lambda numbered: numbered[0] > since, reversed(keys))
        return [key for _, key in islice(new, most)]

    def lines(self) -> list[str]:
        """All keys as lines of a key file, each kind in the order in which its keys came."""
        keys: list[Key] = [key for _, key in self._secrets]
        keys += [key for _, key in self._wildcards]
        keys += [key for _, key in self._shared]
        return list(map(format_key, keys))


def _name(key: Key) -> bytes:
    """The name by which a ring finds a key: its public key, or the key itself if that is not known."""
    name = (key.client or key.key) if isinstance(key, SharedKey) else (key.public or key.secret)
    assert name is not None
    return name


class Sodium:
    """Opens boxes with libsodium, one at a time, since all boxes share one buffer.

    It calls libsodium's functions through PyNaCl's bindings. PyNaCl's own functions around them take twice as long.
    """

    _ROOM = 1 << 17  # octets of the buffer; what does not fit gets one of its own

    def __init__(self) -> None:
        """Take PyNaCl's libsodium; raises NoSodiumError."""
        try:
            from nacl._sodium import ffi, lib
        except ImportError:
            raise NoSodiumError from None
        self._ffi, self._lib = ffi, lib
        self._open = lib.crypto_box_open_afternm
        self._plaintext = ffi.new("unsigned char[]", self._ROOM)
        self._view = ffi.buffer(self._plaintext, self._ROOM)

    def open(self, key: bytes, nonce: bytes, box: bytes) -> bytes | None:
        """The content of a whole box; None if ``key`` does not open it. The nonce has 24 octets."""
        size = len(box) + _BOX_ZEROS
        if size > self._ROOM:
            plaintext = self._ffi.new("unsigned char[]", size)
            if self._open(plaintext, _ZEROS + box, size, nonce, key):
                return None
            large: bytes = self._ffi.buffer(plaintext, size)[_PLAIN_ZEROS:]
            return large
        if self._open(self._plaintext, _ZEROS + box, size, nonce, key):
            return None
        return self._view[_PLAIN_ZEROS:size]  # type: ignore[no-any-return]

    def begin(self, key: bytes, nonce: bytes, box: bytes) -> bytes:
        """The content of the beginning of a box. Without the box's end nothing proves that ``key`` is right.

        A box is an authenticator and its content, combined by XOR with a stream of octets from key and nonce. So
        sealing a sealed content opens it.
        """
        again: bytes = sodium().crypto_box_afternm(box[_AUTHENTICATOR:], nonce, key)
        return again[_AUTHENTICATOR:]

    def shared(self, public: bytes, secret: bytes) -> bytes | None:
        """The key that one side's public key and the other's secret key make; None if ``public`` is no public key."""
        if self._lib.crypto_box_beforenm(self._plaintext, public, secret):
            return None
        return self._view[:KEY_SIZE]  # type: ignore[no-any-return]
