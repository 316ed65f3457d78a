"""A side that the capture lacks the beginning of, and one that was taken for absent and comes after all."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Command, Connection, Message
from dissectors.problems import PROBLEMS
from dissectors.zmtp.connection import ZmtpConnection
from tests.dissectors.test_problems import ENCRYPTED, HELLO, PLAIN, box
from tests.dissectors.zmtp import test_websocket as websocket
from tests.dissectors.zmtp.test_connection import CONVERSATIONS, facts
from tests.support.examples import examples
from tests.world.events import CLIENT, SERVER, Said, dissect, frames_of, problems, summary
from tests.world.octets import command, frame, greeting, peers, prop, ready

Sent = list[tuple[int, bytes]]
MESSAGES = [frame(b"", 1) + frame(b"message number %d of the server" % number) for number in range(12)]
REPLIES: Sent = [(1, octets) for octets in MESSAGES]
BOXES: Sent = [(1, frame(box(number))) for number in range(3, 20)]
TALKS: dict[str, Sent] = {
    "NULL": [*peers(), (0, frame(b"a question")), *REPLIES],
    "NULL with an identity": [*peers()[:3], (1, ready(b"ROUTER", prop(b"Identity", b"me"))), *REPLIES],
    "PLAIN": [
        *PLAIN, (0, HELLO), (1, command(b"WELCOME")), (0, command(b"INITIATE", prop(b"Socket-Type", b"REQ"))),
        (1, command(b"READY", prop(b"Socket-Type", b"REP"))), *REPLIES,
    ],
    "CURVE": [*ENCRYPTED, *BOXES],
}  # fmt: skip
ORDERS = ["as sent", "client first", "server first"]


def ordered(sent: Sent, order: str) -> Sent:
    if order == "as sent":
        return sent
    return sorted(sent, key=lambda turn: turn[0] != (order == "server first"))


def late(sent: Sent, missing: int, order: str, hole: bool = False) -> tuple[list[AnyEvent], list[bytes]]:
    """The events if the first ``missing`` octets of the server are not captured, and what is whole of the rest."""
    left, rest, whole = missing, [], []
    for side, octets in sent:
        if side == 0:
            rest.append((side, octets))
        elif left >= len(octets):
            left -= len(octets)
        else:
            if not left:
                whole.append(octets)
            rest.append((side, octets[left:]))
            left = 0
    return dissect([*[(1, missing)] * hole, *ordered(rest, order)], from_start=(True, False)), whole


def of_server(events: list[AnyEvent]) -> list[bytes]:
    """Its messages and boxes, as the octets that they are sent as."""
    found = []
    for event in events:
        if isinstance(event, Message) and event.src == SERVER:
            *first, last = [frame for frame in event.frames if isinstance(frame, bytes)]
            found.append(b"".join(frame(octets, 1) for octets in first) + frame(last))
        elif isinstance(event, Command) and event.src == SERVER and event.name == "MESSAGE":
            assert isinstance(event.nonce, bytes)
            assert isinstance(event.box, bytes)
            found.append(frame(b"\x07MESSAGE" + event.nonce + event.box))
    return found


def complaints(events: list[AnyEvent]) -> list[str]:
    return [code for code in problems(events) if PROBLEMS[code].severity != "note"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("hole", [False, True], ids=["", "behind a hole"])
@pytest.mark.parametrize("name", TALKS)
def test_a_server_that_begins_inside_its_greeting(name: str, hole: bool, order: str) -> None:
    for missing in range(1, 65):
        events, whole = late(TALKS[name], missing, order, hole)
        assert complaints(events) == (["capture-gap"] if hole else []), missing
        assert [octets for octets in whole if octets in MESSAGES or (1, octets) in BOXES] == of_server(events), missing
        assert not any(event.incomplete for event in events if isinstance(event, Message)), missing


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", TALKS)
def test_a_server_that_begins_behind_its_greeting(name: str, order: str) -> None:
    """Wherever a packet of the server begins, everything from there on is found."""
    ends, at = [], 0
    for side, octets in TALKS[name]:
        if side == 1:
            at += len(octets)
            ends.append(at)
    for missing in ends[:-3]:
        events, whole = late(TALKS[name], missing, order)
        assert complaints(events) == []
        assert [octets for octets in whole if octets in MESSAGES or (1, octets) in BOXES] == of_server(events)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", TALKS)
def test_a_server_that_begins_anywhere_is_not_accused(name: str, order: str) -> None:
    total = sum(len(octets) for side, octets in TALKS[name] if side == 1)
    for missing in range(1, total - 100, 7):
        events, _ = late(TALKS[name], missing, order)
        wrong = [event for event in complaints(events) if PROBLEMS[event].severity == "error"]
        assert wrong == [], missing
        assert isinstance(events[-1], Connection)


def test_the_framing_of_a_late_side_is_that_of_the_greeting_that_is_there() -> None:
    connection = ZmtpConnection([], 1, CLIENT, SERVER, (True, False))
    connection.client.feed(greeting(), 1, 1)
    connection.server.feed(b"something", 2, 2)
    assert connection.server.opening.framing == 2


# ---------------------------------------------------------------------- absent, and there after all


NAMELESS: Sent = [
    (0, websocket.request("ZWS2.0")), (1, websocket.response("ZWS2.0")), (0, websocket.message(0, b"me")),
    (1, websocket.message(1, b"")), (0, websocket.message(0, b"a", 1) + websocket.message(0, b"b")),
]  # fmt: skip
WEBSOCKET = {"ZWS": websocket.CONVERSATION, "ZWS without a mechanism": NAMELESS}
EVERYTHING = {name: sent for name, (sent, *_) in CONVERSATIONS.items()} | TALKS | WEBSOCKET


@pytest.mark.parametrize("side", [0, 1], ids=["client", "server"])
@pytest.mark.parametrize("name", EVERYTHING)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_who_comes_after_all_is_read_as_if_nobody_had_missed_him(name: str, side: int, data: st.DataObject) -> None:
    sent = EVERYTHING[name]
    undisturbed = dissect(sent)
    # Cut the streams anew; so many pieces of the other side come before the declaration.
    streams = [b"".join(octets for turn, octets in sent if turn == wanted) for wanted in (0, 1)]
    cuts = [sorted({0, len(s), *data.draw(st.lists(st.integers(0, len(s)), max_size=8))}) for s in streams]
    pieces = [[streams[each][a:b] for a, b in pairwise(cuts[each])] for each in (0, 1)]
    before = data.draw(st.integers(0, len(pieces[1 - side])))
    order = data.draw(st.permutations([side] * len(pieces[side]) + [1 - side] * (len(pieces[1 - side]) - before)))
    turns = [iter([(each, octets) for octets in pieces[each]]) for each in (0, 1)]
    first = [next(turns[1 - side]) for _ in range(before)]
    out = dissect([*first, (side, None), *(next(turns[turn]) for turn in order)])
    assert facts(out) == facts(undisturbed)
    assert problems(out) == problems(undisturbed)


@pytest.mark.parametrize("from_start", [True, False])
def test_a_hole_in_front_of_who_comes_after_all(from_start: bool) -> None:
    begins: list[Said] = [(0, greeting() + ready(b"DEALER")), (1, None), (1, 64)]
    out = dissect([*begins, (1, ready(b"ROUTER") + b"".join(MESSAGES))], from_start=(True, from_start))
    assert [code for code in problems(out) if PROBLEMS[code].severity != "note"] == ["capture-gap"]
    assert of_server(out) == MESSAGES


def test_who_never_comes_is_told_of_at_the_end() -> None:
    out: list[AnyEvent] = []
    connection = ZmtpConnection(out, 1, CLIENT, SERVER)
    connection.client.feed(greeting() + ready(b"DEALER"), 1, 1)
    connection.server.absent(2, 2)
    connection.client.feed(frame(b"x"), 3, 3)
    assert frames_of(out) == [[b"x"]]  # it is not waited for
    assert problems(out) == []
    connection.finish("fin", 0, 4)
    assert problems(out) == ["one-direction"]
    assert summary(out).handshake == "not-seen"


def test_who_has_sent_something_is_not_absent() -> None:
    out = dissect([(1, b"\xff"), (1, None), (0, greeting()), (1, greeting()[1:] + ready(b"ROUTER"))])
    assert "one-direction" not in problems(out)
    assert summary(out).version == "3.1"


def test_a_late_handshake_that_is_not_whole_accuses_nobody() -> None:
    """A hole took the client's READY while the server was thought to be absent."""
    late_server = [(1, greeting() + ready(b"ROUTER")), (0, frame(b"more"))]
    hole = len(ready(b"DEALER"))
    out = dissect([(0, greeting()), (1, None), (0, hole), (0, b"".join(MESSAGES)), *late_server])
    assert [code for code in problems(out) if PROBLEMS[code].severity != "note"] == ["capture-gap"]
    assert summary(out).handshake == "not-seen"
