"""From calls that make a shared key to lines of keys: which of two public keys is the client's (26/CURVEZMQ).

Over a connection libsodium is called with these pairs of another's public key and a secret key of one's own, in this
order; the last one of each side makes the key of all messages, by crypto_box_beforenm():

    client: (S, c') HELLO, (S, c') WELCOME, (S', c) vouch, (S', c') INITIATE, (S', c')
    server: (C', s) HELLO, (C', s) WELCOME, (C', s') INITIATE, (C, s') vouch, (C', s')

So a secret key whose first call had the same public key as the last is s', and one with another is c'. A secret key
that has been used with many public keys and never in a last call is a server's long-term key s, or a client's c.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from nacl.bindings import crypto_box_beforenm, crypto_scalarmult_base
from nacl.exceptions import CryptoError

from zmtpsniff.keys.uprobes import BEFORENM, Call

UNKNOWN = "-"
_MOST_REMEMBERED = 1 << 14  # secret keys
_LONG_TERM_PARTNERS = 3  # s' and c' have two: one transient, one long-term


@dataclass(slots=True)
class _Secret:
    """What is known of a secret key."""

    partners: list[bytes] = field(default_factory=list)  # public keys that it was used with, in order
    is_transient: bool = False
    is_told: bool = False


class Agreements:
    """Turns calls into lines of a file of keys; remembers a bounded number of keys."""

    def __init__(self, *, long_term: bool = False) -> None:
        """``long_term``: also the secret keys that servers keep, which prove what is wrong with a HELLO."""
        self._secrets: OrderedDict[bytes, _Secret] = OrderedDict()
        self._told: OrderedDict[str, None] = OrderedDict()
        self._long_term = long_term

    def lines(self, calls: Sequence[Call]) -> list[str]:
        """The lines that calls are worth, each once."""
        found: list[str] = []
        for call in calls:
            for line in self._agreement(call):
                if line not in self._told:
                    self._told[line] = None
                    found.append(line)
            while len(self._told) > _MOST_REMEMBERED:
                self._told.popitem(last=False)
        return found

    def _agreement(self, call: Call) -> list[str]:
        secret = self._secrets.setdefault(call.secret_key, _Secret())
        self._secrets.move_to_end(call.secret_key)
        while len(self._secrets) > _MOST_REMEMBERED:
            self._secrets.popitem(last=False)
        is_first = not secret.partners
        if len(secret.partners) < _LONG_TERM_PARTNERS and call.public_key not in secret.partners:
            secret.partners.append(call.public_key)
        if call.function == BEFORENM:
            secret.is_transient = True
            return self._shared(call, None if is_first else secret.partners[0])
        if (
            self._long_term
            and len(secret.partners) == _LONG_TERM_PARTNERS
            and not secret.is_transient
            and not secret.is_told
        ):
            secret.is_told = True
            return [secret_line(crypto_scalarmult_base(call.secret_key), call.secret_key)]
        return []

    def _shared(self, call: Call, first: bytes | None) -> list[str]:
        """The lines of a key made of a call, whose secret key was used with the public key ``first`` before."""
        try:
            key = crypto_box_beforenm(call.public_key, call.secret_key)
        except (RuntimeError, CryptoError):  # a public key of low order, which libzmq refuses, too
            return []
        own, other = crypto_scalarmult_base(call.secret_key), call.public_key
        as_server, as_client = shared_line(other, own, key), shared_line(own, other, key)
        if first is None:  # its other calls were not seen; a line that is the wrong way round opens nothing
            return [as_server, as_client]
        return [as_server] if first == other else [as_client]


def shared_line(client: bytes | None, server: bytes | None, key: bytes) -> str:
    """The line of a precomputed key, with the transient public keys that are known."""
    return f"CURVE_SHARED_KEY {_digits(client)} {_digits(server)} {key.hex()}"


def secret_line(public: bytes | None, secret: bytes) -> str:
    """The line of a secret key."""
    return f"CURVE_SECRET_KEY {_digits(public)} {secret.hex()}"


def _digits(key: bytes | None) -> str:
    return UNKNOWN if key is None else key.hex()
