"""Messages in columns, without an object for each of them."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, compress, groupby, pairwise
from struct import Struct
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from dissectors.columns import COUNT, FIRST, FRAME, LARGE, LATENCY, MESSAGE, PAIRED, REQUEST, ROW, SENDER, SMALL
from dissectors.columns import with_times as rows_with_times
from dissectors.events import AnyEvent, Envelope, Message, Octets, Place

_COLUMNS = Struct(f"{MESSAGE.size}s")
DELIMITER_ONLY = Envelope(0, True)
_was_made = False  # any batch


@lru_cache(256)
def envelope_with(identities: int) -> Envelope:
    """The envelope with so many identities in front of its delimiter."""
    return Envelope(identities, True) if identities else DELIMITER_ONLY


class BatchSide(NamedTuple):
    """The facts that all messages of one side of a connection share."""

    flow: int
    src: str
    dst: str
    socket_type: str | None
    in_step: bool  # it takes part in a lock step: its messages are paired already
    in_pairs: bool  # patterns pair its messages in columns
    has_patterns: bool  # nothing more can be said of what its messages mean to each other

    def as_paired(self) -> "BatchSide":
        """The same side, whose messages mean nothing more to each other."""
        return self._replace(has_patterns=True)

    def as_step(self) -> "BatchSide":
        """The same side, whose messages are paired in a lock step."""
        return self._replace(in_step=True, has_patterns=True)


class MessageBatch(msgspec.Struct, eq=False):
    """Messages of several connections, in order: columns, and the octets of a block in which their frames are."""

    octets: bytes
    rows: bytes  # of the packets in which they end
    first_packet: int  # the number of the first row's packet
    columns: bytes
    frames: bytes
    carried: bytes
    senders: list[BatchSide]

    def __post_init__(self) -> None:
        """Note that there are batches."""
        global _was_made
        _was_made = True

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

    def flows(self) -> "array[int]":
        """The flow of each message."""
        flows = [side.flow for side in self.senders]
        return array("I", [flows[sender] for sender in array("I", self.columns)[SENDER::SMALL]])

    def packets(self) -> "array[int]":
        """The packet of each message."""
        return array("Q", [self.first_packet + row for row in array("I", self.columns)[::SMALL]])

    def _time_ns(self, row: int) -> int:
        time_ns: int = ROW.unpack_from(self.rows, row * ROW.size)[0]
        return time_ns

    def part(self, begin: int, end: int) -> "MessageBatch":
        """The messages from the one at ``begin`` up to that at ``end``."""
        return self.with_columns(self.columns[begin * MESSAGE.size : end * MESSAGE.size])

    def with_times(self, clock: Callable[[int], int]) -> "MessageBatch":
        """The same messages with the times that ``clock`` gives for theirs."""
        return replace(self, rows=rows_with_times(self.rows, clock))

    def with_columns(self, columns: bytes) -> "MessageBatch":
        """Messages with the frames, the packets and the senders of these."""
        return replace(self, columns=columns)

    def with_senders(self, senders: "list[BatchSide]") -> "MessageBatch":
        """The same messages, with other facts of their senders."""
        return replace(self, senders=senders)

    def of_senders(self, wanted: Sequence[bool]) -> "MessageBatch":
        """The messages of those senders that are wanted, by their places among the senders."""
        senders = array("I", self.columns)[SENDER::SMALL]
        columns = compress(_COLUMNS.iter_unpack(self.columns), map(wanted.__getitem__, senders))
        return self.with_columns(b"".join(chain.from_iterable(columns)))

    def split(
        self,
        stays: Callable[[BatchSide], bool],
        least: int = 0,
        stays_in_few: Callable[[BatchSide], bool] | None = None,
    ) -> "list[MessageBatch | Message]":
        """The same messages in order, those as objects whose sender does not stay in a batch.

        Among fewer than ``least`` messages in a row that stay, only those stay whose sender does so in a few.
        """
        staying = [stays(sender) for sender in self.senders]
        is_short = stays_in_few is not None and len(self) < least
        if all(staying) and not is_short:
            return [self]
        if not any(staying):
            return [*self.messages()]
        senders = array("I", self.columns)[SENDER::SMALL]
        flags = [staying[sender] for sender in senders]
        if stays_in_few is not None:
            in_few = [stays_in_few(sender) for sender in self.senders]
            for begin, end in _runs(flags):
                if flags[begin] and end - begin < least:
                    flags[begin:end] = [in_few[sender] for sender in senders[begin:end]]
        found: list[MessageBatch | Message] = []
        for begin, end in _runs(flags):
            run = self.part(begin, end)
            if flags[begin]:
                found.append(run)
            else:
                found += run.messages()
        return found

    def bodies(self) -> tuple[int, list[bytes]]:
        """The octets of all frames of these messages, and the number that columns have for the first of them."""
        if not self.columns:
            return 0, []
        first = MESSAGE.unpack_from(self.columns)[FIRST]
        last = MESSAGE.unpack_from(self.columns, len(self.columns) - MESSAGE.size)
        end = last[FIRST] + last[COUNT]
        spans = FRAME.iter_unpack(self.frames[first * FRAME.size : end * FRAME.size])
        octets, carried, size = self.octets, self.carried, len(self.octets)
        if not carried:
            return first, [octets[begin : begin + length] for begin, length in spans]
        return first, [
            octets[begin : begin + length] if begin < size else carried[begin - size : begin - size + length]
            for begin, length in spans
        ]

    def messages(self) -> list[Message]:
        """An object for each message."""
        base, bodies = self.bodies()
        senders = self.senders
        found = []
        packet = time_ns = before = -1
        for (
            row, sender, part, first, count, request_part, envelope, paired, via_part, via_flow, offset, seen, request,
            latency, via,
        ) in MESSAGE.iter_unpack(self.columns):  # fmt: skip
            if row != before:
                before, packet, time_ns = row, self.first_packet + row, self._time_ns(row)
            frames: list[Octets] = [*bodies[first - base : first - base + count]]
            flow, src, dst, socket_type, *_ = senders[sender]
            message = Message(time_ns, packet, flow, src, dst, frames, socket_type, False, None, offset, seen, part)
            if envelope:
                message.envelope = envelope_with(envelope - 1)
                if request:
                    message.request, message.request_part, message.latency_ns = request, request_part, latency
                    message.paired = PAIRED[paired]
            if via:
                message.forwards = Place(via_flow, via, via_part)
            found.append(message)
        return found

    def latencies(self) -> Iterator[tuple[BatchSide, int]]:
        """Of each reply whose request is known its sender, and how long it took in nanoseconds."""
        senders, numbers = array("I", self.columns)[SENDER::SMALL], array("q", self.columns)
        for sender, request, latency in zip(senders, numbers[REQUEST::LARGE], numbers[LATENCY::LARGE], strict=True):
            if request:
                yield self.senders[sender], latency


def joined_parts(parts: Iterable[MessageBatch]) -> Iterator[MessageBatch]:
    """The messages of parts, those together that belong to one batch."""
    for _, some in groupby(parts, lambda part: id(part.frames)):
        first, *others = some
        yield first.with_columns(b"".join([first.columns, *(part.columns for part in others)])) if others else first


def has_batches(events: Sequence[object]) -> bool:
    """Whether there are messages in columns among the events.

    Without the native core nobody makes any, and there are so many events that a look at each takes its time.
    """
    return _was_made and MessageBatch in map(type, events)


def single_messages(events: list[AnyEvent]) -> list[AnyEvent]:
    """The events, with an object for each message."""
    if not has_batches(events):
        return events
    found: list[Any] = []
    for event in events:
        found += event.messages() if isinstance(event, MessageBatch) else [event]
    return found


def _runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Where each run of equal flags begins and ends."""
    if not flags:
        return []
    edges = [0, *(place for place in range(1, len(flags)) if flags[place] != flags[place - 1]), len(flags)]
    return list(pairwise(edges))
