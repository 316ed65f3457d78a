"""A message is followed over brokers and services, also where several requests end in one packet."""

import pytest

from dissectors.events import Message
from tests.analysis.ways.scenes import Scene
from tests.support.paths import FIXTURES
from zmtpsniff.browse.index import RecordIndex
from zmtpsniff.browse.traced_way import trace
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings


def indexed(name: str) -> RecordIndex:
    index = RecordIndex()
    for events in open_files([FIXTURES / name], Settings()).batches():
        index.take(events)
    return index


def messages(index: RecordIndex, rows: list[int]) -> list[Message]:
    return [event for row in rows if isinstance(event := index.event(row), Message)]


def test_each_message_of_a_request_leads_to_all_of_them() -> None:
    index = indexed("brokers/two_brokers.pcap.gz")
    row = next(row for row in range(len(index)) if index.is_message(row) and index.event(row).socket_type == "REQ")  # type: ignore[union-attr]
    rows, way = trace(index, row)
    assert way is not None
    assert way.answered
    assert [message.packet for message in messages(index, rows)] == [leg.packet for leg in way.legs]
    assert len(rows) == 6
    assert [trace(index, each).rows for each in rows] == [rows] * 6


def test_a_request_that_went_no_further_says_where() -> None:
    index = indexed("brokers/two_brokers.pcap.gz")
    ways = (trace(index, row).way for row in range(len(index)) if index.is_message(row))
    ended = ((way.ended.at, way.ended.why) for way in ways if way is not None and way.ended is not None)
    assert ("10.9.0.37:6206", "not-forwarded") in ended


def test_of_two_requests_in_one_packet_each_has_its_own_way() -> None:
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.0.2:5555", types=("DEALER", "ROUTER"))
    scene.connect(2, "10.0.0.2:40001", "10.0.0.3:6666", types=("DEALER", "ROUTER"))
    asked = [scene.say(1, b"", b"request %d" % part, after_ms=0) for part in (1, 2)]
    passed_on = [scene.say(2, b"\0abcd", b"", b"request %d" % part) for part in (1, 2)]
    replies = [scene.say(2, b"\0abcd", b"", b"reply %d" % part, by_server=True) for part in (1, 2)]
    answers = [scene.say(1, b"", b"reply %d" % part, by_server=True) for part in (1, 2)]
    for part in (0, 1):
        asked[part].packet, asked[part].part = asked[0].packet, part + 1
        replies[part].request, replies[part].request_part = passed_on[part].packet, passed_on[part].part
        answers[part].request, answers[part].request_part = asked[part].packet, asked[part].part
    index = RecordIndex()
    index.take(scene.events)
    first = len(scene.events) - 8
    for part in (0, 1):
        way = [first + part + leg for leg in (0, 2, 4, 6)]
        assert [trace(index, row).rows for row in way] == [way] * 4


@pytest.mark.parametrize("around", [1, 40, 1000])
def test_a_window_of_a_long_capture_is_looked_through(around: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The types that the connections announced long before are known."""
    monkeypatch.setattr("zmtpsniff.browse.traced_way._AROUND", around)
    index = indexed("systems/healthy_service.pcap.gz")
    row = [row for row in range(len(index)) if index.is_message(row)][200]
    rows, way = trace(index, row)
    assert row in rows
    if around > 1:
        assert way is not None
        assert way.answered
