"""``zmtpsniff trace``: what it writes, and what it refuses."""

import json

import pytest

from tests.support.paths import FIXTURES
from tests.support.runner import run

BROKERS = FIXTURES / "brokers" / "two_brokers.pcap.gz"
PROXY = FIXTURES / "rec_proxy_ok.pcap"


def records(*arguments: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in run("trace", "-T", "json", *arguments).stdout.splitlines()]


def test_what_is_lost_says_where_and_why() -> None:
    lost = records("--lost", BROKERS)
    assert lost
    assert all(way["answered"] is False for way in lost)
    lines = run("trace", "--lost", "--utc", BROKERS).stdout.splitlines()
    assert "  ended: 10.9.0.37:6206 took the message and passed nothing on" in lines


def test_the_slowest_come_first() -> None:
    lines = run("trace", "--slowest", "3", BROKERS).stdout.splitlines()
    heads = [line.partition("answered after ")[2] for line in lines if line.startswith("request at ")]
    assert heads == ["34.4 ms", "29.3 ms", "27.8 ms"]  # the most of all heads, as on the page of `report`


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--lost", PROXY), "nothing is lost: 6 requests, all answered"),
        (("--lost", FIXTURES / "m31_push_pull.pcap"), "nothing is lost: 14 jobs"),
        (
            ("--lost", FIXTURES / "m31_pub_sub.pcap"),
            "14 publications: zmtpsniff diagnose says whether subscribers missed some",
        ),
        (("-Y", "packet == 1", PROXY), "no way has a message that passes -Y"),
        ((FIXTURES / "m31_heartbeat.pcap",), "no way to show: nothing in 3 messages tells which one answers another"),
        ((FIXTURES / "sec_plain_refused_435.pcap",), "no way to show: there is no message"),
    ],
    ids=["answered", "jobs", "publications", "filter", "nothing", "no message"],
)
def test_it_says_why_there_is_nothing_to_show(arguments: tuple[object, ...], line: str) -> None:
    assert run("trace", *arguments).stdout.splitlines() == [line]


def test_a_filter_chooses_ways_by_any_of_their_messages() -> None:
    (way,) = records("-Y", "packet == 126", BROKERS)
    legs = way["legs"]
    assert isinstance(legs, list)
    assert [leg["packet"] for leg in legs] == [116, 118, 120, 126, 128, 130]


def test_the_last_line_says_how_many_were_lost() -> None:
    jobs = FIXTURES / "systems" / "worker_dies.pcap.gz"
    lost = len(records("--lost", jobs))
    assert lost > 0
    last = run("trace", jobs).stdout.splitlines()[-1]
    assert last.endswith(f" shown, {lost} of them lost or not answered, which --lost shows alone")
    assert run("trace", "--lost", jobs).stdout.splitlines()[-1].endswith(" shown")


def test_it_fits_80_columns() -> None:
    done = run("trace", BROKERS, env={"COLUMNS": "80"})
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("options", [[], ["--slowest", "2"]], ids=["all", "slowest"])
def test_what_goes_to_one_socket_only_is_counted(options: list[str]) -> None:
    jobs = len(records(FIXTURES / "m31_push_pull.pcap"))
    assert jobs > 2
    lines = run("trace", *options, FIXTURES / "m31_push_pull.pcap").stdout.splitlines()
    assert lines == [f"not shown, to one socket only: {jobs} jobs"]
