"""What a skim leaves out changes nothing of what is known of the packets that it keeps, nor of all."""

import struct
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'zmtpsniff[spark]'")

import numpy as np
from numpy.typing import NDArray

from tests.capture.test_files import COMPRESSIONS, Ng, pcap
from tests.capture.test_files_offsets import FORMS, captures, chunks
from tests.support import records
from tests.world.tap import Packets
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.files import open_stream
from zmtpsniff.capture.pcapng_writer import PcapngSection, Provenance
from zmtpsniff.capture.skim import Glance, Numbers, Skim, structures

DISORDER = [(time, time * 7 % 10, bytes([time]) * (time % 50), 60) for time in (5, 9, 3, 3, 8, 12, 11, 12, 2, 20, 1)]


def pcapng(order: str = "<", options: bytes = b"", interfaces: int = 1) -> bytes:
    """A section with those packets, from several interfaces in turns."""
    ng = Ng(order)
    stamps = [second * 1_000_000 + fraction for second, fraction, *_ in DISORDER]
    packets = [ng.packet(at % interfaces, stamps[at], *DISORDER[at][2:]) for at in range(len(DISORDER))]
    return ng.section() + ng.interface(options=options) * interfaces + b"".join(packets)


def unlike() -> bytes:
    """Packets from interfaces that differ in what the times mean or in the link type, and of one not described."""
    ng = Ng()
    resolutions = [6, 9, 3, 0, 0x80, 0x8A, 12]
    described = [ng.interface(options=ng.option(9, bytes([value]))) for value in resolutions] + [ng.interface(113)]
    described += [ng.interface(options=ng.option(14, struct.pack("<q", value))) for value in (-7, 1 << 33, -1 << 62)]
    packets = [ng.packet(at, 1000 + at, bytes(at), 60) * 3 for at in range(len(described))]
    many = [ng.packet(at % 2 * 5, 1000 + at, bytes(at), 60) for at in range(50)]
    return ng.section() + b"".join(described + packets + many + [ng.packet(99, 1, b"", 0)])


PLACES = {
    **FORMS,
    "disorder": pcap(DISORDER),
    "nanoseconds": pcap(DISORDER, magic=0xA1B23C4D),
    "late in 32 bits": pcap([(0xFFFF_FFFF, 999_999, b"x", 1), (0, 0, b"y", 1)]),
    "cut": pcap(DISORDER)[:-3],
    "corrupt": pcap(DISORDER) + b"\xff" * 40,
    "compressed": COMPRESSIONS["gzip"](pcap(DISORDER)),
    "pcapng, disorder": pcapng(),
    "pcapng, big-endian": pcapng(">"),
    "pcapng, both": pcapng("<") + pcapng(">") + pcapng("<"),
    "pcapng, interfaces alike": pcapng(interfaces=3),
    "pcapng, interfaces unlike": unlike(),
    "pcapng, late in 64 bits": Ng().section()
    + Ng().interface()
    + Ng().packet(0, (1 << 64) - 1, b"x", 1) * 5
    + pcapng(),
    "pcapng, compressed": COMPRESSIONS["zstd"](pcapng()),
}

Known = dict[int, tuple[Packet, int, int]]
"""Packets with their order and offset, by their numbers."""


class Whim:
    """Leaves out packets at random."""

    def __init__(self, seed: int, share: float) -> None:
        self._random = Random(seed)
        self.share = share

    def unwanted(self, link: int, data: bytes, starts: Numbers, sizes: Numbers) -> NDArray[np.bool_]:
        assert (starts + sizes <= len(data)).all()
        return np.array([self._random.random() < self.share for _ in starts], bool)


def read(octets: bytes, size: int, glance: Glance | None) -> tuple[Known, list[int], Skim, Packets]:
    """What is kept, the numbers of what came last in each piece, and what is known of all."""
    skim, state = Skim(glance), Packets(())
    found: Known = {}
    last = []
    for piece in skim.pieces(open_stream("capture", chunks(octets, size), state)):
        for number, *rest in zip(piece.numbers, piece.packets, piece.orders_ns, piece.offsets, strict=True):
            assert number not in found
            found[number] = tuple(rest)  # type: ignore[assignment]
        last.append(piece.numbers[-1])
    assert list(found) == sorted(found)
    return found, last, skim, state


def read_all(octets: bytes) -> tuple[Known, Packets]:
    """What readers say without a skim."""
    state = Packets(())
    found: Known = {}
    order_ns: int | None = None
    for block in open_stream("capture", chunks(octets, 1 << 16), state):
        for packet, offset in zip(block, block.offsets(), strict=True):
            order_ns = packet[0] if order_ns is None else max(order_ns, packet[0])
            found[len(found) + 1] = packet, order_ns, offset
    return found, state


@pytest.mark.parametrize("form", PLACES)
@given(size=st.integers(1, 3000), seed=st.integers(), share=st.sampled_from([None, 0.0, 0.3, 0.9, 1.0]))
@example(size=1 << 16, seed=0, share=1.0)
def test_what_is_kept_is_as_without(form: str, size: int, seed: int, share: float | None) -> None:
    assert_alike(PLACES[form], size, None if share is None else Whim(seed, share))


def assert_alike(octets: bytes, size: int, glance: Whim | None) -> None:
    whole, wanted = read_all(octets)
    some, last, skim, state = read(octets, size, glance)
    assert some == {number: whole[number] for number in some}
    assert (glance is not None and glance.share) or len(some) == len(whole)
    times = [packet[0] for packet, _, _ in whole.values()]
    assert skim.count == len(whole)
    assert (skim.least_ns, skim.latest_ns) == (min(times, default=None), max(times, default=None))
    assert last[-1:] == list(whole)[-1:]
    assert vars(state) == vars(wanted)


@st.composite
def sections(draw: st.DrawFn) -> bytes:
    """Sections of pcapng with blocks of any kind, most of them with packets; some of the octets are wrong."""
    out = b""
    for _ in range(draw(st.integers(1, 3))):
        ng = Ng(draw(st.sampled_from("<>")))
        interface = st.builds(
            lambda link, unit, add, ng=ng: ng.interface(
                link, options=ng.option(9, bytes([unit])) + ng.option(14, struct.pack(f"{ng.order}q", add))
            ),
            st.sampled_from([1, 1, 113]),
            st.sampled_from([6, 6, 9, 0x8A]),
            st.sampled_from([0, 0, -5, 1 << 60]),
        )
        packet = st.builds(
            lambda index, stamp, size, options, ng=ng: ng.packet(index, stamp, b"packet..."[:size], 60, options),
            st.sampled_from([0, 0, 0, 1]),
            st.integers(0, 1 << 34) | st.integers(0, (1 << 64) - 1),
            st.integers(0, 9),
            st.sampled_from([b"", b"", b"", ng.option(1, b"comment")]),
        )
        other = st.sampled_from(
            [
                ng.block(3, "I", 4, data=b"simp"),
                ng.block(2, "HHIIII", 0, 5, 0, 3, 3, 9, data=b"old"),
                ng.block(5, "III", 0, 0, 0, options=ng.option(5, struct.pack(f"{ng.order}Q", 3))),
                ng.block(0x0BAD, "I", 7, data=bytes(40)),
            ]
        )
        blocks = st.lists(packet | packet | packet | packet | other | interface, max_size=30)
        out += ng.section() + draw(interface) + draw(interface) + b"".join(draw(blocks))
    octets = bytearray(out)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        octets[draw(st.integers(28, len(octets) - 1))] = draw(st.sampled_from([0, 1, 3, 0x24, 0x80, 0xFF]))
    return bytes(octets)


@given(octets=sections(), size=st.integers(1, 3000), share=st.sampled_from([0.0, 0.5, 1.0]))
def test_any_sections(octets: bytes, size: int, share: float) -> None:
    assert_alike(octets, size, Whim(size, share))


def test_every_capture_as_pcapng() -> None:
    """With a comment here and there, which interrupts the quick way."""
    section = PcapngSection(Provenance("zmtpsniff test"))
    for path in captures():
        packets = [packet for packet, _, _ in read_all(records.content(path))[0].values()]
        packets[100:101] = [(*packet[:4], "a comment") for packet in packets[100:101]]
        assert_alike(section.header([]) + section.packets(packets), 10_000, Whim(len(packets), 0.7))


@pytest.mark.parametrize("interfaces", [1, 3])
@pytest.mark.parametrize("order", "<>")
def test_blocks_are_left_out(order: str, interfaces: int) -> None:
    """All but the last one."""
    ng = Ng(order)
    packets = [ng.packet(at % interfaces, at << 30, bytes(at), 60) for at in range(99)]
    octets = ng.section() + ng.interface(113) * interfaces
    skim = Skim(Whim(0, 1.0))
    pieces = iter([octets, b"".join(packets)])
    found = list(skim.pieces(open_stream("capture", pieces, Packets(()))))
    assert [piece.numbers for piece in found] == [[99]]


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Files of all kinds whose records are of any length, also longer than the header says, cut or damaged."""
    sizes = st.sampled_from((0, 1, 15, 16, 17, 23, 24, 59, 60)) | st.integers(0, 300)
    numbers = st.integers(0, 20) | st.sampled_from((0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF))
    octets = pcap(
        draw(st.lists(st.tuples(numbers, numbers, sizes.map(bytes), numbers), min_size=1, max_size=40)),
        draw(st.sampled_from("<>")),
        draw(st.sampled_from((0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34))),
        draw(st.sampled_from((0, 16, 60, 65_535, 0xFFFF_FFFF))),
    )
    end = len(octets) - draw(st.sampled_from((0, 0, 1, 16, 17, 60)))
    return octets[: max(end, 24)] + draw(st.sampled_from((b"", b"", b"\xff" * 16)))


@given(octets=files(), size=st.integers(1, 3000), seed=st.integers(), share=st.sampled_from([0.0, 0.3, 1.0]))
def test_of_any_file_what_is_kept_is_as_without(octets: bytes, size: int, seed: int, share: float) -> None:
    assert_alike(octets, size, Whim(seed, share))


def test_the_last_of_those_left_out_is_kept() -> None:
    """In each piece, so that who reads knows how late it is."""
    octets = pcap([(number, 0, bytes(40), 60) for number in range(1000)])
    some, last, _, _ = read(octets, 5000, Whim(0, 1.0))
    assert list(some) == last
    assert len(last) == -(-len(octets) // 5000)


def test_orders_are_those_of_all() -> None:
    """Also where what was late was left out."""

    class Late(Whim):
        def unwanted(self, *given: object) -> NDArray[np.bool_]:
            return np.array([time in (9, 12, 20) for time, *_ in DISORDER])

    some, _, _, _ = read(pcap(DISORDER), 1 << 16, Late(0, 0))
    assert [order // 1_000_000_000 for _, order, _ in some.values()] == [5, 9, 9, 9, 12, 12, 20, 20]


def test_without_packets() -> None:
    found, _, skim, _ = read(pcap([]), 7, Whim(0, 1.0))
    assert (found, skim.count, skim.least_ns, skim.latest_ns) == ({}, 0, None, None)


def test_structures_are_whole() -> None:
    layout = np.dtype([("a", ">u2"), ("b", "u1")])
    data = bytes(range(10))
    assert structures(data, np.array([0, 7]), layout).tolist() == [(0x0001, 2), (0x0708, 9)]
    assert structures(b"", np.array([], np.int64), layout).tolist() == []
    with pytest.raises(IndexError):
        structures(data, np.array([8]), layout)
