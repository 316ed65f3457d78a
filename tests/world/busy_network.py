"""Conversations at once that are mostly in order, and mostly plain, as those of settled flows are."""

import random

from tests.world.conversation import (
    Conversation,
    Piece,
    binary_body,
    greetings,
    json_body,
    publications,
    pushes,
    request_reply,
    text_body,
)
from tests.world.network import SentSegment, duplicate, overlap, packets, reorder, resegment, segments
from tests.world.octets import COMMAND, frame, message
from zmtpsniff.capture.block import Packet

BODIES = [json_body, text_body, binary_body]


def lock_step(version: int, seed: random.Random) -> Conversation:
    """REQ and REP, with a body of any size, a frame more, and what ends the step now and then."""
    pieces = greetings(version, b"REQ", b"REP")
    for _ in range(seed.randrange(30)):
        for side in (0, 1):
            bodies = [seed.choice(BODIES)(seed, seed.choice([1, 30, 300, 3000])) for _ in range(seed.randint(1, 2))]
            pieces.append(Piece(side, message(version, b"", *bodies)))
        if seed.random() < 0.1:
            pieces.append(Piece(0, seed.choice([message(version, b"", b"again"), message(version, b"no delimiter")])))
        if version == 3 and seed.random() < 0.1:
            pieces.append(Piece(seed.randrange(2), frame(b"\x04PING\0\0x", COMMAND)))
    return Conversation("lock step", tuple(pieces))


def several_at_once(version: int, seed: random.Random) -> Conversation:
    """DEALER and ROUTER, or two of them: several requests wait, and now and then something is unusual."""
    pieces = greetings(version, seed.choice([b"DEALER", b"DEALER", b"ROUTER"]), seed.choice([b"ROUTER", b"DEALER"]))
    envelopes = seed.choice([[[b""]], [[b"%d" % number, b""] for number in range(seed.choice([3, 50]))]])
    odd = [[b""], [b"no", b"delimiter"], [b"", b""], [b"\0\1\2\3\4", b"", b"relayed"], [b"%d" % 1, b"", b"unasked"]]
    waiting: list[list[bytes]] = []
    for number in range(seed.randrange(60)):
        if waiting and seed.random() < 0.5:
            side, envelope = 1, waiting.pop(seed.choice([0, 0, 0, -1]))
        else:
            side, envelope = 0, seed.choice(envelopes)
            waiting.append(envelope)
        frames = [*envelope, b"%d" % number]
        if seed.random() < 0.02:
            side, frames = seed.randrange(2), seed.choice(odd)
        pieces.append(Piece(side, message(version, *frames)))
    return Conversation("several at once", tuple(pieces))


def through_a_proxy(seed: random.Random) -> list[Packet]:
    """Some REQs ask a REP through ROUTER and DEALER; now and then a proxy loses something, or a REQ asks again."""
    fronts = [greetings(3, b"REQ", b"ROUTER") for _ in range(seed.randint(1, 3))]
    times = [[10**18 + number] * len(fronts[0]) for number in range(len(fronts))]
    back, back_ns = greetings(3, b"DEALER", b"REP"), [10**18] * len(fronts[0])
    now = 10**18 + 10**6
    waiting: list[tuple[int, bytes]] = []
    for number in range(seed.randrange(60)):
        client = seed.randrange(len(fronts))
        body = seed.choice([b"ping", b"%d" % number])
        identity = b"\0\0\0\1%c" % client if seed.random() < 0.97 else b"other"
        now += seed.choice([1000, 10**6, 10**9])
        is_free = all(client != one for one, _ in waiting)
        if is_free or seed.random() < 0.02:
            fronts[client].append(Piece(0, message(3, b"", body)))
            times[client].append(now)
            if seed.random() < 0.95:
                back.append(Piece(0, message(3, identity, b"", body)))
                back_ns.append(now + 100)
                waiting.append((client, identity))
        elif waiting:
            client, identity = waiting.pop(0 if seed.random() < 0.95 else -1)
            back.append(Piece(1, message(3, identity, b"", b"re " + body)))
            back_ns.append(now)
            if seed.random() < 0.95:
                fronts[client].append(Piece(1, message(3, b"", b"re " + body)))
                times[client].append(now + 100)
    found = []
    for number, (pieces, whens) in enumerate(zip([*fronts, back], [*times, back_ns], strict=True)):
        sent = segments(Conversation("through a proxy", tuple(pieces)))
        given = packets(sent, (1000, 2000), (41_000 + number, 5555 + (number == len(fronts))), 10**18, 1000)
        found += _at(given, whens)
    return sorted(found, key=lambda packet: packet[0])


def _at(given: list[Packet], times: list[int]) -> list[Packet]:
    """The packets of segments with an acknowledgment behind each, those of the pieces at these times."""
    whens = [times[0] - 3, times[0] - 2, times[0] - 1, *(when + late for when in times for late in (0, 1))]
    whens += [max(times) + 10 + more for more in range(3)]
    return [(when, *packet[1:]) for when, packet in zip(whens, given, strict=True)]


def conversation(seed: random.Random) -> Conversation:
    version = seed.choice([1, 2, 3, 3, 3])
    body = seed.choice(BODIES)
    match seed.randrange(5):
        case 0:
            return pushes(version, seed, seed.randrange(80), body, batch=seed.choice([50, 8192]), parts=3)
        case 1:
            return publications(version, seed, seed.randrange(40))
        case 2:
            return request_reply(version, seed, seed.randrange(30), body)
        case 3:
            return several_at_once(version, seed)
        case _:
            return lock_step(version, seed)


def disturbed(talk: Conversation, seed: random.Random) -> list[SentSegment]:
    """The segments of a conversation, cut anew, and mostly as they were sent."""
    sent = segments(talk)
    if seed.random() < 0.7:
        sizes = seed.choice([[20, 200], [1448], [60_000], [5, 10, 30]])
        sent = resegment(sent, lambda: seed.choice(sizes))
    match seed.randrange(6):
        case 0:
            sent = duplicate(sent, seed, 0.05)
        case 1:
            sent = overlap(sent, talk, seed, 0.05)
        case 2:
            sent = reorder(sent, seed, 3, across=seed.random() < 0.5)
        case 3:
            sent = [one for one in sent if seed.random() > 0.01]
    return sent


def world(seed: random.Random) -> list[Packet]:
    """Some conversations at once, in the order of their times."""
    found = through_a_proxy(seed) if seed.random() < 0.3 else []
    for number in range(seed.randint(0 if found else 1, 4)):
        sent = disturbed(conversation(seed), seed)
        isn = seed.choice([(1000, 500_000), ((1 << 32) - 3000, (1 << 32) - 20)])
        found += packets(
            sent, isn, (40_000 + number, 5555), 10**18 + seed.randrange(10**8), seed.choice([10**5, 10**7])
        )
    return sorted(found, key=lambda packet: packet[0])
