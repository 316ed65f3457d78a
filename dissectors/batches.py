"""Messages in columns, without an object for each of them."""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from dissectors.events import Envelope, Message, Octets

ROW = Struct("=qIIII")
"""A packet: its time in nanoseconds, where its octets begin, how many were captured and were on the wire, its link."""
MESSAGE = Struct("=IIIIIIqqqq")
"""A message: its packet's row, its sender, its part, its first frame and how many there are, the part of its request,
its stream offset, what its sender had seen, the packet of its request (0: none), and its latency in nanoseconds."""
FRAME = Struct("=II")
"""A frame: where its octets begin, in those of the block or behind them in what was carried, and how many they are."""

DELIMITER_ONLY = Envelope(0, True)


class BatchSide(NamedTuple):
    """The facts that all messages of one side of a connection share."""

    flow: int
    src: str
    dst: str
    socket_type: str | None
    in_step: bool  # it takes part in a lock step: its messages have an envelope, and replies their request
    has_patterns: bool  # nothing more can be said of what its messages mean to each other
    has_payload: bool  # no dissector of payloads wants them


class MessageBatch:
    """Messages of several connections, in order: columns, and the octets of a block in which their frames are."""

    __slots__ = ("carried", "columns", "first_packet", "frames", "octets", "rows", "senders")

    def __init__(
        self,
        octets: bytes,
        rows: bytes,
        first_packet: int,
        columns: bytes,
        frames: bytes,
        carried: bytes,
        senders: list[BatchSide],
    ) -> None:
        """Messages that end in packets with these ``rows``; the first row's packet has the number ``first_packet``."""
        self.octets = octets
        self.rows = rows
        self.first_packet = first_packet
        self.columns = columns
        self.frames = frames
        self.carried = carried
        self.senders = senders

    def __len__(self) -> int:
        """The number of messages."""
        return len(self.columns) // MESSAGE.size

    @property
    def time_ns(self) -> int:
        """The time of the last message."""
        return self._time_ns(MESSAGE.unpack_from(self.columns, len(self.columns) - MESSAGE.size)[0])

    @property
    def latest_ns(self) -> int:
        """The greatest time of a message."""
        return max(self._time_ns(column[0]) for column in MESSAGE.iter_unpack(self.columns))

    def _time_ns(self, row: int) -> int:
        time_ns: int = ROW.unpack_from(self.rows, row * ROW.size)[0]
        return time_ns

    def part(self, begin: int, end: int) -> "MessageBatch":
        """The messages from the one at ``begin`` up to that at ``end``."""
        columns = self.columns[begin * MESSAGE.size : end * MESSAGE.size]
        return MessageBatch(self.octets, self.rows, self.first_packet, columns, self.frames, self.carried, self.senders)

    def split(self, stays: Callable[[BatchSide], bool]) -> "list[MessageBatch | Message]":
        """The same messages in order, those as objects whose sender does not stay in a batch."""
        staying = [stays(sender) for sender in self.senders]
        if all(staying):
            return [self]
        if not any(staying):
            return [*self.messages()]
        found: list[MessageBatch | Message] = []
        begin = 0
        for place, column in enumerate(MESSAGE.iter_unpack(self.columns)):
            if not staying[column[1]]:
                if begin < place:
                    found.append(self.part(begin, place))
                found += self.part(place, place + 1).messages()
                begin = place + 1
        if begin < len(self):
            found.append(self.part(begin, len(self)))
        return found

    def messages(self) -> list[Message]:
        """An object for each message."""
        octets, carried, size, senders = self.octets, self.carried, len(self.octets), self.senders
        unpack = FRAME.unpack_from
        found = []
        packet = time_ns = before = -1
        for row, sender, part, first, count, request_part, offset, seen, request, latency in MESSAGE.iter_unpack(
            self.columns
        ):
            if row != before:
                before, packet, time_ns = row, self.first_packet + row, self._time_ns(row)
            frames: list[Octets] = []
            for place in range(first * FRAME.size, (first + count) * FRAME.size, FRAME.size):
                begin, length = unpack(self.frames, place)
                if begin < size:
                    frames.append(octets[begin : begin + length])
                else:
                    frames.append(carried[begin - size : begin - size + length])
            flow, src, dst, socket_type, in_step, _, _ = senders[sender]
            message = Message(time_ns, packet, flow, src, dst, frames, socket_type, offset, seen, part)
            if in_step:
                message.envelope = DELIMITER_ONLY
                if request:
                    message.request, message.request_part, message.latency_ns = request, request_part, latency
            found.append(message)
        return found
