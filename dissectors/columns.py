"""How packets and messages lie in columns; `zmtpsniff/native/core.c` has the same structures."""

from array import array
from collections.abc import Callable
from struct import Struct
from typing import Literal

ROW = Struct("=qIIII")
"""A packet: its time in nanoseconds, where its octets begin, how many were captured and were on the wire, its link."""
GONE = (1 << 32) - 1
"""Instead of a link: the packet is one of a connection that came whole, and others took it."""
MESSAGE = Struct("=IIIIIIIIIIqqqqq")
"""A message: its packet's row, its sender, its part, its first frame and how many there are, the part of its request,
1 more than the identities in its envelope (0: it has none), what pairs it with its request, part and flow of the
message that it forwards, its stream offset, what its sender had seen, the packet of its request (0: none), its latency
in nanoseconds, and the packet of the message that it forwards (0: none)."""
PAIR = Struct("=IIIIII16xq8xq16x")
"""Of a MESSAGE: row, sender, part, first frame, number of frames, the request's part, offset, the request's packet."""
SENDER, FIRST, COUNT, REQUEST_PART, ENVELOPE, PAIRED_BY, VIA_PART, VIA_FLOW = 1, 3, 4, 5, 6, 7, 8, 9
"""Places among the numbers of 32 bits in a MESSAGE, which are also those of its fields."""
REQUEST, LATENCY, VIA = 7, 8, 9
"""Places among the numbers of 64 bits in a MESSAGE."""
SMALL, LARGE = MESSAGE.size // 4, MESSAGE.size // 8
"""How many numbers of 32 and of 64 bits a MESSAGE is."""
PAIRED: tuple[Literal["envelope", "order", "forwards", "id"] | None, ...] = (
    None,
    "envelope",
    "order",
    "forwards",
    "id",
)
"""The evidence that pairs a reply with its request, by the number in a MESSAGE; None: the protocol."""
ACKED = Struct("=IIq")
"""An acknowledgment: its packet's row, who acknowledges, and up to which offset in the stream of the other side."""
FRAME = Struct("=II")
"""A frame: where its octets begin, in those of the block or behind them in what was carried, and how many they are."""
WAITING = Struct("=qqqqqIII4x")
"""A request that waits for its reply: a number for its envelope, packet, time, stream offset, the packet of the message
that it forwards (0: none), its part, and the part and the flow of that message."""
ENVELOPES, IN_TURN, STEPS, DIRECT_STEPS = 1, 2, 3, 4
"""Kinds of connections whose messages are paired in columns: DEALER to ROUTER, any to REP, REQ to ROUTER, REQ to REP.
"""
TAKEN = Struct("=qq")
"""The number for an envelope, and how many of the requests with it have a reply, though nobody knows which."""
ASKED = Struct("=qqI4x")
"""A request that waits: its time in nanoseconds, its packet, its part."""
RHYTHM = Struct("=13q")
"""The fields of a Rhythm of zmtpsniff/analysis/findings/rhythms.py."""


def with_times(rows: bytes, clock: Callable[[int], int]) -> bytes:
    """ROWs with the times that ``clock`` gives for theirs."""
    words = array("q", rows)
    size = ROW.size // 8
    words[::size] = array("q", map(clock, words[::size]))
    return words.tobytes()
