"""All records of a capture by their number, in little memory.

Of each record only its kind, its flow and its packet stay in memory: 9 octets. The record itself is in a temporary
file, in blocks of 256 or more, and is made again when somebody looks at it: messages that come in columns stay in
columns there. One thread adds records while others look.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain

from dissectors.address import port_of
from dissectors.batches import MessageBatch
from dissectors.events import (
    EVENT_TYPES,
    AnyEvent,
    Command,
    Connection,
    Greeting,
    Message,
    Octets,
    Problem,
    WireEvent,
)
from zmtpsniff.browse.blocks import NumberedFile

_CODES = {kind: code for code, kind in enumerate(EVENT_TYPES)}
_MESSAGE, _PROBLEM = _CODES[Message], _CODES[Problem]
_TALKS = 100_000  # flows whose sides are remembered; later ones have records, but no line among conversations
_LARGEST = 0xFFFFFFFF  # packet that the index can hold


class Talk:
    """The two sides of a flow, as far as its records name them."""

    __slots__ = ("client", "first_row", "flow", "identities", "server", "socket_types", "summary")

    def __init__(self, flow: int, first_row: int, src: str, dst: str) -> None:
        """``src`` and ``dst`` are those of any record; until more is known the higher port is the client's."""
        self.flow = flow
        self.first_row = first_row
        self.client, self.server = (src, dst) if port_of(src) >= port_of(dst) else (dst, src)
        self.socket_types: dict[str, str] = {}  # by address
        self.identities: dict[str, Octets] = {}
        self.summary: int | None = None  # the row of its connection record, once it is over

    def socket_type(self, address: str) -> str:
        """The type of the socket at an address, or the two that it may have; empty if nobody knows it."""
        return self.socket_types.get(address, "")

    def see(self, row: int, event: AnyEvent) -> None:
        """Take note of what a record says of one side."""
        if isinstance(event, Connection):
            self.summary = row
            self.client, self.server = event.client.address, event.server.address
            for peer in (event.client, event.server):
                self._note(peer.address, peer.type_name, peer.identity)
        elif isinstance(event, Command | Greeting):
            self._note(event.src, event.socket_type, event.identity)

    def _note(self, address: str, socket_type: str | None, identity: Octets | None) -> None:
        if socket_type is not None:
            self.socket_types[address] = socket_type
        if identity:
            self.identities[address] = identity


class RecordIndex:
    """The records of a capture, each by its row, from 0."""

    def __init__(self) -> None:
        """Start without records; OSError if there is no room for temporary files."""
        self.kinds = array("B")
        self.flows = array("I")  # 0: none
        self.packets = array("I")  # 0: none
        self.problems = array("I")  # rows
        self.talks: dict[int, Talk] = {}
        self.first_ns: int | None = None
        self._records = NumberedFile(MessageBatch, MessageBatch.messages)

    def __len__(self) -> int:
        """How many records there are."""
        return len(self._records)

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Add records; OSError if there is no more room on the disk."""
        begin = 0
        for place, event in enumerate(events):
            if isinstance(event, MessageBatch):
                self._note(events[begin:place])
                self._note_batch(event)
                begin = place + 1
        self._note(events[begin:])
        self._records.add(events)

    def _note(self, events: Sequence[AnyEvent]) -> None:
        """Take note of records that are no batches."""
        kinds = list(map(_CODES.__getitem__, map(type, events)))
        flows = [getattr(event, "flow", None) or 0 for event in events]
        self._learn(events, kinds, flows)
        self.kinds.extend(kinds)
        self.flows.extend(flows)
        self.packets.extend([min(getattr(event, "packet", None) or 0, _LARGEST) for event in events])

    def _note_batch(self, batch: MessageBatch) -> None:
        """Take note of messages in columns."""
        flows = batch.flows()
        for flow in {side.flow for side in batch.senders} - self.talks.keys():
            if flow in flows:
                place = flows.index(flow)
                self._learn_talk(len(self.kinds) + place, flow, *batch.part(place, place + 1).messages())
        if self.first_ns is None:
            self.first_ns = batch.part(0, 1).time_ns
        self.kinds.frombytes(bytes([_MESSAGE]) * len(batch))
        self.flows.extend(flows)
        self.packets.extend([min(packet, _LARGEST) for packet in batch.packets()])

    def event(self, row: int) -> AnyEvent:
        """The record of a row."""
        first, records = self._records.around(row)
        event: AnyEvent = records[row - first]
        return event

    def events(self, start: int, stop: int) -> Iterator[AnyEvent]:
        """The records from one row up to before another."""
        return chain.from_iterable(self._records.lists(start, stop))

    def rows_of(self, stop: int, *kinds: type[AnyEvent]) -> list[int]:
        """The rows before ``stop`` whose records are of some kinds."""
        codes = {_CODES[kind] for kind in kinds}
        return [row for row, code in enumerate(self.kinds[:stop]) if code in codes]

    def is_message(self, row: int) -> bool:
        """Whether the record of a row is a message."""
        return self.kinds[row] == _MESSAGE

    def row_of_packet(self, packet: int, flow: int | None = None) -> int | None:
        """The first row of a packet, and of a flow if one is named; None if there is none."""
        start = 0
        while True:
            try:
                row = self.packets.index(packet, start)
            except ValueError:
                return None
            if flow is None or self.flows[row] == flow:
                return row if row < len(self) else None
            start = row + 1

    def row_from_packet(self, packet: int) -> int | None:
        """The first row of a packet or, if that has none, of one of the next; None if there is none."""
        exact = self.row_of_packet(packet)
        if exact is not None:
            return exact
        return next((row for row in range(len(self)) if self.packets[row] >= packet), None)

    def close(self) -> None:
        """Give the disk its room back."""
        self._records.close()

    def _learn(self, events: Sequence[AnyEvent], kinds: list[int], flows: list[int]) -> None:
        row = len(self.kinds)
        if self.first_ns is None:
            self.first_ns = next((time for event in events if (time := getattr(event, "time_ns", None))), None)
        for flow in set(flows) - self.talks.keys():
            place = flows.index(flow)
            self._learn_talk(row + place, flow, events[place])
        if kinds.count(_MESSAGE) == len(kinds):
            return
        for place, event in enumerate(events):
            kind = kinds[place]
            if kind == _MESSAGE:
                continue
            if kind == _PROBLEM:
                self.problems.append(row + place)
            elif (talk := self.talks.get(flows[place])) is not None:
                talk.see(row + place, event)

    def _learn_talk(self, row: int, flow: int, first: AnyEvent) -> None:
        """Learn of a flow by its first record."""
        if len(self.talks) >= _TALKS:
            return
        if isinstance(first, WireEvent | Problem) and first.src and first.dst:
            self.talks[flow] = Talk(flow, row, first.src, first.dst)
        elif isinstance(first, Connection):
            self.talks[flow] = Talk(flow, row, first.client.address, first.server.address)
