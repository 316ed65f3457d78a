"""The meaning of frames that a session gets by themselves."""

import pytest

from dissectors.events import AnyEvent, Command, Cut, Message, Problem
from dissectors.zmtp import session, wire
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.journal import Journal
from dissectors.zmtp.limits import Limits
from dissectors.zmtp.security import Security
from dissectors.zmtp.session import Session
from tests.world.events import CLIENT, SERVER, problems
from tests.world.octets import frame, peers, ready

LAST, MORE, COMMAND = 0, wire.MORE, wire.COMMAND
BOX = wire.CURVE_MESSAGE + bytes(8) + bytes(17)


def pair(mechanism: str | None = "NULL") -> tuple[Session, Session, list[AnyEvent]]:
    """Both sides of a connection whose greetings name this mechanism; None: an earlier version."""
    out: list[AnyEvent] = []
    security = Security()
    if mechanism is None:
        security.skip()
    else:
        security.begin(mechanism)
    one = Session(Journal(out, 1, "a:1", "b:2"), "client", security, Limits())
    other = Session(Journal(out, 1, "b:2", "a:1"), "server", security, Limits())
    one.other, other.other = other, one
    return one, other, out


def shake(one: Session, other: Session, client: bytes, server: bytes) -> None:
    one.frame(COMMAND, ready(client)[2:], True)
    other.frame(COMMAND, ready(server)[2:], True)


def test_messages_need_a_look_until_the_handshake_is_done() -> None:
    one, other, out = pair()
    assert not one.look()
    one.frame(COMMAND, ready(b"PUSH")[2:], True)
    assert one.plain is None  # since something changed
    assert one.look()
    assert not other.look()
    other.frame(LAST, b"early", True)
    assert problems(out) == ["message-before-ready"]
    assert one.security.failed


def test_a_message_of_a_great_many_frames_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_MOST_FRAMES", 1030)
    monkeypatch.setattr(session, "_MESSAGE_OCTETS", 102_500)
    one, other, out = pair()
    shake(one, other, b"PUSH", b"PULL")
    for _ in range(1040):
        one.frame(MORE, bytes(100), True)
    one.frame(LAST, b"end", True)
    *_, problem, told = out
    assert isinstance(problem, Problem)
    assert isinstance(told, Message)
    assert (problem.code, problem.detail) == ("message-too-large", "only the first 1030 frames of a message are shown")
    assert told.incomplete
    assert told.frames == [bytes(100)] * 1025 + [Cut(b"", 100)] * 5 + [b"end"]
    one.frame(LAST, b"next", True)
    assert [event.frames for event in out[-2:] if isinstance(event, Message)] == [told.frames, [b"next"]]


def test_what_is_left_of_a_message() -> None:
    """A part of the body is missing; then its end does not come."""
    one, _, out = pair(None)
    one.frame(MORE, Cut(b"x", 9), False)
    assert not one.look()
    one.frame(LAST, b"y", True)
    one.frame(MORE, b"z", True)
    one.flush(Cut(b"", 70))
    told = [(event.frames, event.incomplete) for event in out if isinstance(event, Message)]
    assert told == [([Cut(b"x", 9), b"y"], True), ([b"z", Cut(b"", 70)], True)]
    assert one.look()


def test_frames_that_were_found_again_are_doubtful() -> None:
    one, _, out = pair(None)
    one.found(doubtful=3)
    for _ in range(4):
        one.frame(LAST, b"x", True)
    assert [event.incomplete for event in out if isinstance(event, Message)] == [True, True, True, False]


@pytest.mark.parametrize("mechanism", ["CURVE", "GSSAPI"])
def test_boxes_are_commands_wherever_they_are(mechanism: str) -> None:
    one, _, out = pair(mechanism)
    one.look_at_each()
    one.frame(LAST, BOX, True)
    one.frame(MORE, BOX, True)
    one.frame(MORE, b"clear", True)
    one.frame(LAST, BOX, True)
    assert [event.name for event in out if isinstance(event, Command)] == ["MESSAGE"] * 3
    assert "command-inside-message" in problems(out)
    assert "command-with-more" not in problems(out)


def test_boxes_with_more_are_known_without_a_handshake() -> None:
    one, _, out = pair(None)
    one.security.unknown_start = True
    one.frame(MORE, BOX, True)
    one.frame(LAST, BOX, True)
    assert [type(event) for event in out] == [Command, Command]


def test_the_topics_of_a_side_are_bounded() -> None:
    """However many there are, and whatever becomes of them; all of them are events."""
    out: list[AnyEvent] = []
    connection = ZmtpConnection(out, 1, CLIENT, SERVER)
    for side, octets in peers(b"SUB", b"PUB"):
        connection.halves[side].feed(octets, 1, 1)
    session, told = connection.client.session, 0
    for number in range(60_000):
        connection.client.feed(frame(b"\1topic %d" % number), 2, 2)
        told += len(out)
        out.clear()
    assert told >= 60_000
    assert 20_000 < len(session.topics) < (4 << 20) / 150
    for number in range(60_000):
        connection.client.feed(frame(b"\0topic %d" % number), 3, 3)
    assert not session.topics
    connection.client.feed(frame(b"\1again") * 2, 4, 4)
    assert list(session.topics) == [b"again"]
    for number in range(100):
        connection.client.feed(frame(b"\1" + bytes(60_000) + b"%d" % number), 5, 5)
    assert 50 < len(session.topics) < 71
