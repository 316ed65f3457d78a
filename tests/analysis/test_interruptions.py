"""Captures that do not meet: silence while nothing was captured accuses nobody."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import zmtpsniff
from tests.analysis.findings.diagnoses import diagnose
from tests.support.paths import FIXTURES
from tests.support.runner import run
from tests.world.tap import load, save_pcapng
from zmtpsniff.analysis.interruptions import INTERRUPTED, Interruptions, interruption
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.merge import APART_NS

HOUR_NS = 3600 * 10**9
OPEN = {  # captures of healthy systems, and a share of each at which requests and replies are on their way
    "answers_in_any_order_brokered": 0.564,
    "app_ipyparallel": 0.59,
    "calls_in_messagepack": 0.5,
    "capture_socket": 0.599,
    "clone": 0.385,
    "replies_out_of_order": 0.393,
    "titanic": 0.71,
    "workers_ask_again": 0.723,
}


def later(packets: Sequence[Packet], by_ns: int) -> list[Packet]:
    return [(packet[0] + by_ns, *packet[1:]) for packet in packets]


def apart(folder: Path, first: Sequence[Packet], second: Sequence[Packet], by_ns: int) -> list[Path]:
    """Two captures, of which the second begins so long behind the end of the first."""
    moved = later(second, max(packet[0] for packet in first) + by_ns - second[0][0])
    return [save_pcapng(folder / "first.pcapng", first), save_pcapng(folder / "second.pcapng", moved)]


def test_shown_until() -> None:
    interruptions = Interruptions()
    assert interruptions.shown_until(5, 100) == 100
    for since_ns, until_ns in ((10, 20), (50, 80)):
        assert interruptions.take(interruption(since_ns, until_ns))
    assert interruptions.lasted_ns == 40
    assert [interruptions.shown_until(time_ns, 100) for time_ns in (5, 10, 11, 51)] == [10, 10, 50, 100]
    assert interruptions.shown_until(5, 8) == 8


@pytest.mark.parametrize("name", OPEN)
def test_what_is_open_when_a_capture_ends_is_no_fault(tmp_path: Path, name: str) -> None:
    packets = load(FIXTURES / "healthy" / f"{name}.pcap.gz")
    first = packets[: int(len(packets) * OPEN[name])]
    files = apart(tmp_path, first, load(FIXTURES / "healthy" / "ventilator.pcap.gz"), HOUR_NS)
    assert [one.summary for one in diagnose(*files) if one.severity != "note"] == []


def test_a_worker_that_was_silent_before_is_told() -> None:
    """As in its capture alone, and with the time that the capture shows."""
    files = [FIXTURES / "rec_unanswered_request.pcap", FIXTURES / "healthy" / "ventilator.pcap.gz"]
    (alone,) = diagnose(files[0])
    assert alone.summary in [one.summary for one in diagnose(*files)]


@pytest.mark.parametrize(("by_ns", "is_told"), [(APART_NS, True), (APART_NS - 1, False)])
def test_the_interruption_is_told(tmp_path: Path, by_ns: int, is_told: bool) -> None:
    packets = load(FIXTURES / "m31_req_rep.pcap")
    files = apart(tmp_path, packets[:20], packets[20:], by_ns)
    with zmtpsniff.open(*map(str, reversed(files))) as capture:
        told = [one.detail for one in capture.problems() if one.code == INTERRUPTED]
    assert told == ["nothing was captured for 60 s between two captures"][: int(is_told)]


def test_no_interruption_while_another_capture_goes_on(tmp_path: Path) -> None:
    packets = load(FIXTURES / "m31_req_rep.pcap")
    files = apart(tmp_path, packets[:20], packets[20:], HOUR_NS)
    beside = [packets[0], *later(packets[1:2], 2 * HOUR_NS)]
    files.append(save_pcapng(tmp_path / "beside.pcapng", beside))
    with zmtpsniff.open(*map(str, files)) as capture:
        assert [one for one in capture.problems() if one.code == INTERRUPTED] == []


def test_a_connection_goes_on_after_an_interruption(tmp_path: Path) -> None:
    """A request is in one capture, and its reply in the next one."""
    packets = load(FIXTURES / "m31_req_rep.pcap")
    with zmtpsniff.open(str(FIXTURES / "m31_req_rep.pcap")) as capture:
        replies = [one for one in capture.messages() if one.request is not None]
    first = replies[1].packet - 1
    files = apart(tmp_path, packets[:first], packets[first:], HOUR_NS)
    with zmtpsniff.open(*map(str, files)) as capture:
        found = [one for one in capture.messages() if one.request is not None]
    assert [(one.packet, one.request) for one in found] == [(one.packet, one.request) for one in replies]


def test_a_way_ends_with_the_capture(tmp_path: Path) -> None:
    packets = load(FIXTURES / "healthy" / "workers_ask_again.pcap.gz")
    first = packets[: int(len(packets) * OPEN["workers_ask_again"])]
    files = apart(tmp_path, first, load(FIXTURES / "healthy" / "ventilator.pcap.gz"), HOUR_NS)
    lost = run("trace", "--lost", "-T", "json", *map(str, files)).stdout
    assert {way["ended"]["why"] for way in map(json.loads, lost.splitlines()) if "ended" in way} == {"capture-ended"}


def test_rates_are_those_of_the_time_that_was_captured(tmp_path: Path) -> None:
    packets = load(FIXTURES / "healthy" / "clone.pcap.gz")
    files = [str(path) for path in apart(tmp_path, packets, load(FIXTURES / "m31_req_rep.pcap"), 24 * HOUR_NS)]
    (alone,) = (
        json.loads(line) for line in run("stats", "-T", "json", files[0]).stdout.splitlines() if "-total" in line
    )
    records = [json.loads(line) for line in run("stats", "-T", "json", *files).stdout.splitlines()]
    (total,) = (one for one in records if one["type"] == "stats-total")
    assert total["interrupted_ns"] == 24 * HOUR_NS
    assert 0 < total["duration_ns"] - total["interrupted_ns"] - alone["duration_ns"] < 10**9
    lasted = [one["duration_ns"] for one in records if one["type"] == "stats-connection"]
    assert max(lasted) <= alone["duration_ns"]
    for passes in ('type == "message"', f'code == "{INTERRUPTED}"'):
        records = [json.loads(line) for line in run("stats", "-T", "json", "-Y", passes, *files).stdout.splitlines()]
        assert records[-1]["interrupted_ns"] == 24 * HOUR_NS
    assert records[-1]["problems"] == 1
    text = run("stats", *files).stdout
    assert "(24 h 0 min of that between captures), " in text.splitlines()[0]
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[rule]]\nname = "busy"\nexpect = "type == \\"message\\""\nmin = 1\nper = "second"\nmean = true\n'
    )
    assert run("check", "--policy", str(policy), *files).returncode == 0
