"""Facts of a connection that several stages of analysis ask for."""

from typing import get_args

import pytest

from dissectors.events import End
from tests.support import stats_events
from zmtpsniff.analysis.dossier import ended_soon


@pytest.mark.parametrize("end", get_args(End))
@pytest.mark.parametrize(("length_ns", "is_soon"), [(10**9, True), (10**9 + 1, False)])
def test_only_a_connection_that_a_side_closed_ended_soon(end: End, length_ns: int, is_soon: bool) -> None:
    event = stats_events.connection(1)
    event.end, event.end_ns = end, event.start_ns + length_ns
    assert event.is_closed == (end in ("fin", "rst"))
    assert ended_soon(event) == (event.is_closed and is_soon)
