"""How many examples a test takes: of hypothesis, and of captures, in each run or when everything is tried."""

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

T = TypeVar("T")

EXPLORES = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
"""Whether hypothesis takes other examples each time, as ``.ci/run`` does."""

_SHARE = 4


def examples(count: int) -> int:
    """As many as that when hypothesis explores, a quarter of them otherwise, which are the same ones each time.

    More of the same examples find nothing that they did not find yesterday.
    """
    return count if EXPLORES else max(5, count // _SHARE)


def sampled(values: Iterable[T], share: int = _SHARE) -> "list[T | ParameterSet]":
    """Every so many-th value for each run of the tests; the others are slow, for ``.ci/run`` to try them all."""
    return [
        value if number % share == 0 else pytest.param(value, marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]
