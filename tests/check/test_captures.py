"""Policies made from captures, and captures compared."""

from pathlib import Path

import pytest

import zmtpsniff
from tests.support.checked import capture, check, outcomes
from tests.support.paths import CAPTURES, FIXTURES
from zmtpsniff.check.baseline import compare
from zmtpsniff.check.builtin import SETS
from zmtpsniff.check.init import policy_text
from zmtpsniff.check.profile import Profile
from zmtpsniff.check.rules import Check

_ALL = sorted(
    {path.name for folder in (FIXTURES, CAPTURES) for path in folder.glob("*.pcap*") if path.suffix != ".json"}
)


def _looked_at(*names: str) -> tuple[Profile, list[str]]:
    """What captures hold, and the built-in sets that they pass."""
    profile = Profile()
    trial = Check([rule for rules in SETS.values() for rule in rules], 0)
    for events in zmtpsniff.open(*map(capture, names), payload=False).batches():
        profile.take(events)
        trial.take(events)
    failed = {outcome.rule.set_name for outcome in trial.finish() if not outcome.passed}
    return profile, [name for name in SETS if name not in failed]


@pytest.mark.parametrize("name", _ALL)
@pytest.mark.parametrize("factor", [1.01, 2])
def test_a_capture_passes_the_policy_that_was_made_from_it(name: str, factor: float) -> None:
    profile, sets = _looked_at(name)
    policy = policy_text(profile, sets, name, factor)
    if not profile.services:
        policy += '[[rule]]\nname = "it"\nforbid = "frames"'  # traffic of another kind makes no rule
    failed = [(outcome.rule.name, outcome.found) for outcome in outcomes(name, policy).values() if not outcome.passed]
    assert failed == []


@pytest.mark.parametrize("name", _ALL)
def test_a_capture_does_not_differ_from_itself(name: str) -> None:
    old, new = _looked_at(name)[0], _looked_at(name)[0]
    assert [outcome.found for outcome in compare(old, new, 1.01, 5) if not outcome.passed] == []


# a capture, one that differs from it, and the rules of the first one's policy that the second one breaks
OTHERS = [
    ("m31_req_rep.pcap", "rec_unanswered_request.pcap", {"every request answered", "messages from REP"}),
    ("m31_req_rep.pcap", "m31_push_pull.pcap", {"no other socket types", "REQ talks to REP", "messages from REQ"}),
    ("m31_pub_sub.pcap", "x_325_to_435.pcap", {"no other versions", "no peer below 3.0", "no other topics"}),
    ("m31_push_pull.pcap", "sec_plain_ok_435_435.pcap", {"no other mechanisms", "no credentials in clear"}),
    ("sec_curve_ps_435_435.pcap", "m31_pub_sub.pcap", {"no other mechanisms", "encrypted messages"}),
]


@pytest.mark.parametrize(("name", "other", "broken"), OTHERS, ids=[f"{a}-{b}" for a, b, _ in OTHERS])
def test_other_traffic_does_not_pass(name: str, other: str, broken: set[str]) -> None:
    profile, sets = _looked_at(name)
    found = outcomes(other, policy_text(profile, sets, name, 2))
    assert broken <= {rule for rule, outcome in found.items() if not outcome.passed}


def test_init_and_check_as_commands(tmp_path: Path) -> None:
    names = ["fixtures/x_325_to_435.pcap", "fixtures/m31_heartbeat.pcap"]
    policy = tmp_path / "policy.toml"
    done = check("--init", *names, "-o", policy, "--factor", "3")
    assert (done.status, done.out, done.err) == (0, "", "")
    assert "within a factor of 3" in policy.read_text()
    assert check(*names, "--policy", policy).status == 0
    assert check("fixtures/m31_req_rep.pcap", "--policy", policy).status == 1
    assert check("--init", *names, "--factor", "3").out == policy.read_text()


def test_topics_of_any_octets_can_be_in_a_policy() -> None:
    profile = Profile()
    profile.topics.update([bytes(range(256)), b'it\'s "quoted" \\', "wétter".encode(), b""])
    text = policy_text(profile, ["protocol"], "x\x1b\n.pcap", 2)
    assert all(char == "\n" or char.isprintable() for char in text)
    (rule,) = [outcome for outcome in outcomes("m31_pub_sub.pcap", text).values() if outcome.rule.kind == "forbid"][-1:]
    assert rule.rule.name == "no other topics"
    assert not rule.passed  # this capture's topics are others
    profile.topics.update([b"sport/football", b"weather", b"\x00\x01bin"])
    assert outcomes("m31_pub_sub.pcap", policy_text(profile, ["protocol"], "x", 2))["no other topics"].passed


def test_too_many_topics_are_not_listed() -> None:
    profile = Profile()
    profile.topics.update(b"topic %d" % number for number in range(5000))
    text = policy_text(profile, ["protocol"], "x", 2)
    assert "# 5,000 topics were subscribed to" in text
    assert outcomes("m31_pub_sub.pcap", text)["no errors"].passed


def test_what_a_profile_keeps_is_bounded() -> None:
    from dissectors.events import Subscription

    profile = Profile()
    events = [Subscription(1, 1, 1, "a:1", "b:1", "subscribe", b"%d" % number, "command") for number in range(20_000)]
    profile.take(events)
    assert len(profile.topics) == 10_000
    assert profile.is_cut


# --------------------------------------------------------------------- compared

DIFFERENCES = [
    (
        "m31_req_rep.pcap",
        "rec_unanswered_request.pcap",
        {"connections", "messages", "problems"},
        ["new: REQ > REP at 127.0.0.1:5561", "gone: messages of 2 frames from REP", "new: request-unanswered"],
    ),
    ("m31_pub_sub.pcap", "x_435_to_435.pcap", {"connections", "topics", "messages"}, ['gone: "sport/football"']),
    (
        "sec_plain_refused_435.pcap",
        "sec_plain_ok_435_435.pcap",
        {"connections", "messages", "problems"},
        ["gone: peer-error"],
    ),
]


@pytest.mark.parametrize(("old", "new", "which", "lines"), DIFFERENCES)
def test_captures_that_differ(old: str, new: str, which: set[str], lines: list[str]) -> None:
    if not (capture(old).exists() and capture(new).exists()):
        pytest.skip("the recorded captures are not here")
    found = {outcome.rule.name: outcome for outcome in compare(_looked_at(old)[0], _looked_at(new)[0], 2, 100)}
    assert {name for name, outcome in found.items() if not outcome.passed} == which
    said = {offence.text for outcome in found.values() for offence in outcome.offences}
    assert set(lines) <= said


def test_the_same_service_with_other_peers_rates_and_latencies_is_changed() -> None:
    old, new = _looked_at("m31_req_rep.pcap")[0], _looked_at("m31_req_rep.pcap")[0]
    ((service, side), *_) = [key for key, count in new.sent.items() if count]
    new.sent[service, side] *= 3
    for (each, version), count in list(new.versions.items()):
        del new.versions[each, version]
        new.versions[each, "3.0"] = count
    for _ in range(100):
        new.latencies.add(10**9)
    lines = [offence.text for outcome in compare(old, new, 2, 10) for offence in outcome.offences]
    assert "changed: REQ > REP at 127.0.0.1:20205: 3.1, now 3.0" in lines
    assert any(line.startswith(f"changed: REQ > REP at 127.0.0.1:20205: {side} sent ") for line in lines)
    assert any(line.startswith("changed: p99 was 1.011 ms, now ") for line in lines), lines


def test_baseline_as_a_command() -> None:
    same = check("--baseline", "fixtures/m31_req_rep.pcap", "fixtures/m31_req_rep.pcap", "-T", "json")
    assert (same.status, same.failed()) == (0, set())
    other = check("--baseline", "fixtures/m31_req_rep.pcap", "fixtures/m31_pub_sub.pcap", "-T", "json")
    assert other.status == 1
    assert {"connections", "topics", "messages"} <= other.failed()
