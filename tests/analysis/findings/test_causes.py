"""Claims of one cause: who waits for somebody is no culprit, but somebody is."""

import pytest

from zmtpsniff.analysis.findings.causes import excuse_who_waits
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
