"""Publications that proxies pass on."""

import pytest

from tests.analysis.ways.scenes import Scene
from tests.analysis.ways.test_ways import message_of, traced
from tests.support.paths import FIXTURES


def test_publications_cross_a_proxy() -> None:
    ways, messages = traced(FIXTURES / "rec_forwarder_ok.pcap")
    passed = [way for way in ways if way.kind == "publication" and len(way.legs) > 1]
    assert passed
    for way in passed:
        assert len({tuple(message_of(leg, messages).frames) for leg in way.legs}) == 1
        assert way.legs[1].joined == "body"


@pytest.mark.parametrize(
    ("hosts", "is_proxy"),
    [(["127.0.0.1"] * 3, False), (["10.0.0.2"] * 3, False), (["10.0.0.1", "10.0.0.2", "10.0.0.3"], True)],
)
def test_publishers_of_one_host_that_say_the_same_are_no_proxy(hosts: list[str], is_proxy: bool) -> None:
    """All programs have one address there, so equal octets prove nothing; on a host of its own they do."""
    scene = Scene()
    scene.connect(1, f"{hosts[1]}:40000", f"{hosts[0]}:5001", types=("SUB", "PUB"))
    scene.connect(2, f"{hosts[2]}:40001", f"{hosts[1]}:5002", types=("SUB", "PUB"))
    scene.say(1, b"topic", b"reading 17", by_server=True)
    scene.say(2, b"topic", b"reading 17", by_server=True, after_ms=50)
    (way,) = scene.ways()
    assert [leg.certain for leg in way.legs] == [True, is_proxy]
    assert way.ended is None
