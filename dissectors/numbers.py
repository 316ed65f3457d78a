"""Numbers of packets in snapshots, of dissectors and of what stands below them.

A packet's number may be made of a place in many files, and then has more bits than MessagePack's numbers.
"""

Number = int | bytes
"""The number of a packet as it is in a snapshot: octets if it has more than 63 bits."""


def store_number(number: int) -> Number:
    """The number of a packet as it is in a snapshot."""
    return number if number < 1 << 63 else number.to_bytes((number.bit_length() + 7) // 8, "big")


def fetch_number(stored: Number) -> int:
    """The number of :func:`store_number`."""
    return stored if isinstance(stored, int) else int.from_bytes(stored, "big")
