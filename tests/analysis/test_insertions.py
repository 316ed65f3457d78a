"""Things that a stage finds get into a batch at their places."""

import random

from hypothesis import given
from hypothesis import strategies as st

from zmtpsniff.analysis.insertions import inserted


def test_things_of_one_place_keep_their_order() -> None:
    assert inserted(["a", "b"], [(1, 1), (1, 2), (2, 3), (0, 4)]) == [4, "a", 1, 2, "b", 3]


@given(st.lists(st.text(), max_size=8), st.randoms(use_true_random=False))
def test_each_thing_has_so_many_events_before_it(events: list[str], chance: random.Random) -> None:
    found = [(chance.randint(0, len(events)), thing) for thing in range(5)]
    out = inserted(events, found)
    assert [one for one in out if isinstance(one, str)] == events
    for place, thing in found:
        assert sum(isinstance(one, str) for one in out[: out.index(thing)]) == place
