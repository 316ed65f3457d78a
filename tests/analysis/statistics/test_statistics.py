"""Statistics of real captures against their records; merging, filters, charts and tables."""

import io
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import zmtpsniff
from dissectors.events import AnyEvent, Connection
from tests.support.examples import sampled
from tests.support.paths import CAPTURES, FIXTURES, fixtures
from tests.support.stats_events import ALL, as_json, check_percentile
from zmtpsniff.analysis.statistics.record_maker import report
from zmtpsniff.analysis.statistics.statistics import Statistics
from zmtpsniff.render.chart import Blocks, bar, columns, make_blocks
from zmtpsniff.render.statistics_tables import draw

BOTH = [*sorted(fixtures("*.pcap*")), *sorted(CAPTURES.glob("*.pcap*"))]


def batches(capture: Path) -> Iterator[list[AnyEvent]]:
    return zmtpsniff.open(capture, payload=False).batches()


def counted(capture: Path, keep: Callable[[AnyEvent], bool] | None = None) -> Statistics:
    statistics = Statistics()
    for events in batches(capture):
        statistics.take(events, keep)
    return statistics


# ------------------------------------------------------------------ real captures


@pytest.mark.parametrize("capture", sampled(BOTH), ids=lambda path: path.name)
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
    check_publications(records, told["stats-publication"])
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


def check_publications(records: dict[str, list[dict[str, Any]]], told: list[dict[str, Any]]) -> None:
    messages, octets, alone = Counter[str](), Counter[str](), []
    for record in records["message"]:
        if "incomplete" in record or not ("matched" in record or record.get("socket_type") in ("PUB", "XPUB", "RADIO")):
            continue
        if len(record["frames"]) > 1:
            topic = key_of(record["frames"][0])
            messages[topic] += 1
            octets[topic] += sum(frame["length"] for frame in record["frames"])
        else:
            alone.append(key_of(record["frames"][0]))
    assert {key_of(row["topic"]): row["messages"] for row in told if "prefix" not in row} == messages
    assert {key_of(row["topic"]): row["octets"] for row in told if "prefix" not in row} == octets
    prefixes = [row for row in told if "prefix" in row]
    assert sum(row["messages"] for row in prefixes) == len(alone)
    for row in prefixes:
        assert sum(body.startswith(key_of(row["topic"])) for body in alone) >= row["messages"]


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
            for percent, name in ((50, "p50_ns"), (95, "p95_ns"), (99, "p99_ns")):
                check_percentile(row[name], values, percent)


# ------------------------------------------------------------------ filters


def test_a_connection_whose_own_record_passes_is_whole() -> None:
    statistics = counted(FIXTURES / "m31_req_rep.pcap", lambda event: isinstance(event, Connection))
    (row,) = statistics.connection_rows(5)
    assert row.messages.client > 0
    assert statistics.messages == 0


@pytest.mark.parametrize("capture", [path for path in BOTH if path.parent == FIXTURES], ids=lambda path: path.name)
def test_a_filter_that_lets_all_pass_changes_nothing(capture: Path) -> None:
    assert report(counted(capture, lambda event: True), ALL) == report(counted(capture), ALL)


def test_nothing_passes() -> None:
    statistics = counted(FIXTURES / "m31_req_rep.pcap", lambda event: False)
    assert [record["type"] for record in as_json(report(statistics))] == ["stats-total"]


def test_a_problem_that_the_end_of_a_connection_shows_passes() -> None:
    capture = FIXTURES / "rec_unanswered_request.pcap"
    statistics = counted(capture, lambda event: getattr(event, "code", None) == "request-unanswered")
    kinds = [record["type"] for record in as_json(report(statistics))]
    assert kinds == ["stats-connection", "stats-socket", "stats-problem", "stats-total"]


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


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_tables_fit_the_terminal(share: int) -> None:
    """A tiny one is no error."""
    for capture in fixtures("*.pcap*")[::share]:
        statistics = counted(capture)
        told = report(statistics)
        for width in (1, 10, 23, 80, 200):
            stream = io.StringIO()
            draw(told, stream, utc=True, color="never", width=width)
            lines = stream.getvalue().splitlines()
            assert width < 80 or max(map(len, lines)) <= width, capture
            if width >= 80 and "ipv6" not in capture.name:
                for row in statistics.connection_rows(20):
                    assert any(row.client.address in line for line in lines), capture
