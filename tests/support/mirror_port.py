"""Captures as a mirror port gives them to a network card with several queues.

The card sorts packets into queues by their addresses and ports, and the kernel empties each queue now and then. So the
packets of one direction of a connection stay in order, and get the time when their queue was emptied. Those of other
directions and connections overtake them.
"""

import zlib
from collections.abc import Iterable
from operator import itemgetter

from zmtpsniff.capture.block import Packet

_QUEUES = 8
_ADDRESSES = slice(26, 38)  # in Ethernet and IPv4 without options: both addresses, both ports


def through_queues(packets: Iterable[Packet], interval_ns: int) -> list[Packet]:
    """The packets in the order in which queues are emptied, each of them once in ``interval_ns``."""

    def emptied_ns(time_ns: int, octets: bytes) -> int:
        since_ns = zlib.crc32(octets[_ADDRESSES]) % _QUEUES * interval_ns // _QUEUES
        return ((time_ns - since_ns) // interval_ns + 1) * interval_ns + since_ns

    moved = [(emptied_ns(one[0], one[2]), *one[1:]) for one in packets]
    return sorted(moved, key=itemgetter(0))
