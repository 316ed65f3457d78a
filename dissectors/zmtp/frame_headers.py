"""Headers of frames: the one function that reads them for each framing. Pure functions.

    ZMTP 1.0            length (1 octet) │ FF, length (8 octets), then flags; the length counts the flags (13/ZMTP)
    ZMTP 2.0 and later  flags, then length (1 octet; 8 octets if LONG is set) (15/ZMTP and 23/ZMTP, "Framing")

Both functions return the flags as they are, the place where the body begins, and the length of the body. They judge
nothing: a length may be impossible, and flags may be reserved. If octets of the header are missing, they return the
size of the whole header.
"""

from dissectors.zmtp import wire

Header = tuple[int, int, int]
"""The flags, the place where the body begins, and the body's length in octets."""


def read_v1(octets: bytes, position: int) -> Header | int:
    """Read the header of a ZMTP 1.0 frame, of which at least one octet is there.

    A frame that announces a length of zero, which no frame has, gives a body of -1 octets.
    """
    length, begin = octets[position], position + 2
    if length == wire.LENGTH_ESCAPE_V1:
        begin = position + 10
        length = int.from_bytes(octets[position + 1 : position + 9], "big")
    if begin > len(octets):
        return begin - position
    return octets[begin - 1], begin, length - 1


def read_v2(octets: bytes, position: int) -> Header | int:
    """Read the header of a frame of ZMTP 2.0 or later, of which at least one octet is there."""
    flags = octets[position]
    begin = position + (9 if flags & wire.LONG else 2)
    if begin > len(octets):
        return begin - position
    return flags, begin, int.from_bytes(octets[position + 1 : begin], "big")
