"""Boxes of CURVE, opened: what is in them is shown as it would be in clear, and what does not open accuses nobody
wrongly. Both sides are made by hand (tests/support/curve_octets.py); tests/peers/test_curve_peers.py has real ones."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings

from dissectors.events import AnyEvent, Command, Connection, Cut, Hidden, Message, Problem, Subscription
from dissectors.zmtp import curve as curve_module
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.curve import Curve as Opener
from dissectors.zmtp.curve_keys import Key, KeyRing, SecretKey, SharedKey, Sodium
from dissectors.zmtp.limits import Limits
from tests.dissectors.zmtp.test_websocket import message as zws_message
from tests.dissectors.zmtp.test_websocket import request, response
from tests.support.curve_octets import Curve, Sent, both, seal
from tests.support.examples import examples
from tests.world.events import CLIENT, SERVER, problems, summary
from tests.world.octets import command, frame, peers, prop

SECOND = 1_000_000_000


def dissect(
    sent: Sent,
    keys: list[Key],
    *,
    late: dict[int, list[Key]] | None = None,
    patience_ns: int = 0,
    limits: Limits | None = None,
    end: str = "fin",
    end_ns: int | None = None,
    from_start: bool = True,
    between: Callable[[ZmtpConnection, list[AnyEvent], Opener], ZmtpConnection] | None = None,
    gaps: frozenset[int] = frozenset(),
) -> list[AnyEvent]:
    """The events of what the sides send, a packet every second; ``late`` are keys that come before a packet."""
    out: list[AnyEvent] = []
    opener = Opener(KeyRing(keys))
    opener.patience_ns = patience_ns
    connection = ZmtpConnection(out, 1, CLIENT, SERVER, (from_start, from_start), limits, curve=opener)
    for number, (side, octets) in enumerate(sent, 1):
        for key in (late or {}).get(number, []):
            opener.ring.add(key)
        if number in gaps:
            connection.halves[side].gap(len(octets), False, number * SECOND, number)
        else:
            connection.halves[side].feed(octets, number * SECOND, number)
        opener.settle(number * SECOND)
        if between is not None:
            connection = between(connection, out, opener)
    connection.finish(end, 0, end_ns or len(sent) * SECOND)  # type: ignore[arg-type]
    assert opener.waiting_since_ns is None
    return out


def messages(events: list[AnyEvent]) -> list[list[object]]:
    return [list(event.frames) for event in events if isinstance(event, Message)]


def names(events: list[AnyEvent]) -> list[str]:
    return [event.name for event in events if isinstance(event, Command)]


def conversation(curve: Curve) -> Sent:
    """Messages both ways, with several frames and none, and heartbeats between them."""
    sent = curve.handshake()
    sent += curve.multipart(0, b"", b"how are you") + curve.multipart(1, b"", b"fine", b"x" * 300)
    sent += [(0, curve.message(0, b"\4PING\0\x0aabc", 2)), (1, curve.message(1, b"\4PONGabc", 2))]
    return [*sent, (0, curve.message(0, b""))]


def in_clear() -> Sent:
    said = [(0, frame(b"", 1) + frame(b"how are you")), (1, frame(b"", 1) + frame(b"fine", 1) + frame(b"x" * 300))]
    said += [(0, command(b"PING", b"\0\x0aabc")), (1, command(b"PONG", b"abc")), (0, frame(b""))]
    return peers(b"DEALER", b"ROUTER") + said


def bare(events: list[AnyEvent]) -> list[object]:
    """The events above the handshake, without what depends on octets on the wire."""
    found: list[object] = []
    for event in events:
        if isinstance(event, Message):
            found.append((event.src, event.frames, event.socket_type, event.incomplete))
        elif isinstance(event, Subscription):
            found.append((event.src, event.action, event.topic))
        elif isinstance(event, Command) and event.name in ("PING", "PONG"):
            found.append((event.src, event.name, event.ttl_ms, event.context))
        elif isinstance(event, Connection):
            found.append((event.messages.client, event.messages.server, event.handshake, event.client.socket_type))
    return found


WAYS = sorted(Curve().ways())


@pytest.mark.parametrize("way", WAYS)
def test_each_kind_of_key_opens_all(way: str) -> None:
    curve = Curve()
    events = dissect(conversation(curve), curve.ways()[way])
    assert problems(events) == []
    assert bare(events) == bare(dissect(in_clear(), []))
    assert all(event.encrypted for event in events if isinstance(event, Message))
    initiate, ready = (event for event in events if isinstance(event, Command) and event.name in ("INITIATE", "READY"))
    assert (initiate.socket_type, initiate.identity, initiate.encrypted) == ("DEALER", b"me", True)
    assert initiate.properties == {"Socket-Type": b"DEALER", "Identity": b"me"}
    assert (initiate.long_term_key, initiate.shared_key) == (curve.client.public, Hidden(32))
    assert (initiate.box, ready.box) == (None, None)
    assert ready.socket_type == "ROUTER"


def test_keys_of_others_change_nothing() -> None:
    sent = conversation(Curve())
    others = [key for way in Curve(2).ways().values() for key in way]
    assert dissect(sent, others, end="open") == dissect(sent, [], end="open")
    assert "MESSAGE" in names(dissect(sent, others))
    assert dissect(in_clear(), others) == dissect(in_clear(), [])


def test_a_wrong_key_of_a_connection_hides_no_right_one() -> None:
    """Such as that of its HELLO, which a program computes that looks for wrong server keys."""
    curve = Curve()
    sent = conversation(curve)
    right = curve.ways()["k"]
    (known,) = right
    assert isinstance(known, SharedKey)
    wrong = SharedKey(known.client, curve.server.public, bytes(32))
    assert dissect(sent, [*right, wrong]) == dissect(sent, [wrong, *right]) == dissect(sent, right)


def test_the_server_s_long_term_key_opens_the_first_half_of_the_handshake() -> None:
    curve = Curve()
    events = dissect(conversation(curve), [SecretKey(None, curve.server.secret)])
    hello, welcome, initiate = [event for event in events if isinstance(event, Command)][:3]
    assert (hello.server_key, welcome.server_key) == (curve.server.public, curve.server_now.public)
    assert (hello.encrypted, welcome.encrypted, initiate.encrypted) == (True, True, False)
    assert messages(events) == []
    assert problems(events) == []


def test_secrets_are_shown_if_asked_for() -> None:
    curve = Curve()
    events = dissect(conversation(curve), curve.ways()["s'"], limits=Limits(show_secrets=True))
    assert [event.shared_key for event in events if isinstance(event, Command) and event.shared_key] == [curve.key]


# ------------------------------------------------------------------ vectors

# From the tests of NaCl (tests/box.c, box2.c): a public and a secret key, the key that they make, a nonce, a box, and
# what is in it.
ALICE = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
FIRST_KEY = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
NONCE = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
BOX = bytes.fromhex(
    "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce8"
    "7b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0"
    "e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5"
)
PLAIN = bytes.fromhex(
    "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561"
    "f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c6090"
    "2e52f0a089bc76897040e082f937763848645e0705"
)


def test_vectors_of_nacl() -> None:
    sodium = Sodium()
    assert sodium.shared(ALICE, BOB) == FIRST_KEY
    assert sodium.open(FIRST_KEY, NONCE, BOX) == PLAIN
    assert sodium.open(FIRST_KEY, NONCE, BOX[:-1]) is None
    assert sodium.shared(bytes(32), BOB) is None  # of low order
    for length in range(17, len(BOX)):
        assert sodium.begin(FIRST_KEY, NONCE, BOX[:length]) == PLAIN[: length - 16]
    large = bindings.crypto_box_afternm(bytes(1 << 18), NONCE, FIRST_KEY)  # more than the buffer holds
    assert sodium.open(FIRST_KEY, NONCE, large) == bytes(1 << 18)
    assert sodium.open(FIRST_KEY, NONCE, b"\0" + large[1:]) is None


KEY, SHORT, LONG = bytes(range(32)), bytes(7) + b"\2", bytes(range(16))
# The box that KEY makes from "plain" under each nonce of 26/CURVEZMQ, computed once with libsodium 1.0.18.
BOXES = {
    b"CurveZMQHELLO---" + SHORT: "3accdaa31b53e50f3173129dcaefa0e55660f69cf1",
    b"WELCOME-" + LONG: "b51671c85206eef6ca77ff0d4b22cf7b748b24c525",
    b"COOKIE--" + LONG: "683661e2b255ea8e382f88f50a5312df469942f9a7",
    b"CurveZMQINITIATE" + SHORT: "3025d5d8c773020089e5a32babbc1bc5644f5667c0",
    b"VOUCH---" + LONG: "a06facef27f179b9baeb1633d03e4374dc1672138e",
    b"CurveZMQREADY---" + SHORT: "76cf483d34e4102c0da5678a735a7a6d3fde2c6315",
    b"CurveZMQMESSAGEC" + SHORT: "defdcb4de49d9b8f441feb177a5335c330728ef6c7",
    b"CurveZMQMESSAGES" + SHORT: "f31ac72ff2ad783f073758e0ec45765edbd17ae254",
}


@pytest.mark.parametrize("nonce", BOXES)
def test_vectors_of_each_box(nonce: bytes) -> None:
    assert Sodium().open(KEY, nonce, bytes.fromhex(BOXES[nonce])) == b"plain"


# ------------------------------------------------------------------ what does not open


def tampered(octets: bytes, place: int) -> bytes:
    return octets[:place] + bytes([octets[place] ^ 1]) + octets[place + 1 :]


@pytest.mark.parametrize("place", [2 + 16, 2 + 31, 2 + 32, -1])
def test_a_box_that_was_changed_is_told_and_costs_itself_alone(place: int) -> None:
    curve = Curve()
    sent = curve.handshake()
    boxes = [curve.message(0, b"one"), curve.message(0, b"two"), curve.message(0, b"three"), curve.message(0, b"four")]
    sent += [(0, boxes[0]), (0, tampered(boxes[1], place % len(boxes[1]))), (0, boxes[2]), (0, boxes[3])]
    events = dissect(sent, curve.ways()["k"])
    assert problems(events) == ["box-not-opened"]
    assert names(events)[-1] == "MESSAGE"
    # The capture does not tell whether the box was a part of the next message.
    told = [(event.frames, event.incomplete) for event in events if isinstance(event, Message)]
    assert told == [([b"one"], False), ([b"three"], True), ([b"four"], False)]


def test_a_changed_nonce_is_told_too() -> None:
    curve = Curve()
    sent = [*curve.handshake(), (0, tampered(curve.message(0, b"one"), 2 + 8))]
    assert problems(dissect(sent, curve.ways()["k"])) == ["box-not-opened"]


@pytest.mark.parametrize("place", [4, 5])
def test_changed_boxes_of_the_handshake(place: int) -> None:
    """READY is accused, since INITIATE has proved the key; INITIATE is not: nothing has proved it yet."""
    curve = Curve()
    sent = conversation(curve)
    sent[place] = (sent[place][0], tampered(sent[place][1], len(sent[place][1]) - 1))
    events = dissect(sent, curve.ways()["k"])
    assert problems(events) == (["box-not-opened"] if place == 5 else [])
    assert len(messages(events)) == 3


def test_a_vouch_that_is_not_the_client_s_is_told() -> None:
    curve = Curve()
    sent = curve.handshake()[:4]
    nonce, vouch = bytes(8), bytes(16) + seal(bytes(64), b"VOUCH---" + bytes(16), KEY)
    metadata = prop(b"Socket-Type", b"DEALER")
    box = seal(curve.client.public + vouch + metadata, b"CurveZMQINITIATE" + nonce, curve.key)
    sent.append((0, command(b"INITIATE", curve.cookie + nonce + box)))
    assert problems(dissect(sent, curve.ways()["s'"], end="open")) == ["box-not-opened", "handshake-incomplete"]
    assert problems(dissect(sent, curve.ways()["k alone"], end="open")) == ["handshake-incomplete"]


def test_a_key_that_opens_nothing_accuses_nobody() -> None:
    curve = Curve()
    wrong = SharedKey(curve.client_now.public, curve.server_now.public, bytes(32))
    assert problems(dissect(conversation(curve), [wrong])) == []


def test_holes_accuse_nobody() -> None:
    curve = Curve()
    sent = curve.handshake()
    sent += curve.multipart(0, b"one", b"two") + curve.multipart(0, b"three", b"four") + curve.multipart(0, b"five")
    for hole in range(3, len(sent) + 1):
        events = dissect(sent, curve.ways()["k"], gaps=frozenset({hole}))
        assert {problem.code for problem in events if isinstance(problem, Problem) and problem.severity == "error"} <= {
            "capture-gap"
        }
        assert "box-not-opened" not in problems(events)
        assert "server-key-wrong" not in problems(events)
        for event in events:
            if isinstance(event, Message) and event.frames not in (
                [b"one", b"two"], [b"three", b"four"], [b"five"]
            ):  # fmt: skip
                assert event.incomplete


def test_a_hole_in_a_box_shows_what_is_before_it() -> None:
    curve = Curve()
    body = bytes(range(256)) * 100
    sent = [*curve.handshake(), (0, curve.message(0, b"first"))]
    whole = curve.message(0, body)
    sent += [(0, whole[:5000]), (0, whole[5000:9000]), (0, whole[9000:]), (0, curve.message(0, b"last"))]
    events = dissect(sent, curve.ways()["k"], gaps=frozenset({9}))
    cut = next(event for event in events if isinstance(event, Message) and event.incomplete)
    (octets,) = cut.frames
    assert isinstance(octets, Cut)
    assert octets.length == len(body)
    assert body.startswith(octets.data)
    assert len(octets.data) > 4000
    assert messages(events)[-1] == [b"last"]
    assert "box-not-opened" not in problems(events)


def test_large_bodies_are_cut_as_in_clear() -> None:
    curve = Curve()
    body = bytes(range(256)) * 1024
    sent = [*curve.handshake(), (0, curve.message(0, body)), (0, curve.message(0, bytes(65_536)))]
    assert messages(dissect(sent, curve.ways()["k"])) == [[Cut(body[:65_536], len(body))], [bytes(65_536)]]
    assert not any(event.incomplete for event in dissect(sent, curve.ways()["k"]) if isinstance(event, Message))
    assert messages(dissect(sent, curve.ways()["k"], limits=Limits(0))) == [[body], [bytes(65_536)]]


# ------------------------------------------------------------------ what is in boxes


def test_what_does_not_belong_into_a_box() -> None:
    curve = Curve()
    sent = curve.handshake()
    sent += [(0, curve.message(0, b"reserved", 0x80)), (0, curve.message(0, b"\5READY", 2))]
    sent += [
        (0, curve.message(0, b"", 2)),
        (0, curve.message(0, b"\4NONE", 2)),
        (0, curve.message(0, b"\4PING\0\1", 3)),
    ]
    sent += [(0, curve.message(0, b"part", 1)), (0, curve.message(0, b"\7MESSAGEx", 2)), (0, curve.message(0, b"end"))]
    events = dissect(sent, curve.ways()["k"])
    assert problems(events) == [
        "reserved-flags",
        "unexpected-command",
        "malformed-command",
        "unknown-command",
        "command-with-more",
        "command-inside-message",
        "unknown-command",
    ]
    assert messages(events) == [[b"reserved"], [b"part", b"end"]]


def test_what_is_in_clear_between_boxes_is_told() -> None:
    curve = Curve()
    sent = [*curve.handshake(), (0, curve.message(0, b"a")), (0, frame(b"clear")), (0, curve.message(0, b"b"))]
    events = dissect(sent, curve.ways()["k"])
    assert problems(events) == ["not-encrypted"]
    told = [(event.frames, event.encrypted) for event in events if isinstance(event, Message)]
    assert told == [([b"a"], True), ([b"clear"], False), ([b"b"], True)]


plaintexts = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=12)


@settings(max_examples=examples(150))
@given(plaintexts, st.sampled_from(["k", "k alone"]))
def test_whatever_is_in_boxes_is_read_as_in_clear(said: list[tuple[int, bytes]], way: str) -> None:
    curve = Curve()
    sealed = [*curve.handshake(), *((0, curve.message(0, body, flags & 3)) for flags, body in said)]
    clear = [*peers(), *((0, frame(body, flags & 1 | (flags & 2) << 1)) for flags, body in said)]
    events, wanted = dissect(sealed, curve.ways()[way]), dissect(clear, [])
    assert problems(events) == problems(wanted)
    assert bare(events) == bare(wanted)


def test_over_websocket() -> None:
    curve = Curve()
    sent: Sent = [(0, request("ZWS2.0/CURVE")), (1, response("ZWS2.0/CURVE"))]

    def over(side: int, octets: bytes) -> None:
        """A frame of ZMTP as one of ZWS."""
        long = octets[0] & 2
        flags = octets[0] & 1 | (octets[0] & 4) >> 1
        sent.append((side, zws_message(side, octets[9 if long else 2 :], flags)))

    for side, octets in conversation(curve):
        if not octets.startswith(b"\xff"):
            over(side, octets)
    events = dissect(sent, curve.ways()["k"])
    assert problems(events) == []
    assert messages(events) == messages(dissect(in_clear(), []))
    assert summary(events).transport == "ws"


# ------------------------------------------------------------------ without the beginning


@pytest.mark.parametrize("skip", [6, 7, 8])
@pytest.mark.parametrize("way", ["k", "k alone"])
def test_a_capture_that_begins_later_is_tried_with_every_key(skip: int, way: str) -> None:
    curve = Curve()
    sent = conversation(curve)
    others = [Curve(seed).ways()["k"][0] for seed in range(2, 30)]
    events = dissect(sent[skip:], [*others, *curve.ways()[way], *others[:3]], from_start=False)
    assert messages(events)[-1:] == messages(dissect(sent, curve.ways()["k"]))[-1:]
    assert "box-not-opened" not in problems(events)
    assert "MESSAGE" not in names(events)
    # The message whose first frame is not in the capture says so.
    first = next(event for event in events if isinstance(event, Message) and event.src == CLIENT)
    assert first.incomplete or first.frames in ([b"", b"how are you"], [b""])


def test_either_side_may_be_the_client_of_curve() -> None:
    """libzmq's server of CURVE may be the one that connects."""
    curve = Curve()
    turned = [(1 - side, octets) for side, octets in conversation(curve)]
    for sent, start in ((turned, True), (turned[6:], False)):
        events = dissect(sent, curve.ways()["k"], from_start=start)
        assert messages(events) == messages(dissect(in_clear(), []))


# ------------------------------------------------------------------ keys that come late


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("late", range(2, 13))
def test_a_key_that_comes_late_opens_what_came_before(way: str, late: int) -> None:
    curve = Curve()
    sent = conversation(curve)
    events = dissect(sent, [], late={late: curve.ways()[way]}, patience_ns=60 * SECOND)
    wanted = dissect(sent, curve.ways()[way])
    assert bare(events) == bare(wanted)
    # HELLO and WELCOME do not wait: what s opens in them is shown if it came first.
    assert [event for event in events if not isinstance(event, Command) or event.packet > 4] == [
        event for event in wanted if not isinstance(event, Command) or event.packet > 4
    ]


def by_sides(events: list[AnyEvent]) -> list[list[AnyEvent]]:
    """The events of each side; HELLO and WELCOME do not wait, so a key that comes late opens no more in them."""
    said = [event for event in events if not isinstance(event, Command) or event.name not in ("HELLO", "WELCOME")]
    return [[event for event in said if getattr(event, "src", None) == side] for side in (CLIENT, SERVER)]


@pytest.mark.parametrize("skip", [0, 6, 7, 8])
def test_a_key_that_comes_late_shows_the_same_where_octets_are_missing(skip: int) -> None:
    """Holes, long bodies, and late beginnings, where frames are looked for first and several boxes wait at once."""
    curve = Curve()
    key = curve.ways()["k alone"]
    sent = conversation(curve) + [(side, curve.message(side, b"%d" % side)) for side in (0, 1) * 3]
    sent += [*curve.multipart(0, b"a", b"b"), (1, curve.message(1, bytes(70000))), (0, curve.message(0, b"c"))]
    sent = sent[skip:]
    first = 1 if skip else 5
    for gap in range(first, len(sent) + 1):
        gaps, start = frozenset({gap} if gap > first else ()), not skip
        wanted = dissect(sent, key, from_start=start, gaps=gaps)
        assert not skip or any(event.incomplete for event in wanted if isinstance(event, Message))
        for late in (first + 1, gap, min(gap + 1, len(sent)), len(sent)):
            events = dissect(sent, [], late={late: key}, patience_ns=600 * SECOND, from_start=start, gaps=gaps)
            assert by_sides(events) == by_sides(wanted), (gap, late)


def test_a_key_that_comes_late_counts_what_is_in_clear_between_boxes_too() -> None:
    curve = Curve()
    sent = [*curve.handshake(), (0, curve.message(0, b"a") + frame(b"clear") + curve.message(0, b"b"))]
    sent.append((1, frame(b"c")))
    events = dissect(sent, [], late={len(sent): curve.ways()["k"]}, patience_ns=60 * SECOND)
    parts = [(event.frames, event.part) for event in events if isinstance(event, Message)]
    assert parts == [([b"a"], 1), ([b"clear"], 2), ([b"b"], 3), ([b"c"], 1)]


def test_patience_ends() -> None:
    curve = Curve()
    sent = conversation(curve)
    events = dissect(sent, [], late={11: curve.ways()["k"]}, patience_ns=2 * SECOND)
    # INITIATE came at 5 s; what came until 7 s has been given out as it was.
    assert [event.packet for event in events if isinstance(event, Command) and event.box and event.packet > 4] == [
        5, 6, 7, 8, 9, 10
    ]  # fmt: skip
    assert [(event.packet, event.incomplete) for event in events if isinstance(event, Message)] == [
        (11, True), (14, True)
    ]  # fmt: skip
    assert dissect(sent, [], patience_ns=2 * SECOND) == dissect(sent, [])


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_module, "_WAITING_OCTETS", 100_000)
    curve = Curve()
    sent = curve.handshake() + [(0, curve.message(0, bytes(20_000))) for _ in range(20)]
    events = dissect(sent, [], late={26: curve.ways()["k"]}, patience_ns=60 * SECOND)
    assert len(messages(events)) == 1
    assert names(events).count("MESSAGE") == 19
    assert dissect(sent, [], patience_ns=60 * SECOND) == dissect(sent, [])


# ------------------------------------------------------------------ the wrong key of a server


def refused(curve: Curve) -> Sent:
    return curve.handshake()[:3]


def test_a_wrong_server_key_is_told() -> None:
    curve, server = Curve(), Curve(2).server
    events = dissect(refused(curve), [SecretKey(server.public, server.secret)])
    assert problems(events) == ["server-key-wrong"]
    assert summary(events).handshake == "failed"


def test_nobody_is_accused_of_a_wrong_server_key_without_proof() -> None:
    curve, server = Curve(), Curve(2).server
    keys: list[Key] = [SecretKey(server.public, server.secret)]
    own: list[Key] = [SecretKey(curve.server.public, curve.server.secret)]
    for events in (
        dissect(refused(curve), keys, end="open"),  # the server may yet answer
        dissect(refused(curve), own),  # it is the right key: it was something else
        dissect(refused(curve), []),
        dissect([*refused(curve)[:2], (0, b"\4")], keys),  # HELLO is not there
        dissect(refused(curve), keys, gaps=frozenset({3})),
        dissect([*refused(curve), (1, curve.welcome())], keys, gaps=frozenset({4})),
        dissect(refused(curve), keys, end_ns=30 * SECOND),  # the server was silent: it may not have read HELLO
    ):
        assert "server-key-wrong" not in problems(events)


def test_a_key_of_another_server_that_is_known() -> None:
    """HELLO is for a server whose key is known, too; the one that it was sent to has shown another key before."""
    right, wrong = Curve(), Curve(3)
    wrong.client_now = Curve(4).client_now
    keys: list[Key] = [SecretKey(None, right.server.secret), SecretKey(None, wrong.server.secret)]
    out: list[AnyEvent] = []
    opener = Opener(KeyRing(keys))
    for flow, sent in enumerate((conversation(right), refused(wrong)), 1):
        connection = ZmtpConnection(out, flow, CLIENT, SERVER, curve=opener)
        for number, (side, octets) in enumerate(sent, 1):
            connection.halves[side].feed(octets, number, number)
        connection.finish("fin", 0, len(sent))
    (problem,) = (event for event in out if isinstance(event, Problem))
    assert (problem.flow, problem.code) == (2, "server-key-wrong")
    assert right.server.public.hex() in problem.detail


# ------------------------------------------------------------------ snapshots


@pytest.mark.parametrize("way", WAYS)
def test_snapshots_go_on_and_have_no_secrets(way: str) -> None:
    curve = Curve()
    secrets = [curve.key, curve.client.secret, curve.server.secret, curve.client_now.secret, curve.server_now.secret]
    secrets += [curve.cookie_key, both(curve.client_now.public, curve.server.secret)]

    def gone_on(connection: ZmtpConnection, out: list[AnyEvent], opener: Opener) -> ZmtpConnection:
        octets = connection.snapshot()
        assert not any(secret in octets for secret in secrets)
        other = ZmtpConnection.restore(octets, out, curve=Opener(opener.ring))
        assert other.snapshot() == octets
        connection.release()
        return other

    sent = conversation(curve)
    assert dissect(sent, curve.ways()[way], between=gone_on) == dissect(sent, curve.ways()[way])


def test_without_its_keys_a_snapshot_goes_on_with_boxes() -> None:
    curve = Curve()
    sent = conversation(curve)

    def keyless(connection: ZmtpConnection, out: list[AnyEvent], opener: Opener) -> ZmtpConnection:
        return ZmtpConnection.restore(connection.snapshot(), out)

    events = dissect(sent, curve.ways()["k"], between=keyless)
    assert names(events).count("MESSAGE") == 8
    assert problems(events) == []


@settings(max_examples=examples(100))
@given(st.integers(0, 1 << 32))
def test_no_octets_cost_an_exception(seed: int) -> None:
    random = Random(seed)
    curve = Curve()
    sent = [(side, bytearray(octets)) for side, octets in conversation(curve)]
    for _ in range(random.randrange(4)):
        _, octets = random.choice(sent)
        octets[random.randrange(len(octets))] = random.randrange(256)
    del sent[: random.choice([0, 0, 0, 2, 6])]
    cut = [(side, bytes(octets)) for side, octets in sent]
    keys = [key for way in curve.ways().values() for key in way]
    random.shuffle(keys)
    dissect(cut, keys[: random.randrange(len(keys))], patience_ns=random.choice([0, 3 * SECOND]), from_start=False)
