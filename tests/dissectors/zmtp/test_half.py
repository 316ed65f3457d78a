"""Which part of a half reads next: the diagram is the table, and what happens is in it."""

from random import Random

import pytest

from dissectors.zmtp import half as module
from dissectors.zmtp.half import STAGES, Half, Stage
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


def test_the_diagram_is_the_table() -> None:
    found = drawn()
    assert found.pop("any") == {"over"}
    assert found == {stage: set(following) for stage, following in STAGES.items() if following}


def test_stages_follow_on_each_other_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = SlotWatch(Half, "stage")
    monkeypatch.setattr(Half, "stage", watch)
    for seed in range(700):
        random = Random(seed)
        starts = random.choice([(True, True), (False, True), (False, False)])
        events(calls(random), starts, random.choice([None, None, 0, 1, 2, 3]))
    happened: set[tuple[Stage, Stage]] = watch.steps
    for before, after in happened:
        assert after in STAGES[before] or after == "over", (before, after)
    missing = {(before, after) for before, all_ in STAGES.items() for after in all_} - happened
    # A side that loses its place before its first octet, and is then said to be absent, and upgrades behind frames
    assert missing <= {("search", "opening"), ("frames", "message search")}, missing
