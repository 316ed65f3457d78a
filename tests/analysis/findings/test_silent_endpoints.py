"""How certain it is that ZeroMQ was meant where nobody answers."""

import msgspec
import pytest

from dissectors.events import Connection, Peer, Sides
from tests.analysis.findings.diagnoses import alarms, diagnose, diagnose_packets
from tests.support.paths import FIXTURES
from tests.world.tap import load
from zmtpsniff import decode_as
from zmtpsniff.analysis.findings.finding import Claim, Finding
from zmtpsniff.analysis.findings.silent_endpoints import Endpoints
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.witness import Attempt, Outcome
from zmtpsniff.words.durations import about

MS = 1_000_000
SERVER = "10.0.0.5:5567"


def _attempts(outcome: Outcome, times_ms: list[int], syns: int = 1, client: str = "10.0.0.9") -> list[Attempt]:
    return [
        Attempt(outcome, number, f"{client}:{40_000 + number}", SERVER, syns, ms * MS, ms * MS, 2 * number + 2)
        for number, ms in enumerate(times_ms)
    ]


def _claims(attempts: list[Attempt], *connections: Connection, rule: str | None = None) -> list[Claim]:
    endpoints = Endpoints([decode_as.parse(rule)] if rule else [])
    for attempt in attempts:
        endpoints.attempt(attempt)
    for connection in connections:
        endpoints.end(None, connection, connection.end_ns)
    return list(endpoints.claims(100_000 * MS))


def _connection(client: str, server: str) -> Connection:
    return Connection(99, "tcp", Peer(client), Peer(server), Sides(1, 1), Sides(1, 1), 0, MS, "fin")


RHYTHM = list(range(0, 3000, 150))
SLOW = list(range(0, 30_000, 2000))


@pytest.mark.parametrize(
    ("times_ms", "rule", "speaker", "severity", "certainty"),
    [
        (RHYTHM, None, None, "error", "likely"),
        (SLOW, None, None, "warning", "possible"),
        (SLOW, "tcp.port==5567,zmtp", None, "error", "certain"),
        (RHYTHM[:4], None, None, "note", "possible"),  # less than a second
        (SLOW, None, "10.0.0.9:41000", "error", "likely"),  # the host that tries speaks ZMTP elsewhere
        (SLOW, None, "10.0.0.8:41000", "note", "possible"),  # another one does
    ],
)
def test_refused(times_ms: list[int], rule: str | None, speaker: str | None, severity: str, certainty: str) -> None:
    spoken = [_connection(speaker, "10.0.0.7:5555")] if speaker else []
    (claim,) = _claims(_attempts("refused", times_ms), *spoken, rule=rule)
    assert (claim.code, claim.severity, claim.certainty) == ("endpoint-refused", severity, certainty)
    lasted = about((times_ms[-1] - times_ms[0]) * MS)
    assert claim.summary == f"nobody listens at {SERVER}: {len(times_ms)} attempts in {lasted} by 10.0.0.9"


@pytest.mark.parametrize(("back_ms", "severity"), [(6000, None), (3400, "note")])
def test_who_goes_away_and_comes_back(back_ms: int, severity: str | None) -> None:
    cut = msgspec.structs.replace(_connection("10.0.0.9:41000", SERVER), end_ns=2990 * MS, end="rst")
    earlier = msgspec.structs.replace(_connection("10.0.0.8:41000", SERVER), flow=98)  # closed long before
    tries = _attempts("refused", list(range(3000, back_ms, 150)))
    back = Attempt("accepted", 50, "10.0.0.9:50000", SERVER, 1, back_ms * MS, back_ms * MS, 99)
    (claim,) = _claims([*tries, back], earlier, cut)
    assert (claim.code, claim.severity) == ("service-away", severity)
    assert (claim.occurrences.first_ns, claim.occurrences.last_ns) == (2990 * MS, back_ms * MS)
    assert claim.summary == (
        f"{SERVER} was away for {about((back_ms - 2990) * MS)}, and came back: 1 connection cut, {len(tries)} attempts "
        "refused, of 10.0.0.9"
    )


ACCEPTED = Attempt("accepted", 50, "10.0.0.9:50000", SERVER, 2, 4000 * MS, 4000 * MS, 99)


@pytest.mark.parametrize(
    ("attempts", "rule", "severity", "words"),
    [
        ([*_attempts("refused", RHYTHM), ACCEPTED], None, "note", "at first"),
        # The capture has the SYN of a refused attempt only after the service has accepted others.
        ([ACCEPTED, *_attempts("refused", RHYTHM)], None, "note", "at first"),
        ([ACCEPTED, *_attempts("refused", [5000 + ms for ms in RHYTHM])], None, "note", "any more"),
        (
            [ACCEPTED, *_attempts("refused", [5000 + 2 * ms for ms in RHYTHM])],
            "tcp.port==5567,zmtp",
            "error",
            "any more",
        ),
    ],
)
def test_who_starts_late_or_stops_a_moment_early_is_healthy(
    attempts: list[Attempt], rule: str | None, severity: str, words: str
) -> None:
    (claim,) = _claims(attempts, rule=rule)
    assert claim.severity == severity
    assert words in claim.summary


def test_silent() -> None:
    attempt = Attempt("silent", 1, "10.0.0.9:40000", SERVER, 5, 0, 15_000 * MS, 5)
    (claim,) = _claims([attempt])
    assert (claim.code, claim.severity, claim.certainty) == ("endpoint-silent", "warning", "possible")
    assert claim.summary == f"{SERVER} does not answer: 5 SYNs in 15 s by 10.0.0.9"
    (claim,) = _claims([attempt], rule="tcp.port==5567,zmtp")
    assert claim.severity == "error"
    assert _claims([attempt._replace(syns=2, last_ns=1000 * MS)]) == []


@pytest.mark.parametrize(("times_ms", "severity"), [(RHYTHM[:2], "note"), ([2 * ms for ms in RHYTHM], "error")])
def test_who_spoke_before_the_capture_is_not_there_any_more(times_ms: list[int], severity: str) -> None:
    (claim,) = _claims(_attempts("refused", times_ms), _connection("10.0.0.9:41000", SERVER))
    assert (claim.severity, claim.certainty) == (severity, "certain")
    assert claim.summary.startswith(f"nobody listens at {SERVER} any more: {len(times_ms)} attempts in ")


def _from_servers(name: str) -> list[Finding]:
    """The findings of a capture that has what servers send, and nothing else."""
    given = load(FIXTURES / name)
    decoder = HeaderDecoder()
    of_servers = [
        packet
        for packet in given
        for segment in decoder.segments([packet], 0)
        if segment[2][-4:-2] < segment[2][-2:]  # the lower port is that of the server
    ]
    assert 0 < len(of_servers) < len(given)
    return diagnose_packets(of_servers)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 0.93])
def test_who_was_there_before_the_capture_has_stopped_a_moment_early(share: float) -> None:
    """Not even that its connections are of ZMTP can be seen."""
    packets = load(FIXTURES / "healthy" / "ventilator.pcap.gz")
    refused, *_ = [
        one for one in diagnose_packets(packets[int(share * len(packets)) :]) if one.code == "endpoint-refused"
    ]
    assert (refused.severity, "any more" in refused.summary) == ("note", True)


@pytest.mark.parametrize("one_direction", [False, True])
def test_a_broker_that_is_away_twice(one_direction: bool) -> None:
    """Clients give up in a handshake of the broker that comes back; nobody is said to want another mechanism."""
    name = "brokers/two_outages.pcap.gz"
    ((code, summary),) = alarms(_from_servers(name) if one_direction else diagnose(FIXTURES / name))
    words = "10.5.0.1:5555 and 10.5.0.1:5556 were away 2 times, for 2.7 s and 2.5 s, and came back: "
    cut = 3 if one_direction else 6  # one direction shows of few connections that they are over
    assert (code, summary.partition(" connections")[0]) == ("service-away", f"{words}{cut}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shop/dead-server.pcap.gz", ("error", "likely", "nobody listens at 127.0.0.1:5567: 12 attempts in ")),
        ("app_salt.pcap", ("error", "certain", "nobody listens at 10.77.1.1:4506 any more: 12 attempts in ")),
        ("rec_refused.pcap", ("note", "certain", "nobody listened at 127.0.0.1:5608 at first: 3 attempts in ")),
        ("shop/none.pcap.gz", None),
    ],
)
def test_a_capture_that_has_the_rsts_alone(name: str, said: tuple[str, str, str] | None) -> None:
    """One direction: the SYNs, and all else that clients send, are missing."""
    refused = [one for one in _from_servers(name) if one.code.startswith("endpoint")]
    if said is None:
        assert not refused
        return
    severity, certainty, summary = said
    assert (refused[0].severity, refused[0].certainty) == (severity, certainty)
    assert refused[0].summary.startswith(summary)
    assert refused[0].evidence
    assert severity == "note" or "the capture lacks the SYNs" in refused[0].known


@pytest.mark.parametrize(
    ("attempts", "when_ms", "expected"),
    [
        (_attempts("refused", RHYTHM), 2000, SERVER),
        (_attempts("refused", RHYTHM), 4000, SERVER),  # perhaps it tries again soon
        (_attempts("refused", RHYTHM), 5000, ""),
        (_attempts("refused", SLOW), 32_500, SERVER),
        # The next SYN of Linux comes at 31 s.
        ([Attempt("silent", 1, "10.0.0.9:40000", SERVER, 5, 0, 15_000 * MS, 5)], 30_000, SERVER),
        ([Attempt("silent", 1, "10.0.0.9:40000", SERVER, 5, 0, 15_000 * MS, 5)], 60_000, ""),
    ],
)
def test_a_program_that_gave_up_waits_for_nobody(attempts: list[Attempt], when_ms: int, expected: str) -> None:
    """It ended, and another one on its host does not answer some time later."""
    endpoints = Endpoints([])
    endpoints.attempt(Attempt("accepted", 50, "10.0.0.8:50000", SERVER, 1, 0, 0, 1))
    for attempt in attempts:
        endpoints.attempt(attempt)
    assert endpoints.sought_by("10.0.0.9", when_ms * MS) == expected
    assert endpoints.lost_by("10.0.0.9", when_ms * MS) == expected
    assert endpoints.sought_by("10.0.0.8", when_ms * MS) == endpoints.lost_by("10.0.0.8", when_ms * MS) == ""
