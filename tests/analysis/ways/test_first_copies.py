"""Copies of one publication for several subscribers, also where the publisher says the same octets again."""

import pytest

from tests.analysis.ways.scenes import Scene
from tests.support.footprint import entries
from zmtpsniff.analysis.ways import first_copies
from zmtpsniff.analysis.ways.first_copies import FirstCopies
from zmtpsniff.analysis.ways.hops import Hop, Receipts, RequestCount, SharedFacts, Stream

PUBLISHER = "10.0.0.2:5555"
MS = 1_000_000


class Publisher:
    """Sends the same octets on some connections."""

    def __init__(self) -> None:
        """Start without any publication."""
        self._first_copies = FirstCopies()
        self._packet = 0

    def send(self, flow: int, time_ms: float, text: bytes = b"tick") -> int:
        """The packet of the first copy of the publication that this is a copy of: its own if it is the first."""
        self._packet += 1
        stream = Stream("PUB", "SUB", "10.0.0.2", "10.0.0.1", RequestCount(), SharedFacts(), Receipts())
        hop = Hop(PUBLISHER, f"10.0.0.1:{flow}", flow, self._packet, round(time_ms * MS), 1, stream, [text])
        first = self._first_copies.first_of(hop)
        return self._packet if first is None else first.packet


def test_each_subscriber_gets_each_publication_once() -> None:
    publisher = Publisher()
    assert [publisher.send(flow, 100 * tick) for tick in range(100) for flow in (1, 2, 3)] == [
        3 * tick + 1 for tick in range(100) for _ in range(3)
    ]


def test_one_that_is_behind_gets_them_in_their_order() -> None:
    publisher = Publisher()
    assert [publisher.send(flow, tick) for tick in range(2) for flow in (1, 2)] == [1, 1, 3, 3]
    assert [publisher.send(1, 10 + tick) for tick in range(5)] == [5, 6, 7, 8, 9]
    assert [publisher.send(2, 20 + tick) for tick in range(5)] == [5, 6, 7, 8, 9]


def test_one_that_comes_later_gets_no_old_ones() -> None:
    publisher = Publisher()
    for tick in range(50):
        publisher.send(1, 10_000 * tick)
    assert publisher.send(2, 499_990) == 51  # the first copy of the next
    assert publisher.send(1, 500_000) == 51


def test_one_that_missed_some_goes_on_with_the_next() -> None:
    publisher = Publisher()
    assert [publisher.send(flow, 0) for flow in (1, 2)] == [1, 1]
    for tick in range(1, 6):
        publisher.send(1, 1000 * tick)
    assert publisher.send(1, 10_000) == 8
    assert publisher.send(2, 10_000) == 8


def test_octets_that_are_said_once_may_arrive_late() -> None:
    publisher = Publisher()
    assert publisher.send(1, 0, b"reading 17") == 1
    assert publisher.send(2, 30_000, b"reading 17") == 1


def test_one_that_repeats_it_at_once_comes_before_the_next_copy() -> None:
    """A publisher's heart beats, and one that hears it beats back before the last subscriber has its copy."""
    scene = Scene()
    for flow in (1, 2, 3):
        scene.connect(flow, f"10.0.0.{flow}:40000", "10.0.1.1:5555", types=("SUB", "PUB"))
    scene.connect(4, "10.0.0.1:40001", "10.0.1.1:5556", types=("DEALER", "ROUTER"))
    for beat in (b"1.002", b"2.002"):
        for flow in (1, 4, 2, 3):
            scene.say(flow, beat, by_server=flow != 4)
    kinds = [(way.kind, [leg.flow for leg in way.legs]) for way in scene.ways()]
    assert kinds == [("publication", [1, 2, 3])] * 2


def test_what_is_remembered_of_subscribers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many subscribers to many publications, and of one publication to subscribers that come and go."""
    monkeypatch.setattr(first_copies, "_COPIES", 300)
    monkeypatch.setattr(first_copies, "_CONNECTIONS", 200)
    publisher = Publisher()
    for number in range(40):
        for flow in range(100):
            publisher.send(flow, number, b"%d" % number)
    assert entries(publisher) < 1000
    for flow in range(5000):
        publisher.send(flow, 100 + flow)
    assert entries(publisher) < 1000
