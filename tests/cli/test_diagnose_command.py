"""``zmtpsniff diagnose``: what it writes, and what it refuses."""

import re

import pytest

from tests.support.paths import FIXTURES
from tests.support.runner import run

FAULTY = FIXTURES / "rec_request_to_pull.pcap"


def test_the_worst_comes_first_and_the_last_line_sums_up() -> None:
    done = run("diagnose", "--utc", FAULTY)
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0].startswith("error    127.0.0.1 connects to 127.0.0.1:5576, but REQ may not talk to PULL")
    assert lines[-1].startswith("1 error; the capture has ")
    assert "fix: One of the two programs" in done.stdout


def test_a_cause_and_what_it_led_to_are_one_finding() -> None:
    done = run("diagnose", "--utc", FIXTURES / "rec_no_delimiter.pcap")
    cause, *_, last = done.stdout.splitlines()
    assert cause.startswith(
        "warning  the ROUTER at 127.0.0.1:5568 sent a message without the empty frame that a REQ or REP"
    )
    assert "[no-delimiter]" in done.stdout
    assert (
        " so: 127.0.0.1:5568 does not answer 127.0.0.1: 1 request without a reply [request-unanswered]; #14"
        in done.stdout
    )
    assert last.startswith("1 warning; the capture has ")


@pytest.mark.parametrize(
    ("name", "cause", "effects", "verdict"),
    [
        ("network_cut", "acknowledges nothing", ["not-passed-on"] * 2 + ["request-unanswered"] * 2, "1 error; "),
        ("database_mistyped", "REQ may not talk to SUB", ["request-unanswered"] * 2, "1 error, 1 warning; "),
        ("database_refuses", "nobody listens at", ["request-unanswered"] * 2, "1 error; "),
        # The database may have been slow before it died: that it did not answer is a note of its own.
        ("database_dies", "nobody listens at", ["not-passed-on"], "1 error, 1 note; "),
    ],
)
def test_whoever_waits_for_what_is_wrong_is_told_with_it(
    name: str, cause: str, effects: list[str], verdict: str
) -> None:
    first, *others, last = (
        run("diagnose", FIXTURES / "systems" / f"{name}.pcap.gz").stdout.replace("\n    ", "").split("\n")[:-1]
    )
    assert cause in first
    assert re.findall(r" so: .*?\[([a-z-]+)", first) == effects
    assert not [line for line in others if " so: " in line]
    assert last.startswith(verdict)


def test_a_healthy_capture() -> None:
    done = run("diagnose", FIXTURES / "m31_req_rep.pcap")
    words = "nothing is wrong that can be seen; the capture has 40 packets in 114 ms, 1 ZMTP connection, 24 messages\n"
    assert done.stdout == words


def test_standard_input_and_several_captures() -> None:
    assert "sockets-mismatched" in run("diagnose", "-", octets=FAULTY.read_bytes()).stdout
    both = run("diagnose", FAULTY, FIXTURES / "rec_plain_wrong_password.pcap").stdout
    assert both.index("credentials-refused") < both.index("sockets-mismatched")


def test_the_place_of_numbers_is_named_and_may_have_none() -> None:
    numbered = FIXTURES / "rec_numbered_topics.pcap"
    done = run("diagnose", "--sequence", "body.header.seq", numbered)
    assert "[messages-dropped (possible)]" in done.stdout
    assert done.stderr == ""
    done = run("diagnose", "--sequence", "frames[7]", numbered)
    assert done.stdout.startswith("nothing is wrong that can be seen; the capture has ")
    assert done.stderr == "zmtpsniff: --sequence frames[7]: no message of a publisher has a number there\n"


def test_colour_and_width() -> None:
    assert "\x1b[" in run("diagnose", "--color", "always", FAULTY).stdout
    assert max(map(len, run("diagnose", FAULTY).stdout.splitlines())) <= 120


def test_a_capture_in_place_of_a_command_is_read() -> None:
    assert run(FAULTY).stdout == run("read", FAULTY).stdout
    assert run("-", "-T", "summary", octets=FAULTY.read_bytes()).stdout.splitlines()[-1].startswith("capture")
    assert run("nothing.pcap").returncode == 2
