"""The packets from one time to another, whatever blocks they come in."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.time_window import LATE_NS, TimeWindow

times = st.integers(0, 3 * LATE_NS)


def _packets(times_ns: list[int]) -> list[Packet]:
    return [(time_ns, 1, b"%d" % place, 9, None) for place, time_ns in enumerate(times_ns)]


def _blocks(packets: list[Packet], size: int) -> Iterator[Block]:
    for begin in range(0, len(packets), size):
        yield Block.of(packets[begin : begin + size])


@given(st.lists(times).map(sorted), st.none() | times, st.none() | times, st.integers(1, 5))
def test_what_is_inside_and_nothing_else(
    times_ns: list[int], begin_ns: int | None, end_ns: int | None, size: int
) -> None:
    packets = _packets(times_ns)
    inside = [
        packet
        for packet in packets
        if (begin_ns is None or packet[0] >= begin_ns) and (end_ns is None or packet[0] <= end_ns)
    ]
    found = TimeWindow(begin_ns, end_ns).cut(_blocks(packets, size))
    assert [packet for block in found for packet in block] == inside


def test_packets_in_disorder_at_the_edges() -> None:
    packets = _packets([1, 12, 9, 11, 25, 19, 20, 21])
    (*found,) = TimeWindow(10, 20).cut(_blocks(packets, 3))
    assert [packet[0] for block in found for packet in block] == [12, 11, 19, 20]


def test_a_file_is_not_read_beyond_the_end() -> None:
    def blocks() -> Iterator[Block]:
        yield Block.of(_packets([1, 2]))
        yield Block.of(_packets([3 + LATE_NS]))
        pytest.fail("read on")

    assert [len(block) for block in TimeWindow(None, 2).cut(blocks())] == [2]
