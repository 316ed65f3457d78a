"""TCP: which segment belongs to which connection, what is delivered in which order, what is lost, what is kept."""

import gc
import random
import sys
import tracemalloc
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.world.conversation import publications, pushes, request_reply
from tests.world.listener import WitnessLog
from tests.world.network import duplicate, early_acks, overlap, packets, reorder, resegment, segments
from zmtpsniff.net.addresses import Address
from zmtpsniff.net.flow import Flow
from zmtpsniff.net.flows import FlowTable
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.reassembly import ATTENTION
from zmtpsniff.net.segment import ACK, FIN, PSH, RST, SYN, Segment
from zmtpsniff.net.witness import Witness

CLIENT = bytes([10, 0, 0, 1]), 40_000
SERVER = bytes([10, 0, 0, 2]), 5555
SECOND = 1_000_000_000


@dataclass
class Side:
    """Takes the octets of one direction; a gap is shown as so many question marks."""

    data: bytes = b""
    gaps: list[tuple[int, bool]] = field(default_factory=list)
    conflicts: int = 0
    is_absent: bool = False
    packets: list[int] = field(default_factory=list)

    def feed(self, data: bytes, time_ns: int, packet: int, begin: int, seen: int) -> None:
        assert data
        self.data += data
        self.packets.append(packet)

    def gap(self, length: int, cut: bool, time_ns: int, packet: int) -> None:
        self.data += b"?" * length
        self.gaps.append((length, cut))
        self.packets.append(packet)

    def absent(self, time_ns: int, packet: int) -> None:
        self.is_absent = True

    def conflict(self, offset: int, length: int, time_ns: int, packet: int) -> None:
        self.conflicts += 1
        self.packets.append(packet)


@dataclass
class FlowDissection:
    """Takes both directions."""

    number: int
    client_address: Address
    from_start: tuple[bool, bool]
    client: Side = field(default_factory=Side)
    server: Side = field(default_factory=Side)
    rejected: bool = False
    end: str = ""
    closed_by: str | None = None
    released: bool = False

    def finish(self, end: str, start_ns: int, end_ns: int, closed_by: str | None) -> None:
        self.end, self.closed_by = end, closed_by

    def release(self) -> None:
        self.released = True


class Wire:
    """Sends segments to a flow table, numbered from 1, a millisecond apart."""

    def __init__(self, limits: FlowLimits | None = None, witness: Witness | None = None) -> None:
        self.dissections: list[FlowDissection] = []
        self.table = FlowTable(self._connect, limits or FlowLimits(), witness=witness)
        self.packet = 0
        self.now = SECOND

    def _connect(self, number: int, client: Address, server: Address, from_start: tuple[bool, bool]) -> FlowDissection:
        self.dissections.append(FlowDissection(number, client, from_start))
        return self.dissections[-1]

    def send(
        self,
        back: bool,
        seq: int,
        payload: bytes = b"",
        flags: int = ACK,
        ack: int = 0,
        missing: int = 0,
        port: int = 0,
    ) -> None:
        ends = (SERVER, CLIENT) if back else (CLIENT, SERVER)
        if port:
            ends = tuple((host, port if number == 40_000 else number) for host, number in ends)  # type: ignore[assignment]
        (source, source_port), (target, target_port) = ends
        key = source + target + source_port.to_bytes(2, "big") + target_port.to_bytes(2, "big")
        self.packet += 1
        self.now += 1_000_000
        segment: Segment = (self.now, self.packet, key, seq % 2**32, ack % 2**32, flags, payload, missing)
        self.table.take([segment])

    def pause(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    def connect(self, client: int = 1000, server: int = 5000, port: int = 0) -> None:
        """The three packets that begin a connection; both sides' first octets are then numbered one higher."""
        self.send(False, client, flags=SYN, port=port)
        self.send(True, server, flags=SYN | ACK, ack=client + 1, port=port)
        self.send(False, client + 1, ack=server + 1, port=port)

    @property
    def only(self) -> FlowDissection:
        (dissection,) = self.dissections
        return dissection


def connected(client: int = 1000, server: int = 5000, port: int = 0) -> Wire:
    """A wire whose packets have begun a connection."""
    wire = Wire()
    wire.connect(client, server, port)
    return wire


def said(wire: Wire) -> list[tuple[bytes, bytes, str]]:
    """The octets of both sides of each connection once the capture is over, and how they ended."""
    wire.table.finish()
    return [(one.client.data, one.server.data, one.end) for one in wire.dissections]


def test_one_direction_is_no_disorder() -> None:
    """An octet that never comes has not come late."""
    wire = Wire()
    wire.send(True, 5000, flags=SYN | ACK, ack=1001)
    for number in range(300):
        wire.pause(0.02)
        wire.send(True, 5001 + 5 * number, b"reply", ack=1001 + 7 * number)
    assert wire.only.client.is_absent
    wire.table.finish()
    assert wire.only.client.gaps == []
    assert wire.only.server.data == b"reply" * 300
    assert wire.table.problems() == []


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("copies", [1, 3])
def test_a_syn_that_a_capture_point_sees_several_times_counts_once(copies: int, is_answered: bool) -> None:
    log = WitnessLog()
    wire = Wire(witness=log)
    for _ in range(3):
        for _ in range(copies):
            wire.send(False, 1000, flags=SYN)
        wire.pause(1)
    for _ in range(copies if is_answered else 0):
        wire.send(True, 0, flags=RST | ACK, ack=1001)
    wire.table.finish()
    assert [(one.outcome, one.syns) for one in log.attempts] == [("refused" if is_answered else "silent", 3)]


@pytest.mark.parametrize(
    ("flags", "accepted"),
    [(FIN | ACK, {"10.0.0.1:40000", "10.0.0.2:5555"}), (ACK, {"10.0.0.1:40000", "10.0.0.2:5555"}),
     (RST, {"10.0.0.1:40000"})],
)  # fmt: skip
def test_a_connection_of_before_the_capture(flags: int, accepted: set[str]) -> None:
    """A RST alone may come from a host that knows the connection no longer."""
    log = WitnessLog()
    wire = Wire(witness=log)
    wire.send(False, 1001, b"request", ack=5001)
    wire.send(True, 5001, flags=flags, ack=1008)
    wire.table.finish()
    assert {one.outcome for one in log.attempts} == {"before"}
    assert {one.server for one in log.attempts} == accepted


@pytest.mark.parametrize("is_its_answer", [True, False])
def test_a_refusal_that_stands_before_its_syn(is_its_answer: bool) -> None:
    """As in captures of two hosts whose clocks differ."""
    log = WitnessLog()
    wire = Wire(witness=log)
    wire.send(True, 0, flags=RST | ACK, ack=1001 if is_its_answer else 2001)
    wire.pause(0.3)
    for _ in range(3):
        wire.send(False, 1000, flags=SYN)
        wire.pause(1)
    wire.table.finish()
    assert [one.outcome for one in log.attempts] == (["refused"] if is_its_answer else ["silent"])
    assert wire.table.register.count == 1


def test_refusals_whose_syns_the_capture_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    log = WitnessLog()
    wire = Wire(witness=log)
    for port in range(40_001, 40_006):
        for _ in range(2):  # a capture point may see each packet twice
            wire.send(True, 0, flags=RST | ACK, ack=1001, port=port)
    wire.send(True, 0, flags=RST | ACK, ack=2001, port=40_001)  # the port is tried again
    wire.send(True, 7, flags=RST | ACK, ack=1001, port=40_007)  # of some connection
    wire.send(True, 0, flags=RST, port=40_008)
    monkeypatch.setattr("zmtpsniff.net.attempts._MOST_REFUSALS", 3)
    wire.send(True, 0, flags=RST | ACK, ack=1001, port=40_006)
    assert len(log.attempts) == 2  # that of the port used again, and one that makes room
    wire.table.finish()
    assert [(one.outcome, one.syns, one.flow) for one in log.attempts] == [("refused", 0, 0)] * 7
    assert sorted(one.client for one in log.attempts) == [
        f"10.0.0.1:{port}" for port in (40_001, *range(40_001, 40_007))
    ]
    assert wire.table.register.count == 0


@given(st.data())
def test_any_order_any_overlap_any_duplicate(data: st.DataObject) -> None:
    octets = bytes(random.Random(1).randbytes(300))
    start = data.draw(st.sampled_from([1001, 2**32 - 150]))
    cuts = sorted({0, 300, *data.draw(st.lists(st.integers(0, 300), max_size=12))})
    pieces = list(pairwise(cuts))
    extra = data.draw(st.lists(st.tuples(st.integers(0, 299), st.integers(1, 80)), max_size=8))
    pieces += [(a, min(a + length, 300)) for a, length in extra]
    wire = connected(client=start - 1)
    for a, b in data.draw(st.permutations(pieces)):
        wire.send(False, start + a, octets[a:b])
    wire.table.finish()
    assert wire.only.client.data == octets
    assert wire.only.client.gaps == []
    assert wire.only.client.conflicts == 0
    assert wire.only.client.packets == sorted(wire.only.client.packets)


@settings(deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 50))
def test_the_hot_loop_takes_what_a_close_look_takes(seed: int, size: int) -> None:
    """In any order, with losses and repetitions, in batches of any size."""
    random_ = random.Random(seed)
    make = random_.choice([pushes, request_reply, publications])
    talk = make(random_.choice([1, 2, 3]), random_, 30)
    sent = segments(talk)
    if random_.random() < 0.7:
        sent = duplicate(resegment(sent, lambda: random_.randrange(1, 1448)), random_, 0.1)
        sent = overlap(reorder(early_acks(sent, random_, 3), random_, random_.choice([2, 10])), talk, random_, 0.1)
        sent = [one for one in sent if random_.random() > 0.02]
    taken = HeaderDecoder().segments(packets(sent), 1)
    hot, close = Wire(), Wire()
    for begin in range(0, len(taken), size):
        hot.table.take(taken[begin : begin + size])
    for segment in taken:
        for direction in (one for flow in close.table.register.flows.values() for one in flow.directions):
            direction.usual = ATTENTION
        close.table.take([segment])
    for wire in (hot, close):
        wire.table.finish()
    assert hot.dissections == close.dissections
    assert hot.table.problems() == close.table.problems()


def test_a_hole_is_lost_once_it_is_acknowledged_for_long_enough() -> None:
    wire = connected()
    wire.send(False, 1001, b"one")
    wire.send(False, 1014, b"three")
    for _ in range(33):
        wire.send(True, 5001, ack=1019)
    assert wire.only.client.data == b"one"
    for _ in range(250):  # milliseconds
        wire.send(True, 5001, ack=1019)
    assert wire.only.client.data == b"one" + b"?" * 10 + b"three"
    assert wire.only.client.gaps == [(10, False)]
    wire.send(False, 1004, b"too late..")
    assert wire.only.client.data == b"one" + b"?" * 10 + b"three"


def test_a_hole_at_the_end_is_lost_when_the_capture_ends() -> None:
    wire = connected()
    wire.send(False, 1001, b"one")
    wire.send(True, 5001, ack=1010)
    wire.table.finish()
    assert wire.only.client.data == b"one" + b"?" * 6
    assert wire.only.end == "open"


def test_what_the_snaplen_cut_is_a_gap_at_once() -> None:
    wire = connected()
    wire.send(False, 1001, b"abc", missing=7)
    wire.send(False, 1011, b"next")
    assert wire.only.client.data == b"abc" + b"?" * 7 + b"next"
    assert wire.only.client.gaps == [(7, True)]


def test_the_first_copy_wins_and_a_different_one_is_told() -> None:
    wire = connected()
    wire.send(False, 1001, b"genuine")
    wire.send(False, 1001, b"genuine")
    assert wire.only.client.conflicts == 0
    wire.send(False, 1001, b"forged!")
    wire.send(False, 1004, b"XXXXmore")
    wire.send(False, 1020, b"early")
    wire.send(False, 1018, b"??EARLY..")
    wire.table.finish()
    assert wire.only.client.conflicts == 3
    assert wire.only.client.data == b"genuinemore" + b"?" * 6 + b"??early.."


def test_keep_alive_probes_carry_garbage() -> None:
    wire = connected()
    wire.send(False, 1001, b"data")
    wire.send(False, 1004, b"\0")
    assert (wire.only.client.data, wire.only.client.conflicts) == (b"data", 0)


def test_data_on_syn_and_fin() -> None:
    wire = Wire()
    wire.send(False, 1000, b"early", flags=SYN)
    wire.send(True, 5000, flags=SYN | ACK, ack=1006)
    wire.send(False, 1006, b"last", flags=FIN | ACK | PSH, ack=5001)
    wire.send(True, 5001, flags=FIN | ACK, ack=1011)
    assert (wire.only.client.data, wire.only.end, wire.only.from_start) == (b"earlylast", "fin", (True, True))


@pytest.mark.parametrize("octets", [b"", b"last"])
def test_a_fin_ends_its_side_once_all_octets_before_it_have_come(octets: bytes) -> None:
    wire = connected()
    wire.send(True, 5001, flags=FIN | ACK, ack=1001)
    wire.send(False, 1006, octets, flags=FIN | ACK, ack=5002)  # behind a hole
    assert not any(dissection.end for dissection in wire.dissections)
    wire.send(False, 1001, b"first", ack=5002)
    wire.table.finish()
    assert (wire.only.client.data, wire.only.client.gaps, wire.only.end) == (b"first" + octets, [], "fin")


def test_a_fin_may_come_again_and_alone_ends_nothing() -> None:
    wire = connected()
    wire.send(False, 1001, b"all", flags=FIN | ACK, ack=5001)
    for _ in range(2):
        wire.send(False, 1004, flags=FIN | ACK, ack=5001)
    wire.send(True, 5001, b"answer", ack=1005)
    assert (wire.only.server.data, wire.only.end) == (b"answer", "")
    for _ in range(2):
        wire.send(True, 5007, flags=FIN | ACK, ack=1005)
    assert (wire.only.end, wire.only.client.gaps, wire.only.server.gaps) == ("fin", [], [])


@pytest.mark.parametrize("in_order", [True, False])
def test_the_side_whose_fin_the_other_acknowledges_closed_first(in_order: bool) -> None:
    wire = connected()
    wire.send(False, 1001, b"octets", ack=5001)
    fins = [(False, 1007, 5001), (True, 5001, 1008)]
    for back, seq, ack in fins if in_order else fins[::-1]:
        wire.send(back, seq, flags=FIN | ACK, ack=ack)
    wire.table.finish()
    assert (wire.only.end, wire.only.closed_by) == ("fin", "client")


def test_of_two_that_close_at_once_neither_is_the_first() -> None:
    wire = connected()
    wire.send(False, 1001, b"octets", flags=FIN | ACK, ack=5001)
    wire.send(True, 5001, flags=FIN | ACK, ack=1007)
    assert (wire.only.end, wire.only.closed_by) == ("fin", None)


@pytest.mark.parametrize(
    ("ack", "closed_by"),
    [(5001, "client"), (5002, None)],  # that may be a FIN which the capture lacks
)
def test_who_resets_closes_unless_octets_of_the_other_side_are_missing(ack: int, closed_by: str | None) -> None:
    wire = connected()
    wire.send(False, 1001, b"last", ack=5001)
    wire.send(False, 1005, flags=RST | ACK, ack=ack)
    wire.table.finish()
    assert (wire.only.end, wire.only.closed_by) == ("rst", closed_by)


def test_a_reset_after_the_other_sides_fin_closes_nothing() -> None:
    wire = connected()
    wire.send(True, 5001, b"octets", flags=FIN | ACK, ack=1001)
    wire.send(False, 1001, flags=RST | ACK, ack=5008)
    assert (wire.only.end, wire.only.closed_by) == ("rst", "server")


def test_fins_end_a_flow_that_nobody_wants() -> None:
    wire = connected()
    wire.send(False, 1001, b"first", ack=5001)
    wire.only.rejected = True
    wire.send(False, 1006, b"last", flags=FIN | ACK, ack=5001)
    (flow,) = wire.table.register.flows.values()
    assert (flow.unwanted, flow.ended, wire.only.end) == (True, False, "")
    wire.send(True, 5001, flags=FIN | ACK, ack=1011)
    assert flow.ended


def test_a_refused_connection_is_a_flow_without_octets() -> None:
    wire = Wire()
    for port in (40_001, 40_002):
        wire.send(False, 1000, flags=SYN, port=port)
        wire.send(True, 0, flags=RST | ACK, ack=1001, port=port)
    wire.table.finish()
    assert (wire.table.register.count, wire.dissections) == (2, [])


def test_a_syn_that_is_refused_and_accepted_when_it_comes_again() -> None:
    """The network loses the RST, and until the client sends its SYN again somebody listens."""
    wire = Wire()
    wire.send(False, 1000, flags=SYN)
    wire.send(True, 0, flags=RST | ACK, ack=1001)
    wire.connect()
    wire.send(False, 1001, b"octets", ack=5001)
    wire.send(True, 5001, b"more", ack=1007)
    assert (wire.table.register.count, wire.only.number) == (2, 2)
    assert (wire.only.client.data, wire.only.server.data, wire.only.from_start) == (b"octets", b"more", (True, True))


def test_rejected_connections_keep_nothing() -> None:
    wire = connected()
    wire.send(False, 1001, b"a")
    wire.only.rejected = True
    wire.send(False, 1002, b"b")
    wire.send(False, 1010, b"c")
    assert wire.only.client.data == b"ab"
    assert wire.table.holdings.waiting_octets == 0


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("tiny", [False, True])
def test_memory_behind_a_hole_is_bounded(tiny: bool, begins: bool) -> None:
    """Of each connection, and of all; also of what comes before the other side's SYN, if that comes at all."""
    wire = Wire(FlowLimits(waiting_octets_per_direction=100_000, waiting_octets=300_000))
    highest = highest_of_one = 0
    for port in range(41_000, 41_010):
        if begins:
            wire.connect(port=port)
        else:
            wire.send(False, 1000, flags=SYN, port=port)
        for number in range(500):
            wire.send(False, 2001 + number * 1000, b"z" * (1 if tiny else 1000), port=port)
            *_, flow = wire.table.register.flows.values()
            highest = max(highest, wire.table.holdings.waiting_octets)
            highest_of_one = max(highest_of_one, flow.client.waiting_octets + flow.early_octets)
    assert highest <= 302_000
    assert 90_000 < highest_of_one <= 102_000
    wire.table.finish()
    assert wire.table.holdings.waiting_octets == 0


def test_idle_flows_are_ended_and_the_oldest_give_way() -> None:
    wire = Wire(FlowLimits(flows=100, idle_seconds=50, idle_seconds_unknown=10))
    for port in range(10_000, 10_200):
        wire.connect(port=port)
        wire.send(False, 1001, b"x", port=port)
    assert len(wire.table.register.flows) <= 100
    assert wire.dissections[0].end == "timeout"
    assert wire.dissections[-1].end == ""
    for _ in range(3):
        wire.now += 60 * SECOND
        wire.send(False, 1002, b"x", port=10_199)
    assert {d.end for d in wire.dissections[:-1]} == {"timeout"}
    assert len(wire.table.register.flows) == 1


@pytest.mark.parametrize(
    "places",
    [
        [at for at in range(5000) if at % 10 != 5],
        range(10, 4000),
        range(10, 8000, 2),
        range(2500, 0, -1),
        sorted(range(1, 2500), key=lambda at: at * 7919 % 2503),
    ],
    ids=["a tenth lost", "behind one hole", "behind holes", "backwards", "in any order"],
)
def test_a_segment_behind_many_costs_no_more_than_another(places: list[int]) -> None:
    """Counted in lines of the reassembly that are executed; nothing is acknowledged."""
    lines = 0

    def count(frame, event, arg):  # type: ignore[no-untyped-def]
        nonlocal lines
        lines += event == "line"
        return count if frame.f_code.co_filename.endswith("reassembly.py") else None

    wire = Wire(FlowLimits(waiting_octets_per_direction=2 << 20))
    wire.connect()
    before = sys.gettrace()
    sys.settrace(count)
    try:
        for at in places:
            wire.send(False, 1001 + at, b"x")
    finally:
        sys.settrace(before)
    wire.table.finish()
    assert lines < 100 * len(places)
    assert len(wire.only.client.data) == max(places) + 1


@pytest.mark.parametrize(("size", "kept"), [(1000, 16), (30_000, 6)])
def test_retransmissions_are_compared_with_some_segments(size: int, kept: int) -> None:
    wire = connected()
    for number in range(40):
        wire.send(False, 1001 + number * size, bytes(size))
        (flow,) = wire.table.register.flows.values()
        recent = flow.client.recent
        assert sum(len(octets) for _, octets, _, _ in recent) <= 256 << 10
    for number in range(40):
        wire.send(False, 1001 + number * size, b"!" * size)
    assert wire.only.client.conflicts >= kept


@pytest.mark.parametrize("late", [False, True])
def test_segments_kept_for_comparison_are_bounded_over_all_flows(late: bool) -> None:
    most = 1 << 20
    wire = Wire(FlowLimits(recent_octets=most))
    payload = bytes(1400)
    for port in range(1, 301):
        wire.connect(port=port)
        for number in range(16):
            seq = 1001 + (number ^ late) * len(payload)  # of two that are swapped the first waits
            wire.send(False, seq, payload, port=port)
        kept = [one for flow in wire.table.register.flows.values() for way in flow.directions for one in way.recent]
        assert sum(len(octets) for _, octets, _, _ in kept) <= most
    for port in (1, 300):
        for number in range(16):
            wire.send(False, 1001 + number * len(payload), b"!" * len(payload), port=port)
    assert [wire.dissections[0].client.conflicts, wire.dissections[-1].client.conflicts] == [0, 16]


def test_many_idle_flows_are_not_counted_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(FlowLimits(recent_octets=1 << 20))
    for port in range(1, 501):
        wire.connect(port=port)
        wire.send(False, 1001, b"x" * 100, port=port)
    counted: list[int] = []
    count = Flow.count_recent

    def watched(flow: Flow) -> None:
        counted.append(flow.number)
        count(flow)

    monkeypatch.setattr(Flow, "count_recent", watched)
    for number in range(1500):
        wire.send(False, 1101 + 1400 * number, bytes(1400), port=500)
    assert len(counted) < 600


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_a_pause_ends_a_connection_wherever_batches_end(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(FlowLimits(idle_seconds=60))
    given: list[Segment] = []
    monkeypatch.setattr(FlowTable, "take", lambda _, segments: given.extend(segments))
    wire.connect()
    wire.send(False, 1001, b"one")
    wire.pause(50)
    wire.send(False, 1004, b"two")
    wire.pause(70)
    wire.send(False, 1007, b"three")
    wire.pause(70)
    wire.send(False, 900, flags=SYN, port=41_000)
    monkeypatch.undo()
    for at in range(0, len(given), batch):
        wire.table.take(given[at : at + batch])
    wire.table.finish()
    found = [(d.client.data, d.end, d.from_start) for d in wire.dissections]
    assert found == [(b"onetwo", "timeout", (True, True)), (b"three", "timeout", (False, False))]
    assert wire.table.register.count == 3


def test_a_stray_syn_ends_nothing() -> None:
    wire = connected()
    wire.send(False, 1001, b"one")
    wire.send(False, 1 << 30, flags=SYN)
    wire.send(True, 5001, ack=1004)  # what a live peer answers: a challenge (RFC 5961, section 4)
    wire.send(True, 1 << 31, flags=SYN | ACK, ack=77)
    wire.send(False, 1004, b"two", ack=5001)
    wire.send(True, 5001, b"reply", ack=1007)
    wire.table.finish()
    assert (wire.table.register.count, wire.only.client.data, wire.only.server.data) == (1, b"onetwo", b"reply")


@pytest.mark.parametrize("captured", ["all", "no SYN", "no SYN-ACK", "client", "server", "early data"])
def test_a_syn_that_is_answered_begins_another_connection(captured: str) -> None:
    wire = connected()
    wire.send(False, 1001, b"old")
    wire.send(True, 5001, b"old", ack=1004)
    client, server = 1 << 30, 1 << 31
    early = b"early" if captured == "early data" else b""
    begin = client + 1 + len(early)
    if captured not in ("no SYN", "server"):
        wire.send(False, client, early, flags=SYN)
    wire.send(False, 1004, b"er")
    if captured not in ("no SYN-ACK", "client"):
        wire.send(True, server, flags=SYN | ACK, ack=begin)
    if captured != "server":
        wire.send(False, begin, b"new", ack=server + 1)
    if captured != "client":
        wire.send(True, server + 1, b"NEW", ack=begin + 3)
    wire.table.finish()
    old, new = wire.dissections
    assert (old.client.data, old.server.data, old.end) == (b"older", b"old", "open")
    assert new.client.data.strip(b"?") == (b"" if captured == "server" else early + b"new")
    assert new.server.data == (b"" if captured == "client" else b"NEW")
    known = {"no SYN-ACK": (True, False), "client": (True, False)}.get(captured, (True, True))
    assert (new.number, new.from_start, wire.table.register.count) == (2, known, 2)


def test_flows_that_are_over_leave_nothing() -> None:
    wire = Wire(FlowLimits(linger_seconds=0.1))

    def converse(count: int) -> None:
        for number in range(count):
            wire.connect(port=10_000 + number % 50_000)
            wire.send(False, 1001, b"x", flags=FIN | ACK, ack=5001, port=10_000 + number % 50_000)
            wire.send(True, 5001, flags=FIN | ACK, ack=1003, port=10_000 + number % 50_000)
            wire.dissections.clear()
            wire.pause(0.01)

    gc.disable()
    try:
        converse(1000)
        tracemalloc.start()
        converse(3000)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert grown < 1_000_000
    assert wire.table.register.count == 4000
