"""Publications that a proxy takes at one address and sends on from another one."""

from tests.analysis.ways.scenes import Scene
from zmtpsniff.analysis.ways.way_records import Way

PUBLISHER, TAKES, SENDS = "10.1.0.1:5555", "10.1.0.2:40001", "10.2.0.2:6666"
SUBSCRIBER, OTHER = "10.2.0.3:40002", "10.2.0.4:40003"
COUNT, PROVEN = 40, 16


def _proxied(*, other_publisher: bool = False) -> list[Way]:
    """A proxy passes publications on to two subscribers; perhaps its XPUB sends publications of its own between."""
    scene = Scene()
    scene.connect(1, TAKES, PUBLISHER, types=("XSUB", "PUB"))
    scene.connect(2, SUBSCRIBER, SENDS, types=("SUB", "XPUB"))
    scene.connect(3, OTHER, SENDS, types=("SUB", "XPUB"))
    for number in range(COUNT):
        scene.say(1, b"topic", b"%d" % number, by_server=True)
        for flow in (2, 3):
            scene.say(flow, b"topic", b"%d" % number, by_server=True, after_ms=0.1)
        if other_publisher:
            scene.say(2, b"topic", b"own %d" % number, by_server=True)
    return scene.ways()


def _passed_on(ways: list[Way]) -> list[Way]:
    return [way for way in ways if way.legs[0].src == PUBLISHER and len(way.legs) > 1]


def test_a_proxy_with_two_addresses_is_known_by_many_publications() -> None:
    passed_on = _passed_on(_proxied())
    assert len(passed_on) == COUNT - PROVEN // 2  # each came twice
    assert {tuple(leg.src for leg in way.legs) for way in passed_on} == {(PUBLISHER, SENDS, SENDS)}


def test_an_xpub_that_also_publishes_what_nobody_took_is_no_proxy() -> None:
    assert not _passed_on(_proxied(other_publisher=True))
