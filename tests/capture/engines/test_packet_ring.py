"""Blocks of the kernel's ring, as packets and as rows."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from tests.support.both_cores import BothCores
from zmtpsniff.capture.block import Block
from zmtpsniff.capture.engines.packet_ring import packets_of

_ETHERNET, _LOOPBACK, _TUNNEL = 1, 772, 768
_VLAN_VALID = 1 << 4
_HEADER = struct.Struct("=IIIIIIHHIIHxx8x")  # tpacket3_hdr
_ADDRESS = struct.Struct("=HHiHBB8x")  # sockaddr_ll
_ROOM = 96


@st.composite
def ring_packets(draw: st.DrawFn) -> bytes:
    """A packet as the kernel writes it into its ring."""
    octets = draw(st.binary(max_size=60))
    hardware = draw(st.sampled_from([_ETHERNET, _LOOPBACK, _TUNNEL]))
    link, network = _ROOM, _ROOM + draw(st.integers(0, 14))
    status = draw(st.sampled_from([0, 0, 0, _VLAN_VALID]))
    step = link + len(octets) + draw(st.integers(14, 20))
    header = _HEADER.pack(
        step, draw(st.integers(0, 1 << 31)), 5, len(octets), len(octets) + draw(st.integers(14, 99)), status, link,
        network, 0, 7, 0x8100,
    )  # fmt: skip
    address = _ADDRESS.pack(17, 8, 1, hardware, 0, 6)
    return (header + address).ljust(_ROOM, b"\0") + octets.ljust(step - _ROOM, b"\0")


@given(st.lists(ring_packets(), max_size=5), st.binary(max_size=80), st.integers(0, 2))
def test_rows_find_the_packets(packets: list[bytes], more: bytes, missing: int) -> None:
    block = b"".join(packets) + more
    rows = BothCores().ring_rows(block, len(packets) + missing)
    if rows is not None and not missing:
        assert Block(block, rows).packets() == packets_of(len(packets), block)
