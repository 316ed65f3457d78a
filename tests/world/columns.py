"""Messages in columns, as the core makes them."""

from collections.abc import Sequence
from typing import Any

from dissectors.batches import BatchSide, MessageBatch
from dissectors.columns import FRAME, MESSAGE, ROW

NS = 10**9


def batch_of(made: Sequence[Any], senders: list[BatchSide]) -> MessageBatch:
    """A batch of such messages, each in a packet of its own."""
    octets, rows, columns, frames, time_ns = bytearray(), b"", b"", b"", 1_700_000_000 * NS
    for row, (sender, parts, envelope, request, latency, forwards, later) in enumerate(made):
        time_ns += later
        rows += ROW.pack(time_ns, 0, 0, 0, 1)
        columns += MESSAGE.pack(
            row, sender, 1, len(frames) // FRAME.size, len(parts), request[1], envelope, request[2], forwards[1],
            forwards[2], 0, 0, request[0], latency, forwards[0],
        )  # fmt: skip
        for part in parts:
            frames += FRAME.pack(len(octets), len(part))
            octets += part
    return MessageBatch(bytes(octets), rows, 9995, columns, frames, b"", senders)
