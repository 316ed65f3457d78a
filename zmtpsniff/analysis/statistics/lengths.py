"""Octets as statistics keep them."""

from dissectors.events import Cut, Message, Octets, at_hand
from zmtpsniff.words.text import length_on_wire

LONGEST = 255  # of an identity or topic


def shortened(octets: Octets) -> Octets:
    """Octets, cut to the length that statistics keep."""
    data = at_hand(octets)
    return octets if len(data) <= LONGEST else Cut(data[:LONGEST], length_on_wire(octets))


def octets_of(message: Message) -> int:
    """How many octets the frames of a message had on the wire."""
    octets = 0
    for frame in message.frames:
        octets += len(frame) if type(frame) is bytes else length_on_wire(frame)
    return octets
