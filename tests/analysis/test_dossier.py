"""Facts of a connection that several stages of analysis ask for."""

from typing import get_args

import pytest

from dissectors.events import End
from tests.support import stats_events
from zmtpsniff.analysis.dossier import ended_soon, task_of


@pytest.mark.parametrize("end", get_args(End))
@pytest.mark.parametrize(("length_ns", "is_soon"), [(10**9, True), (10**9 + 1, False)])
def test_only_a_connection_that_a_side_closed_ended_soon(end: End, length_ns: int, is_soon: bool) -> None:
    event = stats_events.connection(1)
    event.end, event.end_ns = end, event.start_ns + length_ns
    assert event.is_closed == (end in ("fin", "rst"))
    assert ended_soon(event) == (event.is_closed and is_soon)


@pytest.mark.parametrize(
    ("frames", "task"),
    [
        ([b"", b"MDPC01", b"echo", b"body"], b"echo"),
        ([b"", b"resize", b"body"], b"resize"),
        ([b"", b"body"], b""),
        ([b"", b"C", b"2", b"01", b"laser", b"measure", b"body"], b"C\0laser\0measure"),
        ([b"", b"C", b"2", b"echo", b"aa7b6457-6ba2-4056-be4c-f8072898f065", b"0", b"body"], b"C\0echo"),
    ],
)
def test_a_task_has_the_words_behind_its_command_and_no_id(frames: list[bytes], task: bytes) -> None:
    assert task_of(frames, 1) == task
