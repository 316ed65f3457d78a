"""A subscriber whose host is gone, in a capture that lacks something."""

import pytest

from dissectors.events import Problem
from tests.analysis.findings.diagnoses import OVER, alarms, diagnose_events
from tests.analysis.ways.scenes import MS, Scene
from zmtpsniff.net.witness import Stall


@pytest.mark.parametrize(
    ("lacks", "told"),
    [(["packets-cut", "frames-found-again"], ["subscriber-slow"]), (["capture-gap", "frames-found-again"], [])],
)
def test_packets_that_are_cut_short_have_their_acknowledgments(lacks: list[str], told: list[str]) -> None:
    """Where whole packets are missing, the acknowledgments may be missing, too."""
    publisher, subscriber = "10.0.0.1:5556", "10.0.0.2:40000"
    scene = Scene()
    scene.connect(1, subscriber, publisher, types=("SUB", "PUB"))
    for code in lacks:
        scene.events.append(Problem("note", code, "", scene.now_ns, 1, 1, publisher, subscriber))
    for number in range(10):
        scene.say(1, b"news", b"%d" % number, by_server=True)
    scene.now_ns += 9_000 * MS
    stall = Stall(1, subscriber, publisher, "unacknowledged", 10 * MS, scene.now_ns, 1, 5, False)
    scene.close(1)
    assert [code for code, _ in alarms(diagnose_events([*scene.events, OVER], stall))] == told
