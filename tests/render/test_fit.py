"""Lines that fit a terminal, whatever is in them."""

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import zmtpsniff
from tests.support.paths import FIXTURES
from zmtpsniff.render.fit import columns, fitted
from zmtpsniff.render.summary import SummaryRenderer
from zmtpsniff.render.tree import TreeRenderer

_WORDS = st.lists(st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=12), min_size=1, max_size=30)


@given(_WORDS, st.integers(0, 8), st.integers(20, 60))
@example(["0", "0" * 12], 7, 20)
def test_no_word_is_lost_and_no_line_too_long(words: list[str], depth: int, width: int) -> None:
    line = " " * depth + " ".join(f"\x1b[1m{word}\x1b[0m" for word in words)
    lines = fitted(line, width).split("\n")
    assert " ".join(lines).split() == line.split()
    room = width - depth - 4  # in a line that goes on: a word that is too long for that is not put there
    assert all(columns(one) <= width or len(one.split()) == 1 or columns(one.split()[-1]) > room for one in lines)
    assert all(one.startswith(" " * depth) for one in lines)
    assert fitted(line, None) == line


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "name", ["m31_ipv6.pcap", "rec_same_identity.pcap", "rec_unequal_work.pcap", "m31_pub_sub.pcap"]
)
def test_the_summary_cuts_what_peers_say_and_breaks_what_is_said_once(name: str, width: int) -> None:
    events = list(zmtpsniff.open(FIXTURES / name))
    shown, whole = io.StringIO(), io.StringIO()
    SummaryRenderer(shown, width=width, color="never").write(events)
    SummaryRenderer(whole, color="never").write(events)
    lines = shown.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    kinds = ("connection   ", "capture   ")  # as kinds of records: with room behind them
    said_once = [
        line[line.index(kind) :].split() for line in whole.getvalue().splitlines() for kind in kinds if kind in line
    ]
    assert len(said_once) > 1
    words = shown.getvalue().split()
    for said in said_once:
        places = (at for at, word in enumerate(words) if word == said[0])
        assert any(words[at : at + len(said)] == said for at in places), said


@pytest.mark.parametrize(
    "name", ["m31_ipv6.pcap", "rec_same_identity.pcap", "m31_push_pull.pcap", "sec_curve_keys.pcapng"]
)
@pytest.mark.parametrize("width", [80, 200])
def test_the_tree_breaks_between_words(name: str, width: int) -> None:
    out = io.StringIO()
    TreeRenderer(out, width=width, color="never").write(list(zmtpsniff.open(FIXTURES / name)))
    assert out.getvalue()
    for line in out.getvalue().splitlines():
        assert len(line) <= width or len(line.split()) < 3, line


@pytest.mark.parametrize(
    ("name", "width", "line"),
    [
        ("m31_req_rep.pcap", 80, "    #13  57990 → 20205  REQ message, 3 frames, 90 octets"),
        ("m31_req_rep.pcap", 105, "    #13  127.0.0.1:57990 → 127.0.0.1:20205  REQ message, 3 frames, 90 octets"),
        ("m31_req_rep.pcap", 120, "    #13 connection 1  127.0.0.1:57990 → 127.0.0.1:20205  REQ message, 3 frames"),
        ("m31_req_rep.pcap", 80, "  REP message, 2 frames, 7 octets\n    1.01 ms after #13\n"),
        ("rec_no_delimiter.pcap", 80, "    #14  36014 → 5568  warning request-unanswered"),
    ],
)
def test_on_a_narrow_terminal_the_tree_leaves_out_what_most_lines_have_in_common(
    name: str, width: int, line: str
) -> None:
    out = io.StringIO()
    TreeRenderer(out, width=width, color="never").write(list(zmtpsniff.open(FIXTURES / name)))
    assert line in out.getvalue()


def test_ports_are_not_enough_where_more_than_two_hosts_talk() -> None:
    out = io.StringIO()
    with zmtpsniff.open(FIXTURES / "brokers" / "two_brokers.pcap.gz") as capture:
        TreeRenderer(out, width=80, color="never").write(list(capture)[-50:])
    assert "10.9.0.42:42570 → 10.9.0.37:6206" in out.getvalue()
