"""Messages that came together in one packet, as one thing: what each of them costs by itself would be most of it all.

Where a peer sends many small messages at once, tens of them are in each packet, and the columns of their rows but for
their frames are the same.
"""

import msgspec


class Run(msgspec.Struct, gc=False):
    """Messages that one sender completed in one packet; the fields are those of each Message.

    ``frames`` are those of all messages, ``counts`` says how many of them are each message's.
    """

    time_ns: int
    packet: int
    flow: int
    src: str
    dst: str
    frames: list[bytes]
    counts: list[int]
    socket_type: str | None
    incomplete: bool = False
