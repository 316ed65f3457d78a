"""TCP conversations taken out of captures, or made up, and turned into packets again: in any order, with any loss.

A :class:`Conversation` is what two programs sent each other, piece by piece. :func:`segments` makes the segments of
it that an undisturbed capture holds, a list in which everything can then be disturbed, and :func:`packets` makes
packets of those. The functions that disturb take and return lists of segments; those that use chance get a ``Random``.
"""

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from dissectors.events import AnyEvent, Capture, Comment, Connection, Message, Problem, Work
from dissectors.records import record_fields
from dissectors.zmtp.limits import Limits
from tests.support.paths import PROJECT
from tests.support.settings import WIRE
from zmtpsniff.capture.files import open_captures
from zmtpsniff.capture.source import Fault, Packet
from zmtpsniff.engine.sniffer import Sniffer
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import ACK, FIN, PSH, RST, SYN

ROOT = PROJECT
CLIENT, SERVER = 0, 1
START_NS = 1_700_000_000_000_000_000
STEP_NS = 20_000  # from one packet to the next where no piece says when it was sent


@dataclass(frozen=True)
class Piece:
    """Octets that one side sent in one go."""

    side: int
    data: bytes
    time_ns: int = 0


@dataclass(frozen=True)
class Conversation:
    """What two sides sent each other, in the order in which it was seen."""

    name: str
    pieces: tuple[Piece, ...]
    end: str = "fin"  # fin, rst or open
    ends_first: int = CLIENT

    def stream(self, side: int) -> bytes:
        return b"".join(piece.data for piece in self.pieces if piece.side == side)


@dataclass(frozen=True)
class SentSegment:
    """A segment; offsets count the octets of a side's stream, so the SYN has -1."""

    side: int
    offset: int
    payload: bytes
    ack: int  # how many octets of the other side are acknowledged, -1 for none
    flags: int
    time_ns: int = 0
    kept: int | None = None  # octets of the payload that the snaplen left

    @property
    def end(self) -> int:
        return self.offset + len(self.payload)


# ---------------------------------------------------------------------- conversations from captures


def folders() -> list[Path]:
    """Where captures are: fixtures, and those that ZMTPSNIFF_CAPTURES or a folder beside the checkout holds."""
    named = os.environ.get("ZMTPSNIFF_CAPTURES", "")
    places = [ROOT / "fixtures", *(Path(name) for name in named.split(os.pathsep) if name)]
    if not named:
        places.append(ROOT.parent / "shared" / "captures")
    return [place for place in places if place.is_dir()]


def captures() -> dict[str, Path]:
    """Captures by name, without what is no TCP and what has been disturbed already."""
    found: dict[str, Path] = {}
    for folder in folders():
        for path in sorted(folder.glob("*.pcap*")):
            name = path.name.split(".")[0]
            if not name.startswith(("net_", "mix_", "epgm_", "draft_radio_dish_udp", "ws_", "rec_tls_")):
                found.setdefault(name, path)
    return found


@cache
def from_capture(path: Path) -> tuple[Conversation, ...]:
    """The TCP connections of a capture that lacks nothing and is in order, but for retransmissions."""
    order: list[list[Any]] = []  # [key of the client, pieces, next sequence numbers, end, who ended first]
    open_: dict[bytes, tuple[int, int]] = {}
    decoder = HeaderDecoder()
    number = 1
    for batch in open_captures([str(path)]).batches():
        for time_ns, _, key, seq, _, flags, payload, missing in decoder.segments(batch, number):
            if missing:
                return ()
            if flags & SYN and not flags & ACK:
                size = (len(key) - 4) // 2
                back = key[size : 2 * size] + key[:size] + key[-2:] + key[-4:-2]
                open_[key] = len(order), CLIENT
                open_[back] = len(order), SERVER
                order.append([[], [(seq + 1) % 2**32, None], "open", CLIENT])
                continue
            if key not in open_:
                continue
            index, side = open_[key]
            pieces, expected, end, _ = order[index]
            if flags & SYN:
                expected[side] = (seq + 1) % 2**32
                continue
            if payload:
                skip = (expected[side] - seq) % 2**32
                if skip < len(payload):
                    pieces.append(Piece(side, payload[skip:], time_ns))
                    expected[side] = (seq + len(payload)) % 2**32
                elif skip >= 2**31:
                    return ()  # not in order
            if flags & RST:
                order[index][2] = "rst"
                if end == "open":
                    order[index][3] = side
            elif flags & FIN and end == "open":
                order[index][2:] = "fin", side
        number += len(batch)
    name = path.name.split(".")[0]
    return tuple(
        Conversation(f"{name}:{number}", tuple(pieces), end, first)
        for number, (pieces, _, end, first) in enumerate(order, 1)
    )


def conversations(least: int = 1, most: int = 1 << 30) -> list[Conversation]:
    """All conversations of the captures with so many octets."""
    found = [one for path in captures().values() for one in from_capture(path)]
    return [one for one in found if least <= sum(len(piece.data) for piece in one.pieces) <= most]


# ---------------------------------------------------------------------- segments and packets


def segments(talk: Conversation, acks: bool = True, fin: bool = True) -> list[SentSegment]:
    """What an undisturbed capture holds: SYN, SYN ACK, ACK, data with acknowledgments, and the end."""
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
    first, second = talk.ends_first, 1 - talk.ends_first
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
    """RSTs that nobody obeys, since they do not have the number expected next; their senders say more thereafter."""
    out = list(sent)
    places = [at for at, one in enumerate(sent) if at > 3 and one.payload]
    for at in sorted(random.sample(places, min(count, len(places))), reverse=True):
        one = sent[at]
        # Behind what comes just after it, it would look like one that came too early.
        ends = {other.end for other in sent if other.side == one.side}
        away = random.choice([-1, 1]) * random.choice([2, 40, 500, 70_000, 10_000_000])
        if one.offset + away in ends:
            away = 10_000_000
        text = random.choice([b"", b"\0\5Go away"])
        acked = max((before.end for before in sent[:at] if before.side != one.side), default=0)
        out.insert(
            at, SentSegment(one.side, one.offset + away, text, acked, RST | random.choice([0, ACK]), one.time_ns)
        )
    return out


def packets(
    sent: Iterable[SentSegment],
    isn: tuple[int, int] = (1000, 500_000),
    ports: tuple[int, int] = (40_000, 5555),
    start_ns: int = START_NS,
    step_ns: int = STEP_NS,
) -> list[Packet]:
    """Packets of Ethernet, IPv4 and TCP, one for each segment, at even distances in time."""
    out: list[Packet] = []
    hosts = b"\x0a\0\0\1", b"\x0a\0\0\2"
    for number, one in enumerate(sent):
        side = one.side
        seq = (isn[side] + 1 + one.offset) % 2**32
        ack = (isn[1 - side] + 1 + one.ack) % 2**32 if one.flags & ACK else 0
        tcp = struct.pack("!HHIIBBHHH", ports[side], ports[1 - side], seq, ack, 0x50, one.flags, 65535, 0, 0)
        for at in range(0, max(len(one.payload), 1), 65_000):
            payload = one.payload[at : at + 65_000]
            if at:
                tcp = tcp[:4] + struct.pack("!I", (seq + at) % 2**32) + tcp[8:]
            ip = (
                struct.pack("!BBHHHBBH", 0x45, 0, 40 + len(payload), 0, 0x4000, 64, 6, 0)
                + hosts[side]
                + hosts[1 - side]
            )
            data = bytes(12) + b"\x08\0" + ip + tcp + payload
            length = len(data)
            if one.kept is not None:
                data = data[: 54 + one.kept]
            out.append((start_ns + number * step_ns, 1, data, length, None))
    return out


# ---------------------------------------------------------------------- what comes out


RECORD = 1000
"""Octets from one record to the next in the file that is not there, from which Packets come."""


class Packets:
    """A source of packets that are at hand, as if they were from a file."""

    def __init__(self, given: Sequence[Packet], batch: int = 100) -> None:
        self.dropped = 0
        self.faults: list[Fault] = []
        self.comments: list[str] = []
        self.key_lines: list[str] = []
        self.offsets: list[int] = []
        self._given = given
        self._batch = batch

    def batches(self) -> Iterator[list[Packet]]:
        for at in range(0, len(self._given), self._batch):
            packets = list(self._given[at : at + self._batch])
            self.offsets = [RECORD * number for number in range(at + 1, at + 1 + len(packets))]
            yield packets


def write_pcap(path: Path, given: Sequence[Packet]) -> None:
    """A capture file with packets of Ethernet."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1))
        for time_ns, _, octets, length, _ in given:
            file.write(struct.pack("<IIII", *divmod(time_ns, 10**9), len(octets), length) + octets)


def sniff(given: Sequence[Packet], batch: int = 100, limits: Limits | None = None) -> list[AnyEvent]:
    """All events of these packets, which are also held against what every output must keep to."""
    sniffer = Sniffer(Packets(given, batch), WIRE if limits is None else WIRE._replace(limits=limits))
    events = [event for some in sniffer.events() for event in some]
    check_records(events, given)
    return events


def check_records(events: Sequence[AnyEvent], given: Sequence[Packet]) -> None:
    """The rules of records that hold for any capture."""
    last: dict[tuple[int, str], int] = {}
    count: dict[tuple[int, str], int] = {}
    ended = set()
    for event in events:
        if isinstance(event, Connection):
            assert event.flow not in ended
            ended.add(event.flow)
            for side, number in ((event.client, event.messages.client), (event.server, event.messages.server)):
                assert number == count.pop((event.flow, side.address), 0)
            assert event.start_ns <= event.end_ns
            continue
        if isinstance(event, Capture | Comment | Work) or event.flow is None:
            continue
        assert event.flow not in ended, "a record after the connection record"
        assert event.src is not None
        assert event.packet is not None
        key = event.flow, event.src
        if not isinstance(event, Problem):
            assert event.packet >= last.get(key, 1), "the records of a sender are not in order"
            last[key] = event.packet
        assert 1 <= event.packet <= len(given)
        assert event.time_ns == given[event.packet - 1][0], "time_ns is not that of the packet"
        if isinstance(event, Message):
            count[key] = count.get(key, 0) + 1
    assert not count, "records of a flow without a connection record"
    total = events[-1]
    assert isinstance(total, Capture)
    assert total.packets == len(given)
    assert total.messages == sum(isinstance(event, Message) for event in events)
    assert total.problems == sum(isinstance(event, Problem) for event in events)
    assert total.zmtp_flows == len(ended) <= total.flows


def _bare(event: AnyEvent) -> tuple[Any, ...]:
    fields = {field.name: getattr(event, field.name) for field in record_fields(type(event))}
    for name in ("time_ns", "packet", "part", "flow", "src", "dst", "start_ns", "end_ns"):
        fields.pop(name, None)
    return (type(event).__name__, *fields.items())


def told(events: Iterable[AnyEvent]) -> dict[str, list[tuple[Any, ...]]]:
    """What each sender said, without times and numbers, and the connection record."""
    out: dict[str, list[tuple[Any, ...]]] = {}
    for event in events:
        if isinstance(event, Connection):
            out.setdefault("connection", []).append(_bare(event))
        elif not isinstance(event, (Capture, Comment, Problem, Work)):
            out.setdefault(event.src, []).append(_bare(event))
    return out


def complaints(events: Iterable[AnyEvent]) -> list[tuple[str, str]]:
    """The errors and warnings."""
    return sorted({(e.severity, e.code) for e in events if isinstance(e, Problem) and e.severity != "note"})


def whole_messages(events: Iterable[AnyEvent]) -> dict[str, list[list[Any]]]:
    """The frames of each sender's messages that are not marked as incomplete."""
    out: dict[str, list[list[Any]]] = {}
    for event in events:
        if isinstance(event, Message) and not event.incomplete:
            out.setdefault(event.src, []).append(event.frames)
    return out


def is_subsequence(part: Iterable[Any], whole: Iterable[Any]) -> bool:
    rest = iter(whole)
    return all(any(one == other for other in rest) for one in part)
