"""Packet numbers in the snapshots of dissectors and flows.

A packet number may combine many files and a place in one of them. Then it has more bits than MessagePack's numbers.
"""

Number = int | bytes
"""The number of a packet as it is in a snapshot: octets if it has more than 63 bits."""


def store_number(number: int) -> Number:
    """The number of a packet as it is in a snapshot."""
    return number if number < 1 << 63 else number.to_bytes((number.bit_length() + 7) // 8, "big")


def fetch_number(stored: Number) -> int:
    """The number of :func:`store_number`."""
    return stored if isinstance(stored, int) else int.from_bytes(stored, "big")
