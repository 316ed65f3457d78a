"""WireGuard as its protocol is written down, slowly: packets go in, those of a tunnel and a key log come out.

Kernels and programs that speak it keep the ephemeral keys to themselves, without which nothing can be decrypted
afterwards; so one end is played here. https://www.wireguard.com/papers/wireguard.pdf, section 5.4.
"""

import hmac
import struct
from base64 import b64encode
from hashlib import blake2s
from random import Random

_PRIME = 2**255 - 19
_POLY_PRIME = 2**130 - 5
_CONSTRUCTION = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"
_IDENTIFIER = b"WireGuard v1 zx2c4 Jason@zx2c4.com"
_NO_KEY = bytes(32)  # the preshared one that is not used


def public_of(private: bytes, point: bytes = b"\x09" + bytes(31)) -> bytes:
    """X25519 (RFC 7748, section 5): the public key, or what is shared with that of another."""
    scalar = int.from_bytes(private, "little") & ~7 & ~(1 << 255) | 1 << 254
    u = int.from_bytes(point, "little") & ~(1 << 255)
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for bit in reversed(range(255)):
        now = scalar >> bit & 1
        if now != swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
        swap = now
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a % _PRIME, c * b % _PRIME, a * a % _PRIME, b * b % _PRIME
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % _PRIME, u * (da - cb) ** 2 % _PRIME
        x2, z2 = aa * bb % _PRIME, e * (aa + 121665 * e) % _PRIME
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, _PRIME - 2, _PRIME) % _PRIME).to_bytes(32, "little")


def _block(key: bytes, counter: int, nonce: bytes) -> bytes:
    """A block of ChaCha20 (RFC 8439, section 2.3)."""
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter]
    start += struct.unpack("<3I", nonce)
    state = start[:]
    columns = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
    diagonals = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
    for _ in range(10):
        for a, b, c, d in (*columns, *diagonals):
            for into, by, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                state[into] = state[into] + state[by] & 0xFFFF_FFFF
                word = state[turned] ^ state[into]
                state[turned] = (word << bits | word >> 32 - bits) & 0xFFFF_FFFF
    return struct.pack("<16I", *(one + other & 0xFFFF_FFFF for one, other in zip(state, start, strict=True)))


def _seal(key: bytes, counter: int, clear: bytes, beside: bytes) -> bytes:
    """AEAD_CHACHA20_POLY1305 (RFC 8439, section 2.8), with the nonce of WireGuard."""
    nonce = struct.pack("<4xQ", counter)
    stream = b"".join(_block(key, 1 + at, nonce) for at in range(-(-len(clear) // 64)))
    sealed = bytes(one ^ other for one, other in zip(clear, stream, strict=False))
    one_time = _block(key, 0, nonce)[:32]
    r = int.from_bytes(one_time[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    padded = b"".join(part + bytes(-len(part) % 16) for part in (beside, sealed))
    padded += struct.pack("<QQ", len(beside), len(sealed))
    for at in range(0, len(padded), 16):
        total = (total + int.from_bytes(padded[at : at + 16] + b"\1", "little")) * r % _POLY_PRIME
    tag = (total + int.from_bytes(one_time[16:], "little")) % 2**128
    return sealed + tag.to_bytes(16, "little")


def _hash(*parts: bytes) -> bytes:
    return blake2s(b"".join(parts)).digest()


def _derive(key: bytes, octets: bytes, count: int) -> list[bytes]:
    secret = hmac.digest(key, octets, "blake2s")
    out = [b""]
    for number in range(1, count + 1):
        out.append(hmac.digest(secret, out[-1] + bytes([number]), "blake2s"))
    return out[1:]


def _with_macs(message: bytes, receiver: bytes) -> bytes:
    return message + blake2s(message, digest_size=16, key=_hash(b"mac1----", receiver)).digest() + bytes(16)


class WireGuard:
    """A tunnel: its handshake, what goes through it, and the key log of its initiator."""

    def __init__(self, seed: int) -> None:
        """The keys follow from ``seed``."""
        random = Random(seed)
        mine, theirs, once, theirs_once = (random.randbytes(32) for _ in range(4))
        me, them, e, f = map(public_of, (mine, theirs, once, theirs_once))
        chain = _hash(_CONSTRUCTION)
        state = _hash(_hash(chain, _IDENTIFIER), them)
        [chain] = _derive(chain, e, 1)
        state = _hash(state, e)
        chain, key = _derive(chain, public_of(once, them), 2)
        static = _seal(key, 0, me, state)
        state = _hash(state, static)
        chain, key = _derive(chain, public_of(mine, them), 2)
        stamp = _seal(key, 0, struct.pack(">QI", 2**62 + 1_700_000_000, 0), state)
        state = _hash(state, stamp)
        self.initiation = _with_macs(struct.pack("<II", 1, 1) + e + static + stamp, them)
        [chain] = _derive(chain, f, 1)
        state = _hash(state, f)
        [chain] = _derive(chain, public_of(theirs_once, e), 1)
        [chain] = _derive(chain, public_of(theirs_once, me), 1)
        chain, mixed, key = _derive(chain, _NO_KEY, 3)
        state = _hash(state, mixed)
        self.response = _with_macs(struct.pack("<III", 2, 2, 1) + f + _seal(key, 0, b"", state), me)
        self._keys = _derive(chain, b"", 2)
        self._counters = [0, 0]
        self.key_log = "".join(
            f"{name} = {b64encode(value).decode()}\n"
            for name, value in (
                ("LOCAL_STATIC_PRIVATE_KEY", mine),
                ("REMOTE_STATIC_PUBLIC_KEY", them),
                ("LOCAL_EPHEMERAL_PRIVATE_KEY", once),
            )
        )

    def transport(self, packet: bytes, from_initiator: bool) -> bytes:
        """An IP packet in a message of the tunnel."""
        side = 0 if from_initiator else 1
        counter = self._counters[side]
        self._counters[side] += 1
        sealed = _seal(self._keys[side], counter, packet + bytes(-len(packet) % 16), b"")
        return struct.pack("<IIQ", 4, 2 if from_initiator else 1, counter) + sealed
