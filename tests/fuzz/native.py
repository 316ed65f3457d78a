"""A target that compares the native core with its specification: whatever they are given, both say the same."""

import contextlib
from collections.abc import Iterator
from io import StringIO
from sys import byteorder
from typing import Any, ClassVar

from dissectors import columns
from dissectors.batches import BatchSide, MessageBatch
from dissectors.events import Message
from tests.support.both_cores import BothCores
from zmtpsniff.native import capture_rows, core, reference
from zmtpsniff.net.segment import ACK, FIN, PSH, SYN
from zmtpsniff.render import make_renderer

from .octets import turns

LINKS = (101, 1, 0, 108, 113, 228, 229, 276, 147)
PACKETS, PAYLOADS, FILES, COLUMNS = range(4)  # the first octet, modulo 4, says what the others are
_PAUSE_NS = 60 * 10**9
_HEADER = bytes.fromhex("45000000 00000000 40060000 0a000001 0a000001 00010002")
_TEXTS = [(b",%d[" % number, b"]") for number in range(10)]


def native(data: bytes) -> None:
    """Packets, payloads in packets that fit, records of files, or columns; the second octet has facts about them."""
    if core is None:
        return  # there is nothing to compare; tests/native says that it must be there
    both = BothCores()
    kind, facts = (*data[:2], 0, 0)[:2]
    match kind % 4:
        case 0:
            _packets(both, facts, list(_captured(data[2:])))
        case 1:
            _packets(both, facts, list(_made(data[2:])))
        case 2:
            _files(both, facts, data[2:])
        case _:
            _columns(both, facts, data[2:])


def _captured(data: bytes) -> Iterator[tuple[int, bytes]]:
    for mark, octets in turns(data):
        yield LINKS[mark % len(LINKS)], octets


def _made(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Packets with these payloads, of two sides of a flow (or of one that talks to itself), mostly in order."""
    numbers = [1000, 1000]
    for mark, payload in turns(data):
        side = mark & 1
        size = len(_HEADER) + 16 + len(payload)
        seq, ack = numbers[side] + (mark & 0xF0 == 0x70), numbers[1 - side] - (mark & 0xF0 == 0x60)
        ports = bytes([0, 1 + side, 0, 2 - side]) if mark & 0xE else bytes(4)
        flags = {0x80: SYN, 0x90: SYN | ACK, 0xA0: FIN | ACK, 0xB0: ACK}.get(mark & 0xF0, PSH | ACK)
        tcp = ports + seq.to_bytes(4, "big") + ack.to_bytes(4, "big") + bytes([0x50, flags]) + b"\1\0\0\0\0\0"
        numbers[side] += len(payload) + (flags & (SYN | FIN) > 0)
        yield 101, _HEADER[:2] + size.to_bytes(2, "big") + _HEADER[4:20] + tcp + payload


def _packets(both: BothCores, facts: int, packets: list[tuple[int, bytes]]) -> None:
    octets = b"".join(packet for _, packet in packets)
    rows = bytearray()
    segments = []
    place = 0
    for number, (link, packet) in enumerate(packets):
        time_ns = (number * 1000, number << 62, -number << 60, _PAUSE_NS * number)[facts & 3]
        time_ns = max(-1 << 62, min(time_ns, (1 << 63) - 1))
        more = facts >> 2 & 1 if number % 3 == 2 else 0  # a packet that reaches into the next
        rows += columns.ROW.pack(time_ns, place, len(packet) + more, len(packet), link)
        segments.append(reference.headers(octets, place, len(packet), link))
        place += len(packet)

    def lookup(key: bytes) -> Any:
        first = next((one for one in segments[begin:] if one is not None and one.key == key), None)
        return None if first is None or facts & 0xC0 == 0xC0 else _flow(facts, first)

    *_, busy = both.directions(octets, bytes(rows), facts & 3, facts)
    both.packets_of(octets, bytes(rows), set(busy))
    given = range(facts, facts + len(packets))
    known = next((one.key for one in segments if one is not None), None) if facts & 1 else None
    _, left = both.whole(
        octets, bytes(rows), given, lambda _: known, _PAUSE_NS, lambda *_: bool(facts & 2), bool(facts & 4)
    )
    for some in (bytes(rows), left):
        both.segments(octets, some, given, lambda place: place & facts & 1 or None)
    both.take(octets, left, 0, 1, _PAUSE_NS, lambda _: None)
    sides = [_TEXTS[number % len(_TEXTS)] for number in range(2 * len(packets))]
    begin = 0
    while begin <= len(packets):
        stop, messages, frames, carried, *_ = both.take(octets, bytes(rows), begin, 1 + begin, _PAUSE_NS, lookup)
        if stop > begin:
            most = (facts >> 3 & 1) * 9 or 1 << 62
            both.lines(octets, carried, bytes(rows), 1, messages, frames, sides, most, _fragment)
            both.tally(messages, bytes(rows), 1000, 50.5)
            senders = [BatchSide(number, "a:1", "b:2", "REQ", True, True, True) for number in range(len(sides))]
            _lines_for_people(MessageBatch(octets, bytes(rows), 1, messages * 4, frames, carried, senders), facts)
            numbers = bytes(8 * len(packets))
            both.cells(octets, carried, bytes(rows), numbers, facts, messages, frames, numbers, most)
        begin = stop + 1


def _lines_for_people(batch: MessageBatch, facts: int) -> None:
    """The core, and the renderer that is its specification."""
    shown = []
    for events in ([batch], batch.messages()):
        stream = StringIO()
        renderer = make_renderer("tree" if facts & 1 else "summary", stream, color="always", utc=True, times="absolute")
        renderer.write([Message(0, 1, 1, "a:1", "a:2", [b"first"]), *events])
        shown.append(stream.getvalue())
    assert shown[0] == shown[1]


def _flow(facts: int, first: reference.PlainSegment) -> tuple[Any, ...]:
    """A flow whose numbers are those of the first packet of a direction."""
    side, offset = facts >> 4 & 1, len(first.key)
    mine = (1, first.seq, 500, 300, 7, b"\1\0" if facts & 0x20 else b"", _recent(500, 1400, offset), offset)
    theirs = (1 + (facts >> 5 & 1), first.ack, 400, 1 << 40, 0, b"", _recent(400, *[300_000] * 16), 0)
    step = (facts & 1, facts >> 1 & 1, 1, 0, 0, 0, 0, 0, _PAUSE_NS) if facts & 0x40 else None
    return first.key, side, 0, *((theirs, mine) if side else (mine, theirs)), step


def _recent(end: int, *lengths: int) -> tuple[tuple[int, bytes, int, int], ...]:
    """Segments of zeros with these lengths, up to an offset."""
    begins = [end - sum(lengths[at:]) for at in range(len(lengths))]
    return tuple((begin, bytes(length), 0, 0) for begin, length in zip(begins, lengths, strict=True))


def _fragment(octets: bytes) -> bytes:
    return repr(octets).encode()


class _Proxies:
    """Proxies that know nothing, but of the place of each reply, and of a request of the first flow."""

    has_replies = True
    _known: ClassVar = {"forwarded_reply_place": (1, 2, 3), "expected_reply": (7, 1, 0)}

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._known.get(name)


def _files(both: BothCores, facts: int, data: bytes) -> None:
    """Records of pcap, blocks of pcapng, and packets of the kernel's ring; and packets of any rows as blocks."""
    both.ring_rows(data, facts >> 3)
    size = columns.ROW.size
    with contextlib.suppress(ValueError):
        both.enhanced_packets(data, data[: min(len(data) % 8, len(data) // size) * size], facts, len(data) << 56)
    is_big = bool(facts & 1)
    both.pcap_rows(data, facts >> 1 & 7, is_big, (1, 1000)[facts >> 4 & 1], (16, 24)[facts >> 5 & 1], 300, 1)
    bases = [(1, 0, 1), (1000, 10**9, 113), (0, 0, 1), (10**9, 1, 1), (7, -1, 1), ((1 << 63) - 1, (1 << 63) - 1, 1)]
    both.pcapng_rows(data, facts >> 1 & 7, is_big, b"".join(capture_rows.BASE.pack(*base) for base in bases))


def _columns(both: BothCores, facts: int, data: bytes) -> None:
    """Frames of any octets, each pair of turns a frame in the block and one in what was carried."""
    parts = [octets for _, octets in turns(data)]
    octets, carried = b"".join(parts[::2]), b"".join(parts[1::2])
    frames, places = bytearray(), [0, len(octets)]
    for number, part in enumerate(parts):
        frames += columns.FRAME.pack(places[number & 1], len(part))
        places[number & 1] += len(part)
    rows, messages = bytearray(), bytearray()
    for number in range(len(parts)):
        count = min(1 + (facts + number) % 3, len(parts) - number)
        time_ns = min(number << 60, (1 << 63) - 1) if facts & 1 else -number * 10**9
        rows += columns.ROW.pack(time_ns, 0, 0, 0, 1)
        messages += columns.MESSAGE.pack(
            number,
            (facts + number) % 10,
            number * (facts & 3),
            number,
            count,
            number & 2,
            number & 4,
            number & 3,
            number & 1,
            number & 7,
            number * 100,
            facts * 40 - number,
            number & 1,
            number * facts,
            number & 2,
        )
    most = facts & 0x40 or 1 << 62
    both.lines(octets, carried, bytes(rows), facts, bytes(messages), bytes(frames), _TEXTS, most, _fragment)
    both.tally(bytes(messages), bytes(rows), 1 + facts * 1000, 50.5)
    place = 0
    ends = "client", "server"
    flows: tuple[Any, ...] = (
        (columns.ENVELOPES, 7, *ends, (facts & 1, facts & 2, facts & 3, 2, 2, b"", b"")),
        (columns.IN_TURN, 8, *ends, (facts >> 1 & 1, 10**9, b"", b"")),
        None if facts & 8 else (columns.STEPS, 9, *ends, (0, 0, 0, 0, 0, -1, -1, 0, 10**9)),
        (columns.DIRECT_STEPS, 11, *ends, (1, 0, 0, 0, 0, -1, -1, 0, 10**9)),
        (columns.ENVELOPES, 10, *ends, (facts & 4, facts & 8, 2, 2, 2, b"", b"")),
    )
    while place < len(parts):
        place, _, after = both.pair(
            octets, carried, bytes(rows), facts, bytes(messages), bytes(frames), place, flows, {b"\1": 1}, _Proxies()
        )
        flows = tuple(
            flow if one is None or flow[0] != columns.ENVELOPES else (*flow[:4], (*flow[4][:3], *one[:2], *one[4:]))
            for flow, one in zip(flows, after, strict=True)
        )
        place += 1
    sides = b"".join((facts >> side & 1 and 1 + side % 4).to_bytes(4, byteorder) for side in range(10))
    exchanges = [(b"", b"", b""), (bytes(24 * (facts % 65)), bytes(8), bytes(2 * columns.RHYTHM.size))]
    both.count_exchanges(bytes(messages), bytes(rows), facts, sides, exchanges)
