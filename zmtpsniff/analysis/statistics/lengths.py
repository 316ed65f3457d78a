"""Octets as statistics keep them."""

from dissectors.events import Cut, Message, Octets, at_hand

LONGEST = 255  # of an identity or topic


def shortened(octets: Octets) -> Octets:
    """Octets, cut to the length that statistics keep."""
    data = at_hand(octets)
    return octets if len(data) <= LONGEST else Cut(data[:LONGEST], len(octets))


def octets_of(message: Message) -> int:
    """How many octets the frames of a message had on the wire."""
    return sum(map(len, message.frames))
