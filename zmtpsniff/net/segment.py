"""The TCP segment and the datagram, as the header decoder gives them to the flows."""

from operator import itemgetter
from typing import Any

Segment = tuple[int, int, bytes, int, int, int, bytes, int]
"""time_ns, packet number, key, sequence number, acknowledgment number, flags, payload, missing.

A plain tuple because one is made for every packet. ``key`` names the direction: source address, destination address
(4 or 16 octets each), source port, destination port (2 octets each, network order). ``missing`` is the number of
payload octets that were on the wire after ``payload`` but were not captured (snaplen).
"""
packet_of = itemgetter(1)

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10  # RFC 9293, section 3.1
CLOSED = 0x100  # among the flags, though it is none: the window is closed

Datagram = tuple[int, int, int, bytes, bytes, int]
"""time_ns, packet number, protocol, key, payload, missing: of UDP, or of PGM with its own header as the payload.

``key`` and ``missing`` are as in a segment.
"""

Step = tuple[int, int, int, list[Any], *tuple[Any, ...]]
"""time_ns, packet number, kind, sides; behind them what belongs to the kind: what a connection does that comes whole.

It begins: client's key, facts for FlowTable.add_whole(). ``sides`` is empty before that, and the same list in all steps
of the connection. Its server answers, if somebody listens: nothing. A side, 0 for the client, sends octets: octets,
their offset in its stream, what it had seen of the other one. The connection ends: if somebody listens, all that was
acknowledged: when, whose octets, up to which offset. The last packet of all such connections passes the time: nothing.
No other packet has a step that tells nothing.
"""

BEGINS, ENDS, ANSWERS, PASSES = 2, 3, 4, 5  # kinds of steps

UDP, PGM = 17, 113  # protocol numbers of IP
