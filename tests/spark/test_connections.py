"""Connections continue from octets, and refuse all others."""

import contextlib
import gc
from random import Random

import msgspec
import pytest

from dissectors.events import AnyEvent, Message
from tests.world.conversation import Conversation, pushes, request_reply
from tests.world.network import packets, segments
from zmtpsniff.engine.flow_engine import StateError
from zmtpsniff.net.notices import Notice
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import Segment
from zmtpsniff.spark.connections import Connections
from zmtpsniff.spark.options import Options


def taken(talk: Conversation) -> list[Segment]:
    return HeaderDecoder().segments(packets(segments(talk)), 1)


def told(parts: list[list[Segment]]) -> list[AnyEvent]:
    """The events of connections that continue from a state with each part."""
    events: list[AnyEvent] = []
    state = None
    for part in parts:
        connections = Connections(Options().settings, state)
        connections.take(part)
        events += connections.give()[0]
        state, final, _ = connections.finish(part[-1][0])
        events += [one for one in final if not isinstance(one, Notice)]
    return events


@pytest.mark.parametrize("talk", [pushes(3, Random(1)), request_reply(1, Random(2))], ids=lambda talk: talk.name)
def test_they_go_on_from_their_state(talk: Conversation) -> None:
    given = taken(talk)
    wanted = told([given])
    assert any(type(event) is Message for event in wanted)
    for place in range(1, len(given)):
        assert told([given[:place], given[place:]]) == wanted


def test_a_state_does_not_grow_with_its_connection() -> None:
    def size(count: int) -> int:
        connections = Connections(Options().settings)
        connections.take(taken(request_reply(3, Random(7), count)))
        return len(connections.state() or b"")

    assert 0 < size(3000) < size(300) * 1.2 < 3000


@pytest.mark.parametrize("ends", [False, True])
def test_what_is_closed_leaves_no_cycles(ends: bool) -> None:
    """Else thousands of connections that were put aside wait in memory until Python looks for cycles."""
    given = [taken(request_reply(3, Random(seed))) for seed in range(10)]

    def garbage(number: int) -> int:
        gc.collect()
        gc.disable()
        try:
            for segments in given[:number]:
                connections = Connections(Options().settings)
                connections.take(segments)
                assert connections.state()
                if ends:
                    connections.finish(segments[-1][0])
                connections.close()
            del connections
            return gc.collect()
        finally:
            gc.enable()

    garbage(1)  # what is made once
    assert garbage(10) <= garbage(1) + 5


def test_an_option_of_a_later_run_holds() -> None:
    given = taken(pushes(3, Random(9)))[:-6]
    first = Connections(Options(idle_seconds=5000).settings)
    first.take(given)
    last_ns = given[-1][0]
    later = Connections(Options(idle_seconds=50).settings, first.state())
    assert first.over_ns > last_ns + 4999 * 10**9
    assert last_ns < later.over_ns < last_ns + 51 * 10**9


@pytest.mark.parametrize(
    "octets",
    [b"", b"\1", b"no state", b"\x94\x01\xc4\x00\x80\x80", b"\x94\x01\xc4\x01\x90\x80\x80",
     msgspec.msgpack.encode((1, msgspec.msgpack.encode((999, [])), {}, {})), msgspec.msgpack.encode((2, b"", {}, {}))],
)  # fmt: skip
def test_octets_that_are_no_state_are_refused(octets: bytes) -> None:
    with pytest.raises(StateError):
        Connections(Options().settings, octets)


def test_a_state_with_any_octet_changed_is_refused_or_goes_on() -> None:
    """No other error is raised: no code is run, and no octets are taken for others."""
    given = taken(request_reply(3, Random(4)))
    connections = Connections(Options().settings)
    connections.take(given[:9])
    state = connections.state() or b""
    random = Random(5)
    for place in range(len(state)):
        octets = bytearray(state)
        octets[place] ^= 1 << random.randrange(8)
        with contextlib.suppress(StateError):
            Connections(Options().settings, bytes(octets))
