"""Connections that end inside a message, or when a timer wants it: who is to blame, and who is not."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import zmtpsniff
from dissectors.events import AnyEvent, Connection, Problem
from tests.analysis.findings.diagnoses import diagnose
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.net.witness import Cause, Stall

SECOND = 1_000_000_000


def every(
    name: str, *before: AnyEvent, stall: Callable[[Connection], Stall] | None = None, **changes: object
) -> list[Finding]:
    """Findings of a fixture whose connection ends in another way, with other events and a stall before that."""
    diagnosis = Diagnosis()
    for event in zmtpsniff.open(FIXTURES / f"{name}.pcap"):
        if isinstance(event, Connection):
            if stall is not None:
                diagnosis.stall(stall(event))
            diagnosis.take([*before, msgspec.structs.replace(event, **changes)])
        else:
            diagnosis.take([event])
    return diagnosis.findings()


def told(name: str, *before: AnyEvent, **changes: Any) -> list[Finding]:
    """Those of them that say how a connection ends."""
    found = every(name, *before, **changes)
    return [one for one in found if one.code in ("message-cut", "unsent-at-end", "handshake-timer")]


GAP = Problem("error", "capture-gap", "", None, None, 1)


def test_a_sender_that_closes_inside_a_message_is_named() -> None:
    (found,) = told("rec_cut_message")
    assert found.severity == "warning"
    assert found.summary.startswith("the PUSH at 127.0.0.1:")
    assert found.summary.endswith(" closed its connection to 127.0.0.1:5560 in the middle of a message")
    assert found.known == "5673 of the 20000 octets of a frame's body are missing"


def test_a_receiver_that_closes_while_jobs_wait_for_it() -> None:
    """A real PULL that was behind, and the same that takes them all first."""
    (found,) = diagnose(FIXTURES / "work/rec_unread_jobs.pcap")[:1]
    assert (found.severity, found.code, found.certainty) == ("warning", "unsent-at-end", "certain")
    pull, push = found.endpoints
    assert found.summary == (
        f"the PULL at {pull} closed its connection to {push} in the middle of a message that {push} was sending"
    )
    assert found.known == "its TCP window had been closed for 693 ms, and 2 probes did not open it"
    assert diagnose(FIXTURES / "work/rec_unread_jobs_ok.pcap") == []


def waits(to: str, cause: Cause = "window", *, is_open: bool = False) -> Callable[[Connection], Stall]:
    """The client or server of a connection lets the other side wait."""

    def stall(event: Connection) -> Stall:
        receiver, sender = event.client.address, event.server.address
        if to == "server":
            receiver, sender = sender, receiver
        return Stall(event.flow, receiver, sender, cause, event.end_ns - SECOND, event.end_ns, 9, 3, is_open)

    return stall


@pytest.mark.parametrize(
    ("name", "stall", "closed_by", "severity", "how"),
    [
        ("m31_push_pull", waits("server"), "client", "warning", "while it waited to send more"),
        ("m31_push_pull", waits("server"), "server", "warning", "waited to send more"),
        (
            "m31_push_pull",
            waits("server", "unacknowledged"),
            "client",
            "note",
            "before its last octets were acknowledged",
        ),
        ("m31_push_pull", waits("server", "unacknowledged"), "server", None, ""),  # it did not get them
        ("m31_push_pull", waits("server", "unheard"), "client", None, ""),
        ("m31_push_pull", waits("server", is_open=True), "server", None, ""),  # and no message is cut
        ("m31_pub_sub", waits("client"), "client", None, ""),  # a subscriber may leave
        ("m31_pub_sub", waits("client"), "server", "warning", "while it waited to send more"),
        ("m31_req_rep", waits("client"), "client", "note", "waited to send more"),
    ],
)
def test_what_was_never_sent_is_lost(
    name: str, stall: Callable[[Connection], Stall], closed_by: str, severity: str | None, how: str
) -> None:
    found = told(name, stall=stall, closed_by=closed_by, end="rst")
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert all(one.summary.endswith(f" {how}") for one in found)
    assert told(name, GAP, stall=stall, closed_by=closed_by, end="rst") == []
    assert told(name, stall=stall, closed_by=closed_by, end="open") == []


@pytest.mark.parametrize(
    ("closed_by", "codes"), [("server", ["unsent-at-end"]), ("client", ["unsent-at-end", "subscriber-slow"])]
)
def test_one_finding_says_that_a_receiver_is_behind_and_closes(closed_by: str, codes: list[str]) -> None:
    """If its sender closes, the receiver was slow, and the sender lost what waited."""
    stall = waits("server")
    assert [one.code for one in every("m31_push_pull", stall=stall, closed_by=closed_by, end="rst")] == codes


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("rec_cut_message", {"closed_by": "server"}),  # a receiver may close at any time
        ("rec_cut_message", {"closed_by": None}),
        ("rec_cut_message", {"end": "open"}),
        ("rec_cut_message", {"end": "timeout"}),
        ("old_peers/x_433_to_zmtp20", {"closed_by": "server"}),  # the old peer may close when it likes
    ],
)
def test_nobody_is_blamed_for_another_end(name: str, changes: dict[str, Any]) -> None:
    assert told(name, **changes) == []


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
