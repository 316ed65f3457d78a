"""Names of properties compare without case (23/ZMTP, "The NULL Security Mechanism"), whoever asks for one of them."""

import io

import pytest

from dissectors.events import AnyEvent, Command, Connection, Message
from tests.world.events import dissect, problems
from tests.world.octets import command, frame, greeting, prop
from zmtpsniff.filters import compile_filter
from zmtpsniff.render.summary import SummaryRenderer
from zmtpsniff.render.tree import TreeRenderer

NAMES = [(b"Socket-Type", b"Identity"), (b"socket-type", b"identity"), (b"SOCKET-TYPE", b"iDENTITY")]
each_case = pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0].decode())


def conversation(names: tuple[bytes, bytes]) -> list[AnyEvent]:
    """A request of a REQ with an identity and its reply."""
    kind, identity = names
    return dissect(
        [
            (0, greeting()),
            (1, greeting()),
            (0, command(b"READY", prop(kind, b"REQ") + prop(identity, b"me"))),
            (1, command(b"READY", prop(kind, b"REP"))),
            (0, frame(b"", 1) + frame(b"question")),
            (1, frame(b"", 1) + frame(b"answer")),
        ]
    )


def shown(renderer: type[SummaryRenderer] | type[TreeRenderer], events: list[AnyEvent]) -> str:
    stream = io.StringIO()
    if renderer is TreeRenderer:
        TreeRenderer(stream).write(events)
    else:
        SummaryRenderer(stream).write(events)
    return stream.getvalue()


@each_case
def test_events(names: tuple[bytes, bytes]) -> None:
    events = conversation(names)
    assert problems(events) == []
    connection = events[-1]
    assert isinstance(connection, Connection)
    assert (connection.client.socket_type, connection.client.identity) == ("REQ", b"me")
    assert connection.server.socket_type == "REP"
    assert [event.socket_type for event in events if isinstance(event, Message)] == ["REQ", "REP"]
    ready = next(event for event in events if isinstance(event, Command))
    assert (ready.socket_type, ready.identity) == ("REQ", b"me")
    assert ready.properties == {names[0].decode(): b"REQ", names[1].decode(): b"me"}


@each_case
def test_what_people_read(names: tuple[bytes, bytes]) -> None:
    events = conversation(names)
    assert "READY REQ" in shown(TreeRenderer, events)
    assert f'READY          REQ {names[1].decode()}="me"' in shown(SummaryRenderer, events)
    for renderer in (TreeRenderer, SummaryRenderer):
        assert names[0].decode() not in shown(renderer, events)  # it is said already


@each_case
@pytest.mark.parametrize("text", ['properties.Socket-Type == "REQ"', 'socket_type == "REQ"', 'identity == "me"'])
def test_filters(names: tuple[bytes, bytes], text: str) -> None:
    ready = next(event for event in conversation(names) if isinstance(event, Command))
    assert compile_filter(text)(ready)
