"""The counts of a report beyond statistics: right, in bounded memory, in any order of intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Connection, Message, Peer, Problem, Sides
from tests.support.footprint import entries
from zmtpsniff.analysis.statistics import overview as counting
from zmtpsniff.analysis.statistics.activity import Activity, step, step_limits
from zmtpsniff.analysis.statistics.intervals import Intervals, longer, suiting
from zmtpsniff.analysis.statistics.overview import HostPairKey, Overview, silence_of

NS = 1_000_000_000
BEGIN = 1_795_219_200 * NS
SERVER = "10.1.0.1:5555"


def message(flow: int, time_ns: int, client: str, forth: bool, **fields: object) -> Message:
    ends = (client, SERVER) if forth else (SERVER, client)
    return Message(time_ns, 1, flow, *ends, [b"topic", b"12345"], **fields)  # type: ignore[arg-type]


def connection(flow: int, client: str, end: str = "fin", start_ns: int = BEGIN, end_ns: int = BEGIN) -> Connection:
    peers = (Peer(client, "3.1", "SUB"), Peer(SERVER, "3.1", "PUB"))
    return Connection(flow, "tcp", *peers, Sides(0, 1), Sides(10, 20), start_ns, end_ns, end, "3.1", "NULL", "complete")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("span_ns", "length_ns"),
    [
        (0, NS // 1000),
        (NS, NS // 100),
        (75 * NS, NS),
        (3600 * NS, 60 * NS),
        (86_400 * NS, 1800 * NS),
        (10**18, 128 * 86_400 * NS),
    ],
)
def test_intervals_suit_a_span(span_ns: int, length_ns: int) -> None:
    assert suiting(span_ns) >= span_ns / 120
    assert suiting(span_ns) == length_ns


def test_a_length_divides_the_next() -> None:
    length_ns = suiting(0)
    while length_ns < 10**18:
        assert longer(length_ns) % length_ns == 0
        length_ns = longer(length_ns)


@given(
    st.lists(st.tuples(st.integers(0, 10**14), st.integers(0, 1000), st.none() | st.integers(0, 10**12)), min_size=1)
)
def test_intervals_that_become_longer_count_the_same(rows: list[tuple[int, int, int | None]]) -> None:
    """As if they had been as long from the beginning."""
    intervals = Intervals(20)
    counted = Activity()
    for time_ns, octets, latency_ns in rows:
        counted.add(intervals, time_ns, octets, latency_ns)
    assert intervals.count <= 20
    length_ns = intervals.length_ns
    counted.fold(length_ns)
    places = {time_ns // length_ns for time_ns, _, _ in rows}
    assert dict(counted.amounts()) == {
        place: (
            sum(time_ns // length_ns == place for time_ns, _, _ in rows),
            sum(octets for time_ns, octets, _ in rows if time_ns // length_ns == place),
        )
        for place in places
    }
    latencies = [latency_ns for _, _, latency_ns in rows if latency_ns is not None]
    assert sum(count for _, _, count in counted.replies()) == len(latencies)


@given(st.integers(0, 2**63))
def test_a_latency_is_in_its_step(latency_ns: int) -> None:
    least, below = step_limits(step(latency_ns))
    # The limits are rounded to nanoseconds.
    assert least - 1 <= latency_ns <= below + 1 or latency_ns >= 2**62


def test_pairs_and_their_problems() -> None:
    overview = Overview()
    overview.take([
        message(1, BEGIN, "10.0.0.1:4000", False, socket_type="PUB"),
        Problem("warning", "x", "x", BEGIN, 1, 1, "10.0.0.1:4000", SERVER),
        connection(1, "10.0.0.1:4000"),
        Problem("error", "y", "comes when the connection is over", BEGIN, 1, 1, SERVER, "10.0.0.1:4000"),
        connection(2, "10.0.0.1:4001"),
    ])  # fmt: skip
    ((key, pair),) = overview.pairs.rows.items()
    assert key == HostPairKey("10.0.0.1", SERVER, "SUB", "PUB")
    assert (pair.connections, pair.messages_in, pair.messages_out) == (2, 0, 1)
    assert pair.problems == {"warning": 1, "error": 1}
    assert {(code, host) for _, code, host in overview.problems} == {("x", "10.0.0.1"), ("y", "10.1.0.1")}
    ((topic, row),) = overview.topics.rows.items()
    assert (topic, row.messages, row.octets) == (b"topic", 1, 10)


def test_many_open_connections_take_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a message every nine seconds, for an hour."""
    monkeypatch.setattr(counting, "_WAITING", 20_000)
    overview = Overview()
    flows = range(300)
    for second in range(0, 3600, 9):
        overview.take([message(flow, BEGIN + second * NS, f"10.0.0.1:{flow}", True) for flow in flows])
        if second % 90 == 0:
            assert entries(overview) <= 30_000
    overview.take([connection(flow, f"10.0.0.1:{flow}", end_ns=BEGIN + 3600 * NS) for flow in flows])
    assert overview.total_activity().total == 300 * 400
    assert overview.intervals.count >= 60
    assert entries(overview) <= 2000


def test_many_hosts_topics_and_codes_take_no_more_room() -> None:
    overview = Overview()
    for number in range(25_000):
        client = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:4000"
        sent = message(number, BEGIN, client, False, socket_type="PUB")
        sent.frames = [b"topic %d" % number]
        overview.take([sent, Problem("note", "code", "x", None, None, number, client, SERVER),
                       connection(number, client)])  # fmt: skip
    assert len(overview.pairs.rows) <= 10_000
    assert overview.pairs.at_least() >= 10_000
    assert len(overview.topics.rows) <= 10_000
    assert len(overview.problems) <= 2001
    assert sum(row.count for row in overview.problems.values()) == 25_000
    assert overview.total_activity().total == 25_000


@pytest.mark.parametrize(
    ("places", "end", "length"),
    [
        ([0, 1, 2, 3, 4], 30, 26),
        ([0, 1, 2, 3, 4], 9, None),  # not for long enough
        ([0, 1, 2, 20, 21], 50, None),  # it was silent for nearly as long before
        ([0, 30], 100, None),  # it hardly ever says anything
        ([], 10, None),
    ],
)
def test_silence(places: list[int], end: int, length: int | None) -> None:
    silence = silence_of(places, end)
    assert (silence and silence.length) == length


@pytest.mark.parametrize(("end", "silent"), [("open", ["10.0.0.1"]), ("fin", [])])
def test_a_host_that_left_is_not_silent(end: str, silent: list[str]) -> None:
    overview = Overview()
    events: list[AnyEvent] = [message(1, BEGIN + second * NS, "10.0.0.1:4000", True) for second in range(60)]
    events += [message(2, BEGIN + second * NS, "10.0.0.2:4000", True) for second in range(600)]
    events += [connection(1, "10.0.0.1:4000", end, BEGIN, BEGIN + 60 * NS)]
    events += [connection(2, "10.0.0.2:4000", "open", BEGIN, BEGIN + 600 * NS)]
    overview.take(events)
    assert [host for host, _, _ in overview.silences()] == silent
