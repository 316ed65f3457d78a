"""Connections are put aside as octets, continue from these, and refuse all others."""

import contextlib
import gc
from random import Random

import msgspec
import pytest

from dissectors.events import AnyEvent, Message
from dissectors.zmtp.curve import Curve as Opener
from dissectors.zmtp.curve_keys import KeyRing
from tests.support.curve_octets import Curve
from tests.world.conversation import Conversation, Piece, pushes, request_reply
from tests.world.network import packets, segments
from zmtpsniff.engine.flow_engine import FlowEngine, StateError
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import Segment


def taken(talk: Conversation) -> list[Segment]:
    return HeaderDecoder().segments(packets(segments(talk)), 1)


def put_aside(engine: FlowEngine) -> tuple[list[bytes], list[AnyEvent]]:
    """The states of all flows of an engine, and their last events; the engine has no flow after that."""
    states: list[bytes] = []
    last: list[AnyEvent] = []
    for flow in engine.flows.register.idle(1000):
        states.append(engine.save(flow))
        last += (engine.put_aside(flow) or ([], []))[0]
    assert not engine.flows.register.flows
    return states, last


class Shelf:
    """An engine, and the states of the flows that are put aside."""

    def __init__(self) -> None:
        self.engine = FlowEngine(Settings(), wake=self.wake)
        self.states: list[bytes] = []

    def wake(self, _: bytes) -> None:
        self.engine.resume([self.states.pop()] if self.states else [])


@pytest.mark.parametrize("talk", [pushes(3, Random(1)), request_reply(3, Random(1))], ids=lambda talk: talk.name)
@pytest.mark.parametrize("is_new", [True, False])
def test_they_go_on_from_their_state(talk: Conversation, is_new: bool) -> None:
    """With the same events, wherever the first engine stops, in that engine or in a new one."""
    given = taken(talk)
    whole = FlowEngine(Settings())
    whole.take(given)
    wanted = whole.give()[0]
    assert any(type(event) is Message for event in wanted)
    for place in range(1, len(given)):
        first = later = Shelf()
        first.engine.take(given[:place])
        states, _ = put_aside(first.engine)
        events = first.engine.give()[0]
        if is_new:
            later = Shelf()
            later.engine.restore(first.engine.snapshot())
        later.states = states
        later.engine.take(given[place:])
        assert events + later.engine.give()[0] == wanted
        assert not later.states


def test_last_events_are_those_of_a_capture_that_ends() -> None:
    given = taken(request_reply(3, Random(4)))
    for place in range(5, len(given) - 5):
        first, second = FlowEngine(Settings()), FlowEngine(Settings())
        for engine in (first, second):
            engine.take(given[:place])
            engine.give()
        _, last = put_aside(first)
        second.finish()
        assert last == second.give()[0]
        assert first.give() == ([], [])


def test_a_state_does_not_grow_with_its_connection() -> None:
    def size(count: int) -> int:
        engine = FlowEngine(Settings())
        engine.take(taken(request_reply(3, Random(7), count)))
        return len(put_aside(engine)[0][0])

    assert 0 < size(3000) < size(300) * 1.2 < 3000


def test_what_is_put_aside_leaves_no_cycles() -> None:
    """Else thousands of connections that were put aside wait in memory until Python looks for cycles."""
    given = [taken(request_reply(3, Random(seed))) for seed in range(10)]

    def garbage(number: int) -> int:
        gc.collect()
        gc.disable()
        try:
            engine = FlowEngine(Settings())
            for some in given[:number]:
                engine.take(some[:-6])
                put_aside(engine)
                engine.give()
            return gc.collect()
        finally:
            gc.enable()

    garbage(1)  # what is made once
    assert garbage(10) <= garbage(1) + 5


def test_an_option_of_a_later_run_holds() -> None:
    given = taken(pushes(3, Random(9)))[:-6]
    last_ns = given[-1][0]
    first, later = (FlowEngine(Settings(flow_limits=FlowLimits(idle_seconds=seconds))) for seconds in (5000, 50))
    first.take(given)
    assert first.flows.over_ns(*first.flows.register.idle(1)) > last_ns + 4999 * 10**9
    later.resume(put_aside(first)[0])
    assert last_ns < later.flows.over_ns(*later.flows.register.idle(1)) < last_ns + 51 * 10**9


def test_a_state_holds_no_key_and_goes_on() -> None:
    curve = Curve()
    sent = curve.handshake()
    for number in range(10):
        sent += curve.multipart(0, b"part", b"%d" % number)
    given = taken(Conversation("curve", tuple(Piece(side, octets) for side, octets in sent)))
    for place in range(5, len(given), 7):
        first, later = (FlowEngine(Settings(), Opener(KeyRing(curve.ways()["k"]))) for _ in range(2))
        first.take(given[:place])
        later.resume(put_aside(first)[0])
        later.take(given[place:])
        events = first.give()[0] + later.give()[0]
        told = [event.frames for event in events if isinstance(event, Message)]
        assert told == [[b"part", b"%d" % number] for number in range(10)]


@pytest.mark.parametrize("octets", [b"", b"\1", b"no state", b"\x94\x01", msgspec.msgpack.encode(("flow", 999, []))])
def test_octets_that_are_no_state_are_refused(octets: bytes) -> None:
    with pytest.raises(StateError):
        FlowEngine(Settings()).resume([octets])
    with pytest.raises(StateError):
        FlowEngine(Settings()).restore(octets)


def test_a_state_with_any_octet_changed_is_refused_or_goes_on() -> None:
    """No other error is raised: no code is run, and no octets are taken for others."""
    engine = FlowEngine(Settings())
    engine.take(taken(request_reply(3, Random(4)))[:9])
    ((state,), _) = put_aside(engine)
    random = Random(5)
    for place in range(len(state)):
        octets = bytearray(state)
        octets[place] ^= 1 << random.randrange(8)
        with contextlib.suppress(StateError):
            FlowEngine(Settings()).resume([bytes(octets)])
