"""Workers of a PUSH under CURVE that stop, seen by who sends boxes to whom."""

import pytest

from dissectors.events import Problem
from tests.analysis.findings.test_sealed_requests import MS, Boxes

PUSH, SINK = "10.0.0.1:5000", "10.0.0.2:6000"
JOBS = ["10.0.0.11:41001", "10.0.0.12:41002", "10.0.0.13:41003"]
RESULTS = ["10.0.0.11:42001", "10.0.0.12:42002", "10.0.0.13:42003"]


def pipeline(*, stopped_ms: int = 10_000, part: int = 1, local: bool = False, control: bool = False) -> Boxes:
    """Three workers get a job each tenth of a second, for 20 s; the second one stops, and each gives 1 of ``part``."""
    boxes = Boxes()
    worker_jobs, worker_results = JOBS, RESULTS
    if local:
        worker_jobs, worker_results = ([f"127.0.0.1:{one[-5:]}" for one in ends] for ends in (JOBS, RESULTS))
    for jobs, results in zip(worker_jobs, worker_results, strict=True):
        boxes.connect(jobs, PUSH, 20, 20)
        boxes.connect(results, SINK, 20, 20)
    if control:
        boxes.connect("10.0.0.12:43000", SINK, 20, 20)
        boxes.say(0, SINK, "10.0.0.12:43000", 5)
    for number in range(200):
        for place, (jobs, results) in enumerate(zip(worker_jobs, worker_results, strict=True)):
            boxes.say(number * 100, PUSH, jobs, 30)
            if number % part == 0 and not (place == 1 and number * 100 >= stopped_ms):
                boxes.say(number * 100 + 10, results, SINK, 20)
    return boxes


def test_a_worker_that_stops_while_others_do_not() -> None:
    ((code, summary),) = pipeline().alarms(20_000)
    assert code == "worker-silent"
    assert summary == (
        f"the worker {JOBS[1]} of {PUSH} says nothing any more: 100 messages went to it in 10 s, while others go on"
    )


def test_a_worker_that_stops_and_closes() -> None:
    boxes = pipeline(stopped_ms=18_000)
    boxes.close(20_000, JOBS[1])
    for number in range(30):
        boxes.say(20_000 + number * 100, PUSH, JOBS[0], 30)
        boxes.say(20_010 + number * 100, RESULTS[0], SINK, 20)
    ((code, summary),) = boxes.alarms(24_000)
    assert code == "worker-closed"
    assert f"the worker {JOBS[1]} of {PUSH} closed its connection with 20 messages in hand" in summary


@pytest.mark.parametrize(
    "boxes",
    [
        pytest.param(pipeline(stopped_ms=20_000), id="nobody stops"),
        pytest.param(pipeline(stopped_ms=17_000), id="not for long"),
        pytest.param(pipeline(part=60), id="it never says much"),
        pytest.param(pipeline(local=True), id="programs of one host"),
        pytest.param(pipeline(control=True), id="it gets something else, too"),
    ],
)
def test_workers_that_may_be_healthy(boxes: Boxes) -> None:
    assert not boxes.alarms(20_000)


def test_sockets_of_which_both_sides_speak() -> None:
    """These are XPUB and XSUB, or PAIRs."""
    boxes = pipeline()
    boxes.say(19_990, JOBS[1], PUSH, 20)
    assert not boxes.alarms(20_000)


def test_octets_that_are_missing_may_be_results() -> None:
    boxes = pipeline()
    flow = next(one.flow for one in boxes.events if getattr(one, "src", "") == RESULTS[1])  # type: ignore[union-attr]
    boxes.events.append(Problem("error", "capture-gap", "", 15_000 * MS, 1, flow, RESULTS[1], SINK))
    assert not boxes.alarms(20_000)
