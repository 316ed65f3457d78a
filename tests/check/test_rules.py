"""Each kind of rule against real traffic that keeps it, and real traffic that does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Capture, Connection, Message, Peer, Sides
from tests.support.check_program import capture, outcomes
from tests.support.footprint import entries
from tests.support.paths import FIXTURES
from zmtpsniff.check.builtin import SETS
from zmtpsniff.check.model import Outcome
from zmtpsniff.check.policy import parse_policy
from zmtpsniff.check.rules import Check

SECOND = 1_000_000_000


def one(name: str, rule: str) -> Outcome:
    """How one rule fares with a capture."""
    (outcome,) = outcomes(name, f'[[rule]]\nname = "it"\n{rule}').values()
    return outcome


# --------------------------------------------------------------------- built-in sets

BUILT_IN = [
    # capture, and which of the built-in rules it breaks
    ("m31_req_rep.pcap", set()),
    ("m31_heartbeat.pcap", set()),
    ("sec_curve_ps_435_435.pcap", set()),
    ("bad_reserved_flags.pcap", {"no errors"}),
    ("bad_ready_truncated.pcap", {"no errors", "every handshake complete"}),
    ("sec_plain_ok_435_435.pcap", {"no credentials in clear"}),
    ("rec_plain_wrong_password.pcap", {"no credentials in clear", "every handshake complete"}),
    ("sec_mismatch_null_curve.pcap", {"every handshake complete"}),
    ("rec_unanswered_request.pcap", {"every request answered"}),
    ("rec_no_delimiter.pcap", {"every request answered"}),
    ("rec_proxy.pcap", {"every request answered"}),
    ("rec_request_to_pull.pcap", {"no errors", "every handshake complete"}),
    ("rec_reconnect_storm.pcap", {"every handshake complete"}),
    ("x_325_to_435.pcap", {"no peer below 3.0"}),
    ("x_435_to_220.pcap", {"no peer below 3.0"}),
    # on addresses beyond loopback
    (
        "net_zmtp1_gap.pcap",
        {"no errors", "nothing in clear beyond loopback", "nothing missing from the capture", "no peer below 3.0"},
    ),
    ("net_midstream_boundary.pcap", {"nothing in clear beyond loopback", "every handshake complete"}),
    ("net_gap.pcap", {"no errors", "nothing in clear beyond loopback", "nothing missing from the capture"}),
    ("net_retransmissions.pcap", {"nothing in clear beyond loopback"}),
    ("m31_mtu1500_real.pcap", {"nothing in clear beyond loopback"}),
    ("m31_xpub_xsub_proxy.pcap", set()),
]


@pytest.mark.parametrize(("name", "broken"), BUILT_IN, ids=[name for name, _ in BUILT_IN])
def test_built_in_sets(name: str, broken: set[str]) -> None:
    if not capture(name).exists():
        pytest.skip("the recorded captures are not here")
    found = outcomes(name, 'include = ["protocol", "secure", "complete", "modern"]')
    assert {rule for rule, outcome in found.items() if outcome.failed} == broken
    assert all(found[rule].offences for rule in broken)


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.glob("rec_*_ok.pcap")))
def test_programs_that_behave_well_keep_all_of_them(name: str) -> None:
    found = outcomes(name, 'include = ["protocol", "secure", "complete", "modern"]')
    assert [rule for rule, outcome in found.items() if not outcome.passed] == []


def test_every_built_in_rule_is_kept_by_one_capture_and_broken_by_another() -> None:
    rules = {rule.name for rules in SETS.values() for rule in rules}
    assert set().union(*(broken for _, broken in BUILT_IN)) == rules


# --------------------------------------------------------------------- rules of one's own

KEPT_AND_BROKEN = [
    # what it is about, capture, rule that it keeps, rule that it breaks, what is said of the broken one
    (
        "forbid",
        "sec_plain_ok_435_435.pcap",
        """forbid = 'name == "ERROR"'""",
        """forbid = 'type == "command" && name == "HELLO" && mechanism == "PLAIN"'""",
        "found 1 record, none allowed",
    ),
    (
        "forbid, some tolerated",
        "m31_heartbeat.pcap",
        """forbid = 'name == "PING"'\nmax = 11""",
        """forbid = 'name == "PING"'\nmax = 9""",
        "found 11 records, at most 9 expected",
    ),
    (
        "expect",
        "m31_push_pull.pcap",
        """expect = 'frames[0].text == "hello"'""",
        """expect = 'frames[0].text == "goodbye"'""",
        "found 0 records, at least 1 expected",
    ),
    (
        "count",
        "m31_push_pull.pcap",
        "expect = 'type == \"message\"'\ncount = 14",
        "expect = 'type == \"message\"'\ncount = 13",
        "found 14 records, exactly 13 expected",
    ),
    (
        "min and max",
        "m31_push_pull.pcap",
        "expect = 'type == \"message\"'\nmin = 14\nmax = 14",
        "expect = 'type == \"message\"'\nmin = 15\nmax = 20",
        "found 14 records, at least 15 and at most 20 expected",
    ),
    (
        "per connection",
        "x_325_to_435.pcap",
        'expect = \'type == "greeting"\'\ncount = 2\nper = "connection"',
        'expect = \'type == "message" && socket_type == "PUSH"\'\nper = "connection"',
        "2 of 3 connections differ, at least 1 expected on each",
    ),
    (
        "per connection of some",
        "x_325_to_435.pcap",
        'expect = \'type == "message"\'\nmin = 1\nper = "connection"\nconnections = \'client.socket_type == "PUSH"\'',
        'expect = \'type == "message"\'\nmax = 1\nper = "connection"\nconnections = \'client.socket_type == "PUSH"\'',
        "1 of 1 connection differ, at most 1 expected on each",
    ),
    (
        "per second",
        "m31_heartbeat.pcap",
        'expect = \'name == "PING"\'\nmin = 5\nmax = 5\nper = "second"',
        'expect = \'name == "PING"\'\nmin = 6\nper = "second"',
        "1 of 1 second with fewer records, first 5 records in the second from 1 s on, at least 6 expected in each",
    ),
    (
        "per second, too many",
        "m31_heartbeat.pcap",
        'expect = \'name == "PING"\'\nmax = 5\nper = "second"',
        'expect = \'name == "PING"\'\nmax = 4\nper = "second"',
        "1 second with more records, at most 4 expected in each",
    ),
    (
        "per second on average",
        "m31_heartbeat.pcap",
        'expect = \'name == "PING"\'\nmin = 4.9\nmax = 5\nper = "second"\nmean = true',
        'expect = \'name == "PING"\'\nmin = 5.5\nper = "second"\nmean = true',
        "found 4.95 records a second (11 records in 2.2 s), at least 5.5 expected",
    ),
    (
        "latency",
        "m31_req_rep.pcap",
        'latency = { pattern = "request-reply", p50_ms = 0.5, p99_ms = 5, max_ms = 5 }',
        'latency = { pattern = "request-reply", p50_ms = 5, p99_ms = 0.5 }',
        "12 replies: p50 0.205 ms, within 5 ms; p99 1.011 ms, over 0.5 ms",
    ),
    (
        "latency of some",
        "m31_req_rep.pcap",
        """latency = { pattern = "request-reply", max_ms = 5, where = 'frames[1] contains "reply"' }""",
        """latency = { pattern = "request-reply", max_ms = 5, where = 'frames[1] contains "no such"' }""",
        "0 replies with a latency, at least 1 expected",
    ),
    (
        "latency of heartbeats",
        "m31_heartbeat.pcap",
        'latency = { pattern = "heartbeats", p95_ms = 1 }\nmin = 11',
        'latency = { pattern = "heartbeats", p95_ms = 0.01 }',
        "11 PONG commands: p95 0.065 ms, over 0.01 ms",
    ),
    (
        "order",
        "sec_plain_ok_435_435.pcap",
        """order = ['name == "HELLO"', 'name == "WELCOME"', 'name == "INITIATE"', 'name == "READY"']""",
        """order = ['name == "HELLO"', 'name == "READY"', 'name == "WELCOME"']""",
        "in this order on 0 of 1 connection, at least 1 expected",
    ),
    (
        "order on each connection",
        "x_325_to_435.pcap",
        """order = ['type == "greeting"', 'type == "message"']\nper = "connection\"""",
        """order = ['type == "greeting"', 'socket_type == "PUB" && type == "message"']\nper = "connection\"""",
        "in this order on 1 of 3 connections, each expected",
    ),
]


@pytest.mark.parametrize(
    ("name", "kept", "broken", "found"),
    [case[1:] for case in KEPT_AND_BROKEN],
    ids=[case[0] for case in KEPT_AND_BROKEN],
)
def test_a_rule_is_kept_or_broken(name: str, kept: str, broken: str, found: str) -> None:
    assert one(name, kept).passed, one(name, kept).found
    outcome = one(name, broken)
    assert not outcome.passed
    assert outcome.found == found


def test_offending_records_come_with_their_packets_and_are_bounded() -> None:
    policy = "[[rule]]\nname = 'it'\nforbid = 'name == \"PING\"'"
    (outcome,) = outcomes("m31_heartbeat.pcap", policy, shown=2).values()
    assert [offence.packet for offence in outcome.offences] == [14, 18]
    assert outcome.offences[0].text.endswith("#14 connection 1 127.0.0.1:48328 > 127.0.0.1:20213 PING ttl=3000 ms")
    assert outcome.more == 9


def test_of_a_latency_the_records_over_the_limit_that_is_not_kept_are_shown() -> None:
    outcome = one("m31_req_rep.pcap", 'latency = { pattern = "request-reply", p50_ms = 0.01, max_ms = 1 }')
    assert [offence.packet for offence in outcome.offences] == [14]
    assert outcome.more == 0


def test_a_capture_without_a_whole_second_has_no_rate_in_each() -> None:
    outcome = one("m31_push_pull.pcap", 'expect = \'type == "message"\'\nmin = 1\nper = "second"')
    assert not outcome.passed
    assert "no whole second" in outcome.found


# --------------------------------------------------------------------- what real captures are too short for


def _message(second: float, flow: int = 1) -> Message:
    return Message(int(second * SECOND), 1, flow, "127.0.0.1:1", "127.0.0.1:2", [b"x"])


def _run(rule: str, batches: list[list[AnyEvent]]) -> Outcome:
    check = Check(parse_policy(f'[[rule]]\nname = "it"\n{rule}', "x"), 2)
    for batch in batches:
        check.take(batch)
    (outcome,) = check.finish()
    return outcome


@given(st.lists(st.integers(0, 20), min_size=1, max_size=60), st.integers(0, 5), st.integers(0, 5))
def test_seconds_are_counted_as_one_by_one(seconds: list[int], least: int, most: int) -> None:
    times = sorted(seconds)
    events: list[AnyEvent] = [_message(1_000_000 + second + 0.5) for second in times]
    rule = f'expect = \'type == "message"\'\nmin = {least}\nmax = {least + most}\nper = "second"'
    outcome = _run(rule, [events])
    whole = range(times[0] + 1, times[-1])  # the first and the last one are not
    low = any(times.count(second) < least for second in whole)
    high = any(times.count(second) > least + most for second in set(times))
    assert outcome.passed is not (low or high or (not whole and least > 0))


def test_a_long_silence_counts_second_by_second_though_none_is_looked_at() -> None:
    rule = 'expect = \'type == "message"\'\nmin = 1\nper = "second"'
    outcome = _run(rule, [[_message(10.5)], [_message(10.5 + 10**9)]])
    assert outcome.found.startswith("999,999,999 of 999,999,999 seconds with fewer records")


def test_memory_does_not_grow_with_records_or_connections() -> None:
    rules = (
        "forbid = 'type == \"message\"'",
        'forbid = \'type == "message"\'\nper = "connection"',
        'expect = \'type == "message"\'\nmax = 1\nper = "second"',
        "order = ['type == \"message\"', 'type == \"problem\"']",
    )
    text = "\n".join(f'[[rule]]\nname = "{number}"\n{rule}' for number, rule in enumerate(rules))
    check = Check(parse_policy(text, "x"), 3)
    peer = Peer("127.0.0.1:1")
    sizes = []
    for flow in range(5000):
        end = Connection(flow, "tcp", peer, peer, Sides(1, 0), Sides(1, 0), flow * SECOND, flow * SECOND, "fin")
        check.take([_message(flow, flow), _message(flow, flow), end])
        if flow in (2500, 4999):
            sizes.append(entries(check))
    assert sizes[0] == sizes[1]
    assert [len(outcome.offences) + outcome.more for outcome in check.finish()] == [10_000, 5000, 5000, 5000]


@pytest.mark.parametrize("rule", ["""expect = 'type == "message"'""", """order = ['type == "greeting"', 'name'] """])
def test_rules_for_each_connection_hold_where_none_counts(rule: str) -> None:
    each = f'{rule}\nper = "connection"\n'
    assert one("x_325_to_435.pcap", f"""{each}connections = 'client.socket_type == "PAIR"'""").passed
    nothing = _run(each, [])
    assert not nothing.checked
    assert "no ZMTP connection" in nothing.found


def test_the_totals_are_the_last_record() -> None:
    totals = Capture(1, 0, 1, 1, 1, 0, 0)
    check = Check(parse_policy('include = ["protocol"]', "x"))
    check.take([_message(1), totals])
    assert check.totals is totals
