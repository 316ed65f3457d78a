"""A rule about facts that a capture does not show is not checked: it is neither kept nor broken."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dissectors.events import Connection, Handshake, Peer, Sides
from tests.support.check_program import check, outcomes, without_packets
from zmtpsniff.check.check_report import Report
from zmtpsniff.check.formats import make_report
from zmtpsniff.check.model import Outcome, Rule
from zmtpsniff.check.sight import types_unknown, unseen_by
from zmtpsniff.render.palette import Palette

ASKED = [
    # a filter, and whether it asks for what only a handshake says
    ('type == "connection" && mechanism == "NULL"', True),
    ('type == "connection" && client.version == "3.1"', True),
    ('server.socket_type == "PUB"', True),
    ('zmtp.mechanism == "PLAIN"', True),
    ('type == "message" && socket_type == "PUSH"', True),
    ('type == "greeting"', True),
    ('name in {"HELLO", "ERROR"}', True),
    ("username", True),
    ('name == "PING"', False),
    ('type == "message" && frames[0].text == "HELLO"', False),
    ('type == "problem" && severity == "error"', False),
    ('handshake == "failed"', False),
]


@pytest.mark.parametrize(("text", "asks"), ASKED, ids=[text for text, _ in ASKED])
def test_what_a_filter_asks_for(text: str, asks: bool) -> None:
    assert (unseen_by(text) is not None) is asks


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests and replies, without the handshake."""
    return without_packets("m31_req_rep.pcap", range(1, 14), tmp_path_factory.mktemp("late"))


def _one(capture: Path, rule: str) -> Outcome:
    (outcome,) = outcomes(str(capture), f'[[rule]]\nname = "it"\n{rule}').values()
    return outcome


NOT_CHECKED = [
    """forbid = 'type == "connection" && mechanism && !(mechanism in {"CURVE"})'""",
    """expect = 'type == "connection" && mechanism == "CURVE"'""",
    """expect = 'type == "greeting"'\nper = "connection"\ncount = 2""",
    """forbid = 'name == "HELLO"'""",
    # inferred as REP, which a ROUTER may look like
    """expect = 'type == "connection" && server.socket_type == "ROUTER"'""",
    """expect = 'type == "connection" && client.socket_type == "DEALER"'""",
    """order = ['name == "READY"', 'type == "message"']""",
    """order = ['name == "READY"', 'type == "message"']\nper = "connection\"""",
]


@pytest.mark.parametrize("rule", NOT_CHECKED)
def test_what_is_not_in_a_late_capture_is_not_checked(late: Path, rule: str) -> None:
    outcome = _one(late, rule)
    assert (outcome.verdict, outcome.checked, outcome.offences) == ("not checked", False, ())
    assert outcome.found.startswith("not checked: 1 of 1 connection began before the capture")


CHECKED = [
    ("""expect = 'type == "message"'""", "passed"),
    ("""forbid = 'type == "message"'""", "failed"),
    ("""order = ['type == "message"', 'type == "message"']""", "passed"),
    ("""expect = 'type == "connection" && handshake == "not-seen"'""", "passed"),
    # what is there breaks a rule, whatever else was before the capture
    ("""forbid = 'socket_type == "REQ" || type == "message"'""", "failed"),
]


@pytest.mark.parametrize(("rule", "verdict"), CHECKED)
def test_what_a_late_capture_has_is_checked(late: Path, rule: str, verdict: str) -> None:
    assert _one(late, rule).verdict == verdict


@pytest.mark.parametrize(
    ("handshake", "types", "unknown"),
    [
        ("not-seen", (None, None), True), ("not-seen", ("REQ", None), True), ("not-seen", ("REQ", "REP"), False),
        ("complete", ("REQ", "REP"), False), ("failed", ("REQ", None), False), ("complete", (None, None), False),
    ],
)  # fmt: skip
def test_types_are_unknown_if_neither_a_handshake_nor_messages_tell_them(
    handshake: Handshake, types: tuple[str | None, str | None], unknown: bool
) -> None:
    client, server = Peer("10.0.0.1:40000", socket_type=types[0]), Peer("10.0.0.2:5555", socket_type=types[1])
    one = Connection(1, "tcp", client, server, Sides(1, 1), Sides(9, 9), 1, 2, "fin", handshake=handshake)
    assert types_unknown(one) is unknown
    lacks_types = unseen_by('socket_type == "REQ"')
    assert lacks_types is not None
    assert lacks_types(one) is unknown


def test_a_whole_capture_is_checked() -> None:
    for rule in NOT_CHECKED:
        assert _one(Path("m31_req_rep.pcap"), rule).checked


def test_latency_without_replies_is_not_checked() -> None:
    rule = 'latency = { pattern = "request-reply", p99_ms = 5 }\nmin = 0'
    assert _one(Path("m31_push_pull.pcap"), rule).verdict == "not checked"


def test_the_summary_counts_them_and_strict_makes_them_fail(late: Path) -> None:
    lenient = check(late, "--include", "modern", "--include", "protocol")
    assert lenient.status == 0
    assert lenient.out.splitlines()[-1].startswith("1 of 2 rules passed, 1 not checked: ")
    assert "?     no peer below 3.0" in lenient.out
    strict = check(late, "--include", "modern", "--include", "protocol", "--strict")
    assert strict.status == 1
    assert strict.out.splitlines()[-1].startswith("1 of 2 rules failed: ")
    assert "FAIL  no peer below 3.0" in strict.out


def test_every_format_shows_them(late: Path) -> None:
    def report(output: str, *more: str) -> str:
        return check(late, "--include", "modern", "-T", output, *more).out

    data = json.loads(report("json"))
    assert data["counts"] == {"passed": 0, "failed": 0, "warning": 0, "not_checked": 1}
    assert [(rule["passed"], rule["checked"], rule["verdict"]) for rule in data["rules"]] == [
        (False, False, "not checked")
    ]
    (suite,) = ElementTree.fromstring(report("junit"))
    assert (suite.get("skipped"), suite.get("failures")) == ("1", "0")
    assert suite.find("testcase/skipped") is not None
    ((result,),) = [run["results"] for run in json.loads(report("sarif"))["runs"]]
    assert (result["kind"], result["level"]) == ("open", "none")
    assert report("github").startswith("::notice title=no peer below 3.0::not checked: ")
    ((result,),) = [run["results"] for run in json.loads(report("sarif", "--strict"))["runs"]]
    assert (result["kind"], result["level"]) == ("fail", "error")
    assert report("github", "--strict").startswith("::error title=no peer below 3.0::not checked: ")


def test_colours_on_a_terminal_and_the_line_that_matters_last() -> None:
    rule = Rule("it", "forbid", "forbid type")
    verdicts = [Outcome(rule, True, ""), Outcome(rule, False, ""), Outcome(rule, False, "", checked=False)]
    palette = Palette(good="<good>", error="<error>", note="<note>", reset="</>")
    lines = make_report("text", palette)(Report(verdicts, [], "x.pcap", "0")).splitlines()
    assert [line[:12] for line in lines if "it" in line] == ["<good>ok  </", "<error>FAIL<", "<note>?   </"]
    assert lines[-1] == "<error>1 of 3 rules failed</>, <note>1 not checked</>: x.pcap"
    coloured = check("fixtures/m31_req_rep.pcap", "--include", "modern", "--color", "always").out
    assert "\x1b[32mok  \x1b[0m" in coloured
    assert "\x1b" not in check("fixtures/m31_req_rep.pcap", "--include", "modern").out
