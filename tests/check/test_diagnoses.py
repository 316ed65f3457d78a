"""Rules on findings: what a diagnosis of the same traffic may not find."""

import json
from pathlib import Path

import pytest

from tests.support.check_program import check, without_packets
from tests.support.paths import FIXTURES
from tests.support.runner import run


def _verdict(name: str | Path, codes: str, tmp_path: Path, *more: str) -> tuple[str, str, list[dict[str, object]]]:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[[rule]]\nname = "it"\nno_findings = {codes}')
    capture = name if isinstance(name, Path) else f"fixtures/{name}"
    rule = check(capture, "--policy", policy, "-T", "json", *more).rules()["it"]
    return rule["verdict"], rule["found"], rule.get("offences", [])


def test_a_finding_is_an_offence_with_its_packet(tmp_path: Path) -> None:
    verdict, found, offences = _verdict("shop/null.pcap.gz", '["mechanisms-differ"]', tmp_path)
    assert (verdict, found) == ("failed", "1 finding, none allowed")
    (offence,) = offences
    assert str(offence["text"]).startswith("error mechanisms-differ: 127.0.0.1 and 127.0.0.1:5566 want different")
    assert offence["packet"] == 141
    assert _verdict("shop/null.pcap.gz", '["error"]', tmp_path)[0] == "failed"
    assert _verdict("shop/null.pcap.gz", '["warning", "subscriber-slow"]', tmp_path)[0] == "passed"


def test_a_finding_has_the_code_that_diagnose_shows(tmp_path: Path) -> None:
    for codes in ('["no-delimiter"]', '["protocol-violated"]'):
        verdict, _, offences = _verdict("rec_no_delimiter.pcap", codes, tmp_path)
        assert verdict == "failed"
        assert " no-delimiter: " in str(offences[0]["text"])
    assert _verdict("rec_no_delimiter.pcap", '["request-before-reply"]', tmp_path)[0] == "passed"
    (shown,) = {
        finding["problem"]
        for finding in map(
            json.loads, run("diagnose", "-T", "json", FIXTURES / "rec_no_delimiter.pcap").stdout.splitlines()
        )
        if finding.get("code") == "protocol-violated"
    }
    assert shown == "no-delimiter"


def test_what_is_seen_below_the_octets_is_found_too(tmp_path: Path) -> None:
    assert _verdict("shop/dead-server.pcap.gz", '["endpoint-refused"]', tmp_path)[0] == "failed"
    # it is a note there: the service was only started a little later
    assert _verdict("rec_refused.pcap", '["endpoint-refused"]', tmp_path)[0] == "passed"


@pytest.mark.parametrize("codes", ['["subscriber-slow", "messages-dropped"]', '["error", "warning"]'])
def test_a_healthy_capture(codes: str, tmp_path: Path) -> None:
    assert _verdict("rec_forwarder_ok.pcap", codes, tmp_path) == ("passed", "no such finding", [])


def test_what_the_capture_does_not_show_is_not_checked(tmp_path: Path) -> None:
    late = without_packets("m31_pub_sub.pcap", range(1, 14), tmp_path)
    assert _verdict(late, '["mechanisms-differ"]', tmp_path)[0] == "not checked"
    assert _verdict(late, '["endpoint-refused"]', tmp_path)[0] == "passed"
    lossy = without_packets("m31_pub_sub.pcap", range(20, 22), tmp_path)
    assert _verdict(lossy, '["messages-dropped"]', tmp_path)[:2] == (
        "not checked",
        "not checked: the capture does not have everything",
    )
    assert _verdict(lossy, '["capture-lossy"]', tmp_path)[0] == "failed"


def test_advice_for_a_late_capture_names_its_port(tmp_path: Path) -> None:
    late = without_packets("m31_req_rep.pcap", range(1, 14), tmp_path)
    assert "`ss -K dport = 20205`" in " ".join(run("diagnose", late).stdout.split())
