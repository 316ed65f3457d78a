"""Demands of a policy on services, held against a shop that works, and against shops that work otherwise."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Connection, Greeting, Handshake, Message, Peer, Problem, Sides, Subscription
from tests.program.test_shop import record
from tests.support import shop
from tests.support.check_program import check, hold_mistake, outcomes
from tests.support.namespaces import needs_namespaces
from tests.support.paths import FIXTURES
from zmtpsniff.check.endpoint_reader import ENDPOINT_KEYS, RATE_KEYS
from zmtpsniff.check.globs import AddressPattern, Glob, literal
from zmtpsniff.check.model import Outcome
from zmtpsniff.check.policy import parse_policy
from zmtpsniff.check.rules import Check

SHOP = FIXTURES / "shop"
SECOND = 1_000_000_000


def _shop(way: str) -> Path:
    return SHOP / f"{way}.pcap.gz"


@pytest.fixture(scope="module")
def policy() -> str:
    """The shop as it should be."""
    done = check("--init", _shop("none"), "--factor", "4")
    assert (done.status, done.err) == (0, "")
    return done.out


# --------------------------------------------------------------------- changes in words

TOLD = {
    "no-archive": {
        "127.0.0.1:5563: subscriptions": '"" was subscribed to at 127.0.0.1:5563, and is not any more',
        "127.0.0.1:5563: min_clients": "127.0.0.1:5563 had 4 clients, has 3",
    },
    "open-vault": {"127.0.0.1:5566: mechanism": "127.0.0.1:5566 was CURVE, is NULL"},
    "new-client": {"127.0.0.1:5563: min_clients": "127.0.0.1:5563 had 4 clients, has 5: 127.0.0.1:39676 is new"},
    "null": {
        "no errors": "found 1 record, none allowed",
        "127.0.0.1:5566: mechanism": "127.0.0.1:5566 was CURVE, 127.0.0.1:52498 wants NULL",
        "127.0.0.1:5566: min_clients": "127.0.0.1:5566 had 1 client, has none",
    },
}


@pytest.mark.parametrize("way", TOLD)
def test_a_change_is_told_in_words(way: str, policy: str) -> None:
    found = outcomes(str(_shop(way)), policy)
    assert {name: outcome.found for name, outcome in found.items() if outcome.failed} == TOLD[way]


def test_an_unchanged_shop_keeps_all(policy: str) -> None:
    assert all(outcome.passed for outcome in outcomes(str(_shop("none")), policy).values())


def test_rules_of_an_endpoint_that_are_kept_are_one_line(policy: str, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(policy)
    done = check(_shop("open-vault"), "--policy", tmp_path / "policy.toml")
    assert done.status == 1
    assert (
        "ok    127.0.0.1:5564  (7 rules)\n      mechanism, version, socket_type, client_socket_type, clients"
        in done.out
    )
    assert "FAIL  127.0.0.1:5566: mechanism  (" in done.out
    assert done.out.splitlines()[-1].startswith("1 of ")


@pytest.mark.slow
@needs_namespaces
def test_a_policy_of_one_day_holds_the_next(tmp_path: Path) -> None:
    record("none", tmp_path / "before.pcap")
    written = check("--init", tmp_path / "before.pcap").out
    # How fast a busy machine is, and whether a shop that closes still answers, is another matter.
    kept = [line for line in written.splitlines() if not re.match("include|latency|server_rate|client_rate", line)]
    (tmp_path / "policy.toml").write_text("\n".join(kept))
    policy = ["--policy", str(tmp_path / "policy.toml"), "-T", "json", "--strict"]
    for way in ("none", *shop.CHANGES):
        record(way, tmp_path / f"{way}.pcap")
        assert check(tmp_path / f"{way}.pcap", *policy).failed() == TOLD.get(way, {}).keys()


# --------------------------------------------------------------------- each key

DEMANDS = [
    # what is demanded of the prices, or of the service on a port, what it keeps, what it breaks, and the words for that
    (5563, 'mechanism = "NULL"', 'mechanism = ["CURVE", "PLAIN"]', "127.0.0.1:5563 was CURVE or PLAIN, is NULL"),
    (5563, 'version = ">=3.0"', 'version = "3.0"', "127.0.0.1:5563 was ZMTP 3.0, is ZMTP 3.1"),
    (5563, 'version = ["3.0", "3.1"]', 'version = ">=3.2"', "127.0.0.1:5563 was ZMTP >=3.2, is ZMTP 3.1"),
    (5563, 'socket_type = ["PUB", "XPUB"]', 'socket_type = "XPUB"', "127.0.0.1:5563 was XPUB, is PUB"),
    (
        5562,
        'client_socket_type = "REP"',
        'client_socket_type = "DEALER"',
        "clients of 127.0.0.1:5562 were DEALER, 127.0.0.1:",
    ),
    (
        5563,
        'subscriptions = ["prices.EUR", "prices.*"]',
        'subscriptions = "prices.USD"',
        '"prices.USD" was subscribed to at 127.0.0.1:5563, and is not any more',
    ),
    (
        5563,
        'subscriptions_allowed = ["", "prices.???"]',
        'subscriptions_allowed = ["", "prices.E*"]',
        '"prices.GBP" is subscribed to at 127.0.0.1:5563, and was not before',
    ),
    (
        5563,
        'topics = "prices.GBP"',
        'topics = "prices"',
        '"prices" was published at 127.0.0.1:5563, and is not any more',
    ),
    (
        5563,
        'topics_allowed = "prices.*"',
        'topics_allowed = "prices.EUR"',
        '"prices.GBP" is published at 127.0.0.1:5563, and was not before',
    ),
    (5563, 'clients = "127.0.0.*"', 'clients = ["10.0.0.?"]', "127.0.0.1:5563 has a new client 127.0.0.1"),
    (5563, "min_clients = 4", "min_clients = 6", "127.0.0.1:5563 had at least 6 clients, has 4"),
    (
        5564,
        "min_clients = 2\nmax_clients = 2",
        "min_clients = 3\nmax_clients = 3",
        "127.0.0.1:5564 had 3 clients, has 2",
    ),
    (5564, "max_clients = 2", "max_clients = 1", "127.0.0.1:5564 had at most 1 client, has 2: "),
    (5564, "server_rate = { min = 5 }", "server_rate = { max = 5 }", "127.0.0.1:5564 sends "),
    (5561, "client_rate = { max = 1000 }", "client_rate = { min = 1000 }", "clients of 127.0.0.1:5561 send "),
    (
        5561,
        "latency = { p50_ms = 1000, max_ms = 2000 }",
        "latency = { p50_ms = 0.01 }",
        "127.0.0.1:5561 replied with p50 within 0.01 ms, and now p50 ",
    ),
]


@pytest.mark.parametrize(("port", "kept", "broken", "words"), DEMANDS, ids=[each[2] for each in DEMANDS])
def test_each_demand(port: int, kept: str, broken: str, words: str) -> None:
    text = "".join(
        f'[[endpoint]]\naddress = "127.0.0.1:{port}"\nname = "{name}"\n{keys}\n'
        for name, keys in (("kept", kept), ("broken", broken))
    )
    good, bad = outcomes(str(_shop("none")), text).values()
    assert good.passed
    assert bad.failed
    assert bad.found.startswith(words)


def test_every_key_has_its_case() -> None:
    tried = {line.partition(" = ")[0] for _, kept, broken, _ in DEMANDS for line in (kept + "\n" + broken).split("\n")}
    assert tried == set(ENDPOINT_KEYS) - {"address", "name", "level"}
    assert RATE_KEYS == ("min", "max")


def test_one_endpoint_for_several_services() -> None:
    text = '[[endpoint]]\naddress = ["127.0.0.*:5561-5564", "127.0.0.1:5567"]\nmechanism = "NULL"\nmin_clients = 2'
    mechanism, clients = outcomes(str(_shop("none")), text).values()
    assert (mechanism.passed, mechanism.found) == (True, "5 services")
    assert clients.found == "127.0.0.1:5567 had at least 2 clients, has 1"


def test_other_services_are_told() -> None:
    text = 'only_endpoints = true\n[[endpoint]]\naddress = "*:5561-5566"\nmin_clients = 1'
    clients, others = outcomes(str(_shop("none")), text).values()
    assert clients.passed
    assert others.found.startswith("127.0.0.1:5567 is new: 127.0.0.1:")
    assert outcomes(str(_shop("none")), text.replace("5566", "5567"))["no other endpoints"].passed
    beacons = outcomes(str(FIXTURES / "app_zbeacon.pcap"), text)
    assert beacons["no other endpoints"].found == "not checked: no service is in the capture"


# --------------------------------------------------------------------- what is not there, or not seen


def _connection(flow: int, handshake: Handshake = "complete", **more: object) -> Connection:
    peers = (Peer(f"10.0.0.{flow}:40000", socket_type="SUB"), Peer("10.0.0.99:5561", socket_type="PUB"))
    if handshake == "not-seen":
        peers = tuple(Peer(peer.address) for peer in peers)  # type: ignore[assignment]
    else:
        more = {"mechanism": "NULL", "version": "3.1", **more}
    sides = (Sides(0, 0), Sides(0, 0))
    return Connection(
        flow,
        "tcp",
        *peers,
        *sides,
        1,
        10 * SECOND,
        "fin",
        handshake=handshake,
        **more,  # type: ignore[arg-type]
    )


def _judged(demand: str, *events: AnyEvent) -> Outcome:
    trial = Check(parse_policy(f'[[endpoint]]\naddress = "10.0.0.99:5561"\n{demand}', "x"))
    trial.take(events)
    (outcome,) = trial.finish()
    return outcome


NOT_SEEN = [
    ('mechanism = "NULL"', "no handshake with 10.0.0.99:5561 is in the capture"),
    ('socket_type = "PUB"', "no handshake with 10.0.0.99:5561 is in the capture"),
    ('subscriptions = "x"', "1 of 1 connection to 10.0.0.99:5561 began before"),
    ('topics_allowed = "x"', "1 of 1 connection to 10.0.0.99:5561 began before"),
    ("min_clients = 2", "10.0.0.99:5561 has 1 client in the capture, which may lack others"),
    ("max_clients = 2", "10.0.0.99:5561 has 1 client in the capture, which may lack others"),
    ("latency = { p99_ms = 1 }", "no reply at 10.0.0.99:5561 is in the capture"),
]


@pytest.mark.parametrize(("demand", "why"), NOT_SEEN)
def test_what_a_late_capture_does_not_show_is_not_checked(demand: str, why: str) -> None:
    outcome = _judged(demand, _connection(1, "not-seen"))
    assert (outcome.verdict, outcome.found) == ("not checked", f"not checked: {why}")


def test_one_connection_that_is_seen_does_not_speak_for_another() -> None:
    assert _judged('mechanism = "NULL"', _connection(1)).passed
    both = (_connection(1), _connection(2, "not-seen"))
    outcome = _judged('mechanism = "NULL"', *both)
    assert outcome.found == "not checked: 1 of 2 connections to 10.0.0.99:5561 do not show it"
    assert _judged('mechanism = "CURVE"', *both).found == "10.0.0.99:5561 was CURVE, is NULL"


def test_a_hole_in_the_capture_accuses_nobody() -> None:
    place = (SECOND, 1, 1, "10.0.0.99:5561", "10.0.0.1:40000")
    gap = Problem("error", "capture-gap", "", *place)
    prices = Message(*place, frames=[b"a"], socket_type="PUB")
    topics = Subscription(*place[:3], place[4], place[3], "subscribe", b"a", "command")
    for demand in ('topics = "b"', 'subscriptions = "b"', "server_rate = { min = 100 }", "min_clients = 2"):
        assert _judged(demand, topics, prices, _connection(1)).failed
        assert not _judged(demand, topics, gap, prices, _connection(1)).checked
    # what is there is there, whatever else is missing
    assert _judged('topics_allowed = "b"', gap, prices, _connection(1)).failed


def test_a_service_that_is_gone() -> None:
    elsewhere = _connection(1)
    elsewhere.server.address = "10.0.0.98:5561"
    assert _judged("min_clients = 1", elsewhere).found == "10.0.0.99:5561 had at least 1 client, has none"
    assert _judged("server_rate = { min = 100 }", elsewhere).found == "10.0.0.99:5561 sends no messages"
    assert _judged('subscriptions = "x"', elsewhere).failed
    assert _judged('mechanism = "NULL"', elsewhere).found == (
        "not checked: nothing of 10.0.0.99:5561 is in the capture"
    )
    late = _connection(2, "not-seen")
    late.server.address = "10.0.0.97:5561"
    assert not _judged("min_clients = 1", elsewhere, late).checked


def test_a_peer_too_old_for_mechanisms_is_no_curve() -> None:
    old = _connection(1)
    old.mechanism, old.version = None, "2.0"
    assert _judged('mechanism = "CURVE"', old).found == "10.0.0.99:5561 was CURVE, is none (ZMTP 2.0)"
    assert _judged('mechanism = "NULL"', old).passed


def test_what_both_sides_announce_where_they_do_not_agree() -> None:
    failed = _connection(1, "failed")
    failed.mechanism = None
    places = [(1, 1, 1, *ends) for ends in (("10.0.0.1:40000", "10.0.0.99:5561"), ("10.0.0.99:5561", "10.0.0.1:40000"))]
    client, server = (Greeting(*place, version="3.1", mechanism="NULL") for place in places)
    curve = Greeting(*places[0], version="3.1", mechanism="CURVE")
    assert _judged('mechanism = "CURVE"', curve, server, failed).found == "10.0.0.99:5561 was CURVE, is NULL"
    curve = Greeting(*places[1], version="3.1", mechanism="CURVE")
    assert _judged('mechanism = "CURVE"', client, curve, failed).found == (
        "10.0.0.99:5561 was CURVE, 10.0.0.1:40000 wants NULL"
    )


def test_clients_one_after_the_other_are_one_at_a_time() -> None:
    first, second = _connection(1), _connection(2)
    second.start_ns, second.end_ns = first.end_ns, 20 * SECOND
    assert _judged("max_clients = 1", first, second).passed
    second.start_ns -= 1
    assert _judged("max_clients = 1", first, second).found == (
        "10.0.0.99:5561 had at most 1 client, has 2: 10.0.0.2:40000 is new"
    )


# --------------------------------------------------------------------- mistakes, patterns

MISTAKES = [
    ("endpoint = 1", 1, ["[[endpoint]]"]),
    ("only_endpoints = 1", 1, ["true or false"]),
    ("[[endpoint]]\nmin_clients = 1", 1, ["endpoint 1", "no address"]),
    ('[[endpoint]]\naddress = "a:1"', 1, ["demands nothing", "mechanism"]),
    ('[[endpoint]]\naddress = "a"\nmin_clients = 1', 2, ["'a' is no HOST:PORT"]),
    ('[[endpoint]]\naddress = "a:9-1"\nmin_clients = 1', 2, ["lower to the higher"]),
    ('[[endpoint]]\naddress = "a:70000"\nmin_clients = 1', 2, ["65535"]),
    ("[[endpoint]]\naddress = []\nmin_clients = 1", 2, ["must not be empty"]),
    ('[[endpoint]]\naddress = "a:1"\nmechanisms = "NULL"', 3, ["'mechanisms'", "did you mean 'mechanism'"]),
    ('[[endpoint]]\naddress = "a:1"\n\nmechanism = 5', 4, ["mechanism must be text"]),
    (
        '[[endpoint]]\naddress = "a:1"\nmin_clients = 3\nmax_clients = 1',
        3,
        ["min_clients (3) is more than max_clients"],
    ),
    ('[[endpoint]]\naddress = "a:1"\nmin_clients = -3', 3, ["0 or more"]),
    ('[[endpoint]]\naddress = "a:1"\nserver_rate = 3', 3, ["{ min = 10, max = 200 }"]),
    ('[[endpoint]]\naddress = "a:1"\nserver_rate = { mean = 3 }', 3, ["unknown key 'mean'"]),
    ('[[endpoint]]\naddress = "a:1"\nserver_rate = { min = 3, max = 1 }', 3, ["more than"]),
    ('[[endpoint]]\naddress = "a:1"\nlatency = { p98_ms = 3 }', 3, ["'p98_ms'", "did you mean"]),
    ('[[endpoint]]\naddress = "a:1"\nlatency = {}', 3, ["no limit"]),
    ('[[endpoint]]\naddress = "a:1"\nmin_clients = 1\nlevel = "note"', 4, ["'note'"]),
    ('[[endpoint]]\naddress = "a:1"\nmin_clients = 1\nname = ""', 4, ["name must be text"]),
    ('[[endpoint]]\naddress = "a:1"\nmin_clients = 1\n[[endpoint]]\naddress = "a:1"\nmin_clients = 1', 6, ["x.toml:3"]),
]


@pytest.mark.parametrize(("text", "line", "words"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_told_with_its_line(text: str, line: int, words: list[str]) -> None:
    hold_mistake(text, line, words)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("10.0.*.5:5561", ["10.0.0.5:5561", "10.0.1.2.5:5561"], ["10.0.0.5:5562", "10.1.0.5:5561", "10.0.0.5:"]),
        ("10.0.0.?:5550-5560", ["10.0.0.1:5550", "10.0.0.9:5560"], ["10.0.0.10:5555", "10.0.0.1:5561"]),
        ("*:*", ["a:0", "[::1]:65535"], ["a", "a:x"]),
        ("[::1]:5561", ["[::1]:5561"], [":5561", "::5561", "1:5561"]),
    ],
)
def test_addresses(pattern: str, good: list[str], bad: list[str]) -> None:
    matches = AddressPattern(pattern).matches
    assert all(map(matches, good))
    assert not any(map(matches, bad))


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_a_topic_as_a_pattern_matches_itself_alone(topic: bytes, other: bytes) -> None:
    text = literal(topic)
    if text is not None:
        assert Glob(text).matches(topic)
        assert Glob(text).matches(other) is (topic == other)
        assert Glob(f"{text}*").matches(topic + other)
        assert Glob(f"*{text}").matches(other + topic)
        assert Glob(f"{text}?").matches(topic + b"x")


def test_a_pattern_takes_no_time_that_its_writer_can_choose() -> None:
    assert not Glob("*a" * 30 + "b").matches(b"a" * 20_000)
