"""Which part of a half reads next: the diagram says all that happens, and no more."""

from random import Random
from typing import get_args

import pytest

from dissectors.zmtp import half as module
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.half import Half, Stage
from dissectors.zmtp.opening import Opening
from dissectors.zmtp.pair import Finding
from tests.support.dissector_calls import calls, events
from tests.support.slot_watch import SlotWatch

ARROW = "──▶"


def drawn() -> dict[str, set[str]]:
    """The diagram: who may follow on whom."""
    found: dict[str, set[str]] = {}
    for line in (module.__doc__ or "").splitlines():
        for rule in filter(None, line.split("   ")):
            if ARROW in rule:
                before, _, after = rule.partition(" ── ")
                for one in before.strip().split(", "):
                    found.setdefault(one, set()).update(
                        after.partition(ARROW)[2].strip().replace(" or ", ", ").split(", ")
                    )
    return found


def test_stages_follow_on_each_other_as_the_diagram_says(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = drawn()
    assert steps.pop("any") == {"over"}
    assert {*steps, "over"} == set(get_args(Stage))
    watch = SlotWatch(Half, "stage")
    monkeypatch.setattr(Half, "stage", watch)
    for seed in range(700):
        random = Random(seed)
        starts = random.choice([(True, True), (False, True), (False, False)])
        events(calls(random), starts, random.choice([None, None, 0, 1, 2, 3]))
    happened: set[tuple[str, str]] = watch.steps
    for before, after in happened:
        assert after in steps.get(before, ()) or after in (before, "over"), (before, after)
    missing = {(before, after) for before, all_ in steps.items() for after in all_} - happened
    assert not missing


def test_the_octets_of_a_side_enter_no_half_while_conclusions_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pair says whose turn it is next; a half that has found something out has returned by then."""
    entered: list[str] = []
    concluding: list[str] = []
    take, word, read = ZmtpConnection.take, Opening.word, Opening.read

    def watched_take(connection: ZmtpConnection, half: Half, finding: Finding) -> None:
        concluding.append(finding)
        take(connection, half, finding)
        concluding.pop()

    def watched_word(opening: Opening) -> None:
        entered.extend(concluding)
        word(opening)

    def watched_read(opening: Opening, data: bytes, position: int) -> int:
        entered.extend(concluding)
        return read(opening, data, position)

    monkeypatch.setattr(ZmtpConnection, "take", watched_take)
    monkeypatch.setattr(Opening, "word", watched_word)
    monkeypatch.setattr(Opening, "read", watched_read)
    for seed in range(300):
        fed = [call for call in calls(Random(seed)) if call[1] == "feed"]
        events(fed, (seed % 3 > 0, seed % 3 > 1))
    assert entered == []
