"""Differences between two captures, and chance: services of the shop, with other numbers."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import FIXTURES
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.check.comparison import compare_services, partners, sum_up, tolerance_of_diff
from zmtpsniff.check.difference import Difference, by_harm
from zmtpsniff.check.services import ServiceProfile, Services
from zmtpsniff.dissection import open as open_capture

MS = 1_000_000
ADDRESS = "127.0.0.1:5561"
TOLERANCE = tolerance_of_diff(100)


@cache
def _read() -> Services:
    services = Services(measures=True)
    for events in open_capture(FIXTURES / "shop" / "none.pcap.gz").batches():
        services.take(events)
    return services


def _shop() -> Services:
    services = deepcopy(_read())
    service = services.services[ADDRESS]  # whose replies and sizes tests decide about
    service.latencies, service.slowest, service.sizes = Sketch(), {}, {"client": Sketch(), "server": Sketch()}
    return services


def _differences(change: Callable[[ServiceProfile, ServiceProfile], None]) -> list[Difference]:
    old, new = _shop(), _shop()
    change(old.services[ADDRESS], new.services[ADDRESS])
    return by_harm(one for each in compare_services(old, new, TOLERANCE) for one in each.differences)


def _told(differences: list[Difference]) -> list[tuple[str, str, str | None]]:
    return [(one.effect, one.aspect, one.subject) for one in differences]


def _replies(service: ServiceProfile, latencies_ns: list[int], seconds: int = 10) -> None:
    for number, latency_ns in enumerate(latencies_ns):
        service.latencies.add(latency_ns)
        second = number % seconds
        service.slowest[second] = max(latency_ns, service.slowest.get(second, 0))


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [(400, 199, "worse"), (400, 205, None), (100, 210, "neutral"), (19, 0, None), (20, 4, "worse"), (0, 19, None)],
)
def test_rates(before: int, after: int, effect: str | None) -> None:
    def change(old: ServiceProfile, new: ServiceProfile) -> None:
        old.messages.client, new.messages.client = before, after

    expected = [] if effect is None else [(effect, "rates", "clients")]
    assert _told(_differences(change)) == expected


@pytest.mark.parametrize(
    ("slow", "seconds", "told"),
    [
        (40, 10, [("worse", "latencies", "p99")]),
        (12, 10, []),  # of 1,000: ten are likely, and two more are chance
        (40, 2, []),  # one pause of the machine
    ],
)
def test_the_slowest_replies(slow: int, seconds: int, told: list[tuple[str, str, str]]) -> None:
    def change(old: ServiceProfile, new: ServiceProfile) -> None:
        _replies(old, [MS] * 1000)
        _replies(new, [MS] * (1000 - slow))
        _replies(new, [50 * MS] * slow, seconds)

    assert _told(_differences(change)) == told


def test_a_median_that_is_one_of_two_modes_is_no_difference() -> None:
    def modes(old: ServiceProfile, new: ServiceProfile) -> None:
        _replies(old, [5 * MS] * 60 + [90 * MS] * 40)
        _replies(new, [5 * MS] * 40 + [90 * MS] * 60)

    def slower(old: ServiceProfile, new: ServiceProfile) -> None:
        _replies(old, [5 * MS] * 60)
        _replies(new, [15 * MS] * 60)

    assert _differences(modes) == []
    assert _told(_differences(slower)) == [("worse", "latencies", "p50")]


def test_a_median_of_sizes() -> None:
    def change(old: ServiceProfile, new: ServiceProfile) -> None:
        for _ in range(100):
            old.sizes["client"].add(100)
            new.sizes["client"].add(400)

    (found,) = _differences(change)
    assert (found.aspect, found.effect, found.before, found.after, found.unit) == (
        "sizes", "neutral", 100, 400, "octets"
    )  # fmt: skip
    assert found.factor == pytest.approx(4, rel=0.05)


def test_problems_that_are_new_and_those_that_are_rarer() -> None:
    def change(old: ServiceProfile, new: ServiceProfile) -> None:
        old.problems.update({"rare": 2, "often": 40})
        new.problems.update({"new": 1})

    assert _told(_differences(change)) == [
        ("worse", "problems", "new"),
        ("better", "problems", "often"),
    ]


@pytest.mark.parametrize(
    ("after", "was", "now"), [(["a", "c"], ["b"], ["c"]), (["a", "b", "c"], [], ["c"]), (["x", "y"], [], [])]
)
def test_identities_of_clients(after: list[str], was: list[str], now: list[str]) -> None:
    """All of them are other ones if each run makes them up."""

    def change(old: ServiceProfile, new: ServiceProfile) -> None:
        (example,) = old.clients.values()
        for profile, names in ((old, ["a", "b"]), (new, after)):
            for name in names:
                profile.names.add(name, example)

    assert [(one.aspect, one.was, one.now) for one in _differences(change)] == (
        [("clients", was, now)] if was or now else []
    )


def test_a_topic_that_a_shorter_capture_would_not_have_shown() -> None:
    def change(old: ServiceProfile, new: ServiceProfile) -> None:
        old.topics.counts[b"hourly"] = 4
        old.topics.counts[b"steady"] = 50

    assert _told(_differences(change)) == [("worse", "topics", '"steady"')]


def test_the_worst_comes_first_and_the_sum_counts() -> None:
    old, new = _shop(), _shop()
    del new.services["127.0.0.1:5567"]
    old.services[ADDRESS].messages.client = 40
    new.services[ADDRESS].messages.client = 400
    compared = compare_services(old, new, TOLERANCE)
    differences = by_harm(one for each in compared for one in each.differences)
    assert [one.aspect for one in differences] == ["services", "rates"]
    told = sum_up(old, new, TOLERANCE, compared, differences)
    assert (told.worse, told.neutral, told.better, told.services, told.alike) == (1, 1, 0, 6, 5)


def test_two_services_of_one_kind_are_not_taken_for_moved() -> None:
    """Ports tell them apart on other hosts; without these nothing does."""
    old, new = _shop(), _shop()
    for services, hosts in ((old, ("10.0.0.1", "10.0.0.2")), (new, ("10.0.0.3", "10.0.0.4"))):
        service = services.services.pop("127.0.0.1:5567")
        for host, port in zip(hosts, (5567, 5568), strict=True):
            twin = ServiceProfile(f"{host}:{port if services is old else 6000}")
            twin.connections, twin.pairs, twin.socket_types = 1, service.pairs, service.socket_types
            services.services[twin.address] = twin
    assert partners(old, new, TOLERANCE).keys() == old.services.keys() & new.services.keys()
    for service in list(new.services.values()):
        if service.address.endswith(":6000"):
            del new.services[service.address]
            service.address = service.address.replace("6000", "5567" if "0.3" in service.address else "5568")
            new.services[service.address] = service
    assert partners(old, new, TOLERANCE)["10.0.0.2:5568"] == "10.0.0.4:5568"


@given(st.integers(0, 500), st.integers(0, 500))
def test_both_ways_tell_the_same_differences(before: int, after: int) -> None:
    def change(old: ServiceProfile, new: ServiceProfile) -> None:
        old.messages.client, new.messages.client = before, after

    def back(old: ServiceProfile, new: ServiceProfile) -> None:
        new.messages.client, old.messages.client = before, after

    one, other = _differences(change), _differences(back)
    assert len(one) == len(other)
    assert {each.effect for each in one + other} in (set(), {"worse", "neutral"})
