"""Messages that came together in one packet, as one thing: what each of them costs by itself would be most of it all.

Where a peer sends many small messages at once, tens of them are in each packet, and the columns of their rows but for
their frames are the same.
"""

from collections.abc import Iterable, Iterator

import msgspec

from dissectors.events import AnyEvent, Message, Octets


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

    def messages(self) -> Iterator[Message]:
        """The messages, in order."""
        begin = 0
        for count in self.counts:
            frames: list[Octets] = [*self.frames[begin : begin + count]]
            begin += count
            yield Message(self.time_ns, self.packet, self.flow, self.src, self.dst, frames, self.socket_type)


def unrolled(events: Iterable[AnyEvent | Run]) -> Iterator[AnyEvent]:
    """The same events, with the messages of each run by themselves."""
    for event in events:
        if type(event) is Run:
            yield from event.messages()
        else:
            yield event  # type: ignore[misc]
