"""Saves packets of records that pass a display filter: whole connections, or only the packets that completed a record.

A connection passes once a record of it passes, and that may be the last one. Until then its packets wait. The file is
in the order of the capture, so packets behind a waiting one wait, too.

The packets that wait are bounded. Beyond that, the oldest packets of connections that have not passed are dropped;
only the first packets of each connection stay, since they have its handshake. If such a connection passes later, the
file has these packets and those that still wait, with a hole between them; ``missing`` counts the packets of the
hole.

All that is between two addresses and ports counts as one connection here, also if ports are used again.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import Final

import msgspec

from dissectors.events import AnyEvent, Capture, Comment, Connection, Message, Problem, WireEvent
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.saver import Saver
from zmtpsniff.capture.source import Source
from zmtpsniff.net.addresses import addresses, reverse
from zmtpsniff.net.segment import ACK, SYN, Segment

HELD_OCTETS: Final = 256 << 20
"""The memory that held packets may take, in octets."""

_PACKET_COST = 300  # octets of memory that a held packet takes beside its own
_OPENING_PACKETS = 32  # the first ones of each connection, which stay: a handshake, also that of CURVE
_OPENING_SHARE = 8  # one part in so many of the memory may be for these
_CONVERSATIONS = 100_000  # of which at least so many are remembered
_DATAGRAMS = 1024  # whose fragments are remembered

# Problems that a connection has only together with other connections of the same server.
_OF_SEVERAL = frozenset({"identity-in-use", "pair-in-use", "reconnect-storm", "connection-refused"})

_Ends = frozenset[str]


class _Conversation(msgspec.Struct, eq=False):
    """All packets between two addresses and ports, whatever connections they belong to."""

    key: bytes  # of one of its directions
    ends: _Ends
    is_tcp: bool
    passed: bool = False
    is_over: bool = False  # its connection is
    no_until_ns: int = -1  # packets up to this time belong to connections that are over and have not passed
    opening: list[Packet] = []  # its first packets, which are no longer in the queue
    lost: int = 0  # packets that were dropped


class _Entry(msgspec.Struct, eq=False):
    """A packet that waits to be written."""

    number: int
    packet: Packet
    conversation: _Conversation | None  # None: a fragment of a datagram that is not whole yet


class _AtEnd(msgspec.Struct, eq=False):
    """All conversations of one address and port."""

    conversations: list[_Conversation] = []
    wanted: int = 0  # how many of them have been wanted together


class PacketSelector:
    """Takes all packets and all events, and writes the wanted packets."""

    def __init__(
        self, saver: Saver, source: Source, *, packets_only: bool = False, held_octets: int = HELD_OCTETS
    ) -> None:
        """Write to ``saver``, and close it at the end. ``source`` gave the packets, and gets the saver's faults.

        ``packets_only`` writes only packets that completed a record which passed. ``held_octets`` limits the memory of
        held packets.
        """
        self.missing = 0  # packets that were dropped before their connection passed
        # Whether the TCP connection with a direction of this key may still have records.
        self.may_speak: Callable[[bytes], bool] = lambda _: True
        self._saver = saver
        self._source = source
        self._packets_only = packets_only
        self._limit = held_octets
        self._octets = 0  # held back
        self._opening_octets = 0
        self._queue: list[_Entry] = []
        self._first = 0  # the place in the queue of the first held packet
        self._conversations: dict[bytes, _Conversation] = {}  # by the keys of both directions
        self._by_ends: dict[_Ends, _Conversation] = {}
        self._at_end: dict[str, _AtEnd] = {}
        self._fragments: dict[Hashable, list[_Entry]] = {}
        self._numbers: set[int] = set()  # of packets that completed a record which passed
        self._told_fault = False
        self._most_conversations = 2 * _CONVERSATIONS  # before conversations without held packets are forgotten

    @property
    def octets(self) -> int:
        """The memory that held packets take now, in octets."""
        return self._octets + self._opening_octets

    # ------------------------------------------------------------------ packets

    def take(
        self,
        packets: Sequence[Packet],
        first: int,
        segments: Sequence[Segment],
        datagrams: Sequence[tuple[int, bytes]],
        fragments: Sequence[tuple[Hashable, int]],
    ) -> None:
        """Hold packets, whose numbers count up from ``first``, with the results of the header decoder.

        These are TCP segments; the packet number and the flow's key of each datagram that has a flow; of IP fragments
        the packet number, and a key that all fragments of one datagram share.
        """
        found: dict[int, _Conversation] = {}
        for segment in segments:
            conversation = self._conversations.get(segment[2])
            is_first = segment[5] & (SYN | ACK) == SYN
            if conversation is None or (is_first and conversation.is_over):
                conversation = self._begin(segment[2], is_tcp=True)
            found[segment[1]] = conversation
        for number, key in datagrams:
            found[number] = self._conversations.get(key) or self._begin(key, is_tcp=False)
        parts = {number: key for key, number in fragments}
        for number, packet in enumerate(packets, first):
            conversation = found.get(number)
            if conversation is None and number not in parts:
                continue
            held = _Entry(number, packet, conversation)
            self._queue.append(held)
            self._octets += _cost(packet)
            if number in parts:
                self._join(parts[number], held)

    def _begin(self, key: bytes, *, is_tcp: bool) -> _Conversation:
        source, destination = addresses(key)
        ends = frozenset((source.text, destination.text))
        conversation = _Conversation(key, ends, is_tcp)
        self._conversations[key] = self._conversations[reverse(key)] = conversation
        self._by_ends[ends] = conversation
        self._note(conversation)
        return conversation

    def _note(self, conversation: _Conversation) -> None:
        for end in conversation.ends:
            self._at_end.setdefault(end, _AtEnd()).conversations.append(conversation)

    def _join(self, key: Hashable, held: _Entry) -> None:
        """The last fragment of a datagram shows its conversation. Give the other fragments the same one."""
        if held.conversation is None:
            self._fragments.setdefault(key, []).append(held)
            if len(self._fragments) > _DATAGRAMS:
                del self._fragments[next(iter(self._fragments))]
            return
        for part in self._fragments.pop(key, ()):
            part.conversation = held.conversation

    # ------------------------------------------------------------------ events

    def judge(self, events: Sequence[AnyEvent], passing: Sequence[AnyEvent]) -> None:
        """Learn the events of the packets so far, and those that pass. Write the packets that are certain."""
        for event in passing:
            if not isinstance(event, Capture):
                self._want(event)
        for event in events:
            if isinstance(event, Connection):
                self._end(event)
        self._write()
        if self._octets > self._limit or len(self._by_ends) > self._most_conversations:
            self._make_room()
        if self._saver.faults and not self._told_fault:  # there is no second
            self._told_fault = True
            self._source.faults += self._saver.faults

    def _want(self, event: AnyEvent) -> None:
        """Want the packets that an event is about, and those that the event refers to in other connections."""
        if isinstance(event, Connection):
            self._pass(self._by_ends.get(frozenset((event.client.address, event.server.address))))
            for peer in (event.client, event.server):
                if peer.beacon is not None:
                    self._want_packet(peer.beacon)
        elif isinstance(event, Comment | Problem) and getattr(event, "src", None) is None:
            if event.packet is not None:
                self._want_packet(event.packet)
        elif isinstance(event, WireEvent | Problem):
            if self._packets_only and event.packet is not None:
                self._numbers.add(event.packet)
            self._pass(self._by_ends.get(frozenset((event.src or "", event.dst or ""))))
            if isinstance(event, Message) and event.forwards is not None:
                self._want_packet(event.forwards.packet)
            elif isinstance(event, Problem) and event.code in _OF_SEVERAL:
                for address in (event.src, event.dst):
                    self._want_all_at(address or "")

    def _want_all_at(self, address: str) -> None:
        """Want all known connections of an address and port, because a problem is about several of them."""
        at_end = self._at_end.get(address)
        if at_end is not None:
            for conversation in at_end.conversations[at_end.wanted :]:
                self._pass(conversation)
            at_end.wanted = len(at_end.conversations)

    def _want_packet(self, number: int) -> None:
        """Want a packet, and its conversation."""
        if self._packets_only:
            self._numbers.add(number)
            return
        place = bisect_left(self._queue, number, self._first, key=lambda held: held.number)
        if place < len(self._queue) and self._queue[place].number == number:
            self._pass(self._queue[place].conversation)

    def _pass(self, conversation: _Conversation | None) -> None:
        if conversation is None or conversation.passed or self._packets_only:
            return
        conversation.passed = True
        self.missing += conversation.lost
        self._save(conversation.opening)
        self._forget_opening(conversation)

    def _end(self, event: Connection) -> None:
        conversation = self._by_ends.get(frozenset((event.client.address, event.server.address)))
        if conversation is not None:
            conversation.is_over = True
            conversation.no_until_ns = max(conversation.no_until_ns, event.end_ns)
            self._forget_opening(conversation)

    def _forget_opening(self, conversation: _Conversation) -> None:
        self._opening_octets -= sum(map(_cost, conversation.opening))
        conversation.opening.clear()
        conversation.lost = 0

    # ------------------------------------------------------------------ writing

    def _verdict(self, held: _Entry) -> bool | None:
        """Whether a packet is wanted; None while that is undecided."""
        conversation = held.conversation
        if held.number in self._numbers:
            return True
        if conversation is None:
            return None
        if conversation.passed:
            return True
        return False if held.packet[0] <= conversation.no_until_ns else None

    def _write(self) -> None:
        """Write the wanted packets up to the first undecided one."""
        wanted = []
        place = self._first
        while place < len(self._queue) and (verdict := self._verdict(self._queue[place])) is not None:
            held = self._queue[place]
            self._octets -= _cost(held.packet)
            if verdict:
                wanted.append(held.packet)
            place += 1
        if place > self._first and place * 2 > len(self._queue):
            del self._queue[:place]
            place = 0
        else:
            for written in range(self._first, place):
                self._queue[written].packet = _NOTHING
        self._first = place
        if len(self._numbers) > 1000 + 2 * (len(self._queue) - place):
            oldest = self._queue[place].number if place < len(self._queue) else 1 << 62
            self._numbers = {number for number in self._numbers if number >= oldest}
        self._save(wanted)

    def _save(self, packets: Sequence[Packet]) -> None:
        if packets:
            self._saver.write(Block.of(packets), self._source.dropped or None)

    def _make_room(self) -> None:
        """Hold fewer packets: first drop those of connections without ZMTP, then the oldest ones."""
        kept: list[_Entry] = []
        speaks: dict[bytes, bool] = {}
        for held in self._queue[self._first :]:
            conversation = held.conversation
            verdict = self._verdict(held)
            if verdict is None and conversation is not None and conversation.is_tcp:
                if conversation.key not in speaks:
                    speaks[conversation.key] = self.may_speak(conversation.key)
                verdict = None if speaks[conversation.key] else False
            if verdict is False:
                self._octets -= _cost(held.packet)
            else:
                kept.append(held)
        self._queue = []
        self._first = 0
        for place, held in enumerate(kept):
            if self._octets <= self._limit * 3 // 4:
                self._queue = kept[place:]
                break
            self._octets -= _cost(held.packet)
            if self._verdict(held):
                self._save([held.packet])
            elif held.conversation is not None:
                self._give_up(held.packet, held.conversation)
        self._forget_conversations()
        self._write()

    def _give_up(self, packet: Packet, conversation: _Conversation) -> None:
        """Drop a packet, unless it is one of the first of its connection."""
        cost = _cost(packet)
        has_room = self._opening_octets + cost <= self._limit // _OPENING_SHARE
        if has_room and not conversation.lost and len(conversation.opening) < _OPENING_PACKETS:
            conversation.opening.append(packet)
            self._opening_octets += cost
        else:
            conversation.lost += 1

    def _forget_conversations(self) -> None:
        """Forget conversations without held packets, if there are too many: those that are over, then the oldest."""
        if len(self._by_ends) <= self._most_conversations:
            return
        used = {id(held.conversation) for held in self._queue}
        idle = [one for one in self._by_ends.values() if id(one) not in used]
        idle.sort(key=lambda one: not one.is_over)  # stable: the oldest first
        for conversation in idle[: len(self._by_ends) - _CONVERSATIONS]:
            self._forget_opening(conversation)
            del self._by_ends[conversation.ends]
            for key in (conversation.key, reverse(conversation.key)):
                self._conversations.pop(key, None)
        self._at_end.clear()
        for conversation in self._by_ends.values():
            self._note(conversation)
        self._most_conversations = 2 * max(len(self._by_ends), _CONVERSATIONS)

    def finish(self) -> None:
        """Write the wanted packets that are still held, and end the file. All events have been judged."""
        self._save([held.packet for held in self._queue[self._first :] if self._verdict(held)])
        self._queue.clear()
        self._first = 0
        self._saver.close(self._source.dropped or None)


_NOTHING: Packet = (0, 0, b"", 0, None)  # in place of a packet that is written


def _cost(packet: Packet) -> int:
    return len(packet[2]) + _PACKET_COST
