"""The timestamps of TCP, and what they tell of a clock that was set forward."""

import pytest

from tests.support.paths import FIXTURES
from tests.world.tap import load
from zmtpsniff.net.timestamps import Stamp, TimestampReader, jump_ns

CAPTURE = FIXTURES / "rec_closing_worker.pcap"
SECOND = 1_000_000_000
HOUR = 3600 * SECOND


def test_stamps_of_real_packets_tell_how_much_time_passed() -> None:
    """Linux counts milliseconds."""
    packets = load(CAPTURE)
    reader = TimestampReader()
    first, last = reader.stamps(reversed(packets)), reader.stamps(packets)
    assert len(last) == 4  # both directions of two connections
    for key, before in first.items():
        passed_ns = last[key].time_ns - before.time_ns
        assert abs((last[key].ticks - before.ticks) * 1_000_000 - passed_ns) < 3_000_000


@pytest.mark.parametrize("size", range(60))
def test_packets_that_are_cut_have_none(size: int) -> None:
    (time_ns, link, octets, wire, comment), *_ = load(CAPTURE)
    assert TimestampReader().stamps([(time_ns, link, octets[:size], wire, comment)]) == {}


@pytest.mark.parametrize(
    ("ticks", "jump"),
    [
        ([(100, 102)], HOUR - 2_000_000),
        ([(100, 102), (7, 8)], HOUR - 2_000_000),  # the least that both prove
        ([(2**32 - 1, 1)], HOUR - 2_000_000),  # the number begins anew
        ([(100, 100 + 1700)], HOUR - 1700_000_000),
        ([(100, 100 + 1900)], 0),  # they may be seconds, so that half of the hour may have passed
        ([(100, 102), (5, 5 + 3_600_000)], 0),  # one host was awake for all of it
        ([(102, 100)], 0),  # out of order
        ([], 0),
    ],
)
def test_the_clocks_of_all_senders_count(ticks: list[tuple[int, int]], jump: int) -> None:
    before = {bytes([place]): Stamp(SECOND, one) for place, (one, _) in enumerate(ticks)}
    after = {bytes([place]): Stamp(SECOND + HOUR, two) for place, (_, two) in enumerate(ticks)}
    assert jump_ns(before, after | {b"other": Stamp(HOUR, 1)}) == jump
