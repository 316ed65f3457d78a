"""What is shown of captures that a simulated capture point makes, held against what was sent (``tests/capture_point``)."""

import pytest
from capture_point.families import FAMILIES, make
from capture_point.oracle import judge

_CASES = 150  # of each family


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_sent_is_shown(family: str) -> None:
    failed = {}
    for seed in range(_CASES):
        faults = judge(make(family, seed)).faults
        if faults:
            failed[seed] = faults
    first = next(iter(failed), None)
    assert not failed, (
        f"{len(failed)} of {_CASES}; python -m tests.capture_point --case {family}:{first}: {failed[first]}"  # type: ignore[index]
    )
