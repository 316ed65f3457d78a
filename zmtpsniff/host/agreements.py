"""Turns libsodium's calls into keys of connections: finds out which of two public keys is the client's (26/CURVEZMQ).

On each side of a connection libsodium gets these pairs, of the other side's public key and the own secret key, in
this order. One call of each side, marked with *, makes the key of all messages, by crypto_box_beforenm():

    client: (S, c') HELLO, (S, c') WELCOME, * (S', c'), (S', c) vouch, (S', c') INITIATE
    server: (C', s) HELLO, (C', s) WELCOME, (C', s') INITIATE, (C, s') vouch, * (C', s')

So if the first call with this secret key had the same public key, the secret key is s'. If it had another public key,
it is c'. A secret key that was used with many public keys, and never in such a call, is a server's long-term key s,
or a client's c.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from dissectors.zmtp.curve_keys import Key, SecretKey, SharedKey, Sodium, public_of
from zmtpsniff.host.processes import process_of
from zmtpsniff.host.uprobes import BEFORENM, BeforenmCall

_MOST_SECRETS = 1 << 14  # that are remembered
_MOST_SEEN = 1 << 16  # calls and keys that are remembered
_LONG_TERM_PARTNERS = 3  # s' and c' have two: one transient, one long-term


@dataclass(slots=True)
class _Secret:
    """The calls with one secret key so far."""

    thread: int  # of the first
    partners: list[bytes] = field(default_factory=list)  # the public keys in its calls, in order
    is_transient: bool = False


class Agreements:
    """Turns calls into keys; remembers a bounded number of keys."""

    def __init__(self, *, long_term: bool = False) -> None:
        """``long_term``: also the secret keys that servers keep, which prove what is wrong with a HELLO."""
        self._secrets: OrderedDict[bytes, _Secret] = OrderedDict()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()
        self._long_term = long_term
        self._sodium = Sodium()

    def keys(self, calls: Sequence[BeforenmCall]) -> list[Key]:
        """The keys that calls are worth, each once."""
        # A key that we compute is a call for another zmtpsniff, and its key one for us: each call counts once.
        return self.new(key for call in calls if self._is_new(call[1:]) for key in self._agreement(call))

    def new(self, keys: Iterable[Key]) -> list[Key]:
        """Those keys that have not been told yet."""
        return [key for key in keys if self._is_new(key)]

    def _is_new(self, item: Hashable) -> bool:
        if item in self._seen:
            return False
        self._seen[item] = None
        if len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)
        return True

    def _agreement(self, call: BeforenmCall) -> list[Key]:
        secret = self._secrets.setdefault(call.secret_key, _Secret(call.thread))
        self._secrets.move_to_end(call.secret_key)
        if len(self._secrets) > _MOST_SECRETS:
            self._secrets.popitem(last=False)
        first = secret.partners[0] if secret.partners else None
        if len(secret.partners) < _LONG_TERM_PARTNERS and call.public_key not in secret.partners:
            secret.partners.append(call.public_key)
        if call.function == BEFORENM:
            # Another program has the key from elsewhere: it may try a server's long-term key on HELLO.
            if call.thread != secret.thread and process_of(call.thread) != process_of(secret.thread):
                return []
            secret.is_transient = True
            return self._shared(call, first)
        if self._long_term and len(secret.partners) == _LONG_TERM_PARTNERS and not secret.is_transient:
            return [SecretKey(public_of(call.secret_key), call.secret_key)]
        return []

    def _shared(self, call: BeforenmCall, first: bytes | None) -> list[Key]:
        """A key made of a call, whose secret key was used with the public key ``first`` before."""
        key = self._sodium.shared(call.public_key, call.secret_key)
        if key is None:  # a public key of low order, which libzmq refuses, too
            return []
        own, other = public_of(call.secret_key), call.public_key
        as_server, as_client = SharedKey(other, own, key), SharedKey(own, other, key)
        if first is None:  # its other calls were not seen; a key that is the wrong way round opens nothing
            return [as_server, as_client]
        return [as_server] if first == other else [as_client]
