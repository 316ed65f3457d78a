"""Real and made-up conversations whose packets are disturbed: what must not change, and what must not be invented."""

import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from dissectors.events import AnyEvent, Greeting, Message, Subscription
from tests.support.settings import WIRE
from tests.world.conversation import (
    CLIENT,
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
from tests.world.recordings import conversations
from tests.world.tap import Packets
from zmtpsniff.engine.sniffer import Sniffer

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


@pytest.mark.parametrize("count", [5, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", HARMLESS)
def test_harmless(name: str, count: int) -> None:
    random = Random(name)
    for talk in chosen(random, count):
        isn = random.choice([(1000, 500_000), (2**32 - random.randint(1, 400), 2**32 - random.randint(1, 400))])
        disturbed = packets(HARMLESS[name](talk, random), isn)
        events = sniff(disturbed, random.choice([1, 7, 100, 10_000]))
        assert told(events) == told(undisturbed(talk)), talk.name
        assert set(complaints(events)) <= set(complaints(undisturbed(talk))), talk.name


# ---------------------------------------------------------------------- what loses something


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


@pytest.mark.parametrize("kept", [0, 1, 12, 20, 42, 96])  # octets of each payload
def test_packets_cut_by_the_snaplen_invent_no_message(kept: int) -> None:
    random = Random(kept)
    for talk in chosen(random, 20):
        sent = [replace(one, kept=kept) if len(one.payload) > kept else one for one in segments(talk)]
        events = sniff(packets(sent), random.choice([1, 7, 100]))
        known = may_be_reported(undisturbed(talk))
        for side, found in whole_messages(events).items():
            assert is_subsequence(found, known.get(side, [])), talk.name


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


def test_a_late_start_accuses_nobody() -> None:
    for talk in (one for one in corpus()[::3] if not complaints(undisturbed(one))):
        sent = segments(talk)
        for at in range(1, min(len(sent), 25), 6):
            found = complaints(sniff(packets(sent[at:])))
            assert not [code for severity, code in found if severity == "error"], talk.name


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
