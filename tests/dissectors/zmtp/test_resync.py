"""Finding frames again behind holes: nothing is shown as whole that is not, and a search reads few frames."""

import os
import struct
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Message, Octets, Problem
from dissectors.zmtp import resync
from dissectors.zmtp.connection import ZmtpConnection
from tests.support.examples import crossed, examples
from tests.world.conversation import CLIENT, binary_body, greetings, json_body, numbers_body, text_body, zeros_body
from tests.world.octets import COMMAND, MORE, frame, message

LOSSES = int(os.environ.get("ZMTPSNIFF_LOSSES", "6"))
"""Streams of each kind that lose segments, some 200 messages each."""

Body = Callable[[Random, int], bytes]


def sparse_body(random: Random, length: int) -> bytes:
    return bytes(0 if random.random() < 0.3 else random.randrange(256) for _ in range(length))


def tiny_body(random: Random, length: int) -> bytes:
    return bytes(random.randrange(8) for _ in range(length))


def shorts_body(random: Random, length: int) -> bytes:
    return b"".join(struct.pack(">H", random.randrange(700)) for _ in range(length // 2 + 1))[:length]


def mixed_body(random: Random, length: int) -> bytes:
    return random.choice([binary_body, text_body, json_body, numbers_body, zeros_body])(random, length)


BODIES: dict[str, Body] = {
    "binary": binary_body,
    "text": text_body,
    "json": json_body,
    "numbers": numbers_body,
    "zeros": zeros_body,
    "30 % zeros": sparse_body,
    "octets below 8": tiny_body,
    "16-bit numbers": shorts_body,
    "mixed": mixed_body,
}


def opened(version: int) -> tuple[list[AnyEvent], ZmtpConnection]:
    """A connection of which the greetings have been read, and a few messages."""
    events: list[AnyEvent] = []
    connection = ZmtpConnection(events, 1, "a:1", "b:2")
    for piece in greetings(version, b"PUSH", b"PULL"):
        (connection.client if piece.side == CLIENT else connection.server).feed(piece.data, 1, 1)
    connection.client.feed(message(version, b"hello") * 4, 1, 1)
    assert connection.accepted
    return events, connection


def cut(raw: list[bytes], random: Random) -> list[bytes]:
    """The segments of messages: a stream cut anywhere, or each message, or a batch of them, from a new one on."""
    size = random.choice([500, 1448, 1448, 4000])
    batches = [b"".join(raw)]
    style = random.choice(["stream", "stream", "messages", "batches"])
    if style == "messages":
        batches = raw
    elif style == "batches":
        batches = [b"".join(raw[at : at + 20]) for at in range(0, len(raw), 20)]
    return [batch[at : at + size] for batch in batches for at in range(0, len(batch), size)]


def lossy(version: int, segments: Iterable[bytes], lost: Callable[[int], bool]) -> list[AnyEvent]:
    """The events of segments of which some are lost."""
    events, connection = opened(version)
    events.clear()
    missing = 0
    for number, segment in enumerate(segments, 2):
        if lost(number):
            missing += len(segment)
            continue
        if missing:
            connection.client.gap(missing, False, number, number)
        missing = 0
        connection.client.feed(segment, number, number)
    connection.finish("open", 0, 1)
    return events


def invented(events: list[AnyEvent], sent: list[list[bytes]]) -> list[list[Octets]]:
    """Messages that are shown as whole but were not sent, or not in this order."""
    found = []
    at = 0
    for event in events:
        if isinstance(event, Message) and not event.incomplete:
            place = next((place for place in range(at, len(sent)) if sent[place] == event.frames), -1)
            if place < 0:
                found.append(event.frames)
            else:
                at = place + 1
    return found


@pytest.mark.parametrize(("kind", "version"), crossed([*BODIES], [1, 3]))
def test_what_is_shown_as_whole_was_sent(kind: str, version: int) -> None:
    for number in range(LOSSES):
        random = Random(f"{kind} {version} {number}")
        most = random.choice([30, 200, 300, 1500, 6000])
        parts = random.choice([1, 2, 2, 3, 5])
        sent = [
            [BODIES[kind](random, random.randrange(most)) for _ in range(random.randint(1, parts))]
            for _ in range(random.choice([100, 300]))
        ]
        segments = cut([message(version, *bodies) for bodies in sent], random)
        rate = random.choice([0.01, 0.03, 0.1])
        events = lossy(version, segments, lambda _: random.random() < rate)  # noqa: B023
        assert not invented(events, sent), number


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(
    st.lists(
        st.lists(st.binary(max_size=40) | st.just(b"\0\1\1\0" * 5), min_size=1, max_size=4), min_size=8, max_size=60
    ),
    st.integers(5, 200),
    st.sets(st.integers(2, 40), max_size=6),
    st.sampled_from([1, 3]),
)
def test_nothing_is_invented(sent: list[list[bytes]], size: int, lost: set[int], version: int) -> None:
    """Short messages of any octets, some that look like frames."""
    stream = b"".join(message(version, *bodies) for bodies in sent)
    segments = [stream[at : at + size] for at in range(0, len(stream), size)]
    shown = [event for event in lossy(version, segments, lost.__contains__) if isinstance(event, Message)]
    assert len(shown) <= len(sent) + 2 * len(lost)
    before = min(lost, default=len(segments) + 2)
    known = [event.frames for event in shown if event.packet < before and not event.incomplete]
    assert known == sent[: len(known)]


def test_a_command_does_not_say_that_a_message_begins() -> None:
    """libzmq sends PING between the frames of a message, so that what follows one may be the rest of a message."""
    events, connection = opened(3)
    events.clear()
    half = connection.client
    half.gap(1000, False, 2, 2)
    ping = frame(b"\4PING\0\0", COMMAND)
    half.feed(ping + frame(b"the last frame of a message"), 3, 3)
    half.feed(message(3, b"another"), 4, 4)
    shown = [event for event in events if isinstance(event, Message)]
    assert [event.incomplete for event in shown] == [True, False]


def test_false_frames_are_left_again() -> None:
    """Octets that look like a few frames, and then cannot be one, are no reason to read on."""
    events, connection = opened(3)
    events.clear()
    half = connection.client
    half.gap(1000, False, 2, 2)
    half.feed(frame(b"x" * 20) + frame(b"letters"), 3, 3)  # a segment that looks like two messages, but short ones
    half.feed(b"\xf8 is no flags octet", 4, 4)
    random = Random(3)
    for number in range(40):
        half.feed(message(3, text_body(random, 100)), 5 + number, 5 + number)
    assert sum(isinstance(event, Message) and not event.incomplete for event in events) >= 35
    assert not [event for event in events if isinstance(event, Problem) and event.code == "reserved-flags"]


def test_text_behind_a_long_flag_is_no_length() -> None:
    assert resync.find_frames(b"\x06m52 ok", [0], 2, True) is None


@pytest.mark.parametrize(
    ("octets", "framing", "begin"),
    [
        # The rest of a 2.0 greeting, which may be the header of a frame of 91,042,336 octets.
        (b"\x03\0\0\0" + frame(b"m2 20") + b"".join(frame(b"m%d ok" % n) for n in range(30)), 2, 4),
        # An identity of ZMTP 1.0 and a message, which may be frames of 2.0, too.
        (b"\x01\0\x01\x01\x6d\0" + b"q1 error unit temperature, humidity".ljust(108), 0, None),
    ],
)
def test_no_frames_are_found_against_better_ones(octets: bytes, framing: int, begin: int | None) -> None:
    found = resync.find_frames(octets, [0, len(octets)], framing, True)
    if begin is None:
        assert found is None
    else:
        assert found is None or found.offset >= begin
        rest = resync.find_frames(octets, [0, begin, len(octets)], framing, True)
        assert rest is not None
        assert rest.offset == begin


@pytest.mark.parametrize("revision", [1, 3])
def test_a_hole_in_place_of_the_signature_is_no_reason_to_lose_a_greeting(revision: int) -> None:
    """Behind it the revision, the socket type and the identity's frame look like frames of messages."""
    events: list[AnyEvent] = []
    connection = ZmtpConnection(events, 1, "a:1", "b:2")
    connection.server.feed(b"\xff\0\0\0\0\0\0\0\1\x7f\1\6\0\0", 1, 1)
    connection.client.gap(10, False, 2, 2)
    connection.client.feed(bytes([revision]), 3, 3)
    connection.client.feed(b"\5\0\0", 3, 3)
    for number in range(4):
        connection.client.feed(b"\1\5\0\0\1\0\1" + frame(b"", MORE) + frame(b"q%d" % number), 4, 4)
    connection.finish("fin", 0, 5)
    shown = [event for event in events if isinstance(event, Message)]
    assert [(len(event.frames), event.incomplete) for event in shown] == [(3, False)] * 4


# ---------------------------------------------------------------------- time

DENSE: dict[str, Callable[[Random, int], bytes]] = {
    "zeros": zeros_body,
    "ones": lambda _, length: b"\1" * length,
    "empty frames": lambda _, length: b"\1\0" * (length // 2),
    "short frames": lambda _, length: b"\0\5" * (length // 2),
    "long headers": lambda _, length: (b"\2" + bytes(7)) * (length // 8),
    "numbers": numbers_body,
    "16-bit numbers": shorts_body,
    "octets below 8": tiny_body,
    "octets below 16": lambda random, length: bytes(random.randrange(16) for _ in range(length)),
    "30 % zeros": sparse_body,
}


def test_a_window_of_many_places_reads_few_frames() -> None:
    read = 0

    class WatchedOctets(bytes):
        def __getitem__(self, place: Any) -> Any:
            nonlocal read
            read += 1
            return super().__getitem__(place)

    for kind, make in DENSE.items():
        for framing in (1, 2):
            read = 0
            octets = WatchedOctets(make(Random(kind), 1 << 17))
            resync.Window(octets, list(range(0, len(octets), 1448)), framing).find(known=True)
            assert 0 < read < 20_000, (kind, framing)


def test_one_segment_that_is_longer_than_a_window() -> None:
    """No segment begins in the window that is kept of the body."""
    octets = b"".join(frame(b"%d" % number * 10) for number in range(20_000))
    found = resync.find_frames(octets[5:100_000], [], 2, known=True)
    assert found is not None
    assert octets[5 + found.offset] == 0
