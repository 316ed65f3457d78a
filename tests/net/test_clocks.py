"""Two capture points whose clocks differ are told, with by how much, and nothing else is taken for them."""

import pytest

from tests.net.test_flows import Wire
from zmtpsniff.net.notices import CaptureProblem
from zmtpsniff.net.segment import ACK, FIN

MS = 1_000_000


def exchange(there_ms: float, back_ms: float, copies: int = 1) -> list[CaptureProblem]:
    """The clocks found in 20 turns whose segments, of the client and of the server, come again after so long."""
    wire = Wire()
    wire.connect()
    start = wire.now
    segments = []
    for turn in range(20):
        for back, mine, theirs, ms in ((False, 1001, 5001, there_ms), (True, 5001, 1001 + 9, back_ms)):
            at = start + (20 * turn + 10 * back) * MS
            again = (at + round(copy * ms * MS) for copy in range(copies + 1))
            segments += [(time_ns, back, mine + turn * 9, theirs + turn * 9) for time_ns in again]
    for at, back, seq, ack in sorted(segments):
        wire.now = at
        wire.send(back, seq, b"something", ack=ack)
    wire.send(False, 1181, flags=FIN | ACK, ack=5181)
    wire.table.finish()
    return wire.table.problems()


@pytest.mark.parametrize(("there_ms", "back_ms"), [(50.2, 49.8), (49.8, 50.2)])
def test_clocks_that_differ(there_ms: float, back_ms: float) -> None:
    said = "packets are in it twice, from two capture points whose clocks differ by about 50.0 ms"
    assert exchange(there_ms, back_ms) == [CaptureProblem("clocks-differ", said, 50 * MS)]


@pytest.mark.parametrize(
    ("there_ms", "back_ms", "copies"),
    [
        (0.02, 0.02, 1),  # two interfaces of one host
        (8.0, 8.0, 1),  # a long way between two points: each copy comes before the acknowledgment
        (50.0, 50.0, 0),
    ],
)
def test_clocks_that_agree(there_ms: float, back_ms: float, copies: int) -> None:
    assert exchange(there_ms, back_ms, copies) == []


def test_clocks_that_differ_though_one_side_only_sends() -> None:
    """Its copies come so late that nobody has the first ones any more. They were acknowledged since."""
    wire = Wire()
    wire.connect()
    for turn in range(40):
        wire.send(False, 1001 + turn * 9, b"something", ack=5001)
        wire.send(True, 5001, ack=1010 + turn * 9)
        if turn >= 30:
            wire.send(False, 1001 + (turn - 30) * 9, b"something", ack=5001)
    wire.table.finish()
    said = "packets are in it twice, from two capture points whose clocks differ"
    assert wire.table.problems() == [CaptureProblem("clocks-differ", said)]


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_what_is_sent_again_is_no_second_capture_point(is_acknowledged: bool) -> None:
    """A network loses segments in a row, and the sender sends them again; or acknowledgments, and it sends the last."""
    wire = Wire()
    wire.connect()
    for turn in range(20):
        wire.send(False, 1001 + turn * 9, b"something", ack=5001)
        if is_acknowledged:
            wire.send(True, 5001, ack=1010 + turn * 9)
            wire.send(False, 1001 + turn * 9, b"something", ack=5001)
            wire.send(False, 1001 + turn * 9, b"something", ack=5001)
    if not is_acknowledged:
        for turn in range(20):
            wire.send(False, 1001 + turn * 9, b"something", ack=5001)
    wire.table.finish()
    assert wire.table.problems() == []
