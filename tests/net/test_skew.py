"""By how much the clocks of files differ, from segments that two of them have."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import FIXTURES
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.files import open_captures
from zmtpsniff.net.skew import clock_differences

SECONDS = 1_000_000_000


def in_files(*files: list[Packet]) -> list[Iterator[Block]]:
    return [iter([Block.of(file)]) for file in files]


def packets(name: str) -> list[Packet]:
    return [packet for batch in open_captures([str(FIXTURES / name)]).batches() for packet in batch]


REQUESTS, PUSHED = packets("m31_req_rep.pcap"), packets("m31_push_pull.pcap")


def seen_elsewhere(given: list[Packet], ahead_ns: int, way_ns: int) -> list[Packet]:
    """The packets that the server's host saw, so much later than the client's, by a clock that is ahead."""
    client = given[0][2][34:36]  # the port of the one who connects
    return [
        (packet[0] + ahead_ns + (way_ns if packet[2][34:36] == client else -way_ns), *packet[1:]) for packet in given
    ]


@given(ahead_ns=st.integers(-100 * SECONDS, 100 * SECONDS), way_ns=st.integers(0, SECONDS // 100))
def test_the_way_of_the_packets_does_not_count(ahead_ns: int, way_ns: int) -> None:
    other = seen_elsewhere(REQUESTS, ahead_ns, way_ns)
    assert clock_differences(in_files(REQUESTS, other)) == [0, ahead_ns]


@given(st.integers(-SECONDS, SECONDS), st.integers(-SECONDS, SECONDS))
def test_differences_add_up(first_ns: int, second_ns: int) -> None:
    """The second file has a connection in common with each of the others, which have none with each other."""
    between = seen_elsewhere(REQUESTS, first_ns, 0)
    third = seen_elsewhere(between, second_ns, 0)
    one, two = REQUESTS[: len(REQUESTS) // 2], third[len(third) // 2 :]
    assert clock_differences(in_files(one, between, two)) == [0, first_ns, first_ns + second_ns]


def test_what_has_nothing_in_common_is_not_known() -> None:
    assert clock_differences(in_files(REQUESTS, PUSHED)) == [0, None]
    assert clock_differences(in_files(REQUESTS, [])) == [0, None]
