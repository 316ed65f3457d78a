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
from tests.world.network import disturbed, packets, segments
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


def through_proxies(seed: random.Random) -> list[Packet]:
    """Clients ask a REP through one proxy or two; now and then one loses something, or a client asks again."""
    kind = seed.choice([b"REQ", b"REQ", b"DEALER"])
    fronts = [greetings(3, kind, b"ROUTER") for _ in range(seed.randint(1, 3))]
    behind = [greetings(3, b"DEALER", b"ROUTER") for _ in range(seed.randrange(2))] + [greetings(3, b"DEALER", b"REP")]
    times = [[10**18 + number] * len(fronts[0]) for number in range(len(fronts) + len(behind))]
    now = 10**18 + 10**6
    waiting: list[tuple[int, list[bytes]]] = []

    def send(number: int, side: int, frames: list[bytes], when: int) -> bool:
        """Send a message on a connection, perhaps; returns whether its receiver does the same."""
        (fronts + behind)[number].append(Piece(side, message(3, *frames)))
        times[number].append(when)
        return seed.random() < 0.95

    for number in range(seed.randrange(60)):
        client = seed.randrange(len(fronts))
        body = seed.choice([b"ping", b"%d" % number])
        ids = [b"\0\0\0\1%c" % client if seed.random() < 0.97 else b"other", b"\0\0\0\2\1"]
        now += seed.choice([1000, 10**6, 10**9])
        is_free = kind == b"DEALER" or all(client != one for one, _ in waiting)
        if is_free or seed.random() < 0.02:
            own = [b"%d" % (number % 5)] if kind == b"DEALER" and seed.random() < 0.7 else []
            frames = [*own, b"", body]
            goes_on = send(client, 0, frames, now)
            for place in range(len(behind)):
                frames = [ids[place], *frames]
                goes_on = goes_on and send(len(fronts) + place, 0, frames, now + 100 * (place + 1))
            if goes_on:
                waiting.append((client, frames))
        if (not is_free or seed.random() < 0.5) and waiting:
            client, frames = waiting.pop(0 if seed.random() < 0.95 else -1)
            frames = [*frames[:-1], b"re " + frames[-1]]
            goes_on = True
            for place in reversed(range(len(behind))):
                goes_on = goes_on and send(len(fronts) + place, 1, frames, now + 500 - 100 * place)
                frames = frames[1:]
            if goes_on:
                send(client, 1, frames, now + 600)
    found = []
    for number, (pieces, whens) in enumerate(zip([*fronts, *behind], times, strict=True)):
        sent = segments(Conversation("through proxies", tuple(pieces)))
        place = max(number + 1 - len(fronts), 0)
        given = packets(sent, (1000, 2000), (41_000 + number, 5555 + place), 10**18, 1000)
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


def world(seed: random.Random) -> list[Packet]:
    """Some conversations at once, in the order of their times."""
    found = through_proxies(seed) if seed.random() < 0.3 else []
    for number in range(seed.randint(0 if found else 1, 4)):
        sent = disturbed(conversation(seed), seed, 0.1)
        isn = seed.choice([(1000, 500_000), ((1 << 32) - 3000, (1 << 32) - 20)])
        found += packets(
            sent, isn, (40_000 + number, 5555), 10**18 + seed.randrange(10**8), seed.choice([10**5, 10**7])
        )
    return sorted(found, key=lambda packet: packet[0])
