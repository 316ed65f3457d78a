"""The target of a search for keys: a connection, by what a capture shows of it."""

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from msgspec import Meta

from dissectors.zmtp.curve_keys import KEY_SIZE

LONGEST_BOX = 1 << 16


class CapturedBox(NamedTuple):
    """Octets that the precomputed key of a connection opens (secretbox of NaCl)."""

    nonce: Annotated[bytes, Meta(min_length=24, max_length=24)]
    octets: Annotated[bytes, Meta(max_length=LONGEST_BOX)]


@dataclass(slots=True)
class SearchTarget:
    """A connection whose key is looked for."""

    client: Annotated[bytes, Meta(min_length=KEY_SIZE, max_length=KEY_SIZE)] | None = None  # C', if there is a HELLO
    boxes: list[CapturedBox] = field(default_factory=list)  # a key of the connection opens at least one of them
