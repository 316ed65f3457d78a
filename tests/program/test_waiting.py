"""Real peers of which somebody waits, in vain or not, and what a diagnosis says of them."""

import io
from pathlib import Path

import pytest

from tests.analysis.findings.diagnoses import diagnose
from tests.program.test_shop import record_program
from tests.support import unreached_peers, waiting_peers
from tests.support.namespaces import needs_namespaces
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.engine.settings import Settings
from zmtpsniff.render.findings_text import draw

pytestmark = [pytest.mark.slow, needs_namespaces]

_FINE = "nothing is wrong that can be seen"


def _found(name: str, tmp_path: Path) -> list[Finding]:
    record_program(tmp_path / "waiting.pcap", waiting_peers, name)
    return diagnose(tmp_path / "waiting.pcap")


def _last_line(found: list[Finding]) -> str:
    stream = io.StringIO()
    draw(found, None, stream)
    return stream.getvalue().splitlines()[-1]


def test_a_topic_that_was_published_before(tmp_path: Path) -> None:
    one, late = _found("old_news", tmp_path)
    assert (late.severity, late.code) == ("note", "subscribed-late")
    assert (one.severity, one.code, one.suggestion) == ("note", "subscription-unmatched", None)
    assert ' got nothing of the topic "weather.B" in ' in one.summary
    assert "did you mean" not in one.summary
    assert _FINE not in _last_line([one])


def test_messages_that_others_get(tmp_path: Path) -> None:
    [one] = _found("left_out", tmp_path)
    assert (one.severity, one.code) == ("warning", "subscription-unmatched")
    assert ' got nothing of the topic "news" in ' in one.summary
    assert " while others got at least 1" in one.summary


def test_a_publisher_that_says_nothing(tmp_path: Path) -> None:
    [one] = _found("no_news", tmp_path)
    assert (one.severity, one.code) == ("note", "subscription-unmatched")
    assert _last_line([one]) == "no error and no warning, but somebody waits (1 note)"


@pytest.mark.parametrize(
    ("name", "words"),
    [("slow_worker", "takes messages too slowly"), ("pausing_worker", ", then went on")],
)
def test_a_receiver_that_lets_messages_wait(name: str, words: str, tmp_path: Path) -> None:
    found = _found(name, tmp_path)
    assert {each.code for each in found} <= {"subscriber-slow", "unsent-at-end"}  # it closes in the end
    [one] = [each for each in found if each.code == "subscriber-slow"]
    assert one.severity == "warning"
    assert one.summary.startswith("the PULL at 127.0.0.1:")
    assert words in one.summary


def test_a_receiver_that_stops_and_closes(tmp_path: Path) -> None:
    [one] = _found("stopped_worker", tmp_path)
    assert (one.severity, one.code) == ("warning", "unsent-at-end")
    assert one.summary.startswith("the PULL at 127.0.0.1:")
    assert " waited to send more" in one.summary
    assert " had been closed for " in one.known


@pytest.mark.parametrize("cause", unreached_peers.CAUSES)
def test_a_service_that_cannot_talk_to_its_database_is_not_accused(cause: str, tmp_path: Path) -> None:
    record_program(tmp_path / "waiting.pcap", unreached_peers, cause)
    found = diagnose(tmp_path / "waiting.pcap", settings=Settings(reply_seconds=1))
    assert {one.code for one in found if one.severity != "note"} == {unreached_peers.CAUSES[cause]}
    [unanswered] = [one for one in found if one.code == "request-unanswered"]
    assert unanswered.severity == "note"
    assert f"{unreached_peers.SERVICE} itself waits for {unreached_peers.DATABASE}" in unanswered.summary
