"""The native core on what no capture and no caller should give it, and what compilers say of its source."""

import contextlib
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors import columns
from dissectors.zmtp import buffer, session, wire
from tests.support.both_cores import BothCores, built_core
from tests.support.paths import PROJECT
from tests.support.tunnels import IN_IP, TUNNELS, in_ip, in_tunnel
from tests.world.network import tcp_packet
from zmtpsniff.analysis.findings import exchanges
from zmtpsniff.analysis.patterns import pending, proxies
from zmtpsniff.capture import pcapng_writer
from zmtpsniff.native import reference
from zmtpsniff.net import clocks, encapsulation, reassembly
from zmtpsniff.net import packets as net_packets
from zmtpsniff.net import segment as net_segment

SOURCE = PROJECT / "zmtpsniff" / "native" / "core.c"
LINK = 101
ETHERNET_OCTETS = 14
PAUSE = 10**12
LAST = 2**63 - 1
NATIVE: Any = built_core()  # also where ZMTPSNIFF_NATIVE switches it off


def side(mode: int = 1, *, start: int = 1000, offset: int = 0, carry: bytes = b"", recent: Any = ()) -> tuple[Any, ...]:
    """The facts of a direction."""
    return (mode, start, offset, 1 << 20, 0, carry, recent, 0)


def flow(one: Any = None, other: Any = None, *, number: int = 0, last_ns: int = 0, step: Any = None) -> Any:
    """A lookup whose flows all have these facts."""
    return lambda _: ("token", number, last_ns, one or side(), other or side(), step)


def segment(payload: bytes, seq: int = 1000, ports: tuple[int, int] = (1, 2)) -> bytes:
    """A packet of raw IP."""
    return tcp_packet((b"\x0a\0\0\1",) * 2, ports, (seq, 1000), net_segment.ACK, payload)[ETHERNET_OCTETS:]


def block(*packets: bytes, time_ns: int = 5) -> tuple[bytes, bytes]:
    """Octets and rows of packets."""
    rows, place = [], 0
    for packet in packets:
        rows.append(columns.ROW.pack(time_ns, place, len(packet), len(packet), LINK))
        place += len(packet)
    return b"".join(packets), b"".join(rows)


HELLO = segment(b"\0\5hello")


@pytest.fixture(name="both")
def _both() -> BothCores:
    return BothCores()


def test_the_packet_of_these_tests_is_taken(both: BothCores) -> None:
    octets, rows = block(HELLO)
    stop, messages, *_ = both.take(octets, rows, 0, 1, PAUSE, flow())
    assert (stop, len(messages)) == (1, columns.MESSAGE.size)


@pytest.mark.parametrize("before", [1, 4, 5])
@pytest.mark.parametrize("time_ns", [-1, 0, 10**6 - 1, 10**6])
@pytest.mark.parametrize("octets", [b"\0\2ab", b"\0\2xy", b"\0\2abc"])
def test_a_segment_again(both: BothCores, octets: bytes, time_ns: int, before: int) -> None:
    """The first copy came before this call. It is the last segment, or there is one behind it."""
    recent = ((-4, octets, 0, 0), (0, b"\0\0", 0, 0))
    packets, rows = block(segment(b"\0\2ab", 1000 - before), time_ns=time_ns)
    is_again = (octets, before) == (b"\0\2ab", 4) and 0 <= time_ns < 10**6
    for kept, start, offset in ((recent[:1], 1000, 0), (recent, 1002, 2)):
        mine = side(start=start, offset=offset, recent=kept)
        stop, messages, *_ = both.take(packets, rows, 0, 1, PAUSE, flow(mine))
        assert (stop, messages) == (is_again, b"")


def test_a_segment_again_in_the_same_block(both: BothCores) -> None:
    """Also one that others follow, which have copies, too."""
    sent = [segment(b"\0\2%02d" % number, 1000 + 4 * number) for number in range(4)]
    packets, rows = block(*sent, *sent, sent[2])
    stop, messages, *_ = both.take(packets, rows, 0, 1, PAUSE, flow())
    assert (stop, len(messages)) == (9, 4 * columns.MESSAGE.size)


# ------------------------------------------------------------------ captures


def assert_whole_only(both: BothCores, packet: bytes, link: int = 1) -> None:
    """Cut a packet at each octet, by the row alone and by the block, too: nothing takes it but the whole."""
    for size in range(len(packet) + 1):
        for octets in (packet[:size], packet):
            rows = columns.ROW.pack(5, 0, size, size, link)
            stop, *_ = both.take(octets, rows, 0, 1, PAUSE, flow())
            assert stop == (size == len(packet))


@pytest.mark.parametrize(
    ("link", "tags"),
    [
        *((link, "") for link in (0, 1, 101, 108, 113, 228, 229, 276)),
        *((link, tags) for link in (1, 113, 276) for tags in ("8100 0007", "88a8 0003 9100 0007")),
    ],
)
@pytest.mark.parametrize("ipv6", [False, True])
def test_headers_cut_anywhere(both: BothCores, link: int, tags: str, ipv6: bool) -> None:
    packet = captured_as(link, tags, ipv6)
    assert_whole_only(both, packet, link)


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize(("port", "header"), TUNNELS.values(), ids=list(TUNNELS))
def test_headers_in_a_tunnel_cut_anywhere(both: BothCores, port: int, header: str, ipv6: bool) -> None:
    packet = in_tunnel(captured_as(1, "8100 0007", ipv6), port, header, ipv6)
    assert_whole_only(both, packet)


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize(("protocol", "header"), IN_IP.values(), ids=list(IN_IP))
def test_headers_in_another_packet_cut_anywhere(both: BothCores, protocol: int, header: str, ipv6: bool) -> None:
    is_ipv6_inside = protocol == 41 or header.endswith("86dd")
    packet = in_ip(captured_as(1, "", is_ipv6_inside), protocol, header, ipv6)
    assert_whole_only(both, packet)


@pytest.mark.parametrize(
    ("protocol", "header"),
    [(4, "00"), (41, ""), (46, ""), (47, ""), (47, "0000 86dd"), (47, "2000 0800 0000 0007"), (47, "0001 0800")],
)
def test_packets_in_others_that_are_not_plain(both: BothCores, protocol: int, header: str) -> None:
    assert_is_left_over(both, in_ip(captured_as(1, ""), protocol, header))


@pytest.mark.parametrize(
    ("port", "header"),
    [(4790, "0800 0000 0000 0700"), (4789, "0c00 0003 0000 0700"), (4789, "0000 0000 0000 0700"),
     (6081, "4000 6558 0000 0700"), (6081, "0001 6558 0000 0700"), (6081, "0000 0800 0000 0700"),
     (6081, "0000 6558 0000 0701"), (6081, "3f00 6558 0000 0700")],
)  # fmt: skip
def test_tunnels_that_are_not_plain(both: BothCores, port: int, header: str) -> None:
    assert_is_left_over(both, in_tunnel(captured_as(1, ""), port, header))


def captured_as(link: int, tags: str, ipv6: bool = False) -> bytes:
    """A packet with a message, behind these VLAN tags."""
    ip = bytes.fromhex("6000 0000 001b 0640") + bytes(32) if ipv6 else HELLO[:20]
    types = bytes.fromhex(tags) + (b"\x86\xdd" if ipv6 else b"\x08\x00")
    before = {
        0: bytes([0x1E if ipv6 else 2, 0, 0, 0]), 108: bytes([0, 0, 0, 0x18 if ipv6 else 2]), 1: bytes(12) + types,
        113: bytes(14) + types, 276: types[:2] + bytes(18) + types[2:],
    }.get(link, b"")  # fmt: skip
    return before + ip + HELLO[20:]


def test_packets_with_many_tags_are_not_plain(both: BothCores) -> None:
    assert_is_left_over(both, captured_as(1, "8100 0001 8100 0002 9100 0003"))


def assert_is_left_over(both: BothCores, packet: bytes) -> None:
    rows = columns.ROW.pack(5, 0, len(packet), len(packet), 1)
    assert both.take(packet, rows, 0, 1, PAUSE, flow())[0] == 0


def test_a_tag_or_tunnel_leaves_the_connection_open(both: BothCores) -> None:
    """Only Python knows which of several networks such a packet is of, so it makes the segment."""
    plain = captured_as(1, "")
    in_gre, in_vxlan = in_ip(plain, *IN_IP["GRE"]), in_tunnel(plain, *TUNNELS["VXLAN"])
    for packet, places in ((plain, []), (in_gre, []), (captured_as(1, "8100 0007"), [0]), (in_vxlan, [0])):
        others: list[int] = []
        both.segments(packet, columns.ROW.pack(5, 0, len(packet), len(packet), 1), range(1, 2), others.append)
        assert others == places


@pytest.mark.parametrize(("start", "captured"), [(0, 2**32 - 1), (2**32 - 1, 1), (2**32 - 1, 2**32 - 1), (1, 47)])
def test_a_row_that_points_outside(both: BothCores, start: int, captured: int) -> None:
    rows = columns.ROW.pack(5, start, captured, captured, LINK)
    assert both.take(HELLO, rows, 0, 1, PAUSE, flow())[0] == 0


@pytest.mark.parametrize("length", [0, 1, 255, 256, 2**20, 2**20 + 1, 2**32, 2**56 - 1, 2**56, 2**63, 2**64 - 1])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 300])
def test_a_frame_of_any_length(both: BothCores, length: int, size: int) -> None:
    octets, rows = block(segment((b"\2" + length.to_bytes(8, "big") + bytes(300))[:size]))
    both.take(octets, rows, 0, 1, PAUSE, flow())


@pytest.mark.parametrize("last_ns", [-LAST - 1, -1, 0, LAST])
@pytest.mark.parametrize("time_ns", [-LAST - 1, -1, 0, LAST])
@pytest.mark.parametrize("requester", [None, 0, 1])
def test_times_of_which_no_difference_is_safe(
    both: BothCores, last_ns: int, time_ns: int, requester: int | None
) -> None:
    octets, rows = block(segment(b"\1\0\0\5hello"), time_ns=time_ns)
    step = None if requester is None else (requester, requester, 1, last_ns, -1, -1, -1, 0, PAUSE)
    both.take(octets, rows, 0, 1, PAUSE, flow(last_ns=last_ns, step=step))
    both.take(octets, rows, 0, 1, PAUSE, flow(last_ns=time_ns, step=step))


@pytest.mark.parametrize("number", [0, 1])
def test_who_talks_to_himself_has_one_key(both: BothCores, number: int) -> None:
    octets, rows = block(segment(b"\0\1x", ports=(7, 7)), segment(b"\0\1x", 1003, ports=(7, 7)))
    both.take(octets, rows, 0, 1, PAUSE, flow(number=number))


def test_flows_beyond_the_most_are_left_over(both: BothCores) -> None:
    packets = [segment(b"", ports=(1 + number, 9)) for number in range(reference.MOST_FLOWS + 2)]
    assert both.take(*block(*packets), 0, 1, PAUSE, flow())[0] == reference.MOST_FLOWS


def test_segments_of_packets(both: BothCores) -> None:
    """A packet that is not plain is left to the caller, who may find none in it."""
    octets, rows = block(HELLO, b"\x45other", segment(b"", 7), b"")
    numbers = [11, 12, 13, 14]
    first, *others = both.segments(octets, rows, numbers, lambda place: "odd" if place == 1 else None)
    assert first == (5, 11, HELLO[12:24], 1000, 1000, 0x10, b"\0\5hello", 0)
    assert others == ["odd", (5, 13, HELLO[12:24], 7, 1000, 0x10, b"", 0)]


@pytest.mark.parametrize(("numbers", "packet"), [([], HELLO), (None, HELLO), ([1], b"odd")])
def test_segments_that_cannot_be_made(numbers: Any, packet: bytes) -> None:
    def fails(_: int) -> None:
        raise IndexError

    with pytest.raises((IndexError, TypeError)):
        NATIVE.segments(*block(packet), numbers, fails)


def test_messages_of_packets_before_1970(both: BothCores) -> None:
    octets, rows = block(HELLO, time_ns=-5)
    _, messages, frames, carried, *_ = both.take(octets, rows, 0, 1, PAUSE, flow())
    shown = both.lines(octets, carried, rows, 1, messages, frames, [(b"", b"")] * 2, 99, bytes)
    assert shown.startswith(b'{"type":"message","time_ns":-5,')
    assert both.tally(messages, rows, 1000, 50.0)[0] == [(-1000, 1)]


@pytest.mark.parametrize("most", [0, 3, 99])
def test_cells_of_messages_in_several_packets_and_frames(both: BothCores, most: int) -> None:
    """A packet has the last octets of one message, and another one that is whole."""
    packets = [b"\1\0\0\5he", b"llo\0\1x"]
    octets, rows = block(segment(packets[0]), segment(packets[1], 1000 + len(packets[0])), time_ns=-7)
    _, messages, frames, carried, *_ = both.take(octets, rows, 0, 1, PAUSE, flow())
    numbers = array("q", [40, 50]).tobytes()
    found = both.cells(octets, carried, rows, numbers, 1 << 40, messages, frames, array("i", [7, 8]).tobytes(), most)
    times, packets_, records, parts, codes, counts, lengths = (
        array(code, column).tolist() for code, column in zip("qqqIiII", found[:-1], strict=True)
    )
    assert (times, packets_, parts, counts, lengths) == ([-7, -7], [50, 50], [1, 2], [2, 1], [0, 5, 1])
    assert records == [(1 << 40) + columns.ROW.unpack_from(rows, columns.ROW.size)[1]] * 2
    assert codes == [7, 7]
    assert found[-1] == b"hello"[:most] + b"x"[:most]


def test_frames_of_any_two_octets(both: BothCores) -> None:
    """Text, escapes, hexadecimal digits, or Python's: each octet alone and beside each kind of octet."""
    octets = b"".join(bytes([one, other]) for one in range(256) for other in b'a"\n\0\x7f\xc3')
    pairs = len(octets) // 2
    frames = b"".join(columns.FRAME.pack(2 * place, size) for size in (1, 2) for place in range(pairs))
    messages = columns.MESSAGE.pack(0, 0, 1, 0, 2 * pairs, *[0] * 10)
    both.lines(octets, b"", columns.ROW.pack(1, 0, 0, 0, 1), 1, messages, frames, [(b"", b"")], 99, repr_of)


def repr_of(octets: bytes) -> bytes:
    return repr(octets).encode()


@pytest.mark.hypothesis
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(1, 2), st.integers(0, 9)), max_size=99),
    st.integers(0, 64),
    st.lists(st.integers(0, 9), max_size=4),
    st.lists(st.integers(0, 9), max_size=99),
)
def test_requests_and_replies_are_counted(
    found: list[tuple[int, int, int, int]], waiting: int, slow: list[int], times: list[int]
) -> None:
    """Two exchanges and a side of none, whatever replies say that they answer."""
    messages = [
        columns.MESSAGE.pack(row, side, 1 + row % 2, 0, 1, part, 0, 0, 0, 0, 7 * row + part, 0, request, latency, 0)
        for row, (side, request, part, latency) in enumerate(found)
    ]
    times = [sum(times[: row + 1]) for row in range(len(found))]
    rows = b"".join(columns.ROW.pack(time_ns, 0, 0, 0, 1) for time_ns in times)
    facts = (
        b"".join(columns.ASKED.pack(0, place % 7, 1) for place in range(waiting)),
        struct.pack(f"={len(slow)}q", *slow),
        bytes(2 * columns.RHYTHM.size),
    )
    sides = struct.pack("=4I", 1, 2, 4, 0)
    BothCores().count_exchanges(b"".join(messages), rows, 1, sides, [facts, (b"", b"", b"")])


_FRAMES = st.lists(st.sampled_from([b"", b"", b"a", b"b", b"\0id01", b"named"]), min_size=1, max_size=4)


class _Proxies:
    """Proxies that know where every second message came from."""

    def __init__(self) -> None:
        self.has_replies = False
        self.begun: list[tuple[int, ...]] = []
        self._calls = 0

    def expected_reply(self, flow: int, _content: int) -> tuple[int, int, int] | None:
        self._calls += 1
        if self._calls % 2:
            return None
        packet = self.begun[-1][1] if self.begun and self._calls % 4 else 0  # of a request to a ROUTER
        return (flow, packet, 1 + packet % 2)

    def begin_place(self, _content: int, *place: int) -> None:
        self.begun.append(place)

    def forwarded_place(self, *_: Any) -> tuple[int, int, int] | None:
        self._calls += 1
        return (9, self._calls, 1 + self._calls % 3) if self._calls % 2 else None

    def begin_reply_place(self, *_: Any) -> None:
        self.has_replies = True

    def forwarded_reply_place(self, *_: Any) -> tuple[int, int, int] | None:
        return self.forwarded_place()


ENDS = ("client", "server")


def _exchange(messages: list[tuple[int, list[bytes], int]]) -> tuple[list[Any], list[tuple[int, ...]]]:
    """Pair messages (side, frames, how many of the other side's octets it had seen) of eight flows, with both cores.

    Those are DEALER and ROUTER, two DEALERs, DEALER and REP, REQ and ROUTER, one that nobody wants, two between
    brokers, and REQ and REP. Where the cores stop, the message is passed over. Returns the results, and what was begun.
    """
    both, proxies = BothCores(), _Proxies()
    octets, frames, found = bytearray(), bytearray(), bytearray()
    for row, (side, bodies, seen) in enumerate(messages):
        first = len(frames) // columns.FRAME.size
        found += columns.MESSAGE.pack(
            row, side, 1 + row % 2, first, len(bodies), 0, 0, 0, 0, 0, 10 * row, seen, 0, 0, 0
        )
        for body in bodies:
            frames += columns.FRAME.pack(len(octets), len(body))
            octets += body
    rows = b"".join(columns.ROW.pack((row * 7) % 50, 0, 0, 0, 1) for row in range(len(messages)))
    flows: list[Any] = [
        (columns.ENVELOPES, 1, *ENDS, (True, False, 2, 2, 2, b"", b"")),
        (columns.ENVELOPES, 2, *ENDS, (True, False, 0, 0, 1, b"", b"")),
        (columns.IN_TURN, 3, *ENDS, (0, 45, b"", b"")),
        (columns.STEPS, 4, *ENDS, (0, 0, 0, 0, 0, -1, -1, 0, 45)),
        None,
        (columns.ENVELOPES, 6, *ENDS, (True, True, 2, 2, 2, b"", b"")),
        (columns.ENVELOPES, 7, *ENDS, (False, True, 3, 2, 2, b"", b"")),
        (columns.DIRECT_STEPS, 8, *ENDS, (0, 0, 0, 0, 0, -1, -1, 0, 45)),
    ]
    place, results = 0, list[Any]()
    while place <= len(messages):
        place, made, after = both.pair(
            bytes(octets), b"", rows, 1, bytes(found), bytes(frames), place, tuple(flows), {b"named": 1}, proxies
        )
        results += columns.MESSAGE.iter_unpack(made)
        for number, one in enumerate(after):
            if one is not None:
                *begin, rest = flows[number]
                kind, (plain, named, *_) = begin[0], one
                first_facts = (*rest[:3], plain, named) if kind == columns.ENVELOPES else rest[:2]
                facts = (0, *one, 45) if kind in (columns.STEPS, columns.DIRECT_STEPS) else (*first_facts, *one[4:])
                flows[number] = (*begin, facts)
        place += 1
    return results, proxies.begun


@pytest.mark.hypothesis
@given(st.lists(st.tuples(st.integers(0, 15), _FRAMES, st.integers(0, 300)), max_size=30))
def test_requests_are_paired(messages: list[tuple[int, list[bytes], int]]) -> None:
    """Any messages of flows of each kind, those in between that are unusual passed over."""
    _exchange(messages)


def test_pairs_by_envelope() -> None:
    """Two requests wait, with other envelopes; each reply finds its own, and of two alike nobody knows which."""
    asked = [(0, [b"a", b"", b"x"], 0), (0, [b"b", b"", b"y"], 0)]
    results, begun = _exchange([*asked, (1, [b"b", b"", b"Y"], 99), (1, [b"a", b"", b"X"], 99)])
    assert [(one[6], one[7], one[12]) for one in results] == [(2, 0, 0), (2, 0, 0), (2, 1, 2), (2, 1, 1)]
    assert begun == [(1, 1, 1, 0), (1, 2, 2, 0)]
    alike = [(0, [b"", b"x"], 0), (0, [b"", b"y"], 0), (1, [b"", b"X"], 99), (1, [b"", b"Y"], 99)]
    results, _ = _exchange([*alike, (0, [b"", b"z"], 50), (1, [b"", b"Z"], 99)])
    assert [one[12] for one in results] == [0, 0, 0, 0, 0, 5]


def test_pairs_of_a_proxy() -> None:
    """A request of a REQ, the same to a REP with the identity in front, and the way back."""
    relayed = [b"\0id01", b"", b"x"]
    results, begun = _exchange([(6, [b"", b"x"], 0), (4, relayed, 0), (5, relayed, 99), (7, [b"", b"y"], 99)])
    assert begun == [(4, 1, 1, 1)]
    assert [one[6] for one in results] == [1, 2, 2, 1]
    assert [one[12] for one in results] == [0, 0, 2, 1]
    assert [one[14] for one in results] == [0, 1, 0, 0]
    results, _ = _exchange([(4, [b"", b"x"], 0), (4, [b"", b"y"], 0), (5, [b"", b"X"], 99), (5, [b"", b"Y"], 99)])
    assert [(one[7], one[12]) for one in results] == [(0, 0), (0, 0), (2, 1), (0, 2)]


@pytest.mark.parametrize("cut", range(1, 24))
def test_rows_that_are_not_whole_are_none(both: BothCores, cut: int) -> None:
    octets, rows = block(HELLO, segment(b"", 1007))
    assert both.take(octets, rows[:-cut], 0, 1, PAUSE, flow())[0] == 1


@pytest.mark.parametrize("count", [0, 1, 2, 2**32 - 1])
def test_packets_of_the_ring_that_lead_nowhere(both: BothCores, count: int) -> None:
    """A packet that is its own next one would be a row without end."""
    packet = struct.pack("=6IHH28xH30x", 0, 7, 8, 20, 20, 0, 60, 60, 1)
    found = both.ring_rows(packet, count)
    assert found is None if count > 1 else len(found) == 24 * count


_ROWS = st.tuples(st.integers(-(2**63), 2**63 - 1), *map(st.integers, (0, 0, 0, 100), (1, 5, 9, 101)))


@given(rows=st.lists(_ROWS, max_size=6), octets=st.binary(min_size=5, max_size=8), begin_ns=st.integers(0, 2**64 - 1))
def test_rows_become_blocks(rows: list[tuple[int, ...]], octets: bytes, begin_ns: int) -> None:
    packed = b"".join(columns.ROW.pack(*row) for row in rows)
    if rows:
        times_ns = [row[0] for row in rows]
        assert BothCores().time_span(packed) == (min(times_ns), max(times_ns))
    with contextlib.suppress(ValueError):  # of octets that are not there
        blocks, count = BothCores().enhanced_packets(octets, packed, 7, begin_ns)
        assert pcapng_writer.whole_blocks(blocks, len(blocks)) == (len(blocks), count)


def test_packet_of_4_gib_is_no_block(both: BothCores) -> None:
    with pytest.raises(ValueError, match="4 GiB"):
        both.enhanced_packets(b"", columns.ROW.pack(0, 0, 2**32 - 1, 0, 1), 0, 0)


# ------------------------------------------------------------------ callers


@pytest.mark.parametrize(
    "lookup",
    [
        flow(number=2),
        flow(side(offset=2**62 + 1)),
        flow(side(offset=-LAST - 1)),
        flow(side(recent=((0, b"", 0, 0),) * 17)),
        flow(side(recent=("x",))),
        flow(side(recent=((2**64, b"", 0, 0),))),
        flow(side(carry=bytes(65_537))),
        flow(side(carry="text")),  # type: ignore[arg-type]
        flow(step=(2, 0, 0, 0, 0, 0, 0, 0, 0)),
        flow(step=(0, 0, 0, 0, 0, 0, 0, 0, -1)),
        flow(step=()),
        flow((1, 2)),
        lambda _: (),
        lambda _: 7,
    ],
)
def test_facts_that_cannot_be_are_an_error(lookup: Callable[[bytes], Any]) -> None:
    """The call says so, and takes no packet."""
    octets, rows = block(HELLO)
    with pytest.raises((ValueError, TypeError, OverflowError, SystemError)):
        NATIVE.take(octets, rows, 0, 1, PAUSE, lookup)


@pytest.mark.parametrize(("number", "pause_ns"), [(-1, PAUSE), (LAST, PAUSE), (1, -1)])
def test_numbers_that_cannot_be_are_an_error(number: int, pause_ns: int) -> None:
    with pytest.raises(ValueError, match="have numbers"):
        NATIVE.take(*block(HELLO), 0, number, pause_ns, flow())


def test_an_error_of_a_callback_comes_out() -> None:
    class OwnError(Exception):
        pass

    def fails(_: bytes) -> Any:
        raise OwnError

    def fails_too(*_: int) -> Any:
        raise OwnError

    octets, rows = block(HELLO, segment(b"\0\1\xff", ports=(3, 4)))
    with pytest.raises(OwnError):
        NATIVE.take(octets, rows, 0, 1, PAUSE, fails)
    _, messages, frames, carried, *_ = NATIVE.take(octets, rows, 0, 1, PAUSE, flow())
    with pytest.raises(OwnError):
        NATIVE.lines(octets, carried, rows, 1, messages, frames, [(b"",) * 2] * 4, 99, fails)
    facts, proxies = (1, 1, *ENDS, (True, False, 3, 2, 2, b"", b"")), _Proxies()
    proxies.begin_place = fails_too  # type: ignore[method-assign, assignment]
    with pytest.raises(OwnError):
        NATIVE.pair(octets, carried, rows, 1, messages, frames, 0, (facts,) * 2, {}, proxies)
    for wrong in ("text", None, bytearray(b"x")):
        with pytest.raises(TypeError):
            NATIVE.lines(octets, carried, rows, 1, messages, frames, [(b"",) * 2] * 4, 1, lambda _, it=wrong: it)


def test_a_callback_may_change_what_it_can_reach() -> None:
    """The core reads nothing that is no longer there: block, rows, texts."""
    octets, rows = map(bytearray, block(HELLO, HELLO))

    def scribble(_: bytes) -> Any:
        octets[:] = bytes(len(octets))
        rows[:] = b"\xfe" * len(rows)
        return flow()(b"")

    assert NATIVE.take(octets, rows, 0, 1, PAUSE, scribble)[0] == 1
    octets_, rows_ = block(segment(b"\0\1\xff"))
    _, messages, frames, *_ = NATIVE.take(octets_, rows_, 0, 1, PAUSE, flow())
    texts = [tuple(bytes([65 + number]) * 5000 for number in range(2)) for _ in range(2)]

    def clear(_: bytes) -> bytes:
        texts.clear()
        return b"{}"

    shown = NATIVE.lines(octets_, b"", rows_, 1, messages, frames, texts, 99, clear)
    assert shown.endswith(b"A" * 5000 + b"{}" + b"B" * 5000 + b"}\n")


@pytest.mark.parametrize(
    ("place", "value"), [(0, 1), (0, 2**32 - 1), (4, 9), (12, 1), (12, 2**32 - 1), (16, 2), (16, 2**32 - 1)]
)
def test_columns_that_do_not_fit_are_an_error(place: int, value: int) -> None:
    """A row, a side or a frame that is not there."""
    octets, rows = block(HELLO)
    _, messages, frames, carried, *_ = NATIVE.take(octets, rows, 0, 1, PAUSE, flow())
    wrong = bytearray(messages)
    wrong[place : place + 4] = value.to_bytes(4, "little")
    with pytest.raises(ValueError, match="do not fit"):
        NATIVE.lines(octets, carried, rows, 1, bytes(wrong), frames, [(b"",) * 2] * 2, 99, bytes)
    with pytest.raises(ValueError, match="do not fit"):
        NATIVE.cells(octets, carried, rows, bytes(8), 0, bytes(wrong), frames, bytes(8), 99)


TEXTS = (b"",) * 12
WIDTHS = 5, 0, 0, 0, 9, 1


def told(messages: bytes, frames: bytes, *, sides: Any = (b"", b""), texts: Any = TEXTS, widths: Any = WIDTHS,
         body: Any = lambda *_: b"", message: Any = lambda _: (b"", b"")) -> Any:  # fmt: skip
    """Lines for people of messages in a block, one without a row at the end."""
    octets, rows = block(HELLO)
    return NATIVE.told(octets, b"", rows, 1, messages, frames, sides, texts, widths, body, message)


@pytest.mark.parametrize(
    ("place", "value"), [(0, 1), (0, 2**32 - 1), (4, 2), (4, 2**32 - 1), (12, 1), (12, 2**32 - 1), (16, 2)]
)
def test_lines_of_columns_that_do_not_fit_are_an_error(place: int, value: int) -> None:
    """A row, a side or a frame that is not there, of the second message; the first one is left to the callback."""
    octets, rows = block(HELLO)
    _, messages, frames, *_ = NATIVE.take(octets, rows, 0, 1, PAUSE, flow())
    wrong = bytearray(messages)
    wrong[place : place + 4] = value.to_bytes(4, "little")
    with pytest.raises((ValueError, IndexError)):
        told(messages + wrong, frames)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sides": ()}, {"sides": [b""]}, {"texts": TEXTS[1:]}, {"texts": (7,) * 12}, {"widths": (1, 2)},
        {"widths": (5, 0, 0, -1, 9, 1)},
        {"message": lambda _: None}, {"message": lambda _: (b"",)},
        {"message": lambda _: ("", b"")}, {"message": lambda _: 1 // 0}, {"body": lambda *_: ""},
        {"body": lambda *_: 1 // 0},
    ],
)  # fmt: skip
def test_lines_of_callers_that_err_are_an_error(wrong: Any) -> None:
    octets, rows = block(HELLO)
    _, messages, frames, *_ = NATIVE.take(octets, rows, 0, 1, PAUSE, flow())
    frames = frames[:4] + (0).to_bytes(4, "little")  # an empty one, which is for the callback
    assert told(messages * 2, frames)
    with pytest.raises((TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError)):
        told(messages * 2, frames, **wrong)


def test_cells_want_a_number_for_each_row_and_a_place_in_a_file() -> None:
    octets, rows = block(HELLO)
    _, messages, frames, carried, *_ = NATIVE.take(octets, rows, 0, 1, PAUSE, flow())
    for numbers, base, said in ((bytes(7), 0, "do not fit"), (bytes(8), (1 << 63) - 1, "2\\^62")):
        with pytest.raises(ValueError, match=said):
            NATIVE.cells(octets, carried, rows, numbers, base, messages, frames, bytes(8), 99)


@pytest.mark.parametrize("frame", [(0, 10**6), (2**32 - 1, 1), (2**32 - 1, 2**32 - 1), (40, 8)])
def test_frames_that_are_not_there_are_an_error(frame: tuple[int, int]) -> None:
    octets, rows = block(HELLO)
    _, messages, _, carried, *_ = NATIVE.take(octets, rows, 0, 1, PAUSE, flow())
    with pytest.raises(ValueError, match="do not fit"):
        NATIVE.lines(octets, carried, rows, 1, messages, columns.FRAME.pack(*frame), [(b"",) * 2] * 2, 99, bytes)
    with pytest.raises(ValueError, match="do not fit"):
        NATIVE.cells(octets, carried, rows, bytes(8), 0, messages, columns.FRAME.pack(*frame), bytes(8), 99)


@pytest.mark.parametrize(
    ("number", "sides", "facts"),
    [
        (-1, (1, 2), [(b"", b"", b"")]),
        (1, (1,), [(b"", b"", b"")]),
        (1, (3, 3), [(b"", b"", b"")]),
        (1, (1, 2), []),
        (1, (1, 2), [(bytes(65 * 24), b"", b"")]),
        (1, (1, 2), [(b"", bytes(40), b"")]),
        (1, (1, 2), [(b"", b"", bytes(columns.RHYTHM.size))]),
        (1, (1, 2), [()]),
        (1, (1, 2), [(b"", b"", b""), 7]),
    ],
)
def test_exchanges_that_cannot_be_are_an_error(number: int, sides: tuple[int, ...], facts: Any) -> None:
    messages = columns.MESSAGE.pack(0, 1, 1, 0, 1, *[0] * 10)
    with pytest.raises((ValueError, TypeError)):
        NATIVE.count_exchanges(messages, bytes(24), number, struct.pack(f"={len(sides)}I", *sides), facts)


@pytest.mark.parametrize(
    ("facts", "place"),
    [
        (None, 2),
        (7, 0),
        ((1, 2), 0),
        ((4, 1, *ENDS, ()), 0),
        ((1, 1, *ENDS, 7), 0),
        ((1, 1, *ENDS, (True, False, 0, 3, 0, b"", b"")), 0),
        ((1, 1, *ENDS, (True, False, 0, 0, 3, b"", b"")), 0),
        ((1, 1, *ENDS, (True, False, 0, 0, 0, bytes(55), b"")), 0),
        ((1, 1, *ENDS, (True, False, 0, 0, 0, bytes(56 * 1025), b"")), 0),
        ((1, 1, *ENDS, (True, False, 0, 0, 0, b"", bytes(15))), 0),
        ((2, 1, *ENDS, (0, -1, b"", b"")), 0),
        ((2, 1, *ENDS, (0, 1, b"")), 0),
        ((3, 1, *ENDS, (2, 0, 0, 0, 0, 0, 0, 0, 0)), 0),
    ],
)
@pytest.mark.parametrize("frame", [(0, 1), (1, 1), (0, 2**32 - 1), (2**32 - 1, 1)])
def test_pairs_that_cannot_be_are_an_error(facts: Any, place: int, frame: tuple[int, int]) -> None:
    messages = columns.MESSAGE.pack(0, 1, 1, 0, 1, *[0] * 10)
    with pytest.raises((ValueError, TypeError)):
        NATIVE.pair(b"x", b"", bytes(24), 1, messages, columns.FRAME.pack(*frame), place, (facts,), {}, _Proxies())


@pytest.mark.parametrize(("side", "row", "first", "count"), [(2, 0, 0, 1), (0, 1, 0, 1), (0, 0, 1, 1), (0, 0, 0, 0)])
def test_messages_to_pair_that_are_not_there_are_an_error(side: int, row: int, first: int, count: int) -> None:
    messages = columns.MESSAGE.pack(row, side, 1, first, count, *[0] * 10)
    facts = ((1, 1, *ENDS, (True, False, 0, 0, 0, b"", b"")),)
    with pytest.raises(ValueError, match="do not fit"):
        NATIVE.pair(b"x", b"", bytes(24), 1, messages, columns.FRAME.pack(0, 1), 0, facts, {}, _Proxies())


@pytest.mark.parametrize(("unit_ns", "header"), [(10**9 + 1, 16), (1, 15), (1, 0)])
def test_records_that_cannot_be_are_an_error(unit_ns: int, header: int) -> None:
    with pytest.raises(ValueError, match="record"):
        NATIVE.pcap_rows(b"\xff" * 99, 0, False, unit_ns, header, 9, 1)


def test_nothing_is_kept() -> None:
    """A call gives all references back, also where it fails."""
    octets, rows = block(HELLO, segment(b"\0\1\xff", ports=(3, 4)))
    token, facts = object(), (side(), side(carry=b"\0" * 50))

    def lookup(key: bytes) -> Any:
        return token, 0, 0, facts[0], (7,) if key[-1] == 4 else facts[1], None

    before = sys.getrefcount(token), [sys.getrefcount(one) for one in facts]
    for _ in range(100):
        with pytest.raises(TypeError):
            NATIVE.take(octets, rows, 0, 1, PAUSE, lookup)
        NATIVE.take(octets, rows[:24], 0, 1, PAUSE, lookup)
    assert (sys.getrefcount(token), [sys.getrefcount(one) for one in facts]) == before


# ------------------------------------------------------------------ the source


def test_octets_are_read_by_three_functions() -> None:
    """Nothing else takes an element of a span, or adds to its pointer, but what goes over one from end to end."""
    functions = re.findall(r"^(?:static|PyMODINIT).*?\b(\w+)\([^;{]*\)\n\{\n(.*?)^\}", SOURCE.read_text(), re.M | re.S)
    assert len(functions) > 50
    readers = {name for name, body in functions if re.search(r"\.data(\[| \+)", body)}
    over_all = {"put_escaped", "put_hex", "put_frame", "lines", "cells", "count_intervals", "count_latencies"}
    over_all |= {"count_messages", "is_as_it_is", "put_body", "told"}
    own_output = {"read_messages", "behind_carry", "take_payload"}
    assert readers <= {"octet", "number", "part"} | over_all | own_output
    long = {name: body.count("\n") for name, body in functions if body.count("\n") > 58}
    assert not long


STRICT = ("-Wall", "-Wextra", "-Werror", "-Wconversion", "-std=c11", "-O3", "-fPIC")


def analysed(*command: str) -> str:
    """The output of a compiler for the core."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} here")
    headers = f"-I{sysconfig.get_paths()['include']}"
    done = subprocess.run([*command, *STRICT, headers, str(SOURCE)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr + (f"exit status {done.returncode}" if done.returncode else "")


@pytest.mark.slow  # some five seconds
def test_gcc_and_its_analyser_have_nothing_to_say(tmp_path: Path) -> None:
    assert analysed("gcc", "-fanalyzer", "-c", "-o", str(tmp_path / "core.o")) == ""


def test_clang_has_nothing_to_say() -> None:
    assert analysed("clang", "-fsyntax-only") == ""


@pytest.mark.slow  # some ten seconds
def test_the_analyser_of_clang_has_nothing_to_say(tmp_path: Path) -> None:
    assert analysed("clang", "--analyze", "-o", str(tmp_path / "report")) == ""


def test_its_numbers_are_those_of_the_parts() -> None:
    """A rule of a part stands again in core.c and reference.py; the two are compared by what they do."""
    assert reference.RECENT == reassembly.RECENT_SEGMENTS
    assert reference.RECENT_OCTETS == reassembly.RECENT_OCTETS
    assert reference.LEAST_CLOCK_NS == clocks.LEAST_CLOCK_NS
    assert reference.LATEST_ACK == reassembly.LATEST_ACK
    assert reference.MODULO == reassembly.MODULO
    assert reference.WAIT_LIMIT == buffer.WAIT_LIMIT
    assert columns.PAIR.unpack(columns.MESSAGE.pack(*range(15))) == (0, 1, 2, 3, 4, 5, 10, 12)
    assert reference.MOST_FRAMES == session.MANY_FRAMES
    assert (reference.MORE, reference.LONG) == (wire.MORE, wire.LONG)
    flags = net_segment.FIN, net_segment.SYN, net_segment.RST, net_segment.PSH, net_segment.ACK
    assert flags == (reference.FIN, reference.SYN, reference.RST, reference.PSH, reference.ACK)
    steps = [(one.BEGINS, one.ENDS, one.ANSWERS, one.PASSES) for one in (reference, net_segment)]
    assert steps[0] == steps[1]
    assert reference.MOST_SHORT < reassembly.RECENT_OCTETS
    assert reference.SIGNATURE == wire.SIGNATURE_SIZE
    assert pending.MOST_IN_COLUMNS < reference.MOST_WAITING
    assert (reference.LONGEST_IDENTITY, reference.OWN_IDENTITY) == (wire.IDENTITY_LIMIT, proxies.OWN_IDENTITY)
    assert (reference.MOST_PENDING, reference.SLOWEST) == (exchanges.PENDING, exchanges.SLOWEST)
    defines = dict(re.findall(r"#define (\w+) ([^/\n]+)", SOURCE.read_text()))
    ports = encapsulation.VXLAN_PORT, encapsulation.OLD_VXLAN_PORT, encapsulation.GENEVE_PORT
    assert ports == (reference.VXLAN_PORT, reference.OLD_VXLAN_PORT, reference.GENEVE_PORT)
    inside = encapsulation.IP_IN_IP, encapsulation.IPV6_IN_IP, encapsulation.GRE
    assert inside == (reference.IP_IN_IP, reference.IPV6_IN_IP, reference.GRE)
    assert reference.TRANSPARENT_ETHERNET == encapsulation.TRANSPARENT_ETHERNET
    assert (reference.TCP, reference.UDP) == (net_packets.TCP, net_segment.UDP)
    limits = "RECENT", "RECENT_OCTETS", "WAIT_LIMIT", "MOST_CARRY", "MOST_FRAMES", "MOST_FLOWS", "MOST_WAITING"
    for name in (*limits, "LEAST_CLOCK_NS", "MOST_PENDING", "SLOWEST", "MOST_SHORT", "SIGNATURE"):
        assert eval(defines[name]) == getattr(reference, name)  # a number, or one shifted
