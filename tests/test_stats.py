"""Statistics of real captures against their records; sketches, bounded tables and merging against exact counts."""

import io
import itertools
import json
import math
import pickle
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conftest import CAPTURES, FIXTURES
from hypothesis import example, given
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Command, Connection, Cut, Message, Octets, Peer, Sides, Subscription
from zmtpsniff.capture.files import open_captures
from zmtpsniff.patterns import Patterns
from zmtpsniff.render.jsonl import JsonlRenderer
from zmtpsniff.sniffer import Sniffer
from zmtpsniff.stats import Statistics
from zmtpsniff.stats.bounded import Table
from zmtpsniff.stats.chart import Blocks, bar, columns, make_blocks
from zmtpsniff.stats.draw import draw
from zmtpsniff.stats.records import AnyRecord, ConnectionRow, LatencyRow, SocketRow, TimelineRow, TopicRow
from zmtpsniff.stats.report import report
from zmtpsniff.stats.rows import Topic
from zmtpsniff.stats.sketch import ACCURACY, Sketch
from zmtpsniff.stats.statistics import ROWS
from zmtpsniff.stats.timeline import Timeline

ALL = 1_000_000
BOTH = [*sorted(FIXTURES.glob("*.pcap*")), *sorted(CAPTURES.glob("*.pcap*"))]


def batches(*captures: Path) -> Iterator[list[AnyEvent]]:
    for capture in captures:
        for events in Sniffer(open_captures([str(capture)]), patterns=Patterns()).events():
            yield list(events)


def as_json(events: list[Any]) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    JsonlRenderer(stream).write(events)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def counted(*captures: Path, **options: Any) -> Statistics:
    statistics = Statistics(**options)
    for events in batches(*captures):
        statistics.take(events)
    return statistics


def rows(records: list[AnyRecord], kind: type) -> list[Any]:
    return [record for record in records if type(record) is kind]


# ------------------------------------------------------------------ real captures


@pytest.mark.parametrize("capture", BOTH, ids=lambda path: path.name)
def test_sums_are_those_of_the_records(capture: Path) -> None:
    records: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in as_json(list(itertools.chain.from_iterable(batches(capture)))):
        records[record["type"]].append(record)
    told: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in as_json(report(counted(capture), top=ALL)):
        told[record["type"]].append(record)
    (total,) = told["stats-total"]
    (capture_record,) = records["capture"]

    assert {name: total[name] for name in capture_record if name != "type"} == {
        name: value for name, value in capture_record.items() if name != "type"
    }
    assert "stats-cut" not in told
    same = ("flow", "transport", "client", "server", "messages", "octets", "start_ns", "end", "version", "mechanism")
    for record in records["connection"]:
        for side in ("client", "server"):
            if record[side].get("identity", {"length": 0})["length"] > 255:  # only so much is kept
                identity = record[side]["identity"]
                identity.update(text=identity["text"][:255], truncated=True)
    assert [{name: row.get(name) for name in same} for row in sorted(told["stats-connection"], key=flow_of)] == [
        {name: row.get(name) for name in same} for row in sorted(records["connection"], key=flow_of)
    ]
    assert sum(row["connections"] for row in told["stats-socket"]) == len(records["connection"])
    for into, side in (("in", "client"), ("out", "server")):
        for what in ("messages", "octets"):
            expected = Counter[str]()
            for record in records["connection"]:
                expected[record["server"]["address"]] += record[what][side]
            assert {row["address"]: row[f"{what}_{into}"] for row in told["stats-socket"]} == expected
    assert total["octets"] == sum(sum(record["octets"].values()) for record in records["connection"])
    encrypted = Counter(
        (row["flow"], row["src"]) for row in records["command"] if row["name"] == "MESSAGE" and "box" in row
    )
    assert total.get("encrypted", 0) == encrypted.total()
    for row in told["stats-connection"]:
        sides = {side: encrypted[row["flow"], row[side]["address"]] for side in ("client", "server")}
        assert row.get("encrypted", {"client": 0, "server": 0}) == sides
    assert sum(row["messages"] for row in told["stats-timeline"]) == len(records["message"])
    problems = Counter((record["severity"], record["code"]) for record in records["problem"])
    assert {(row["severity"], row["code"]): row["count"] for row in told["stats-problem"]} == problems
    for row in told["stats-problem"]:
        same_code = [r for r in records["problem"] if (r["severity"], r["code"]) == (row["severity"], row["code"])]
        assert row.get("packet") == same_code[0].get("packet")
        assert row["detail"] == same_code[0]["detail"]
    check_topics(records, told["stats-topic"])
    check_latencies(records, told["stats-latency"])


def flow_of(row: dict[str, Any]) -> int:
    flow: int = row["flow"]
    return flow


def key_of(octets: dict[str, Any]) -> str:
    return str(octets.get("text", octets.get("hex")))


def check_topics(records: dict[str, list[dict[str, Any]]], told: list[dict[str, Any]]) -> None:
    messages, octets = Counter[str](), Counter[str]()
    for record in records["message"]:
        if "matched" in record or record.get("socket_type") in ("PUB", "XPUB", "RADIO"):
            topic = key_of(record.get("matched", record["frames"][0]))
            messages[topic] += 1
            octets[topic] += sum(frame["length"] for frame in record["frames"])
    assert {key_of(row["topic"]): row["messages"] for row in told if row["messages"]} == messages
    assert {key_of(row["topic"]): row["octets"] for row in told if row["messages"]} == octets
    still = Counter[str]()
    for record in records["connection"]:
        if record["end"] == "open":
            still.update(map(key_of, record.get("subscriptions", [])))
    # Groups of dishes are not among the subscriptions of a connection's record.
    groups = {key_of(record["group"]) for record in records["command"] if "group" in record}
    now = {key_of(row["topic"]): row["subscribers"] for row in told if row["subscribers"]}
    assert {topic: count for topic, count in now.items() if topic not in groups} == still


def check_latencies(records: dict[str, list[dict[str, Any]]], told: list[dict[str, Any]]) -> None:
    server = {record["flow"]: record["server"]["address"] for record in records["connection"]}
    for pattern, kind in (("request-reply", "message"), ("heartbeat", "command")):
        exact: dict[str | None, list[int]] = defaultdict(list)
        for record in records[kind]:
            if "latency_ns" in record:
                exact[None].append(record["latency_ns"])
                exact[server[record["flow"]]].append(record["latency_ns"])
        found = {row.get("service"): row for row in told if row["pattern"] == pattern}
        assert found.keys() == exact.keys()
        for service, values in exact.items():
            row = found[service]
            assert (row["count"], row["min_ns"], row["max_ns"]) == (len(values), min(values), max(values))
            assert sum(each["count"] for each in row["histogram"]) == len(values)
            for share, name in ((0.5, "p50_ns"), (0.95, "p95_ns"), (0.99, "p99_ns")):
                check_percentile(row[name], values, share)


def check_percentile(found: int, values: list[int], share: float) -> None:
    exact = nearest_rank(values, share)
    if exact > 0:
        assert abs(found - exact) <= exact * ACCURACY + 1  # results are whole nanoseconds
    else:  # of times that went backwards only the number and the first is known
        assert min(values) <= found <= 0


def nearest_rank(values: list[int], share: float) -> int:
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def test_captures_together_are_one_after_the_other() -> None:
    pairs = [(BOTH[0], BOTH[-1]), *itertools.pairwise(BOTH)]
    for first, second in pairs[:: 1 + len(pairs) // 40]:
        merged = counted(first)
        merged.merge(pickle.loads(pickle.dumps(counted(second))))
        assert as_json(report(merged, ALL)) == as_json(report(counted(first, second), ALL)), (first, second)


def test_all_captures_merged_in_any_order_have_the_same_sums() -> None:
    one = counted(*BOTH)
    merged = Statistics()
    for capture in reversed(BOTH):
        merged.merge(counted(capture))
    for kind in (SocketRow, LatencyRow, TimelineRow):
        assert sorted(map(str, as_json(rows(report(merged, ALL), kind)))) == sorted(
            map(str, as_json(rows(report(one, ALL), kind)))
        ), kind
    counts = [{str(row.topic): row.messages for row in rows(report(each, ALL), TopicRow)} for each in (merged, one)]
    assert counts[0] == counts[1]


def test_what_is_not_over_cannot_be_merged() -> None:
    statistics = Statistics()
    statistics.take([Subscription(1, 1, 1, "a:1", "b:2", "subscribe", b"t", "command")])
    with pytest.raises(ValueError, match="not over"):
        Statistics().merge(statistics)


# ------------------------------------------------------------------ filters


def test_only_what_passes_is_counted() -> None:
    capture = FIXTURES / "m31_req_rep.pcap"
    everything = as_json(list(itertools.chain.from_iterable(batches(capture))))
    (server,) = {record["server"]["address"] for record in everything if record["type"] == "connection"}
    statistics = Statistics()
    for events in batches(capture):
        statistics.take(events, lambda event: isinstance(event, Message) and event.src == server)
    records = {record["type"]: record for record in as_json(report(statistics))}
    replies = sum(record["type"] == "message" and record["src"] == server for record in everything)
    assert replies
    assert records["stats-total"]["messages"] == replies
    assert records["stats-connection"]["messages"] == {"client": 0, "server": replies}
    assert records["stats-socket"]["messages_out"] == replies


def test_a_connection_whose_own_record_passes_is_whole() -> None:
    capture = FIXTURES / "m31_req_rep.pcap"
    statistics = Statistics()
    for events in batches(capture):
        statistics.take(events, lambda event: isinstance(event, Connection))
    (row,) = statistics.connection_rows(5)
    assert row.messages.client > 0
    assert statistics.messages == 0


@pytest.mark.parametrize("capture", [path for path in BOTH if path.parent == FIXTURES], ids=lambda path: path.name)
def test_a_filter_that_lets_all_pass_changes_nothing(capture: Path) -> None:
    statistics = Statistics()
    for events in batches(capture):
        statistics.take(events, lambda event: True)
    assert report(statistics, ALL) == report(counted(capture), ALL)


def test_nothing_passes() -> None:
    statistics = Statistics()
    for events in batches(FIXTURES / "m31_req_rep.pcap"):
        statistics.take(events, lambda event: False)
    assert [record["type"] for record in as_json(report(statistics))] == ["stats-total"]


def test_a_problem_that_the_end_of_a_connection_shows_passes() -> None:
    statistics = Statistics()
    for events in batches(FIXTURES / "rec_unanswered_request.pcap"):
        statistics.take(events, lambda event: getattr(event, "code", None) == "request-unanswered")
    kinds = [record["type"] for record in as_json(report(statistics))]
    assert kinds == ["stats-connection", "stats-socket", "stats-problem", "stats-total"]
    Statistics().merge(statistics)  # nothing is left open


# ------------------------------------------------------------------ sketches


@example([276, 279], 0.0)
@given(st.lists(st.integers(-5, 10**13), min_size=1), st.sampled_from([0.0, 0.01, 0.5, 0.95, 0.99, 1.0]))
def test_percentiles_are_within_the_error(values: list[int], share: float) -> None:
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    check_percentile(sketch.percentile(share), values, share)
    assert sum(count for _, _, count in sketch.histogram()) == len(values)


@given(st.lists(st.integers(0, 10**12)), st.lists(st.integers(0, 10**12)))
def test_merged_sketches_are_one_of_all(first: list[int], second: list[int]) -> None:
    sketches = [Sketch() for _ in range(3)]
    for sketch, values in zip(sketches, (first, second, first + second), strict=True):
        for value in values:
            sketch.add(value)
    sketches[0].merge(sketches[1])
    fields = [{name: getattr(sketch, name) for name in Sketch.__slots__} for sketch in sketches]
    assert fields[0] == fields[2]


def test_percentiles_of_many() -> None:
    random = Random(4)
    values = [int(random.lognormvariate(13, 2)) for _ in range(100_000)]
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    for share in (0.5, 0.95, 0.99):
        assert sketch.percentile(share) == pytest.approx(nearest_rank(values, share), rel=ACCURACY)
    assert len(sketch.buckets) < 1700


# ------------------------------------------------------------------ what stays bounded


def published(topic: Octets, flow: int = 1, time_ns: int = 10**18) -> Message:
    return Message(time_ns, 1, flow, "10.0.0.1:5555", "10.0.0.2:40000", [topic, b"body"], "PUB", matched=topic)


def connection(flow: int, address: str = "10.0.0.1:5555", messages: int = 0) -> Connection:
    client = Peer("10.0.0.2:40000", "3.1", "SUB", b"i" * 1000)
    server = Peer(address, "3.1", "PUB")
    return Connection(flow, "tcp", client, server, Sides(0, messages), Sides(64, 64), flow, flow + 10**9, "fin")


def test_a_great_many_topics() -> None:
    """200,000 topics, a few of them heavy: these are right, all else is bounded and says so."""
    random = Random(1)
    heavy = {f"heavy {number}".encode(): 300 + number for number in range(10)}
    names = [f"topic {number:08}".encode() for number in range(200_000)]
    names += [name for name, count in heavy.items() for _ in range(count)]
    random.shuffle(names)
    statistics = Statistics()
    for start in range(0, len(names), 1000):
        statistics.take([published(name) for name in names[start : start + 1000]])
    assert len(statistics.topics.rows) <= 2 * ROWS
    records = report(statistics, top=10)
    for row in rows(records, TopicRow):
        assert row.messages <= heavy[row.topic] <= row.messages + row.missing
    (cut,) = [record for record in as_json(records) if record["type"] == "stats-cut"]
    assert cut == {"type": "stats-cut", "of": "stats-topic", "at_least": 2 * ROWS - 10}
    kept = sum(row.messages for row in statistics.topics.rows.values())
    assert kept + statistics.topics.rest.messages == len(names)


@given(st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)))
def test_bounds_of_tables_hold(first: list[int], second: list[int]) -> None:
    tables = []
    for keys in (first, second):
        table: Table[int, Topic] = Table(3, Topic)
        for key in keys:
            table.row(key).messages += 1
        assert len(table.rows) <= 6
        check_bounds(table, keys)
        tables.append(table)
    tables[0].merge(tables[1])
    check_bounds(tables[0], first + second)
    assert len(tables[0].rows) <= 6


def check_bounds(table: Table[int, Topic], keys: list[int]) -> None:
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


def test_memory_does_not_grow_with_what_is_counted() -> None:
    few, many = peak_of(2_000), peak_of(5_000)  # either is beyond all bounds
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
    assert statistics.not_followed == 3000 * 30 - 50_000
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

    later = Statistics()
    later.take([subscription(flow, "subscribe") for flow in (1, 2, 3)])
    later.take([connection(1), connection(2), still_open(3)])
    statistics.merge(later)
    assert (row.subscribers, row.subscribers_most) == (2, 4)


def test_a_subscription_that_was_cancelled_makes_room() -> None:
    statistics = Statistics()
    for number in range(60_000):
        statistics.take([subscription(1, "subscribe", b"%d" % number), subscription(1, "cancel", b"%d" % number)])
    topics = [b"%d" % number for number in range(30_000)]
    for flow in (2, 3):
        statistics.take([subscription(flow, "subscribe", topic) for topic in topics])
        statistics.take([connection(flow)])
    assert statistics.not_followed == 0


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


def test_merged_time_lines() -> None:
    long, short = Timeline(), Timeline()
    for second in range(20_000):
        long.add(second * 10**9, 1)
    short.add(5 * 10**9 + 1, 3)
    short.merge(long)
    assert short.width_ns == long.width_ns > 10**6
    assert sum(short.counts.values()) == 20_003


# ------------------------------------------------------------------ charts and tables


def test_bars() -> None:
    blocks = Blocks()
    assert bar(10, 10, 4, blocks) == "████"
    assert bar(5, 10, 4, blocks) == "██"
    assert bar(1, 1000, 4, blocks) == "▏"
    assert bar(0, 10, 4, blocks) == ""
    assert bar(10, 10, 4, make_blocks("ascii")) == "####"
    assert columns([0, 1, 16], 2, blocks) == ["  █", " ▁█"]
    assert columns([1, 6], 2, make_blocks("latin-1")) == [" #", ".#"]


def test_a_tiny_terminal_is_no_error() -> None:
    for capture in FIXTURES.glob("*.pcap*"):
        for width in (1, 10, 23):
            draw(report(counted(capture)), io.StringIO(), width=width)


@pytest.mark.parametrize("width", [80, 200])
def test_tables_fit_the_terminal(width: int) -> None:
    for capture in FIXTURES.glob("*.pcap*"):
        stream = io.StringIO()
        draw(report(counted(capture)), stream, utc=True, color="never", width=width)
        lines = stream.getvalue().splitlines()
        assert max(map(len, lines)) <= width, capture
        if "ipv6" not in capture.name:
            for row in counted(capture).connection_rows(20):
                assert any(row.client.address in line for line in lines), capture


def test_nothing_from_the_network_reaches_a_terminal_raw() -> None:
    evil = "\x1b]0;pwned\x07\u202e"
    octets = evil.encode()
    address = f"{evil}:1"
    client = Peer(address, evil, evil, octets)
    statistics = Statistics()
    statistics.take([published(octets), Message(1, 2, 1, address, address, [b""], latency_ns=5, request=1)])
    event = connection(1)
    event.client = event.server = client
    event.version = event.mechanism = evil
    statistics.take([event])
    stream = io.StringIO()
    draw(report(statistics), stream, color="always")
    shown = stream.getvalue()
    for sequence in ("\x1b]", "\x07", "\u202e"):
        assert sequence not in shown
    stream = io.StringIO()
    draw(report(statistics), stream, color="never")
    assert "\x1b" not in stream.getvalue()
