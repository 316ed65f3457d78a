"""Lengths of time, in nanoseconds and in words."""

from datetime import datetime

import pytest

from zmtpsniff.words.durations import about, brief, duration, nanoseconds, parse_time, unix_ns

MS = 1_000_000


@pytest.mark.parametrize(
    ("length_ns", "exact", "short", "said"),
    [
        (850_000, "0.850 ms", "850 us", "850 us"),
        (1_011_000, "1.011 ms", "1.01 ms", "1.01 ms"),
        (0, "0.000 ms", "0 ns", "0 ns"),
        (999_499, "0.999 ms", "999 us", "999 us"),
        (999_999, "1.000 ms", "1 ms", "1 ms"),
        (999_999_999, "1.000 s", "1 s", "1 s"),
        (9_960 * MS, "9.960 s", "9.96 s", "10 s"),
        (60_000 * MS - 1, "1 min 0 s", "60 s", "60 s"),
        (350 * MS, "350.000 ms", "350 ms", "350 ms"),
        (1250 * MS, "1.250 s", "1.25 s", "1.2 s"),
        (30_000 * MS, "30.000 s", "30 s", "30 s"),
        (125_000 * MS, "2 min 5 s", "2 min 5 s", "125 s"),
        (7_500_000 * MS, "2 h 5 min", "2 h 5 min", "125 min"),
        (98_160_000 * MS, "27 h 16 min", "27 h 16 min", "27 h"),
        (518_400_000 * MS, "144 h 0 min", "144 h 0 min", "6 days"),
    ],
)
def test_a_length_of_time(length_ns: int, exact: str, short: str, said: str) -> None:
    assert [duration(length_ns), brief(length_ns), about(length_ns)] == [exact, short, said]


@pytest.mark.parametrize(("seconds", "length_ns"), [(0.5, 500 * MS), (3, 3000 * MS), (float("inf"), 10**18)])
def test_a_limit_may_be_infinite(seconds: float, length_ns: int) -> None:
    assert nanoseconds(seconds) == length_ns


@pytest.mark.parametrize(
    "text", ["1970-01-01T00:00:00+00:00", "2026-11-21T18:00:00.123456+01:00", "1969-12-31T23:59:59.5+00:00"]
)
def test_a_time_is_a_length_since_1970(text: str) -> None:
    time = datetime.fromisoformat(text)
    assert unix_ns(time) == round(time.timestamp() * 1_000_000) * 1000


def test_times() -> None:
    assert parse_time("1970-01-02") == 86_400 * 1_000_000_000
    assert parse_time("2026-11-21T14:00:00.5+01:00") == 1_795_266_000_500_000_000
    with pytest.raises(ValueError, match="'yesterday' is no time"):
        parse_time("yesterday")
