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
