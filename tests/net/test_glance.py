"""A glance leaves out what the header decoder makes a segment of a direction that nobody wants of, and nothing else."""

from collections.abc import Callable, Sequence
from itertools import compress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, IPOption_NOP, TCPerror
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, GRE, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'zmtpsniff[spark]'")

import numpy as np

from tests.net.test_packets import ETHERNET, KEY4, KEY6, LINKS, MAC, decode, ethernet, ip4, ip6, tcp
from tests.support.paths import FIXTURES
from zmtpsniff.capture.files import open_captures
from zmtpsniff.net.addresses import reverse
from zmtpsniff.net.glance import KeyGlance
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import Segment

PLAIN = ethernet(ip4() / tcp())
PLAIN6 = ethernet(ip6() / tcp())
NOBODY: Callable[[bytes], bool] = lambda key: False  # noqa: E731


def unwanted(packets: Sequence[bytes], link: int = ETHERNET, is_wanted: Callable[[bytes], bool] = NOBODY) -> list[bool]:
    """What a glance says of packets that stand one after the other."""
    sizes = np.array([len(packet) for packet in packets], np.int64)
    starts = np.cumsum(sizes) - sizes
    return KeyGlance(is_wanted).unwanted(link, b"".join(packets), starts, sizes).tolist()  # type: ignore[no-any-return]


def assert_segment(packet: bytes, link: int, wire: int) -> Segment:
    """The decoder makes a segment of a packet, and knows nothing more of it."""
    decoder = HeaderDecoder()
    (segment,) = decoder.segments([(0, link, packet, wire, None)], 1)
    assert not decoder.datagrams
    assert not decoder.fragments
    assert decoder.skipped() == []
    return segment


OTHERS = {
    "first fragment": ethernet(ip4(flags="MF") / tcp()),
    "other fragment": ethernet(ip4(frag=100) / tcp()),
    "VLAN": bytes(Ether(**MAC) / Dot1Q(vlan=5) / ip4() / tcp()),
    "options of IP": ethernet(ip4(options=[IPOption_NOP()] * 4) / tcp()),
    "IP in IP": ethernet(ip4() / ip4() / tcp()),
    "GRE": ethernet(ip4() / GRE() / ip4() / tcp()),
    "VXLAN": ethernet(ip4() / UDP(sport=40000, dport=4789) / VXLAN(vni=1) / Ether(PLAIN)),
    "extension headers": ethernet(ip6() / IPv6ExtHdrHopByHop() / tcp()),
    "fragment header": ethernet(ip6() / IPv6ExtHdrFragment(m=1) / tcp()),
    "IPv6 in IPv6": ethernet(ip6() / ip6() / tcp()),
    "IPv6 in IPv4": ethernet(ip4() / ip6() / tcp()),
    "IPv4 in IPv6": ethernet(ip6() / ip4() / tcp()),
    "UDP over IPv6": ethernet(ip6() / UDP(sport=40000, dport=5555) / bytes(40)),
    "IPv6 with a VLAN": bytes(Ether(**MAC) / Dot1Q(vlan=5) / ip6() / tcp()),
    "IPv6 with a length of 0": ethernet(ip6(plen=0) / tcp()),
    "IPv6 with a length that ends in TCP's header": ethernet(ip6(plen=19) / tcp()),
    "IPv6 with a data offset of 4": ethernet(ip6() / tcp(dataofs=4)),
    "IPv6 with a data offset beyond the packet": ethernet(ip6() / tcp(b"", dataofs=8)),
    "IPv6 with a header of TCP that is cut": PLAIN6[:73],
    "IPv6 with a header that is cut": PLAIN6[:53],
    "IPv6 as IPv4": PLAIN6[:12] + PLAIN[12:14] + PLAIN6[14:],
    "IPv4 as IPv6": PLAIN[:12] + PLAIN6[12:14] + PLAIN[14:],
    "ICMP error": ethernet(
        IP(src="10.0.0.9", dst="10.0.0.1")
        / ICMP(type=3, code=1)
        / IPerror(src="10.0.0.1", dst="10.0.0.2")
        / TCPerror(sport=40000, dport=5555)
    ),
    "ICMP": ethernet(ip4() / ICMP() / PLAIN),
    "UDP": ethernet(ip4() / UDP(sport=40000, dport=5555) / bytes(40)),
    "PGM": ethernet(ip4(proto=113) / Raw(PLAIN[34:])),
    "UDP-Lite": ethernet(ip4(proto=136) / Raw(PLAIN[34:])),
    "ARP": bytes(Ether(**MAC) / ARP()),
    "header of TCP that is cut": PLAIN[:53],
    "header of IP that is cut": PLAIN[:33],
    "nothing": b"",
    "data offset of 4": ethernet(ip4() / tcp(dataofs=4)),
    "data offset beyond the packet": ethernet(ip4() / tcp(b"", dataofs=8)),
    "length of 0": ethernet(ip4(len=0) / tcp()),
    "length that ends in TCP's header": ethernet(ip4(len=39) / tcp()),
    "version 5": PLAIN[:14] + b"\x55" + PLAIN[15:],
    "other EtherType": PLAIN[:12] + b"\x08\x01" + PLAIN[14:],
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_may_hold_anything_is_wanted(name: str) -> None:
    assert unwanted([PLAIN, OTHERS[name], PLAIN6, OTHERS[name], PLAIN]) == [True, False, True, False, True]
    assert unwanted([OTHERS[name]]) == [False]


@pytest.mark.parametrize("flags", ["", "DF"])
@pytest.mark.parametrize("size", [54, 55, None])
def test_what_is_plain_is_told_by_its_direction(flags: str, size: int | None) -> None:
    """Also where the payload is cut."""
    there = ethernet(ip4(flags=flags) / tcp())[:size]
    back = ethernet(IP(src="10.0.0.2", dst="10.0.0.1") / TCP(sport=5555, dport=40000, options=[("NOP", None)] * 8))
    assert unwanted([there, back, there]) == [True, True, True]
    assert unwanted([there, back, there], is_wanted=KEY4.__eq__) == [False, True, False]
    assert unwanted([there, back, there], is_wanted=reverse(KEY4).__eq__) == [True, False, True]


@pytest.mark.parametrize("size", [74, 75, None])
def test_what_is_plain_of_ipv6_is_told_by_its_direction(size: int | None) -> None:
    there = ethernet(ip6(tc=255, fl=0xFFFFF) / tcp())[:size]
    back = ethernet(IPv6(src="fe80::2", dst="fe80::1") / TCP(sport=5555, dport=40000, options=[("NOP", None)] * 8))
    assert unwanted([there, back, PLAIN, there]) == [True, True, True, True]
    assert unwanted([there, back, PLAIN, there], is_wanted=KEY6.__eq__) == [False, True, True, False]
    assert unwanted([there, back, PLAIN, there], is_wanted=reverse(KEY6).__eq__) == [True, False, True, True]


def test_each_direction_is_asked_for_once() -> None:
    asked: list[bytes] = []

    def is_wanted(key: bytes) -> bool:
        asked.append(key)
        return False

    glance = KeyGlance(is_wanted)
    for _ in range(3):
        glance.unwanted(ETHERNET, PLAIN * 2, np.array([0, len(PLAIN)]), np.array([len(PLAIN)] * 2))
    assert asked == [KEY4]


def test_few_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zmtpsniff.net.glance._MOST_KEYS", 2)
    packets = [ethernet(ip4() / TCP(sport=port, dport=5555)) for port in (1, 2, 3, 1, 2, 3, 4)]
    odd = [True, False, True, True, False, True, False]
    assert unwanted(packets, is_wanted=lambda key: not key[-3] % 2) == odd


# Where IPv6 goes the general way.
ODD6 = ("vlan", "two vlan tags", "cooked vlan", "null linux", "null big", "loop")


@pytest.mark.parametrize("name", LINKS)
def test_link_types(name: str) -> None:
    """What is left out of each is what it says; plain links have something that is left out."""
    link, before, protocols, after = LINKS[name]
    packets = [before + protocols[version] + after + bytes(ip / tcp()) for version, ip in ((4, ip4()), (6, ip6()))]
    found = unwanted(packets, link)
    assert found == ["vlan" not in name and name != "null big", name not in ODD6]
    for packet in compress(packets, found):
        assert_segment(packet, link, len(packet))


@pytest.mark.parametrize("link", [147, 228, 9, 0xFFFF])
def test_unknown_links(link: int) -> None:
    assert unwanted([PLAIN], link) == [False]


def test_recorded_packets() -> None:
    for path in sorted(FIXTURES.glob("*.pcap*")):
        for batch in open_captures([str(path)]).batches():
            for link in {packet[1] for packet in batch}:
                some = [packet for packet in batch if packet[1] == link]
                for packet, is_left_out in zip(some, unwanted([packet[2] for packet in some], link), strict=True):
                    if is_left_out:
                        segment = assert_segment(packet[2], link, packet[3])
                        assert unwanted([packet[2]], link, segment[2].__eq__) == [False]


# What says what follows, where it begins or how long it is, and octets that are wrong there or just right.
TELLING = (0, 1, 2, 4, 6, 17, 0x20, 0x27, 0x28, 0x29, 0x40, 0x45, 0x46, 0x4F, 0x50, 0x5F, 0x60, 0x80, 0xF0, 0xFF)


@st.composite
def packets(draw: st.DrawFn, links: dict[int, bytes]) -> bytes:
    """A packet of IPv4 or IPv6, after the link header that says so."""
    version = draw(st.sampled_from((4, 6)))
    ip, more = len(links[version]), 0 if version == 4 else 20
    packet = bytearray(links[version] + (PLAIN if version == 4 else PLAIN6)[14:])
    packet[ip + more + 21] = draw(st.sampled_from((1, 2)))  # the port of the source
    telling = (0, 3, 6, 7, 9, 32) if version == 4 else (0, 4, 5, 6, 52)
    places = st.sampled_from([ip + at for at in telling]) | st.integers(0, len(packet) - 1)
    for at in draw(st.lists(places, max_size=2)):
        packet[at] = draw(st.sampled_from(TELLING))
    end = ip + more + 40
    return bytes(packet[: draw(st.sampled_from((None, None, None, None, end + 1, end, end - 1, ip + 40, ip + 20, 9)))])


@given(data=st.data(), name=st.sampled_from(list(LINKS)))
def test_headers_of_any_octets(data: st.DataObject, name: str) -> None:
    """Of packets of any length, one behind the other, some of directions that somebody wants."""
    link, before, protocols, after = LINKS[name]
    links = {version: before + protocol + after for version, protocol in protocols.items()}
    some = data.draw(st.lists(packets(links), min_size=3, max_size=9))
    keys = sorted({segment[2] for packet in some for segment in decode(packet, link=link)})
    wanted = data.draw(st.sampled_from([[], keys[:1], keys]))
    for packet, is_left_out in zip(some, unwanted(some, link, wanted.__contains__), strict=True):
        if is_left_out:
            assert assert_segment(packet, link, len(packet))[2] not in wanted
