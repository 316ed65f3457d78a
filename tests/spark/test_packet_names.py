"""The names of packets, one by one and as columns."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="rows for Spark need pyarrow")

from zmtpsniff.spark.packet_names import PacketNames

PATHS = {1: "one.pcap", 2: "two.pcap"}
_RUNS = st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(1, 50), st.integers(1, 9)), max_size=6)


@given(runs=_RUNS, before=st.integers(0, 5), packets=st.lists(st.integers(0, 60), max_size=20))
def test_columns_name_the_packets_that_find_finds(
    runs: list[tuple[int, int, int]], before: int, packets: list[int]
) -> None:
    """Also those of files that are forgotten, and 0, which is none."""
    names = PacketNames(before, [], lambda _: [])
    for file, number, count in runs:
        names.add(file, number, count)
    files, numbers = names.columns(array("q", packets), PATHS)
    found = [names.find(packet) for packet in packets]
    assert files.to_pylist() == [PATHS[file] if number else None for file, number in found]
    assert numbers.to_pylist() == [number or None for _, number in found]
