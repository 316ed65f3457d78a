"""The words of findings: whom they name, what they tell together, and where they say to look."""

import io
from collections.abc import Callable
from typing import Literal

import pytest

import zmtpsniff
from dissectors.events import AnyEvent, Capture, Command, Connection, Greeting, Message, Peer, Problem, Sides
from tests.analysis.findings.diagnoses import diagnose, diagnose_events, diagnose_packets
from tests.support.paths import FIXTURES
from tests.world.conversation import Conversation, Piece, greetings
from tests.world.network import packets, segments
from tests.world.octets import message
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.capture_faults import Vantage
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.findings.handshakes import Handshakes
from zmtpsniff.analysis.findings.silent_endpoints import Endpoints
from zmtpsniff.net.witness import Attempt
from zmtpsniff.render.findings_text import draw

MS = 1_000_000


def _found(name: str, keep: Callable[[AnyEvent], bool] = lambda event: True) -> dict[str, Finding]:
    """Findings by code, of those events of a fixture."""
    events = filter(keep, zmtpsniff.open(FIXTURES / f"{name}.pcap"))
    return {one.code: one for one in diagnose_events(events)}


def test_different_mechanisms_are_named() -> None:
    """Each side closes as soon as it has read the other's greeting, so no connection has both of them."""
    handshakes = Handshakes()
    server = "10.0.0.5:5555"
    for flow, mechanism in enumerate(["NULL", "CURVE"], 1):
        client = f"10.0.0.9:{40_000 + flow}"
        ends = (client, server) if mechanism == "NULL" else (server, client)
        dossier = Dossier(flow, flow * MS, flow)
        for sender, receiver, said in ((*ends, mechanism), (*ends[::-1], None)):
            greeting = Greeting(flow * MS, flow, flow, sender, receiver, mechanism=said)
            handshakes.greeting(dossier, greeting)
        over = Connection(
            flow, "tcp", Peer(client), Peer(server), Sides(0, 0), Sides(64, 10), flow * MS, flow * MS, "fin",
            handshake="incomplete",
        )  # fmt: skip
        handshakes.end(dossier, over, over.end_ns)
    (claim,) = (one for one in handshakes.claims(99 * MS) if one.code == "mechanisms-differ")
    assert claim.summary == "10.0.0.9 and 10.0.0.5:5555 want different security mechanisms: NULL and CURVE, 2 times"
    assert claim.certainty == "certain"
    assert claim.known == (
        "10.0.0.9 announces NULL, and its peer closes the connection at once; "
        "10.0.0.5:5555 announces CURVE, and its peer closes the connection at once"
    )


@pytest.mark.parametrize(
    ("versions", "closed_by", "end", "summary"),
    [
        (("2.0", None), "server", "fin", "10.0.0.5:5555 refuses the ZMTP 2.0 of 10.0.0.9, which has no security"),
        ((None, "2.0"), "client", "fin", "10.0.0.9 refuses the ZMTP 2.0 of 10.0.0.5:5555, which has no security"),
        (("2.0", None), "client", "fin", None),  # it gave up
        (("2.0", None), "server", "rst", None),
    ],
)
def test_who_has_security_refuses_an_old_version(
    versions: tuple[str | None, str | None],
    closed_by: Literal["client", "server"],
    end: Literal["fin", "rst"],
    summary: str | None,
) -> None:
    """JeroMQ 0.3 at a socket of libzmq with CURVE: this reads the version, and says no more than its signature."""
    handshakes = Handshakes()
    client, server = "10.0.0.9:40001", "10.0.0.5:5555"
    dossier = Dossier(1, MS, 1)
    for sender, receiver, version in ((client, server, versions[0]), (server, client, versions[1])):
        handshakes.greeting(dossier, Greeting(MS, 1, 1, sender, receiver, version=version))
    over = Connection(
        1, "tcp", Peer(client, versions[0]), Peer(server, versions[1]), Sides(0, 0), Sides(12, 10), MS, MS, end,
        handshake="incomplete", closed_by=closed_by,
    )  # fmt: skip
    handshakes.end(dossier, over, over.end_ns)
    found = [one.summary for one in handshakes.claims(99 * MS) if one.code == "mechanisms-differ"]
    assert found == ([] if summary is None else [summary])


@pytest.mark.parametrize(
    ("said", "code", "certainty"),
    [
        (("HELLO",), "server-key-wrong", "likely"),  # as JeroMQ answers a HELLO that it cannot open
        (("HELLO", "WELCOME", "INITIATE"), "credentials-refused", "certain"),  # the handler knows the client's key now
    ],
)
def test_an_error_accuses_the_key_that_was_needed_last(said: tuple[str, ...], code: str, certainty: str) -> None:
    handshakes = Handshakes()
    client, server = "10.0.0.9:40001", "10.0.0.5:5555"
    dossier = Dossier(1, MS, 1)
    for sender, receiver in ((client, server), (server, client)):
        handshakes.greeting(dossier, Greeting(MS, 1, 1, sender, receiver, mechanism="CURVE"))
    for name in said:
        ends = (server, client) if name == "WELCOME" else (client, server)
        handshakes.command(dossier, Command(MS, 1, 1, *ends, name, {}))
    handshakes.command(dossier, Command(MS, 1, 1, server, client, "ERROR", {}, reason=b""))
    over = Connection(
        1, "tcp", Peer(client), Peer(server), Sides(0, 0), Sides(264, 73), MS, MS, "fin", mechanism="CURVE",
        handshake="failed", closed_by="client",
    )  # fmt: skip
    handshakes.end(dossier, over, over.end_ns)
    assert [(one.code, one.certainty) for one in handshakes.claims(99 * MS)] == [(code, certainty)]


@pytest.mark.parametrize(("end", "found"), [("fin", ["sockets-mismatched"]), ("rst", ["handshake-failed"])])
def test_a_program_that_ends_meanwhile_refuses_nothing(end: Literal["fin", "rst"], found: list[str]) -> None:
    """A RST says that it has not read what came."""
    handshakes = Handshakes()
    client, server = "10.0.0.9:40001", "10.0.0.5:5555"
    dossier = Dossier(1, MS, 1)
    for sender, receiver in ((client, server), (server, client)):
        handshakes.greeting(dossier, Greeting(MS, 1, 1, sender, receiver, mechanism="NULL"))
    handshakes.command(dossier, Command(MS, 1, 1, server, client, "READY", {}, "ROUTER"))
    ends = Peer(client), Peer(server, socket_type="ROUTER")
    over = Connection(
        1, "tcp", *ends, Sides(0, 0), Sides(64, 90), MS, MS, end, mechanism="NULL", handshake="incomplete",
        closed_by="client",
    )  # fmt: skip
    handshakes.end(dossier, over, over.end_ns)
    assert [one.code for one in handshakes.claims(99 * MS)] == found


@pytest.mark.parametrize(
    ("closer", "said", "severity"), [("client", 75, "note"), ("server", 75, "warning"), ("client", 0, "warning")]
)
def test_who_only_looks_whether_a_service_is_up_makes_no_storm(
    closer: Literal["client", "server"], said: int, severity: str
) -> None:
    """It closes each connection itself, sometimes before the handshake is done, though the service had spoken."""
    handshakes = Handshakes()
    for flow in range(1, 8):
        ends = Peer(f"10.0.0.9:{40_000 + flow}"), Peer("10.0.0.5:5555")
        over = Connection(
            flow, "tcp", *ends, Sides(0, 0), Sides(64, said), flow * MS, flow * MS, "rst", mechanism="NULL",
            handshake="complete" if flow % 2 and said else "incomplete", closed_by=closer,
        )  # fmt: skip
        handshakes.greeting(Dossier(flow, flow * MS, flow), Greeting(MS, 1, flow, ends[0].address, ends[1].address))
        handshakes.end(None, over, over.end_ns)
    (claim,) = handshakes.claims(99 * MS)
    assert (claim.code, claim.severity or "warning") == ("reconnect-storm", severity)


@pytest.mark.parametrize(("client_said", "severity"), [(0, "note"), (10, "warning")])
def test_who_connects_says_nothing_and_leaves_only_looks(client_said: int, severity: str) -> None:
    """Salt's programs do so before they connect in earnest, and so do health checks."""
    handshakes = Handshakes()
    for flow in range(1, 4):
        ends = Peer(f"10.0.0.9:{40_000 + flow}"), Peer("10.0.0.5:5555")
        over = Connection(
            flow, "tcp", *ends, Sides(0, 0), Sides(client_said, 10), flow * MS, flow * MS, "rst",
            handshake="incomplete", closed_by="client",
        )  # fmt: skip
        handshakes.greeting(Dossier(flow, flow * MS, flow), Greeting(MS, 1, flow, ends[1].address, ends[0].address))
        handshakes.end(None, over, over.end_ns)
    (claim,) = handshakes.claims(99 * MS)
    assert (claim.code, claim.severity) == ("handshake-failed", severity)
    assert claim.summary == "3 connections from 10.0.0.9 to 10.0.0.5:5555 ended before the handshake was done"
    assert (claim.known == "10.0.0.9 closes each of them itself, and has said nothing on it") is (client_said == 0)


def test_a_program_that_is_ready_elsewhere_is_of_no_wrong_type() -> None:
    """One connection may end in the middle of its handshake, since circus-top cannot find its terminal."""
    server, kinds = "10.0.0.5:5555", {"10.0.0.9": "DEALER", "10.0.0.8": "REQ"}
    handshakes = Handshakes()
    for flow, client in enumerate(("10.0.0.9:40001", "10.0.0.9:40002", "10.0.0.8:40001"), 1):
        is_ready = flow == 2
        for sender, receiver in ((client, server), (server, client)):
            dossier = Dossier(flow, flow * MS, flow)
            handshakes.greeting(dossier, Greeting(flow * MS, 1, flow, sender, receiver, mechanism="NULL"))
        handshakes.command(Dossier(flow, MS, flow), Command(MS, 1, flow, server, client, "READY", {}, "ROUTER"))
        kind = kinds["10.0.0.9"] if is_ready else None
        over = Connection(
            flow, "tcp", Peer(client, socket_type=kind), Peer(server, socket_type="ROUTER"), Sides(0, 0),
            Sides(64, 90), MS, MS, "fin", mechanism="NULL", handshake="complete" if is_ready else "incomplete",
            closed_by="client",
        )  # fmt: skip
        handshakes.end(Dossier(flow, flow * MS, flow), over, over.end_ns)
    found = {
        claim.summary.split()[3 if claim.code == "handshake-failed" else 0]: claim for claim in handshakes.claims(0)
    }
    assert {name: claim.code for name, claim in found.items()} == {
        "10.0.0.9": "handshake-failed",
        "10.0.0.8": "sockets-mismatched",
    }
    assert found["10.0.0.9"].severity == "note"


@pytest.mark.parametrize(
    ("end", "lasted_ms", "is_told"), [("fin", 5000, True), ("open", 5000, True), ("open", 2000, False)]
)
def test_a_server_that_does_not_even_greet_hangs(end: Literal["fin", "open"], lasted_ms: int, is_told: bool) -> None:
    """The kernel of a host accepts connections for a program that is stopped."""
    handshakes = Handshakes()
    client, server = "10.0.0.9:40001", "10.0.0.5:5555"
    handshakes.greeting(Dossier(1, MS, 1), Greeting(MS, 1, 1, client, server))
    over = Connection(
        1, "tcp", Peer(client), Peer(server), Sides(0, 0), Sides(10, 0), MS, (1 + lasted_ms) * MS, end,
        handshake="incomplete", closed_by="client" if end == "fin" else None,
    )  # fmt: skip
    handshakes.end(None, over, over.end_ns)
    summaries = [claim.summary for claim in handshakes.claims(99 * MS)]
    told = "10.0.0.5:5555 accepts 1 connection of 10.0.0.9, and says nothing for 5.0 s"
    assert summaries == ([told] if is_told else [])


def test_a_password_is_no_key_where_only_the_server_is_in_the_capture() -> None:
    both = _found("rec_plain_wrong_password")["credentials-refused"]
    assert " as " in both.summary
    assert both.summary.endswith("its user name, password or address is not accepted")
    server = both.endpoints[0]
    alone = _found(
        "rec_plain_wrong_password",
        lambda event: isinstance(event, (Connection, Capture)) or getattr(event, "src", None) == server,
    )["credentials-refused"]
    assert " as " not in alone.summary
    assert alone.summary.endswith("its user name, password or address is not accepted")
    assert "PLAIN" in alone.advice


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rec_third_of_a_pair", "comes to the PAIR socket at 127.0.0.1:"),
        ("bad_http_on_zmq_port", "from 127.0.0.1:50110 to 127.0.0.1:22531: the client speaks HTTP instead of ZMTP"),
    ],
)
def test_violations_say_who_and_with_whom(name: str, words: str) -> None:
    found = _found(name)["protocol-violated"]
    assert words in found.summary
    assert found.summary.count(found.endpoints[1]) == 1


@pytest.mark.parametrize(
    ("name", "uses"),
    [
        (
            "rec_same_identity",
            ["127.0.0.1:46308 sent 1 message and got none", "127.0.0.1:56336 sent 1 message and got none"],
        ),
        (
            "rec_stolen_identity",
            ["127.0.0.1:38870 sent 8 messages and got 1", "127.0.0.1:38884 sent 8 messages and got 8"],
        ),
    ],
)
def test_who_shares_an_identity_and_what_they_got(name: str, uses: list[str]) -> None:
    found = _found(name)["identity-shared"]
    assert found.endpoints[1:] == [one.split()[0] for one in uses]
    assert found.known.split("; ")[1:] == uses


def test_an_identity_is_shared_where_octets_are_missing_but_nobody_counts_messages() -> None:
    """A hole may hold the messages that one did not get."""

    def whole(event: AnyEvent) -> bool:
        return not isinstance(event, Message)

    events = list(zmtpsniff.open(FIXTURES / "rec_stolen_identity.pcap"))
    place = next(at for at, event in enumerate(events) if isinstance(event, Message) and event.flow == 2)
    lost = Problem("error", "capture-gap", "", time_ns=None, packet=None, flow=2)
    findings = diagnose_events([*events[:place], lost, *filter(whole, events[place:])])
    (found,) = (one for one in findings if one.code == "identity-shared")
    assert "38884 sent" not in found.known


def test_who_breaks_the_rules_is_no_storm_and_no_old_peer() -> None:
    assert _found("bad_http_on_zmq_port").keys() & {"reconnect-storm", "handshake-failed", "version-old"} == set()


def test_services_that_come_later_are_one_note() -> None:
    endpoints = Endpoints()
    for flow, port in enumerate([5555, 5556, 5557, 5558], 1):
        server = f"10.0.0.5:{port}"
        endpoints.attempt(Attempt("refused", flow, "10.0.0.9:40000", server, 1, flow * MS, flow * MS, flow))
        endpoints.attempt(
            Attempt("accepted", flow + 9, "10.0.0.9:40001", server, 1, (flow + 9) * MS, (flow + 9) * MS, flow + 9)
        )
    (claim,) = endpoints.claims(99 * MS)
    assert claim.summary == (
        "nobody listened at 10.0.0.5:5555, 10.0.0.5:5556, 10.0.0.5:5557 and 1 other at first: 4 attempts in 3 ms by "
        "10.0.0.9, before they answered"
    )
    assert claim.severity == "note"
    assert claim.advice is not None
    assert claim.advice.startswith("Nothing, if ")
    assert [one.packet for one in claim.occurrences.evidence] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("codes", "summary", "advice"),
    [
        (["packets-cut"], "does not have everything: packets are cut short", "Capture whole packets (`-s 0`)."),
        (["capture-corrupt"], "the file is damaged, and the rest of it was not read", "Copy the file again"),
        (["one-direction", "one-direction"], "one direction of a connection is missing (2 times)", "mirror both"),
        (["capture-disorder"], "the capture is out of order, or its clocks differ", "Nothing is lost"),
        (["capture-disorder", "capture-gap"], "does not have everything: packets are out of order", "larger buffer"),
    ],
)
def test_what_the_capture_lacks_says_what_helps(codes: list[str], summary: str, advice: str) -> None:
    vantage = Vantage()
    for code in codes:
        vantage.problem(Problem("note", code, "", time_ns=None, packet=None))
    (claim,) = vantage.claims(0)
    assert summary in claim.summary
    assert claim.advice is not None
    assert advice in claim.advice


@pytest.mark.parametrize("flows", [0, 2])
def test_no_zmtp_is_not_nothing_wrong(flows: int) -> None:
    stream = io.StringIO()
    draw([], Capture(10, 0, 2, flows, 0, 0, 5 * MS), stream)
    assert ("nothing is wrong" in stream.getvalue()) is bool(flows)
    assert ("no ZMTP is in the capture" in stream.getvalue()) is not bool(flows)


def test_a_service_that_says_nothing_is_told_as_such() -> None:
    found = _found("rec_reconnect_storm")["reconnect-storm"]
    assert f"{found.endpoints[0]} says nothing on any of them" in found.known
    assert "no ZeroMQ socket" in found.advice


def test_sockets_that_do_not_fit_are_told_where_nothing_stops_them() -> None:
    """ZMTP 2.0 leaves that to programs: the handshake is complete."""
    pieces = (*greetings(2, b"PUSH", b"PUB"), Piece(0, message(2, b"in vain")))
    findings = diagnose_packets(packets(segments(Conversation("wrong port", pieces))))
    (finding,) = (one for one in findings if one.code == "sockets-mismatched")
    assert "PUSH may not talk to PUB" in finding.summary + finding.known
    assert finding.certainty == "certain"


@pytest.mark.parametrize(
    "name", ["rec_request_to_pull", "sec_types_push_pub", "sec_mismatch_null_curve", "sec_curve_keys"]
)
def test_how_a_refusal_is_known_is_not_what_is_wrong_once_more(name: str) -> None:
    suffix = "pcapng" if name == "sec_curve_keys" else "pcap"
    (found,) = diagnose(FIXTURES / f"{name}.{suffix}")
    assert found.known
    assert found.known not in found.summary


def test_what_each_peer_of_a_socket_did_is_told() -> None:
    (uneven,) = (one for one in diagnose(FIXTURES / "work" / "rec_waiting_work.pcap") if len(one.peers) > 1)
    out = io.StringIO()
    draw([uneven], None, out, width=1000)
    (line,) = (line.strip() for line in out.getvalue().splitlines() if "by peer: " in line)
    one, other = uneven.peers
    assert line == (f"by peer: {one.peer} taken 8, share 50 %, no room 2.24 s; {other.peer} taken 8, share 50 %")
