"""How packets and messages lie in columns; `zmtpsniff/native/core.c` has the same structures."""

from struct import Struct

ROW = Struct("=qIIII")
"""A packet: its time in nanoseconds, where its octets begin, how many were captured and were on the wire, its link."""
MESSAGE = Struct("=IIIIIIqqqq")
"""A message: its packet's row, its sender, its part, its first frame and how many there are, the part of its request,
its stream offset, what its sender had seen, the packet of its request (0: none), and its latency in nanoseconds."""
FRAME = Struct("=II")
"""A frame: where its octets begin, in those of the block or behind them in what was carried, and how many they are."""
ASKED = Struct("=qqI4x")
"""A request that waits: its time in nanoseconds, its packet, its part."""
