"""TCP by those who mean harm: segments that no connection can have, in any order, at any time.

Nothing may raise or go on for ever, and what is kept must stay within the limits and be given back.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from types import FrameType
from typing import Any

import pytest

from dissectors.zmtp.connection import ZmtpConnection
from tests.support.footprint import entries
from tests.world.octets import greeting, message, prop, ready
from zmtpsniff.net.flows import FlowTable
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.segment import ACK, FIN, RST, SYN, Segment

SECOND = 1_000_000_000
CLIENT, SERVER = b"\x0a\0\0\1", b"\x0a\0\0\2"
STREAM = greeting(minor=0) + ready(b"DEALER", prop(b"Identity", b"")) + message(3, b"", b"hello") * 400
LIMITS = FlowLimits(6_000, 10_000, 4, 100.0, 50.0, 1.0)
LARGEST = 1_000  # octets of a segment


def key(back: bool, port: int = 40_000) -> bytes:
    client, server = CLIENT, SERVER
    ports = port.to_bytes(2, "big"), (5555).to_bytes(2, "big")
    return server + client + ports[1] + ports[0] if back else client + server + ports[0] + ports[1]


class Ear:
    """Hears one direction, and checks that every octet is told of once and in order."""

    def __init__(self) -> None:
        self.offset = 0  # in the stream
        self.told = 0  # octets
        self.packet = 0
        self.was_absent = False
        self.released = False

    def feed(self, data: bytes, time_ns: int, packet: int, offset: int, seen: int) -> None:
        assert data
        assert offset == self.offset or self.was_absent  # then its first octets may be anywhere
        self.offset = offset
        self.was_absent = False
        self.gap(len(data), False, time_ns, packet)

    def gap(self, length: int, cut: bool, time_ns: int, packet: int) -> None:
        assert length > 0
        self.offset += length
        self.told += length
        self.conflict(0, 1, time_ns, packet)

    def absent(self, time_ns: int, packet: int) -> None:
        assert self.offset == 0
        assert not self.was_absent
        self.was_absent = True

    def conflict(self, offset: int, length: int, time_ns: int, packet: int) -> None:
        assert not self.released
        assert length > 0
        assert packet >= self.packet, "the events of a sender are not in order of packets"
        self.packet = packet


class Ears:
    """A dissection that only listens, to some end."""

    def __init__(self, patience: int = 1 << 62) -> None:
        self.client, self.server = Ear(), Ear()
        self.patience = patience
        self.finished = self.released = 0

    @property
    def rejected(self) -> bool:
        return self.client.offset + self.server.offset > self.patience

    def finish(self, end: str, start_ns: int, end_ns: int, closed_by: str | None) -> None:
        assert end in ("fin", "rst", "timeout", "open")
        self.finished += 1

    def release(self) -> None:
        self.released += 1
        self.client.released = self.server.released = True


def _check(table: FlowTable, limits: FlowLimits) -> None:
    """Whatever is kept is accounted for, in order, and within the limits."""
    open_flows = set(table.register.flows.values())
    flows = open_flows.union(table.register.retired.values())
    ends = [direction for flow in flows for direction in flow.directions]
    doubtful = sum(len(segment[6]) + 256 for direction in ends for segment in direction.doubtful)
    assert table.holdings.waiting_octets == sum(flow.waiting_octets for flow in flows) + doubtful
    assert table.holdings.waiting_octets <= limits.waiting_octets + LARGEST + 256
    assert len(open_flows) <= limits.flows
    for flow in flows:
        assert flow in open_flows
        early = sum(len(segment[6]) + 256 for segment in flow.early or ())
        assert flow.early_octets == early
        assert flow.begun or not (flow.client.waiting or flow.server.waiting)
        for direction in flow.directions:
            held = direction.waiting
            assert all(one.end <= other.offset for one, other in pairwise(held)), "what waits overlaps"
            assert sum(len(one.payload) + 256 for one in held) == direction.waiting_octets
            assert direction.waiting_octets <= limits.waiting_octets_per_direction + LARGEST + 256
            assert len(direction.doubtful) <= 8
            assert not (held and flow.ended)
        if flow.early or flow.client.waiting or flow.server.waiting:
            assert table.waiting.horizons.get(flow.number) == flow.sure_ns, (
                "what waits is found only by the next segment"
            )


def _check_empty(table: FlowTable) -> None:
    """Nothing is kept after the end, but for how far the clocks of capture points are apart."""
    assert not table.register.flows
    assert not table.register.retired
    assert entries(table) == entries(table.holdings.clocks)
    assert table.holdings.waiting_octets == 0


def storm(random: Random, count: int) -> Iterator[Segment]:
    """Segments of a few connections on two pairs of ports, with whatever numbers and flags."""
    now = SECOND
    bases = [random.choice([1000, 2**32 - 50, 2**31, random.randrange(2**32)]) for _ in range(8)]
    ordinary = random.random()
    ports = random.choice([1, 1, 2, 8])
    largest = random.choice([3, 40, 300, LARGEST])
    pause = random.choice([1000, SECOND // 100, SECOND, 100 * SECOND])
    jump = random.choice([0, 0, 0.05, 0.3])
    epoch = 0
    for packet in range(1, count + 1):
        now += random.randrange(-pause // 4, pause)
        if random.random() < 0.01:
            now += random.choice([-90_000, -3, 3, 200, 90_000]) * SECOND
        now = max(now, 1)
        if random.random() < 0.02:
            epoch = random.randrange(4)
        back = random.random() < 0.5
        mine, theirs = bases[epoch * 2 + back], bases[epoch * 2 + (not back)]
        if random.random() < jump:
            mine += random.choice([1 << 24, -(1 << 24), 1 << 26, 1 << 30, 1 << 31, random.randrange(2**32)])
        if random.random() < jump:
            theirs += random.choice([1 << 24, -(1 << 24), 1 << 26, 1 << 30, 1 << 31, random.randrange(2**32)])
        begin = random.randrange(0, random.choice([4, 100, 3000]))
        payload = STREAM[begin : begin + random.randrange(largest)] if random.random() < 0.6 else b""
        missing = random.choice([0, 0, 0, 0, 1, 700])
        flags = ACK
        if random.random() > ordinary:
            flags = random.choice([0, SYN, SYN | ACK, SYN | ACK, FIN, FIN | ACK, RST, RST | ACK, 0x1F, SYN | FIN, 0xFF])
        elif flags & SYN and random.random() < 0.9:
            begin = -1
        acked = random.randrange(0, random.choice([4, 100, 3000, 100_000]))
        port = 40_000 + random.randrange(ports)
        seq = mine + begin + (0 if flags & SYN and random.random() < 0.9 else 1)
        yield now, packet, key(back, port), seq % 2**32, (theirs + 1 + acked) % 2**32, flags, payload, missing


def _run(
    segments: Iterator[Segment],
    random: Random,
    limits: FlowLimits,
    dissect: Callable[..., Any],
    batch: int = 1,
) -> list[Any]:
    dissections = []

    def connect(*given: Any) -> Any:
        if random.random() < 0.05:
            return None
        dissections.append(dissect(*given))
        return dissections[-1]

    table = FlowTable(connect, limits, lambda _: None)
    some: list[Segment] = []
    for segment in segments:
        some.append(segment)
        if len(some) >= batch:
            table.take(some)
            some = []
            _check(table, limits)
            if random.random() < 0.02:
                table.settle(segment[0] + random.choice([0, SECOND, 100 * SECOND]))
                _check(table, limits)
            assert table.waiting.horizons.keys() <= table.register.flows.keys()
    table.take(some)
    table.finish()
    _check_empty(table)
    return dissections


def attack(seed: int) -> int:
    """One case with receivers that check what they hear; returns the number of its segments."""
    random = Random(seed)
    count = random.choice([20, 60, 200])
    patience = random.choice([1 << 62, 50])
    limits = random.choice([LIMITS, FlowLimits(), LIMITS._replace(linger_seconds=0.0, flows=1)])
    batch = random.choice([1, 1, 7])
    for dissection in _run(storm(random, count), random, limits, lambda *_: Ears(patience), batch):
        assert dissection.released == 1
        assert dissection.finished <= 1
        assert dissection.finished or dissection.rejected
    return count


def attack_zmtp(seed: int) -> int:
    """One case with the dissector of ZMTP."""
    random = Random(seed)
    count = random.choice([20, 60, 200])
    events: list[Any] = []

    def connect(number: int, client: Any, server: Any, from_start: tuple[bool, bool]) -> ZmtpConnection:
        return ZmtpConnection(events, number, client.text, server.text)

    _run(storm(random, count), random, LIMITS, connect)
    return count


@pytest.mark.parametrize("part", range(4))
def test_a_storm_of_segments(part: int) -> None:
    for seed in range(part * 100, part * 100 + 100):
        attack(seed)


def test_a_storm_of_segments_to_zmtp() -> None:
    for seed in range(200):
        attack_zmtp(seed)


def _table(limits: FlowLimits = LIMITS) -> tuple[FlowTable, list[Ears]]:
    """A table whose dissections are listed."""
    dissections: list[Ears] = []

    def connect(*_: Any) -> Ears:
        dissections.append(Ears())
        return dissections[-1]

    return FlowTable(connect, limits), dissections


def test_both_acknowledge_what_nobody_sends() -> None:
    """Flows without any octets, which wait for nothing, must not be given up over and over."""
    table, dissections = _table()
    table.take([(SECOND, 1, key(False), 999, 0, SYN, b"", 0)])
    table.take([(SECOND, 2, key(True), 4999, 1000, SYN | ACK, b"", 0)])
    for packet in range(3, 200):
        back = packet % 2 == 0
        mine, theirs = (5000, 1000) if back else (1000, 5000)
        table.take([(packet * SECOND, packet, key(back), mine, theirs + packet * 10, ACK, b"", 0)])
    assert not dissections
    table.take([(200 * SECOND, 200, key(False), 1000, 5000, ACK, b"first", 0)])
    table.finish()
    assert dissections[0].client.offset >= len(b"first")
    _check_empty(table)


def test_numbers_that_jump_do_not_recurse() -> None:
    """Each pair of segments that were gathered is of another connection than the one before."""
    table, dissections = _table(FlowLimits())
    pairs = 3000
    for place in range(2 * pairs):
        seq, ack = place // 2 * 77_777_777 + place, place // 2 * 99_999_999
        table.take([(SECOND, 1 + place, key(False), seq % 2**32, ack % 2**32, ACK, b"x", 0)])
    table.take([(2 * SECOND, 2 * pairs + 1, key(False), 1, 1, ACK, b"", 0)])
    table.finish()
    _check_empty(table)
    assert len(dissections) > pairs // 2


def test_segments_in_doubt_count() -> None:
    """Two forged segments for each of many connections: what is kept of them stays within the limit."""
    limits = FlowLimits(waiting_octets=50_000, waiting_octets_per_direction=50_000)
    table, _ = _table(limits)
    for number in range(200):
        port = 2000 + number
        table.take([
            (SECOND, 1, key(False, port), 999, 0, SYN, b"", 0),
            (SECOND, 2, key(True, port), 4999, 1000, SYN | ACK, b"", 0),
            (SECOND, 3, key(False, port), 1000, 5000, ACK, b"hello", 0),
            (SECOND, 4, key(False, port), 1 << 31, 1 << 30, ACK, bytes(900), 0),
            (SECOND, 5, key(False, port), 3 << 29, 1 << 29, ACK, bytes(900), 0),
        ])  # fmt: skip
        _check(table, limits)
    assert any(flow.client.doubtful for flow in table.register.flows.values())
    table.finish()
    _check_empty(table)


def test_a_side_that_comes_after_all_where_it_was_expected() -> None:
    """It is not absent any more: octets that it does not send are a gap, however many are acknowledged."""
    table, dissections = _table(FlowLimits())
    packets: list[tuple[bool, int, int, bytes]] = [(False, 1000 + 10 * n, 5000 + 10 * n, b"x" * 10) for n in range(100)]
    packets += [(True, 5990, 2000, b"y" * 10), (False, 2000, 6100, b"x" * 10), (True, 6100, 2010, b"y" * 10)]
    for packet, (back, seq, ack, payload) in enumerate(packets, 1):
        table.take([(packet * SECOND // 10, packet, key(back), seq, ack, ACK, payload, 0)])
    table.finish()
    (ears,) = dissections
    assert ears.client.told == 1010
    assert ears.server.told == 120  # 20 octets, and a gap of 100


def test_a_capture_of_one_side_takes_the_quick_way() -> None:
    """Which calls a few functions for each segment; the other one calls thirty."""
    table, dissections = _table(FlowLimits())
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and "/zmtpsniff/net/" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        for number in range(2000):
            time_ns = SECOND + number * 10**7
            table.take([(time_ns, number, key(False), number * 10, 7000 + number * 20, ACK, b"x" * 10, 0)])
    finally:
        sys.setprofile(None)
    table.finish()
    assert calls < 10_000
    assert {dissections[0].client.offset, dissections[0].server.offset} == {20_000, 0}


def test_a_connection_to_itself_ends() -> None:
    """One key for both directions: these five segments were given back and taken again without an end."""
    own = CLIENT + CLIENT + b"\x15\xb3" * 2
    table = FlowTable(lambda *_: None)
    segments = (
        (2848149476, 1518850471, ACK, 18),
        (1518850471, 1119841220, ACK, 31),
        (1954537440, 1390255439, ACK, 12),
        (1119841220, 1518850502, ACK | SYN, 18),
        (1518850502, 1119841238, ACK, 31),
    )
    for number, (seq, ack, flags, length) in enumerate(segments, 1):
        table.take([(number * SECOND // 10, number, own, seq, ack, flags, bytes(length), 0)])
    assert not table.register.flows
    assert not table.is_new(1, own, 1 << 20, SECOND)
