"""The words of findings: whom they name, what they tell together, and where they say to look."""

import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from msgspec import structs

import zmtpsniff
from dissectors.events import AnyEvent, Capture, Command, Connection, End, Greeting, Message, Peer, Problem, Sides
from tests.analysis.findings.diagnoses import diagnose, diagnose_events, diagnose_packets
from tests.support.paths import FIXTURES
from tests.world.conversation import Conversation, Piece, greetings
from tests.world.network import packets, segments
from tests.world.octets import message
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.capture_faults import Vantage
from zmtpsniff.analysis.findings.finding import Claim, Finding
from zmtpsniff.analysis.findings.handshakes import Handshakes
from zmtpsniff.analysis.findings.silent_endpoints import Endpoints
from zmtpsniff.net.witness import Attempt
from zmtpsniff.render.findings_text import draw

MS = 1_000_000


def _found(name: str, keep: Callable[[AnyEvent], bool] = lambda event: True) -> dict[str, Finding]:
    """Findings by code, of those events of a fixture."""
    events = filter(keep, zmtpsniff.open(FIXTURES / f"{name}.pcap"))
    return {one.code: one for one in diagnose_events(events)}


CLIENT, SERVER = "10.0.0.9:40001", "10.0.0.5:5555"
FORTH, BACK = (MS, 1, 1, CLIENT, SERVER), (MS, 1, 1, SERVER, CLIENT)  # where an event is


class Connecting(NamedTuple):
    """A connection that ends early: who says what on it, and how many octets."""

    said: Sequence[Greeting | Command] = ()
    octets: tuple[int, int] = (64, 90)
    kinds: tuple[str | None, str | None] = (None, None)
    versions: tuple[str | None, str | None] = (None, None)
    client: str = CLIENT
    lasted_ms: int = 0


def claimed(*connections: Connecting, end: End = "fin", **fields: Any) -> list[Claim]:
    """The claims about handshakes of connections one after the other, which end so."""
    handshakes = Handshakes()
    for flow, one in enumerate(connections, 1):
        dossier, time_ns = Dossier(flow, flow * MS, flow), flow * MS
        ends = {CLIENT: one.client, SERVER: SERVER}
        for event in one.said:
            event = structs.replace(event, flow=flow, src=ends[event.src], dst=ends[event.dst])
            if isinstance(event, Greeting):
                handshakes.greeting(dossier, event)
            else:
                handshakes.command(dossier, event)
        client, server = map(Peer, ends.values(), one.versions, one.kinds)
        over = Connection(
            flow, "tcp", client, server, Sides(0, 0), Sides(*one.octets), time_ns, time_ns + one.lasted_ms * MS, end,
            **{"handshake": "complete" if all(one.kinds) else "incomplete", **fields},
        )  # fmt: skip
        handshakes.end(dossier, over, over.end_ns)
    return list(handshakes.claims(99 * MS))


def greeted(mechanism: str, *commands: Command) -> list[Greeting | Command]:
    """Both sides announce a mechanism, and then come commands."""
    return [*(Greeting(*place, mechanism=mechanism) for place in (FORTH, BACK)), *commands]


def test_different_mechanisms_are_named() -> None:
    """Each side closes as soon as it has read the other's greeting, so no connection has both of them."""
    (claim,) = claimed(
        Connecting([Greeting(*FORTH, mechanism="NULL"), Greeting(*BACK)]),
        Connecting([Greeting(*BACK, mechanism="CURVE"), Greeting(*FORTH)]),
    )
    assert claim.code == "mechanisms-differ"
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
    versions: tuple[str | None, str | None], closed_by: str, end: End, summary: str | None
) -> None:
    """JeroMQ 0.3 at a socket of libzmq with CURVE: this reads the version, and says no more than its signature."""
    said = [Greeting(*place, version=version) for place, version in zip((FORTH, BACK), versions, strict=True)]
    found = claimed(Connecting(said, (12, 10), versions=versions), end=end, closed_by=closed_by)
    refused = [one.summary for one in found if one.code == "mechanisms-differ"]
    assert refused == ([] if summary is None else [summary])


@pytest.mark.parametrize(
    ("said", "code", "certainty"),
    [
        (("HELLO",), "server-key-wrong", "likely"),  # as JeroMQ answers a HELLO that it cannot open
        (("HELLO", "WELCOME", "INITIATE"), "credentials-refused", "certain"),  # the handler knows the client's key now
    ],
)
def test_an_error_accuses_the_key_that_was_needed_last(said: tuple[str, ...], code: str, certainty: str) -> None:
    commands = [Command(*(BACK if name == "WELCOME" else FORTH), name, {}) for name in said]
    refused = Connecting(greeted("CURVE", *commands, Command(*BACK, "ERROR", {}, reason=b"")))
    found = claimed(refused, mechanism="CURVE", handshake="failed", closed_by="client")
    assert [(one.code, one.certainty) for one in found] == [(code, certainty)]


@pytest.mark.parametrize(("end", "code"), [("fin", "sockets-mismatched"), ("rst", "handshake-failed")])
def test_a_program_that_ends_meanwhile_refuses_nothing(end: End, code: str) -> None:
    """A RST says that it has not read what came."""
    waiting = Connecting(greeted("NULL", Command(*BACK, "READY", {}, "ROUTER")), kinds=(None, "ROUTER"))
    assert [one.code for one in claimed(waiting, end=end, mechanism="NULL", closed_by="client")] == [code]


@pytest.mark.parametrize(
    ("closer", "said", "severity"), [("client", 75, "note"), ("server", 75, "warning"), ("client", 0, "warning")]
)
def test_who_only_looks_whether_a_service_is_up_makes_no_storm(closer: str, said: int, severity: str) -> None:
    """It closes each connection itself, sometimes before the handshake is done, though the service had spoken."""
    looks = [
        Connecting([Greeting(*FORTH)], (64, said), ("REQ", "REP") if flow % 2 and said else (None, None))
        for flow in range(1, 8)
    ]
    (claim,) = claimed(*looks, end="rst", mechanism="NULL", closed_by=closer)
    assert (claim.code, claim.severity or "warning") == ("reconnect-storm", severity)


@pytest.mark.parametrize(("client_said", "severity"), [(0, "note"), (10, "warning")])
def test_who_connects_says_nothing_and_leaves_only_looks(client_said: int, severity: str) -> None:
    """Salt's programs do so before they connect in earnest, and so do health checks."""
    (claim,) = claimed(*[Connecting([Greeting(*BACK)], (client_said, 10))] * 3, end="rst", closed_by="client")
    assert (claim.code, claim.severity) == ("handshake-failed", severity)
    assert claim.summary == "3 connections from 10.0.0.9 to 10.0.0.5:5555 ended before the handshake was done"
    assert (claim.known == "10.0.0.9 closes each of them itself, and has said nothing on it") is (client_said == 0)


def test_a_program_that_is_ready_elsewhere_is_of_no_wrong_type() -> None:
    """One connection may end in the middle of its handshake, since circus-top cannot find its terminal."""
    said = greeted("NULL", Command(*BACK, "READY", {}, "ROUTER"))
    unready = Connecting(said, kinds=(None, "ROUTER"))
    ready, other = unready._replace(kinds=("DEALER", "ROUTER")), unready._replace(client="10.0.0.8:40001")
    found = claimed(unready, ready, other, mechanism="NULL", closed_by="client")
    assert [(one.code, one.severity) for one in found] == [
        ("handshake-failed", "note"),
        ("sockets-mismatched", "warning"),
    ]
    assert ["10.0.0.9" in one.summary for one in found] == [True, False]


@pytest.mark.parametrize(
    ("end", "lasted_ms", "is_told"), [("fin", 5000, True), ("open", 5000, True), ("open", 2000, False)]
)
def test_a_server_that_does_not_even_greet_hangs(end: End, lasted_ms: int, is_told: bool) -> None:
    """The kernel of a host accepts connections for a program that is stopped."""
    mute = Connecting([Greeting(*FORTH)], (10, 0), lasted_ms=lasted_ms)
    found = claimed(mute, end=end, closed_by="client" if end == "fin" else None)
    told = "10.0.0.5:5555 accepts 1 connection of 10.0.0.9, and says nothing for 5.0 s"
    assert [one.summary for one in found] == ([told] if is_told else [])


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
