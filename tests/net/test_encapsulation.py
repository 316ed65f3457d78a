"""Headers in front of IP, and tunnels: a recorded conversation says the same in each of them, whatever is cut off."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from dissectors.events import AnyEvent
from tests.support.encapsulations import (
    CONVERSATIONS,
    MAC,
    WRAPPED,
    captured,
    datagram,
    frame,
    labels,
    recorded,
    wrapped,
)
from tests.support.examples import crossed, examples
from tests.world.events import sniff
from tests.world.tap import save_pcapng
from zmtpsniff.net.encapsulation import HEADERS, LINK_TYPE, UDP_TUNNELS
from zmtpsniff.net.packets import HeaderDecoder

PLACE = next(place for place, packet in enumerate(recorded(CONVERSATIONS[0])) if len(packet[2]) > 110)  # a greeting
NOT_OF_TSHARK = {
    "pseudowire with control word",  # it wants to be told of which label
    "pseudowire to 45",
    "pseudowire to 62",
    "pseudowire with SNAP",
    "VXLAN, named",
    "ERSPAN type III with IP",
    "PPP of pppd",
    "NFLOG, big-endian",  # in a file that is not
    "several",
}


@cache
def expected(name: str) -> tuple[AnyEvent, ...]:
    return tuple(sniff(recorded(name)))


@pytest.mark.parametrize(("name", "conversation"), crossed([*WRAPPED], CONVERSATIONS))
def test_a_conversation_says_the_same(name: str, conversation: str) -> None:
    events = sniff(wrapped(name, conversation))
    assert events == list(expected(conversation))
    assert events[-1].zmtp_flows > 0  # type: ignore[union-attr]


@pytest.mark.parametrize(("name", "conversation"), crossed([*WRAPPED], CONVERSATIONS))
def test_packets_cut_inside_headers(name: str, conversation: str) -> None:
    """However few octets were captured, what they say is right: that the rest is missing, and nothing else."""
    time_ns, link, octets, wire, _ = wrapped(name, conversation)[PLACE]
    decoder = HeaderDecoder()
    (whole,) = decoder.segments([(time_ns, link, octets, wire, None)], 1)
    payload = octets.rindex(whole[6])
    for length in range(1, len(octets) + 1):
        decoder = HeaderDecoder()
        found = decoder.segments([(time_ns, link, octets[:length], wire, None)], 1)
        if length < payload - 12:  # which are options of TCP
            assert found == []
            assert (decoder.cut, decoder.malformed) == (1, 0) or not_tcp(decoder)
        else:
            have = whole[6][: max(length - payload, 0)]
            assert found == [(*whole[:6], have, len(whole[6]) - len(have))]


def not_tcp(decoder: HeaderDecoder) -> bool:
    """UDP of which nothing but a part of its header was captured."""
    return (decoder.cut, decoder.malformed, decoder.other_packets()) == (0, 0, "1 UDP")


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed (apt install tshark)")
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_tshark_finds_the_same(conversation: str, tmp_path: Path) -> None:
    """A packet of each kind."""
    from zmtpsniff.capture.tshark_packets import open_with_tshark

    packets = [wrapped(name, conversation)[PLACE] for name in WRAPPED]
    path = save_pcapng(tmp_path / "all.pcapng", packets)
    theirs = [packet for batch in open_with_tshark([str(path)], []).batches() for packet in batch]
    found = {segment[1]: segment[2:] for segment in HeaderDecoder().segments(theirs, 1)}
    ours = HeaderDecoder().segments(packets, 1)
    differ = {name for name, segment in zip(WRAPPED, ours, strict=True) if found.get(segment[1]) != segment[2:]}
    assert differ <= NOT_OF_TSHARK


# ---------------------------------------------------------------- octets that anybody made


def test_tunnels_without_end() -> None:
    """Each ends at a bound, or at the packet's last octet."""
    # Lengths of 0 are left to the network card: up to the end of the packet.
    in_gre = bytes([0x45, 0, 0, 0, 0, 1, 0, 0, 64, 47, 0, 0, *bytes(8), 0, 0, 8, 0])
    in_gtp = bytes([0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0, *bytes(8), 8, 0x68, 8, 0x68, *bytes(4)])
    in_gtp += bytes([0x30, 255, *bytes(6)])
    too_deep = [("packets-not-read", "1 packet of more than eight tunnels, one inside the other, was not looked into")]
    wrong = [("malformed-headers", "1 packet was skipped for wrong headers")]
    unknown = [("packets-not-read", "1 packet of EtherType 0x8847 (MPLS) was not looked into")]
    for octets, told in (
        (frame(0x0800, in_gre * 2000), too_deep),
        (frame(0x0800, in_gtp * 1500), too_deep),
        (frame(0x0800, in_gtp * 5), wrong),
        (frame(0x8847, b"\0\0\0\x40" * 16000), wrong),
        (frame(0x8100, b"\0\7\x81\0" * 16000), wrong),
        (frame(0x8847, (b"\0\1\1\x40" + bytes(12) + b"\x88\x47") * 3000), unknown),
        (datagram(2152, 2152, b"\x34\xff\0\0\0\0\0\1\0\0\0\x85" + b"\1\0\0\x85" * 9000), wrong),
    ):
        decoder = HeaderDecoder()
        assert decoder.segments(captured(octets), 1) == []
        assert decoder.skipped() == told


LINKS = sorted(number - LINK_TYPE for number in HEADERS if LINK_TYPE <= number < LINK_TYPE << 1)


@given(link=st.sampled_from([*LINKS, 105, 9999]), data=st.binary(max_size=120), more=st.integers(0, 2000))
def test_any_octets_are_taken(link: int, data: bytes, more: int) -> None:
    decoder = HeaderDecoder()
    for segment in decoder.segments([(0, link, data, len(data) + more, None)], 1):
        assert segment[7] >= 0
        assert len(segment[2]) in (12, 36)
    assert len(decoder.skipped()) <= 1


@settings(max_examples=examples(500))
@given(
    header=st.sampled_from(sorted({**HEADERS, **UDP_TUNNELS}.items())),
    data=st.binary(max_size=80),
    start=st.integers(0, 20),
    more=st.integers(0, 100),
)
def test_every_header_ends_behind_its_beginning(
    header: tuple[int, Callable[[bytes, int, int], tuple[int, int]]], data: bytes, start: int, more: int
) -> None:
    """So that taking one off after the other comes to an end."""
    following, begin = header[1](data, start, len(data) + more)
    assert begin > start or following not in HEADERS
    if len(data) <= start:
        assert following < 0


def test_fragments_inside_a_tunnel() -> None:
    """A datagram whose fragments go through a tunnel one by one."""
    plain = Ether(recorded(CONVERSATIONS[0])[PLACE][2])
    pieces = plain[IP].fragment(fragsize=48)
    assert len(pieces) > 1
    through = [bytes(Ether(**MAC, type=0x8847) / labels(16) / Raw(bytes(piece))) for piece in pieces]
    (segment,) = HeaderDecoder().segments(captured(*through), 1)
    (expected_one,) = HeaderDecoder().segments(captured(bytes(plain)), 1)
    assert segment[2:] == expected_one[2:]
