"""By how much the clocks of files differ, from segments that two of them have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import FIXTURES
from tests.world.tap import load
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.net.skew import compare

MS = 1_000_000
SECONDS = 1_000_000_000


def differences(*files: list[Packet]) -> list[tuple[int, int]]:
    """The file with which each is compared, and by how much its clock is ahead."""
    found = compare([iter([Block.of(file)]) for file in files]).clocks
    assert not any(one.drift for one in found)
    return [(one.other, one.ahead_ns) for one in found]


def packets(name: str) -> list[Packet]:
    """The packets of a loopback capture with one connection, as if a host at 10.0.0.1 had connected to 10.0.0.2."""
    found = load(FIXTURES / name)
    client = found[0][2][34:36]
    ends = {True: b"\x0a\0\0\1\x0a\0\0\2", False: b"\x0a\0\0\2\x0a\0\0\1"}
    return [(one[0], one[1], one[2][:26] + ends[one[2][34:36] == client] + one[2][34:], *one[3:]) for one in found]


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
    assert differences(REQUESTS, other) == [(0, 0), (0, ahead_ns)]


@given(st.integers(-SECONDS, SECONDS), st.integers(-SECONDS, SECONDS))
def test_differences_add_up(first_ns: int, second_ns: int) -> None:
    """The second file has a connection in common with each of the others, which have none with each other."""
    between = seen_elsewhere(REQUESTS, first_ns, 0)
    third = seen_elsewhere(between, second_ns, 0)
    one, two = REQUESTS[: len(REQUESTS) // 2], third[len(third) // 2 :]
    assert differences(one, between, two) == [(0, 0), (0, first_ns), (0, first_ns + second_ns)]


@given(st.integers(-100 * SECONDS, 100 * SECONDS))
def test_acknowledgments_come_back_where_octets_go_one_way(ahead_ns: int) -> None:
    other = seen_elsewhere(PUSHED, ahead_ns, SECONDS // 1000)
    assert differences(PUSHED, other) == [(0, 0), (0, ahead_ns)]


def test_what_has_nothing_in_common_with_the_first_is_compared_with_others() -> None:
    others = PUSHED, seen_elsewhere(PUSHED, SECONDS, 0)
    assert differences(REQUESTS, [], *others) == [(0, 0), (1, 0), (2, 0), (2, SECONDS)]


def test_files_of_one_host_are_not_compared() -> None:
    """It has connections with two others, and its capturing program began a file while these went on."""
    far = (b"\x0a\0\0\2", b"\x0a\0\0\3")
    both = [(one[0], one[1], one[2].replace(*far), *one[3:]) for one in PUSHED] + PUSHED
    later = seen_elsewhere(both, SECONDS, 0)
    assert differences(both, later) == [(0, 0), (0, 0)]


@pytest.mark.parametrize("ppm", [-300, 100])
def test_a_clock_that_is_too_fast_or_too_slow(ppm: int) -> None:
    """A packet comes each second. A way that takes 1 ms does not count."""
    start_ns = REQUESTS[0][0]
    one = [(start_ns + place * SECONDS, *packet[1:]) for place, packet in enumerate(REQUESTS)]
    other = [(packet[0] + (packet[0] - start_ns) * ppm // 1_000_000, *packet[1:]) for packet in one]
    _, found = compare([iter([Block.of(file)]) for file in (one, seen_elsewhere(other, SECONDS, MS))]).clocks
    assert round(found.drift * 1e6) == ppm
    assert max(abs(found.right(far[0] + SECONDS) - near[0]) for far, near in zip(other, one, strict=True)) < MS
