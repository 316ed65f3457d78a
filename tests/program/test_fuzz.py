"""The corpus of the fuzz targets, and what they once failed on: every input again, without anything that varies it."""

import pytest

from dissectors.events import Message
from dissectors.payloads.registry import built_in
from tests.fuzz.octets import packed, turns
from tests.fuzz.targets import TARGETS, messages
from tests.support.paths import PROJECT
from zmtpsniff.analysis.payloads import Payloads

CORPUS = PROJECT / "tests" / "fuzz" / "corpus"
MOST_OCTETS = 1_000_000  # of the corpus: it is in every clone


def test_every_target_has_a_corpus() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < MOST_OCTETS


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_in_the_corpus_fails(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        try:
            TARGETS[name](path.read_bytes())
        except Exception as error:
            error.add_note(f"with {path.name}")
            raise


def test_every_payload_protocol_has_a_seed() -> None:
    events = [event for path in sorted((CORPUS / "payloads").iterdir()) for event in messages(path.read_bytes())]
    found = Payloads(built_in(), bodies=None).take(events)
    known = {event.payload.protocol for event in found if isinstance(event, Message) and event.payload is not None}
    missing = {dissector.name for dissector in built_in()} - known
    assert not missing, "add messages to tests/fuzz/corpus/payloads, packed by tests/fuzz/octets.py"


def test_turns_are_what_was_packed() -> None:
    sent = [(0, b""), (3, b"abc"), (255, bytes(300)), (1, b"x" * 254), (2, b"y" * 255)]
    assert list(turns(packed(sent))) == sent


def test_a_target_can_fail() -> None:
    """Control characters in what people see are found: without this the targets would prove nothing."""
    from tests.fuzz.output import is_safe

    is_safe("two\nlines")
    for text in ("\x1b[2J", "\u202e", "a\rb"):
        with pytest.raises(AssertionError):
            is_safe(text)
    with pytest.raises(AssertionError):
        is_safe("two\nlines", lines=1)
