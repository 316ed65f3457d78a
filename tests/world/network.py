"""The packets of TCP that carry a conversation: in any order, with any loss.

:func:`segments` makes the segments that an undisturbed capture holds, a list in which everything can then be disturbed,
and :func:`packets` makes packets of those. The functions that disturb take and return lists of segments; those that use
chance get a ``Random``. :func:`tcp_packet` writes the headers for all that tests make up.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.world.conversation import CLIENT, SERVER, Conversation
from zmtpsniff.capture.block import Packet
from zmtpsniff.net.segment import ACK, FIN, PSH, RST, SYN

START_NS = 1_700_000_000_000_000_000
STEP_NS = 20_000  # from one packet to the next where no piece says when it was sent
_MODULO = 1 << 32
_MOST_OCTETS = 65_000  # of a packet
_ETHERNET = bytes(12) + b"\x08\0"
_HEADERS = struct.Struct("!BBHHHBBH4s4sHHIIBBHHH")


def tcp_packet(
    hosts: tuple[bytes, bytes],
    ports: tuple[int, int],
    numbers: tuple[int, int],
    flags: int,
    payload: bytes = b"",
    more: int = 0,
) -> bytes:
    """A packet of Ethernet, IPv4 and TCP, without checksums: sender and receiver, and SEQ and ACK modulo 2^32.

    The caller adds ``more`` octets of payload.
    """
    return (
        _ETHERNET
        + _HEADERS.pack(
            0x45, 0, 40 + len(payload) + more, 0, 0x4000, 64, 6, 0, *hosts,
            *ports, numbers[0] % _MODULO, numbers[1] % _MODULO, 0x50, flags, 65_535, 0, 0,
        )
        + payload
    )  # fmt: skip


@dataclass(eq=False, slots=True)
class SentSegment:
    """A segment; offsets count the octets of a side's stream, so the SYN has -1."""

    side: int
    offset: int
    payload: bytes
    ack: int  # how many octets of the other side are acknowledged, -1 for none
    flags: int
    time_ns: int = 0  # when it was sent
    kept: int | None = None  # octets of the payload that the snaplen left

    @property
    def end(self) -> int:
        return self.offset + len(self.payload)

    def packet(
        self, time_ns: int, hosts: tuple[bytes, bytes], ports: tuple[int, int], isn: tuple[int, int], at: int = 0
    ) -> Packet:
        """The packet of Ethernet, IPv4 and TCP that carries its octets from ``at`` on, as far as one may be long."""
        side, other = self.side, 1 - self.side
        numbers = isn[side] + 1 + self.offset + at, isn[other] + 1 + self.ack if self.flags & ACK else 0
        ends = (hosts[side], hosts[other]), (ports[side], ports[other])
        data = tcp_packet(*ends, numbers, self.flags, self.payload[at : at + _MOST_OCTETS])
        return time_ns, 1, data if self.kept is None else data[: 54 + self.kept], len(data), None


def segments(talk: Conversation, acks: bool = True, fin: bool = True) -> list[SentSegment]:
    """The segments of an undisturbed capture: SYN, SYN ACK, ACK, data with acknowledgments, and the end."""
    out = [
        SentSegment(CLIENT, -1, b"", -1, SYN),
        SentSegment(SERVER, -1, b"", 0, SYN | ACK),
        SentSegment(CLIENT, 0, b"", 0, ACK),
    ]
    seen = [0, 0]
    for piece in talk.pieces:
        side = piece.side
        out.append(SentSegment(side, seen[side], piece.data, seen[1 - side], PSH | ACK, piece.time_ns))
        seen[side] += len(piece.data)
        if acks:
            out.append(SentSegment(1 - side, seen[1 - side], b"", seen[side], ACK, piece.time_ns))
    if not fin:
        return out
    first, second = talk.closer, 1 - talk.closer
    if talk.end == "fin":
        out.append(SentSegment(first, seen[first], b"", seen[second], FIN | ACK))
        out.append(SentSegment(second, seen[second], b"", seen[first] + 1, FIN | ACK))
        out.append(SentSegment(first, seen[first] + 1, b"", seen[second] + 1, ACK))
    elif talk.end == "rst":
        out.append(SentSegment(first, seen[first], b"", seen[second], RST | ACK))
    return out


def resegment(sent: Sequence[SentSegment], sizes: Callable[[], int]) -> list[SentSegment]:
    """Cut the data anew, each side's between two pieces of the other; acknowledgments follow their segment."""
    out: list[SentSegment] = []
    run: list[SentSegment] = []

    def cut() -> None:
        if not run:
            return
        data = b"".join(one.payload for one in run)
        first, at = run[0], 0
        while at < len(data):
            size = max(sizes(), 1)
            piece = data[at : at + size]
            out.append(replace(first, offset=first.offset + at, payload=piece))
            at += len(piece)
            out.append(SentSegment(1 - first.side, max(first.ack, 0), b"", first.offset + at, ACK, first.time_ns))
        run.clear()

    for one in sent:
        if one.payload and not one.flags & (SYN | FIN | RST):
            if run and run[-1].side != one.side:
                cut()
            run.append(one)
        elif one.flags & (SYN | FIN | RST):
            cut()
            out.append(one)
        elif not run:
            out.append(one)
    cut()
    return out


def reorder(sent: Sequence[SentSegment], random: Random, window: int, across: bool = False) -> list[SentSegment]:
    """Move every segment by up to ``window`` places; only within its side unless ``across``.

    The opening stays the opening, and a reset stays where it is.
    """
    head = 3
    body = list(sent[head:])
    fixed = [one for one in body if one.flags & RST]
    body = [one for one in body if not one.flags & RST]
    if across:
        keyed = sorted((index + random.uniform(0, window), index) for index in range(len(body)))
        body = [body[index] for _, index in keyed]
    else:
        places = {side: [i for i, one in enumerate(body) if one.side == side] for side in (CLIENT, SERVER)}
        moved = list(body)
        for mine in places.values():
            keyed = sorted((index + random.uniform(0, window), index) for index in range(len(mine)))
            for place, (_, index) in zip(mine, keyed, strict=True):
                moved[place] = body[mine[index]]
        body = moved
    return [*sent[:head], *body, *fixed]


def duplicate(sent: Sequence[SentSegment], random: Random, share: float) -> list[SentSegment]:
    """Send some segments twice, at once or some packets later."""
    out: list[tuple[float, SentSegment]] = []
    for place, one in enumerate(sent):
        out.append((place, one))
        if one.payload and random.random() < share:
            out.append((place + random.choice([0.5, random.uniform(1, 20)]), one))
    last = len(sent) - 1
    out.sort(key=lambda pair: min(pair[0], last - 0.5) if pair[0] != last else pair[0])
    return [one for _, one in out]


def overlap(sent: Sequence[SentSegment], talk: Conversation, random: Random, share: float) -> list[SentSegment]:
    """Make some segments begin before, or end after, where they did."""
    out = []
    streams = [talk.stream(CLIENT), talk.stream(SERVER)]
    sent_up_to = [0, 0]
    for one in sent:
        if one.payload and random.random() < share:
            begin = max(0, one.offset - random.randrange(1, 200))
            end = one.end
            if random.random() < 0.3:
                end = min(len(streams[one.side]), one.end + random.randrange(1, 50))
            one = replace(one, offset=begin, payload=streams[one.side][begin:end])
        sent_up_to[one.side] = max(sent_up_to[one.side], one.end)
        out.append(one)
    return out


def early_acks(sent: Sequence[SentSegment], random: Random, places: int) -> list[SentSegment]:
    """Move pure acknowledgments before the data that they acknowledge, as captures of several queues have it."""
    keyed = []
    for index, one in enumerate(sent):
        pure = index > 2 and not one.payload and one.flags == ACK
        keyed.append((index - (random.uniform(0, places) if pure else 0), index))
    keyed = [(max(place, 2.5) if index > 2 else place, index) for place, index in keyed]
    return [sent[index] for _, index in sorted(keyed)]


def stray_resets(sent: Sequence[SentSegment], random: Random, count: int) -> list[SentSegment]:
    """RSTs that nobody obeys, since they do not have the number expected next; their senders say more thereafter.

    More than the segment in front of which a RST stands: that one alone may have come late. And what they say is behind
    a RST that is ahead, or acknowledges more.
    """
    out = list(sent)
    last = {one.side: at for at, one in enumerate(sent) if one.payload}
    places = [at for at, one in enumerate(sent) if at > 3 and one.payload and at < last[one.side]]
    for at in sorted(random.sample(places, min(count, len(places))), reverse=True):
        one = sent[at]
        # Behind what comes just after it, it would look like one that came too early.
        ends = {other.end for other in sent if other.side == one.side}
        away = random.choice([-1, 1]) * random.choice([2, 40, 500, 70_000, 10_000_000])
        if one.offset + away in ends:
            away = 10_000_000
        text = random.choice([b"", b"\0\5Go away"])
        acked = max((before.end for before in sent[:at] if before.side != one.side), default=0)
        later = [other for other in sent[at + 1 :] if other.side == one.side]
        if away > 0 and not any(other.end > one.offset + away or other.ack > acked for other in later):
            away = -away  # nothing that comes shows that the octets in front of the RST are not missing
        out.insert(
            at, SentSegment(one.side, one.offset + away, text, acked, RST | random.choice([0, ACK]), one.time_ns)
        )
    return out


def disturbed(talk: Conversation, random: Random, chance: float) -> list[SentSegment]:
    """The segments of a conversation, cut anew, perhaps in another order, twice, overlapping, missing or cut short.

    Each kind of disorder and loss has this chance in half of all, the rare ones a third of it.
    """
    sent = segments(talk, acks=random.random() < 0.8)
    sizes = random.choice([[], [], range(1, 40), range(1, 1448), [1448], [5, 10, 30, 60_000]])
    if sizes:
        sent = resegment(sent, lambda: random.choice(sizes))
    if random.random() < 0.5:
        return sent
    if random.random() < chance:
        sent = duplicate(sent, random, random.choice([0.01, 0.2]))
    if random.random() < chance:
        sent = overlap(sent, talk, random, random.choice([0.01, 0.2]))
    if random.random() < chance:
        sent = reorder(sent, random, random.choice([2, 10]), across=random.random() < 0.3)
    if random.random() < chance:
        sent = early_acks(sent, random, random.choice([1, 5]))
    if random.random() < chance:
        share = random.choice([0.005, 0.1])
        sent = [one for one in sent if random.random() > share]
    if random.random() < chance / 3:
        side = random.randrange(2)
        sent = [one for one in sent if one.side != side]
    if random.random() < chance / 3:
        sent = sent[random.randrange(len(sent)) :]
    if random.random() < chance / 3:
        sent = [replace(one, kept=random.choice([None, 20])) if one.payload else one for one in sent]
    if random.random() < chance / 3:  # another first copy
        share = 0.05
        sent = [replace(one, payload=bytes(len(one.payload))) if random.random() < share else one for one in sent]
    if random.random() < chance / 3:
        sent = stray_resets(sent, random, random.choice([1, 3]))
    return sent


def packets(
    sent: Iterable[SentSegment],
    isn: tuple[int, int] = (1000, 500_000),
    ports: tuple[int, int] = (40_000, 5555),
    start_ns: int = START_NS,
    step_ns: int = STEP_NS,
) -> list[Packet]:
    """Packets, one for each segment unless that is too long, at even distances in time."""
    hosts = b"\x0a\0\0\1", b"\x0a\0\0\2"
    return [
        one.packet(start_ns + number * step_ns, hosts, ports, isn, at)
        for number, one in enumerate(sent)
        for at in range(0, max(len(one.payload), 1), _MOST_OCTETS)
    ]
