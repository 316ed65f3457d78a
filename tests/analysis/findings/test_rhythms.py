"""The rhythm of a side, in Python and in the native core."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors import columns
from zmtpsniff.analysis.findings.rhythms import Rhythm, packed, unpacked
from zmtpsniff.native import reference


def test_pauses_runs_and_lengths() -> None:
    one = Rhythm()
    for time_ns, offset in ((10, 100), (20, 105), (30, 109), (45, 200)):
        one.say(time_ns, offset)
    assert (one.said, one.run, one.since_ns, one.last_ns) == (4, 4, 10, 45)
    assert (one.longest_gap_ns, one.long_gaps) == (15, 3)
    assert (one.size, one.least, one.most) == (91, 4, 5)  # neither the first nor the last
    one.hear(60)
    one.hear(70)
    assert (one.run, one.longest_run, one.turns, one.longest_wait_ns) == (0, 4, 1, 50)
    one.say(100, 201)
    assert (one.since_ns, one.longest_gap_ns, one.long_gaps) == (100, 55, 1)


@pytest.mark.hypothesis
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 99), st.integers(0, 99)), max_size=40))
def test_the_core_counts_the_same(said: list[tuple[bool, int, int]]) -> None:
    """Messages of both sides, with the time and the octets since the one before."""
    rhythms = [Rhythm(), Rhythm()]
    messages, rows = b"", b""
    time_ns = offset = 0
    for row, (asks, later_ns, octets) in enumerate(said):
        time_ns, offset = time_ns + later_ns, offset + octets
        rhythms[asks].say(time_ns, offset)
        rhythms[not asks].hear(time_ns)
        messages += columns.MESSAGE.pack(row, asks, 1, 0, 1, 0, 0, 0, 0, 0, offset, 0, 0, 0, 0)
        rows += columns.ROW.pack(time_ns, 0, 0, 0, 1)
    before = packed([Rhythm(), Rhythm()])
    ((*_, counted, _),) = reference.count_exchanges(messages, rows, 1, struct.pack("=2I", 1, 2), [(b"", b"", before)])
    assert counted == packed(rhythms) == packed(unpacked(counted))
