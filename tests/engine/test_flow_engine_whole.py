"""Connections that are whole in a block of packets: events and state are those of the same packets one by one."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.both_cores import BothCores
from tests.support.examples import examples
from tests.support.paths import FIXTURES
from tests.world.conversation import Conversation, Piece, greetings, request_reply, text_body
from tests.world.network import SentSegment, packets, segments
from tests.world.octets import message
from tests.world.tap import load
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.engine.flow_engine import FlowEngine
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net import packets as packets_module
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import ACK, BEGINS, FIN, PSH, RST, SYN

LIMITS = FlowLimits()
SHORT = segments(Conversation("short", (*greetings(3, b"REQ", b"REP"), Piece(0, message(3, b"", b"question")))))


@pytest.fixture(autouse=True)
def _both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets_module, "core", BothCores())


def taken(sent: list[Packet], size: int, is_whole: bool, limits: FlowLimits) -> tuple[list[object], bytes, int]:
    """The events and the state after these packets, and how many connections came whole."""
    engine, headers = FlowEngine(Settings(flow_limits=limits)), HeaderDecoder()
    count = 0
    found: list[object] = []
    for begin in range(0, len(sent), size):
        block = Block.of(sent[begin : begin + size])
        is_new = partial(engine.flows.is_new, len(block)) if is_whole else None
        numbers = range(begin + 1, begin + 1 + len(block))
        one_by_one = headers.segments_of(block, numbers, engine.flows.pause_ns, is_new)
        found += engine.take(one_by_one, headers.datagrams, True, headers.steps, headers.steps_ns)
        found += engine.give()
        count += sum(step[2] == BEGINS for step in headers.steps)
    engine.flows.register.follow_all()
    flows = sorted(engine.flows.register.flows.values(), key=lambda flow: flow.number)
    for direction in (direction for flow in flows for direction in flow.directions):
        # A witness asks for these, and where one is, no connection comes whole.
        direction.acked_ns = direction.acknowledges = 0
    state = b"".join([*map(engine.save, flows), engine.snapshot()])
    engine.finish()
    return [*found, *engine.give(), *engine.problems()], state, count


def compare(sent: list[Packet], size: int = 1000, limits: FlowLimits = LIMITS, is_state_same: bool = True) -> int:
    """Take packets both ways. Returns how many connections came whole.

    Where addresses are used again, the plain way looks closer, and remembers what it looked at; where datagrams are
    between segments, it makes room at another time.
    """
    events, state, count = taken(sent, size, True, limits)
    expected, plain, _ = taken(sent, size, False, limits)
    assert events == expected
    assert not is_state_same or state == plain
    return count


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
    assert compare([*first, *second], is_state_same=False) == 1
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
    engine, headers = FlowEngine(Settings()), HeaderDecoder()
    register = engine.flows.register
    for number, second in enumerate(seconds, 1):
        block = Block.of(packets(SHORT, ports=(4000 + number, 5555), start_ns=second * 10**9))
        found = headers.segments_of(block, range(1, 100), engine.flows.pause_ns, partial(engine.flows.is_new, 100))
        engine.take(found, (), True, headers.steps, headers.steps_ns)
        (key,) = {step[4] for step in headers.steps if step[2] == BEGINS}
        assert register.client_key(number) == key
        assert register.size <= 3
        assert not register.flows
    assert register.client_key(1) is None


def test_oldest_connections_give_way() -> None:
    """To one that does not come whole."""
    engine, headers = FlowEngine(Settings(flow_limits=FlowLimits(flows=40))), HeaderDecoder()
    register = engine.flows.register
    others = [packets(SHORT[:1], ports=(50_000 + number, 5555), start_ns=10**18 + 10**9) for number in range(20)]
    for sent in (together(*[SHORT] * 35, apart=len(SHORT)), [one for other in others for one in other]):
        block = Block.of(sent)
        is_new = partial(engine.flows.is_new, 0)
        found = headers.segments_of(block, range(1, len(block) + 1), engine.flows.pause_ns, is_new)
        engine.take(found, (), True, headers.steps, headers.steps_ns)
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


@pytest.mark.parametrize("place", range(len(SHORT)))
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
@given(seed=st.integers(0, 1 << 32), size=st.sampled_from([20, 60, 1000]), is_used_again=st.booleans())
def test_any_connections_at_once(seed: int, size: int, is_used_again: bool) -> None:
    chance = random.Random(seed)
    talks = []
    for _ in range(chance.randint(1, 8)):
        sent = segments(request_reply(3, chance, chance.randrange(4), text_body), acks=chance.random() < 0.5)
        if chance.random() < 0.4:
            place = min(chance.randrange(len(sent)), len(SHORT) - 1)
            sent = chance.choice(_disturbances(place))(sent)
        talks.append(sent)
    compare(together(*talks, seed=chance if is_used_again else None), size, is_state_same=False)
