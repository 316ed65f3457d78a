"""What a skim leaves out changes nothing of what is known of the packets that it keeps, nor of all."""

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'zmtpsniff[spark]'")

import numpy as np
from numpy.typing import NDArray

from tests.capture.test_files import COMPRESSIONS, pcap
from tests.capture.test_files_offsets import FORMS, State, chunks
from zmtpsniff.capture.files import open_stream
from zmtpsniff.capture.skim import Glance, Numbers, Skim, structures
from zmtpsniff.capture.source import Packet

DISORDER = [(time, time * 7 % 10, bytes([time]) * (time % 50), 60) for time in (5, 9, 3, 3, 8, 12, 11, 12, 2, 20, 1)]
PLACES = {
    **FORMS,
    "disorder": pcap(DISORDER),
    "nanoseconds": pcap(DISORDER, magic=0xA1B23C4D),
    "late in 32 bits": pcap([(0xFFFF_FFFF, 999_999, b"x", 1), (0, 0, b"y", 1)]),
    "cut": pcap(DISORDER)[:-3],
    "corrupt": pcap(DISORDER) + b"\xff" * 40,
    "compressed": COMPRESSIONS["gzip"](pcap(DISORDER)),
}

Known = dict[int, tuple[Packet, int, int]]
"""Packets with their order and offset, by their numbers."""


class Whim:
    """Leaves out packets at random."""

    def __init__(self, seed: int, share: float) -> None:
        self._random = Random(seed)
        self._share = share

    def unwanted(self, link: int, data: bytes, starts: Numbers, sizes: Numbers) -> NDArray[np.bool_]:
        assert link == 1
        assert (starts + sizes <= len(data)).all()
        return np.array([self._random.random() < self._share for _ in starts], bool)


def read(octets: bytes, size: int, glance: Glance | None) -> tuple[Known, list[int], Skim, State]:
    """What is kept, the numbers of what came last in each piece, and what is known of all."""
    skim, state = Skim(glance), State()
    found: Known = {}
    last = []
    for piece in skim.pieces(open_stream("capture", chunks(octets, size), state, skim.offsets, skim)):
        for number, *rest in zip(piece.numbers, piece.packets, piece.orders_ns, piece.offsets, strict=True):
            assert number not in found
            found[number] = tuple(rest)  # type: ignore[assignment]
        last.append(piece.numbers[-1])
    assert list(found) == sorted(found)
    return found, last, skim, state


def read_all(octets: bytes) -> tuple[Known, State]:
    """What readers say without a skim."""
    state, offsets = State(), list[int]()
    found: Known = {}
    order_ns = 0
    for batch in open_stream("capture", chunks(octets, 1 << 16), state, offsets):
        for packet, offset in zip(batch, offsets, strict=True):
            order_ns = max(order_ns, packet[0])
            found[len(found) + 1] = packet, order_ns, offset
    return found, state


@pytest.mark.parametrize("form", PLACES)
@given(size=st.integers(1, 3000), seed=st.integers(), share=st.sampled_from([None, 0.0, 0.3, 0.9, 1.0]))
@example(size=1 << 16, seed=0, share=1.0)
def test_what_is_kept_is_as_without(form: str, size: int, seed: int, share: float | None) -> None:
    whole, wanted = read_all(PLACES[form])
    some, _, skim, state = read(PLACES[form], size, None if share is None else Whim(seed, share))
    assert some == {number: whole[number] for number in some}
    assert share or len(some) == len(whole)
    times = [packet[0] for packet, _, _ in whole.values()]
    assert (skim.count, skim.least_ns, skim.latest_ns) == (len(whole), min(times), max(times))
    assert vars(state) == vars(wanted)


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
    whole, wanted = read_all(octets)
    some, last, skim, state = read(octets, size, Whim(seed, share))
    assert some == {number: whole[number] for number in some}
    assert share or len(some) == len(whole)
    times = [packet[0] for packet, _, _ in whole.values()]
    assert (skim.count, skim.least_ns, skim.latest_ns) == (
        len(whole),
        min(times, default=None),
        max(times, default=None),
    )
    assert last[-1:] == list(whole)[-1:]
    assert vars(state) == vars(wanted)


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
