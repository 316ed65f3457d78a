"""The functions of ``core.c`` in plain Python, function for function: the specification of the native core.

Tests compare both on the same input: all that they return is the same.
"""

import struct
from array import array
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, log
from sys import byteorder
from typing import Any, Literal, NamedTuple, Protocol

from dissectors.columns import (
    ACKED,
    ASKED,
    DIRECT_STEPS,
    FRAME,
    GONE,
    IN_TURN,
    MESSAGE,
    PAIRED,
    RHYTHM,
    ROW,
    STEPS,
    TAKEN,
    WAITING,
)
from zmtpsniff.native import MOST_CARRY
from zmtpsniff.words import link_types

# Numbers of the parts whose facts these are, as in core.c; tests/native/test_core.py holds them equal.
RECENT = 16
RECENT_OCTETS = 256 << 10
LEAST_CLOCK_NS = 1_000_000
WAIT_LIMIT = 4096
MOST_FRAMES = 1024
LATEST_ACK = 1 << 26
MOST_FLOWS = 4096
MOST_PENDING = 64
SLOWEST = 4
MOST_WAITING = 1024
LONGEST_IDENTITY, OWN_IDENTITY = 255, 5
NEITHER = 2
MODULO = 1 << 32

MOST_SHORT = 128 << 10
SIGNATURE = 10
BEGINS, ENDS, ANSWERS, PASSES = 2, 3, 4, 5

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
MORE, LONG = 1, 2
WANTED, UNWANTED = 1, 2

Lookup = Callable[[bytes], tuple[Any, ...] | None]


# ---------------------------------------------------------------------- headers of packets


class PlainSegment(NamedTuple):
    """A plain packet of TCP. Its payload is in the block from ``start`` on."""

    key: bytes
    seq: int
    ack: int
    flags: int
    start: int
    length: int
    is_tagged: bool  # with a VLAN or VNI: perhaps of a network that has addresses in common with another


_LINKS = {  # the protocol field of a link header: its place, its size; where IP begins; its values for IPv4 and IPv6
    link_types.ETHERNET: (12, 2, 14, 0x0800, 0x86DD),
    link_types.LINUX_SLL: (14, 2, 16, 0x0800, 0x86DD),
    link_types.LINUX_SLL2: (0, 2, 20, 0x0800, 0x86DD),
    link_types.NULL: (0, 4, 4, 0x02000000, 0x1E000000),
    link_types.LOOP: (0, 4, 4, 0x02, 0x18),
}
_PURE_IP = (101, 228, 229)
_TAGS = frozenset(tag.to_bytes(2, "big") for tag in link_types.VLAN_TAGS)
IP_IN_IP, TCP, UDP, IPV6_IN_IP, GRE = 4, 6, 17, 41, 47
VXLAN_PORT, OLD_VXLAN_PORT, GENEVE_PORT, TRANSPARENT_ETHERNET = 4789, 8472, 6081, 0x6558
MOST_TAGS = 2  # of VLANs: that of a customer behind that of a provider


def link_header(packet: bytes, link: int) -> tuple[int, int, int] | None:
    """Where the IP header begins, its version, 0 for either, and the number of VLAN tags before it.

    None if the link header is no plain one.
    """
    if link in _PURE_IP:
        return 0, 0, 0
    if link not in _LINKS:
        return None
    place, size, ip, ipv4, ipv6 = _LINKS[link]
    tags = 0
    while (protocol := packet[place : place + size]) in _TAGS and tags < MOST_TAGS:
        place, ip, tags = ip + 2, ip + 4, tags + 1
    number = int.from_bytes(protocol, "big")
    if len(protocol) < size or number not in (ipv4, ipv6):
        return None
    return ip, 4 if number == ipv4 else 6, tags


class Plain(NamedTuple):
    """Of a packet of IP: its addresses, and the ports behind them; the next header's place, and where all ends."""

    key: bytes
    protocol: int
    begin: int
    stop: int


def ip_header(packet: bytes, ip: int, version: int) -> Plain | None:
    """Take off a plain header of IP: no option, no extension, no fragment, all captured."""
    first = packet[ip] if ip < len(packet) else -1
    if first == 0x45 and version != 6 and len(packet) >= ip + 24:
        length, fragment, protocol = struct.unpack_from("!2xH2xHxB", packet, ip)
        if fragment & 0xBFFF:
            return None
        found = Plain(packet[ip + 12 : ip + 24], protocol, ip + 20, ip + length)
    elif first >> 4 == 6 and version != 4 and len(packet) >= ip + 44:
        length, protocol = struct.unpack_from("!4xHB", packet, ip)
        if not length:
            return None
        found = Plain(packet[ip + 8 : ip + 44], protocol, ip + 40, ip + 40 + length)
    else:
        return None
    return found if found.begin <= found.stop <= len(packet) else None


def inner_ip(packet: bytes, outer: Plain) -> tuple[int, int] | None:
    """The place and version of the IP header that IP carries by itself, or in GRE without options; None: none."""
    if outer.protocol in (IP_IN_IP, IPV6_IN_IP):
        return outer.begin, 4 if outer.protocol == IP_IN_IP else 6
    header = packet[outer.begin : outer.begin + 4]
    if outer.protocol != GRE or header not in (b"\0\0\x08\0", b"\0\0\x86\xdd"):
        return None
    return outer.begin + 4, 4 if header[2] == 0x08 else 6


def inner_frame(packet: bytes, datagram: Plain) -> bytes | None:
    """The frame of Ethernet that a datagram of VXLAN or Geneve carries; None: it carries none."""
    data = packet[datagram.begin : datagram.stop]
    if len(data) < 16:
        return None
    port, length, first, second, protocol, last = struct.unpack_from("!2xHH2xBBH3xB", data)
    if length != len(data):
        return None
    if port in (VXLAN_PORT, OLD_VXLAN_PORT):
        return data[16:] if first == 0x08 else None
    if port != GENEVE_PORT or first > 0x3F or second & 0x3F or last or protocol != TRANSPARENT_ETHERNET:
        return None
    return data[16 + first * 4 :] if 16 + first * 4 <= len(data) else None


def headers(octets: bytes, start: int, captured: int, link: int) -> PlainSegment | None:
    """Take off the headers of a plain packet of TCP, perhaps in a tunnel."""
    packet = octets[start : start + captured]
    if len(packet) < captured or (header := link_header(packet, link)) is None:
        return None
    ip, version, tags = header
    found = ip_header(packet, ip, version)
    if found is not None and (carried := inner_ip(packet, found)) is not None:
        packet = packet[: found.stop]
        found = ip_header(packet, *carried)
    if found is not None and found.protocol == UDP:
        inner = inner_frame(packet, found)
        if inner is None or (header := link_header(inner, link_types.ETHERNET)) is None:
            return None
        start += found.stop - len(inner)
        packet, (ip, version, _), tags = inner, header, 1
        found = ip_header(packet, ip, version)
    if found is None or found.protocol != TCP or found.stop < found.begin + 20:
        return None
    seq, ack, offset, flags, window = struct.unpack_from("!4xIIBBH", packet, found.begin)
    size = (offset >> 4) * 4
    if size < 20 or found.stop < found.begin + size or not window:
        return None
    begin = found.begin + size
    return PlainSegment(found.key, seq, ack, flags, start + begin, found.stop - begin, tags > 0)


def turn_round(key: bytes) -> bytes:
    """The key of the other direction."""
    half = (len(key) - 4) // 2
    return key[half : 2 * half] + key[:half] + key[-2:] + key[-4:-2]


# ---------------------------------------------------------------------- whether it is worth it


def directions(octets: bytes, rows: bytes, packets: int, size: int) -> tuple[int, int, int, list[bytes]]:
    """The number of directions of TCP in plain packets, and the octets of all packets that are not gone.

    And the number of SYNs that begin a connection, and the keys of directions that have at least so many packets with
    payload, of this size on average, in any order.
    """
    payloads: dict[bytes, list[int]] = {}
    captured = begun = 0
    for _, start, length, _, link in ROW.iter_unpack(rows):
        captured += length if link != GONE else 0
        segment = headers(octets, start, length, link)
        if segment is not None:
            begun += segment.flags == SYN
            payloads.setdefault(segment.key, []).extend([segment.length] if segment.length else [])
    busy = [
        key
        for key, lengths in payloads.items()
        if len(lengths) >= packets and sum(lengths) // (size or 1) >= len(lengths)
    ]
    return len(payloads), captured, begun, busy


def packets_of(octets: bytes, rows: bytes, keys: set[bytes]) -> bytes:
    """The places of plain packets whose direction has one of these keys: numbers of 32 bits, in order."""
    found = array("I")
    for place, (_, start, size, _, link) in enumerate(ROW.iter_unpack(rows)):
        segment = headers(octets, start, size, link)
        if segment is not None and segment.key in keys:
            found.append(place)
    return found.tobytes()


# ---------------------------------------------------------------------- segments for Python


@dataclass
class Short:
    """A connection of which a block has the SYN; lists have the client's and the server's."""

    key: bytes  # of the client's direction
    isn: list[int]
    next: list[int]
    start_ns: int
    last_ns: int
    last: int  # row
    state: Literal["asked", "answered", "over", "whole", "odd"] = "asked"
    length: list[int] = field(default_factory=lambda: [0, 0])
    has_fin: list[bool] = field(default_factory=lambda: [False, False])
    segments: int = 0
    ack: int = 0  # of the first FIN
    closer: int = 2  # which side sent it; 2: both at once
    # Rows: side, octets before it, what was seen, up to where it acknowledges.
    places: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    acked: list[int] = field(default_factory=lambda: [-1, -1])  # up to where the other side acknowledged
    sides: list[Any] = field(default_factory=list)
    acks: list[tuple[int, int, int]] = field(default_factory=list)

    def steps(
        self, row: int, segment: tuple[Any, ...], numbers: Sequence[int], listens: bool
    ) -> Iterator[tuple[Any, ...]]:
        """The steps of a packet, as net/segment.py has them."""
        time_ns, packet, _, _, _, flags, payload, _ = segment
        side, begin, seen, acked = self.places[row]
        if flags == SYN:
            facts = *self.isn, *self.length, self.segments, self.closer, self.ack, self.last_ns, numbers[self.last]
            yield time_ns, packet, BEGINS, self.sides, self.key, facts
        elif listens:
            if acked > self.acked[1 - side]:
                self.acked[1 - side] = acked
                self.acks.append((time_ns, 1 - side, acked))
            if flags & SYN:
                yield time_ns, packet, ANSWERS, self.sides
        if payload:
            yield time_ns, packet, side, self.sides, payload, begin, seen
        if row == self.last:
            yield time_ns, packet, ENDS, self.sides, self.acks


def is_signed(payload: bytes) -> bool:
    """Whether octets begin with a signature that nothing else begins with."""
    return len(payload) >= SIGNATURE and payload[:8] == b"\xff" + bytes(7) and payload[9] == 0x7F


def goes_on(one: Short, side: int, segment: PlainSegment, payload: bytes) -> tuple[int, int, int] | None:
    """Take a segment of a side that is in order.

    Returns what was sent before it, what its sender had seen, and up to where it acknowledges.
    """
    unseen = (one.next[1 - side] - segment.ack) % MODULO
    has_seen_fin, closes = unseen == MODULO - 1, bool(segment.flags & FIN)
    if one.state == "asked":
        one.isn[1], one.next[1], one.state = segment.seq, (segment.seq + 1) % MODULO, "answered"
        return (0, 0, 0) if side and segment.flags == SYN | ACK and not unseen and not payload else None
    if segment.flags & ~(PSH | FIN) != ACK or segment.seq != (one.next[side] + one.has_fin[side]) % MODULO:
        return None
    if not one.has_fin[1 - side] if has_seen_fin else unseen > one.length[1 - side]:
        return None
    if (one.has_fin[side] and (closes or payload)) or len(payload) > MOST_SHORT - one.length[side]:
        return None
    if payload and not one.length[side] and not is_signed(payload):
        return None
    seen = one.length[1 - side] - (0 if has_seen_fin else unseen)
    place = one.length[side], seen, seen + has_seen_fin
    one.length[side] += len(payload)
    one.next[side] = (one.next[side] + len(payload)) % MODULO
    one.segments += bool(payload)
    if closes and one.has_fin[1 - side]:
        one.state = "over" if all(one.length) else "odd"
        one.closer = 1 - side if has_seen_fin else 2
    elif closes:
        one.ack = segment.ack
    one.has_fin[side] |= closes
    return place


def follow(
    shorts: list[Short], owners: dict[bytes, tuple[Short, int] | None], row: int, time_ns: int, pause_ns: int,
    segment: PlainSegment, payload: bytes,
) -> None:  # fmt: skip
    """Take a segment of any connection; ``owners`` has of each direction its short connection and its side."""
    key = segment.key
    back = turn_round(key)
    if key not in owners:
        owners[key] = None
        if back not in owners and segment.flags == SYN and not payload:
            one = Short(key, [segment.seq, 0], [(segment.seq + 1) % MODULO, 0], time_ns, time_ns, row)
            one.places[row] = 0, 0, 0, 0
            owners[key] = one, 0
            shorts.append(one)
            return
        if (owner := owners.get(back)) is not None and not owner[1]:
            owners[key] = owner[0], 1
    owner = owners[key]
    if owner is None:
        return
    one, side = owner
    is_soon = one.last_ns <= time_ns < one.last_ns + pause_ns
    if one.state == "over":
        unseen = (one.next[1 - side] - segment.ack) % MODULO
        unseen = -1 if unseen == MODULO - 1 else unseen
        is_last = is_soon and segment.flags == ACK and not payload and 0 <= segment.seq - one.next[side] <= 1
        if not is_last or unseen > one.length[1 - side]:
            one.state = "odd"
        one.places[row] = side, 0, 0, one.length[1 - side] - unseen
        return
    place = goes_on(one, side, segment, payload) if one.state != "odd" and is_soon else None
    if place is None:
        one.state = "odd"
        return
    one.last_ns, one.last = time_ns, row
    one.places[row] = side, *place


def whole(
    octets: bytes, rows: bytes, numbers: Sequence[int], other: Callable[[int], bytes | None], pause_ns: int,
    is_new: Callable[[bytes, int, int], bool], listens: bool,
) -> tuple[list[Any], bytes]:  # fmt: skip
    """The steps of connections whose packets are all here, in order, from SYN to FINs, without such a pause.

    And the rows without these packets: they have no link any more. The packets have these ``numbers``. ``other`` is
    called with the place of a packet that is no plain one of TCP, and returns the key of its segment; None: it has
    none. ``is_new`` says of a client's key and initial number, and its time, that the connection is of no known flow.
    Answers to SYNs, and acknowledgments, are there if somebody ``listens``.
    """
    plain: dict[int, tuple[PlainSegment, int, bytes]] = {}
    shorts: list[Short] = []
    owners: dict[bytes, tuple[Short, int] | None] = {}
    for row, (time_ns, start, size, _, link) in enumerate(ROW.iter_unpack(rows)):
        segment = headers(octets, start, size, link)
        if segment is not None and not segment.is_tagged:
            payload = octets[segment.start : segment.start + segment.length]
            plain[row] = segment, time_ns, payload
            follow(shorts, owners, row, time_ns, pause_ns, segment, payload)
    if not any(one.state == "over" for one in shorts):
        return [], rows
    for row in range(len(rows) // ROW.size):
        if row not in plain and (owner := owners.get(other(row) or b"")) is not None:
            owner[0].state = "odd"
    for one in shorts:
        if one.state == "over":
            one.state = "whole" if is_new(one.key, one.isn[0], one.start_ns) else "odd"
    found: list[Any] = []
    after = bytearray(rows)
    owner_of = {row: one for one in shorts if one.state == "whole" for row in one.places}
    for row, one in sorted(owner_of.items()):
        segment, time_ns, payload = plain[row]
        made = (time_ns, numbers[row], segment.key, segment.seq, segment.ack, segment.flags, payload, 0)
        found += one.steps(row, made, numbers, listens)
        after[(row + 1) * ROW.size - 4 : (row + 1) * ROW.size] = GONE.to_bytes(4, byteorder)
        last = time_ns, numbers[row], PASSES, None
    return [*found, last] if found else [], bytes(after)


def segments(octets: bytes, rows: bytes, numbers: Sequence[int], other: Callable[[int], Any]) -> list[Any]:
    """The segments of packets, which have these numbers, as net/segment.py has them, without those that are gone.

    ``other`` is called with the place of a packet that is no plain one of TCP, and returns its segment; None: it has
    none.
    """
    found: list[Any] = []
    for row, (time_ns, start, size, _, link) in enumerate(ROW.iter_unpack(rows)):
        if link == GONE:
            continue
        plain = headers(octets, start, size, link)
        if plain is None or plain.is_tagged:
            found.append(other(row))
        else:
            payload = octets[plain.start : plain.start + plain.length]
            found.append((time_ns, numbers[row], plain.key, plain.seq, plain.ack, plain.flags, payload, 0))
    return [segment for segment in found if segment is not None]


# ---------------------------------------------------------------------- flows


@dataclass
class SettledSide:
    """One direction; its names are those of the parts that have these facts."""

    mode: int
    next: int
    offset: int
    keep: int
    part: int
    carry: bytes
    recent: deque[tuple[int, bytes, int, int] | tuple[int, int, int, int, int]]  # from before this call, and in it
    recent_until: int
    fed: int = 0
    time_ns: int = 0
    packet: int = 0
    begin: int = 0
    seen: int = 0
    earlier: int = 0
    acked: int = -(1 << 63)
    acked_ns: int = 0

    @classmethod
    def enter(cls, facts: tuple[Any, ...]) -> "SettledSide":
        """A side with the facts that a lookup gives."""
        mode, number, offset, keep, part, carry, recent, until = facts
        return cls(mode, number, offset, keep, part, carry, deque(recent, RECENT), until)

    def facts(self) -> tuple[Any, ...] | None:
        """The facts that go back; None if no octets came."""
        if not self.fed:
            return None
        recent = [one for one in self.recent if len(one) == 5]
        old = len(self.recent) - len(recent)
        return (
            self.next, self.offset, self.fed, self.time_ns, self.packet, self.begin, self.seen, self.earlier,
             self.part, self.carry, old, recent, self.recent_until,
        )  # fmt: skip


@dataclass
class SettledStep:
    """A lock step: the REQ whose request waits, as in analysis/patterns/request_reply.py."""

    requester: int
    packet: int
    part: int
    time_ns: int
    offset: int
    seen: int
    answered: int
    asked: int
    timeout_ns: int

    def facts(self) -> tuple[int, ...]:
        """The facts that go back."""
        return self.packet, self.part, self.time_ns, self.offset, self.seen, self.answered, self.asked


@dataclass
class SettledFlow:
    """A settled flow."""

    token: Any
    last_ns: int
    sides: tuple[SettledSide, SettledSide]
    step: SettledStep | None
    last_packet: int = 0


@dataclass
class SettledColumns:
    """The octets of the columns that take() writes."""

    messages: bytearray = field(default_factory=bytearray)
    frames: bytearray = field(default_factory=bytearray)
    carried: bytearray = field(default_factory=bytearray)
    acked: bytearray = field(default_factory=bytearray)
    recent_octets: int = 0


# ---------------------------------------------------------------------- frames of messages (23/ZMTP, 37/ZMTP)


class _OddError(Exception):
    """Python takes this packet."""


def frame_at(octets: bytes, place: int, keep: int) -> tuple[int, int, int] | None:
    """The header of a frame: its flags, where its body begins, and how long that is; None if the frame is not over.

    Raises _OddError for what is no plain frame of a message, and for a long one to wait for.
    """
    if octets[place] > MORE | LONG:
        raise _OddError
    left = len(octets) - place
    if left < 2:
        return None
    flags = octets[place]
    if not flags & LONG:
        length = octets[place + 1]
        return (flags, place + 2, length) if left >= 2 + length else None
    if left < 9:
        return None
    length = int.from_bytes(octets[place + 1 : place + 9], "big")
    if length <= 255 or length > keep:
        raise _OddError
    if left >= 9 + length:
        return flags, place + 9, length
    if length - (left - 9) > WAIT_LIMIT:
        raise _OddError
    return None


def keeps_step(
    step: SettledStep, side: int, lengths: list[int], offset: int, seen: int, part: int, packet: int, time_ns: int
) -> tuple[int, int, int]:
    """Take a message with frames of these lengths that keeps the lock step.

    Returns packet and part of the request that it answers, and the latency; zeros for a request. Raises _OddError.
    """
    if lengths[0] or len(lengths) < 2:
        raise _OddError
    if side == step.requester:
        if step.packet or seen <= step.answered:
            raise _OddError
        step.seen, step.packet, step.asked, step.part = seen, packet, packet, part
        step.time_ns, step.offset = time_ns, offset
        return 0, 0, 0
    latency = time_ns - step.time_ns
    if not step.packet or seen <= step.offset or not 0 <= latency <= step.timeout_ns:
        raise _OddError
    answered = step.packet, step.part, latency
    step.answered, step.packet = offset, 0
    return answered


def read_messages(
    flow: SettledFlow, side_number: int, name: int, octets: bytes, base: int, row: int, packet: int, time_ns: int,
    seen: int, batch: SettledColumns,
) -> tuple[int, int]:  # fmt: skip
    """Write the messages that end in a packet.

    ``octets`` holds the message that is not over and the payload. A place in it is ``base`` less than one in the block,
    or in what was carried. Returns the number of messages that end in the packet, and of octets that are left over.
    Raises _OddError.
    """
    side = flow.sides[side_number]
    frames: list[tuple[int, int]] = []
    place = begin = part = 0
    while place < len(octets):
        found = frame_at(octets, place, side.keep)
        if len(frames) >= MOST_FRAMES:
            raise _OddError
        if found is None:
            break
        flags, start, length = found
        if base + start >= MODULO:
            raise _OddError
        frames.append((base + start, length))
        place = start + length
        if flags & MORE:
            continue
        part += 1
        envelope = request = request_part = latency = 0
        if flow.step is not None:
            lengths = [length for _, length in frames]
            envelope = 1
            request, request_part, latency = keeps_step(
                flow.step, side_number, lengths, side.offset, seen, part, packet, time_ns
            )
        first = len(batch.frames) // FRAME.size
        batch.messages += MESSAGE.pack(
            row, name, part, first, len(frames), request_part, envelope, 0, 0, 0, side.offset, seen, request, latency, 0
        )
        for frame in frames:
            batch.frames += FRAME.pack(*frame)
        frames, begin = [], place
    if len(octets) - begin > MOST_CARRY:
        raise _OddError
    return part, len(octets) - begin


# ---------------------------------------------------------------------- packets of settled flows


def remember(side: SettledSide, segment: PlainSegment, time_ns: int, seen: int) -> None:
    """Keep a delivered segment to compare retransmissions with; as Direction.thin() does."""
    begin = side.offset - segment.length
    side.recent.append((begin, segment.start, segment.start + segment.length, time_ns, seen))
    if side.offset <= side.recent_until:
        return
    octets = sum(map(_length, side.recent))
    while octets > RECENT_OCTETS * 3 // 4:
        octets -= _length(side.recent.popleft())
    side.recent_until = side.offset + RECENT_OCTETS - octets


def _length(recent: tuple[int, bytes, int, int] | tuple[int, int, int, int, int]) -> int:
    return len(recent[1]) if len(recent) == 4 else recent[2] - recent[1]


def repeats(side: SettledSide, octets: bytes, segment: PlainSegment, time_ns: int) -> bool:
    """Whether a segment is a delivered one that was captured again at once. As Direction.repeats()."""
    offset = side.offset - (side.next - segment.seq) % MODULO
    payload = octets[segment.start : segment.start + segment.length]
    for one in reversed(side.recent):
        if one[0] <= offset:
            first = one[1] if len(one) == 4 else octets[one[1] : one[2]]
            return one[0] == offset and first == payload and 0 <= time_ns - one[-2] < LEAST_CLOCK_NS
    return False


def take_payload(
    flow: SettledFlow, side_number: int, name: int, octets: bytes, segment: PlainSegment, row: int, packet: int,
    time_ns: int, seen: int, batch: SettledColumns,
) -> None:  # fmt: skip
    """Take the payload of the next segment of a side. Raises _OddError, and has changed nothing then."""
    side = flow.sides[side_number]
    sizes = len(batch.messages), len(batch.frames), len(batch.carried)
    step = None if flow.step is None else SettledStep(**vars(flow.step))
    data, base = octets[segment.start : segment.start + segment.length], segment.start
    if side.carry:
        base = len(octets) + len(batch.carried)
        data = side.carry + data
        batch.carried += data
    try:
        after, left = read_messages(flow, side_number, name, data, base, row, packet, time_ns, seen, batch)
    except _OddError:
        del batch.messages[sizes[0] :], batch.frames[sizes[1] :], batch.carried[sizes[2] :]
        flow.step = step
        raise
    side.carry = data[len(data) - left :]
    side.earlier += side.part
    side.part, side.packet = after, packet
    side.begin, side.seen, side.time_ns = side.offset, seen, time_ns
    side.next = (segment.seq + segment.length) % MODULO
    side.offset += segment.length
    side.fed += segment.length
    remember(side, segment, time_ns, seen)
    batch.recent_octets += segment.length + 256


class SettledTable:
    """The flows of a call, by the keys of their directions."""

    def __init__(self, lookup: Lookup) -> None:
        """Ask ``lookup`` for flows."""
        self._lookup = lookup
        self.flows: list[SettledFlow] = []
        self._directions: dict[bytes, tuple[SettledFlow, int, int]] = {}

    def direction(self, key: bytes) -> tuple[SettledFlow, int, int]:
        """The flow of a key, which of its sides that is, and the name of the side. Raises _OddError: not settled."""
        if key not in self._directions:
            found = self._lookup(key) if len(self.flows) < MOST_FLOWS else None
            if found is None:
                raise _OddError
            token, side, last_ns, one, other, step = found
            flow = SettledFlow(
                token,
                last_ns,
                (SettledSide.enter(one), SettledSide.enter(other)),
                None if step is None else SettledStep(*step),
            )
            place = 2 * len(self.flows)
            self.flows.append(flow)
            reverse = turn_round(key)
            self._directions[reverse] = flow, 1 - side, place + 1 - side
            self._directions[key] = flow, side, place + side
        return self._directions[key]

    def facts(self) -> list[tuple[Any, ...]]:
        """The facts that go back."""
        return [
            (
                flow.token, flow.last_ns, flow.last_packet, flow.sides[0].facts(), flow.sides[1].facts(),
                None if flow.step is None else flow.step.facts(), *(side.acked_ns for side in flow.sides),
                *(side.acked for side in flow.sides),
            )
            for flow in self.flows
        ]  # fmt: skip


def take_packet(
    table: SettledTable,
    octets: bytes,
    row: tuple[int, ...],
    place: int,
    packet: int,
    pause_ns: int,
    batch: SettledColumns,
) -> None:
    """Take a packet, if it is the next one of a settled direction, and boring. Raises _OddError if it is not."""
    time_ns, start, captured, _, link = row
    segment = headers(octets, start, captured, link)
    if segment is None or segment.flags & (SYN | RST | FIN | ACK) != ACK:
        raise _OddError
    flow, number, name = table.direction(segment.key)
    side, other = flow.sides[number], flow.sides[1 - number]
    if time_ns - flow.last_ns > pause_ns:
        raise _OddError
    if side.mode != UNWANTED:
        unseen = (other.next - segment.ack) % MODULO
        if unseen >= LATEST_ACK:
            raise _OddError
        seen = other.offset - unseen
        if segment.length:
            if side.mode != WANTED:
                raise _OddError
            if segment.seq == side.next:
                take_payload(flow, number, name, octets, segment, place, packet, time_ns, seen, batch)
            elif not repeats(side, octets, segment, time_ns):
                raise _OddError
        else:
            side.acked_ns = time_ns
        if seen > side.acked:
            side.acked = seen
            batch.acked += ACKED.pack(place, name, seen)
    flow.last_ns, flow.last_packet = time_ns, packet


def take(
    octets: bytes, rows: bytes, place: int, number: int, pause_ns: int, lookup: Lookup
) -> tuple[int, bytes, bytes, bytes, list[tuple[Any, ...]], int, bytes]:
    """Take the packets of settled flows from ``rows[place]`` on, whose number is given.

    ``lookup`` tells the facts of the flow of a key, or None if it is not settled. Returns the first packet that was not
    taken, messages, frames and the octets that were carried, the facts of all flows, the octets kept of segments, and
    the packets that acknowledge more than the one before.
    """
    table, batch = SettledTable(lookup), SettledColumns()
    count = len(rows) // ROW.size
    while place < count:
        row = ROW.unpack_from(rows, place * ROW.size)
        try:
            if row[-1] != GONE:
                take_packet(table, octets, row, place, number, pause_ns, batch)
        except _OddError:
            break
        place += 1
        number += 1
    columns = bytes(batch.messages), bytes(batch.frames), bytes(batch.carried)
    return place, *columns, table.facts(), batch.recent_octets, bytes(batch.acked)


# ---------------------------------------------------------------------- JSON Lines


def frame_object(octets: bytes, most: int, fragment: Callable[[bytes], bytes]) -> bytes:
    """The object for a frame."""
    if len(octets) > most or (0 not in octets and not octets.isascii()):
        return fragment(octets)
    head = b'{"length":%d' % len(octets)
    if any((octet < 0x20 and octet not in b"\t\n\r") or octet == 0x7F for octet in octets):
        return head + b',"hex":"' + octets.hex().encode() + b'"}'
    for octet, escape in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r")):
        octets = octets.replace(octet, escape)
    return head + b',"text":"' + octets + b'"}'


def lines(
    octets: bytes, carried: bytes, rows: bytes, number: int, messages: bytes, frames: bytes,
    sides: list[tuple[bytes, bytes]], most: int, fragment: Callable[[bytes], bytes],
) -> bytes:  # fmt: skip
    """Records of messages as JSON Lines.

    ``number`` is that of the first row's packet. ``sides`` has two texts for each side: from behind the packet number
    to the first frame, and from behind the frames to the part. ``fragment`` makes the object of a frame that has more
    than ``most`` octets, or characters beyond ASCII.
    """
    found = []
    both = octets + carried
    spans = list(FRAME.iter_unpack(frames))
    for (
        row, side, part, first, count, request_part, envelope, paired, via_part, via_flow, _, _, request, latency, via,
    ) in MESSAGE.iter_unpack(messages):  # fmt: skip
        start, end = sides[side]
        time_ns = ROW.unpack_from(rows, row * ROW.size)[0]
        shown = [frame_object(both[at : at + size], most, fragment) for at, size in spans[first : first + count]]
        line = b'{"type":"message","time_ns":%d,"packet":%d' % (time_ns, number + row) + start
        line += b",".join(shown) + end + (b',"part":%d' % part if part != 1 else b"")
        if envelope:
            line += b',"envelope":{"identities":%d,"delimiter":true}' % (envelope - 1)
        if request:
            line += b',"latency_ns":%d,"request":%d' % (latency, request)
            line += b',"request_part":%d' % request_part if request_part != 1 else b""
            line += b',"paired":"%s"' % str(PAIRED[paired]).encode() if 0 < paired < len(PAIRED) else b""
        if via:
            line += b',"forwards":{"flow":%d,"packet":%d' % (via_flow, via)
            line += b',"part":%d}' % via_part if via_part != 1 else b"}"
        found.append(line + b"}\n")
    return b"".join(found)


# ---------------------------------------------------------------------- cells of a table


def cells(
    octets: bytes, carried: bytes, rows: bytes, numbers: bytes, base: int, messages: bytes, frames: bytes,
    codes: bytes, most: int,
) -> tuple[bytes, ...]:  # fmt: skip
    """Columns of a table, as Arrow has them.

    They are the time of each message, the number of its packet, of those that ``numbers`` has for each row, where the
    record of the packet begins, which is ``base`` more than in its row, part, the code of its side, and the number of
    its frames. And of all frames how long they are, and at most ``most`` octets of each.
    """
    found = [array(kind) for kind in "qqqIiIIB"]
    both = octets + carried
    packets, code_of = array("q", numbers), array("i", codes)
    spans = list(FRAME.iter_unpack(frames))
    for row, side, part, first, count, *_ in MESSAGE.iter_unpack(messages):
        time_ns, start, *_ = ROW.unpack_from(rows, row * ROW.size)
        for column, value in zip(
            found, (time_ns, packets[row], base + start, part, code_of[side], count), strict=False
        ):
            column.append(value)
        for at, size in spans[first : first + count]:
            found[-2].append(size)
            found[-1].frombytes(both[at : at + min(size, most)])
    return tuple(column.tobytes() for column in found)


# ---------------------------------------------------------------------- counting


def tally(messages: bytes, rows: bytes, width_ns: int, per_e: float) -> tuple[list[Any], list[Any]]:
    """The number of messages in intervals of ``width_ns``: begin and count of each run of them.

    And the latencies by side: its number, their count, zeros among them, the least, the most, and how many are in each
    bucket of a Sketch, which has ``per_e`` buckets for a factor of e.
    """
    intervals: list[tuple[int, int]] = []
    latencies: dict[int, list[int]] = {}
    for row, side, *_, request, latency, _ in MESSAGE.iter_unpack(messages):
        time_ns = ROW.unpack_from(rows, row * ROW.size)[0]
        begin = time_ns - time_ns % width_ns
        if intervals and intervals[-1][0] == begin:
            intervals[-1] = begin, intervals[-1][1] + 1
        else:
            intervals.append((begin, 1))
        if request:
            latencies.setdefault(side, []).append(latency)
    found = []
    for side, values in latencies.items():
        buckets = Counter(ceil(log(value) * per_e) for value in values if value > 0)
        zeros = sum(value <= 0 for value in values)
        found.append((side, len(values), zeros, min(values), max(values), sorted(buckets.items())))
    return intervals, found


# ---------------------------------------------------------------------- counting requests and replies


def take_off(pending: list[tuple[int, ...]], request: int, request_part: int) -> None:
    """One of those that wait has its reply: the one that it answers, if that is known, else the first."""
    places = [place for place, (_, packet, part) in enumerate(pending) if (packet, part) == (request, request_part)]
    del pending[places[0] if request and places else 0]


def _difference(one: int, other: int) -> int:
    """Times and offsets that cannot be wrap around."""
    return (one - other + (1 << 63)) % (1 << 64) - (1 << 63)


def say(rhythm: list[int], time_ns: int, place: int) -> None:
    """The side says one more message, which ends at ``place`` of its stream."""
    said, run, longest_run, turns, long_gaps, since, longest_wait, last, longest_gap, offset, size, least, most = rhythm
    gap = _difference(time_ns, last)
    if said and gap > longest_gap:
        long_gaps, longest_gap = (long_gaps + 1 if longest_gap >= _difference(gap, longest_gap) else 1), gap
    elif said and gap >= _difference(longest_gap, gap):
        long_gaps += 1
    if said > 1:
        least, most = (size if said == 2 else min(least, size)), max(most, size)
    rhythm[:5] = said + 1, run + 1, longest_run, turns, long_gaps
    rhythm[5:9] = (since if run else time_ns), longest_wait, time_ns, longest_gap
    rhythm[9:] = place, _difference(place, offset), least, most


def hear(rhythm: list[int], time_ns: int) -> None:
    """The other side says one."""
    _, run, longest_run, turns, _, since, longest_wait, *_ = rhythm
    if run:
        rhythm[1:4] = 0, max(run, longest_run), turns + 1
        rhythm[6] = max(_difference(time_ns, since), longest_wait)


def count_exchanges(
    messages: bytes, rows: bytes, number: int, sides: bytes, exchanges: list[tuple[bytes, bytes, bytes]]
) -> list[tuple[int, int, int, int, bytes, bytes, bytes]]:
    """Count requests and replies; ``number`` is that of the first row's packet.

    ``sides`` has a number of each side: 0 if it is in no exchange, else 1 + twice the place of its exchange, and 1 more
    if it asks. ``exchanges`` has the requests that wait, the latencies of the slowest replies, and the rhythms of the
    side that answers and of the one that asks, or none. Returns of each: how many asked, how many answered, how often
    nothing waited after that, the last time, the requests that wait, the rhythms, and the places of replies that were
    slower than one of the slowest.
    """
    found = []
    names = struct.unpack(f"={len(sides) // 4}I", sides)
    for exchange, (waiting, latencies, speech) in enumerate(exchanges):
        rhythms = [[*one] for one in RHYTHM.iter_unpack(speech)]
        pending: list[tuple[int, ...]] = list(ASKED.iter_unpack(waiting))
        slowest = [latency for (latency,) in struct.iter_unpack("=q", latencies)]
        asked = answered = in_turns = last_ns = 0
        places = []
        for place, columns in enumerate(MESSAGE.iter_unpack(messages)):
            row, side, part, _, _, request_part, _, _, _, _, offset, _, request, latency, _ = columns
            if not names[side] or (names[side] - 1) // 2 != exchange:
                continue
            last_ns = ROW.unpack_from(rows, row * ROW.size)[0]
            asks = names[side] % 2 == 0
            if rhythms:
                say(rhythms[asks], last_ns, offset)
                hear(rhythms[not asks], last_ns)
            if asks:
                asked += 1
                pending = [*pending, (last_ns, number + row, part)][-MOST_PENDING:]
                continue
            answered += 1
            if pending:
                take_off(pending, request, request_part)
                in_turns += not pending
            if request and (len(slowest) < SLOWEST or latency > min(slowest)):
                slowest = sorted([*slowest, latency])[-SLOWEST:]
                places.append(place)
        kept = b"".join(ASKED.pack(*one) for one in pending)
        told = b"".join(RHYTHM.pack(*one) for one in rhythms)
        found.append((asked, answered, in_turns, last_ns, kept, told, struct.pack(f"={len(places)}I", *places)))
    return found


# ---------------------------------------------------------------------- requests and replies


class ProxyCalls(Protocol):
    """Messages that proxies pass on, as in analysis/patterns/proxies.py; pair() asks it, and tells it more."""

    has_replies: Any

    def expected_reply(self, flow: int, content: int, /) -> tuple[int, int, int] | None:
        """Where the request is that a reply answers which may be sent on; None if no such reply may be sent on."""

    def begin_place(self, content: int, flow: int, packet: int, part: int, alone: int, /) -> None:
        """Remember a request to a ROUTER."""

    def forwarded_place(self, src: str, identity: bytes, content: int, flow: int, /) -> tuple[int, int, int] | None:
        """Where a request came from."""

    def begin_reply_place(
        self, dst: str, identity: bytes, content: int, flow: int, packet: int, part: int, answers_flow: int,
        answers: int, answers_part: int, /,
    ) -> None:  # fmt: skip
        """Remember a reply to a proxy."""

    def forwarded_reply_place(self, flow: int, content: int, /) -> tuple[int, int, int] | None:
        """Where a reply of a ROUTER came from."""


@dataclass
class SettledRequests:
    """RequestReply or LockStep of analysis/patterns."""

    kind: int
    flow: int
    addresses: tuple[str, str]
    pairs: bool = True
    relays: bool = False
    routers: int = 0
    askers: list[int] = field(default_factory=lambda: [0, 0])
    timeout_ns: int = 0
    waiting: list[tuple[int, ...]] = field(default_factory=list)
    taken: dict[int, int] = field(default_factory=dict)
    step: SettledStep | None = None
    asks_again: bool = False
    has_answers: bool = False
    is_touched: bool = False

    @classmethod
    def enter(cls, facts: tuple[Any, ...]) -> "SettledRequests":
        """A flow with the facts that pair() is given."""
        kind, flow, one, other, rest = facts
        found = cls(kind, flow, (one, other))
        if kind in (STEPS, DIRECT_STEPS):
            found.step = SettledStep(*rest)
            return found
        if kind == IN_TURN:
            found.askers[0], found.timeout_ns, waiting, taken = rest
        else:
            found.pairs, found.relays, found.routers, found.askers[0], found.askers[1], waiting, taken = rest
        found.waiting = list(WAITING.iter_unpack(waiting))
        found.taken = dict(TAKEN.iter_unpack(taken))
        return found

    def facts(self) -> tuple[Any, ...] | None:
        """The facts that go back; None if nothing came."""
        if not self.is_touched:
            return None
        if self.step is not None:
            return self.step.facts()
        waiting = b"".join(WAITING.pack(*one) for one in self.waiting)
        taken = b"".join(TAKEN.pack(*one) for one in self.taken.items())
        return *self.askers, int(self.asks_again), int(self.has_answers), waiting, taken


@dataclass
class SettledEvent:
    """A message, and what it gets."""

    side: int
    frames: tuple[bytes, ...]
    key: int
    packet: int
    part: int
    time_ns: int
    offset: int
    seen: int
    envelope: int = 0
    request: int = 0
    request_part: int = 0
    latency: int = 0
    paired: int = 0
    forwards: tuple[int, int, int] = (0, 0, 0)  # flow, packet, part
    answers: tuple[int, int, int] = (0, 0, 0)  # the same of the message that its request forwards


def envelope_of(frames: tuple[bytes, ...]) -> int:
    """The identities of the envelope and 1, or 0 if there is none."""
    place = frames.index(b"") if b"" in frames else len(frames)
    return place + 1 if place + 1 < len(frames) else 0


def is_relayed(frames: tuple[bytes, ...], announced: Container[bytes]) -> bool:
    """Whether a ROUTER put the first frame in front of the others."""
    first = frames[0]
    if len(frames) < 2 or not 0 < len(first) <= LONGEST_IDENTITY:
        return False
    return (len(first) == OWN_IDENTITY and not first[0]) or first in announced


def ask(flow: SettledRequests, event: SettledEvent) -> None:
    """One more request waits. Raises _OddError."""
    if len(flow.waiting) >= MOST_WAITING:
        raise _OddError
    flow.asks_again |= any(one[0] == event.key for one in flow.waiting)
    via_flow, via, via_part = event.forwards
    flow.waiting.append((event.key, event.packet, event.time_ns, event.offset, via, event.part, via_part, via_flow))


def drop_known(flow: SettledRequests, key: int, seen: int) -> None:
    """Take away the requests with this key that a reply can know."""
    flow.waiting = [one for one in flow.waiting if one[0] != key or one[3] >= seen]


def take_alike(flow: SettledRequests, key: int, seen: int, known: int) -> None:
    """One more of ``known`` requests with this key has its reply, and nobody knows which. Raises _OddError."""
    if known <= flow.taken.get(key, 0):
        raise _OddError
    flow.taken[key] = flow.taken.get(key, 0) + 1
    if flow.taken[key] == known:
        drop_known(flow, key, seen)
        del flow.taken[key]


def pair_with(flow: SettledRequests, event: SettledEvent, request: tuple[int, ...], paired: int) -> None:
    """The request of a reply is known."""
    _, event.request, asked_ns, _, via, event.request_part, via_part, via_flow = request
    event.answers = via_flow, via, via_part
    event.latency, event.paired = event.time_ns - asked_ns, paired
    flow.has_answers = True


def answer(flow: SettledRequests, event: SettledEvent) -> None:
    """Find the request of a reply, if that is certain. Raises _OddError."""
    known = [one for one in flow.waiting if one[0] == event.key and one[3] < event.seen]
    if not known:
        raise _OddError
    if len(known) > 1 or event.key in flow.taken:
        take_alike(flow, event.key, event.seen, len(known))
        flow.has_answers = True
        return
    if event.time_ns < known[0][2]:
        raise _OddError
    pair_with(flow, event, known[0], PAIRED.index("envelope"))
    drop_known(flow, event.key, event.seen)


def answer_at(flow: SettledRequests, event: SettledEvent, place: tuple[int, int, int]) -> None:
    """Pair a reply with the request at this place: flow, packet, part. Raises _OddError."""
    for request in flow.waiting:
        key, packet, asked_ns, _, _, part, *_ = request
        if (flow.flow, packet, part) == place and key == event.key and event.time_ns >= asked_ns:
            break
    else:
        raise _OddError
    pair_with(flow, event, request, PAIRED.index("forwards"))
    flow.waiting.remove(request)
    if event.key in flow.taken and flow.taken[event.key] >= sum(one[0] == event.key for one in flow.waiting):
        flow.waiting = [one for one in flow.waiting if one[0] != event.key]
        del flow.taken[event.key]


def pair_sent_on(flow: SettledRequests, event: SettledEvent, proxies: ProxyCalls, *, replies: bool) -> bool:
    """Pair a reply that a ROUTER sends on from another connection. Returns whether it is one. Raises _OddError."""
    content = hash(event.frames)
    place = proxies.expected_reply(flow.flow, content) if proxies.has_replies else None
    if place is None:
        return False
    if not replies or not place[1]:
        raise _OddError
    answer_at(flow, event, place)
    event.forwards = proxies.forwarded_reply_place(flow.flow, content) or event.forwards
    return True


def begin_reply(flow: SettledRequests, event: SettledEvent, proxies: ProxyCalls) -> None:
    """Tell the proxies of a reply with an identity in front: a ROUTER may send it to that peer."""
    frames, (via_flow, via, via_part) = event.frames, event.answers
    proxies.begin_reply_place(
        flow.addresses[1 - event.side], frames[0], hash(frames[1:]), flow.flow, event.packet, event.part,
        via_flow, via, via_part,
    )  # fmt: skip


def follow_request(flow: SettledRequests, event: SettledEvent, proxies: ProxyCalls) -> None:
    """Take where a request with an identity in front came from, if the proxies know it."""
    frames, address = event.frames, flow.addresses[event.side]
    event.forwards = proxies.forwarded_place(address, frames[0], hash(frames[1:]), flow.flow) or event.forwards


def role_of(flow: SettledRequests, event: SettledEvent, envelope: int) -> bool | None:
    """Whether a message of DEALER and ROUTER asks; None if nobody knows."""
    if not envelope or not flow.pairs:
        return None
    which = int(envelope > 1)
    flow.askers[which] = event.side if flow.askers[which] == NEITHER else flow.askers[which]
    return flow.askers[which] == event.side


def pair_envelope(flow: SettledRequests, event: SettledEvent, announced: Container[bytes], proxies: ProxyCalls) -> None:
    """A message of DEALER and ROUTER. Raises _OddError."""
    if event.frames == (b"",):
        return
    relayed = is_relayed(event.frames, announced)
    if relayed and not flow.relays:
        raise _OddError
    envelope = envelope_of(event.frames)
    asks = role_of(flow, event, envelope)
    if asks and len(flow.waiting) >= MOST_WAITING:
        raise _OddError
    sent_on = False
    if not asks and flow.routers >> event.side & 1:
        sent_on = pair_sent_on(flow, event, proxies, replies=asks is False)
    if relayed and asks is not False:
        follow_request(flow, event, proxies)
    if asks:
        ask(flow, event)
    elif asks is False and not sent_on:
        answer(flow, event)
    event.envelope = envelope
    if asks is not False and flow.routers >> (1 - event.side) & 1:
        proxies.begin_place(hash(event.frames), flow.flow, event.packet, event.part, 0)
    if relayed and (asks is False or (asks is None and not event.forwards[1])):
        begin_reply(flow, event, proxies)


def pair_in_turn(flow: SettledRequests, event: SettledEvent, announced: Container[bytes], proxies: ProxyCalls) -> None:
    """A message to or from a REP, which answers in order. Raises _OddError."""
    frames, envelope = event.frames, envelope_of(event.frames)
    if not envelope or (flow.waiting and event.time_ns - flow.waiting[0][2] > flow.timeout_ns):
        raise _OddError
    relayed = is_relayed(frames, announced)
    if event.side == flow.askers[0]:
        if len(flow.waiting) >= MOST_WAITING:
            raise _OddError
        event.envelope = envelope
        if relayed:
            follow_request(flow, event, proxies)
        ask(flow, event)
        return
    if not flow.waiting:
        raise _OddError
    key, _, asked_ns, offset, *_ = flow.waiting[0]
    if key != event.key or event.seen <= offset or event.time_ns < asked_ns:
        raise _OddError
    alike = sum(one[0] == key for one in flow.waiting)
    event.envelope = envelope
    pair_with(flow, event, flow.waiting.pop(0), PAIRED.index("order") if alike > 1 else 0)
    if relayed:
        begin_reply(flow, event, proxies)


def pair_step(flow: SettledRequests, event: SettledEvent, proxies: ProxyCalls) -> None:
    """A message of a REQ in lock step, or of the ROUTER or REP that it asks. Raises _OddError."""
    step = flow.step
    assert step is not None
    asks = event.side == step.requester
    if not asks and flow.kind == STEPS and len(event.frames) > 3:
        raise _OddError
    found = keeps_step(
        step, event.side, [*map(len, event.frames)], event.offset, event.seen, event.part, event.packet, event.time_ns
    )
    event.envelope = 1
    if found[0]:
        event.request, event.request_part, event.latency = found
    if flow.kind == DIRECT_STEPS:
        return
    if asks:
        proxies.begin_place(hash(event.frames), flow.flow, event.packet, event.part, 1)
    elif proxies.has_replies:
        event.forwards = proxies.forwarded_reply_place(flow.flow, hash(event.frames)) or event.forwards


def pair_message(
    flow: SettledRequests, columns: tuple[int, ...], frames: tuple[bytes, ...], number: int, time_ns: int,
    announced: Container[bytes], proxies: ProxyCalls,
) -> bytes:  # fmt: skip
    """Take a message. Returns its columns. Raises _OddError."""
    (
        row,
        name,
        part,
        first,
        count,
        request_part,
        before,
        paired,
        via_part,
        via_flow,
        offset,
        seen,
        request,
        latency,
        via,
    ) = columns
    envelope = envelope_of(frames)
    key = hash(frames[: envelope - 1]) or 1 if envelope > 1 and flow.pairs else 0
    event = SettledEvent(name % 2, frames, key, number + row, part, time_ns, offset, seen, before)
    event.request, event.request_part, event.latency, event.paired = request, request_part, latency, paired
    event.forwards = via_flow, via, via_part
    if flow.kind in (STEPS, DIRECT_STEPS):
        pair_step(flow, event, proxies)
    elif flow.kind == IN_TURN:
        pair_in_turn(flow, event, announced, proxies)
    else:
        pair_envelope(flow, event, announced, proxies)
    via_flow, via, via_part = event.forwards
    return MESSAGE.pack(
        row, name, part, first, count, event.request_part, event.envelope, event.paired, via_part, via_flow, offset,
        seen, event.request, event.latency, via,
    )  # fmt: skip


def pair(
    octets: bytes, carried: bytes, rows: bytes, number: int, messages: bytes, frames: bytes, place: int,
    flows: tuple[tuple[Any, ...] | None, ...], announced: Container[bytes], proxies: ProxyCalls,
) -> tuple[int, bytes, list[tuple[Any, ...] | None]]:  # fmt: skip
    """Pair the requests and replies from the message at ``place`` on.

    ``flows`` has of each flow its facts; () if Python takes all its messages, None if they are as they are.
    ``announced`` has identities. ``proxies`` hears of what they may pass on, and says where it came from. Returns the
    first message that was not taken, the columns of those before it, and the facts of all flows.
    """
    both = octets + carried
    spans = list(FRAME.iter_unpack(frames))
    entered: list[SettledRequests | None] = [None] * len(flows)
    found = []
    for columns in list(MESSAGE.iter_unpack(messages))[place:]:
        row, side, _, first, count, *_ = columns
        facts = flows[side // 2]
        if facts is None:
            found.append(MESSAGE.pack(*columns))
            continue
        if not facts:
            break
        flow = entered[side // 2] = entered[side // 2] or SettledRequests.enter(facts)
        bodies = tuple(both[at : at + size] for at, size in spans[first : first + count])
        time_ns = ROW.unpack_from(rows, row * ROW.size)[0]
        try:
            found.append(pair_message(flow, columns, bodies, number, time_ns, announced, proxies))
        except _OddError:
            break
        flow.is_touched = True
    return place + len(found), b"".join(found), [None if flow is None else flow.facts() for flow in entered]
