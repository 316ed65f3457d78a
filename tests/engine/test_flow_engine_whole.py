"""Connections that are whole in a block of packets: events and state are those of the same packets one by one."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.batches import single_messages
from tests.support.both_cores import BothCores
from tests.support.examples import examples, sampled
from tests.support.paths import FIXTURES
from tests.world.conversation import Conversation, Piece, greetings, request_reply, text_body
from tests.world.listener import WitnessLog
from tests.world.network import SentSegment, packets, segments
from tests.world.octets import message
from tests.world.tap import load
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.engine import settled as settled_module
from zmtpsniff.engine.flow_engine import FlowEngine
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.settled import SettledFlows
from zmtpsniff.net import packets as packets_module
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import ACK, BEGINS, FIN, PSH, RST, SYN
from zmtpsniff.net.witness import Acknowledgment

LIMITS = FlowLimits()
SHORT = segments(Conversation("short", (*greetings(3, b"REQ", b"REP"), Piece(0, message(3, b"", b"question")))))


@pytest.fixture(autouse=True)
def _both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets_module, "core", BothCores())
    monkeypatch.setattr(settled_module, "LEAST", 1 << 40)  # no flow is settled


class Listener(WitnessLog):
    """A witness, and who asks for acknowledgments; those count that acknowledge more than the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.acked: dict[tuple[int, str], list[tuple[int, int]]] = {}

    def acknowledge(self, acknowledgments: Iterable[Acknowledgment]) -> None:
        for time_ns, flow, sender, offset in acknowledgments:
            known = self.acked.setdefault((flow, sender), [])
            if not known or offset > known[-1][1]:
                known.append((time_ns, offset))


def taken(
    sent: list[Packet], size: int, is_whole: bool, limits: FlowLimits, listener: Listener | None
) -> tuple[list[object], bytes, int]:
    """The events and the state after these packets, and how many connections came whole."""
    acknowledge = None if listener is None else listener.acknowledge
    engine = FlowEngine(Settings(flow_limits=limits), witness=listener, acknowledge=acknowledge)
    headers, both = HeaderDecoder(), BothCores()
    settled = SettledFlows(both, engine, acknowledge=acknowledge)
    found: list[object] = []
    for begin in range(0, len(sent), size):
        block = Block.of(sent[begin : begin + size])
        numbers = range(begin + 1, begin + 1 + len(block))
        for place, part in settled.others(block, numbers) if is_whole else [(0, block)]:
            mine = numbers[place : place + len(part)]
            segments = headers.segments_of(part, mine)
            found += engine.take(segments, headers.datagrams, False, settled.steps(mine[-1] + 1))
        engine.flows.end_batch()
        events, notices = engine.give()
        found += [*single_messages(events), *notices]
    engine.flows.register.follow_all()
    flows = sorted(engine.flows.register.flows.values(), key=lambda flow: flow.number)
    for direction in (direction for flow in flows for direction in flow.directions):
        # No part asks for these of a connection that is over.
        direction.acked_ns = direction.acknowledges = 0
    state = b"".join([*map(engine.save, flows), engine.snapshot()])
    engine.finish()
    return [*found, *engine.give(), *engine.problems()], state, both.connections


def take_steps(engine: FlowEngine, block: Block) -> set[bytes]:
    """Take a block. Returns the keys of the connections that came whole."""
    settled = SettledFlows(BothCores(), engine)
    ((_, part),) = settled.others(block, numbers := range(1, len(block) + 1))
    steps = settled.steps(len(block) + 1)
    engine.take(HeaderDecoder().segments_of(part, numbers), (), True, steps)
    return {step[4] for step in steps if step[2] == BEGINS}


def compare(sent: list[Packet], size: int = 1000, limits: FlowLimits = LIMITS, is_state_same: bool = True) -> int:
    """Take packets both ways. Returns how many connections came whole.

    Where addresses are used again, the plain way looks closer, and remembers what it looked at; where datagrams are
    between segments, it makes room at another time.
    """
    counts = []
    for one, other in ((Listener(), Listener()), (None, None)):
        events, state, count = taken(sent, size, True, limits, one)
        expected, plain, _ = taken(sent, size, False, limits, other)
        assert events == expected
        assert not is_state_same or state == plain
        if one is not None and other is not None:
            assert one.told == other.told
            if settled_module.LEAST:  # else packets of flows that end oddly are told together with others
                assert one.acked == other.acked
        counts.append(count)
    return counts[-1]


def together(*all_sent: list[SentSegment], seed: random.Random | None = None, apart: int = 1) -> list[Packet]:
    """Packets of connections at once; each begins ``apart`` packets behind the one before it, or at any time."""
    found = []
    for number, sent in enumerate(all_sent):
        isn = 1000 + (number << 27), (1 << 32) - 40 - (number << 20)  # whose numbers begin anew
        times = [number * apart * 20_000 + place * 20_000 for place in range(len(sent))]
        if seed is not None:
            times = sorted(seed.randrange(10**6) for _ in sent)
        port = 40_000 + number if seed is None else 40_000 + seed.randrange(len(all_sent))
        made = packets(sent, isn, (port, 5555))
        found += [(10**18 + when, *one[1:]) for when, one in zip(times, made, strict=True)]
    return sorted(found, key=lambda one: one[0])


def test_connections_come_whole() -> None:
    assert compare(together(SHORT, SHORT, SHORT)) == 3
    assert compare(together(SHORT, SHORT, apart=len(SHORT)), size=len(SHORT)) == 2
    assert compare(together(SHORT, SHORT), limits=FlowLimits(flows=20)) == 0  # more flows may be in it
    assert compare(together(SHORT), limits=FlowLimits(linger_seconds=1e-6)) == 0  # a flow is over after any pause


def test_addresses_may_be_used_again() -> None:
    """Though the packets of the later connection may be taken for those of the earlier one."""
    first, second = packets(SHORT), packets(SHORT, (1000 + (1 << 20), 10), start_ns=1_700_000_001 * 10**9)
    assert compare([*first, *second], len(SHORT), is_state_same=False) == 2
    assert compare([*first, *second], is_state_same=False) == 0
    assert compare([*first, *first], len(SHORT), is_state_same=False) == 1
    third = packets(SHORT, (1, 1), start_ns=1_700_000_100 * 10**9)
    assert compare([*first, *third], len(SHORT), is_state_same=False) == 1  # the first is forgotten


@pytest.mark.parametrize("place", range(len(SHORT)))
def test_packets_after_the_end_find_their_connection(place: int) -> None:
    first = packets(SHORT)
    for late in (SHORT[place], replace(SHORT[place], flags=RST | ACK), replace(SHORT[place], offset=1 << 28)):
        for after_ns in (10**9, 10 * 10**9):  # which is later than packets of an old connection come
            (packet,) = packets([late], start_ns=first[-1][0] + after_ns)
            assert compare([*first, packet], len(SHORT), is_state_same=False) == 1
    assert compare([*first, *first[place : place + 1]], len(SHORT)) == 1


@pytest.mark.parametrize("seconds", [range(0, 40, 4), [10**5, *range(0, 40, 4)]])
def test_what_is_known_of_them_is_forgotten(seconds: Sequence[int]) -> None:
    """Also if the clock was set back."""
    engine = FlowEngine(Settings())
    register = engine.flows.register
    for number, second in enumerate(seconds, 1):
        block = Block.of(packets(SHORT, ports=(4000 + number, 5555), start_ns=second * 10**9))
        (key,) = take_steps(engine, block)
        assert register.client_key(number) == key
        assert register.size <= 3
        assert not register.flows
    assert register.client_key(1) is None


def test_oldest_connections_give_way() -> None:
    """To one that does not come whole."""
    engine = FlowEngine(Settings(flow_limits=FlowLimits(flows=40)))
    register = engine.flows.register
    others = [packets(SHORT[:1], ports=(50_000 + number, 5555), start_ns=10**18 + 10**9) for number in range(20)]
    for sent in (together(*[SHORT] * 35, apart=len(SHORT)), [one for other in others for one in other]):
        block = Block.of(sent)
        take_steps(engine, block)
    assert 30 < register.size <= 40
    assert register.client_key(1) is None
    assert register.client_key(register.count) is not None


@pytest.mark.parametrize("first", [0, 1, 2])
def test_who_closes(first: int) -> None:
    """2: both at once."""
    talk = replace(Conversation("short", (*greetings(3, b"PUSH", b"PULL"),)), closer=first % 2)
    sent = segments(talk)
    if first == 2:
        sent[-2] = replace(sent[-2], ack=sent[-2].ack - 1)
    assert compare(together(sent)) == 1
    with_octets = [*sent[:-4], replace(sent[-5], flags=PSH | ACK | FIN), *sent[-2:]]
    compare(together(with_octets))


def _disturbances(place: int) -> list[Callable[[list[SentSegment]], list[SentSegment]]]:
    """Disturbances of the segment at a place."""

    def with_one(**changes: object) -> Callable[[list[SentSegment]], list[SentSegment]]:
        return lambda sent: [*sent[:place], replace(sent[place], **changes), *sent[place + 1 :]]  # type: ignore[arg-type]

    def inserted(at: int, **changes: object) -> Callable[[list[SentSegment]], list[SentSegment]]:
        return lambda sent: [*sent[:at], replace(sent[place], **changes), *sent[at:]]  # type: ignore[arg-type]

    return [
        lambda sent: [*sent[:place], *sent[place + 1 :]],
        lambda sent: [*sent[:place], *sent[place + 1 : place + 2], sent[place], *sent[place + 2 :]],
        inserted(place), inserted(len(SHORT)), inserted(len(SHORT), flags=ACK), inserted(place, flags=RST),
        inserted(place, flags=RST | ACK), inserted(place, flags=SYN), inserted(place, flags=SYN, offset=77),
        inserted(place, payload=b"", flags=ACK), inserted(place, flags=FIN | ACK), lambda sent: sent[:place],
        with_one(payload=b"x" * len(SHORT[place].payload)), with_one(ack=SHORT[place].ack + 1), with_one(kept=3),
        with_one(ack=SHORT[place].ack - 1), with_one(offset=SHORT[place].offset + 1), with_one(flags=ACK | 0x20),
        with_one(flags=SHORT[place].flags | FIN), with_one(flags=SHORT[place].flags ^ FIN), with_one(flags=PSH),
    ]  # fmt: skip


@pytest.mark.parametrize("place", sampled(range(len(SHORT)), 2))
def test_any_disturbance_at_any_place(place: int) -> None:
    """A connection beside it comes whole, if every packet is a plain one."""
    for number, disturb in enumerate(_disturbances(place)):
        assert compare(together(disturb(SHORT), SHORT), is_state_same=False) in (0, 1, 2), number


@pytest.mark.parametrize("size", [1, 7, len(SHORT), 2 * len(SHORT) + 1])
def test_blocks_end_anywhere(size: int) -> None:
    for apart in range(4):
        compare(together(*[SHORT] * 5, apart=apart), size)


def test_pauses_and_times_that_go_back() -> None:
    several = together(SHORT)
    for place, _ in enumerate(several):
        for by in (-(10**9), 400 * 10**9, 700 * 10**9):
            compare([(one[0] + by * (at >= place), *one[1:]) for at, one in enumerate(several)], is_state_same=False)


def test_datagrams_between_them_keep_their_places() -> None:
    others = load(FIXTURES / "app_zre.pcap")
    mine = together(*[SHORT] * 6)
    step = len(others) / len(mine)
    places = [(place * step, 1, one) for place, one in enumerate(mine)] + [
        (at, 0, one) for at, one in enumerate(others)
    ]
    times = range(10**18, 10**19, 1000)
    several = [(time_ns, *one[1:]) for time_ns, (_, _, one) in zip(times, sorted(places), strict=False)]
    assert all(earlier[0] < later[0] for earlier, later in pairwise(several))
    assert compare(several, is_state_same=False) > 3


def test_other_protocols_are_no_whole_connections() -> None:
    sent = [replace(one, payload=b"GET / HTTP/1.1\r\n\r\n"[: len(one.payload)]) for one in SHORT]
    assert compare(together(sent, SHORT)) == 1


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 1 << 32), size=st.sampled_from([20, 60, 1000]), is_used_again=st.booleans(),
    least=st.sampled_from([0, 1 << 40]),
)  # fmt: skip
def test_any_connections_at_once(seed: int, size: int, is_used_again: bool, least: int) -> None:
    """Also beside settled flows, of which one has many messages."""
    settled_module.LEAST = least
    chance = random.Random(seed)
    busy = [*greetings(3, b"PUSH", b"PULL"), *[Piece(0, message(3, b"job")) for _ in range(40)]]
    talks = [] if least else [segments(Conversation("busy", tuple(busy)))]
    for _ in range(chance.randint(1, 8)):
        sent = segments(request_reply(3, chance, chance.randrange(4), text_body), acks=chance.random() < 0.5)
        if chance.random() < 0.4:
            place = min(chance.randrange(len(sent)), len(SHORT) - 1)
            sent = chance.choice(_disturbances(place))(sent)
        talks.append(sent)
    compare(together(*talks, seed=chance if is_used_again else None), size, is_state_same=False)
