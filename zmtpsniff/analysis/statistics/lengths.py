"""Octets as statistics keep them."""

from dissectors.events import Cut, Octets, at_hand

LONGEST = 255  # of an identity or topic


def shortened(octets: Octets) -> Octets:
    """Octets, cut to the length that statistics keep."""
    data = at_hand(octets)
    return octets if len(data) <= LONGEST else Cut(data[:LONGEST], length_of(octets))


def length_of(octets: Octets) -> int:
    """How many there were on the wire."""
    return len(octets) if isinstance(octets, bytes) else octets.length
