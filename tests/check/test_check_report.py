"""Reports: word for word for people, valid for those who read XML and JSON, and safe whatever was captured."""

import json
import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from lxml import etree

import zmtpsniff
from dissectors.events import AnyEvent, Command, Hidden, Message
from tests.support.check_program import check
from tests.support.examples import crossed, sampled
from tests.support.golden import hold
from tests.support.paths import PROJECT
from zmtpsniff.check.check_report import Report
from zmtpsniff.check.formats import FORMATS, make_report
from zmtpsniff.check.model import Offence, Outcome, Rule, not_checked
from zmtpsniff.check.policy import parse_policy
from zmtpsniff.check.rules import Check
from zmtpsniff.check.sarif import rule_ids, uri
from zmtpsniff.check.text_report import text
from zmtpsniff.words.text import CONTROL_OR_UNSEEN

GOLDEN = Path(__file__).parent / "golden"
SCHEMAS = PROJECT / "tests" / "support" / "schemas"
POLICY = "tests/check/policy.toml"

# name of the expected file, arguments, exit status
CASES = [
    ("passes.text", "fixtures/m31_req_rep.pcap --include protocol --include complete --include modern", 0),
    ("fails.text", f"fixtures/sec_plain_ok_435_435.pcap --policy {POLICY}", 1),
    ("fails.github", f"fixtures/sec_plain_ok_435_435.pcap --policy {POLICY} -T github", 1),
    ("fails.json", f"fixtures/sec_plain_ok_435_435.pcap --policy {POLICY} -T json --show 1", 1),
    ("unanswered.text", "fixtures/rec_unanswered_request.pcap --include complete", 1),
    ("several.text", "fixtures/x_325_to_435.pcap fixtures/x_435_to_220.pcap --include modern --show 20", 1),
    ("baseline.text", "--baseline fixtures/m31_req_rep.pcap fixtures/sec_plain_refused_435.pcap", 1),
    ("init.toml", "--init fixtures/m31_pub_sub.pcap", 0),
]
BROKEN = ("sec_plain_ok_435_435", "rec_plain_wrong_password", "bad_http_on_zmq_port", "net_zmtp1_gap", "m31_push_pull")


@pytest.mark.parametrize(("expected", "arguments", "status"), CASES, ids=[case[0] for case in CASES])
def test_output_is_as_expected(expected: str, arguments: str, status: int, request: pytest.FixtureRequest) -> None:
    utc = [] if "--init" in arguments or "--baseline" in arguments else ["--utc"]
    done = check(*arguments.split(), *utc)
    assert (done.status, done.err) == (status, "")
    hold(request, GOLDEN / expected, done.out)


def test_no_expected_file_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {case[0] for case in CASES}


@cache
def _sarif() -> jsonschema.Draft202012Validator:
    schema = json.loads((SCHEMAS / "sarif-2.1.0.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def _held_against_schema(output: str, text: str) -> None:
    if output == "junit":
        schema = etree.XMLSchema(etree.parse(str(SCHEMAS / "junit-10.xsd")))
        schema.assertValid(etree.fromstring(text.encode()))
    elif output == "sarif":
        _sarif().validate(json.loads(text))
    elif output == "json":
        json.loads(text)


@pytest.mark.parametrize("name", sampled([*BROKEN, "m31_req_rep"]))
@pytest.mark.parametrize("output", ["junit", "sarif"])
def test_reports_are_valid(name: str, output: str, tmp_path: Path) -> None:
    file = tmp_path / "report"
    done = check(f"fixtures/{name}.pcap", "--policy", POLICY, "-T", f"{output}={file}")
    assert (done.status, done.out) == (1, "")  # nobody sends "orders"
    _held_against_schema(output, file.read_text())


@pytest.mark.parametrize("output", ["junit", "sarif"])
def test_reports_of_a_comparison_are_valid(output: str) -> None:
    done = check("--baseline", "fixtures/m31_req_rep.pcap", "fixtures/m31_pub_sub.pcap", "-T", output)
    assert done.status == 1
    _held_against_schema(output, done.out)


def test_the_schemas_refuse_what_is_wrong() -> None:
    with pytest.raises(etree.DocumentInvalid):
        _held_against_schema("junit", '<testsuites><testsuite tests="1"/></testsuites>')
    with pytest.raises(jsonschema.ValidationError):
        _held_against_schema("sarif", '{"version": "2.1.0", "runs": [{"results": []}]}')


def test_a_test_case_for_each_rule() -> None:
    done = check("fixtures/sec_plain_ok_435_435.pcap", "--policy", POLICY, "-T", "junit")
    suites = ElementTree.fromstring(done.out)
    (suite,) = suites.findall("testsuite")
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert len(cases) == int(suite.get("tests", "")) == 13
    assert {name for name, case in cases.items() if case.find("failure") is not None} == {
        "no credentials in clear",
        "no passwords in clear",
        "orders flow",
    }
    assert suite.get("failures") == "3"
    failure = cases["no passwords in clear"].find("failure")
    assert failure is not None
    assert failure.get("message") == "found 1 record, none allowed"
    assert "#10 connection 1" in (failure.text or "")
    warning = cases["few messages"].find("system-out")
    assert warning is not None
    assert (warning.text or "").startswith("warning: ")


def test_results_of_sarif_point_into_the_policy_and_to_the_packets() -> None:
    done = check("fixtures/sec_plain_ok_435_435.pcap", "--policy", POLICY, "-T", "sarif")
    (run,) = json.loads(done.out)["runs"]
    results = {result["ruleId"]: result for result in run["results"]}
    assert set(results) == {
        "secure/no-credentials-in-clear",
        "forbid/no-passwords-in-clear",
        "expect/orders-flow",
        "expect/few-messages",
    }
    result = results["forbid/no-passwords-in-clear"]
    (location,) = result["locations"]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": POLICY}, "region": {"startLine": 4}}
    (related,) = result["relatedLocations"]
    assert related["properties"]["packet"] == 10
    assert related["physicalLocation"]["artifactLocation"]["uri"] == "fixtures/sec_plain_ok_435_435.pcap"
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert results["expect/few-messages"]["level"] == "warning"


def test_rules_whose_names_differ_in_signs_only_have_ids_of_their_own() -> None:
    rules = [Rule(name, "expect", "") for name in ("a b!", "a b?", "a-b", "...", "c")]
    assert rule_ids(rules) == ["expect/a-b", "expect/a-b.2", "expect/a-b.3", "expect/...", "expect/c"]


def test_a_name_of_a_file_as_uri() -> None:
    assert uri("a b/c%.pcap") == "a%20b/c%25.pcap"
    assert uri("/tmp/ä.pcap") == "file:///tmp/%C3%A4.pcap"
    assert uri("./x.pcap") == "x.pcap"


def test_each_report_goes_where_it_is_asked_to(tmp_path: Path) -> None:
    options = ["-T", "text", "-T", "github", "-T", f"junit={tmp_path}/junit.xml", "-T", f"json={tmp_path}/report.json"]
    done = check("fixtures/sec_plain_ok_435_435.pcap", "--include", "secure", *options)
    assert done.status == 1
    assert done.out.startswith("ok    nothing in clear")
    assert "\n::error title=no credentials in clear::" in done.out
    _held_against_schema("junit", (tmp_path / "junit.xml").read_text())
    assert json.loads((tmp_path / "report.json").read_text())["passed"] is False
    assert {path.name for path in tmp_path.iterdir()} == {"junit.xml", "report.json"}


def test_a_warning_does_not_fail(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('[[rule]]\nname = "quiet"\nforbid = "type"\nlevel = "warning"')
    done = check("fixtures/m31_req_rep.pcap", "--policy", tmp_path / "policy.toml", "-T", "text", "-T", "github")
    assert done.status == 0
    assert done.out.startswith("WARN  quiet")
    assert "0 of 1 rule passed, 1 warning" in done.out
    assert "\n::warning file=" in done.out


def test_packets_of_several_captures_are_named_by_their_files() -> None:
    names = ["fixtures/x_325_to_435.pcap", "fixtures/x_435_to_220.pcap", "fixtures/m31_req_rep.pcap"]
    together = check(*names, "--include", "modern", "-T", "json", "--show", "100").rules()["no peer below 3.0"]
    apart = []
    for name in names:
        rule = check(name, "--include", "modern", "-T", "json", "--show", "100").rules()["no peer below 3.0"]
        apart += [(name, offence["packet"]) for offence in rule.get("offences", [])]
    assert sorted((offence["file"], offence["file_packet"]) for offence in together["offences"]) == sorted(apart)
    assert len(apart) > 5


def test_a_capture_from_standard_input() -> None:
    data = (PROJECT / "fixtures/m31_req_rep.pcap").read_bytes()
    done = check("-", "--include", "protocol", "-T", "sarif", octets=data)
    assert done.status == 0
    _held_against_schema("sarif", done.out)


def test_traffic_without_zmtp_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "empty.pcap").write_bytes((PROJECT / "fixtures/m31_req_rep.pcap").read_bytes()[:24])
    done = check(tmp_path / "empty.pcap", "--include", "secure")
    assert (done.status, done.err) == (0, "")
    assert "not checked: there is no ZMTP connection in the capture" in done.out
    assert done.out.splitlines()[-1].startswith("0 of 2 rules passed, 2 not checked: ")


def test_only_what_passes_the_display_filter_is_looked_at() -> None:
    policy = ["--include", "secure", "-T", "json"]
    assert check("fixtures/sec_plain_ok_435_435.pcap", *policy).failed() == {"no credentials in clear"}
    assert check("fixtures/sec_plain_ok_435_435.pcap", *policy, "-Y", 'type == "message"').failed() == set()


# --------------------------------------------------------------------- whatever was captured

HOSTILE = "x\x00\x1b[31m\r\n::error::%0A ]]>&<\"'\u202e\ufffe\udc80,:\x85é"


def _hostile_report() -> Report:
    place = (1_700_000_000_000_000_000, 7, 1, "127.0.0.1:1", "127.0.0.1:2")
    events: list[AnyEvent] = [
        Command(*place, name=HOSTILE, username=HOSTILE.encode("utf-8", "surrogatepass"), password=Hidden(7)),
        Message(*place, frames=[HOSTILE.encode("utf-8", "surrogatepass"), bytes(range(256))], socket_type=HOSTILE),
    ]
    rule = '[[rule]]\nname = "it"\nforbid = \'type in {"command", "message"}\''
    trial = Check(parse_policy(rule, "x"))
    trial.take(events)
    (outcome,) = trial.finish()
    assert len(outcome.offences) == 2
    named = Rule(HOSTILE, "forbid", HOSTILE, file=HOSTILE, line=3)
    offence = Offence(HOSTILE, 1, 1, 1, HOSTILE, 1)
    return Report([outcome, Outcome(named, False, HOSTILE, [offence], 3)], [HOSTILE], HOSTILE, "0", None, 0)


@pytest.mark.parametrize("output", FORMATS)
def test_reports_hold_nothing_that_a_terminal_or_a_reader_acts_on(output: str) -> None:
    text = make_report(output)(_hostile_report())  # type: ignore[arg-type]
    assert not CONTROL_OR_UNSEEN.search(text.replace("\n", ""))
    text.encode()  # no lone surrogate
    _held_against_schema(output, text)
    if output in ("text", "github"):
        commands = [line for line in text.splitlines() if line.lstrip().startswith("::")]
        assert len(commands) == (3 if output == "github" else 0)
        assert all(re.match(r"::(error|notice) [^\r\n]*::", line) for line in commands)


def test_properties_of_an_annotation_are_escaped() -> None:
    line = make_report("github")(_hostile_report()).splitlines()[1]
    properties = line.split("::")[1].removeprefix("error ")
    assert [each.partition("=")[0] for each in properties.split(",")] == ["file", "line", "title"]
    assert "%3A%3Aerror%3A%3A%250A" in properties


@pytest.mark.parametrize(
    ("output", "name"),
    crossed([*FORMATS], ["sec_plain_ok_435_435", "rec_plain_wrong_password", "sec_plain_refused_435"]),
)
def test_no_password_in_a_report(output: str, name: str) -> None:
    done = check(f"fixtures/{name}.pcap", "--policy", POLICY, "--show", "1000", "-T", output)
    assert done.status == 1
    assert "alice" in done.out or "user" in done.out
    secrets = _passwords(name)
    assert secrets
    said = done.out.replace(name, "")  # which tells one of them
    assert not any(secret in said for secret in secrets)


def _passwords(name: str) -> set[str]:
    capture = zmtpsniff.open(PROJECT / f"fixtures/{name}.pcap", show_secrets=True)
    commands = [event for event in capture if isinstance(event, Command)]
    return {event.password.decode() for event in commands if isinstance(event.password, bytes)}


def test_what_of_a_service_is_not_checked_for_one_reason_is_one_line() -> None:
    def rule(key: str, group: str = "prices") -> Rule:
        return Rule(f"{group}: {key}", "endpoint", "", group=group, file="policy.toml", line=9)

    outcomes = [
        not_checked(rule("mechanism"), "no handshake"),
        not_checked(rule("version"), "no handshake"),
        not_checked(rule("topics"), "began before"),
        Outcome(rule("latency"), True, ""),
        not_checked(rule("mechanism", "orders"), "began before"),
    ]
    lines = text(Report(outcomes, [], "a.pcap", "0")).splitlines()
    assert lines == [
        "?     prices  (2 rules)",
        "      mechanism, version",
        "      not checked: no handshake",
        "?     prices: topics  (policy.toml:9)",
        "      not checked: began before",
        "ok    prices  (1 rule)",
        "      latency",
        "?     orders: mechanism  (policy.toml:9)",
        "      not checked: began before",
        "",
        "1 of 5 rules passed, 4 not checked: a.pcap",
    ]
