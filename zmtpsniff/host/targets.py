"""The target of a search for keys: a connection, by what a capture shows of it."""

from dataclasses import dataclass, field
from typing import NamedTuple

LONGEST_BOX = 1 << 16


class CapturedBox(NamedTuple):
    """Octets that the precomputed key of a connection opens (secretbox of NaCl)."""

    nonce: bytes  # all 24 octets
    octets: bytes


@dataclass(slots=True)
class SearchTarget:
    """A connection whose key is looked for."""

    client: bytes | None = None  # C', if HELLO is in the capture
    boxes: list[CapturedBox] = field(default_factory=list)  # a key of the connection opens at least one of them
