"""Where messages wait or end in systems of older libraries: the place is named as far as the wire tells it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analysis.findings.diagnoses import accused, diagnose
from tests.analysis.findings.test_relays import FAULTS, SYSTEMS, fault
from tests.support.examples import crossed
from tests.world.older_peers import Version, with_older_peers
from tests.world.tap import load, save

# ZMTP 2.0 has neither RADIO nor DISH, and its peers do not part where their types do not fit.
_NOT_IN_2_0 = {("wrong_group", (2, 0)), ("database_mistyped", (2, 0))}
# ZMTP 1.0 has no types. It is not known who asks where nothing repeats, or who ends a connection in the middle of work.
# A SUB says no topics.
_UNKNOWN_IN_1_0 = {
    "agent_stops", "dealt_worker_slow", "engine_dies", "engine_slow", "engine_stops", "szrpc_worker_freezes",
    "worker_freezes", "worker_vanishes", "worker_dies", "topic_misspelt", "wrong_group", "database_mistyped",
    "no_service", "stealing_worker_stops",
}  # fmt: skip


def found(name: str, version_of: Callable[[str], Version], folder: Path) -> set[tuple[str, str]]:
    """The findings of a system whose hosts have these versions, with their places."""
    path = folder / "older.pcap"
    save(path, with_older_peers(load(SYSTEMS / f"{name}.pcap.gz"), version_of))
    return accused(diagnose(path))


@pytest.mark.parametrize(
    ("name", "version"),
    [one for one in crossed([*FAULTS, "healthy_service"], [(2, 0), (3, 0)]) if one.values not in _NOT_IN_2_0],
)
def test_the_place_is_named_where_types_are_announced(name: str, version: Version, tmp_path: Path) -> None:
    assert found(name, lambda _: version, tmp_path) == fault(name)


@pytest.mark.parametrize("name", sorted({*FAULTS, "healthy_service"} - _UNKNOWN_IN_1_0))
def test_the_place_is_named_where_messages_show_the_types(name: str, tmp_path: Path) -> None:
    assert found(name, lambda _: (1, 0), tmp_path) == fault(name)


@pytest.mark.parametrize("name", sorted(_UNKNOWN_IN_1_0))
def test_no_other_place_is_named_where_types_are_not_known(name: str, tmp_path: Path) -> None:
    assert {place for _, place in found(name, lambda _: (1, 0), tmp_path)} <= {FAULTS[name][1]}


SUBSCRIBERS = {"10.9.0.47", "10.9.0.53", "10.9.0.49"}  # two of them have the topics of the third one


@pytest.mark.parametrize("old", [SUBSCRIBERS, {"10.9.0.47", "10.9.0.49"}])
def test_a_proxy_with_old_subscribers_is_named(old: set[str], tmp_path: Path) -> None:
    """Where one of its peers shows the type of its socket, it has that for the others."""
    assert found("proxy_drops", lambda host: (1, 0) if host in old else (3, 1), tmp_path) == fault("proxy_drops")


@pytest.mark.parametrize("old", [{"10.9.0.36"}, {"10.9.0.46", "10.9.0.41", "10.9.0.50", "10.9.0.53"}])
def test_a_worker_between_peers_of_two_versions_is_named(old: set[str], tmp_path: Path) -> None:
    """A sink that says nothing but its signature has not greeted; a worker of ZMTP 1.0 may take or send any kind."""
    assert found("jobs_queue", lambda host: (1, 0) if host in old else (3, 1), tmp_path) == fault("jobs_queue")


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_the_way_to_a_far_worker_is_not_held_against_it(version: Version, tmp_path: Path) -> None:
    path = tmp_path / "older.pcap"
    save(path, with_older_peers(load(SYSTEMS / "far_worker.pcap.gz"), lambda _: version))
    (slow,) = (one for one in diagnose(path) if one.code == "replies-slow")
    assert "not at the service" in slow.advice
    assert slow.summary.startswith("messages wait in the network between 10.9.0.15:51378 and its peers")
