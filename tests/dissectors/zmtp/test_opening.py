"""Greetings, read by themselves: facts, agreements, and that states follow on each other as the table says."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import get_args

import pytest

from dissectors.zmtp import opening_states
from dissectors.zmtp.agreement import Agreement, agree
from dissectors.zmtp.buffer import Buffer
from dissectors.zmtp.opening import Opening
from dissectors.zmtp.opening_states import FROM_ANY, TRANSITIONS, Cause, State
from tests.support.dissector_calls import calls, events
from tests.support.slot_watch import SlotWatch
from tests.world.octets import SIGNATURE, greeting


def pair(starts: bool = True, forced: int | None = None) -> tuple[Opening, Opening]:
    one, other = Opening(Buffer(), "client", starts, forced), Opening(Buffer(), "server", starts, forced)
    one.other, other.other = other, one
    return one, other


def facts(one: Opening, octets: bytes, proven: bool = True) -> Iterator[str]:
    """The events of one side's octets, which come all at once."""
    one.proven = proven
    position = 0
    while position < len(octets):
        before = position, one.state
        position = one.read(octets, position)
        fact, one.fact = one.fact, None
        if fact is not None:
            yield fact
        if (position, one.state) == before:
            return


def test_a_greeting_alone_waits_for_the_other_side() -> None:
    one, other = pair()
    assert list(facts(one, greeting(), proven=False)) == ["signature"]
    assert one.state == "after signature"
    assert list(facts(other, SIGNATURE)) == []
    assert list(facts(one, greeting()[10:])) == []
    assert (one.revision, one.greeted) == (3, False)  # whether a minor version follows depends on theirs
    assert list(facts(other, greeting()[10:])) == ["greeting"]
    assert list(facts(one, greeting()[11:] + b"\4")) == ["greeting", "frames"]
    assert (one.version, one.mechanism, one.framing) == ("3.1", "NULL", 2)
    assert agree(one, other) == Agreement("3.1", "NULL")


def test_an_announcement_matters_as_a_proof_and_to_a_side_that_waits() -> None:
    one, other = pair()
    assert list(facts(one, SIGNATURE, proven=False)) == ["signature"]
    assert list(facts(other, SIGNATURE + b"\3", proven=False)) == ["signature", "revision"]
    buffer = Buffer()
    one, waits = Opening(Buffer(), "client"), Opening(buffer, "server")
    one.other, waits.other = waits, one
    list(facts(waits, SIGNATURE))
    list(facts(one, SIGNATURE))
    buffer.hold(b"\1", 0)  # whether a revision follows depends on what the other side begins with
    assert list(facts(one, b"\3")) == ["revision"]
    buffer.clear()
    one, other = pair()
    assert list(facts(one, SIGNATURE + b"\3")) == []


def test_an_identity_of_1_0() -> None:
    one, other = pair()
    assert list(facts(one, b"\3\0me\2\0a", proven=False)) == ["identity"]
    assert (one.version, one.identity, one.framing) == ("1.0", b"me", 1)
    assert one.evidence is not None
    # A side that can fall back sends the octets of its identity behind its signature.
    assert list(facts(other, SIGNATURE)) == []
    other.word()
    assert other.fact == "identity"
    assert (other.identity, other.framing) == (b"", 1)


def test_the_middle_of_a_stream_is_no_beginning() -> None:
    one, _ = pair(starts=False)
    assert next(facts(one, b"\0\5hello" * 20)) == "unknown"
    assert one.silent


@pytest.mark.parametrize("cut", range(1, 64))
def test_the_rest_of_a_greeting(cut: int) -> None:
    """From the middle of the mechanism's name on it may be anything, unless a command follows."""
    one, _ = pair(starts=False)
    octets = greeting()[cut:] + b"\4\6\5READY"
    assert "greeting" in list(facts(one, octets))[:3]


@pytest.mark.parametrize("begin", range(64))
def test_a_hole_to_the_end_of_a_greeting(begin: int) -> None:
    one, other = pair()
    list(facts(other, SIGNATURE))
    list(facts(one, greeting()))
    list(facts(other, greeting()[10:]))
    assert (other.greeted, other.framing, other.version) == (True, 2, "3.1")
    one, _ = pair()
    one.other = other
    list(facts(one, greeting()[:begin])) if begin else None
    held = {0: 0, 10: 0}.get(begin, begin % 11 if begin < 11 else begin - 11)
    one.skip(greeting()[begin - held : begin], begin - held, 64)
    assert one.fact == "greeting"
    assert one.state == "after greeting"


# ---------------------------------------------------------------------- the table


def arrows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if "─▶" in line:
            states = [state.strip() for state in line.split("─▶")]
            yield from pairwise(states)


def test_the_diagram_is_the_table() -> None:
    drawn = list(arrows(opening_states.__doc__ or ""))
    assert len(drawn) > 10
    for before, after in drawn:
        assert after in TRANSITIONS[before].values()  # type: ignore[index]
    elsewhere = {"over", "absent", "perhaps start", "behind signature", "rest of greeting"}
    assert {state for step in drawn for state in step} == set(TRANSITIONS) - elsewhere


def test_each_step_of_the_table_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """In conversations with holes."""
    watch = SlotWatch(Opening, "state")
    monkeypatch.setattr(Opening, "state", watch)
    for seed in range(1500):
        random = Random(seed)
        starts = random.choice([(True, True), (False, True), (False, False)])
        events(calls(random), starts, random.choice([None, None, 0, 1, 2, 3]))
    happened: set[tuple[State, State]] = {(before, after) for before, after in watch.steps if before != after}
    missing = {(before, after) for before, steps in TRANSITIONS.items() for after in steps.values()} - happened
    assert not missing
    assert {after for _, after in happened} >= set(FROM_ANY.values())


def test_each_cause_leads_somewhere() -> None:
    assert set(get_args(Cause)) == {cause for steps in TRANSITIONS.values() for cause in steps} | FROM_ANY.keys()
