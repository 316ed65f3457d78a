"""Breaches of the protocol, told by what was seen, and the findings that follow from them."""

import io

import pytest

import zmtpsniff
from dissectors.events import Connection, Message, Peer, Problem, Sides
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Evidence, Finding
from zmtpsniff.analysis.findings.identities import Identities
from zmtpsniff.analysis.findings.relays import Relays
from zmtpsniff.analysis.findings.unanswered_requests import Requests
from zmtpsniff.analysis.findings.violations import Violations
from zmtpsniff.render.findings_text import draw

CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.2:5555"
NOTHING_BEHIND = "a message in which nothing follows the empty frame that a REQ or REP socket needs"


def told(detail: str) -> str:
    violations = Violations(Relays(Identities()), Requests(lambda _: False))
    violations.problem(Problem("warning", "no-delimiter", detail, time_ns=1, packet=7, flow=1, src=SERVER, dst=CLIENT))
    client, server = Peer(CLIENT, "3.1", "REQ"), Peer(SERVER, "3.1", "ROUTER")
    end = Connection(1, "tcp", client, server, Sides(1, 1), Sides(9, 9), 0, 9, "fin", "3.1", "NULL", "complete")
    end.closed_by = "client"
    violations.end(None, end, 9)
    (claim,) = violations.claims(9)
    return claim.summary


@pytest.mark.parametrize("detail", ["a message without the empty frame that a REQ or REP socket needs", NOTHING_BEHIND])
def test_a_message_that_a_req_cannot_take_is_told_as_it_was(detail: str) -> None:
    """A frame that is there is not called missing."""
    assert told(detail) == f"the ROUTER at {SERVER} sent {detail}, so the REQ at {CLIENT} closes the connection"


@pytest.mark.parametrize(("has_replies", "severity"), [(True, "warning"), (False, "note")])
def test_a_request_that_is_sent_again_in_vain_confuses_nobody(has_replies: bool, severity: str) -> None:
    diagnosis = Diagnosis()
    asked_again = False
    for event in zmtpsniff.open(FIXTURES / "rec_relaxed_request.pcap"):
        asked_again |= isinstance(event, Problem) and event.code == "request-before-reply"
        if has_replies or not (asked_again and isinstance(event, Message) and event.socket_type != "REQ"):
            diagnosis.take([event])
    (found,) = (one for one in diagnosis.findings() if one.problem == "request-before-reply")
    assert found.severity == severity
    assert found.summary.endswith("no reply came after that") == (not has_replies)


def made(code: str, packet: int, problem: str | None = None, flow: int = 1) -> Finding:
    evidence = [Evidence(packet, flow)]
    return Finding(
        "warning", code, f"summary of {code}", "known", "advice",
        count=1, certainty="certain", evidence=evidence, endpoints=[SERVER], problem=problem,
    )  # fmt: skip


def effects_of(findings: list[Finding]) -> int:
    stream = io.StringIO()
    draw(findings, None, stream, color="never")
    return stream.getvalue().count("so: ")


@pytest.mark.parametrize(("request_", "effects"), [(6, 1), (7, 1), (8, 0)])
def test_only_a_request_before_the_breach_follows_from_it(request_: int, effects: int) -> None:
    """One that comes later may be unanswered for another reason."""
    assert effects_of([made("protocol-violated", 7, "no-delimiter"), made("request-unanswered", request_)]) == effects


@pytest.mark.parametrize("code", ["handshake-failed", "mechanisms-differ"])
@pytest.mark.parametrize(("flow", "effects"), [(1, 1), (2, 0)])
def test_a_handshake_with_an_odd_mechanism_fails(code: str, flow: int, effects: int) -> None:
    assert effects_of([made(code, 9, flow=flow), made("protocol-violated", 7, "bad-mechanism")]) == effects


@pytest.mark.parametrize("codes", [("service-away", "worker-closed"), ("queue-grows", "replies-slow")])
@pytest.mark.parametrize(("socket", "since_ns", "effects"), [(SERVER, 5, 1), (SERVER, 9, 0), ("10.0.0.3:5555", 5, 0)])
def test_findings_of_one_socket_that_follow_from_each_other(
    codes: tuple[str, str], socket: str, since_ns: int, effects: int
) -> None:
    cause, effect = made(codes[0], 7), made(codes[1], 6)
    cause.first_ns, cause.last_ns, effect.first_ns, effect.endpoints = 6, 8, since_ns, [socket, CLIENT]
    assert effects_of([effect, cause]) == effects


def test_nobody_waits_for_a_socket_that_is_slow() -> None:
    """A warning about a socket does not say why others do not answer, and nobody waits for himself."""
    note = made("not-passed-on", 9)
    note.severity, note.summary, note.endpoints = "note", f"it waits for {SERVER}; {CLIENT} waits for it", [CLIENT]
    wrong, slow = made("endpoint-refused", 7), made("replies-slow", 7)
    assert effects_of([slow, note]) == 0
    wrong.severity = "error"
    assert effects_of([wrong, slow, note]) == 1
    wrong.endpoints = [CLIENT]
    assert effects_of([wrong, note]) == 0
