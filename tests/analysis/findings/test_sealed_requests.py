"""Requests under CURVE without a reply, seen by the lengths of their boxes: a REQ and a REP that stops to answer."""

from collections.abc import Iterable

import pytest
from msgspec import structs

import zmtpsniff
from dissectors.events import AnyEvent, Command, Connection, Problem, at_hand
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.findings.sealed_requests import SealedRequests

EVENTS = list(zmtpsniff.open(FIXTURES / "shop" / "silent-vault.pcap.gz"))
BOXES = [event for event in EVENTS if isinstance(event, Command) and event.name == "MESSAGE"]
SERVER = "127.0.0.1:5564"
FIRST = BOXES[0]
GAP = Problem("error", "capture-gap", "octets", FIRST.time_ns, FIRST.packet, FIRST.flow, FIRST.src, FIRST.dst)


def _unanswered(events: Iterable[AnyEvent], timeout_seconds: float = 5) -> list[Finding]:
    diagnosis = Diagnosis(timeout_seconds=timeout_seconds)
    diagnosis.take(list(events))
    return [one for one in diagnosis.findings() if one.code == "request-unanswered"]


def test_a_rep_that_stops_to_answer() -> None:
    (found,) = _unanswered(EVENTS)
    assert (found.severity, found.certainty, found.count) == ("error", "likely", 1)
    assert found.summary == (
        f"{SERVER} does not answer 127.0.0.1: 1 request under CURVE without a reply for 14 s, after 12 replies"
    )
    assert [one.packet for one in found.evidence] == [BOXES[-1].packet]
    assert not _unanswered(EVENTS, timeout_seconds=15)


def test_a_request_of_several_frames_is_one() -> None:
    """The REQ says no more, but its last request has empty frames in it."""
    again = [structs.replace(BOXES[-2], offset=BOXES[-1].offset + 100 * number) for number in (1, 2)]
    place = EVENTS.index(BOXES[-1]) + 1
    (found,) = _unanswered([*EVENTS[:place], *again, *EVENTS[place:]])
    assert found.count == 1
    assert "after 12 replies" in found.summary


def _without(events: list[AnyEvent], *gone: AnyEvent) -> list[AnyEvent]:
    return [event for event in events if not any(event is one for one in gone)]


def _lengthened(name: str, octets: int) -> list[AnyEvent]:
    """The side that sends this command announces more."""
    return [
        structs.replace(event, box=bytes(len(at_hand(event.box or b"")) + octets))
        if isinstance(event, Command) and event.name == name
        else event
        for event in EVENTS
    ]


def _answered_first() -> list[AnyEvent]:
    """The reply to the last request stands before it, as in captures that are out of order."""
    reply = next(event for event in reversed(BOXES) if event.src == SERVER and len(at_hand(event.box or b"")) == 17)
    answer = structs.replace(reply, offset=reply.offset + 1000, seen=BOXES[-1].offset + 1)
    place = EVENTS.index(BOXES[-2])
    return [*EVENTS[:place], answer, *EVENTS[place:]]


def _heartbeats_last() -> list[AnyEvent]:
    """The last box is as long as a PING."""
    pings = [structs.replace(event, box=bytes(24)) for event in BOXES[-2:]]
    return [*_without(EVENTS[:-2], *BOXES[-2:]), *pings, *EVENTS[-2:]]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(_without(EVENTS, *BOXES[-2:]), id="all are answered"),
        pytest.param(_without(EVENTS, *BOXES), id="nothing was asked"),
        pytest.param(_answered_first(), id="the reply came first"),
        pytest.param(_lengthened("READY", 16), id="a REQ that is the worker of a ROUTER"),
        pytest.param(_lengthened("INITIATE", 3), id="a DEALER"),
        pytest.param(EVENTS[EVENTS.index(BOXES[0]) :], id="the handshake is not in the capture"),
        pytest.param(_heartbeats_last(), id="heartbeats of one side come last"),
        pytest.param([*EVENTS[:20], GAP, *EVENTS[20:]], id="octets are missing"),
    ],
)
def test_what_is_healthy_or_unknown(events: list[AnyEvent]) -> None:
    assert any(isinstance(event, Connection) for event in events)
    assert not _unanswered(events)


def test_a_host_with_another_socket_under_curve_may_wait_for_a_third() -> None:
    requests = SealedRequests(5)
    requests.sealed(structs.replace(FIRST, src="10.0.0.2:40000", dst="10.0.0.3:6000"))
    assert requests.may_ask("10.0.0.2:5555")
    assert not requests.may_ask("10.0.0.3:6000")  # the same socket
    requests.sealed(FIRST)
    assert not requests.may_ask("127.0.0.1:1")  # of another program of this machine, perhaps
