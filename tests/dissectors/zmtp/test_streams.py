"""Real and made-up conversations whose packets are disturbed: what must not change, and what must not be invented."""

import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Greeting, Message, Subscription
from tests.support.examples import examples, sampled
from tests.support.settings import WIRE
from tests.world.conversation import (
    CLIENT,
    SERVER,
    Conversation,
    Piece,
    binary_body,
    greetings,
    json_body,
    numbers_body,
    publications,
    pushes,
    request_reply,
    text_body,
)
from tests.world.events import complaints, is_subsequence, sniff, told, whole_messages
from tests.world.network import (
    SentSegment,
    duplicate,
    early_acks,
    overlap,
    packets,
    reorder,
    resegment,
    segments,
    stray_resets,
)
from tests.world.octets import frame, ready
from tests.world.recordings import conversations
from tests.world.tap import Packets
from zmtpsniff.engine.sniffer import Sniffer
from zmtpsniff.net.segment import ACK, RST

Mutation = Callable[[Conversation, Random], list[SentSegment]]


@cache
def corpus() -> list[Conversation]:
    random = Random(7)
    made = []
    for version in (1, 2, 3):
        for body in (text_body, binary_body, numbers_body, json_body):
            made.append(request_reply(version, random, 8, body))
            made.append(pushes(version, random, 40, body, 400, parts=3))
            made.append(pushes(version, random, 10, body, 6000, parts=2))
            made.append(publications(version, random, 15, body))
    found = [one for one in conversations(1, 30_000) if one.pieces]
    return made + found


@cache
def undisturbed(talk: Conversation) -> list[AnyEvent]:
    return sniff(packets(segments(talk)))


def chosen(random: Random, count: int) -> list[Conversation]:
    return random.sample(corpus(), min(count, len(corpus())))


# ---------------------------------------------------------------------- what must not change anything


def cut_anew(talk: Conversation, random: Random) -> list[SentSegment]:
    sizes = random.choice(
        [
            lambda: 1,
            lambda: random.randint(1, 3),
            lambda: random.choice([1, 9, 10, 11, 53, 54, 64, 200]),
            lambda: random.randint(1, 1460),
            lambda: 65_000,
        ]
    )
    return resegment(segments(talk), sizes)


HARMLESS: dict[str, Mutation] = {
    "segmentation": cut_anew,
    "order within a side": lambda talk, random: reorder(segments(talk), random, random.choice([2, 4])),
    "order of the sides": lambda talk, random: reorder(segments(talk), random, random.choice([2, 8]), across=True),
    "duplicates": lambda talk, random: duplicate(cut_anew(talk, random), random, 0.3),
    "overlap": lambda talk, random: overlap(cut_anew(talk, random), talk, random, 0.3),
    "no acknowledgments": lambda talk, random: segments(talk, acks=False),
    "early acknowledgments": lambda talk, random: early_acks(segments(talk), random, random.choice([1, 5, 20])),
    "early acknowledgments of small segments": lambda talk, random: early_acks(cut_anew(talk, random), random, 10),
    "resets that do not count": lambda talk, random: stray_resets(segments(talk), random, random.choice([1, 3])),
    "late resets that do not count": lambda talk, random: stray_resets(cut_anew(talk, random), random, 1),
    "everything": lambda talk, random: early_acks(
        reorder(duplicate(overlap(cut_anew(talk, random), talk, random, 0.1), random, 0.1), random, 3), random, 2
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless(name: str) -> None:
    random = Random(name)
    for talk in chosen(random, 12):
        isn = random.choice([(1000, 500_000), (2**32 - random.randint(1, 400), 2**32 - random.randint(1, 400))])
        disturbed = packets(HARMLESS[name](talk, random), isn)
        events = sniff(disturbed, random.choice([1, 7, 100, 10_000]))
        assert told(events) == told(undisturbed(talk)), talk.name
        assert set(complaints(events)) <= set(complaints(undisturbed(talk))), talk.name


# ---------------------------------------------------------------------- what loses something


def dropped(talk: Conversation, random: Random) -> list[SentSegment]:
    sent = resegment(segments(talk), lambda: random.choice([1460, 1460, 100]))
    data = [at for at, one in enumerate(sent) if one.payload]
    for at in sorted(random.sample(data, min(len(data), random.choice([1, 1, 2, 5]))), reverse=True):
        del sent[at]
    return sent


def cut_by_snaplen(talk: Conversation, random: Random) -> list[SentSegment]:
    kept = random.choice([1, 2, 6, 12, 14, 20, 42, 96, 200])
    return [replace(one, kept=kept) if len(one.payload) > kept else one for one in segments(talk)]


def one_side(talk: Conversation, random: Random) -> list[SentSegment]:
    side = random.choice([CLIENT, SERVER])
    mine = [one for one in segments(talk) if one.side == side]
    return mine[random.choice([0, random.randrange(len(mine))]) :]


def reset(talk: Conversation, random: Random) -> list[SentSegment]:
    sent = segments(talk)
    at = random.randrange(3, len(sent))
    return [*sent[:at], replace(sent[at], payload=b"", flags=RST | ACK)]


def any_from(talk: Conversation, random: Random) -> list[SentSegment]:
    sent = resegment(segments(talk), lambda: random.choice([1460, 1460, 100]))
    return sent[random.randrange(1, len(sent)) :]


def any_to(talk: Conversation, random: Random) -> list[SentSegment]:
    sent = segments(talk)
    return sent[: random.randrange(1, len(sent))]


HARMFUL: dict[str, Mutation] = {
    "dropped": dropped,
    "snaplen": cut_by_snaplen,
    "one side": one_side,
    "reset": reset,
    "starts late": any_from,
    "ends early": any_to,
}


def may_be_reported(events: list[AnyEvent]) -> dict[str, list[Any]]:
    """Messages of each sender, also those that are no messages only because of what was said before them."""
    out: dict[str, list[Any]] = {}
    for event in events:
        if isinstance(event, Message):
            out.setdefault(event.src, []).append(event.frames)
        elif isinstance(event, Subscription) and event.encoding == "message":
            assert isinstance(event.topic, bytes)
            out.setdefault(event.src, []).append([bytes([event.action == "subscribe"]) + event.topic])
        elif isinstance(event, Greeting) and event.identity is not None:
            out.setdefault(event.src, []).append([event.identity])
    return out


@pytest.mark.parametrize("name", HARMFUL)
def test_losses_invent_no_message(name: str) -> None:
    random = Random(name)
    for talk in chosen(random, 100):
        events = sniff(packets(HARMFUL[name](talk, random)), random.choice([1, 7, 100]))
        sent = may_be_reported(undisturbed(talk))
        for side, found in whole_messages(events).items():
            assert is_subsequence(found, sent.get(side, [])), talk.name


@pytest.mark.parametrize(("seed", "most", "lost"), [(3, 6000, 135), (43, 3000, 51), (57, 3000, 51)])
def test_what_follows_a_false_frame_is_not_whole(seed: int, most: int, lost: int) -> None:
    """Octets of a lost message that look like a frame and lead to the last frame of that message."""
    random = Random(seed)
    random.choice([binary_body, binary_body, text_body])
    random.choice([300, 3000, 6000])
    version = random.choice([1, 2, 3])
    sent = resegment(segments(pushes(version, random, 40, binary_body, most, parts=2)), lambda: 1460)
    there = whole_messages(sniff(packets(sent)))
    found = whole_messages(sniff(packets(sent[:lost] + sent[lost + 1 :])))
    assert all(is_subsequence(found[side], there[side]) for side in found)


def test_only_headers_captured() -> None:
    """``tcpdump -s 54`` keeps no octet of any payload; there is nothing to report, and nothing to fail on."""
    for talk in [request_reply(3, Random(1), 60), *chosen(Random(1), 30)]:
        sniff(packets([replace(one, kept=0) for one in segments(talk)]))


_PARTS = 5
each_part = pytest.mark.parametrize("part", sampled(range(_PARTS), _PARTS))


def healthy(part: int) -> list[Conversation]:
    return [talk for talk in corpus()[part::_PARTS] if not complaints(undisturbed(talk))]


@each_part
def test_a_lost_packet_accuses_nobody(part: int) -> None:
    """Whatever packet of a healthy connection is lost, all that is wrong is that it is lost."""
    wrong = set()
    for talk in healthy(part):
        sent = segments(talk)
        for at in [at for at, one in enumerate(sent) if one.payload][:8]:
            events = sniff(packets(sent[:at] + sent[at + 1 :]))
            wrong |= {(code, talk.name) for severity, code in complaints(events) if severity == "error"}
    assert {code for code, _ in wrong} <= {"capture-gap"}, sorted(wrong)


@each_part
def test_a_late_start_accuses_nobody(part: int) -> None:
    wrong = set()
    for talk in healthy(part):
        sent = segments(talk)
        for at in range(1, min(len(sent), 25), 2):
            events = sniff(packets(sent[at:]))
            wrong |= {(code, talk.name) for severity, code in complaints(events) if severity == "error"}
    assert not wrong, sorted(wrong)


# ---------------------------------------------------------------------- how much is found again


def found_after_a_loss(talk: Conversation, random: Random, runs: int) -> float:
    """The share of the messages after that with the loss that are reported whole."""
    sent = resegment(segments(talk), lambda: 1460)
    before = sniff(packets(sent))
    sides = ("10.0.0.1:40000", "10.0.0.2:5555")
    got = wanted = 0
    data = [at for at, one in enumerate(sent) if one.payload and one.offset > 200 and at < len(sent) * 0.8]
    for at in random.sample(data, min(runs, len(data))):
        side = sides[sent[at].side]
        ends = [event.packet for event in before if isinstance(event, Message) and event.src == side]
        later = whole_messages(before)[side][sum(end <= at + 1 for end in ends) + 1 :]
        rest = whole_messages(sniff(packets(sent[:at] + sent[at + 1 :]))).get(side, [])
        wanted += len(later)
        got += sum(frames in rest for frames in later)
    return got / max(wanted, 1)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    ("make", "body", "least"),
    [
        (request_reply, json_body, 0.99),
        (request_reply, binary_body, 0.99),
        (pushes, json_body, 0.95),
        (pushes, binary_body, 0.93),
        (publications, text_body, 0.9),
    ],
)
def test_messages_are_found_again(
    version: int, make: Callable[..., Conversation], body: Callable[[Random, int], bytes], least: float
) -> None:
    random = Random(f"{version}{make.__name__}{body.__name__}")
    assert found_after_a_loss(make(version, random, 150, body), random, 8) >= least


# ---------------------------------------------------------------------- any octets, much of them

octets = st.one_of(
    st.binary(max_size=300),
    st.lists(
        st.sampled_from(
            [b"\xff" + bytes(8) + b"\x7f", b"\3", b"\1", b"\0NULL" + bytes(48), b"\1CURVE" + bytes(47), ready(b"REQ"),
             ready(b"SUB"), b"\0\5hello", b"\1\0", b"\4\5\4PING", b"\2" + bytes(7) + b"\7\7MESSAGE", b"\xff" * 9,
             frame(b"\7MESSAGE" + bytes(40)), b"\4\6\5ERROR", b"\0", b"\4\0", b"\6" + bytes(8), b"GET / HTTP/1.1\r\n"]
        ),
        max_size=12,
    ).map(b"".join),
)  # fmt: skip


@settings(max_examples=examples(250), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([CLIENT, SERVER]), octets), max_size=6), st.integers(0, 6), st.booleans())
def test_any_octets(pieces: list[tuple[int, bytes]], lost: int, late: bool) -> None:
    talk = Conversation("any", tuple(Piece(side, data) for side, data in pieces if data))
    sent = segments(talk)
    if late:
        sent = sent[3:]
    if lost < len(sent):
        del sent[lost]
    sniff(packets(sent), 3)


def _pushed(stream: bytes, size: int = 1400) -> Conversation:
    cut = [Piece(CLIENT, stream[at : at + size]) for at in range(0, len(stream), size)]
    return Conversation("pushed", (*greetings(3, b"PUSH", b"PULL"), *cut), "open")


@pytest.mark.parametrize(
    "head",
    [struct.pack("!BQ", 2, 2**63 - 1), struct.pack("!BQ", 3, 2**40), struct.pack("!BQ", 6, 2**50), b"\2" + b"\xff" * 8],
    ids=["longest", "long with more", "long command", "too long"],
)
def test_announced_lengths_hold_no_memory(head: bytes) -> None:
    given = packets(segments(_pushed(head + bytes(12_000_000), 60_000)))
    sniffer = Sniffer(Packets(given, 10), WIRE)
    tracemalloc.start()
    try:
        count = sum(len(events) for events in sniffer.events())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count < 20
    assert peak < 2_000_000


@pytest.mark.parametrize("unit", [b"\0", b"\4", b"\1\0", b"\0\5", b"\7\x7e", b"\xff"])
def test_searching_holds_no_memory(unit: bytes) -> None:
    """A stream of which nothing is known and that looks like frames at every octet."""
    stream = unit * (100_000 // len(unit))
    sent = segments(
        Conversation("x", tuple(Piece(CLIENT, stream[at : at + 1400]) for at in range(0, len(stream), 1400)))
    )
    sniffer = Sniffer(Packets(packets(sent[3:]), 10), WIRE)
    tracemalloc.start()
    try:
        for _ in sniffer.events():
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000
