"""Each problem that octets can cause: reported once, with its severity, and at the price of no message around it."""

import re

import pytest

from dissectors.events import AnyEvent, Command, Message, Problem, Subscription
from dissectors.problems import PROBLEMS, refusal
from dissectors.zmtp.connection import ZmtpConnection
from tests.support.paths import PROJECT
from tests.world.events import CLIENT, SERVER, dissect, frames_of, problems, summary
from tests.world.octets import SIGNATURE, command, frame, frame_v1, greeting, greeting_v2, peers, prop, ready

BEFORE, AFTER = frame(b"before"), frame(b"after")
PLAIN = [(0, greeting(b"PLAIN")), (1, greeting(b"PLAIN"))]
CURVE = [(0, greeting(b"CURVE")), (1, greeting(b"CURVE"))]
HELLO = command(b"HELLO", b"\x05alice\x03pwd")
ENCRYPTED = [
    *CURVE,
    (0, command(b"HELLO", b"\1\0" + bytes(192))),
    (1, command(b"WELCOME", bytes(160))),
    (0, command(b"INITIATE", bytes(300))),
    (1, command(b"READY", bytes(30))),
]
BARE = [(0, b"\x01\0"), (1, b"\x01\0")]


def inside(*octets: bytes) -> list[tuple[int, bytes]]:
    """A healthy connection in which the client sends something odd between two messages."""
    return [*peers(), (0, BEFORE), (0, b"".join(octets)), (0, AFTER)]


def box(nonce: int, size: int = 20) -> bytes:
    """The body of an encrypted frame."""
    return b"\x07MESSAGE" + nonce.to_bytes(8, "big") + bytes(size)


def handshake(*properties: bytes) -> list[tuple[int, bytes]]:
    """A handshake in which the client sends more properties."""
    return [*peers()[:2], (0, ready(b"DEALER", *properties)), peers()[3]]


# what is sent; the codes reported; the handshake; how many messages are shown
CASES = {
    "healthy": (inside(), [], "complete", 2),
    "reserved flags": (inside(frame(b"odd", 8)), ["reserved-flags"], "complete", 3),
    "MORE on a command": (inside(frame(b"\x04PING\0\1", 5)), ["command-with-more"], "complete", 2),
    "LONG not needed": (inside(b"\x02" + bytes(7) + b"\x03odd"), ["long-flag-not-needed"], "complete", 3),
    "too long": (inside(b"\x02" + b"\x80" + bytes(7)), ["frame-too-long"], "complete", 1),
    "too long, reserved flags": (inside(b"\x0a" + b"\x80" + bytes(7)), ["frame-too-long"], "complete", 1),
    "no command name": (inside(frame(b"", 4)), ["malformed-command"], "complete", 2),
    "empty command name": (inside(frame(b"\0xx", 4)), ["malformed-command"], "complete", 2),
    "command name too long": (inside(frame(b"\x09xx", 4)), ["malformed-command"], "complete", 2),
    "unknown command": (inside(command(b"DANCE", b"x")), ["unknown-command"], "complete", 2),
    "READY again": (inside(ready(b"DEALER")), ["unexpected-command"], "complete", 2),
    "HELLO on NULL": (inside(HELLO), ["unexpected-command"], "complete", 2),
    "subscriptions of a DEALER": (
        inside(command(b"SUBSCRIBE", b"t"), command(b"CANCEL", b"t")), ["unexpected-command"] * 2, "complete", 2,
    ),
    "groups of a DEALER": (inside(command(b"JOIN", b"g"), command(b"LEAVE", b"g")), ["unexpected-command"] * 2,
                           "complete", 2),
    "subscriptions and groups of a PULL": (
        [*peers(b"PUSH", b"PULL"), (1, command(b"SUBSCRIBE", b"t") + command(b"JOIN", b"g"))],
        ["unexpected-command"] * 2, "complete", 0,
    ),
    "subscriptions of a PUB on 3.0": (
        [(0, greeting(minor=0)), (1, greeting()), *peers(b"PUB", b"SUB")[2:], (0, command(b"SUBSCRIBE", b"t"))],
        ["unexpected-command"], "complete", 0,
    ),
    "subscriptions of XSUB and SUB": (
        [*peers(b"XSUB", b"XPUB"), (0, command(b"SUBSCRIBE", b"t") + frame(b"\1t") + frame(b"up") + frame(b"\0t")),
         (1, frame(b"welcome"))], [], "complete", 2,
    ),
    "groups of a DISH": (
        [*peers(b"RADIO", b"DISH"), (1, command(b"JOIN", b"g") + command(b"LEAVE", b"g"))], [], "complete", 0,
    ),
    "PING without TTL": (inside(command(b"PING")), ["malformed-command"], "complete", 2),
    "PING context too long": (inside(command(b"PING", bytes(19))), ["malformed-command"], "complete", 2),
    "command inside a message": (
        inside(frame(b"1", 1), command(b"DANCE"), frame(b"2")), ["command-inside-message", "unknown-command"],
        "complete", 3,
    ),
    "empty command inside a message": (
        inside(frame(b"1", 1), frame(b"", 4), frame(b"2")), ["command-inside-message", "malformed-command"],
        "complete", 3,
    ),
    "heartbeats inside a message": (
        inside(frame(b"1", 1), command(b"PING", b"\0\1"), frame(b"2", 1), command(b"PONG"), frame(b"3")),
        ["heartbeat-inside-message"], "complete", 3,
    ),
    "ERROR later": (inside(command(b"ERROR", b"\x02no")), ["peer-error"], "complete", 2),
    "ERROR without a reason": (inside(command(b"ERROR")), ["malformed-command"], "complete", 2),
    "ERROR reason overrun": (inside(command(b"ERROR", b"\x09no")), ["malformed-command"], "complete", 2),
    "ends inside a frame": ([*peers(), (0, frame(b"whole"))[:2], (0, b"\0\x10ab")], ["truncated-frame"], "complete", 2),
    "ends inside a message": ([*peers(), (0, frame(b"1", 1))], ["truncated-message"], "complete", 1),
    "too early": ([(0, greeting()), (1, greeting()), (0, BEFORE), *peers()[2:]], ["message-before-ready"], "failed", 1),
    "no READY": ([(0, greeting()), (1, greeting()), (1, ready(b"ROUTER"))], ["handshake-incomplete"], "incomplete", 0),
    "ERROR instead of READY": (
        [*peers()[:3], (1, command(b"ERROR", b"\x02no"))], ["peer-error"], "failed", 0,
    ),
    "libzmq's broken ERROR": (
        [*PLAIN, (0, HELLO), (1, frame(b"^RROR\x03400", 4))],
        ["plain-credentials", "malformed-error", "peer-error"], "failed", 0,
    ),
    "incompatible types": (peers(b"PUSH", b"PUB"), ["incompatible-socket-types"], "failed", 0),
    "unknown type": (peers(b"BOGUS"), ["unknown-socket-type"], "failed", 0),
    "no type": (
        [*peers()[:2], (0, command(b"READY")), (1, ready(b"ROUTER"))], ["no-socket-type"], "complete", 0,
    ),
    "metadata overrun": (
        [*peers()[:2], (0, command(b"READY", b"\x01X\0\0\xff\xffx")), (1, ready(b"ROUTER"))],
        ["bad-metadata"], "failed", 0,
    ),
    "property without a name": (handshake(prop(b"", b"x")), ["empty-property-name"], "complete", 0),
    "property twice": (handshake(prop(b"x-a", b"1"), prop(b"X-A", b"2")), ["duplicate-property"], "complete", 0),
    "identity too long": (handshake(prop(b"Identity", bytes(256))), ["identity-too-long"], "complete", 0),
    "mechanisms differ": ([(0, greeting(b"NULL")), (1, greeting(b"CURVE"))], ["mechanism-mismatch"], "failed", 0),
    "bad mechanism": (
        [(0, greeting(b"nu ll")), (1, greeting(b"nu ll"))], ["bad-mechanism", "bad-mechanism"], "failed", 0,
    ),
    "mechanism not padded": (
        [(0, greeting(b"NULL\0x")), (1, greeting())], ["bad-mechanism", "mechanism-mismatch"], "failed", 0,
    ),
    "unknown mechanism": (
        [(0, greeting(b"FOOBAR")), (1, greeting(b"FOOBAR"))], ["unknown-mechanism", "handshake-incomplete"],
        "incomplete", 0,
    ),
    "both as-server": (
        [(0, greeting(b"PLAIN", as_server=1)), (1, greeting(b"PLAIN", as_server=1))], ["both-as-server"], "failed", 0,
    ),
    "both say HELLO": (
        [*PLAIN, (0, HELLO), (1, HELLO)], ["plain-credentials", "plain-credentials", "both-hello"], "failed", 0,
    ),
    "HELLO overrun": (
        [*PLAIN, (0, command(b"HELLO", b"\x05alice\x09pwd"))], ["malformed-command"], "failed", 0,
    ),
    "CURVE HELLO too short": ([*CURVE, (0, command(b"HELLO", b"\1\0"))], ["malformed-command"], "failed", 0),
    "CURVE HELLO of another version": (
        [*CURVE, (0, command(b"HELLO", b"\2\0" + bytes(192)))], ["malformed-command"], "failed", 0,
    ),
    "padding of CURVE HELLO": (
        [*CURVE, (0, command(b"HELLO", b"\1\0" + b"\1" * 192)), ENCRYPTED[3]], ["malformed-command"], "failed", 0,
    ),
    "padding of CURVE HELLO that its server does not mind": (
        [*CURVE, (0, command(b"HELLO", b"\1\0" + b"\1" * 192)), *ENCRYPTED[3:], (0, frame(box(3)))],
        ["malformed-command"], "complete", 0,
    ),
    "in clear on CURVE": ([*ENCRYPTED, (0, frame(b"clear"))], ["not-encrypted"], "complete", 1),
    "commands in clear on CURVE": (
        [*ENCRYPTED, (0, command(b"PING", b"\0\1")), (1, command(b"PONG")), (1, command(b"SUBSCRIBE", b"t")),
         (1, command(b"CANCEL", b"t")), (0, command(b"JOIN", b"g")), (0, command(b"DANCE"))],
        ["not-encrypted"] * 6, "complete", 0,
    ),
    "ERROR on CURVE": ([*ENCRYPTED, (1, command(b"ERROR", b"\x02no"))], ["peer-error"], "complete", 0),
    "ERROR instead of WELCOME": (
        [*ENCRYPTED[:3], (1, command(b"ERROR", b"\x03400"))], ["peer-error"], "failed", 0,
    ),
    "PING in the handshake of CURVE": (
        [*ENCRYPTED[:3], (0, command(b"PING", b"\0\1")), *ENCRYPTED[3:]], ["unexpected-command"], "complete", 0,
    ),
    "nonces that do not count up": (
        [*ENCRYPTED, (0, frame(box(5)) * 2 + frame(box(4)) + frame(box(6)))], ["unexpected-command"] * 2, "complete", 0,
    ),
    "nonces of a replay across octets": (
        [*ENCRYPTED, (0, frame(box(256)) + frame(box(255)))], ["unexpected-command"], "complete", 0,
    ),
    "nonces of both sides": (
        [*ENCRYPTED, (0, b"".join(frame(box(number)) for number in (3, 5, 255, 256, 2**32 - 1, 2**32, 2**32 + 1))),
         (1, frame(box(2)) + frame(box(3)))], [], "complete", 0,
    ),
    "nonces in host order": (
        [*ENCRYPTED, (0, b"".join(frame(box(int.from_bytes(number.to_bytes(8, "little"), "big"))) for number in (
            *range(3, 600), 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**32 + 1)))],
        [], "complete", 0,
    ),
    "nonces in host order that do not count up": (
        [*ENCRYPTED, (0, frame(box(0x0700000000000000)) + frame(box(0x0600000000000000)))], ["unexpected-command"],
        "complete", 0,
    ),
    "MORE on a box": (
        [*ENCRYPTED, (0, frame(box(3), 1) + frame(box(4))), (0, frame(box(5, 9999), 1)[:500]),
         (0, frame(box(5, 9999), 1)[500:] + frame(box(6)))],
        [], "complete", 0,
    ),
    "a box behind the first frame of a message in clear": (
        [*ENCRYPTED, (0, frame(b"1", 1) + frame(box(3)) + frame(box(4)))],
        ["command-inside-message", "not-encrypted"], "complete", 1,
    ),
    "a box with MORE inside a message in clear": (
        [*ENCRYPTED, (0, frame(b"1", 1) + frame(box(3), 1) + frame(b"2"))],
        ["command-inside-message", "not-encrypted"], "complete", 1,
    ),
    "3.1 command on 3.0": (
        [(0, greeting()), (1, greeting(minor=0)), *peers()[2:], (0, command(b"PING", b"\0\1"))],
        ["command-of-later-version"], "complete", 0,
    ),
    "PING in the handshake": (
        [(0, greeting()), (1, greeting()), (0, command(b"PING", b"\0\1")), *peers()[2:]],
        ["unexpected-command"], "complete", 0,
    ),
    "greeting cut": (
        [(0, greeting()[:33]), (1, greeting())], ["greeting-truncated", "handshake-incomplete"], "incomplete", 0,
    ),
    "bad signature": ([(0, bytes(SIGNATURE[:9]) + b"\x7e"), (1, greeting())], ["bad-signature"], "failed", 0),
    "odd signature": (
        [(0, SIGNATURE[:9] + b"\x01" + greeting()[10:]), *peers()[1:]], ["bad-signature"], "complete", 0,
    ),
    "HTTP": ([(0, b"GET / HTTP/1.1\r\n\r\n"), (1, SIGNATURE)], ["greeting-truncated", "not-zmtp"], "failed", 0),
    "2.0 types": ([(0, greeting_v2(8)), (1, greeting_v2(1))], ["incompatible-socket-types"], "complete", 0),
    "2.0 unknown type": ([(0, greeting_v2(42)), (1, greeting_v2(7))], ["unknown-socket-type"], "complete", 0),
    "1.0 zero length": (
        [*BARE, (0, frame_v1(b"ok")), (0, b"\0"), (0, frame_v1(b"no"))], ["zero-length-frame"], "complete", 1,
    ),
    "1.0 huge length": ([*BARE, (0, frame_v1(b"ok")), (0, b"\xff" * 9 + b"\0")], ["frame-too-long"], "complete", 1),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_fault_is_reported(case: str) -> None:
    sent, codes, handshake, messages = CASES[case]
    events = dissect(sent)
    assert sorted(problems(events)) == sorted(codes)
    assert summary(events).handshake == handshake
    assert sum(isinstance(event, Message) for event in events) == messages


@pytest.mark.parametrize("sockets", [(b"PUSH", b"PULL"), (b"SUB", b"PUB"), (b"ROUTER", b"DEALER")])
def test_who_may_not_subscribe_has_no_subscriptions(sockets: tuple[bytes, bytes]) -> None:
    events = dissect([*peers(*sockets), (1, command(b"SUBSCRIBE", b"t"))])
    assert [event.topic for event in events if isinstance(event, Subscription)] == [b"t"]
    assert summary(events).subscriptions == []


def test_more_on_a_box_costs_no_box() -> None:
    sent = [*ENCRYPTED, (0, frame(box(3), 1)), (0, frame(box(4, 9999), 1)[:700]), (0, frame(box(4, 9999), 1)[700:])]
    events = dissect([*sent, (0, frame(box(5)))])
    boxes = [event for event in events if isinstance(event, Command) and event.name == "MESSAGE"]
    assert [(event.packet, event.nonce) for event in boxes] == [
        (7, b"\0\0\0\0\0\0\0\3"),
        (9, b"\0\0\0\0\0\0\0\4"),
        (10, b"\0\0\0\0\0\0\0\5"),
    ]
    assert not any(event.incomplete for event in boxes)


def test_where_the_mechanism_is_only_assumed_nothing_is_told_to_be_in_clear() -> None:
    late = [(0, frame(box(number))) for number in range(3, 9)] + [(0, command(b"PING", b"\0\1")), (1, command(b"PONG"))]
    assert "not-encrypted" not in problems(dissect(late, from_start=False))


def test_a_box_is_no_frame_of_a_message_in_clear() -> None:
    events = dissect([*ENCRYPTED, (0, frame(b"1", 1) + frame(box(3)) + frame(box(4)))])
    assert frames_of(events) == [[b"1"]]
    assert [event.name for event in events if isinstance(event, Command)][-2:] == ["MESSAGE", "MESSAGE"]


def test_capture_that_ends_inside_a_message_is_no_fault() -> None:
    events = dissect([*peers(), (0, frame(b"1", 1))], end="open")
    assert problems(events) == ["capture-ends-inside"]
    assert PROBLEMS["capture-ends-inside"].severity == "note"


@pytest.mark.parametrize("end", ["fin", "rst", "timeout", "open"])
@pytest.mark.parametrize(
    ("announced", "came", "implausible"),
    [
        (1 << 40, 100, True),
        (1 << 40, 5_000_000, True),
        ((1 << 30) + 200, 100, True),
        ((1 << 30) + 100, 100, False),  # 1 GiB is missing, not more
        ((1 << 30) + (20 << 20), 15 << 20, False),  # of which much came
        (1 << 20, 100, False),
    ],
)
def test_a_frame_of_which_over_1_gib_is_missing(announced: int, came: int, implausible: bool, end: str) -> None:
    header = b"\2" + announced.to_bytes(8, "big")
    events = dissect([*peers(), (0, header + bytes(100)), (0, bytes(came - 100))], end=end)
    usual = "capture-ends-inside" if end == "open" else "truncated-frame"
    assert problems(events) == ["implausible-length" if implausible else usual]
    assert PROBLEMS["implausible-length"].severity == "warning"
    assert PROBLEMS[usual].severity == "note"


def test_octets_that_the_capture_lacks_count_as_if_they_had_come() -> None:
    begins = b"\2" + (3 << 30).to_bytes(8, "big") + b"begins"
    events = dissect([*peers(), (0, begins), (0, 1 << 30), (0, b"goes on")])
    assert problems(events) == ["capture-gap", "truncated-frame"]


def test_a_heartbeat_of_which_the_name_is_not_captured_accuses_nobody() -> None:
    out: list[AnyEvent] = []
    connection = ZmtpConnection(out, 1, CLIENT, SERVER)
    for number, (side, octets) in enumerate(peers(), 1):
        connection.halves[side].feed(octets, number, number)
    ping = command(b"PING", b"\0\1")
    connection.client.feed(frame(b"1", 1) + ping[:5], 5, 5)
    connection.client.gap(len(ping) - 5, True, 5, 5)
    connection.client.feed(frame(b"2"), 6, 6)
    assert problems(out) == ["packets-cut"]
    assert frames_of(out) == [[b"1", b"2"]]


def test_notes_that_would_repeat_are_told_once() -> None:
    assert problems(dissect(inside(*[b"\x02" + bytes(7) + b"\x03odd"] * 50))) == ["long-flag-not-needed"]


def test_codes_are_kebab_case() -> None:
    assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", code) for code in PROBLEMS)


def test_every_code_used_is_documented_and_every_documented_code_is_used() -> None:
    sources = [path for part in ("dissectors", "zmtpsniff") for path in (PROJECT / part).rglob("*.py")]
    text = "".join(path.read_text() for path in sources if path.name != "problems.py")
    assert [code for code in PROBLEMS if f'"{code}"' not in text] == []


@pytest.mark.parametrize(("end", "over"), [("fin", "the connection "), ("open", "")])
def test_a_capture_that_ends_is_no_connection_that_ends(end: str, over: str) -> None:
    events = dissect([(0, greeting()[:20]), (1, greeting()[:11])], end=end)
    details = [event.detail for event in events if isinstance(event, Problem)]
    assert len(details) == 3
    assert all(("the connection" in detail) is bool(over) for detail in details), details


def test_an_error_may_give_no_reason() -> None:
    """JeroMQ sends such a one."""
    assert refusal("server", "", "CURVE") == "ERROR from the server, without a reason"
    assert refusal("client", "no", "NULL") == "ERROR from the client: no"
