"""Settled flows: what is plain and in order goes from a block of packets to columns of messages.

A flow is settled if both of its directions are synchronised and in order, and its halves read plain frames of ZMTP 2.0
or later. Each part says of itself whether it is settled. Their facts go to the native core, which takes packets up to
the first that is not boring, and come back before anybody else sees that packet. So tables, limits and snapshots know
nothing of this.

A flow whose packets nobody wants is settled, too: nothing of it is read.

Connections that begin and end in a block do so between such packets. The core takes their packets out of the block, and
says in steps what they do. The events of both stand in the order of packets.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from dissectors.batches import BatchSide, MessageBatch
from dissectors.columns import ACKED, MESSAGE, ROW, SMALL
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.half import Half
from dissectors.zmtp.usual import UsualConnection
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.analysis.patterns.lock_step import LockStep
from zmtpsniff.capture.block import Block
from zmtpsniff.engine.flow_engine import FlowEngine
from zmtpsniff.native import MOST_CARRY
from zmtpsniff.net.flow import Flow, FlowDirection
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import Step
from zmtpsniff.net.witness import Acknowledge, Acknowledgment

LEAST = 320
"""Octets of each direction, with headers, from which a block is worth it: some three packets of small messages."""
LONGEST_RUN = 4096
"""Packets that are passed over together, before another one is looked for that is boring.

Each look cuts a block in two, and facts of flows go to the core and back for it.
"""
_MANY_BORING = 16  # packets in a row, or messages in them
_FULL = 4  # messages in a packet from which it is worth it to stop for that packet alone
_PERHAPS_FULL = 4, 128  # of a direction in a block: its packets with payload, and the mean of their octets
_MOST_CREDIT, _LONGEST_PAUSE = 8, 64  # packets, blocks
_MOST_KNOWN = 4096  # directions of which it is known how full their packets are
_WANTED, _UNWANTED = 1, 2  # modes of a side; 0: its octets need a look
_IGNORED = (_UNWANTED, 0, 0, 0, 0, b"", (), 0)
_PACKET, _PART = 4, 8  # places in the facts of a side that come back
_packet = itemgetter(1)  # of a step


class _Credit(msgspec.Struct, eq=False):
    """How many more packets of a direction than others were full, of late."""

    packets: int = 1
    blocks: int = 0  # so many must pass, if it has none, until it gets some again
    pause: int = 1  # blocks to let pass the next time


class _Fullness:
    """Which directions have many messages in each packet, as far as their last ones show.

    It is worth it to try such a packet wherever it stands, also where nearly all others are not boring.
    """

    def __init__(self) -> None:
        self._credits: dict[bytes, _Credit] = {}  # by the keys of directions
        self._full: set[bytes] = set()  # those that have some
        self.has_changed = False  # one has none any more

    def expect(self, keys: Iterable[bytes]) -> None:
        """Watch the directions with these keys: a block has packets of theirs that are large enough to be full."""
        for key in keys:
            credit = self._credits.get(key)
            if credit is None:
                self._credits[key] = _Credit()
            elif credit.packets:
                continue
            elif credit.blocks:
                credit.blocks -= 1
                continue
            else:
                credit.packets = 1
            self._full.add(key)

    def learn(self, key: bytes, messages: int) -> None:
        """The last packet of a direction has so many messages; 0 if the core did not take it."""
        credit = self._credits.get(key)
        if credit is None:
            return
        if messages >= _FULL:
            credit.packets, credit.pause = min(credit.packets + 1, _MOST_CREDIT), 1
            self._full.add(key)
        elif credit.packets:
            credit.packets -= 1
            if not credit.packets:
                credit.blocks, credit.pause = credit.pause, min(2 * credit.pause, _LONGEST_PAUSE)
                self._full.remove(key)
                self.has_changed = True

    def packets(self, core: Any, block: Block) -> "array[int]":
        """The places of those packets of a block that are probably full."""
        self.has_changed = False
        if len(self._credits) > _MOST_KNOWN:
            self._credits.clear()
            self._full.clear()
        return array("I", core.packets_of(block.octets, block.rows, self._full) if self._full else b"")


class SettledFlows:
    """Takes the packets of settled flows from blocks."""

    def __init__(
        self,
        core: Any,
        engine: FlowEngine,
        patterns: Patterns | None = None,
        acknowledge: Acknowledge | None = None,
        wants: Callable[[bytes], bool] | None = None,
    ) -> None:
        """Let the native ``core`` take packets of the flows of an ``engine``, to whose events this appends.

        ``patterns`` are the stage that follows, if there is one. ``acknowledge`` hears what receivers
        acknowledge. Whole connections are taken if the user ``wants`` the keys of their clients.
        """
        self._core = core
        self._engine = engine
        self._all_flows = engine.flows
        self._events = engine.events
        self._wants = wants
        self._steps: list[Step] = []  # of the block's whole connections, in order
        self._step = 0  # the next of them
        self._conversations = None if patterns is None else patterns.conversations
        self._acknowledge = acknowledge
        self._senders: list[BatchSide] = []
        self._run = 1  # packets that are passed over together
        self._left = 0  # of those, in the blocks to come
        self._fullness = _Fullness()
        self._asked_for = b""  # the key of the direction that the core asked for last
        self._told: set[int] = set()  # flows with events that analysis has not taken yet
        self._listened = 0  # to so many of the engine's events
        self._flows: list[tuple[Flow, LockStep | None]] = []  # asked for in this call, each with its lock step

    def others(self, block: Block, numbers: Sequence[int]) -> Iterator[tuple[int, Block]]:
        """Take the packets of settled flows from a block, whose packets have these numbers.

        Yields the others: where a part of the block begins, and the part. The caller takes it before it goes on, with
        the :meth:`steps` up to its end; packets of whole connections are gone from it. Numbers that are no range may
        be any, but then no pattern has one of them.
        """
        self._told.clear()
        self._listened = 0
        place, size = 0, len(block)
        directions, octets, begun, busy = self._core.directions(block.octets, block.rows, *_PERHAPS_FULL)
        if begun and self._engine.takes_whole:
            block = self._without_whole(block, numbers)
            directions, octets, _, busy = self._core.directions(block.octets, block.rows, *_PERHAPS_FULL)
        # The facts of each direction go to the core and back, so a block must have enough of each.
        tries_others = bool(directions and octets >= LEAST * directions)
        self._fullness.expect(busy)
        full = self._fullness.packets(self._core, block)
        if not tries_others and not full:
            yield place, block
            return
        first = 0  # the core has tried those before
        is_full = False  # the next packet probably is
        while place < size:
            if is_full or (tries_others and not self._left):
                begin = place
                place, messages = self._take(block, place, numbers)
                if place == size:
                    self._run, self._left = 1, 0
                    return
                # A full packet pays for its own stop; it tells nothing of the packets of others.
                self._adapt(is_full, (place - begin if is_full else max(place - begin, messages)) >= _MANY_BORING)
                if self._fullness.has_changed:
                    full = self._fullness.packets(self._core, block)
                first = place + 1
            begin = place
            place = min(begin + self._left, size) if tries_others else size
            nearest = bisect_left(full, first)
            is_full = nearest < len(full) and full[nearest] < place
            if is_full:
                place = full[nearest]
            if tries_others:
                self._left -= place - begin
            if begin < place:
                yield begin, block.part(begin, place)

    def steps(self, end: int) -> list[Step]:
        """Return the steps of whole connections at packets before the number ``end``, each once."""
        begin = self._step
        self._step = bisect_left(self._steps, end, begin, key=_packet)
        return self._steps[begin : self._step]

    def _without_whole(self, block: Block, numbers: Sequence[int]) -> Block:
        """The block without the packets of connections that are whole in it, which come in steps."""
        flows, size, wants, decoder = self._all_flows, len(block), self._wants, HeaderDecoder()

        def key_of(place: int) -> bytes | None:
            ((time_ns, link, octets, wire, _),) = block.packets(place, place + 1)
            segment = decoder.segment(time_ns, 0, link, octets, wire)
            return None if segment is None else segment[2]

        def is_new(key: bytes, isn: int, time_ns: int) -> bool:
            return (wants is None or wants(key)) and flows.is_new(size, key, isn, time_ns)

        self._steps, rows = self._core.whole(
            block.octets, block.rows, numbers, key_of, flows.pause_ns, is_new, self._engine.listens
        )
        self._step = 0
        return Block(block.octets, rows, None, block.base)

    def _adapt(self, was_full: bool, is_worth_it: bool) -> None:
        """Say how many packets to pass over: to stop before each costs more than it saves if hardly any are boring."""
        if is_worth_it:
            self._run = 1
        elif not was_full:
            self._run = min(2 * self._run, LONGEST_RUN)
        if is_worth_it or not was_full or not self._left:
            self._left = self._run

    def _take(self, block: Block, place: int, numbers: Sequence[int]) -> tuple[int, int]:
        """Take packets of a block from ``place`` on. Returns where it stopped, and how many messages it took."""
        for event in self._events[self._listened :]:
            if (number_of_flow := getattr(event, "flow", None)) is not None:
                self._told.add(number_of_flow)
        self._listened = len(self._events)
        self._asked_for = b""
        first = numbers[0] if isinstance(numbers, range) else 1  # the core counts from here on
        stop, columns, frames, carried, flows, recent_octets, acked = self._core.take(
            block.octets, block.rows, place, first + place, self._all_flows.pause_ns, self._look_up
        )
        for (flow, step), (_, last_ns, packet, client, server, steps, *heard) in zip(self._flows, flows, strict=True):
            flow.last_ns = last_ns
            if packet:
                flow.last_packet = numbers[packet - first]
            for direction, facts, time_ns, offset in zip(
                flow.directions, (client, server), heard[:2], heard[2:], strict=True
            ):
                if facts is not None:
                    self._fullness.learn(direction.key, facts[_PART])
                    self._give_back(direction, facts, block.octets, numbers[facts[_PACKET] - first])
                if time_ns:
                    direction.acked_ns = time_ns
                if offset > direction.acknowledges:
                    direction.acknowledges = offset
            if step is not None:
                step.go_on_from(steps)
        of_whole = self.steps(numbers[stop - 1] + 1) if stop > place else []
        if columns or of_whole:
            octets, rows, senders = block.octets, block.rows, self._senders
            self._tell(MessageBatch(octets, rows, first, columns, frames, carried, senders), of_whole)
        if self._acknowledge is not None:
            self._acknowledge(self._acknowledgments(block, acked))
        if stop == place:
            self._fullness.learn(self._asked_for, 0)
        else:
            self._all_flows.pass_time(block.time_ns(stop - 1), recent_octets, is_last=False)
        self._senders, self._flows = [], []
        return int(stop), len(columns) // MESSAGE.size

    def _tell(self, batch: MessageBatch, steps: list[Step]) -> None:
        """Append messages to the events, and take steps of whole connections among them, in the order of packets."""
        events, begin = self._events, 0
        rows = memoryview(batch.columns).cast("I")[::SMALL]
        for step in steps:
            told = len(events)
            self._engine.take_step(step)
            end = bisect_left(rows, step[1] - batch.first_packet, begin) if len(events) > told else begin
            if begin < end:
                events.insert(told, batch.part(begin, end))  # type: ignore[arg-type]
                begin = end
        if begin < len(batch):
            events.append(batch.part(begin, len(batch)) if begin else batch)  # type: ignore[arg-type]

    def _acknowledgments(self, block: Block, acked: bytes) -> Iterator[Acknowledgment]:
        sides, time_of, rows, size = self._senders, ROW.unpack_from, block.rows, ROW.size
        for row, number, offset in ACKED.iter_unpack(acked):
            receiver = sides[number]
            yield time_of(rows, row * size)[0], receiver.flow, receiver.dst, offset

    def _give_back(self, direction: Any, facts: tuple[Any, ...], octets: bytes, packet: int) -> None:
        """Give the facts of a side back, which had octets in this packet last."""
        after, offset, fed, time_ns, _, begin, seen, earlier, part, carry, old, recent, until = facts
        kept = [(at, octets[start:stop], when, saw) for at, start, stop, when, saw in recent]
        direction.go_on_from(after, offset, old, kept, until)
        direction.receiver.go_on_from((time_ns, packet, begin, seen), fed, (earlier, packet, part), carry)

    def _look_up(self, key: bytes) -> tuple[Any, ...] | None:
        """The facts of the flow that a direction belongs to; None if it is not settled."""
        self._asked_for = key
        direction = self._all_flows.settled(key)
        if direction is None:
            return None
        flow = direction.flow
        side = int(direction is flow.server)
        if flow.unwanted:
            self._senders += [_NOBODY, _NOBODY]
            self._flows.append((flow, None))
            return flow, side, flow.last_ns, _IGNORED, _IGNORED, None
        connection = flow.dissection
        if isinstance(connection, UsualConnection):
            connection = connection.whole
        if not isinstance(connection, ZmtpConnection) or not connection.accepted:
            return None
        client, server = (_facts(one, half) for one, half in zip(flow.directions, connection.halves, strict=True))
        if not (client[0] or server[0]):
            return None
        number = flow.number
        is_known = number not in self._told
        step = None
        has_patterns = self._conversations is None
        if is_known and self._conversations is not None:
            has_patterns = not self._conversations.wants(number)
            if not has_patterns:
                step = self._conversations.step(number)
        steps = None if step is None else step.facts(connection.client.journal.src)
        in_pairs = is_known and steps is None and self._conversations is not None and self._conversations.pairs(number)
        has_patterns = has_patterns or steps is not None or in_pairs
        for half in connection.halves:
            journal = half.journal
            self._senders.append(
                BatchSide(
                    number, journal.src, journal.dst, half.session.socket_type, steps is not None, in_pairs,
                    has_patterns,
                )
            )  # fmt: skip
        self._flows.append((flow, step if steps is not None else None))
        return flow, side, flow.last_ns, client, server, steps


_NOBODY = BatchSide(0, "", "", None, False, False, True)


def _facts(direction: FlowDirection, half: Half) -> tuple[Any, ...]:
    """The facts of one side, with mode 0 if its octets need a look."""
    carry = half.carry()
    if carry is not None and len(carry) > MOST_CARRY:
        carry = None
    mode = 0 if carry is None else _WANTED
    _, _, part = half.journal.tally
    return (
        mode, direction.next, direction.offset, half.session.keep, part, carry or b"", tuple(direction.recent),
        direction.recent_until,
    )  # fmt: skip
