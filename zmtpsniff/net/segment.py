"""The TCP segment and the datagram, as the header decoder gives them to the flows."""

from dissectors.numbers import Number, fetch_number, store_number

Segment = tuple[int, int, bytes, int, int, int, bytes, int]
"""time_ns, packet number, key, sequence number, acknowledgment number, flags, payload, missing.

A plain tuple because one is made for every packet. ``key`` names the direction: source address, destination address
(4 or 16 octets each), source port, destination port (2 octets each, network order). ``missing`` is the number of
payload octets that were on the wire after ``payload`` but were not captured (snaplen).
"""

StoredSegment = tuple[int, Number, bytes, int, int, int, bytes, int]
"""A segment in a snapshot."""


def store_segment(segment: Segment) -> StoredSegment:
    """A segment as it is in a snapshot."""
    time_ns, packet, *rest = segment
    return time_ns, store_number(packet), *rest  # type: ignore[return-value]


def fetch_segment(stored: StoredSegment) -> Segment:
    """The segment of :func:`store_segment`."""
    time_ns, packet, *rest = stored
    return time_ns, fetch_number(packet), *rest  # type: ignore[return-value]


FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10  # RFC 9293, section 3.1
CLOSED = 0x100  # among the flags, though it is none: the window is closed

Datagram = tuple[int, int, int, bytes, bytes, int]
"""time_ns, packet number, protocol, key, payload, missing: of UDP, or of PGM with its own header as the payload.

``key`` and ``missing`` are as in a segment.
"""

UDP, PGM = 17, 113  # protocol numbers of IP
