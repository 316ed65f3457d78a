"""The queue of a program that passes messages on: in minus out."""

import json
from collections.abc import Sequence

import pytest

from tests.analysis.findings.diagnoses import diagnose
from tests.support.paths import FIXTURES
from tests.support.runner import run
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.analysis.findings.queues import QueueCount
from zmtpsniff.analysis.ways.hops import Hop, OpenWay, Receipts, RequestCount, SharedFacts, Stream
from zmtpsniff.analysis.ways.way_records import Kind

Times = Sequence[tuple[float, float | None]]
MS = 1_000_000
BROKERS = FIXTURES / "brokers/two_brokers.pcap.gz"
RELAY, NEXT = "10.0.0.2:5555", "10.0.0.2:40000"


def message(at_ms: float, src: str, dst: str, kind: Kind = "job", *, is_guess: bool = False) -> Hop:
    stream = Stream("PUSH", "PULL", "", "", RequestCount(), SharedFacts(), Receipts())
    hop = Hop(src, dst, 1, 1, round(at_ms * MS), 1, stream, [])
    hop.joined, hop.certain = ("body", False) if is_guess else ("order", True)
    OpenWay.begin(kind, hop)
    return hop


def count(times: Times, kind: Kind = "job", *, is_guess: bool = False) -> QueueCount:
    """Messages that were taken and passed on at these times, in milliseconds."""
    made = QueueCount()
    for taken, passed in times:
        hop = message(taken, "10.0.0.1:5555", RELAY, kind)
        if passed is None:
            made.hold(hop)
        else:
            made.add(hop, message(passed, NEXT, "10.0.0.3:5555", kind, is_guess=is_guess))
    return made


def claims(times: Times, kind: Kind = "job", *, waited: str = "") -> list[Claim]:
    return list(count(times, kind).claims([waited]))


SLOW = [(10 * number, 10 * number + 30 * number) for number in range(200)]  # four times as long as they come
STUCK = [(taken, passed if passed <= 2000 else None) for taken, passed in SLOW]


def test_a_program_that_is_slower_than_its_jobs_come() -> None:
    (found,) = diagnose(FIXTURES / "work/rec_growing_queue.pcap")
    assert (found.severity, found.code, found.certainty) == ("warning", "queue-grows", "possible")
    assert "132 messages in 1.4 s: what came last would wait some 3.4 s; 122 were left in the end" in found.summary
    assert diagnose(FIXTURES / "work/rec_growing_queue_ok.pcap") == []


def test_what_it_holds_is_its_queue() -> None:
    row = count(STUCK).row()
    assert (row.program, row.taken, row.passed, row.most, row.left) == (RELAY, 200, 51, 150, 149)
    assert abs(row.most_ns - 2_000 * MS) <= 100 * MS


def test_what_ended_there_was_taken() -> None:
    rows = [json.loads(line) for line in run("stats", "-T", "json", BROKERS).stdout.splitlines()]
    queues = [row for row in rows if row["type"] == "stats-queue"]
    assert [(row["taken"], row["passed"], row.get("ended", 0), row["left"]) for row in queues] == [
        (203, 203, 0, 0),
        (203, 198, 5, 0),  # as the finding says
    ]
    assert all(row["most"] for row in queues)


def test_more_may_end_there_than_are_remembered() -> None:
    row = count([(number, None) for number in range(5000)] + [(5000, 5001), (5002, None)]).row()
    assert (row.taken, row.passed, row.left, row.ended) == (5002, 1, 1, 5000)


@pytest.mark.parametrize(
    ("times", "kind", "waited", "severity"),
    [
        (STUCK, "job", "", None),
        (STUCK, "publication", "", None),
        (STUCK, "job", NEXT, "note"),  # the next one had no room
        (STUCK, "request", "", "note"),  # workers may be too few
        (SLOW, "job", "", "note"),  # it drained
    ],
)
def test_it_grows(times: Times, kind: Kind, waited: str, severity: str | None) -> None:
    (claim,) = claims(times, kind, waited=waited)
    assert (claim.code, claim.severity, claim.subject) == ("queue-grows", severity, RELAY)


@pytest.mark.parametrize(
    "times",
    [
        [(10.0 * number, 10.0 * number + 5) for number in range(200)],
        [(0.1 * number, 10.0 * number) for number in range(400)],  # a burst drains
        STUCK[:80],  # for less than a second
        [(100.0 * number, None if number % 2 else 100.0 * number + 5) for number in range(30)],  # few
        [(10.0 * number, None if number % 4 else 10.0 * number + 5) for number in range(400)],  # it drops some
        [(1.0 * number, 1.0 * number + 40) for number in range(3000)],  # many at a time, and none waits for long
    ],
)
def test_it_does_not_grow(times: Times) -> None:
    assert claims(times) == []


def test_long_captures_have_longer_intervals() -> None:
    made = count([(1000.0 * number, 1000.0 * number + 1) for number in range(5000)])
    assert len(made.levels()) <= 1200
    assert made.row().most <= 1


def test_equal_octets_are_possible_only() -> None:
    (claim,) = count(STUCK, is_guess=True).claims([])
    assert claim.certainty == "possible"


def test_a_table_shows_a_queue_that_is_possible_only_if_a_finding_says_that_it_grows() -> None:
    # The output of a Jupyter kernel comes of requests that it answers itself.
    for name, count_of_rows in (("rec_proxy.pcap", 1), ("work/rec_growing_queue.pcap", 1), ("app_jupyter.pcap", 0)):
        rows = [json.loads(line) for line in run("stats", "-T", "json", FIXTURES / name).stdout.splitlines()]
        assert sum(row["type"] == "stats-queue" for row in rows) == count_of_rows
