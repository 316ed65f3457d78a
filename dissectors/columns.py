"""How packets and messages lie in columns; `zmtpsniff/native/core.c` has the same structures."""

from struct import Struct

ROW = Struct("=qIIII")
"""A packet: its time in nanoseconds, where its octets begin, how many were captured and were on the wire, its link."""
MESSAGE = Struct("=IIIIIIIIqqqq")
"""A message: its packet's row, its sender, its part, its first frame and how many there are, the part of its request,
1 more than the identities in its envelope (0: it has none), what pairs it with its request, its stream offset, what its
sender had seen, the packet of its request (0: none), and its latency in nanoseconds."""
BY_ENVELOPE = 1
"""The envelope pairs a reply with its request; 0: the protocol does."""
FRAME = Struct("=II")
"""A frame: where its octets begin, in those of the block or behind them in what was carried, and how many they are."""
WAITING = Struct("=qqqqI4x")
"""A request that waits for a reply with its envelope: a number for that, packet, time, stream offset, part."""
TAKEN = Struct("=qq")
"""The number for an envelope, and how many of the requests with it have a reply, though nobody knows which."""
ASKED = Struct("=qqI4x")
"""A request that waits: its time in nanoseconds, its packet, its part."""
