"""A hole in the capture, or its disorder, explains a few losses and delays, and hides no others."""

from pathlib import Path

import pytest

import zmtpsniff
from dissectors.events import Problem
from tests.analysis.findings.diagnoses import alarms, diagnose_events
from tests.analysis.findings.test_relays import FAULTS, SYSTEMS, behind_a_broker, round_trip
from tests.analysis.ways.scenes import MS
from tests.support.two_networks import save_with_two_addresses
from tests.world.tap import load
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.relay_doubts import RelayDoubts
from zmtpsniff.analysis.findings.relay_hosts import RelayHosts
from zmtpsniff.analysis.findings.relay_places import Loss, Losses, RelayPlace
from zmtpsniff.analysis.ways.ways import Ways


def in_disorder(path: Path, by_ms: int | None) -> list[str]:
    """The codes of the alarms of a capture whose packets are said to be late, by so much if that is known."""
    disorder = Problem("note", "capture-disorder", "", by_ns=None if by_ms is None else by_ms * 1_000_000)
    return [code for code, _ in alarms(diagnose_events([disorder, *zmtpsniff.open(path)]))]


@pytest.mark.parametrize(
    ("name", "by_ms", "is_accused"),
    [
        *(("broker_sleeps", *one) for one in ((1, True), (100, False), (None, False))),
        *(("replies_dropped", *one) for one in ((1, True), (100, False), (None, False))),
        ("asking_worker_dies", None, False),  # one request seems lost
        ("worker_dies", None, False),
        ("proxy_drops", 1, True),
    ],
)
def test_disorder_of_the_order_of_a_delay_accuses_nobody(name: str, by_ms: int | None, is_accused: bool) -> None:
    """Packets may have been late by so long themselves, or a message may be taken for another one."""
    assert in_disorder(SYSTEMS / f"{name}.pcap.gz", by_ms) == [FAULTS[name][0]] * is_accused


def test_of_a_proxy_with_two_networks_disorder_hides_where_it_took_publications(tmp_path: Path) -> None:
    """Equal octets alone tell that. At one address they are enough."""
    save_with_two_addresses(load(SYSTEMS / "proxy_drops.pcap.gz"), tmp_path / "networks.pcap")
    assert in_disorder(tmp_path / "networks.pcap", 1) == []


@pytest.mark.parametrize("gap", ["", "10.0.1.1:5556"])
def test_a_gap_that_is_found_later_may_hold_what_a_broker_passed_on(gap: str) -> None:
    """One request went no further. If then octets turn out to be missing at the broker, it may have gone on."""
    scene = behind_a_broker("REQ")
    scene.connect(3, "10.0.0.3:40000", "10.0.1.1:5555", types=("REQ", "ROUTER"))
    for number in range(200):
        if number == 24:
            scene.close(3)
        if number == 20:
            scene.say(3, b"", b"20", after_ms=500)
        else:
            round_trip(scene, number, after_ms=500)
    if gap:
        scene.events.append(Problem("error", "capture-gap", "", scene.now_ns, 1, 2, gap, "10.0.2.1:40000"))
    diagnosis = Diagnosis()
    for event in scene.events:
        diagnosis.take([event])
    found = [one for one in diagnosis.findings() if one.code == "not-passed-on"]
    assert [(one.severity, one.count) for one in found] == [("note" if gap else "error", 1)]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_hole_excuses_what_was_slow_in_its_time(is_elsewhere: bool) -> None:
    """A broker held some messages for long. Octets are missing each time, or only at other times."""
    scene = behind_a_broker("REQ")
    for number in range(200):
        is_slow = number % 20 == 10
        asked_ns = scene.now_ns + 500 * MS
        round_trip(scene, number, after_ms=500, held_ms=300 if is_slow else 1)
        if is_slow != is_elsewhere:
            gap = asked_ns, 1, 2, "10.0.1.1:5556", "10.0.2.1:40000"
            scene.events.insert(-3, Problem("error", "capture-gap", "", *gap, since_ns=asked_ns))
    (found,) = [one for one in diagnose_events(scene.events) if one.code == "replies-slow"]
    assert found.severity == ("warning" if is_elsewhere else "note")
    assert "10.0.1.1:5555" in found.summary


@pytest.mark.parametrize(
    ("code", "fate", "count", "severity"),
    [
        ("not-passed-on", "not-forwarded", 1, "note"),
        ("not-passed-on", "not-forwarded", 3, "error"),
        ("request-unanswered", "unanswered", 1, "error"),  # the asker is seen to wait
        ("worker-closed", "answered-for", 1, "note"),
        ("worker-closed", "closed", 1, "error"),
    ],
)
def test_a_gap_explains_where_a_few_messages_went_on(code: str, fate: str, count: int, severity: str) -> None:
    ways, place, seen = Ways(), RelayPlace(), Occurrences(count)
    place.at = "10.0.1.1:5555"
    ways.endings.blind("10.0.1.1", has_gap=True)
    loss = Loss(place, "request", fate, Losses({("request", fate): seen}), 0)
    claim = Claim(code, "they went no further", "the ways end there", seen, [place.at], "error")
    weighed = RelayDoubts(ways, RelayHosts()).weigh_loss(claim, loss)
    assert weighed.severity == severity
    assert ("; octets are missing there" in weighed.known) is (severity == "note")
