"""Differences in words: the values of each aspect, and one line for several."""

import io
from typing import Any, get_args

import pytest

from zmtpsniff.check.difference import Aspect, ComparisonSum, Difference
from zmtpsniff.check.differences_text import DifferencesText, Titles

ADDRESS = "10.0.0.1:5555"
CASES: dict[Aspect, tuple[dict[str, Any], str]] = {
    "services": ({"change": "gone", "was": ["REQ > REP"]}, "10.0.0.1:5555 is gone (REQ > REP)"),
    "handshakes": ({"summary": f"2 handshakes to {ADDRESS} fail"}, "worse handshakes 2 handshakes fail"),
    "mechanisms": ({"was": ["CURVE"], "now": ["NULL", "PLAIN"]}, "worse mechanism CURVE → NULL or PLAIN"),
    "versions": ({"was": ["3.1"], "now": ["2.0"]}, "worse version 3.1 → 2.0"),
    "sockets": ({"change": "new", "effect": "neutral", "subject": "REQ > REP"}, "new socket types REQ > REP"),
    "clients": ({"before": 3, "after": 1, "was": ["10.0.0.2"]}, "worse clients 3 → 1: 10.0.0.2 gone"),
    "subscriptions": ({"change": "gone", "subject": '"a"'}, 'gone subscription "a"'),
    "topics": ({"change": "gone", "subject": '"a"', "before": 1200}, 'gone topic "a", 1,200 messages'),
    "problems": ({"subject": "capture-gap", "before": 0, "after": 2}, "worse problems capture-gap: 0 → 2"),
    "latencies": ({"subject": "p99", "before": 10**6, "after": 3e6}, "worse reply time p99: 1 ms → 3 ms (3 times)"),
    "rates": ({"subject": "clients", "before": 2, "after": 1}, "worse rate clients send 2 → 1 messages/s (-50%)"),
    "sizes": ({"subject": "service", "before": 9, "after": 9_999}, "worse message size service sends 9 → 9,999 octets"),
}


def lines(*told: tuple[Aspect, dict[str, Any]], shown: int = 5) -> list[str]:
    """The lines below the titles and above the sum."""
    differences = [
        Difference(aspect=aspect, service=ADDRESS, **{"effect": "worse", "change": "changed", "summary": "", **values})
        for aspect, values in told
    ]
    stream = io.StringIO()
    comparison = ComparisonSum(len(told), 0, 0, 1, 0, 1.0, 1.0, [])
    DifferencesText(stream, "never", shown, 100).write(Titles("old", "new"), differences, comparison)
    return [" ".join(line.split()) for line in stream.getvalue().splitlines()[3:-2]]


@pytest.mark.parametrize("aspect", get_args(Aspect))
def test_each_aspect(aspect: Aspect) -> None:
    values, words = CASES[aspect]
    assert lines((aspect, values))[-1] == words


def test_rates_of_both_sides_that_change_alike_are_one() -> None:
    service, clients = ({"subject": subject, "before": 4, "after": 2} for subject in ("service", "clients"))
    assert lines(("rates", service), ("rates", clients))[1:] == ["worse rate each side sends 4 → 2 messages/s (-50%)"]


def test_a_few_stand_for_many() -> None:
    gone = [("topics", {"change": "gone", "subject": f'"{name}"'}) for name in "abc"]
    assert lines(*gone, shown=1)[1:] == ['gone topic "a"', "gone topic ... and 2 more gone"]  # type: ignore[arg-type]
