"""The usual beginning of a connection: its events are those of a ZmtpConnection, whatever comes, and when it comes."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Greeting, Message
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.usual import UsualConnection
from tests.support.dissector_calls import Call, calls
from tests.support.examples import examples
from tests.world.events import CLIENT, SERVER, summary
from tests.world.octets import COMMAND, MORE, command, frame, greeting, message, prop, ready

KINDS = (b"REQ", b"REP", b"DEALER", b"ROUTER", b"PUB", b"SUB", b"XPUB", b"PUSH", b"PULL", b"PAIR", b"RADIO", b"NONE")


def usual(out: list[AnyEvent]) -> UsualConnection:
    return UsualConnection(out, 1, CLIENT, SERVER, ZmtpConnection)


def compare(made: list[Call], end: Any = "fin") -> UsualConnection:
    """Call both connections so; after each call both have given the same events. Returns the quick one."""
    slow: list[AnyEvent] = []
    quick: list[AnyEvent] = []
    whole, connection = ZmtpConnection(slow, 1, CLIENT, SERVER), usual(quick)
    for side, method, arguments in made:
        for one in (whole, connection):
            getattr((one.client, one.server)[side], method)(*arguments)
        assert quick == slow
        assert connection.rejected == whole.rejected
        if whole.rejected:
            break
    for one in (whole, connection):
        one.finish(end, 5, 9, "client")
        one.release()
    assert quick == slow
    return connection


def feeds(sent: list[tuple[int, bytes]], packets: int = 1) -> list[Call]:
    """Calls for these octets; so many of them come in each packet."""
    offsets = [0, 0]
    made: list[Call] = []
    for number, (side, data) in enumerate(sent):
        packet = 1 + number // packets
        made.append((side, "feed", (data, 1000 * packet, packet, offsets[side], offsets[1 - side])))
        offsets[side] += len(data)
    return made


def opening(one: bytes = b"REQ", other: bytes = b"REP") -> list[tuple[int, bytes]]:
    """The pieces that libzmq sends."""
    whole = greeting()
    return [
        (0, whole[:10]), (1, whole[:11]), (0, whole[10:]), (1, whole[11:]), (1, ready(other)),
        (0, ready(one, prop(b"Identity", b""))),
    ]  # fmt: skip


@pytest.mark.parametrize("together", [1, 2, 50])
def test_a_short_connection_is_never_opened(together: int) -> None:
    talk = [*opening(), (0, message(3, b"", b"question")), (1, message(3, b"", b"answer") * 3)]
    assert compare(feeds(talk, together)).whole is None
    joined = [*opening()[:-1], (0, opening()[-1][1] + message(3, b"", b"question"))]
    assert compare(feeds(joined)).whole is None


def test_the_client_may_wait_for_the_server() -> None:
    whole = greeting(minor=0)
    talk = [(1, whole[:10]), (0, whole[:11]), (1, whole[10:11]), (1, whole[11:]), (0, whole[11:]), (0, ready(b"PUSH"))]
    assert compare(feeds(talk)).whole is not None  # there is no READY of the server
    assert compare(feeds([*talk, (1, ready(b"PULL")), (0, message(3, b"job"))])).whole is None
    at_once = [(1, whole[:10]), (0, whole[:11]), (1, whole[10:]), (0, whole[11:])]
    assert compare(feeds([*at_once, (0, ready(b"PUSH")), (1, ready(b"PULL"))])).whole is None


def test_a_long_connection_keeps_no_octets() -> None:
    connection = usual([])
    for side, _, arguments in feeds([*opening(), *[(0, message(3, b"job"))] * 40]):
        (connection.client, connection.server)[side].feed(*arguments)
        assert len(connection.pieces) <= 16
    assert connection.whole is not None
    assert not connection.pieces


def test_a_connection_that_is_asked_for_knows_what_came() -> None:
    talk = feeds([*opening(), (0, message(3, b"", b"question")), (1, message(3, b"", b"answer"))])
    for place in range(len(talk) + 1):
        out: list[AnyEvent] = []
        connection = usual(out)
        for number, (side, _, arguments) in enumerate(talk):
            if number == place:
                connection.open()
            (connection.client, connection.server)[side].feed(*arguments)
        connection.finish("open", 0, 1)
        assert [type(event) for event in out].count(Greeting) == 2
        assert [type(event) for event in out].count(Message) == 2
        assert summary(out).handshake == "complete"


def _talk(random: Random) -> list[tuple[int, bytes]]:
    """A conversation that begins as most do, and continues in some way."""
    sides = [random.choice(KINDS) for _ in range(2)]
    if random.random() < 0.7:
        sides = random.choice([[b"REQ", b"REP"], [b"PUSH", b"PULL"], [b"SUB", b"PUB"], [b"DEALER", b"ROUTER"]])
    sent = opening(*sides)
    if random.random() < 0.1:
        odd = random.choice(
            [greeting(b"PLAIN"), greeting(minor=random.randrange(3)), greeting(as_server=random.randrange(3)),
             greeting(major=random.randrange(6)), greeting(b"NONE"), b"\xff" + b"\2" * 8 + greeting()[9:],
             b"\xff" + bytes(8) + greeting()[9:]]
        )  # fmt: skip
        sent = [(side, odd[sum(len(d) for s, d in sent[:at] if s == side) :][: len(data)] if at < 4 else data)
                for at, (side, data) in enumerate(sent)]  # fmt: skip
    for _ in range(random.randrange(4)):
        data = random.choice([message(3, b"x"), message(3, b"", b"body") * 2, frame(b"\1t")])
        sent.append((random.randrange(2), data))
    for _ in range(random.choice([0, 0, 1, 9])):
        data = random.choice(
            [message(3, b"x"), message(3, b"", b"body") * 2, message(3, *[b"part"] * random.randint(1, 9)),
             frame(b"half", MORE), command(b"PING", b"\0\1"), command(b"SUBSCRIBE", b"t"), frame(b"\1t"),
             ready(b"REQ"), command(b"READY", prop(b"Identity", bytes(256))), b"\0", b"\0\5abc", frame(bytes(300)),
             frame(b"", COMMAND),
             message(3, b"a") * 400, b"\x08\0", command(b"ERROR", b"\3bad")]
        )  # fmt: skip
        sent.insert(random.randint(0 if random.random() < 0.1 else 4, len(sent)), (random.randrange(2), data))
    if random.random() < 0.2:
        at = random.randrange(len(sent))
        sent[at] = sent[at][0], bytes(octet ^ (random.random() < 0.02) for octet in sent[at][1])
    return sent


def _cut(random: Random, sent: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The same in other pieces, now and then in another order of the sides."""
    found: list[tuple[int, bytes]] = []
    share = random.choice([0, 0, 0.1])
    for side, data in sent:
        if found and found[-1][0] == side and random.random() < 0.1:
            found[-1] = side, found[-1][1] + data
        elif len(data) > 1 and random.random() < share:
            at = random.randrange(1, len(data))
            found += [(side, data[:at]), (side, data[at:])]
        else:
            found.append((side, data))
    if random.random() < 2 * share:
        at = random.randrange(len(found))
        if found[at][0] != found[at - 1][0]:
            found[at], found[at - 1] = found[at - 1], found[at]
    return found


@settings(max_examples=examples(2000))
@given(st.integers(0, 2**64))
def test_any_beginning_has_the_same_events(seed: int) -> None:
    random = Random(seed)
    made = feeds(_cut(random, _talk(random)), random.choice([1, 1, 3]))
    if random.random() < 0.2:
        side, what = random.randrange(2), random.choice(["gap", "absent", "conflict"])
        arguments = {"gap": (random.randrange(1, 70), random.random() < 0.5), "absent": (), "conflict": (0, 3)}[what]
        made.insert(random.randrange(len(made) + 1), (side, what, (*arguments, 1, 1)))
    compare(made[: random.randrange(len(made) + 1)] if random.random() < 0.2 else made, random.choice(["fin", "open"]))


@settings(max_examples=examples(800))
@given(st.integers(0, 2**64))
def test_any_connection_has_the_same_events(seed: int) -> None:
    compare([call for call in calls(Random(seed)) if call[1] != "lose"])
