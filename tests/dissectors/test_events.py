"""Octets of which not all are at hand: their sender may claim any length."""

from io import BytesIO

import pytest

from dissectors.events import Cut, Message
from zmtpsniff.analysis.statistics.lengths import octets_of
from zmtpsniff.render.jsonl import JsonlRenderer


@pytest.mark.parametrize(
    ("claimed", "length"), [(-1, 0), (3, 3), (1 << 63, (1 << 63) - 1), ((1 << 64) - 1, (1 << 63) - 1)]
)
def test_any_length_is_a_length(claimed: int, length: int) -> None:
    """A frame of ZMTP 2.0 and later has eight octets for it; one of 1.0 counts its flags."""
    assert len(Cut(b"", claimed)) == length
    message = Message(0, 1, 1, "10.0.0.1:40000", "10.0.0.2:5555", [Cut(b"x", claimed)])
    assert octets_of(message) == length
    stream = BytesIO()
    JsonlRenderer(stream).write([message])
    assert f'"length":{claimed}'.encode() in stream.getvalue()
