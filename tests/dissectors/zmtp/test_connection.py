"""Versions, downgrades and handshakes: what two sides agree on, however their octets are cut and interleaved."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Command, Connection, Greeting, Hidden, Message, Subscription
from dissectors.zmtp.limits import Limits
from tests.world.events import CLIENT, SERVER, dissect, frames_of, problems, summary
from tests.world.octets import SIGNATURE, command, frame, frame_v1, greeting, greeting_v2, peers, ready

LONG_SIGNATURE = b"\xff\0\0\0\0\0\0\0\x04\x7f"  # of a peer whose identity has 3 octets
Sent = list[tuple[int, bytes]]

# name: what both sides send; version of client, server and both; messages of client and server
CONVERSATIONS: dict[str, tuple[Sent, tuple[str | None, str | None, str], list[list[bytes]], list[list[bytes]]]] = {
    "3.1": (
        [*peers(), (0, frame(b"a", 1) + frame(b"b")), (1, frame(bytes(300)) + frame(b""))],
        ("3.1", "3.1", "3.1"), [[b"a", b"b"]], [[bytes(300)], [b""]],
    ),
    "3.0 and 3.1": (
        [(0, greeting(minor=0)), (1, greeting()), *peers()[2:], (0, frame(b"a"))],
        ("3.0", "3.1", "3.0"), [[b"a"]], [],
    ),
    "4.7 and 3.1": (
        [(0, greeting(major=4, minor=7)), (1, greeting()), *peers()[2:], (0, frame(b"a"))],
        ("4.7", "3.1", "3.1"), [[b"a"]], [],
    ),
    "3.1 and 2.0": (
        [(0, SIGNATURE), (1, SIGNATURE + b"\x01\x07\0\0"), (0, b"\x03"), (0, b"\x08\0\x02id"), (0, frame(b"a") * 2)],
        ("3", "2.0", "2.0"), [[b"a"], [b"a"]], [],
    ),
    "2.0 and 2.0": (
        [(0, greeting_v2(8, b"me")), (1, greeting_v2(7)), (0, frame(b"a", 1) + frame(b"", 0))],
        ("2.0", "2.0", "2.0"), [[b"a", b""]], [],
    ),
    "2.0 and revision 0": (
        [(0, SIGNATURE + b"\x01\x08"), (1, SIGNATURE + b"\x00\x07"), (0, frame_v1(b"me")), (1, frame_v1(b"")),
         (0, frame_v1(b"a", 1) + frame_v1(bytes(300)))],
        ("2.0", "1.0", "1.0"), [[b"a", bytes(300)]], [],
    ),
    "3.1 and 1.0": (
        [(0, LONG_SIGNATURE), (1, frame_v1(b"srv")), (0, b"cli"), (0, frame_v1(b"q")), (1, frame_v1(b"r", 1) * 2),
         (1, frame_v1(b"s"))],
        (None, "1.0", "1.0"), [[b"q"]], [[b"r", b"r", b"s"]],
    ),
    "1.0 and azmq": (
        [(0, frame_v1(b"cli", 0x7E)), (1, b"\xff" + bytes(8) + b"\x7f"),
         (0, frame_v1(b"q", 0x7F) + frame_v1(b"r", 0x7E)), (1, frame_v1(b"a"))],
        ("1.0", None, "1.0"), [[b"q", b"r"]], [[b"a"]],
    ),
    "1.0 and 1.0": (
        [(0, frame_v1(b"")), (1, frame_v1(b"")), (0, frame_v1(b"q") + frame_v1(b"", 1) + frame_v1(bytes(999)))],
        ("1.0", "1.0", "1.0"), [[b"q"], [b"", bytes(999)]], [],
    ),
    "1.0 and 1.0 with an identity": (
        [(0, frame_v1(b"")), (1, frame_v1(bytes(254))), (0, (frame_v1(b"", 1) + frame_v1(bytes(999))) * 3)],
        ("1.0", "1.0", "1.0"), [[b"", bytes(999)]] * 3, [],
    ),
    "1.0 of libzmq 2.1": (
        [(0, frame_v1(b"cli", 0x7E)), (1, frame_v1(b"srv", 0x7E)), (0, frame_v1(b"q", 0x7F) + frame_v1(b"r", 0x7E))],
        ("1.0", "1.0", "1.0"), [[b"q", b"r"]], [],
    ),
}  # fmt: skip


def of(kind: type[AnyEvent], events: list[AnyEvent], side: int) -> list[AnyEvent]:
    source = (CLIENT, SERVER)[side]
    return [event for event in events if isinstance(event, kind) and event.src == source]  # type: ignore[union-attr]


def facts(events: list[AnyEvent]) -> list[object]:
    """The content of events, without their places in the capture."""
    shown: list[object] = []
    for side in (0, 1):
        for event in events:
            if isinstance(event, Greeting | Command | Subscription | Message) and event.src == (CLIENT, SERVER)[side]:
                fields = {name: getattr(event, name) for name in event.__struct_fields__}
                shown.append((type(event), {k: v for k, v in fields.items() if k not in ("time_ns", "packet", "part")}))
    last = events[-1]
    assert isinstance(last, Connection)
    return [*shown, last.version, last.mechanism, last.handshake, last.messages, last.octets, last.subscriptions]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_versions_and_messages(name: str) -> None:
    sent, (client, server, both), from_client, from_server = CONVERSATIONS[name]
    events = dissect(sent)
    assert problems(events) == []
    connection = events[-1]
    assert isinstance(connection, Connection)
    assert (connection.client.version, connection.server.version, connection.version) == (client, server, both)
    assert connection.handshake == "complete"
    assert [event.frames for event in of(Message, events, 0)] == from_client  # type: ignore[union-attr]
    assert [event.frames for event in of(Message, events, 1)] == from_server  # type: ignore[union-attr]


def test_messages_tell_the_socket_type_of_a_peer_of_revision_0() -> None:
    sent = [*CONVERSATIONS["2.0 and revision 0"][0], (1, frame_v1(b"b"))]
    told = [event.socket_type for side in (0, 1) for event in of(Message, dissect(sent), side)]  # type: ignore[union-attr]
    assert told == ["PUSH", "PULL"]


@st.composite
def cut_and_interleaved(draw: st.DrawFn, sent: Sent) -> Sent:
    """The same octets of both sides in other pieces and in another order of the sides."""
    rest = [b"".join(octets for side, octets in sent if side == wanted) for wanted in (0, 1)]
    cuts = [sorted({0, len(octets), *draw(st.lists(st.integers(0, len(octets)), max_size=12))}) for octets in rest]
    pieces = [[(side, rest[side][a:b]) for a, b in pairwise(cuts[side])] for side in (0, 1)]
    order = draw(st.permutations([0] * len(pieces[0]) + [1] * len(pieces[1])))
    iterators = [iter(side) for side in pieces]
    return [next(iterators[side]) for side in order]


@pytest.mark.parametrize("name", CONVERSATIONS)
@given(data=st.data())
def test_cutting_and_interleaving_change_nothing(name: str, data: st.DataObject) -> None:
    sent = CONVERSATIONS[name][0]
    again = data.draw(cut_and_interleaved(sent))
    events = dissect(again)
    assert facts(events) == facts(dissect(sent))
    assert problems(events) == []


def test_a_lost_greeting_and_nothing_after_it_is_no_truncated_greeting() -> None:
    noise = [(0, bytes(range(16, 256)) * 50)] * 300  # so many that parts of them are passed over
    assert problems(dissect([(1, greeting() + ready(b"PULL")), (0, 500), *noise])) == ["capture-gap", "frames-lost"]


def test_subscriptions_as_commands_and_messages() -> None:
    sent = [
        *peers(b"SUB", b"PUB"),
        (0, command(b"SUBSCRIBE", b"a") + frame(b"\x01b") + frame(b"\x01c") + frame(b"\0b") + frame(b"\x02no")),
        (0, frame(b"\x01x", 1) + frame(b"y")),
    ]
    events = dissect(sent)
    assert [(event.action, event.topic, event.encoding) for event in events if isinstance(event, Subscription)] == [
        ("subscribe", b"a", "command"),
        ("subscribe", b"b", "message"),
        ("subscribe", b"c", "message"),
        ("cancel", b"b", "message"),
    ]
    assert frames_of(events) == [[b"\x02no"], [b"\x01x", b"y"]]
    assert summary(events).subscriptions == [b"a", b"c"]


def test_passwords_are_hidden_unless_asked_for() -> None:
    sent = [(0, greeting(b"PLAIN")), (1, greeting(b"PLAIN")), (0, command(b"HELLO", b"\x05alice\x06secret"))]
    hello = next(event for event in dissect(sent) if isinstance(event, Command))
    assert (hello.username, hello.password) == (b"alice", Hidden(6))
    hello = next(event for event in dissect(sent, limits=Limits(show_secrets=True)) if isinstance(event, Command))
    assert hello.password == b"secret"


@pytest.mark.parametrize(
    ("sent", "version"),
    [
        ([(1, greeting()), (1, ready(b"PUB")), (1, frame(b"x"))], None),
        ([(1, greeting_v2(1)), (1, frame(b"x"))], None),
        ([(1, SIGNATURE + b"\x03\x01\0\0"), (1, frame(b"x"))], None),
        ([(1, SIGNATURE + frame_v1(b"some text") * 2)], None),
    ],
    ids=["3.1", "2.0", "3 to 2.0", "1.0"],
)
def test_one_side_alone_is_read_by_what_it_looks_like(sent: Sent, version: str | None) -> None:
    out = dissect([sent[0], (0, None), *sent[1:]], "open")
    assert summary(out).version == version
    assert [event.frames[0] for event in out if isinstance(event, Message)] in ([b"x"], [b"some text"] * 2)
    assert problems(out) == ["one-direction"]


def test_gssapi_tokens_and_wrapped_messages() -> None:
    token = (5).to_bytes(4, "big") + b"token"
    box = (3).to_bytes(4, "big") + b"box"
    sent = [
        (0, greeting(b"GSSAPI")),
        (1, greeting(b"GSSAPI")),
        (0, command(b"INITIATE", token)),
        (1, command(b"INITIATE", token)),
        (0, command(b"INITIATE", token)),
        (0, command(b"MESSAGE", box)),
        (1, command(b"MESSAGE", box)),
        (0, frame(b"\x07MESSAGE" + box)),
    ]
    events = dissect(sent)
    assert problems(events) == []
    assert [(event.name, event.token, event.box) for event in events if isinstance(event, Command)] == [
        *[("INITIATE", b"token", None)] * 3,
        *[("MESSAGE", None, b"box")] * 3,
    ]
    assert summary(events).handshake == "complete"
    assert problems(dissect([*sent[:2], (0, command(b"INITIATE", b"\0\0"))])) == ["malformed-command"]


SOCKS = [
    (0, b"\5\1\0"),
    (1, b"\5\0"),
    (0, b"\5\1\0\1\x0a\0\0\1\x15\xb3"),
    (1, b"\5\0\0\1\0\0\0\0\0\0"),
    (1, greeting()),
]


def test_a_forced_side_is_no_zmtp_1_0_beside_one_that_speaks_something_else() -> None:
    events = dissect(SOCKS, forced=0)
    assert problems(events) == ["not-zmtp", "not-zmtp"]
    assert not any(isinstance(event, Greeting | Message) for event in events)


@pytest.mark.parametrize(
    ("sent", "forced"),
    [([(0, SOCKS[0][1]), (1, frame_v1(b"id") + frame_v1(b"a"))], 1), ([(1, frame_v1(b"id") + frame_v1(b"a"))], 0)],
)
def test_a_forced_side_is_zmtp_1_0_if_the_user_says_so_or_the_other_says_nothing(sent: Sent, forced: int) -> None:
    events = dissect(sent, forced=forced)
    assert frames_of(events) == [[b"a"]]
