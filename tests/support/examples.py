"""How many examples a test takes: of hypothesis, and of captures, in each run or when everything is tried."""

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

T = TypeVar("T")

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "same")
"""Hypothesis' choices: ``same``, ``thorough`` or ``explore``; ``tests/conftest.py`` says what each is for."""

_SHARE = 4


def examples(count: int) -> int:
    """As many as that by the profiles ``thorough`` and ``explore``, a quarter of them by ``same``."""
    return max(5, count // _SHARE) if PROFILE == "same" else count


def sampled(values: Iterable[T], share: int = _SHARE) -> "list[T | ParameterSet]":
    """Every so many-th value for each run of the tests; the others are slow, for ``.ci/run`` to try them all."""
    return [
        value if number % share == 0 else pytest.param(value, marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]


def crossed(*dimensions: Sequence[object]) -> "list[ParameterSet]":
    """Each value with each of the other dimensions. Each run has each value once; the other combinations are slow."""
    each_once = {tuple(at % len(values) for values in dimensions) for at in range(max(map(len, dimensions)))}
    combinations = []
    for places in itertools.product(*(range(len(values)) for values in dimensions)):
        given = [values[at] for values, at in zip(dimensions, places, strict=True)]
        parts = [each if isinstance(each, ParameterSet) else pytest.param(each) for each in given]
        marks = [mark for part in parts for mark in part.marks] + [pytest.mark.slow] * (places not in each_once)
        combinations.append(pytest.param(*(value for part in parts for value in part.values), marks=marks))
    return combinations
