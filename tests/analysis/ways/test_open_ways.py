"""The ways that are open take bounded memory, and each is finished in time."""

import pytest

from tests.analysis.ways.scenes import MS, Scene
from tests.analysis.ways.test_ways import NEAR
from tests.support.footprint import entries, reachable
from zmtpsniff.analysis.ways import open_ways
from zmtpsniff.analysis.ways.hops import OpenWay
from zmtpsniff.analysis.ways.ways import Ways


@pytest.mark.parametrize("in_order", [True, False])
def test_a_client_that_asks_on_and_on_costs_no_memory(in_order: bool) -> None:
    """It asks again and again before a reply, too, and a worker says that it is ready."""
    ways, kept = Ways(in_order=in_order), []
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.0.2:5555", types=("REQ", "REP"))
    for _ in range(6):
        for number in range(50):
            if number % 9 == 0:
                scene.say(1, b"", b"%d" % number)
            asked = scene.say(1, b"", b"%d" % number, after_ms=1000)
            scene.say(1, b"", b"reply", by_server=True, answers=asked)
        for way in ways.take(scene.events):
            ways.record(way)
        scene.events.clear()
        kept.append(sum(isinstance(one, OpenWay) for one in reachable(ways)))
    assert kept[-1] == kept[3] < 200


@pytest.mark.parametrize("is_left", [False, True])
def test_clients_that_come_and_go_leave_no_ways_behind(is_left: bool) -> None:
    ways, scene = Ways(in_order=False), Scene()
    for flow in range(1, 200):
        scene.connect(flow, f"10.0.0.1:{40_000 + flow}", "10.0.0.2:5555", types=("REQ", "REP"))
        asked = scene.say(flow, b"", b"question", after_ms=1000)
        scene.say(flow, b"", b"reply", by_server=True, answers=asked)
        ways.take(scene.events)
        scene.events.clear()
        scene.close(flow)
        if is_left:
            ways.stop_following(flow)
            ways.end_unfollowed(scene.events.pop())  # type: ignore[arg-type]
    assert sum(isinstance(one, OpenWay) for one in reachable(ways)) < 10


def test_acknowledgments_without_messages_cost_bounded_memory() -> None:
    """Such as those of a connection whose messages nobody can open."""
    ways, scene = Ways(), Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.0.2:5555", types=("DEALER", "ROUTER"))
    ways.take(scene.events)
    for number in range(0, 10_000, 100):
        ways.acknowledge((at, flow, "10.0.0.1:40000", at) for flow in (1, 2) for at in range(number, number + 100))
        ways.take([])
    assert entries(ways) < 1000


@pytest.mark.parametrize("pause_ms", [1, 200_000])
def test_replies_without_end_cost_bounded_memory(monkeypatch: pytest.MonkeyPatch, pause_ms: int) -> None:
    """A worker sends part after part of one reply, also after a pause behind which its way was told."""
    monkeypatch.setattr(open_ways, "_LEGS", 100)
    monkeypatch.setattr(open_ways, "_LATE", 100)
    ways, scene = Ways(), Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.0.2:5555", types=("DEALER", "ROUTER"))
    scene.connect(2, "10.0.0.3:40000", "10.0.0.2:5556", types=("DEALER", "ROUTER"))
    scene.say(1, b"", b"all")
    scene.say(2, NEAR, b"", b"all", by_server=True)
    sizes, found = [], []
    for part in range(3000):
        scene.say(2, NEAR, b"", b"%d" % part, after_ms=pause_ms if part == 1 else 1)
        scene.say(1, b"", b"%d" % part, by_server=True)
        found += ways.take(scene.events)
        scene.events.clear()
        if part % 1000 == 999:
            sizes.append(entries(ways))
    assert [way.kind for way in found][:1] == ["request"]
    assert sizes[2] < sizes[0] + 100


def test_programs_keep_no_way_that_was_told() -> None:
    ways, scene = Ways(), Scene()
    for flow in range(1, 40):
        scene.connect(flow, f"10.0.0.1:{40_000 + flow}", f"10.0.1.{flow}:5555", types=("REQ", "REP"))
        scene.say(flow, b"", b"reply", by_server=True, answers=scene.say(flow, b"", b"ask"))
        scene.close(flow)
        scene.now_ns += 100_000 * MS
        ways.take(scene.events)
        scene.events.clear()
    assert sum(isinstance(one, OpenWay) for one in reachable(ways)) < 10


def test_long_jobs_cost_bounded_memory() -> None:
    """Each of them is kept for five seconds. Memory has no room for so many."""
    ways, scene = Ways(in_order=False), Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.0.2:5555", types=("PUSH", "PULL"))
    over = []
    for number in range(2000):
        scene.say(1, b"%d" % number, b"x" * 65_000 + b"%d" % number)
        over += ways.take(scene.events)
        scene.events.clear()
    assert sum(len(one) for one in reachable(ways) if isinstance(one, bytes)) < 80 << 20
    assert [way.first.packet for way in over] == list(range(1, len(over) + 1))
    assert len(over) + len(ways.finish()) == 2000


def test_long_messages_that_came_and_went_close_no_way() -> None:
    """Only those of open ways need memory."""
    ways, scene = Ways(in_order=False), Scene()
    for flow in (1, 2):
        scene.connect(flow, f"10.0.0.{flow}:40000", "10.0.0.9:5555", types=("REQ", "REP"))
    first = scene.say(2, b"", b"question")
    for _ in range(2000):
        asked = scene.say(1, b"", b"x" * 65_000)
        scene.say(1, b"", b"reply", by_server=True, answers=asked)
        ways.take(scene.events)
        scene.events.clear()
    scene.say(2, b"", b"reply", by_server=True, answers=first)
    assert [len(way.hops) for way in ways.take(scene.events)] == [2]
