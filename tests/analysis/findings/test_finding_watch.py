"""Findings come and go, and each is told once."""

import msgspec
import pytest

from dissectors.events import Severity
from zmtpsniff.analysis.findings import finding_watch
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.findings.finding_watch import QUIET_NS, FindingWatch

SECOND = 1_000_000_000


def refused(count: int, place: str = "10.0.0.1:5555", severity: Severity = "error") -> Finding:
    return Finding(
        severity,
        "endpoint-refused",
        f"nobody listens at {place}",
        "a RST",
        "Start it.",
        count,
        [],
        [place],
        last_ns=count,
    )


class _Diagnosis:
    """A diagnosis whose findings a test sets."""

    def __init__(self) -> None:
        self.told: list[Finding] = []
        self.asked = 0

    def findings(self) -> list[Finding]:
        self.asked += 1
        return self.told


@pytest.fixture
def diagnosis(monkeypatch: pytest.MonkeyPatch) -> _Diagnosis:
    monkeypatch.setattr(finding_watch, "_MOST_COST", 1e9)  # a test takes no account of how slow the machine is
    return _Diagnosis()


def changes(watch: FindingWatch, second: float) -> list[tuple[str | None, int]]:
    return [(one.state, one.count) for one in watch.look(round(second * SECOND))]


def test_it_comes_once_and_goes_once(diagnosis: _Diagnosis) -> None:
    watch = FindingWatch(diagnosis.findings)
    assert changes(watch, 100) == []
    found = []
    for second in range(110, 160, 10):
        diagnosis.told = [refused(second - 100)]
        found += changes(watch, second)
    assert found == [("comes", 10)]
    assert [one.count for one in watch.active()] == [50]
    quiet = [changes(watch, second) for second in range(160, 300, 10)]
    assert [one for told in quiet for one in told] == [("goes", 50)]
    assert quiet.index([("goes", 50)]) == 5, "a minute after it happened last"
    assert watch.active() == []


def test_it_may_come_again(diagnosis: _Diagnosis) -> None:
    watch = FindingWatch(diagnosis.findings)
    diagnosis.told = [refused(3)]
    assert changes(watch, 10) == [("comes", 3)]
    assert changes(watch, 10 + QUIET_NS / SECOND) == [("goes", 3)]
    diagnosis.told = [refused(4)]
    assert changes(watch, 200) == [("comes", 1)], "only what is new"
    diagnosis.told = [refused(9)]
    assert changes(watch, 210) == []
    assert changes(watch, 300) == [("goes", 6)]


def test_a_finding_that_is_told_no_more_goes(diagnosis: _Diagnosis) -> None:
    watch = FindingWatch(diagnosis.findings)
    diagnosis.told = [refused(1), refused(1, "10.0.0.2:5555")]
    assert changes(watch, 10) == [("comes", 1)] * 2
    del diagnosis.told[0]
    assert [one.endpoints for one in watch.look(20 * SECOND)] == [["10.0.0.1:5555"]]


def test_words_and_numbers_may_change(diagnosis: _Diagnosis) -> None:
    watch = FindingWatch(diagnosis.findings)
    diagnosis.told = [refused(1)]
    assert changes(watch, 10) == [("comes", 1)]
    diagnosis.told = [msgspec.structs.replace(refused(2), summary="twice", endpoints=["10.0.0.1:5555", "10.0.0.9:1"])]
    assert changes(watch, 20) == []


def test_it_is_told_again_when_it_is_worse(diagnosis: _Diagnosis) -> None:
    watch = FindingWatch(diagnosis.findings)
    told = []
    severities: list[Severity] = ["note", "note", "warning", "note", "warning", "error", "error"]
    for count, severity in enumerate(severities, 1):
        diagnosis.told = [refused(count, severity=severity)]
        told += [(one.state, one.severity, one.count) for one in watch.look((10 + 5 * count) * SECOND)]
    assert told == [("comes", "note", 1), ("worsens", "warning", 3), ("worsens", "error", 6)]
    assert [(one.state, one.severity) for one in watch.look(200 * SECOND)] == [("goes", "error")]
    diagnosis.told = [refused(8, severity="note")]
    assert [one.state for one in watch.look(210 * SECOND)] == ["comes"]
    diagnosis.told = [refused(9, severity="error")]
    assert [one.state for one in watch.finish()] == ["worsens"], "since it came again"


def test_a_finding_may_name_another_client_each_time(diagnosis: _Diagnosis) -> None:
    watch = FindingWatch(diagnosis.findings)
    told = []
    for second in range(10, 40, 5):
        one, two = refused(second, f"10.0.0.9:4{second}01"), refused(second, f"10.0.0.8:4{second}01")
        one.endpoints.append("10.0.0.1:5555")
        two.endpoints.append("10.0.0.1:5556")
        diagnosis.told = [one, two]
        told += changes(watch, second)
    assert told == [("comes", 10)] * 2
    diagnosis.told = diagnosis.told[1:]
    assert changes(watch, 50) == [("goes", 35)]


def test_the_end_tells_what_is_new(diagnosis: _Diagnosis) -> None:
    watch = FindingWatch(diagnosis.findings)
    diagnosis.told = [refused(1)]
    assert changes(watch, 10) == [("comes", 1)]
    diagnosis.told = [refused(1), refused(1, "10.0.0.2:5555")]
    assert [(one.state, one.endpoints) for one in watch.finish()] == [("comes", ["10.0.0.2:5555"])]


def test_looks_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis = _Diagnosis()
    monkeypatch.setattr(finding_watch, "_MOST_COST", 1e-9)
    watch = FindingWatch(diagnosis.findings)
    for second in range(100):
        watch.look(second * SECOND)
    assert diagnosis.asked == 1
