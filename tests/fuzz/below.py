"""Targets below the connections: capture files, headers of packets, fragments, TCP."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.world.listener import Listener
from tests.world.tap import Packets
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.files import open_stream
from zmtpsniff.capture.source import CaptureError, Fault
from zmtpsniff.net.flows import FlowTable
from zmtpsniff.net.fragments import Fragment, Fragments
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import CLOSED, FIN, PGM, SYN, UDP
from zmtpsniff.words.link_types import IP

from .octets import pieces, turns
from .output import is_safe

LINKS = (0, 1, 12, 101, 108, 113, 147, 276, 9999, 9, 50, 51, 104, 166, 204, 239)
_MOST_PACKETS = 5_000  # of an input that decompresses to very many


# ------------------------------------------------------------------ files


def _read(chunks: Iterator[bytes]) -> tuple[list[Packet], list[Fault], list[str], int] | str:
    """All that a file holds, or why it is no capture."""
    source = Packets(())
    packets: list[Packet] = []
    try:
        for batch in open_stream("input", chunks, source):
            packets += batch
            if len(packets) > _MOST_PACKETS:
                break
    except CaptureError as error:
        is_safe(str(error), lines=1)
        return str(error)
    return packets[:_MOST_PACKETS], source.faults, source.comments, source.dropped


def _file(data: bytes) -> None:
    """A capture file is the same in one piece and in many, and what is wrong with it is said at the same place."""
    whole = _read(iter([data] if data else []))
    again = _read(pieces(data, 1 + len(data)))
    if isinstance(whole, str):
        assert isinstance(again, str)  # what it looks like depends on how much of it is there
        return
    assert whole == again
    for time_ns, _, octets, _, _ in whole[0]:
        assert isinstance(time_ns, int)
        assert len(octets) <= len(data) * 1100


def pcap(data: bytes) -> None:
    _file(data)


def pcapng(data: bytes) -> None:
    _file(data)


def compressed(data: bytes) -> None:
    """gzip, xz and zstd: any damage, and any ratio of compression."""
    whole = _read(iter([data] if data else []))
    again = _read(pieces(data, 3))
    # Where damage shows may depend on how much the library is given at once, what was good before it may not.
    if isinstance(whole, str) or isinstance(again, str):
        return
    least = min(len(whole[0]), len(again[0]))
    assert whole[0][:least] == again[0][:least]


def strace(data: bytes) -> None:
    _file(b"1 0.000000 close(3) = 0\n1 0.000000 read(" + data)


# ------------------------------------------------------------------ packets


def headers(data: bytes) -> None:
    """Packets of any link type, with fragments and tunnels; the mark says which."""
    decoder = HeaderDecoder()
    packets: list[Packet] = [
        (number * 1000, LINKS[mark % len(LINKS)], octets, len(octets) + (mark >> 5), None)
        for number, (mark, octets) in enumerate(turns(data))
    ]
    segments = decoder.segments(packets, 1)
    one_by_one = HeaderDecoder()
    singly = [segment for number, packet in enumerate(packets, 1) for segment in one_by_one.segments([packet], number)]
    assert segments == singly
    for _, number, key, seq, ack, flags, payload, missing in segments:
        assert 1 <= number <= len(packets)
        assert len(key) in (12, 20, 36)
        assert 0 <= seq < 1 << 32
        assert 0 <= ack < 1 << 32
        assert 0 <= flags & ~CLOSED < 256
        assert missing >= 0
        assert len(payload) <= sum(len(packet[2]) for packet in packets)
    for _, _, protocol, key, _, missing in decoder.datagrams:
        assert protocol in (UDP, PGM)
        assert len(key) in (12, 36)
        assert missing >= 0
    decoder.skipped()


def headers_general(data: bytes) -> None:
    """The quick way through the headers and the general way give the same segment."""
    for number, (mark, octets) in enumerate(turns(data)):
        link = LINKS[mark % len(LINKS)]
        packet: Packet = (number, link, octets, len(octets), None)
        quick, general = HeaderDecoder(), HeaderDecoder()
        found = quick.segments([packet], 1)
        expected = general.segment(number, 1, link, octets, len(octets))
        assert found == ([] if expected is None else [expected]) or link not in (1, 113, 276, *IP)


def fragments(data: bytes) -> None:
    """Fragments in any order and overlap: what comes out is as long as it says, what is held stays bounded."""
    most = 4000
    held = Fragments(4, most)
    for number, (mark, octets) in enumerate(turns(data)):
        if not octets:
            continue
        start = (mark >> 3 & 0xF) * 8
        time_ns = number * (1 + (mark >> 7) * 10**10)
        whole = held.add(Fragment((mark & 3,), time_ns, 6, start, octets, len(octets), bool(mark & 4)))
        assert held.octets <= most
        assert held.count <= 4
        if whole is not None:
            protocol, payload, length = whole
            assert len(payload) == length
            assert protocol in (6, -1)
    # All others give way to four datagrams that come now, and leave nothing behind.
    fresh = Fragments(4, most)
    for number in range(4):
        for one in (held, fresh):
            one.add(Fragment((number, "last"), 10**12, 6, 0, b"octets", 6, True))
    assert (held.count, held.octets) == (fresh.count, fresh.octets)


def flows(data: bytes) -> None:
    """Segments of two connections in any order: octets come once, in order, and holes are as long as they are.

    A turn's mark is flags, its first octets say which connection and side, and which part of the stream is sent.
    """
    keys = [b"\x0a\0\0\1\x0a\0\0\2" + ports for ports in (b"\x9c\x40\x15\xb3", b"\x9c\x41\x15\xb3")]
    keys += [key[4:8] + key[:4] + key[10:12] + key[8:10] for key in keys]
    talks: list[Listener] = []

    def connect(*_: Any) -> Listener:
        talks.append(Listener())
        return talks[-1]

    limits = FlowLimits(3000, 5000, 10, 100.0, 50.0, 1.0)
    table = FlowTable(connect, limits)
    now = 1
    # Every stream begins at a SYN with a number of its own, so that what an octet must be is known.
    for number, key in enumerate(keys):
        table.take([(now, 1, key, _first(number), 0, SYN, b"", 0)])
    for packet, (mark, octets) in enumerate(turns(data), 2):
        if len(octets) < 4:
            continue
        which = octets[0] & 3
        begin = int.from_bytes(octets[1:3], "big") % 4000
        length = octets[3] * 4
        acked = int.from_bytes(octets[4:6], "big") % 5000
        missing = length // 2 if mark & 0x20 else 0
        now += (mark >> 6) * 40_000_000
        stream = bytes(place % 251 for place in range(begin, begin + length - missing))
        seq = (_first(which) + 1 + begin) % 2**32
        ack = (_first(which ^ 2) + 1 + acked) % 2**32
        table.take([(now, packet, keys[which], seq, ack, mark & (0x10 | FIN), stream, missing)])
        # A segment may be longer than what is left of the bound, but it is dealt with at once.
        assert table.holdings.waiting_octets <= 5000 + 1500
        for flow in table.register.flows.values():
            for direction in (flow.client, flow.server):
                held = direction.waiting
                assert all(one.end <= other.offset for one, other in pairwise(held)), "what waits overlaps"
                assert sum(len(one.payload) + 256 for one in held) == direction.waiting_octets
    table.finish()
    assert table.holdings.waiting_octets == 0
    for ear in (ear for talk in talks for ear in (talk.client, talk.server)):
        place = 0
        for heard in ear.heard:
            assert not isinstance(heard, str)
            end = place + (heard if isinstance(heard, int) else len(heard))
            assert isinstance(heard, int) or heard == bytes(at % 251 for at in range(place, end))
            place = end


def _first(which: int) -> int:
    """The initial sequence number of a direction; that of the second connection wraps."""
    return 0xFFFF_FF00 if which & 1 else 1000
