"""Connections that only grow, and others of which there are as many."""

from typing import NamedTuple

import pytest

from dissectors.events import Capture, Connection, Peer, Sides
from tests.analysis.findings.diagnoses import diagnose
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.growth import Growth

SECOND = 1_000_000_000


class System(NamedTuple):
    """Connections of one host to one server; each is opened a second after the one before it."""

    connections: int = 30
    used_seconds: float = 0.5
    is_closed: bool = False
    messages: int = 2
    goes_on_seconds: float = 1  # the capture behind the last
    hosts: int = 1
    apart_seconds: float = 1
    is_blind: bool = False
    dropped: int = 0


def severities(system: System) -> list[str | None]:
    growth = Growth()
    for flow in range(1, system.connections + 1):
        start_ns = round(flow * system.apart_seconds * SECOND)
        peers = Peer(f"10.0.0.{flow % system.hosts}:{40_000 + flow}"), Peer("10.0.1.1:5555")
        over = Connection(
            flow, "tcp", *peers, Sides(system.messages, 0), Sides(99, 99), start_ns,
            start_ns + round(system.used_seconds * SECOND), "fin" if system.is_closed else "open", handshake="complete",
        )  # fmt: skip
        growth.end(Dossier(flow, blind=system.is_blind), over, over.end_ns)
    until_ns = round((system.connections * system.apart_seconds + system.goes_on_seconds) * SECOND)
    growth.totals(Capture(1, system.dropped, 1, 1, 0, 0, until_ns))
    return [claim.severity for claim in growth.claims(until_ns)]


def test_a_program_that_closes_no_socket() -> None:
    (found,) = (one for one in diagnose(FIXTURES / "rec_growing_connections.pcap") if one.severity != "note")
    assert (found.code, found.count, found.certainty) == ("connections-grow", 24, "likely")
    assert found.summary.startswith("the connections of 127.0.0.1 to 127.0.0.1:5560 only grow: 24 in 10 s")
    assert severities(System()) == [None]
    # The last acknowledgment comes when the connection after the next is there.
    assert severities(System(connections=300, apart_seconds=0.05, used_seconds=0.15)) == [None]


def test_in_a_few_seconds_it_may_be_programs_that_start() -> None:
    assert severities(System(apart_seconds=0.3, used_seconds=0.1, goes_on_seconds=0.3)) == ["note"]


@pytest.mark.parametrize(
    "system",
    [
        System(connections=19),
        System(is_closed=True),
        System(used_seconds=60),  # programs that are at work
        System(messages=0),  # subscribers of whom nothing was published yet
        System(goes_on_seconds=20),  # it was a start, and then there were enough
        System(hosts=2),
        System(apart_seconds=0.01, used_seconds=0.001, goes_on_seconds=0),
        System(is_blind=True),
        System(dropped=1),  # these may have been the FINs
    ],
)
def test_others_are_many_for_a_reason(system: System) -> None:
    assert severities(system) == []
