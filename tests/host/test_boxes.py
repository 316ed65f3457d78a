"""Boxes that no key has opened: what a search for the key of their connection looks for."""

import msgspec
import pytest

from dissectors.events import AnyEvent, Command, Greeting
from tests.support.paths import FIXTURES
from tests.world.events import sniff
from tests.world.tap import load
from zmtpsniff.host import boxes
from zmtpsniff.host.boxes import UnopenedBoxes, UnopenedConnection


@pytest.fixture(scope="module")
def events() -> list[AnyEvent]:
    return sniff(load(FIXTURES / "sec_curve_ps_435_435.pcap"))


def collected(events: list[AnyEvent]) -> UnopenedConnection:
    (connection,) = UnopenedBoxes().take(events)
    return connection


def test_the_whole_handshake_tells_what_to_look_for(events: list[AnyEvent]) -> None:
    connection = collected(events)
    (hello,) = (event for event in events if isinstance(event, Command) and event.name == "HELLO")
    assert connection.target.client == hello.client_key
    sealed = [event for event in events if isinstance(event, Command) and isinstance(event.box, bytes)]
    smallest = min(len(event.box or b"") for event in sealed if event.name in ("INITIATE", "READY", "MESSAGE"))
    (box,) = connection.target.boxes
    assert len(box.octets) == smallest
    assert box.nonce.startswith(b"CurveZMQ")


def test_messages_alone_may_be_of_either_side(events: list[AnyEvent]) -> None:
    messages = [event for event in events if isinstance(event, Command) and event.name == "MESSAGE"]
    target = collected(list(messages)).target
    assert target.client is None
    assert {box.nonce[:16] for box in target.boxes} == {b"CurveZMQMESSAGEC", b"CurveZMQMESSAGES"}


@pytest.mark.parametrize("client", [False, True])
def test_the_greeting_of_a_server_tells_the_sides(events: list[AnyEvent], client: bool) -> None:
    message = next(event for event in events if isinstance(event, Command) and event.name == "MESSAGE")
    greeting = next(event for event in events if isinstance(event, Greeting) and (event.src == message.src) != client)
    (box,) = collected([msgspec.structs.replace(greeting, as_server=True), message]).target.boxes
    assert box.nonce[:16] == (b"CurveZMQMESSAGEC" if client else b"CurveZMQMESSAGES")


def test_the_connection_without_news_for_longest_gives_way(
    events: list[AnyEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "MOST_CONNECTIONS", 2)
    message = next(event for event in events if isinstance(event, Command) and event.name == "MESSAGE")
    unopened = UnopenedBoxes()
    for flow in (1, 2, 1, 3):
        unopened.take([msgspec.structs.replace(message, flow=flow)])
    assert [connection.flow for connection in unopened.connections()] == [1, 3]
