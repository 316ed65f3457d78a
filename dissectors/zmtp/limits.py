"""The limits on the memory of a dissector."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from dissectors.zmtp import wire

_LEAST = 65_536  # octets of a body that dissectors of payloads need


class Hash(Protocol):
    """A hash of octets, as those of hashlib are."""

    def update(self, data: memoryview, /) -> None:
        """Take the next octets."""

    def digest(self) -> bytes:
        """The hash of the octets so far."""


class Limits(NamedTuple):
    """The part of its input that a dissector keeps."""

    body_octets: int = 65_536  # of each body; 0 keeps all
    show_secrets: bool = False
    new_hash: Callable[[], Hash] | None = None  # hashes last frames of messages that are too long to be kept

    @property
    def keep(self) -> int:
        """Octets of a body to keep. This is enough for analysis, even if fewer are shown."""
        return max(self.body_octets, _LEAST) if self.body_octets else wire.MAX_LENGTH
