"""Connections on which nothing passes: who forgot them, and where nothing says so."""

import pytest

from dissectors.events import AnyEvent, Capture, Connection, Peer, Problem, Sides
from tests.analysis.findings.diagnoses import alarms, diagnose
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.analysis.findings.idleness import IdleConnections
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators
from zmtpsniff.net.witness import Pause

FIREWALL = FIXTURES / "firewall"
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("name", "then"),
    [
        ("silence", "10.77.0.1:5599 sent the same octets 6 times more, and nobody acknowledged them"),
        ("reset", "a RST answered what 10.77.0.1:5599 sent"),
    ],
)
def test_a_firewall_that_forgot_the_connection(name: str, then: str) -> None:
    """It is the only finding: the subscriber, which acknowledges nothing any more, is not to blame."""
    (found,) = [one for one in diagnose(FIREWALL / f"{name}.pcap") if one.severity != "note"]
    assert (found.code, found.certainty) == ("connection-forgotten", "likely")
    assert found.summary.startswith("the connection between the PUB at 10.77.0.1:5599 and the SUB at 10.77.0.2:")
    assert found.summary.endswith(" did not outlive 66 s of silence")
    assert found.known.endswith(f"; then {then}")


def test_heartbeats_keep_it() -> None:
    assert alarms(diagnose(FIREWALL / "heartbeats.pcap")) == []


@pytest.mark.parametrize("name", ["silence", "reset"])
def test_a_hole_may_have_been_the_heartbeats(name: str) -> None:
    diagnosis = Diagnosis()
    for events in open_files([FIREWALL / f"{name}.pcap"], Settings(), Collaborators(witness=diagnosis)).batches():
        for event in events:
            gap: list[AnyEvent] = []
            if isinstance(event, Connection):
                gap = [Problem("error", "capture-gap", "", None, None, event.flow)]
            diagnosis.take([*gap, event])
    assert alarms(diagnosis.findings()) == []


def claimed(
    quiet: float, *, end: str = "open", closed_by: str | None = None, host: str = "10.0.0.9", dropped: int = 0
) -> list[Claim]:
    """The claims about a connection that a packet of the server ended a silence of."""
    inquiry = IdleConnections()
    server, until_ns = "10.0.0.5:5555", round(quiet * SECOND)
    client = f"{host}:40000"
    inquiry.pause(Pause(1, server, 0, until_ns, 0, 0))
    zero = Sides(0, 0)
    over = Connection(1, "tcp", Peer(client), Peer(server), zero, zero, 0, until_ns, end, closed_by=closed_by)  # type: ignore[arg-type]
    inquiry.end(Dossier(1), over, until_ns)
    inquiry.totals(Capture(1, dropped, 1, 1, 0, 0, until_ns))
    return list(inquiry.claims(until_ns))


def test_a_silence_of_minutes_is_a_note() -> None:
    (claim,) = claimed(250)
    assert claim.code == "connection-idle"
    assert claim.summary == "nothing passes for up to 4 min on 1 connection of 10.0.0.9 to 10.0.0.5:5555"


def test_a_silence_to_the_end_is_one_too() -> None:
    inquiry = IdleConnections()
    zero = Sides(0, 0)
    inquiry.end(
        Dossier(1), Connection(1, "tcp", Peer("10.0.0.9:1"), Peer("10.0.0.5:2"), zero, zero, 0, 0, "open"), 300 * SECOND
    )
    assert [claim.code for claim in inquiry.claims(300 * SECOND)] == ["connection-idle"]


@pytest.mark.parametrize("by", ["rst", "fin"])
def test_who_closes_after_a_silence_may_have_reason_to(by: str) -> None:
    assert [claim.code for claim in claimed(100, end=by, closed_by="server")] == []


@pytest.mark.parametrize(
    ("quiet", "code"), [(240.2, "connection-forgotten"), (299.5, "connection-forgotten"), (250, "connection-idle")]
)
def test_a_reset_after_whole_minutes_is_that_of_a_timer(quiet: float, code: str) -> None:
    assert [claim.code for claim in claimed(quiet, end="rst", closed_by="server")] == [code]


def test_nothing_forgets_on_one_host_and_nothing_is_known_where_packets_are_missing() -> None:
    assert claimed(300, host="10.0.0.5") == []
    assert claimed(300, dropped=1) == []
    assert claimed(100) == []
