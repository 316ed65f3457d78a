"""Parts that continue from the snapshot of others."""

from typing import TypeVar

from dissectors import snapshots
from dissectors.snapshots import Part

P = TypeVar("P", bound=Part)


def successor(part: Part, new: P) -> P:
    """``new``, which continues from a snapshot of ``part``; its own snapshot is the same."""
    octets = snapshots.save("part", part)
    snapshots.load("part", octets, new)
    assert snapshots.save("part", new) == octets
    return new
