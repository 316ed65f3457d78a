"""A clock that is set back by an hour while packets pass: nothing waits for an hour, and nothing is kept so long."""

import pytest

from dissectors.events import Problem
from tests.analysis.ways.scenes import Scene
from tests.net.test_flows import SECOND, Wire
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.net.segment import ACK, FIN
from zmtpsniff.words.set_clocks import SET_BACK_NS, ForwardJumps, is_due, later

HOUR = 3600 * SECOND


def test_packets_out_of_order_do_not_turn_time_back() -> None:
    assert later(HOUR, HOUR - SECOND) == later(HOUR - SECOND, HOUR) == HOUR
    assert later(2 * HOUR, HOUR) == HOUR
    looked = [is_due(now, HOUR) for now in (HOUR - SET_BACK_NS - 1, HOUR - SET_BACK_NS, HOUR - 1, HOUR)]
    assert looked == [True, False, False, True]


@pytest.mark.parametrize("jump", [0, -HOUR, HOUR])
def test_connections_that_are_over_are_forgotten(jump: int) -> None:
    wire = Wire()
    wire.now = 2 * HOUR
    for port in range(10_000, 10_400):
        wire.connect(port=port)
        wire.send(False, 1001, b"x", flags=FIN | ACK, ack=5001, port=port)
        wire.send(True, 5001, flags=FIN | ACK, ack=1003, port=port)
        wire.pause(1)
        if port == 10_199:
            wire.now += jump
    assert len(wire.table.register.flows) < 150
    assert {each.end for each in wire.dissections[:200]} == {"fin"}


@pytest.mark.parametrize("jump", [0, -HOUR, HOUR])
def test_ways_of_jobs_end(jump: int) -> None:
    scene, ways = Scene(), Ways(in_order=False)
    scene.now_ns = 2 * HOUR
    scene.connect(1, "10.0.0.1:40000", "10.0.0.2:5555", types=("PUSH", "PULL"))
    over = 0
    for number in range(1000):
        if number == 500:
            scene.now_ns += jump
        scene.say(1, b"%d" % number, after_ms=100)
        over += len(ways.take(scene.events))
        scene.events.clear()
    assert 900 < over < 1000


@pytest.mark.parametrize("jump", [0, -HOUR])
def test_a_request_without_reply_is_told_in_time(jump: int) -> None:
    scene, patterns = Scene(), Patterns(10)
    scene.now_ns = 2 * HOUR
    for flow in (1, 2):
        scene.connect(flow, f"10.0.0.1:4000{flow}", "10.0.0.2:5555", types=("REQ", "REP"))
    told = []
    for number in range(30):
        if number == 10:
            scene.now_ns += jump
            scene.say(1, b"", b"hello?")
        scene.say(2, b"", b"question", after_ms=1000)
        scene.say(2, b"", b"reply", by_server=True)
        told += [(one.code, number) for one in patterns.take(scene.events[:]) if isinstance(one, Problem)]
        scene.events.clear()
    assert [code for code, _ in told] == ["request-unanswered"]
    assert 19 <= told[0][1] <= 21


def test_steady_times_are_those_without_the_jumps() -> None:
    jumps = ForwardJumps()
    assert not jumps
    jumps.add(10 * SECOND, HOUR + 11 * SECOND, HOUR)
    jumps.add(20 * SECOND, 2 * HOUR + 21 * SECOND, 2 * HOUR)
    captured = [9 * SECOND, 10 * SECOND, HOUR + 11 * SECOND, HOUR + 20 * SECOND, 3 * HOUR + 21 * SECOND]
    steady = [9 * SECOND, 10 * SECOND, 11 * SECOND, 20 * SECOND, 21 * SECOND]
    assert [jumps.steady(time_ns) for time_ns in captured] == steady
    assert [jumps.captured(time_ns) for time_ns in steady] == captured
    jumps.clear()
    assert [jumps.steady(time_ns) for time_ns in captured] == captured
