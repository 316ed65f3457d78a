"""Headers taken off packets of every link type, whole, cut, fragmented and malformed."""

import random
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.config import conf
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    fragment6,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw

from tests.support.examples import examples
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.net.fragments import Fragment, Fragments
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import ACK, FIN, PSH, SYN, Segment

conf.route6.resync()  # scapy asks it for the source address otherwise

ETHERNET = 1
PORTS = struct.pack("!HH", 40000, 5555)
KEY4 = socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.0.2") + PORTS
KEY6 = socket.inet_pton(socket.AF_INET6, "fe80::1") + socket.inet_pton(socket.AF_INET6, "fe80::2") + PORTS
MAC: dict[str, Any] = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}


def ip4(**fields: Any) -> ScapyPacket:
    return IP(src="10.0.0.1", dst="10.0.0.2", **fields)


def ip6(**fields: Any) -> ScapyPacket:
    return IPv6(src="fe80::1", dst="fe80::2", **fields)


def tcp(payload: bytes = b"payload", **fields: Any) -> ScapyPacket:
    fields = {"sport": 40000, "dport": 5555, "flags": "PA", "seq": 1000, "ack": 2000, **fields}
    return TCP(**fields) / Raw(payload)


def decode(*packets: bytes, link: int = ETHERNET, decoder: HeaderDecoder | None = None) -> list[Segment]:
    batch: list[Packet] = [(number, link, data, len(data), None) for number, data in enumerate(packets, 100)]
    return (decoder or HeaderDecoder()).segments(batch, 1)


def ethernet(ip: ScapyPacket) -> bytes:
    return bytes(Ether(**MAC) / ip)


LINKS = {
    "ethernet": (1, bytes(12), {4: b"\x08\x00", 6: b"\x86\xdd"}, b""),
    "vlan": (1, bytes(12) + b"\x81\x00\x00\x05", {4: b"\x08\x00", 6: b"\x86\xdd"}, b""),
    "two vlan tags": (1, bytes(12) + b"\x88\xa8\x00\x05\x91\x00\x45\x00", {4: b"\x08\x00", 6: b"\x86\xdd"}, b""),
    "cooked": (113, bytes(14), {4: b"\x08\x00", 6: b"\x86\xdd"}, b""),
    "cooked vlan": (113, bytes(14) + b"\x81\x00\x00\x05", {4: b"\x08\x00", 6: b"\x86\xdd"}, b""),
    "cooked 2": (276, b"", {4: b"\x08\x00", 6: b"\x86\xdd"}, bytes(18)),
    "null little": (0, b"", {4: b"\x02\0\0\0", 6: b"\x1e\0\0\0"}, b""),
    "null linux": (0, b"", {4: b"\x02\0\0\0", 6: b"\x0a\0\0\0"}, b""),
    "null big": (0, b"", {4: b"\0\0\0\x02", 6: b"\0\0\0\x18"}, b""),
    "loop": (108, b"", {4: b"\0\0\0\x02", 6: b"\0\0\0\x1c"}, b""),
    "raw": (101, b"", {4: b"", 6: b""}, b""),
    "raw bsd": (12, b"", {4: b"", 6: b""}, b""),
    "raw openbsd": (14, b"", {4: b"", 6: b""}, b""),
}


@pytest.mark.parametrize("name", LINKS)
def test_link_types(name: str) -> None:
    link, before, protocols, after = LINKS[name]
    for version, ip, key in ((4, ip4(), KEY4), (6, ip6(), KEY6)):
        data = before + protocols[version] + after + bytes(ip / tcp())
        assert decode(data, link=link) == [(100, 1, key, 1000, 2000, PSH | ACK, b"payload", 0)]


def test_raw_of_one_version() -> None:
    assert [segment[2] for segment in decode(bytes(ip4() / tcp()), link=228)] == [KEY4]
    assert [segment[2] for segment in decode(bytes(ip6() / tcp()), link=229)] == [KEY6]


def test_a_family_of_a_loopback_fits_an_octet() -> None:
    decoder = HeaderDecoder()
    assert decode(b"\1\1\1\1" + bytes(ip4() / tcp()), link=0, decoder=decoder) == []
    assert decoder.malformed == 1


def test_numbers_count_packets_that_yield_nothing() -> None:
    arp, udp, icmp = (
        bytes(Ether(**MAC) / ARP()),
        ethernet(ip4() / UDP() / bytes(60)),
        ethernet(ip4() / ICMP() / bytes(60)),
    )
    decoder = HeaderDecoder()
    packets: list[Packet] = [
        (0, ETHERNET, data, len(data), None) for data in (arp, udp, ethernet(ip4() / tcp()), icmp, b"", b"\0" * 70)
    ]
    packets.append((0, ETHERNET, ethernet(ip4() / tcp()), 61, None))
    assert [segment[1] for segment in decoder.segments(packets, 1001)] == [1003, 1007]
    assert decoder.malformed == decoder.cut == 0
    assert decoder.other_packets().endswith("1 ARP, 1 of LLC SAP 0x00, 1 ICMP, 1 UDP")


def test_pure_segments_are_kept() -> None:
    for flags, bits in (("S", SYN), ("A", ACK), ("FA", FIN | ACK), ("R", 4)):
        for ip in (ip4(), ip6()):
            assert [s[5:] for s in decode(ethernet(ip / tcp(b"", flags=flags)))] == [(bits, b"", 0)]


@pytest.mark.parametrize(
    "ip",
    [
        ip4() / tcp(options=[("MSS", 1460), ("Timestamp", (1, 2))]),
        ip4(options=[IPOption_NOP()] * 8) / tcp(),
        ip4(flags="DF") / tcp(),
        ip4(tos=0xB8, ttl=1) / tcp(),
        ip6(tc=0xB8, fl=7) / tcp(options=[("MSS", 1460)]),
        ip6() / IPv6ExtHdrHopByHop() / tcp(),
        ip6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrRouting() / IPv6ExtHdrDestOpt() / tcp(),
        ip6() / AH(spi=1, seq=1, icv=bytes(12), padding=b"", nh=6, payloadlen=4) / tcp(),
        ip6() / IPv6ExtHdrFragment(id=1) / tcp(),
    ],
)
def test_options_and_extension_headers(ip: ScapyPacket) -> None:
    key = KEY6 if IPv6 in ip else KEY4
    assert decode(ethernet(ip)) == [(100, 1, key, 1000, 2000, PSH | ACK, b"payload", 0)]


def test_ethernet_padding_is_cut_off() -> None:
    for ip in (ip4(), ip6(), ip4(options=[IPOption_NOP()] * 4), ip6() / IPv6ExtHdrDestOpt()):
        assert [s[6:] for s in decode(ethernet(ip / tcp(b"ab")) + bytes(20))] == [(b"ab", 0)]


def test_lengths_left_to_the_network_card() -> None:
    payload = random.Random(1).randbytes(70_000)
    for ip in (ip4(len=0), ip6(plen=0)):
        assert [s[6:] for s in decode(ethernet(ip / tcp(payload)))] == [(payload, 0)]
        cut = ethernet(ip / tcp(payload))
        decoder = HeaderDecoder()
        (segment,) = decoder.segments([(0, ETHERNET, cut[:1000], len(cut), None)], 1)
        assert len(segment[6]) + segment[7] == len(payload)


@pytest.mark.parametrize("before", [b"", b"\x81\x00\x00\x05"])
@pytest.mark.parametrize("ip", [ip4(), ip6(), ip4(options=[IPOption_NOP()] * 8), ip6() / IPv6ExtHdrHopByHop()])
def test_packets_cut_by_snaplen(ip: ScapyPacket, before: bytes) -> None:
    whole = ethernet(ip / tcp(b"x" * 200, options=[("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)]))
    whole = whole[:12] + before + whole[12:]
    header = len(whole) - 200
    for length in range(len(whole) + 1):
        decoder = HeaderDecoder()
        segments = decoder.segments([(0, ETHERNET, whole[:length], len(whole), None)], 1)
        if length < header - 12:
            assert segments == []
        else:
            captured = max(length - header, 0)
            assert [s[5:] for s in segments] == [(PSH | ACK, b"x" * captured, 200 - captured)]
        assert decoder.malformed == 0


@pytest.mark.parametrize(
    "ip",
    [
        ip4() / tcp(dataofs=4),
        ip4() / tcp(dataofs=15),
        ip6() / tcp(dataofs=4),
        ip6() / tcp(dataofs=15),
        ip4(ihl=4) / tcp(),
        ip4(ihl=15, len=50) / tcp(),
        ip4(len=30) / tcp(),
        ip4(version=5) / tcp(),
        ip6(version=5) / tcp(),
        ip6(plen=10) / tcp(),
        ip4(flags="MF") / tcp(b"1234567"),
    ],
)
def test_malformed_headers_are_counted(ip: ScapyPacket) -> None:
    decoder = HeaderDecoder()
    assert decode(ethernet(ip), decoder=decoder) == []
    assert decoder.malformed == 1


def test_what_was_skipped_is_told() -> None:
    decoder = HeaderDecoder()
    assert decoder.skipped() == []
    decode(b"a", b"b", link=147, decoder=decoder)
    decode(b"c", link=7, decoder=decoder)
    decode(ethernet(ip4() / tcp(dataofs=4)), decoder=decoder)
    whole = ethernet(ip4() / tcp())
    decoder.segments([(0, ETHERNET, whole[:length], len(whole), None) for length in (30, 40)], 1)
    for first in (65_528, 65_520):
        decode(ethernet(ip4(flags="MF", frag=first // 8, id=first) / Raw(bytes(16))), decoder=decoder)
    assert decoder.skipped() == [
        ("link-type-unknown", "2 packets of link type 147 (private use) were not looked into"),
        ("link-type-unknown", "1 packet of link type 7 was not looked into"),
        ("packets-cut", "2 packets were captured too short to hold the TCP header"),
        ("malformed-headers", "1 packet was skipped for wrong headers"),
        ("fragments-dropped", "2 fragmented datagrams were given up, fragments and all"),
    ]


# ---------------------------------------------------------------- fragments

BODY = random.Random(2).randbytes(3000)


def fragments4() -> list[bytes]:
    return [ethernet(ip) for ip in (ip4(id=7) / tcp(BODY)).fragment(fragsize=512)]


def fragments6() -> list[bytes]:
    # A destination options header after the fragment header is in the fragments.
    fragment: Callable[[ScapyPacket, int], list[ScapyPacket]] = fragment6  # scapy does not say so
    return [ethernet(ip) for ip in fragment(ip6() / IPv6ExtHdrFragment(id=7) / IPv6ExtHdrDestOpt() / tcp(BODY), 600)]


@pytest.mark.parametrize("pieces", [fragments4(), fragments6()], ids=["IPv4", "IPv6"])
def test_fragments_in_any_order(pieces: list[bytes]) -> None:
    assert len(pieces) > 4
    shuffled = list(enumerate(pieces))
    for seed in range(10):
        random.Random(seed).shuffle(shuffled)
        order = [piece for _, piece in shuffled]
        (segment,) = decode(*order, order[0])
        assert segment[:2] == (100 + len(pieces) - 1, len(pieces))  # of the packet that completed it
        assert segment[3:] == (1000, 2000, PSH | ACK, BODY, 0)


def test_fragment_cut_by_snaplen_ends_what_is_known() -> None:
    pieces = fragments4()
    packets: list[Packet] = [(0, ETHERNET, piece, len(piece), None) for piece in pieces]
    packets[2] = (0, ETHERNET, pieces[2][:134], len(pieces[2]), None)
    (segment,) = HeaderDecoder().segments(packets, 1)
    have = 2 * 512 + 100 - 20
    assert segment[6:] == (BODY[:have], len(BODY) - have)


def test_fragments_of_two_datagrams_do_not_mix() -> None:
    one = [ethernet(ip) for ip in (ip4(id=1) / tcp(b"1" * 1000)).fragment(fragsize=400)]
    two = [ethernet(ip) for ip in (ip4(id=2) / tcp(b"2" * 1000)).fragment(fragsize=400)]
    segments = decode(*[piece for pair in zip(one, two, strict=True) for piece in pair])
    assert [segment[6] for segment in segments] == [b"1" * 1000, b"2" * 1000]


@given(
    length=st.integers(1, 64),
    cuts=st.lists(st.tuples(st.integers(0, 63), st.integers(1, 64)), max_size=30),
)
def test_pieces_cover_what_they_cover(length: int, cuts: list[tuple[int, int]]) -> None:
    """Against a model: a list of octets, each written once."""
    fragments = Fragments()
    model: list[int | None] = [None] * length
    for mark, (start, size) in enumerate([*cuts, (0, length)]):
        stop = min(start + size, length)
        if stop <= start:
            continue
        for index in range(start, stop):
            model[index] = mark if model[index] is None else model[index]
        got = fragments.add(Fragment("k", 0, 6, start, bytes([mark]) * (stop - start), stop - start, stop < length))
        if got is not None:
            assert None not in model
            assert got == (got[0], bytes(mark for mark in model if mark is not None), length)
            assert fragments.octets == 0
            return
    pytest.fail("not completed")


def test_fragments_are_bounded() -> None:
    fragments = Fragments(most_datagrams=10, most_octets=10_000)
    for number in range(1000):
        fragments.add(Fragment(number, number, 6, 0, bytes(800), 800, True))
        assert fragments.count <= 10
        assert fragments.octets <= 10_000
    assert fragments.dropped == 990
    assert fragments.add(Fragment(999, 1000, 6, 800, b"end", 3, False)) == (6, bytes(800) + b"end", 803)


def test_old_fragments_are_forgotten() -> None:
    fragments = Fragments()
    fragments.add(Fragment("k", 0, 6, 0, b"old fragm", 8, True))
    assert fragments.add(Fragment("k", 31_000_000_000, 6, 8, b"new", 3, False)) is None
    assert fragments.dropped == 1


def test_fragments_beyond_the_end_give_the_datagram_up() -> None:
    fragments = Fragments()
    fragments.add(Fragment("k", 0, 6, 8, b"end", 3, False))
    assert fragments.add(Fragment("k", 0, 6, 16, bytes(8), 8, True)) is None
    assert fragments.add(Fragment("j", 0, 6, 65_528, bytes(16), 16, False)) is None
    assert fragments.dropped == 2
    assert fragments.octets == 0


# ---------------------------------------------------------------- invariants


SEEDS = [
    ethernet(ip4() / tcp(options=[("MSS", 1460)])),
    ethernet(ip6() / IPv6ExtHdrHopByHop() / tcp()),
    ethernet(ip6() / tcp()),
    fragments4()[1],
    fragments6()[1],
]


@settings(max_examples=examples(300))
@given(seed=st.sampled_from(SEEDS[:3]), data=st.data())
def test_the_fast_way_and_the_general_way_agree(seed: bytes, data: st.DataObject) -> None:
    """A VLAN tag sends the same packet the general way."""
    changed = bytearray(seed)
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(14, len(changed) - 1))] = data.draw(st.integers(0, 255))
    length = data.draw(st.integers(14, len(changed)))
    plain = bytes(changed)
    tagged = plain[:12] + b"\x81\x00\x00\x01" + plain[12:]
    fast, general = HeaderDecoder(), HeaderDecoder()
    packet: Packet = (0, ETHERNET, plain[:length], len(plain), None)
    one = fast.segments([packet], 1)
    other = general.segments([(0, ETHERNET, tagged[: length + 4], len(tagged), None)], 1)
    assert one == other == HeaderDecoder().segments_of(Block.of([packet]), [1])
    assert (fast.malformed, fast.cut) == (general.malformed, general.cut)


# Where a packet ends: behind a header of IP or TCP (fixed part, options), or all of it, or an octet before or behind.
places = st.tuples(st.sampled_from(("ip", "fixed", "header", "packet")), st.integers(-1, 1)) | st.just(("packet", 0))


@settings(max_examples=examples(200))
@given(
    name=st.sampled_from(list(LINKS)),
    options=st.tuples(st.sampled_from((0, 0, 0, 1)), st.integers(0, 3)),
    payload=st.sampled_from((0, 1, 300)),
    offset=st.sampled_from((0, 0, 0, 1, -1, 7)),
    total=places,
    size=places,
    fragment=st.sampled_from((0, 0, 0x4000, 0x2000, 0x8000, 1)),
    window=st.sampled_from((0, 1)),
)
def test_the_fast_way_and_the_general_way_agree_on_ends(
    name: str,
    options: tuple[int, int],
    payload: int,
    offset: int,
    total: tuple[str, int],
    size: tuple[str, int],
    fragment: int,
    window: int,
) -> None:
    """Of packets that end in or behind a header, as IP says (``total``) and in the capture (``size``).

    ``options`` of IP and TCP are in units of 4 octets; so is what is added to the right data ``offset`` of TCP.
    """
    link, before, protocols, after = LINKS[name]
    segment = bytearray(bytes(tcp(bytes(payload), options=[("NOP", None)] * 4 * options[1], window=window)))
    segment[12] += offset * 16
    for version, ip in (4, ip4(options=[IPOption_NOP()] * 4 * options[0], proto=6)), (6, ip6(nh=6)):
        headers = bytearray(bytes(ip))
        begin = len(headers)
        ends = {"ip": begin, "fixed": begin + 20, "header": begin + 20 + 4 * options[1], "packet": begin + len(segment)}
        stop = ends[total[0]] + total[1]
        if version == 4:
            headers[2:4], headers[6:8] = stop.to_bytes(2, "big"), fragment.to_bytes(2, "big")
        else:
            headers[4:6] = max(stop - begin, 0).to_bytes(2, "big")
        link_header = before + protocols[version] + after
        packet = (link_header + headers + segment + b"\0")[: len(link_header) + ends[size[0]] + size[1]]
        wire = len(link_header) + ends["packet"]
        fast, general = HeaderDecoder(), HeaderDecoder()
        found = fast.segments([(0, link, packet, wire, None)], 1)
        wanted = general.segment(0, 1, link, packet, wire)
        assert found == [wanted] * (wanted is not None)
        assert found == HeaderDecoder().segments_of(Block.of([(0, link, packet, wire, None)]), [1])
        assert (fast.malformed, fast.cut, fast.fragments) == (general.malformed, general.cut, general.fragments)
