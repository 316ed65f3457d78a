"""Claims of one cause: who waits for somebody is no culprit, but somebody is."""

import pytest

from zmtpsniff.analysis.findings.causes import excuse_who_is_slow_with, excuse_who_waits
from zmtpsniff.analysis.findings.finding import Claim, Occurrences

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def unanswered(host: str, asker: str) -> Claim:
    """A service on a host does not answer another one."""
    seen = Occurrences.of([(1_000_000_000, 1, 1)])
    return Claim("request-unanswered", f"{host} does not answer", "seen", seen, [f"{host}:5555"], waiting={asker})


def severities(claims: list[Claim], answered: bool = False) -> list[str | None]:
    return [claim.severity for claim in excuse_who_waits(claims, lambda _: answered)]


def test_the_last_of_a_chain_is_to_blame() -> None:
    chain = [unanswered(HOSTS[1], HOSTS[0]), unanswered(HOSTS[2], HOSTS[1])]
    assert severities(chain) == ["note", None]


def test_services_that_wait_for_each_other_in_a_circle_are_all_told() -> None:
    circle = [unanswered(host, HOSTS[place - 1]) for place, host in enumerate(HOSTS)]
    assert severities(circle) == [None] * 3


@pytest.mark.parametrize("answered", [False, True])
def test_a_service_that_has_answered_had_all_that_it_needs(answered: bool) -> None:
    seen = Occurrences.of([(0, 1, 2)])
    refused = Claim("endpoint-refused", "nobody listens", "seen", seen, [f"{HOSTS[0]}:5599"])
    assert severities([unanswered(HOSTS[0], HOSTS[1]), refused], answered) == [None if answered else "note", None]


MS = 1_000_000


def slow(host: str, *spells: tuple[int, int]) -> Claim:
    """A service on a host is slow in these spells, in milliseconds."""
    seen = Occurrences.of([(spells[0][1] * MS, 1, 1)])
    times = [(begin * MS, end * MS) for begin, end in spells]
    return Claim("replies-slow", f"{host} is slow", "seen", seen, [f"{host}:5555"], spells=times)


@pytest.mark.parametrize(
    ("inner", "severity"),
    [
        ([(110, 390), (1120, 1380)], "note"),  # within each, and most of it
        ([(110, 390), (1120, 1380), (5000, 5900)], "note"),
        ([(110, 390)], None),  # in one of two
        ([(110, 130), (1120, 1140)], None),  # they explain little of it
        ([(90, 390), (1090, 1380)], None),  # the other one was slow before
    ],
)
def test_a_service_is_not_slow_if_each_of_its_slow_replies_holds_one_of_another(
    inner: list[tuple[int, int]], severity: str | None
) -> None:
    """It may ask the other one from an address that nobody knows to be its own."""
    claims = excuse_who_is_slow_with([slow(HOSTS[0], (100, 400), (1100, 1400)), slow(HOSTS[1], *inner)])
    assert [claim.severity for claim in claims] == [severity, None]
    assert ("perhaps it waits for 10.0.0.2:5555" in claims[0].summary) == (severity == "note")


@pytest.mark.parametrize(("after_ms", "severity"), [(-900, "note"), (900, "note"), (1100, None)])
def test_a_service_that_stops_just_when_another_one_goes_away_may_wait_for_it(
    after_ms: int, severity: str | None
) -> None:
    seen = Occurrences.of([(1000 * MS - after_ms * MS, 1, 1)])
    away = Claim("endpoint-refused", "nobody listens any more", "seen", seen, [f"{HOSTS[1]}:5432"])
    assert severities([unanswered(HOSTS[0], HOSTS[2]), away], answered=True) == [severity, None]
    assert severities([unanswered(HOSTS[0], HOSTS[2]), away]) == [None, None]
