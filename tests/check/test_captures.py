"""Policies made from captures, and captures compared."""

from collections.abc import Container, Iterable
from pathlib import Path

import pytest

import zmtpsniff
from dissectors.events import AnyEvent, Connection, Peer, Sides, Subscription
from tests.support.check_program import capture, check, outcomes, without_packets
from tests.support.examples import sampled
from tests.support.paths import CAPTURES, FIXTURES
from zmtpsniff.check.baseline import compare
from zmtpsniff.check.builtin import SETS
from zmtpsniff.check.endpoints import AllowedTopics
from zmtpsniff.check.globs import any_matches
from zmtpsniff.check.init import policy_text
from zmtpsniff.check.model import Outcome
from zmtpsniff.check.policy import parse_policy
from zmtpsniff.check.rules import Check
from zmtpsniff.check.services import Services

_ALL = sorted(
    {path.name for folder in (FIXTURES, CAPTURES) for path in folder.glob("*.pcap*") if path.suffix != ".json"}
)


def _looked_at(*names: str | Path) -> tuple[Services, list[str]]:
    """The contents of captures, and the built-in sets that they pass."""
    services = Services()
    trial = Check([rule for rules in SETS.values() for rule in rules], 0)
    files = [capture(str(name)) for name in names]
    for events in zmtpsniff.open(*files, payload=False).batches():
        services.take(events)
        trial.take(events)
    failed = {outcome.rule.set_name for outcome in trial.finish() if not outcome.passed}
    return services, [name for name in SETS if name not in failed]


def _policy(name: str | Path, factor: float = 2) -> str:
    services, sets = _looked_at(name)
    return policy_text(services, sets, str(name), factor)


def _broken(name: str | Path, policy: str) -> dict[str, str]:
    return {rule: outcome.found for rule, outcome in outcomes(str(name), policy).items() if outcome.failed}


def _has_rules(policy: str) -> bool:
    return "[[endpoint]]" in policy or "include = []" not in policy


@pytest.mark.parametrize("name", sampled(_ALL))
@pytest.mark.parametrize("factor", [1.01, 2])
def test_a_capture_passes_the_policy_that_was_made_from_it(name: str, factor: float) -> None:
    policy = _policy(name, factor)
    if not _has_rules(policy):
        policy += '[[rule]]\nname = "it"\nforbid = "packet == 0"'  # a policy has one
    assert _broken(name, policy) == {}


# a capture, one that differs from it, and the rules of the first one's policy that the second one breaks
OTHERS = [
    ("m31_req_rep.pcap", "rec_unanswered_request.pcap", {"every request answered", "no other endpoints"}),
    ("m31_req_rep.pcap", "m31_push_pull.pcap", {"127.0.0.1:20205: min_clients", "no other endpoints"}),
    ("m31_pub_sub.pcap", "x_325_to_435.pcap", {"no peer below 3.0", "no other endpoints"}),
    ("m31_push_pull.pcap", "sec_plain_ok_435_435.pcap", {"no credentials in clear"}),
]


@pytest.mark.parametrize(("name", "other", "broken"), OTHERS, ids=[f"{a}-{b}" for a, b, _ in OTHERS])
def test_other_traffic_does_not_pass(name: str, other: str, broken: set[str]) -> None:
    assert broken <= _broken(other, _policy(name)).keys()


_KEPT = ["m31_req_rep.pcap", "x_325_to_435.pcap", "m31_pub_sub.pcap", "m31_heartbeat.pcap", "shop/none.pcap.gz"]


@pytest.mark.parametrize("name", _KEPT)
def test_a_whole_capture_keeps_what_a_lossy_or_late_one_says(name: str, tmp_path: Path) -> None:
    losses: list[Container[int]] = [range(1, 12), range(12, 15), range(20, 200, 7), range(1, 500)]
    for lost in losses:
        policy = _policy(without_packets(name, lost, tmp_path))
        if _has_rules(policy):
            assert _broken(name, policy) == {}, lost


def test_a_lossy_capture_still_says_what_services_are(tmp_path: Path) -> None:
    policy = _policy(without_packets("m31_req_rep.pcap", range(20, 22), tmp_path))
    assert "# Something is missing from the capture" in policy
    assert 'mechanism = "NULL"' in policy
    assert "include = []" in policy
    assert "max" not in policy


def test_init_and_check_as_commands(tmp_path: Path) -> None:
    names = ["fixtures/x_325_to_435.pcap", "fixtures/m31_heartbeat.pcap"]
    policy = tmp_path / "policy.toml"
    done = check("--init", *names, "-o", policy, "--factor", "3")
    assert (done.status, done.out, done.err) == (0, "", "")
    assert "factor" not in policy.read_text()  # it has neither rates nor latencies
    assert "by a factor of 3" in check("--init", "fixtures/shop/none.pcap.gz", "--factor", "3").out
    assert check(*names, "--policy", policy).status == 0
    assert check("fixtures/m31_req_rep.pcap", "--policy", policy).status == 1
    assert check("--init", *names, "--factor", "3").out == policy.read_text()


def _subscriptions(topics: Iterable[bytes]) -> Services:
    """A capture with a service that such topics are subscribed to."""
    services = Services()
    events: list[AnyEvent] = [
        Subscription(1, 1, 1, "a:9", "b:1", "subscribe", topic, "command") for topic in topics
    ]  # fmt: skip
    peers = (Peer("a:9", socket_type="SUB"), Peer("b:1", socket_type="PUB"))
    events.append(Connection(1, "tcp", *peers, Sides(0, 0), Sides(0, 0), 1, 2, "fin", handshake="complete"))
    services.take(events)
    return services


def test_topics_of_any_text_can_be_in_a_policy() -> None:
    topics = [b'it\'s "quoted" \\ * ?', "wétter".encode(), b""]
    text = policy_text(_subscriptions(topics), ["protocol"], "x\x1b\n.pcap", 2)
    assert all(char == "\n" or char.isprintable() for char in text)
    rules = {rule.name: rule for rule in parse_policy(text, "x.toml")}
    endpoint = rules["b:1: subscriptions_allowed"].endpoint
    assert endpoint is not None
    assert isinstance(endpoint.demand, AllowedTopics)
    assert sorted(topic for topic in [*topics, b"it's", b"x"] if any_matches(endpoint.demand.topics, topic)) == sorted(
        topics
    )


@pytest.mark.parametrize(
    ("topics", "why"),
    [([b"topic %d" % number for number in range(5000)], "there are more than 50"), ([b"\xff\x00"], "not all are text")],
)
def test_topics_that_cannot_be_listed_are_not(topics: list[bytes], why: str) -> None:
    text = policy_text(_subscriptions(topics), ["protocol"], "x", 2)
    assert f"# {len(topics):,} subscriptions, not listed: {why}." in text
    assert "subscriptions_allowed" not in text


def test_what_is_kept_of_topics_is_bounded() -> None:
    services = _subscriptions(b"%d" % number for number in range(20_000))
    (service,) = services.services.values()
    assert len(service.subscriptions.counts) == 10_000
    assert service.subscriptions.is_cut


# --------------------------------------------------------------------- compared


def _compared(old: str | Path, new: str | Path, tolerance: float = 100) -> dict[str, Outcome]:
    found = compare(_looked_at(old)[0], _looked_at(new)[0], tolerance, 100)
    return {outcome.rule.name: outcome for outcome in found}


def _worse(outcomes: dict[str, Outcome]) -> list[str]:
    return [offence.text for outcome in outcomes.values() for offence in outcome.offences]


@pytest.mark.parametrize("name", sampled(_ALL))
def test_a_capture_is_no_worse_than_itself(name: str) -> None:
    assert [outcome.found for outcome in _compared(name, name, 0).values() if outcome.failed] == []


WORSE = [
    # a change of the shop, and what is worse by it
    (
        "no-archive",
        ["127.0.0.1:5563 had at least 4 clients, has 3", '"" was subscribed to at 127.0.0.1:5563, and is not any more'],
    ),
    ("open-vault", ["127.0.0.1:5566 was CURVE, is NULL"]),
    ("new-client", []),
    (
        "null",
        [
            "127.0.0.1:5566 had at least 1 client, has none",
            "1 of 1 connection to 127.0.0.1:5566 failed, and 0 of 1 before",
            "127.0.0.1:5566: mechanism-mismatch once, and never before",
        ],
    ),
]


@pytest.mark.parametrize(("way", "said"), WORSE, ids=[way for way, _ in WORSE])
def test_what_is_worse_is_said_with_its_service(way: str, said: list[str]) -> None:
    assert _worse(_compared("shop/none.pcap.gz", f"shop/{way}.pcap.gz", 300)) == said


def test_what_is_better_is_not_said() -> None:
    said = _worse(_compared("shop/open-vault.pcap.gz", "shop/none.pcap.gz", 300))
    assert [line for line in said if "127.0.0.1:5566" in line] == []


def test_a_service_that_is_gone() -> None:
    found = _compared("m31_req_rep.pcap", "m31_pub_sub.pcap")
    assert _worse(found) == ["127.0.0.1:20205 is gone (REQ > REP)"]
    assert found.keys() == {"services"}  # there is nothing else to compare


def test_what_a_late_capture_lacks_is_not_worse(tmp_path: Path) -> None:
    late = _compared("m31_req_rep.pcap", without_packets("m31_req_rep.pcap", range(1, 14), tmp_path))
    assert _worse(late) == []
    assert late["mechanisms"].found == "not checked: no handshake with 127.0.0.1:20205 is in the new capture"


def test_versions_rates_and_latencies_of_a_service() -> None:
    old, new = _looked_at("shop/none.pcap.gz")[0], _looked_at("shop/none.pcap.gz")[0]
    service = new.services["127.0.0.1:5561"]
    service.messages.server //= 3
    service.versions.examples["3.0"] = service.versions.examples.pop("3.1")
    for _ in range(1000):
        service.latencies.add(10**9)
    lines = [offence.text for outcome in compare(old, new, 100, 10) for offence in outcome.offences]
    assert lines[0] == "127.0.0.1:5561 was ZMTP 3.1, is ZMTP 3.0"
    assert lines[1].startswith("127.0.0.1:5561 sent ")
    assert lines[2].startswith("127.0.0.1:5561 replied with p50 ")
    assert [outcome.rule.name for outcome in compare(old, new, 100, 10) if outcome.failed] == [
        "versions",
        "rates",
        "latencies",
    ]
    assert [outcome.rule.name for outcome in compare(old, new, 1e9, 10) if outcome.failed] == ["versions"]


def test_baseline_as_a_command() -> None:
    same = check("--baseline", "fixtures/m31_req_rep.pcap", "fixtures/m31_req_rep.pcap", "-T", "json")
    assert (same.status, same.failed()) == (0, set())
    shops = ["fixtures/shop/none.pcap.gz", "fixtures/shop/open-vault.pcap.gz"]
    other = check("--baseline", *shops, "--tolerance", "300")
    assert other.status == 1
    assert "127.0.0.1:5566 was CURVE, is NULL" in other.out
    assert "compared with fixtures/shop/none.pcap.gz, within 300 %" in other.out.splitlines()[-1]
