"""Connections that end inside a message, or when a timer wants it: who is to blame, and who is not."""

import msgspec
import pytest

import zmtpsniff
from dissectors.events import AnyEvent, Connection, Problem
from tests.analysis.findings.diagnoses import diagnose
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Finding

SECOND = 1_000_000_000


def told(name: str, *before: AnyEvent, **changes: object) -> list[Finding]:
    """Findings of a fixture whose connection ends in another way, with other events before that."""
    diagnosis = Diagnosis()
    for event in zmtpsniff.open(FIXTURES / f"{name}.pcap"):
        if isinstance(event, Connection):
            diagnosis.take([*before, msgspec.structs.replace(event, **changes)])
        else:
            diagnosis.take([event])
    return [one for one in diagnosis.findings() if one.code in ("message-cut", "handshake-timer")]


GAP = Problem("error", "capture-gap", "", None, None, 1)


def test_a_sender_that_closes_inside_a_message_is_named() -> None:
    (found,) = told("rec_cut_message")
    assert found.severity == "warning"
    assert found.summary.startswith("the PUSH at 127.0.0.1:")
    assert found.summary.endswith(" closed its connection to 127.0.0.1:5560 in the middle of a message")
    assert found.known == "5673 of the 20000 octets of a frame's body are missing"


def test_a_receiver_may_close_at_any_time() -> None:
    assert told("rec_cut_message", closed_by="server") == []


@pytest.mark.parametrize("changes", [{"closed_by": None}, {"end": "open"}, {"end": "timeout"}])
def test_nobody_is_blamed_for_an_end_that_is_not_known(changes: dict[str, object]) -> None:
    assert told("rec_cut_message", **changes) == []


@pytest.mark.parametrize("name", ["rec_cut_message", "old_peers/x_433_to_zmtp20"])
def test_a_hole_may_explain_it(name: str) -> None:
    assert told(name) != []
    assert told(name, GAP) == []


def test_a_handshake_timer_that_goes_on() -> None:
    """A real libzmq 4.3.3, and the one that has the fix."""
    (found,) = told("old_peers/x_433_to_zmtp20")
    assert (found.severity, found.certainty) == ("warning", "likely")
    assert found.summary == "127.0.0.1 closes its connection to 127.0.0.1:5590 30 s after it was made"
    assert found.known == "127.0.0.1:5590 speaks ZMTP 2.0, the handshake was done, and 127.0.0.1 closes first"
    assert diagnose(FIXTURES / "old_peers/x_435_to_zmtp20.pcap")[0].code == "version-old"


@pytest.mark.parametrize("seconds", [25, 33])
def test_another_time_is_no_timer(seconds: int) -> None:
    (start_ns, *_) = [one.start_ns for one in zmtpsniff.open(FIXTURES / "old_peers/x_433_to_zmtp20.pcap").connections()]
    assert told("old_peers/x_433_to_zmtp20", end_ns=start_ns + seconds * SECOND) == []


def test_the_old_peer_may_close_when_it_likes() -> None:
    assert told("old_peers/x_433_to_zmtp20", closed_by="server") == []
