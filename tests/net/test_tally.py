"""Packets without TCP, or that cannot be looked into: counted, and told once by what they are."""

import struct

import pytest
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from dissectors.events import Capture, Problem
from dissectors.problems import PROBLEMS
from tests.support.encapsulations import CONVERSATIONS, OUTER, OUTER6, captured, datagram, frame, ip, labels, recorded
from tests.support.footprint import only
from tests.world.events import sniff
from zmtpsniff.capture.block import Packet
from zmtpsniff.net.encapsulation import UDP_TUNNELS
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.tally import Tally


def problems(packets: list[Packet]) -> list[tuple[str, str]]:
    return [(event.code, event.detail) for event in sniff(packets) if isinstance(event, Problem)]


@pytest.mark.parametrize(
    ("packet", "told"),
    [
        (frame(0x88E5), "EtherType 0x88E5 (MACsec)"),
        (frame(0xABCD), "EtherType 0xABCD"),
        (frame(0x8847, bytes(labels(16)) + b"\x90" + bytes(60)), "EtherType 0x8847 (MPLS)"),
        (frame(0x8847, bytes(labels(16)) + bytes(60)), "EtherType 0x8847 (MPLS)"),
        (frame(0x8864, b"\x11\0\0\3\0\x20\0\xfd" + bytes(40)), "PPP protocol 0x00FD (compression)"),
        (frame(0x0030, b"\xaa\xaa\3\0\x80\xc2\0\7" + bytes(40)), "SNAP OUI 0x0080C2 (bridged LAN)"),
        (ip(50), "IP protocol 50 (ESP)"),
        (ip(253), "IP protocol 253"),
        (ip(47, b"\x20\1\x88\x0b" + bytes(40)), "IP protocol 47 (GRE)"),
        (ip(47, b"\0\0\x88\x0b" + bytes(40)), "EtherType 0x880B (PPP)"),
        (ip(47, b"\x10\0\x88\xbe\0\0\0\1\x30" + bytes(60)), "EtherType 0x88BE (ERSPAN)"),
        (ip(47, b"\x10\0\x22\xeb\0\0\0\1\x10" + bytes(60)), "EtherType 0x22EB (ERSPAN type III)"),
        (bytes(OUTER6 / IPv6(nh=50) / Raw(bytes(40))), "IP protocol 50 (ESP)"),
        (datagram(40000, 8472), "UDP port 8472 (VXLAN on Linux's old port)"),
        (datagram(4500, 40000), "UDP port 4500 (IPsec)"),
        (datagram(40000, 51820, b"\4\0\0\0" + bytes(60)), "UDP port 51820 (WireGuard)"),
        (datagram(40000, 4789, bytes(40)), "UDP port 4789 (VXLAN)"),
        (datagram(40000, 4789, b"\x0c\0\0\x63" + bytes(40)), "UDP port 4789 (VXLAN)"),
        (datagram(40000, 4789, b"\x0c\0\0\4" + bytes(40)), "EtherType 0x894F (NSH)"),
        (datagram(40000, 6081, b"\0\0\x08\0\0\0\0\1" + bytes(40)), "UDP port 6081 (Geneve)"),
        (datagram(2152, 2152, b"\x30\xff\0\x28\0\0\0\1" + bytes(40)), "UDP port 2152 (GTP-U)"),
    ],
)
def test_what_may_hold_tcp_is_told(packet: bytes, told: str) -> None:
    assert problems(captured(packet)) == [("packets-not-read", f"1 packet of {told} was not looked into")]
    detail = f"1,204 packets of {told} were not looked into"
    assert problems(captured(*[packet] * 1204)) == [("packets-not-read", detail)]


@pytest.mark.parametrize(
    ("link", "told"),
    [(105, "105 (IEEE 802.11)"), (107, "107 (Frame Relay)"), (150, "150 (private use)"), (9999, "9999")],
)
def test_link_types_are_told_by_name(link: int, told: str) -> None:
    detail = f"3 packets of link type {told} were not looked into"
    assert problems(captured(b"", b"some", b"octets", link=link)[1:] + captured(b"more", link=link)) == [
        ("link-type-unknown", detail)
    ]


QUIET = {
    "ARP": frame(0x0806),
    "LLDP": frame(0x88CC),
    "spanning tree": frame(0x0026, b"\x42\x42\3" + bytes(43)),
    "Cisco": frame(0x0026, b"\xaa\xaa\3\0\0\x0c\x20\0" + bytes(38)),
    "of LLC SAP 0x10": frame(0x0026, b"\x10\x10\3" + bytes(43)),
    "PPPoE discovery": frame(0x8863),
    "MPLS channel": frame(0x8847, bytes(labels(13)) + b"\x10" + bytes(40)),
    "of PPP protocol 0xC021": frame(0x8864, b"\x11\0\0\3\0\x20\xc0\x21" + bytes(40)),
    "of EtherType 0x0000": ip(47, bytes(40)),
    "ICMP": ip(1),
    "ICMPv6": bytes(OUTER6 / IPv6(nh=58) / Raw(bytes(40))),
    "SCTP": ip(132),
    "UDP": datagram(40000, 53),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_holds_no_tcp_is_told_only_without_flows(name: str) -> None:
    detail = f"no connection is in the capture; other packets: 2 {name}"
    assert problems(captured(QUIET[name], QUIET[name])) == [("no-flows", detail)]
    conversation = list(recorded(CONVERSATIONS[0]))
    assert problems(captured(QUIET[name]) + conversation) == problems(conversation)


@pytest.mark.parametrize(
    "packet",
    [
        datagram(2152, 2152, b"\x32\1\0\4" + bytes(8)),  # an echo request of GTP-U
        datagram(51820, 53),  # a port that WireGuard has, too
        datagram(6081, 40000)[:39],
        datagram(40000, 6081, b"")[:42],
    ],
)
def test_other_datagrams_are_plain_ones(packet: bytes) -> None:
    decoder = HeaderDecoder()
    assert decoder.segments(captured(packet), 1) == []
    assert decoder.other_packets() in ("1 UDP", "")
    assert (decoder.cut, decoder.malformed) == (0, 0)


def test_a_datagram_that_is_no_tunnel_is_a_datagram() -> None:
    """RADIO may have been given any port."""
    for port in UDP_TUNNELS:
        for payload in (b"", b"\x03abc", b"\7weather sunny", b"\x14" + b"g" * 30):
            decoder = HeaderDecoder()
            assert decoder.segments(captured(datagram(40000, port, payload)), 1) == []
            assert [(datagram[4], datagram[5]) for datagram in decoder.datagrams] == [(payload, 0)]


def test_a_capture_without_flows_says_what_is_in_it() -> None:
    reset = bytes(OUTER / Raw(struct.pack("!HHIIBBHI", 40000, 5555, 1, 2, 0x50, 4, 0, 0)))
    reset = reset[:23] + b"\6" + reset[24:]
    many = [QUIET["ARP"]] * 1000 + [QUIET["ICMP"]] * 9 + list(QUIET.values()) + [reset] * 2
    told = problems(captured(*many))
    listed = "2 TCP resets, 1,001 ARP, 10 ICMP, 1 of EtherType 0x0000, 1 PPPoE discovery, 1 LLDP, 8 of other kinds"
    assert told == [("no-flows", f"no connection is in the capture; other packets: {listed}")]
    assert problems([]) == []
    assert problems(captured(frame(0x88E5), QUIET["ARP"])) == [
        ("packets-not-read", "1 packet of EtherType 0x88E5 (MACsec) was not looked into"),
        ("no-flows", "no connection is in the capture; other packets: 1 ARP"),
    ]


def test_few_kinds_are_told_of_many() -> None:
    decoder = HeaderDecoder()
    packets = [frame(kind) for kind in range(0x0600, 0x10000, 97)]
    decoder.segments(captured(*packets, *[frame(0x88E5)] * 3, *[b"whatever"] * 2), 1)
    decoder.segments(captured(b"whatever", b"else", link=105), 1)
    told = decoder.skipped()
    assert len(told) <= 6
    assert told[0] == ("packets-not-read", told[0][1])
    tally = only(Tally, decoder)
    assert len(tally.packets) <= 257
    counted = sum(tally.packets.values())
    assert counted + decoder.malformed + decoder.cut == len(packets) + 3 + 2 + 2


def test_severities() -> None:
    assert {PROBLEMS[code].severity for code in ("link-type-unknown", "packets-not-read", "no-flows")} == {"note"}


def test_totals_count_every_packet() -> None:
    events = sniff(captured(frame(0x88E5), QUIET["ARP"], b"\1"))
    assert isinstance(events[-1], Capture)
    assert (events[-1].packets, events[-1].flows, events[-1].problems) == (3, 0, 3)
