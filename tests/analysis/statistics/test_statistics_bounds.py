"""Sketches, bounded tables and time lines against exact counts, and how far memory goes."""

import tracemalloc
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dissectors.events import Command, Connection, Cut, Message, Sides, Subscription
from tests.support.stats_events import ALL, check_percentile, connection, nearest_rank, published
from zmtpsniff.analysis.statistics.count_rows import Topic
from zmtpsniff.analysis.statistics.record_maker import report
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.analysis.statistics.statistics import Statistics
from zmtpsniff.analysis.statistics.stats_records import ConnectionRow
from zmtpsniff.analysis.statistics.table import Table
from zmtpsniff.analysis.statistics.timeline import Timeline

# ------------------------------------------------------------------ sketches


@example([276, 279], 0, 0)
@given(st.lists(st.integers(-5, 10**13), min_size=1), st.sampled_from([0, 1, 50, 90, 95, 99, 100]), st.integers())
def test_percentiles_are_within_the_error(values: list[int], percent: int, place: int) -> None:
    limit = values[place % len(values)]
    sketch = Sketch([limit])
    for value in values:
        sketch.add(value)
    check_percentile(sketch.percentile(percent), values, percent)
    # A verdict is exact.
    assert sketch.keeps(percent, limit) is (nearest_rank(values, percent) <= limit) or not percent
    steps = sketch.histogram()
    assert sum(count for _, _, count in steps) == len(values)
    assert all(low[1] == high[0] for low, high in pairwise(steps) if low[1] > 0)
    assert steps[0][2] > 0
    assert steps[-1][2] > 0


@given(st.lists(st.integers(0, 10**12)), st.lists(st.integers(0, 10**12)))
def test_merged_sketches_are_one_of_all(first: list[int], second: list[int]) -> None:
    sketches = [Sketch([10**6]) for _ in range(3)]
    for sketch, values in zip(sketches, (first, second, first + second), strict=True):
        for value in values:
            sketch.add(value)
    sketches[0].join(sketches[1])
    fields = [{name: getattr(sketch, name) for name in Sketch.__slots__} for sketch in sketches]
    assert fields[0] == fields[2]


# ------------------------------------------------------------------ what stays bounded


@given(st.lists(st.integers(0, 30)))
def test_bounds_of_tables_hold(keys: list[int]) -> None:
    table: Table[int, Topic] = Table(3, Topic)
    for key in keys:
        table.row(key).messages += 1
    assert len(table.rows) <= 6
    exact = Counter(keys)
    for key, row in table.rows.items():
        assert row.messages <= exact[key] <= row.messages + row.missing
    assert table.at_least() <= len(exact)
    assert sum(row.messages for row in table.rows.values()) + table.rest.messages == len(keys)
    if len(exact) <= 3:
        assert {key: row.messages for key, row in table.rows.items()} == exact


def peak_of(count: int) -> int:
    tracemalloc.start()
    statistics = Statistics(rows=200)
    for flow in range(count):
        address = f"10.{flow >> 16}.{flow >> 8 & 255}.{flow & 255}:5555"
        statistics.take(
            [
                Subscription(flow, 1, flow, "10.0.0.2:40000", address, "subscribe", b"%d" % flow * 100, "command"),
                published(b"%d" % flow * 100, flow),
                Message(1, 2, flow, address, "10.0.0.2:4", [b""], latency_ns=flow + 1, request=1),
                Command(1, 2, flow, address, "10.0.0.2:4", "PONG", latency_ns=flow + 1, request=1),
                connection(flow, address),
            ]
        )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(report(statistics, 20)) < 500
    return peak


@dataclass
class Count:
    """A row that counts one thing."""

    number: int = 0
    missing: int = 0

    def weight(self) -> int:
        return self.number

    def join(self, other: "Count") -> None:
        self.number += other.number


def test_what_a_cut_row_lacked_may_have_been_of_the_next_one() -> None:
    table: Table[str, Count] = Table(1, Count)
    for key, number in (("a", 5), ("b", 4), ("c", 1)):
        table.row(key).number += number
    assert table.row("c").missing == 4  # b was cut
    assert table.row("d").missing == 5  # c was cut: it counted one, and may have had four before
    assert table.rest.number == 5


def test_memory_does_not_grow_with_what_is_counted() -> None:
    few, many = peak_of(1_000), peak_of(2_500)  # either is beyond all bounds
    assert many < few * 1.1
    assert many < 4 << 20


def test_open_connections_cost_little_and_totals_stay_right() -> None:
    statistics = Statistics()
    for flow in range(3000):
        statistics.take([Message(1, 2, flow, "10.0.0.1:5", "10.0.0.2:4", [b""], latency_ns=7, request=1)])
        topics = [b"%d" % topic for topic in range(30)]
        for topic in topics:
            statistics.take([Subscription(1, 1, flow, "10.0.0.2:4", "10.0.0.1:5", "subscribe", topic, "command")])
    statistics.take([connection(flow) for flow in range(3000)])
    assert statistics.all_answers().requests.count == 3000
    assert statistics.subscriptions_not_followed == 3000 * 30 - 50_000
    assert {row.subscribers for row in statistics.topics.rows.values()} == {0}


@pytest.mark.parametrize("sort", ["messages", "octets", "duration", "start", "address"])
def test_the_first_connections_of_many_are_exact(sort: str) -> None:
    random = Random(2)
    connections = [connection(flow, f"a:{random.randrange(10**6)}", random.randrange(10**6)) for flow in range(5000)]
    for each in connections:
        each.octets = Sides(random.randrange(10**6), 0)
        each.end_ns = each.start_ns + random.randrange(1, 10**9)
    exact = Statistics(sort=sort)
    exact.take(connections)
    bounded = Statistics(sort=sort, rows=100)
    bounded.take(connections)
    assert bounded.connection_rows(100) == exact.connection_rows(100)
    assert len(exact.connection_rows(ALL)) == 5000


def test_long_names_are_cut() -> None:
    assert _hostile().client.socket_type == "X" * 32
    statistics = Statistics()
    statistics.take([published(b"t" * 100_000), published(b"t" * 100_000), connection(1)])
    (topic,) = statistics.topics.rows
    assert topic == Cut(b"t" * 255, 100_000)
    assert statistics.topics.rows[topic].messages == 2
    (row,) = statistics.connection_rows(1)
    assert row.client.identity == Cut(b"i" * 255, 1000)


def _hostile() -> ConnectionRow:
    """The row of a connection whose client calls itself by a name of a megabyte."""
    event = connection(1)
    event.client.socket_type = "X" * (1 << 20)
    statistics = Statistics()
    statistics.take([event])
    return statistics.connection_rows(1)[0]


def subscription(flow: int, action: Any, topic: bytes = b"t") -> Subscription:
    return Subscription(1, 1, flow, "c:1", "s:2", action, topic, "command")


def still_open(flow: int) -> Connection:
    event = connection(flow)
    event.end = "open"
    return event


def test_subscribers_now_and_at_most() -> None:
    statistics = Statistics()
    statistics.take([subscription(flow, "subscribe") for flow in (1, 1, 2, 3)])  # one of them twice
    statistics.take([subscription(1, "cancel"), subscription(1, "cancel"), connection(2), still_open(1), still_open(3)])
    row = statistics.topics.rows[b"t"]
    assert (row.subscribers, row.subscribers_most) == (1, 3)


def test_a_subscription_that_was_cancelled_makes_room() -> None:
    statistics = Statistics()
    for number in range(60_000):
        statistics.take([subscription(1, "subscribe", b"%d" % number), subscription(1, "cancel", b"%d" % number)])
    topics = [b"%d" % number for number in range(30_000)]
    for flow in (2, 3):
        statistics.take([subscription(flow, "subscribe", topic) for topic in topics])
        statistics.take([connection(flow)])
    assert statistics.subscriptions_not_followed == 0


# ------------------------------------------------------------------ time line


@given(st.lists(st.integers(0, 10**11), min_size=1), st.sampled_from([None, 10**6, 10**9]))
def test_time_lines_lose_no_message(times: list[int], interval_ns: int | None) -> None:
    timeline = Timeline(interval_ns)
    for time_ns in times:
        timeline.add(time_ns, 1)
    width_ns, found = timeline.rows()
    exact = Counter(time_ns // width_ns * width_ns for time_ns in times)
    assert dict(found) == exact
    assert interval_ns is None or width_ns == interval_ns
    if interval_ns is None:
        assert (found[-1][0] - found[0][0]) // width_ns <= 120
        assert str(width_ns).rstrip("0") in ("1", "2", "5")


def test_a_long_time_line_has_longer_intervals() -> None:
    timeline = Timeline(10**9)
    for second in range(86_400):
        timeline.add(second * 10**9, 2)
    assert len(timeline.counts) <= 10_000
    width_ns, found = timeline.rows()
    assert width_ns == 16 * 10**9
    assert sum(count for _, count in found) == 2 * 86_400
